"""`cluster`: lay out the files of a Delta or Iceberg table in place, through a commit of its own format.

    survivors of where= that are not laid out yet ──rows──▶ layout ──▶ new files ──▶ the format's transaction

The index stores the options of the layout and the ids of the writes that followed it, each a layout group. A later
call lays out newer files as a group, and merges groups where that pays (`layout_groups`). If another writer commits in
the meantime, the commit is retried as long as the files that were read are live.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zskip.binder import bind
from zskip.core.receipts import Clustered
from zskip.core.schema import Schema
from zskip.engines.arrow import to_batches
from zskip.errors import CommitConflict, InvalidOption, SchemaError, SchemaMismatch, TableNotFound
from zskip.parquet.arrow_differences import with_instants_of_all
from zskip.parquet.footers import both_schemas
from zskip.plan import find_survivors
from zskip.plan.survivors import Survivors
from zskip.stats import DataFiles
from zskip.storage import Listing, Staged, Storage, hive
from zskip.storage.local import LocalStorage
from zskip.table_formats.locate import index_of
from zskip.table_formats.log_index import followed
from zskip.table_formats.source import Replacement, Source
from zskip.tablelog.commit import TableUpdate, commit, refuse_newer
from zskip.tablelog.freshness import changes, data_files
from zskip.tablelog.index import Index
from zskip.tablelog.log import newest
from zskip.tablelog.snapshot import LayoutRecord, Snapshot
from zskip.tablelog.table_folders import refuse_files_of_tables, refuse_within_index
from zskip.writer import append
from zskip.writer.append import kept_options, layout_record
from zskip.writer.backend import LOCAL, Backend
from zskip.writer.evolution import may_round
from zskip.writer.options import WriteOptions
from zskip.writer.row_source import of_reader
from zskip.writer.storable import refuse_variants_of_file, storable_schema
from zskip.writer.write import Written, write_files

_LOG = logging.getLogger("zskip")
_ATTEMPTS = 5
# The id of a write in the names of its files: that of zskip, or that which pyiceberg was given.
_RUN = re.compile(r"-([0-9a-f]{16}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-\d+)*\.parquet$")


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

    Files that an earlier call laid out by the same columns stay unchanged until merging their groups pays. With
    ``full``, the layout is fitted again, to all files. Raises `CommitConflict` if another writer replaced the same
    files, and `UnsupportedFormat` for a table that the format's library cannot write.
    """
    index = index_of(source)
    version = int(index.snapshot.details["version"])
    options, runs = _laid_out_by(index.snapshot, options, full=full)
    with _unless_changed(source):
        sets = _sets(index, where, runs, options, max_bytes)
    files = sum(len(each.files) for each in sets)
    size = sum(int(pc.sum(each.files.sizes, min_count=0).as_py()) for each in sets)
    if dry_run or not sets:
        return Clustered(version, files, size, None if dry_run else 0, dry_run)
    written = 0
    for number, each in enumerate(sets):
        if number:
            # The commit before this one made another version.
            with _unless_changed(source):
                index = index_of(source)
                each = _moved(index, each)
        made = _lay_out(source, index, each, options, runs)
        source, version, runs, written = made.source, made.version, made.runs, written + made.files
    return Clustered(version, files, size, written)


@dataclass(frozen=True, slots=True)
class _Set:
    """Files to rewrite together. ``weights``: for the fit; None for those of the options"""

    files: Survivors
    weights: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class _Made:
    """The table after a commit, its version, the runs that followed its layout, and the number of files written."""

    source: Source
    version: int
    runs: list[str]
    files: int


