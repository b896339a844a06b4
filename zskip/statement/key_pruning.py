"""Files of which no row has a partner in a join are left out, by the keys that the other side's table still has.

First the bounds of those keys, which the index knows; then, smallest table first, the keys themselves, where the query
for them is expected to cost less than it saves:

    cost  = reading the files of the table that has the keys
    gain  = reading the files of the other table × the share of them that is expected to go

A key lies in ``depth`` of a column's files on average, so one of ``slices = files / depth`` is read for it, and
1 − (1 − 1/slices)ⁿ of them for n keys anywhere. Keys may lie together too, as those of the days of a month do: some
gain is always expected. A sketch of the column's values names the files of keys that no layout clusters: where a fact's
date follows its order's, the keys of a year's orders lie in that year's files.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import types as t
from zskip.expr import Dialect, Predicate
from zskip.expr.tree import IsNull, Reference, in_, or_
from zskip.plan import Survivors, find_survivors, kept_survivors
from zskip.schema import Column
from zskip.sketches import SketchName
from zskip.statement.joins import JoinKeys
from zskip.stats import Ranges
from zskip.tablelog import Index

__all__ = ["JoinedTable", "KeySet", "file_slices", "prune_by_keys"]

# Seconds on a common machine, over local files whose columns are read in part.
_A_QUERY, _A_FILE, _A_ROW = 2e-3, 1.3e-4, 8e-9
# Of the rows that conditions leave in the files that they leave, where nothing is known of them.
_ROWS_LEFT = 0.1
# Fewer seconds are not worth another order of joins; of fewer rows the order matters little.
_LEAST_SAVED, _MANY_ROWS = 3e-3, 100_000
_KEYS_LIE_TOGETHER = 0.1
# Where a column has a sketch of its values: the share of the files that is expected to go, seconds for each of its
# entries, and for how many of them a key is expected to be looked up.
_GONE_BY_SKETCH, _AN_ENTRY, _ENTRIES_A_KEY = 0.5, 1e-8, 10
# Of a table with more shards, it is the shards that are counted: they take less time than a million files.
_SHARDS_OF_FILES = 4


@dataclass(frozen=True, slots=True)
class KeySet:
    """Rows are needed whose ``column`` is one of ``values``, or is NULL where ``or_null``. ``origin``: equal for keys
    of one query over one state of the tables that it reads."""

    column: str
    values: pa.Array
    or_null: bool
    origin: Hashable


@dataclass(slots=True)
class JoinedTable:
    """A table of a statement: the files that are left, which keys they were left by, and what each rule skipped."""

    name: str
    survivors: Survivors
    reasons: list[str] = field(default_factory=list)
    keys: list[KeySet] = field(default_factory=list)

    def keep_only(self, kept: np.ndarray, why: str) -> None:
        """Only these of the files that the index knows, by one flag each."""
        if not kept.all():
            before = self.survivors
            self.survivors = before.once(kept.tobytes(), lambda: before.kept(kept))
            self.reasons.append(f"{why}: {int((~kept).sum()):,} files skipped")

    def whole_where_little_is_saved(self) -> JoinedTable:
        """All of its files, where few are left out, which are quick to open, and many rows are left.

        The engine expects a share of the rows of its files to meet the conditions. Of files in which all rows do, it
        expects too few, and may join in a worse order than over all files.
        """
        survivors = self.survivors
        skipped = len(survivors.index) - len(survivors.numbers)
        if not 0 < skipped * _A_FILE < _LEAST_SAVED or self._rows < _MANY_ROWS:
            return self
        if survivors.changes or survivors.index.storage.local is None:
            return self
        why = "all files are read: so few take less time than a join in a worse order"
        return replace(self, survivors=kept_survivors(survivors.index, None), reasons=[*self.reasons, why])

    @property
    def is_reduced(self) -> bool:
        """Whether conditions or keys leave some of its rows only."""
        return self.survivors.predicate is not None or bool(self.keys)

    @property
    def seconds(self) -> float:
        """What reading its files is expected to take."""
        return float(len(self.survivors) * _A_FILE + self._rows * _A_ROW)

    @property
    def _rows(self) -> int:
        known: int | None = pc.sum(self.survivors.rows).as_py()
        return known or 0

    @property
    def expected_rows(self) -> float:
        """How many rows its conditions and keys are expected to leave."""
        if self.keys:
            return self._rows * _ROWS_LEFT
        of_files = np.asarray(pc.fill_null(self.survivors.rows, 0))[: len(self.survivors.all_match)]
        return float(of_files @ np.where(self.survivors.all_match, 1.0, _ROWS_LEFT))


Ask = Callable[[JoinedTable, str, float], tuple[pa.Array, Hashable] | None]
"""The distinct values that a column has in the rows of a table which are left, and what they are known by; None where
there are too many or it takes longer than so many seconds."""


def prune_by_keys(tables: Sequence[JoinedTable], joins: Sequence[JoinKeys], ask: Ask) -> None:
    """Leave out of the tables what their joins do not need. ``joins`` name tables by their places."""
    pending = [
        join
        for join in joins
        if tables[join.place].seconds > 2 * _A_QUERY
        and _is_fit(tables, join)
        and (_slices(tables, join) > 1 or _sketched(tables[join.place], join.column) is not None)
    ]
    for join in pending:
        _prune_by_bounds(tables[join.source], tables[join.place], join)
    while True:
        worth = [join for join in pending if _pays(tables, join)]
        if not worth:
            return
        join = min(worth, key=lambda one: tables[one.source].seconds)
        pending.remove(join)
        source, table = tables[join.source], tables[join.place]
        # A query that takes longer than what it could save is interrupted, and not run again.
        found = ask(source, join.key, table.seconds)
        if found is not None:
            _prune_by_values(source, table, join, *found)


def _is_fit(tables: Sequence[JoinedTable], join: JoinKeys) -> bool:
    """Whether the keys can be held against bounds, and stay what they are until both tables are read."""
    column, key = _column(tables[join.place], join.column), _column(tables[join.source], join.key)
    source = tables[join.source].survivors.index
    if column is None or key is None or not (source.snapshot.managed or source.source):
        return False
    if t.is_integer(column.type) and t.is_integer(key.type):
        return True
    return not join.widened and column.type == key.type and _is_exact(column.type)


def _column(table: JoinedTable, name: str) -> Column | None:
    return table.survivors.index.snapshot.schema.find([name], case_sensitive=True)


def _is_exact(type: pa.DataType) -> bool:
    """Types whose equal values are the same: not so floats, for NaN and −0.0."""
    return bool(t.is_date(type) or t.is_timestamp(type) or t.is_decimal128(type) or t.is_string(type))


def _pays(tables: Sequence[JoinedTable], join: JoinKeys) -> bool:
    source, table = tables[join.source], tables[join.place]
    cost = _A_QUERY + source.seconds
    if not source.is_reduced or table.seconds < cost:
        return False
    missed = 1 - 1 / _slices(tables, join)
    gone = missed * max(missed ** max(source.expected_rows, 1.0), _KEYS_LIE_TOGETHER)
    if (entries := _sketched(table, join.column)) is not None:
        gone = max(gone, _GONE_BY_SKETCH)
        cost += min(entries, source.expected_rows * _ENTRIES_A_KEY) * _AN_ENTRY
    return bool(table.seconds * gone > cost)


def _sketched(table: JoinedTable, name: str) -> int | None:
    """The pairs of a value and a file in the sketch of a column's values; None where it has none."""
    column = _column(table, name)
    wanted = None if column is None else SketchName(column.path, "values")
    sketches = (one for one in table.survivors.index.snapshot.sketches if one.name == wanted)
    return next((sum(segment.entries for segment in one.segments) for one in sketches), None)


