"""What the footers of a source's files say, for row groups and for columns that the log leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.offsets import offsets_of
from zskip.core.schema import Column, Schema, join_path
from zskip.core.types import widened, widens
from zskip.errors import CorruptFile
from zskip.parquet import footers
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics, hull
from zskip.storage import Listing
from zskip.table_formats.source import FIELD_ID, STORED_AS, Content, Source, live_statistics


def with_footers(source: Source, content: Content) -> Content:
    """The content with the statistics in its files' footers, of which each is read when a commit adds the file.

    Raises `CorruptFile` for a file that is gone.
    """
    state = {**content.state, "deep": True}
    if not len(content.files):
        return replace(content, state=state)
    in_table_schema = partial(_in_table_schema, content.schema, content.partition_by)
    files = content.files
    listed = Listing(files.path, files.size, files.modified, files.etag)
    try:
        units, counts = footers.row_groups(source.storage, listed, in_table_schema)
    except FileNotFoundError as error:
        raise CorruptFile(
            f"The file {error.filename} is gone, which version {state['version']} of the "
            f"{source.format.capitalize()} table at {source.storage.uri} names. Open it without deep=True, or at a "
            "version that has its files."
        ) from error
    return replace(content, files=_with_row_groups(content, units, counts), state=state)


def _in_table_schema(table: Schema, partition_by: Sequence[str], own: Schema, units: FileStatistics) -> FileStatistics:
    """The row groups of files with the schema ``own``, as columns of the table; unknown where footers lack them."""
    lower_names = {name.lower() for name in own.arrow.names}
    columns = {}
    for column in table:
        if not column.orderable:
            continue
        columns[column.path] = ColumnStatistics.unknown(column.type, len(units))
        names = None if column.parts[0] in partition_by else _stored_names(table, column, own)
        found = None if names is None else own.columns.get(join_path(names))
        if found is not None and found.path in units.columns and widens(found.type, column.type):
            known = units.columns[found.path]
            columns[column.path] = replace(
                known, lower=widened(known.lower, column.type), upper=widened(known.upper, column.type)
            )
        elif names is not None and names[0].lower() not in lower_names:
            columns[column.path] = ColumnStatistics.all_null(column.type, units.row_count)
    return FileStatistics(units.row_count, columns)


def _stored_names(table: Schema, column: Column, own: Schema) -> list[str] | None:
    """The names of a column in files with the schema ``own``; None if they lack it and it may have a default."""
    field = table.arrow.field(column.parts[0])
    tags = field.metadata or {}
    if FIELD_ID in tags:
        named = [one.name for one in own.arrow if (one.metadata or {}).get(footers.FIELD_ID) == tags[FIELD_ID]]
        if len(named) != 1:
            return None
        names = named
    else:
        names = [_stored_name(field)]
    for part in column.parts[1:]:
        field = field.type.field(part)
        names.append(_stored_name(field))
    return names


def _stored_name(field: pa.Field) -> str:
    return str((field.metadata or {}).get(STORED_AS, field.name.encode()), "utf-8").split("\0")[0]


def _with_row_groups(content: Content, units: FileStatistics, counts: np.ndarray) -> DataFiles:
    """The files with the statistics of their row groups, and the log's where those are unknown."""
    files = content.files
    owner = np.repeat(np.arange(len(files)), counts)
    first = offsets_of(counts)
    rows = units.row_count
    live = pc.subtract(rows, pa.array(_deleted(files, np.asarray(rows), first), pa.int64()))
    roots = {join_path([name]) for name in content.partition_by}
    columns = {}
    for path, found in units.columns.items():
        of_file = files.files.columns.get(path)
        known = live_statistics(found, rows, live)
        if of_file is not None:
            file_rows = files.files.row_count.take(pa.array(owner))
            known = _coalesced(known, _of_row_groups(of_file.take(owner), file_rows, live))
        columns[path] = known
    row_groups = FileStatistics(live, columns)
    whole = hull(row_groups, owner, len(files))
    merged = {
        path: files.files.columns[path]
        if path in roots
        else _coalesced(column, files.files.columns[path])
        if path in files.files.columns
        else column
        for path, column in whole.columns.items()
    }
    return replace(files, files=FileStatistics(whole.row_count, merged), row_groups=row_groups, first_row_group=first)


def _deleted(files: DataFiles, rows: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The number of deleted rows in each row group."""
    gone = np.zeros(len(rows), np.int64)
    if files.deletes is None:
        return gone
    for number in np.flatnonzero(np.asarray(pc.is_valid(files.deletes))).tolist():
        groups = slice(int(first[number]), int(first[number + 1]))
        ends = np.cumsum(rows[groups])
        deleted = np.frombuffer(files.deletes[number].as_py(), "<i8")
        gone[groups] = np.diff(np.searchsorted(deleted, ends), prepend=0)
    return gone


def _of_row_groups(file: ColumnStatistics, file_rows: pa.Int64Array, rows: pa.Int64Array) -> ColumnStatistics:
    """The statistics of row groups that follow from those of their files. ``rows``: the rows of each row group."""
    unknown = pa.scalar(None, pa.int64())
    none = pc.fill_null(pc.equal(file.null_count, 0), False)
    every = pc.fill_null(pc.equal(file.null_count, file_rows), False)
    inexact = pa.array(np.zeros(len(rows), bool))  # the row with the bound may be in another row group
    return ColumnStatistics(
        file.lower,
        file.upper,
        pc.if_else(none, 0, pc.if_else(every, rows, unknown)),
        pc.if_else(pc.fill_null(pc.equal(file.nan_count, 0), False), 0, unknown),
        inexact,
        inexact,
    )


def _coalesced(known: ColumnStatistics, other: ColumnStatistics) -> ColumnStatistics:
    """For each unit the statistics in ``known``, or those in ``other`` if these are unknown."""

    def chosen(valid: pa.BooleanArray, one: pa.Array, two: pa.Array) -> pa.Array:
        slots = np.arange(len(one))
        return pa.concat_arrays([one, two]).take(pa.array(np.where(np.asarray(valid), slots, slots + len(one))))

    lower, upper = pc.is_valid(known.lower), pc.is_valid(known.upper)
    return ColumnStatistics(
        chosen(lower, known.lower, other.lower),
        chosen(upper, known.upper, other.upper),
        pc.coalesce(known.null_count, other.null_count),
        pc.coalesce(known.nan_count, other.nan_count),
        chosen(lower, known.lower_exact, other.lower_exact),
        chosen(upper, known.upper_exact, other.upper_exact),
    )
