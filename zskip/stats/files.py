"""`DataFiles`: data files with their statistics, in the form that the index stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.late_loading import pc
from zskip.core.offsets import numbers_of_runs, offsets_of
from zskip.core.types import is_orderable


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """One column's bounds and counts, one slot per unit. Null means "unknown".

    The bounds ignore NULL and NaN. ``lower_exact``, ``upper_exact``: whether the bound is a value of the unit, as min()
    requires, or only a limit, such as a truncated string, which is enough to skip files.
    """

    lower: pa.Array
    upper: pa.Array
    null_count: pa.Int64Array
    nan_count: pa.Int64Array
    lower_exact: pa.BooleanArray
    upper_exact: pa.BooleanArray

    def __len__(self) -> int:
        return len(self.lower)

    @classmethod
    def unknown(cls, type: pa.DataType, units: int) -> ColumnStatistics:
        """The statistics of a column that is unknown in these units."""
        bound, count, flag = pa.nulls(units, type), pa.nulls(units, pa.int64()), pa.nulls(units, pa.bool_())
        return cls(bound, bound, count, count, flag, flag)

    @classmethod
    def all_null(cls, type: pa.DataType, row_count: pa.Int64Array) -> ColumnStatistics:
        """The statistics of a column that is NULL in every row, as in files older than the column."""
        bound, flag = pa.nulls(len(row_count), type), pa.nulls(len(row_count), pa.bool_())
        none = pa.array(np.zeros(len(row_count), np.int64))
        return cls(bound, bound, row_count, none, flag, flag)

    def ranges(self, row_count: pa.Int64Array) -> Ranges:
        """The form that proofs use. Reversed bounds, an error of the writer, are unknown."""
        empty = pc.fill_null(pc.equal(row_count, 0), False)
        if not _any(empty):
            empty = None

        def among_rows(flags: pa.BooleanArray) -> pa.BooleanArray:
            return flags if empty is None else pc.if_else(empty, False, flags)

        lower, upper = self.lower, self.upper
        nulls, rest = self.null_count, pc.subtract(row_count, self.null_count)
        if t.is_floating(self.lower.type):
            # A column that is NULL in every row has no NaN, and vice versa, even if that count is unknown.
            all_null = pc.equal(self.null_count, row_count)
            all_nan = pc.equal(self.nan_count, row_count)
            nans = pc.if_else(pc.fill_null(all_null, False), 0, self.nan_count)
            nulls = pc.if_else(pc.fill_null(all_nan, False), 0, self.null_count)
            rest = pc.subtract(pc.subtract(row_count, nulls), nans)
            has_nan = among_rows(pc.greater(nans, 0))
            if _any(is_nan := pc.fill_null(pc.is_nan(lower), False)):
                lower = pc.if_else(is_nan, pa.scalar(None, lower.type), lower)  # unknown; the upper bound still holds
        else:
            has_nan = pa.array(np.zeros(len(self), bool))
        has_null, has_value = among_rows(pc.greater(nulls, 0)), among_rows(pc.greater(rest, 0))
        if is_orderable(lower.type):
            reversed_ = pc.fill_null(pc.greater(lower, upper), False)
            if _any(reversed_):
                nothing = pa.scalar(None, lower.type)
                lower, upper = pc.if_else(reversed_, nothing, lower), pc.if_else(reversed_, nothing, upper)
        return Ranges(*(_plain(part) for part in (lower, upper, has_value, has_null, has_nan)))

    def take(self, units: np.ndarray) -> ColumnStatistics:
        """The statistics of some units, by number."""
        chosen = pa.array(units)
        return ColumnStatistics(*(getattr(self, field.name).take(chosen) for field in fields(self)))

    @staticmethod
    def concat(parts: Sequence[ColumnStatistics]) -> ColumnStatistics:
        """The units of all parts, one after another."""
        names = [field.name for field in fields(ColumnStatistics)]
        return ColumnStatistics(*(pa.concat_arrays([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """The row counts and columns of some units, which are files or row groups. An absent column is unknown."""

    row_count: pa.Int64Array
    columns: Mapping[str, ColumnStatistics]

    def __len__(self) -> int:
        return len(self.row_count)

    def statistics(self, paths: Sequence[str] | None = None) -> Statistics:
        """The ranges of these columns, by default of all, as proofs use them."""
        wanted = self.columns if paths is None else [path for path in paths if path in self.columns]
        return Statistics(self.row_count, {path: self.columns[path].ranges(self.row_count) for path in wanted})

    def take(self, units: np.ndarray) -> FileStatistics:
        """Some of the units, by number."""
        columns = {path: column.take(units) for path, column in self.columns.items()}
        return FileStatistics(self.row_count.take(pa.array(units)), columns)

    @staticmethod
    def concat(parts: Sequence[FileStatistics]) -> FileStatistics:
        """The units of all parts; columns that a part lacks are unknown in it."""
        if len(parts) == 1:
            return parts[0]
        types = {path: column.lower.type for part in parts for path, column in part.columns.items()}
        columns = {
            path: ColumnStatistics.concat(
                [part.columns.get(path) or ColumnStatistics.unknown(type, len(part)) for part in parts]
            )
            for path, type in types.items()
        }
        return FileStatistics(pa.concat_arrays([part.row_count for part in parts]), columns)


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Data files in layout order, and their row groups, as writers and indexers pass them to the side-car index.

    ``path``: string, relative to the table, with forward slashes · ``size``: bytes · ``modified``: nanoseconds since
    the epoch, null where unknown · ``etag``: string, null where the store has none · ``first_row_group``: int64, one
    slot per file and one more: the row groups of file i are ``first_row_group[i]`` to ``first_row_group[i + 1]`` ·
    ``deletes``: the ascending numbers of each file's deleted rows as little-endian 64-bit integers, null if there
    are none; the statistics are those of the remaining rows. None if no file has any · ``id``: int64, the file's id in
    the table's sketches; null if no sketch covers it.
    """

    path: pa.StringArray
    size: pa.Int64Array
    modified: pa.Int64Array
    etag: pa.StringArray
    files: FileStatistics
    row_groups: FileStatistics
    first_row_group: np.ndarray
    deletes: pa.BinaryArray | None = None
    id: pa.Int64Array = None

    def __post_init__(self) -> None:
        if self.id is None:
            object.__setattr__(self, "id", pa.nulls(len(self.path), pa.int64()))

    def __len__(self) -> int:
        return len(self.path)

    def take(self, files: np.ndarray) -> DataFiles:
        """Some of the files, by number, in that order."""
        chosen = pa.array(files)
        starts, ends = self.first_row_group[files], self.first_row_group[files + 1]
        return DataFiles(
            self.path.take(chosen),
            self.size.take(chosen),
            self.modified.take(chosen),
            self.etag.take(chosen),
            self.files.take(files),
            self.row_groups.take(numbers_of_runs(starts, ends)),
            offsets_of(ends - starts),
            None if self.deletes is None else self.deletes.take(chosen),
            self.id.take(chosen),
        )

    @staticmethod
    def concat(parts: Sequence[DataFiles]) -> DataFiles:
        """The files of all parts, one after another."""
        counts = np.concatenate([np.diff(part.first_row_group) for part in parts])
        return DataFiles(
            pa.concat_arrays([part.path for part in parts]),
            pa.concat_arrays([part.size for part in parts]),
            pa.concat_arrays([part.modified for part in parts]),
            pa.concat_arrays([part.etag for part in parts]),
            FileStatistics.concat([part.files for part in parts]),
            FileStatistics.concat([part.row_groups for part in parts]),
            offsets_of(counts),
            _deletes(parts),
            pa.concat_arrays([part.id for part in parts]),
        )


