"""`cluster`: lay out the files of a Delta or Iceberg table in place, through a commit of its own format.

    survivors of where= that are not laid out yet ──rows──▶ layout ──▶ new files ──▶ the format's transaction

The index stores the fitted layout and the ids of the writes that followed it, so a later call lays out only newer
files. If another writer commits in the meantime, the commit is retried as long as the files that were read are live.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zskip.binder import bind
from zskip.core.receipts import Clustered
from zskip.core.schema import Schema
from zskip.engines.arrow import to_batches
from zskip.errors import CommitConflict, InvalidOption, TableNotFound
from zskip.plan import find_survivors
from zskip.plan.survivors import Survivors
from zskip.storage import Staged, Storage, abandon, hive
from zskip.storage.local import LocalStorage
from zskip.table_formats import Source, delta_commit, iceberg_commit, index_of
from zskip.table_formats.delta import DeltaSource
from zskip.table_formats.iceberg import IcebergSource
from zskip.tablelog import Index, LayoutRecord, Snapshot, commit
from zskip.writer import WriteOptions
from zskip.writer.append import layout_record, routing_of
from zskip.writer.row_source import of_reader
from zskip.writer.write import Written, write_files

__all__ = ["cluster"]

_LOG = logging.getLogger("zskip")
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

    Files that an earlier call laid out by the same columns stay unchanged. With ``full``, the layout is fitted again,
    to all files. Raises `CommitConflict` if another writer replaced the same files, and `UnsupportedFormat` for a table
    that the format's library cannot write.
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
    with _unless_changed(source):
        chosen = _chosen(index, where, runs, max_bytes)
    size = int(pc.sum(chosen.sizes, min_count=0).as_py())
    version = int(snapshot.details["version"])
    if dry_run or not len(chosen):
        return Clustered(version, len(chosen), size, None if dry_run else 0, dry_run)
    options = replace(options, by=by, partition_by=snapshot.partition_by)
    routing, rows_per_file = routing_of(index.parts, snapshot) if runs else (None, None)

    def laid_out(into: Storage) -> Written:
        scan = chosen.scan
        rows = of_reader(pa.RecordBatchReader.from_batches(scan.schema.arrow, to_batches(scan)))
        return write_files(rows, into, _plain(scan.schema), options, routing, rows_per_file)

    if isinstance(source, DeltaSource):
        with _unless_changed(source):
            delta_commit.require_replaceable(source, index, chosen.numbers)
            written = laid_out(source.storage)
            version = _commit_delta(source, index, index.paths(chosen.numbers), written)
        count = len(written.files)
        runs += sorted({match[1] for path in written.files.path.to_pylist() if (match := _RUN.search(path))})
    elif isinstance(source, IcebergSource):
        iceberg_commit.require_replaceable(source)
        options = replace(options, partition_by=())
        run = uuid4()
        with _unless_changed(source), tempfile.TemporaryDirectory(dir=options.temp_directory) as folder:
            written = laid_out(LocalStorage(Path(folder)))
            files = [str(Path(folder) / path) for path in written.files.path.to_pylist()]
            count = iceberg_commit.replace_files(source, index, chosen.numbers, map(pq.read_table, files), run)
        source = source.after_commit()
        version = source.snapshot_id(source.opened())
        runs.append(str(run))
    else:
        raise InvalidOption(f"{source.format} tables cannot be laid out.")
    _record(source, snapshot.details["table"], layout_record(written, options), runs)
    return Clustered(version, len(chosen), size, count)


@contextmanager
def _unless_changed(source: Source) -> Iterator[None]:
    """Raise `CommitConflict` in place of errors that arise because others changed, deleted or vacuumed the table."""
    try:
        yield
    except (CommitConflict, TableNotFound) as error:
        raise CommitConflict(
            f"{source.home.uri} was changed by others while it was being laid out: {error} Nothing was changed here. "
            "Run it again."
        ) from error


def _chosen(index: Index, where: str | None, runs: Sequence[str], max_bytes: int | None) -> Survivors:
    """The files to lay out, up to ``max_bytes``: those that may hold rows of ``where`` and are in none of ``runs``."""
    predicate = None if where is None else bind(where, index.snapshot.schema)
    everything = find_survivors(index, None)
    numbers = find_survivors(index, predicate).numbers
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
    """Replace the files in the newest version, if all of them are live in it. Returns the new version."""
    before = index.snapshot
    values = [_partition_values(path, before.partition_by) for path in written.files.path.to_pylist()]
    with Staged(partial(abandon, source.storage)) as staged:
        staged.add(written.files.path.to_pylist())
        for _ in range(_ATTEMPTS):
            names = index.paths(np.arange(len(index)))
            gone = np.flatnonzero(np.asarray(pc.is_in(names, value_set=paths)))
            if len(gone) < len(paths) or index.deletes(gone).null_count < len(gone):
                raise CommitConflict("Another writer changed files that were being laid out.")
            try:
                return delta_commit.replace_files(source, index, gone, written.files, values, staged)
            except CommitConflict as error:
                conflict = error
            index = index_of(source)
            if index.snapshot.details["table"] != before.details["table"] or index.snapshot.schema != before.schema:
                break
        raise conflict


def _partition_values(path: str, partition_by: Sequence[str]) -> Mapping[str, str | None]:
    texts = hive.values_of(path)
    return {name: texts[name] for name in partition_by}


def _record(source: Source, table: str, record: LayoutRecord, runs: Sequence[str]) -> None:
    """Record the layout, and the runs that followed it, in the index of the table's newest version.

    If this fails, the next call lays out more files than it needs to, and nothing else is wrong.
    """
    kept: dict[str, Any] = {**record.options, "runs": list(runs)}
    for _ in range(_ATTEMPTS):
        index = index_of(source)
        if index.snapshot.details["table"] != table:  # another table was created in its place
            return
        try:
            commit(
                index.parts,
                index.snapshot,
                "cluster",
                layout=replace(record, options=kept),
                managed=False,
                details=index.snapshot.details,
                still=_refuse,
            )
        except CommitConflict:
            continue
        return
    _LOG.warning("The layout of %s was not recorded: other processes update its index.", source.home.uri)


def _refuse(newest: Snapshot) -> None:
    # The details contain a position in the table's log: an older position would make the index read commits twice.
    raise CommitConflict(f"Version {newest.version} of the side-car was made meanwhile.")
