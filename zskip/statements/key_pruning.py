"""Join pruning: skip files without a row that has a join partner, by the keys left in the table on the other side.

First by the bounds of those keys, which the index knows. Then by the keys themselves, smallest table first, if the
query for them is expected to cost less than it saves:

    cost  = reading the files of the table that has the keys
    gain  = reading the files of the other table × the share of them expected to be skipped

On average, ``depth`` of a column's files contain a given key. So a key needs one of ``slices = files / depth`` parts of
the files, and n keys at random positions need a share of 1 − (1 − 1/slices)ⁿ. Keys may also be adjacent, such as the
days of a month, so some gain is always expected. A sketch of the column's values finds the files of keys that the
layout does not cluster: if line items are clustered by date, the keys of one year's orders are in that year's files.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import Column
from zskip.language import Dialect, Predicate
from zskip.language.tree import IsNull, Reference, in_, or_
from zskip.plan import Survivors, find_survivors, kept_survivors
from zskip.statements.joins import JoinKeys
from zskip.stats import Ranges
from zskip.tablelog import Index
from zskip.tablelog.sketches import SketchName

# Seconds per query, per file and per row, on a typical machine, for local files of which some columns are read.
_QUERY_SECONDS, _FILE_SECONDS, _ROW_SECONDS = 2e-3, 1.3e-4, 8e-9
# The share of a file's rows that is expected to match conditions or keys, if the file is not known to match as a whole.
_MATCHING_SHARE = 0.1
# Pruning a table in a join does not pay below these seconds if the table has at least this many rows.
_LEAST_SAVED, _MANY_ROWS = 3e-3, 100_000
# The least share of the files expected to be skipped, relative to that for a single key: keys may be adjacent.
_ADJACENT_KEYS = 0.1
# With a sketch of the column's values: the share of the files expected to be skipped, seconds per entry of the sketch,
# and the number of entries looked up per key.
_SKIPPED_BY_SKETCH, _ENTRY_SECONDS, _ENTRIES_PER_KEY = 0.5, 1e-8, 10
# For a table with more shards, the depth is that of its shards, which is much quicker to compute.
_MOST_SHARDS_READ = 4


@dataclass(frozen=True, slots=True)
class KeySet:
    """Only rows whose ``column`` is one of ``values`` are needed, and rows where it is NULL if ``or_null``.
    ``origin``: identifies the query for the keys and the state of the tables that it reads."""

    column: str
    values: pa.Array
    or_null: bool
    origin: Hashable


@dataclass(slots=True)
class JoinedTable:
    """A table of a statement: its surviving files, the keys that pruned it, and what each rule skipped."""

    name: str
    survivors: Survivors
    reasons: list[str] = field(default_factory=list)
    keys: list[KeySet] = field(default_factory=list)

    def keep_only(self, kept: np.ndarray, why: str) -> None:
        """Skip the surviving files whose flag in ``kept`` is false. Files that the index does not know have no flag."""
        if not kept.all():
            before = self.survivors
            self.survivors = before.once(kept.tobytes(), lambda: before.kept(kept))
            self.reasons.append(f"{why}: {int((~kept).sum()):,} files skipped")

    def whole_where_little_is_saved(self) -> JoinedTable:
        """The table with all its files if skipping saves little time but many rows remain; else the table itself.

        The engine estimates that only a share of the rows satisfies the conditions. After pruning, all rows may satisfy
        them, so that the engine underestimates the table and may choose a worse join order.
        """
        survivors = self.survivors
        skipped = len(survivors.index) - len(survivors.numbers)
        if not 0 < skipped * _FILE_SECONDS < _LEAST_SAVED or self._rows < _MANY_ROWS:
            return self
        if survivors.changes or survivors.index.storage.local is None:
            return self
        why = "all files are read: so few take less time than a join in a worse order"
        return replace(self, survivors=kept_survivors(survivors.index, None), reasons=[*self.reasons, why])

    @property
    def is_reduced(self) -> bool:
        """Whether conditions or keys select some of its rows."""
        return self.survivors.predicate is not None or bool(self.keys)

    @property
    def seconds(self) -> float:
        """The expected time to read the surviving files."""
        return float(len(self.survivors) * _FILE_SECONDS + self._rows * _ROW_SECONDS)

    @property
    def _rows(self) -> int:
        known: int = self.survivors.once("rows", lambda: pc.sum(self.survivors.rows).as_py() or 0)
        return known

    @property
    def expected_rows(self) -> float:
        """The expected number of rows that satisfy its conditions and keys."""
        if self.keys:
            return self._rows * _MATCHING_SHARE
        return self.survivors.once("expected rows", self._expected_rows)

    def _expected_rows(self) -> float:
        file_rows = np.asarray(pc.fill_null(self.survivors.rows, 0))[: len(self.survivors.all_match)]
        return float(file_rows @ np.where(self.survivors.all_match, 1.0, _MATCHING_SHARE))


Ask = Callable[[JoinedTable, str, float], tuple[pa.Array, Hashable] | None]
"""A query for the distinct values of a column in the filtered rows of a table, with their ``origin`` as in `KeySet`;
None if there are too many values, or if the query takes longer than the given number of seconds."""


def prune_by_keys(tables: Sequence[JoinedTable], joins: Sequence[JoinKeys], ask: Ask) -> None:
    """Skip the files of ``tables`` that their joins do not need."""
    pending = [
        join
        for join in joins
        if tables[join.place].seconds > 2 * _QUERY_SECONDS
        and can_prune(tables, join)
        and (_slices(tables, join) > 1 or _sketch_entries(tables[join.place], join.column) is not None)
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
        # A query that takes longer than the most it could save is interrupted, and not run again.
        answer = ask(source, join.key, table.seconds)
        if answer is not None:
            _prune_by_values(source, table, join, *answer)


def can_prune(tables: Sequence[JoinedTable], join: JoinKeys) -> bool:
    """Whether the keys compare with the column's bounds, and cannot change before both tables are read."""
    column, key = _column(tables[join.place], join.column), _column(tables[join.source], join.key)
    source = tables[join.source].survivors.index
    if column is None or key is None or not (source.snapshot.managed or source.source):
        return False
    if t.is_integer(column.type) and t.is_integer(key.type):
        return True
    return not join.widened and column.type == key.type and t.is_exact(column.type)


