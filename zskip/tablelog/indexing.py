"""Index Parquet files of other writers: from their footers, from their rows, or from statistics given by the user."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.option_checks import Progress, unreported
from zskip.core.schema import Column, Schema
from zskip.core.types import logical_type, widens
from zskip.errors import CommitConflict, InvalidOption, NoParquet, SchemaError, SchemaMismatch, TableExists
from zskip.parquet import footers, from_rows
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics, hull
from zskip.storage import hive
from zskip.storage.storage import Listing, Storage
from zskip.tablelog import log
from zskip.tablelog.commit import TableUpdate, commit, refuse_newer
from zskip.tablelog.freshness import Changes, changes, data_files, naming_replaced, only
from zskip.tablelog.index import Index
from zskip.tablelog.snapshot import Snapshot
from zskip.tablelog.table_folders import refuse_files_of_tables, refuse_folder

# File system clocks tick every few milliseconds: within a tick, a file can be replaced without a new time.
_TICK_NS = 20_000_000
ATTEMPTS = 10
"""How often a folder is read that other programs change meanwhile."""


def index_files(
    storage: Storage,
    *,
    schema: Schema | None = None,
    deep_scan: bool = False,
    statistics: pa.Table | None = None,
    threads: int | None = None,
    read: Callable[[Listing], tuple[Schema, DataFiles]] | None = None,
    check: Callable[[Schema], object] | None = None,
    progress: Progress = unreported,
) -> Snapshot:
    """Index the Parquet files of a folder, and commit the index as the first version of an unmanaged table.

    ``deep_scan``: read the rows for what the footers lack. ``statistics``: a table with one row per file or row group,
    used instead of footers (`from_statistics`); the files need not exist then. ``read``: reads the footers, and with
    ``deep_scan`` the rows, of the listed files; None: this machine reads them. ``check``: called with the schema before
    the commit; may raise.

    Raises `TableExists`, `ForeignTable`, `NoParquet`, `CorruptFile` and `SchemaMismatch`.
    """
    if log.latest_version(storage):
        refuse_folder(storage)
        raise TableExists(f"There is an index at {storage.uri} already. Open it with zskip.open, and refresh() it.")
    if statistics is not None:
        if schema is None:
            raise SchemaMismatch("Statistics from elsewhere need the table's schema beside them: schema=.")
        files = from_statistics(statistics, schema, storage.uri)
        details = {"source": "statistics"}
    else:
        read = read or (lambda listing: _read(storage, listing, schema, deep_scan, threads, progress))
        schema, files = _listed_and_read(storage, read)
        details = {"source": "rows" if deep_scan else "footers"}
    partition_by = tuple(hive.partitions(files.path))
    if statistics is None:
        footers.require_folders(storage, Listing(files.path, files.size, files.modified, files.etag), partition_by)
    _require_columns(storage, schema, partition_by)
    if check is not None:
        check(schema)
    return commit(
        storage,
        None,
        TableUpdate("index", add=files, schema=schema, managed=False, partition_by=partition_by, details=details),
    )


def _listed_and_read(storage: Storage, read: Callable[[Listing], tuple[Schema, DataFiles]]) -> tuple[Schema, DataFiles]:
    """What ``read`` gives of a folder's files, which are listed again where other programs replace them meanwhile."""
    for _ in range(ATTEMPTS):
        listing = data_files(storage)
        if not len(listing):
            if storage.local is not None and not storage.local.exists():
                raise NoParquet(f"There is no folder {storage.uri}.")
            raise NoParquet(f"There is no Parquet file in {storage.uri}. zskip.write makes a table of CSV or JSON.")
        refuse_files_of_tables(storage, listing.path)
        _wait_for_next_mtime(storage, listing)
        with suppress(CommitConflict), naming_replaced(storage, listing):
            return read(listing)
    raise still_changing(storage)


def still_changing(storage: Storage) -> CommitConflict:
    """The error of a folder that was changed each time that it was read."""
    return CommitConflict(f"{storage.uri} changed {ATTEMPTS} times while it was being indexed. Try again.")


def refresh(
    index: Index, *, found: Changes | None = None, threads: int | None = None, progress: Progress = unreported
) -> Snapshot:
    """Index files that were added or changed, drop those that are gone, and commit; do nothing without changes.

    If another process commits first, or files are replaced or go away meanwhile, the folder is compared with the newest
    version anew: both processes may have seen the same files.

    Raises `ForeignTable`, `CorruptFile`, `SchemaMismatch` and `CommitConflict`.
    """
    for _ in range(ATTEMPTS):
        try:
            return _refreshed(index, found, threads, progress)
        except CommitConflict:
            newest = log.load(index.storage)
            if newest.table_id != index.snapshot.table_id:
                raise
            if newest.managed:
                return newest  # the folder was laid out meanwhile
            index, found = Index(index.storage, newest), None
    raise still_changing(index.storage)


def _refreshed(index: Index, found: Changes | None, threads: int | None, progress: Progress) -> Snapshot:
    storage, snapshot = index.storage, index.snapshot
    differs = changes(index) if found is None else found
    if not differs:
        return snapshot
    refuse_files_of_tables(storage, differs.listing.path, itself=False)
    again = differs.changed.path.to_pylist()
    fresh = only(differs.listing, [*again, *differs.added.path.to_pylist()])
    deep_scan = snapshot.details.get("source") == "rows"
    schema, files = snapshot.schema, None
    if len(fresh):
        _wait_for_next_mtime(storage, fresh)
        with naming_replaced(storage, fresh):
            footers.require_folders(storage, fresh, snapshot.partition_by)
            schema, files = _read(storage, fresh, schema, deep_scan, threads, progress, grow=True)
        _require_columns(storage, schema, snapshot.partition_by)
    return commit(
        storage,
        snapshot,
        TableUpdate(
            "refresh",
            add=files,
            remove=[*again, *differs.removed.to_pylist()],
            schema=schema if schema != snapshot.schema else None,
            managed=False,
            details={
                **snapshot.details,
                "added": len(differs.added),
                "changed": len(again),
                "removed": len(differs.removed),
            },
            still=refuse_newer,
        ),
    )


