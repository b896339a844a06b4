"""`DeepSource`: a source whose files' footers are read too: row groups, and columns that the log leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import CorruptFile
from zskip.offsets import offsets_of
from zskip.parquet import footers
from zskip.schema import Column, Schema, join_path
from zskip.sources.source import FIELD_ID, STORED_AS, Content, Source, live_statistics
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics
from zskip.storage.storage import Storage
from zskip.types import widened, widens

__all__ = ["DeepSource"]


@dataclass(frozen=True)
class DeepSource:
    """What a log says, and beside it what the footers of its files say: each is read once, when a commit names it."""

    source: Source

    @property
    def format(self) -> str:
        return self.source.format

    @property
    def storage(self) -> Storage:
        return self.source.storage

    @property
    def home(self) -> Storage:
        return self.source.home

    @property
    def fixed(self) -> int | str | datetime | None:
        return self.source.fixed

    def newest(self) -> DeepSource:
        return DeepSource(self.source.newest())

    def is_current(self, state: Mapping[str, Any]) -> bool:
        return bool(state.get("deep")) and self.source.is_current(state)

    def read(self) -> Content:
        return self._with_footers(self.source.read())

    def changes(self, state: Mapping[str, Any]) -> Content | None:
        content = self.source.changes(state) if state.get("deep") else None
        return None if content is None else self._with_footers(content)

    def _with_footers(self, content: Content) -> Content:
        state = {**content.state, "deep": True}
        if not len(content.files):
            return replace(content, state=state)
        as_of_table = partial(_as_of_table, content.schema, content.partition_by)
        try:
            units, counts = footers.row_groups(self.storage, content.files, as_of_table)
        except FileNotFoundError as error:
            raise CorruptFile(
                f"The file {error.filename} is gone, which version {state['version']} of the "
                f"{self.format.capitalize()} table at {self.storage.uri} names. Open it without deep=True, or at a "
                "version that has its files."
            ) from error
        return replace(content, files=_completed(content, units, counts), state=state)


def _as_of_table(table: Schema, partition_by: Sequence[str], own: Schema, units: FileStatistics) -> FileStatistics:
    """The row groups of files of one schema, in the columns of the table: unknown where the footers do not tell."""
    folded = {name.lower() for name in own.arrow.names}
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
        elif names is not None and names[0].lower() not in folded:
            columns[column.path] = ColumnStatistics.all_null(column.type, units.row_count)
    return FileStatistics(units.row_count, columns)


def _stored_names(table: Schema, column: Column, own: Schema) -> list[str] | None:
    """The names by which files of a schema hold a column; None where they lack it, and its rows may have a default."""
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
    return str((field.metadata or {}).get(STORED_AS, field.name.encode()), "utf-8")


def _completed(content: Content, units: FileStatistics, counts: np.ndarray) -> DataFiles:
    """The files with what their row groups say, and with what the log says where these do not."""
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
            known = _or_else(known, _of_a_part(of_file.take(owner), files.files.row_count.take(pa.array(owner)), live))
        columns[path] = known
    row_groups = FileStatistics(live, columns)
    whole = footers.hull(row_groups, owner, len(files))
    merged = {
        path: files.files.columns[path]
        if path in roots
        else _or_else(column, files.files.columns[path])
        if path in files.files.columns
        else column
        for path, column in whole.columns.items()
    }
    return replace(files, files=FileStatistics(whole.row_count, merged), row_groups=row_groups, first_row_group=first)


def _deleted(files: DataFiles, rows: np.ndarray, first: np.ndarray) -> np.ndarray:
    """How many rows of each row group are deleted."""
    gone = np.zeros(len(rows), np.int64)
    if files.deletes is None:
        return gone
    for number in np.flatnonzero(np.asarray(pc.is_valid(files.deletes))).tolist():
        groups = slice(int(first[number]), int(first[number + 1]))
        ends = np.cumsum(rows[groups])
        deleted = np.frombuffer(files.deletes[number].as_py(), "<i8")
        gone[groups] = np.diff(np.searchsorted(deleted, ends), prepend=0)
    return gone


def _of_a_part(file: ColumnStatistics, file_rows: pa.Int64Array, rows: pa.Int64Array) -> ColumnStatistics:
    """What is known of a row group, of so many rows, by what is known of its file."""
    unknown = pa.scalar(None, pa.int64())
    none = pc.fill_null(pc.equal(file.null_count, 0), False)
    every = pc.fill_null(pc.equal(file.null_count, file_rows), False)
    inexact = pa.array(np.zeros(len(rows), bool))  # a value of the file need not be one of this row group
    return ColumnStatistics(
        file.lower,
        file.upper,
        pc.if_else(none, 0, pc.if_else(every, rows, unknown)),
        pc.if_else(pc.fill_null(pc.equal(file.nan_count, 0), False), 0, unknown),
        inexact,
        inexact,
    )


def _or_else(known: ColumnStatistics, other: ColumnStatistics) -> ColumnStatistics:
    """Unit by unit what is known, else the other."""

    def chosen(valid: pa.BooleanArray, one: pa.Array, two: pa.Array) -> pa.Array:
        places = np.arange(len(one))
        return pa.concat_arrays([one, two]).take(pa.array(np.where(np.asarray(valid), places, places + len(one))))

    lower, upper = pc.is_valid(known.lower), pc.is_valid(known.upper)
    return ColumnStatistics(
        chosen(lower, known.lower, other.lower),
        chosen(upper, known.upper, other.upper),
        pc.coalesce(known.null_count, other.null_count),
        pc.coalesce(known.nan_count, other.nan_count),
        chosen(lower, known.lower_exact, other.lower_exact),
        chosen(upper, known.upper_exact, other.upper_exact),
    )