def _column(table: JoinedTable, name: str) -> Column | None:
    return table.survivors.index.snapshot.schema.find([name], case_sensitive=True)


def _pays(tables: Sequence[JoinedTable], join: JoinKeys) -> bool:
    """Whether a query for the keys is expected to cost less than reading the files that they skip."""
    source, table = tables[join.source], tables[join.place]
    cost = _QUERY_SECONDS + source.seconds
    if not source.is_reduced or table.seconds < cost:
        return False
    missed = 1 - 1 / _slices(tables, join)
    skipped = missed * max(missed ** max(source.expected_rows, 1.0), _ADJACENT_KEYS)
    if (entries := _sketch_entries(table, join.column)) is not None:
        skipped = max(skipped, _SKIPPED_BY_SKETCH)
        cost += min(entries, source.expected_rows * _ENTRIES_PER_KEY) * _ENTRY_SECONDS
    return bool(table.seconds * skipped > cost)


def _sketch_entries(table: JoinedTable, name: str) -> int | None:
    """The number of pairs of a value and a file in the sketch of a column's values; None without a sketch."""
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
    """The number of parts into which a column divides the files of a table; a key is in one of them on average."""
    from zskip.layouts import depths  # Only joins need it, and it takes a tenth of a process's first statement.

    known = _SLICES.setdefault(index, {})
    if path not in known:
        shards = range(len(index.snapshot.shards))
        by_shard = len(shards) > _MOST_SHARDS_READ
        statistics = index.shards([path]) if by_shard else index.files(shards, [path]).statistics
        known[path] = len(statistics) / max(depths(statistics, [path])[path].average, 1.0)
    return known[path]


def _prune_by_bounds(source: JoinedTable, table: JoinedTable, join: JoinKeys) -> None:
    survivors = source.survivors
    # Files that the index does not know may hold any key.
    if not len(survivors.numbers) or len(survivors) in (len(survivors.index), 0) or survivors.changes:
        return
    bounds = survivors.once(("bounds", join.key), lambda: _bounds(source, join.key))
    if bounds is not None:
        nulls = join.nulls and (join.padded or bounds.has_null)
        met = table.survivors.once(
            ("met", join.column, bounds.lower, bounds.upper, nulls), lambda: _met(table, join.column, bounds, nulls)
        )
        if met is not None:
            table.keep_only(met, f"join with {source.name} by bounds of {join.key}")


class _Bounds(NamedTuple):
    """Bounds of the keys in a table's survivors, and whether NULL may be among them."""

    lower: pa.Scalar
    upper: pa.Scalar
    has_null: bool


def _bounds(table: JoinedTable, name: str) -> _Bounds | None:
    """None if those of some file are unknown."""
    keys = _ranges(table, name)
    if keys is None or keys.lower.null_count or keys.upper.null_count:
        return None
    return _Bounds(pc.min(keys.lower), pc.max(keys.upper), pc.any(pc.fill_null(keys.has_null, True)).as_py())


def _met(table: JoinedTable, name: str, keys: _Bounds, nulls: bool) -> np.ndarray | None:
    """A flag for each file of a table: whether it may hold one of the keys, or NULL if ``nulls``."""
    ranges = _ranges(table, name)
    if ranges is None:
        return None
    bounds = cast_keys(pa.array([keys.lower, keys.upper], keys.lower.type), ranges.lower.type)
    if bounds is None:
        return None
    beyond = pc.or_kleene(pc.greater(ranges.lower, bounds[1]), pc.less(ranges.upper, bounds[0]))
    met = ~np.asarray(pc.fill_null(beyond, False))
    return met | np.asarray(pc.fill_null(ranges.has_null, True)) if nulls else met


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
    typed = None if column is None else cast_keys(values, column.type)
    if column is None or typed is None:
        return
    or_null = join.nulls and (join.padded or values.null_count > 0)
    typed = typed.drop_null()
    why = f"join with {source.name} by {len(typed):,} keys {join.key}"
    keys = KeySet(join.column, typed, or_null, (origin, join.column, or_null))
    files = files_with_keys(survivors.index, column, typed, or_null, origin)
    table.keys.append(keys)
    table.keep_only(np.isin(survivors.numbers, files), why)


def files_with_keys(index: Index, column: Column, keys: pa.Array, or_null: bool, origin: Hashable) -> np.ndarray:
    """The numbers of the files that may hold one of some keys, or NULL if ``or_null``. ``origin``: as in `KeySet`."""

    def found() -> np.ndarray:
        term = Reference(column.path, column.type)
        node = or_([in_(term, keys), IsNull(term)]) if or_null else in_(term, keys)
        text = f"{column.path} IN ({len(keys):,} keys)"
        return find_survivors(index, Predicate(text, None, node, index.snapshot.schema, Dialect())).numbers

    return index.once(("keys", origin, column.path, or_null), found, lambda numbers: numbers.nbytes)


def cast_keys(values: pa.Array, type: pa.DataType) -> pa.Array | None:
    """The values cast to another type; None if it cannot represent one of them."""
    try:
        return values.cast(type)
    except pa.ArrowInvalid:
        return None