_SLICES: WeakKeyDictionary[Index, dict[str, float]] = WeakKeyDictionary()


def _slices(tables: Sequence[JoinedTable], join: JoinKeys) -> float:
    table = tables[join.place]
    column = _column(table, join.column)
    return 1.0 if column is None else file_slices(table.survivors.index, column.path)


def file_slices(index: Index, path: str) -> float:
    """Into how many parts a column divides the files of a table: a key lies in one of them."""
    from zskip.layouts import depths  # a tenth of the first statement's time in a process, and only joins need it

    known = _SLICES.setdefault(index, {})
    if path not in known:
        shards = range(len(index.snapshot.shards))
        many = len(shards) > _SHARDS_OF_FILES
        statistics = index.shards([path]) if many else index.files(shards, [path]).statistics
        known[path] = len(statistics) / max(depths(statistics, [path])[path].average, 1.0)
    return known[path]


def _prune_by_bounds(source: JoinedTable, table: JoinedTable, join: JoinKeys) -> None:
    survivors = source.survivors
    # A file that the index does not know may hold any key.
    if not len(survivors.numbers) or len(survivors) in (len(survivors.index), 0) or survivors.changes:
        return
    keys, ranges = _ranges(source, join.key), _ranges(table, join.column)
    if keys is None or ranges is None or keys.lower.null_count or keys.upper.null_count:
        return
    bounds = _fitted(pa.array([pc.min(keys.lower), pc.max(keys.upper)], keys.lower.type), ranges.lower.type)
    if bounds is not None:
        beyond = pc.or_kleene(pc.greater(ranges.lower, bounds[1]), pc.less(ranges.upper, bounds[0]))
        kept = ~np.asarray(pc.fill_null(beyond, False))
        if join.nulls and (join.padded or pc.any(pc.fill_null(keys.has_null, True)).as_py()):
            kept |= np.asarray(pc.fill_null(ranges.has_null, True))
        table.keep_only(kept, f"join with {source.name} by bounds of {join.key}")