def _require_columns(storage: Storage, schema: Schema, partition_by: Sequence[str]) -> None:
    """Raise `SchemaError` unless the files hold columns, each with a name, that engines can read."""
    names = schema.arrow.names
    if "" in names:
        raise SchemaError(f"A column of the files in {storage.uri} has no name, so SQL cannot refer to it.")
    if not set(names) - set(partition_by):
        raise SchemaError(f"The files in {storage.uri} hold no column but those that folder names give: {names}.")


def _wait_for_next_mtime(storage: Storage, listing: Listing) -> None:
    """Wait until any file that is replaced from now on gets a later modification time than the listed one."""
    if storage.local is not None or listing.etag.null_count:
        times = listing.modified
        if not listing.etag.null_count:
            # On a local disk, the ETag is the offset to the time of the last status change. That time is compared.
            times = pc.add(times, listing.etag.cast(pa.int64()))
        newest = pc.max(times).as_py() or 0
        left = min(newest + _TICK_NS - time.time_ns(), _TICK_NS)
        if left > 0:
            time.sleep(left / 1e9)


def _read(
    storage: Storage,
    listing: Listing,
    schema: Schema | None,
    deep_scan: bool,
    threads: int | None,
    progress: Progress,
    *,
    grow: bool = False,
) -> tuple[Schema, DataFiles]:
    table, files = footers.read(storage, None, schema, grow=grow, threads=threads, listing=listing, progress=progress)
    return table, from_rows.with_statistics_from_rows(storage, table, files, progress) if deep_scan else files


def from_statistics(given: pa.Table, schema: Schema, uri: str) -> DataFiles:
    """Convert statistics given by the user to those of data files.

    One row per file or, with a column ``row_group``, per row group: ``path``, ``row_count``, ``size``, and for each
    column c any of ``c.lower``, ``c.upper``, ``c.null_count``, ``c.nan_count``, ``c.lower_exact``, ``c.upper_exact``.
    A missing column or a null means unknown. ``path`` may start with the table's address.

    Raises `SchemaMismatch` for bounds of another type than their column's, and for a table without paths.
    """
    if not isinstance(given, pa.Table):
        raise InvalidOption(f"statistics= is an Arrow table, not {given!r}.")
    if "path" not in given.column_names:
        raise SchemaMismatch('A table of statistics needs a column "path".')
    rows = given.combine_chunks()
    by_row_group = "row_group" in rows.column_names
    if by_row_group:
        rows = rows.sort_by([("path", "ascending"), ("row_group", "ascending")]).combine_chunks()
    path = _column(rows, "path", pa.string())
    if path.null_count:
        raise SchemaMismatch('The column "path" of the statistics has a null.')
    path = pc.replace_substring_regex(path, rf"^{re.escape(uri.rstrip('/'))}/", "")
    units = FileStatistics(
        _column(rows, "row_count", pa.int64()), {column.path: _given(rows, column) for column in schema}
    )
    size, texts = _column(rows, "size", pa.int64()), pa.nulls(len(rows), pa.string())
    modified = pa.nulls(len(rows), pa.int64())
    starts = np.arange(len(rows))
    if by_row_group:
        names = np.asarray(pc.dictionary_encode(path).indices)
        starts = np.flatnonzero(np.diff(names, prepend=-1))
    elif pc.count_distinct(path).as_py() < len(rows):
        raise SchemaMismatch('A path stands twice in the statistics. Say which row group each row is: "row_group".')
    first = np.append(starts, len(rows)).astype(np.int64)
    files = hull(units, np.repeat(np.arange(len(starts)), np.diff(first)), len(starts)) if by_row_group else units
    chosen = pa.array(starts)
    return DataFiles(
        path.take(chosen), size.take(chosen), modified.take(chosen), texts.take(chosen), files, units, first
    )


def _given(rows: pa.Table, column: Column) -> ColumnStatistics:
    kinds = {
        "lower": column.type,
        "upper": column.type,
        "null_count": pa.int64(),
        "nan_count": pa.int64(),
        "lower_exact": pa.bool_(),
        "upper_exact": pa.bool_(),
    }
    found = ColumnStatistics(**{name: _column(rows, f"{column.path}.{name}", kind) for name, kind in kinds.items()})
    # The schema is trusted like the statistics.
    return found if column.nullable else replace(found, null_count=pc.fill_null(found.null_count, 0))


def _column(rows: pa.Table, name: str, type: pa.DataType) -> pa.Array:
    """A column of the given statistics, cast to a type; all null if it is missing."""
    if name not in rows.column_names:
        return pa.nulls(len(rows), type)
    values = rows.column(name)
    plain = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if plain.type == type:
        return plain
    if not widens(plain.type, type) and logical_type(plain.type) != type and not t.is_integer(type):
        raise SchemaMismatch(f'The statistics give "{name}" as {plain.type}, and the column is {type}.')
    try:
        return plain.cast(type)
    except pa.ArrowException as error:
        raise SchemaMismatch(f'The statistics give "{name}" as {plain.type}: {error}') from error