def _laid_out_by(snapshot: Snapshot, options: WriteOptions, *, full: bool) -> tuple[WriteOptions, list[str]]:
    """The options of the layout, and the runs that followed it; none if a new layout begins."""
    known = snapshot.layout
    if not options.by and known is not None:
        options = replace(options, by=tuple(known.options["by"]))
    if not options.by and options.workload is None:
        is_gone = known is not None and not known.columns
        why = "the columns that it was laid out by are gone" if is_gone else "this table has no layout yet"
        raise InvalidOption(f"Give by=, the columns to lay out by: {why}.")
    by = [column.path for column in snapshot.schema.orderable(options.by)]
    options = replace(options, by=by, partition_by=snapshot.partition_by)
    if known is None or full or list(known.options["by"]) != by:
        return options, []
    sizes = [name for name in ("files", "rows_per_file", "file_size") if getattr(options, name) is not None]
    if not sizes:
        options = replace(options, rows_per_file=int(known.options["fitted_rows_per_file"]))
    return options, list(known.options["runs"])


def _sets(
    index: Index, where: str | None, runs: Sequence[str], options: WriteOptions, max_bytes: int | None
) -> list[_Set]:
    """The sets of files to rewrite, the best first, within ``max_bytes``: merges of groups, and the new files.

    The files of a run are a layout group. Those in no run are new: they become one, by a merge or alone.
    """
    predicate = None if where is None else bind(where, index.snapshot.schema)
    everything = find_survivors(index, None)
    numbers = find_survivors(index, predicate).numbers
    paths = index.paths(numbers)
    group = np.full(len(numbers), len(runs), np.int64)
    for number, run in enumerate(runs):
        group[np.asarray(pc.match_substring(paths, run))] = number
    new = group == len(runs)
    found: list[_Set] = []
    look_ups = append.look_ups_of(index, options, exact=True) if runs else None
    if look_ups is not None:
        from zskip.writer.compaction.layout_groups import merges

        rows = np.asarray(pc.fill_null(index.row_counts(numbers), 0), np.float64)
        full = append.rows_per_file(index.snapshot, options)
        group_of = np.unique(group, return_inverse=True)[1]
        sizes = np.asarray(pc.fill_null(index.sizes(numbers), 0))
        of_files = look_ups.of_files(numbers)
        for merge in merges(paths, rows, of_files, full, group_of, sizes=sizes, max_bytes=max_bytes):
            found.append(_Set(everything.narrowed(numbers[merge.numbers]), merge.weights))
            new[merge.numbers] = False
    if new.any():
        found.append(_Set(everything.narrowed(numbers[new])))
    if max_bytes is None:
        return found
    within = []
    for each in found:
        sizes = np.cumsum(np.asarray(each.files.sizes))
        if each.weights is None:  # new files can be laid out bit by bit
            each = _Set(each.files.narrowed(each.files.numbers[sizes <= max_bytes]))
        elif sizes[-1] > max_bytes:
            continue
        if len(each.files):
            max_bytes -= int(pc.sum(each.files.sizes).as_py())
            within.append(each)
    return within


def _lay_out(source: Source, index: Index, chosen: _Set, options: WriteOptions, runs: list[str]) -> _Made:
    """Rewrite some files in one commit of the table's format, and record it in the index."""
    snapshot, files = index.snapshot, chosen.files
    look_ups = partial(append.look_ups_of, index, options) if runs and chosen.weights is None else None
    fitting = options
    if chosen.weights is not None and options.workload is None:
        fitting = replace(options, weights=chosen.weights)

    made: list[Written] = []

    def laid_out(into: Storage, staged: Staged) -> DataFiles:
        scan = files.scan
        rows = of_reader(pa.RecordBatchReader.from_batches(scan.schema.arrow, to_batches(scan)))
        made.append(write_files(rows, into, _plain(scan.schema), fitting, look_ups, staged))
        return made[-1].files

    def tables() -> Iterator[pa.Table]:
        nonlocal fitting
        fitting = replace(fitting, partition_by=())  # whoever writes these rows divides them
        with tempfile.TemporaryDirectory(dir=options.temp_directory) as folder:
            local = LocalStorage(Path(folder))
            for path in laid_out(local, Staged(local.delete)).path.to_pylist():
                yield pq.read_table(local.uri_of(path))

    with _unless_changed(source):
        source.require_replaceable(index, files.numbers)
        replaced = source.replace_files(Replacement(index, files.numbers, laid_out, tables, index_of))
    assert replaced is not None
    runs = [*runs, *sorted({match[1] for path in replaced.paths if (match := _RUN.search(path))})]
    _record(replaced.source, snapshot, append.layout_record(made[0], options), runs)
    return _Made(replaced.source, replaced.version, runs, len(replaced.paths))


