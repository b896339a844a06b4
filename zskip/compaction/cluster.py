"""`cluster`: lay out the files of a Delta or Iceberg table in place, through a commit of its own format.

    survivors of where= that are not laid out yet ──rows──▶ layout ──▶ new files ──▶ the format's transaction

The index stores the fitted layout and the ids of the writes that followed it, so a later call lays out only newer
files. Where another writer commits meanwhile, the commit is retried as long as the files that were read are live.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zskip import hive
from zskip.binder import bind
from zskip.engines.arrow import to_batches
from zskip.errors import CommitConflict, InvalidOption
from zskip.plan import survey
from zskip.plan.survivors import Survivors
from zskip.receipts import Clustered
from zskip.schema import Schema
from zskip.sources import Source, delta_commit, iceberg_commit, index_of
from zskip.sources.delta import DeltaSource
from zskip.sources.iceberg import IcebergSource
from zskip.storage import Storage, abandon
from zskip.storage.local import LocalStorage
from zskip.tablelog import Index, LayoutRecord, commit
from zskip.writer import WriteOptions
from zskip.writer.append import recorded, routing_of
from zskip.writer.row_source import of_reader
from zskip.writer.write import Written, write_files

__all__ = ["cluster"]

_ATTEMPTS = 5
_RUN = re.compile(r"-([0-9a-f]{16})(?:-\d+)*\.parquet$")


def cluster(
    source: Source,
    options: WriteOptions,
    *,
    where: str | None = None,
    max_bytes: int | None = None,
    full: bool = False,
    dry_run: bool = False,
) -> Clustered:
    """Lay out the files of a table that may hold rows of ``where`` (by default all files), up to ``max_bytes``.

    Files that an earlier call laid out by the same columns stay as they are, unless ``full``: then the layout is fitted
    again, to all files. Raises `CommitConflict` where another writer replaced the same files, and `UnsupportedFormat`
    for a table that the format's library cannot write.
    """
    index = index_of(source)
    snapshot = index.snapshot
    if not options.by and snapshot.layout is not None:
        options = replace(options, by=tuple(snapshot.layout.options["by"]))
    if not options.by and options.workload is None:
        raise InvalidOption("Give by=, the columns to lay out by: this table has no layout yet.")
    by = [column.path for column in snapshot.schema.orderable(options.by)]
    known = snapshot.layout if snapshot.layout is not None and list(snapshot.layout.options["by"]) == by else None
    runs: list[str] = [] if known is None or full else list(known.options["runs"])
    chosen = _chosen(index, where, runs, max_bytes)
    size = int(pc.sum(chosen.sizes, min_count=0).as_py())
    version = int(snapshot.details["version"])
    if dry_run or not len(chosen):
        return Clustered(version, len(chosen), size, None if dry_run else 0, dry_run)
    paths = index.paths(chosen.numbers)
    options = replace(options, by=by, partition_by=snapshot.partition_by)
    routing, rows_per_file = routing_of(index.parts, snapshot) if runs else (None, None)

    def laid_out(into: Storage) -> Written:
        scan = chosen.scan
        rows = of_reader(pa.RecordBatchReader.from_batches(scan.schema.arrow, to_batches(scan)))
        return write_files(rows, into, _plain(scan.schema), options, routing, rows_per_file)

    if isinstance(source, DeltaSource):
        delta_commit.require_replaceable(source, index, chosen.numbers)
        written = laid_out(source.storage)
        try:
            count = _commit_delta(source, index, paths, written)
            runs += sorted({match[1] for path in written.files.path.to_pylist() if (match := _RUN.search(path))})
        except CommitConflict:
            abandon(source.storage, written.files.path.to_pylist())
            raise
    elif isinstance(source, IcebergSource):
        iceberg_commit.require_replaceable(source)
        options = replace(options, partition_by=())
        with tempfile.TemporaryDirectory(dir=options.temp_directory) as folder:
            written = laid_out(LocalStorage(Path(folder)))
            files = [str(Path(folder) / path) for path in written.files.path.to_pylist()]
            run = uuid4()
            count = iceberg_commit.replace_files(source, index, chosen.numbers, map(pq.read_table, files), run)
            runs.append(str(run))
    else:
        raise InvalidOption(f"{source.format} tables cannot be laid out.")
    now = _recorded(source, recorded(written, options), runs)
    return Clustered(int(now.snapshot.details["version"]), len(chosen), size, count)


def _chosen(index: Index, where: str | None, runs: Sequence[str], max_bytes: int | None) -> Survivors:
    """The files to lay out: those that may hold rows of ``where`` and are not of earlier runs, up to ``max_bytes``."""
    predicate = None if where is None else bind(where, index.snapshot.schema)
    everything = survey(index, None)
    numbers = survey(index, predicate).numbers
    if runs:
        names = index.paths(numbers).to_pylist()
        numbers = numbers[[not any(run in name for run in runs) for name in names]]
    if max_bytes is not None:
        sizes = np.cumsum(np.asarray(index.sizes(numbers)))
        numbers = numbers[sizes <= max_bytes]
    return everything.narrowed(numbers)


def _plain(schema: Schema) -> Schema:
    return Schema(pa.schema([field.remove_metadata() for field in schema.arrow]))


def _commit_delta(source: DeltaSource, index: Index, paths: pa.StringArray, written: Written) -> int:
    """Replace the files in the newest version in which all of them are live."""
    values = [_partition_values(path, index.snapshot.partition_by) for path in written.files.path.to_pylist()]
    for attempt in range(_ATTEMPTS):
        names = index.paths(np.arange(len(index)))
        gone = np.flatnonzero(np.asarray(pc.is_in(names, value_set=paths)))
        if len(gone) < len(paths) or index.deletes(gone).null_count < len(gone):
            raise CommitConflict(
                f"{source.storage.uri}: another writer changed files that were being laid out. Nothing was changed. "
                "Run it again."
            )
        try:
            delta_commit.replace_files(source, index, gone, written.files, values)
            return len(written.files)
        except CommitConflict:
            if attempt == _ATTEMPTS - 1:
                raise
            fresh = index_of(source)
            if fresh.snapshot.schema != index.snapshot.schema:
                raise
            index = fresh
    raise AssertionError


def _partition_values(path: str, partition_by: Sequence[str]) -> Mapping[str, str | None]:
    texts = hive.values_of(path)
    return {name: texts[name] for name in partition_by}


def _recorded(source: Source, record: LayoutRecord, runs: Sequence[str]) -> Index:
    """The index of the current table, with the layout and the runs that followed it recorded."""
    index = index_of(source.moved_on() if isinstance(source, IcebergSource) else source)
    kept: dict[str, Any] = {**record.options, "runs": list(runs)}
    snapshot = commit(
        index.parts,
        index.snapshot,
        "cluster",
        layout=replace(record, options=kept),
        managed=False,
        details=index.snapshot.details,
    )
    return Index(index.storage, snapshot, parts=index.parts)