def _deletes(parts: Sequence[DataFiles]) -> pa.BinaryArray | None:
    if all(part.deletes is None for part in parts):
        return None
    return pa.concat_arrays(
        [pa.nulls(len(part), pa.binary()) if part.deletes is None else part.deletes for part in parts]
    )


def _any(flags: pa.BooleanArray) -> bool:
    return bool(pc.any(flags).as_py())


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


# `Ranges` and `Statistics`: the values that each unit (a shard, a file or a row group) may have, one slot per unit.


@dataclass(frozen=True, slots=True)
class Ranges:
    """Every value of the unit that is neither null nor NaN lies in [lower, upper].

    An Arrow null in a bound means "unknown", never SQL NULL. A flag is True, False, or null for "unknown".

    | the unit                  | lower | upper | has_value | has_null | has_nan |
    | ------------------------- | ----- | ----- | --------- | -------- | ------- |
    | 3, 5                      | 3     | 5     | True      | False    | False   |
    | 3.0, NaN, NULL            | 3.0   | 3.0   | True      | True     | True    |
    | only NULL                 | null  | null  | False     | True     | False   |
    | no row at all             | null  | null  | False     | False    | False   |
    | nothing is known          | null  | null  | null      | null     | null    |
    """

    lower: pa.Array
    upper: pa.Array
    has_value: pa.BooleanArray
    has_null: pa.BooleanArray
    has_nan: pa.BooleanArray
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """A cache of values computed from the ranges, since each query reads the ranges of the same shards."""

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes."""
        return int(self.lower.nbytes + self.upper.nbytes + 3 * self.has_value.nbytes + 5 * len(self))

    def take(self, units: np.ndarray) -> Ranges:
        """The ranges of some units, by number."""
        chosen = pa.array(units)
        flags = (self.has_value, self.has_null, self.has_nan)
        return Ranges(*(each.take(chosen) for each in (self.lower, self.upper, *flags)))


@dataclass(frozen=True, slots=True)
class Statistics:
    """The row count and the ranges of each unit, by column path. An absent column is unknown.

    ``row_count``: an int64 array, null where it is unknown.
    """

    row_count: pa.Int64Array
    columns: Mapping[str, Ranges]

    def __len__(self) -> int:
        return len(self.row_count)

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes."""
        return int(self.row_count.nbytes) + sum(ranges.nbytes for ranges in self.columns.values())

    def take(self, units: np.ndarray) -> Statistics:
        """The statistics of some units, by number."""
        columns = {path: ranges.take(units) for path, ranges in self.columns.items()}
        return Statistics(self.row_count.take(pa.array(units)), columns)