def _moved(index: Index, chosen: _Set) -> _Set:
    """The same files in a newer index. Raises `CommitConflict` if some are gone."""
    everything = find_survivors(index, None)
    numbers = np.flatnonzero(np.asarray(pc.is_in(everything.relative_paths, value_set=chosen.files.relative_paths)))
    if len(numbers) < len(chosen.files):
        raise CommitConflict("Another writer removed files that were to be merged.")
    return replace(chosen, files=everything.narrowed(numbers))


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


def _plain(schema: Schema) -> Schema:
    return Schema(pa.schema([field.remove_metadata() for field in schema.arrow]))


def _record(source: Source, base: Snapshot, record: LayoutRecord, runs: Sequence[str]) -> None:
    """Record the layout of ``base``, and the runs that followed it, in the index of the table's newest version.

    If this fails, the next call lays out more files than it needs to, and nothing else is wrong.
    """
    kept: dict[str, Any] = {**record.options, "runs": list(runs)}
    for _ in range(_ATTEMPTS):
        index = index_of(source)
        if index.snapshot.details["table"] != base.details["table"]:  # another table was created in its place
            return
        layout = followed(replace(record, options=kept), base.schema, index.snapshot.schema)
        try:
            commit(
                index.parts,
                index.snapshot,
                TableUpdate(
                    "cluster",
                    layout=layout,
                    managed=False,
                    details=index.snapshot.details,
                    # The details hold a position in the table's log: from an older one, commits would be read twice.
                    still=refuse_newer,
                ),
            )
        except CommitConflict:
            continue
        return
    _LOG.warning("The layout of %s was not recorded: other processes update its index.", source.home.uri)


# `cluster_folder`: lay out a folder of plain Parquet in place, and make it a zskip table.
#
#     day-1.parquet day-2.parquet
#     _zskip/                        version n: the index of these files
#
#     day-1.parquet day-2.parquet
#     _zskip/ _data/part-….pq        one commit: version n + 1 names only the new files
#
#     _zskip/ _data/part-….pq        a vacuum that expires version n removes the old ones
#
# The new files, and those of later writes, are in a folder whose name begins with an underscore. Spark and Arrow ignore
# it when they list the folder above, and the names of its files do not match ``**/*.parquet``. So such programs read
# the old files, each row once, until the vacuum removes them; they never read old and new files together.