def _ranges(table: JoinedTable, name: str) -> Ranges | None:
    column = _column(table, name)
    if column is None:
        return None
    return table.survivors.once(("ranges", column.path), lambda: _ranges_of(table.survivors, column))


def _ranges_of(survivors: Survivors, column: Column) -> Ranges | None:
    shards = np.unique(np.searchsorted(survivors.index.first_file, survivors.numbers, side="right") - 1)
    units = survivors.index.files(shards, [column.path])
    ranges = units.statistics.columns.get(column.path)
    return None if ranges is None else ranges.take(np.searchsorted(units.numbers, survivors.numbers))


def _prune_by_values(
    source: JoinedTable, table: JoinedTable, join: JoinKeys, values: pa.Array, origin: Hashable
) -> None:
    column, survivors = _column(table, join.column), table.survivors
    fitted = None if column is None else _fitted(values, column.type)
    if column is None or fitted is None:
        return
    or_null = join.nulls and (join.padded or values.null_count > 0)
    fitted = fitted.drop_null()
    why = f"join with {source.name} by {len(fitted):,} keys {join.key}"
    index = survivors.index

    def left_by_keys() -> np.ndarray:
        term = Reference(column.path, column.type)
        node = or_([in_(term, fitted), IsNull(term)]) if or_null else in_(term, fitted)
        return find_survivors(index, Predicate(why, why, node, index.snapshot.schema, Dialect())).numbers

    keys = KeySet(join.column, fitted, or_null, (origin, join.column, or_null))
    left = index.once(("keys", keys.origin), left_by_keys, lambda numbers: numbers.nbytes)
    table.keys.append(keys)
    table.keep_only(np.isin(survivors.numbers, left), why)


def _fitted(values: pa.Array, type: pa.DataType) -> pa.Array | None:
    """The values as another column has them; None where it cannot have one of them."""
    try:
        return values.cast(type)
    except pa.ArrowInvalid:
        return None