# The statistics of files, from those of their row groups.


def hull(row_groups: FileStatistics, owner: np.ndarray, files: int) -> FileStatistics:
    """The statistics of files, merged from those of their row groups.

    ``owner``: the file of each row group, ascending · ``files``: the number of files. A bound is unknown if it is
    unknown for a row group that may hold a value.
    """
    if np.array_equal(owner, np.arange(files)):  # each file is one row group
        return row_groups
    totals = _totals(row_groups.row_count, owner, files)
    columns = {}
    for path, column in row_groups.columns.items():
        ranges = column.ranges(row_groups.row_count)
        matters = np.asarray(pc.fill_null(ranges.has_value, True))
        bounds, exact = {}, {}
        for side, known, flags in (
            ("lower", ranges.lower, column.lower_exact),
            ("upper", ranges.upper, column.upper_exact),
        ):
            if not is_orderable(known.type):
                bounds[side], exact[side] = pa.nulls(files, known.type), pa.nulls(files, pa.bool_())
                continue
            unknown = np.zeros(files, bool)
            unknown[owner[np.asarray(pc.is_null(known)) & matters]] = True
            bound = _extremes(known, owner, files, upper=side == "upper")
            bounds[side] = pc.if_else(pa.array(unknown), pa.scalar(None, known.type), bound)
            inexact = np.zeros(files, bool)
            inexact[owner[~np.asarray(pc.fill_null(flags, False)) & matters]] = True
            unclear = inexact | np.asarray(pc.is_null(bounds[side]))
            exact[side] = pa.array(np.ones(files, bool), mask=unclear)
        columns[path] = ColumnStatistics(
            bounds["lower"],
            bounds["upper"],
            _totals(column.null_count, owner, files),
            _totals(column.nan_count, owner, files),
            exact["lower"],
            exact["upper"],
        )
    return FileStatistics(totals, columns)


def _totals(counts: pa.Int64Array, owner: np.ndarray, files: int) -> pa.Int64Array:
    values = np.asarray(pc.fill_null(counts, 0))
    unknown = np.zeros(files, bool)
    unknown[owner[np.asarray(pc.is_null(counts))]] = True
    summed = np.bincount(owner, minlength=files) * 0
    np.add.at(summed, owner, values)
    return pa.array(summed, pa.int64(), mask=unknown)


def _extremes(bounds: pa.Array, owner: np.ndarray, owners: int, *, upper: bool) -> pa.Array:
    """The least or greatest bound of each owner; null if it has none. ``owner``: of each bound, ascending."""
    comparable = bounds.cast(pa.float32()) if t.is_float16(bounds.type) else bounds
    order = pc.sort_indices(
        pa.table({"owner": owner, "bound": comparable}),
        sort_keys=[("owner", "ascending"), ("bound", "descending" if upper else "ascending")],
    )
    ranked = np.asarray(order)
    firsts = np.searchsorted(owner, np.arange(owners))
    present = firsts < len(owner)
    present[present] &= owner[firsts[present]] == np.arange(owners)[present]
    place = pa.array(np.where(present, ranked[np.where(present, firsts, 0)] if len(ranked) else 0, 0), mask=~present)
    return bounds.take(place)