def cluster_folder(
    storage: Storage,
    options: WriteOptions,
    *,
    dry_run: bool = False,
    indexed: Callable[[Storage], Snapshot] | None = None,
    backend: Backend = LOCAL,
) -> Clustered:
    """Rewrite all rows of a folder by a layout, and commit the new files as a table. ``indexed``: indexes the folder,
    by default `index_files`.

    After an error the folder is unchanged, except that it is indexed. Raises `SchemaError` for names of folders that
    Spark does not read as DuckDB does, if a session writes, `SchemaMismatch` if the common type of a column would round
    the numbers of some files, `CommitConflict` if files were added, changed or removed in the meantime, or another
    process made the folder a table, and the errors of `index_files`.
    """
    from zskip.tablelog.indexing import index_files, refresh
    from zskip.writer.compaction.compact import require_same_rows

    if not options.by and options.workload is None:
        raise InvalidOption("Give by=, the columns to lay out by: this folder has no layout yet.")
    refuse_within_index(storage)
    base = newest(storage)
    if base is not None:
        _require_indexed(storage, base)
    listing = data_files(storage)
    refuse_files_of_tables(storage, listing.path, itself=False)  # the log may be newer than the index
    if dry_run:
        size = int(pc.sum(listing.size, min_count=0).as_py())
        return Clustered(0 if base is None else base.version, len(listing), size, None, dry_run)
    base = (indexed or index_files)(storage) if base is None else refresh(Index(storage, base))
    _require_indexed(storage, base)
    index = Index(storage, base)
    numbers = np.arange(len(index), dtype=np.int64)
    listing = data_files(storage)
    arrow = with_instants_of_all(base.schema.arrow, _exact(storage, listing, base))
    schema = Schema(storable_schema(arrow))
    schema.orderable(options.by)
    kept = hive.kept_names(listing.path, schema.arrow)
    if kept and backend is not LOCAL:
        raise SchemaError(
            f'The name of the folder "{next(iter(kept.values()))}" at {storage.uri} has another value on Spark than in '
            "DuckDB. zskip.cluster lays the folder out without a session, and keeps both."
        )
    options = replace(
        options,
        partition_by=base.partition_by,
        sketches=kept_options(base, options).sketches,
        hidden=True,
        folder_names=kept,
    )
    rows = backend.rows_of_scan(find_survivors(index, None).scan, arrow)
    with Staged(storage.delete) as staged:
        written = backend.write(rows, storage, schema, options, None, staged)
        require_same_rows(index, numbers, written)
        _require_unchanged(index)
        made = commit(
            storage,
            base,
            TableUpdate(
                "cluster",
                add=written.files,
                replace_all=True,
                schema=schema,
                layout=layout_record(written, options),
                partition_by=base.partition_by,
                details={"rows": written.rows, "files": len(written.files)},
                still=lambda newest: _cluster_folder_refuse(storage, f"version {newest.version} was committed"),
                sketches=written.sketches,
            ),
            staged=staged,
        )
    try:
        _require_unchanged(index)
    except CommitConflict:
        commit(storage, made, TableUpdate("restore", restore=base, details={"restored": base.version}))
        raise
    return Clustered(made.version, len(index), int(pc.sum(index.sizes(numbers)).as_py()), len(written.files))


def _exact(storage: Storage, listing: Listing, base: Snapshot) -> Iterator[tuple[pa.Schema, pq.ParquetSchema]]:
    """The schemas of a folder's files, in Arrow and in Parquet.

    Raises `SchemaMismatch` if rows that are written in the types of the folder would no longer be those of a file, and
    `SchemaError` for a VARIANT.
    """
    for numbers, schema, leaves in both_schemas(storage, listing):
        refuse_variants_of_file(schema, leaves, storage.uri_of(listing.path[numbers[0]].as_py()))
        for field in schema:
            if field.name in base.partition_by or field.name not in base.schema.arrow.names:
                continue
            type = base.schema.arrow.field(field.name).type
            if may_round(field.type, type):
                raise SchemaMismatch(
                    f'The column "{field.name}" is {field.type} in {storage.uri_of(listing.path[numbers[0]].as_py())}, '
                    f"and {type} in the folder: that type does not hold all its values, and a layout writes them anew. "
                    "Write those files with one type first."
                )
        yield schema, leaves


def _require_indexed(storage: Storage, base: Snapshot) -> None:
    if base.managed:  # what else lies in the folder is no part of it
        raise CommitConflict(f"{storage.uri}: another process made it a table meanwhile. Repeat the call.")
    if base.details.get("source") == "statistics":
        raise InvalidOption(
            f"The index at {storage.uri} was made from given statistics, which do not tell whether a file has changed "
            "since. Remove its folder _zskip, then the files' own footers are read."
        )


def _require_unchanged(index: Index) -> None:
    found = changes(index)
    if found:
        paths = [*found.added.path.to_pylist(), *found.changed.path.to_pylist(), *found.removed.to_pylist()]
        _cluster_folder_refuse(index.storage, f'"{paths[0]}" was added, changed or removed')


def _cluster_folder_refuse(storage: Storage, what: str) -> None:
    raise CommitConflict(
        f"{storage.uri}: {what} while the folder was laid out. The files are as they were. Stop other writers, and run "
        "it again."
    )
