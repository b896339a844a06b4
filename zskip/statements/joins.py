"""Joins: which table's keys can prune another table, because rows without a join partner are not needed.

| join of L and R       | rows of L without a partner | rows of R without a partner |
| --------------------- | --------------------------- | --------------------------- |
| INNER, SEMI           | are not needed              | are not needed              |
| LEFT, SINGLE, ANTI    | are needed                  | are not needed              |
| RIGHT, RIGHT_ANTI     | are not needed              | are needed                  |
| RIGHT_SEMI            | are not needed              | are not needed              |
| MARK, FULL, all other | are needed                  | are needed                  |

A plan prints a join's columns by ordinal, or by name: those of stubs are unique in the statement. Each column is traced
down to its scan through operators that pass it on unchanged:

- to skip rows of a table, through operators that handle each row, or each group of one key, independently of others;
- to take keys from a table, through operators that only remove rows, repeat them, or replace their values by NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import Column
from zskip.errors import amount
from zskip.language import Dialect, Predicate
from zskip.language.tree import IsNull, Reference, in_, or_
from zskip.plan import Survivors, find_survivors, kept_survivors
from zskip.statements.plan_tree import GROUPS, ORDINAL, Node, StubColumns, places_scanned_once
from zskip.stats import Ranges
from zskip.tablelog.index import Index
from zskip.tablelog.sketches import SketchName

_LEFT_NOT_NEEDED = {"INNER", "SEMI", "RIGHT", "RIGHT_SEMI", "RIGHT_ANTI"}
_RIGHT_NOT_NEEDED = {"INNER", "SEMI", "RIGHT_SEMI", "LEFT", "SINGLE", "ANTI"}
# Joins whose output for a row of this side does not depend on other rows of the side.
_KEEPS_LEFT = {"INNER", "SEMI", "LEFT", "SINGLE", "ANTI", "MARK"}
_KEEPS_RIGHT = {"INNER", "RIGHT", "RIGHT_SEMI", "RIGHT_ANTI"}
# Joins that output only values of their inputs, or NULL.
_PASSES_KEYS = _KEEPS_LEFT | _KEEPS_RIGHT | {"RIGHT_SEMI"}
_JOINS = {"HASH_JOIN", "NESTED_LOOP_JOIN", "PIECEWISE_MERGE_JOIN", "IE_JOIN", "BLOCKWISE_NL_JOIN"}
_ROW_BY_ROW = {"FILTER", "PROJECTION", "ORDER_BY"}
_TAKES_SOME = {"TOP_N", "LIMIT", "STREAMING_LIMIT", "WINDOW", "STREAMING_WINDOW"}
_EQUALITY = re.compile(r" (=|IS NOT DISTINCT FROM) ")
# A cast of an integer to a wider type. A cast to a narrower type is nested in another cast, or fails.
_WIDENED = re.compile(r"CAST\(([^()]+) AS (?:SMALLINT|INTEGER|BIGINT|HUGEINT)\)")


class JoinKeys(NamedTuple):
    """A statement needs only those rows of the table at ``place`` whose ``column`` equals a value that ``key`` has in
    the filtered rows of the table at ``source``.

    ``nulls``: NULL equals NULL · ``padded``: a join may have replaced the key by NULL · ``widened``: the plan casts one
    of the two columns, which preserves equality only if both are integers.
    """

    place: int
    column: str
    source: int
    key: str
    nulls: bool
    padded: bool
    widened: bool


class _Column(NamedTuple):
    """A column of the table at ``place``. ``path``: the operators from one side of a join down to the table's scan,
    each with the number of the child that leads there; from the scan of a CTE it goes on in the CTE's query."""

    place: int
    name: str
    path: tuple[tuple[Node, int], ...]


def join_keys(root: Node, stubs: Sequence[StubColumns], *, groups: bool = True) -> list[JoinKeys]:
    """The keys by which joins of a plan can prune tables. Only tables that the plan scans once are considered.

    ``groups``: no group has a NULL in place of a key, and rows of other keys. Plans do not print
    grouping sets.
    """
    if any("\n" in name for stub in stubs for name in stub.printed):
        return []
    once = places_scanned_once(root)
    queries = _queries_of_ctes(root)
    found = [
        one
        for node in root.walk()
        if node.name == "HASH_JOIN" and len(node.children) == 2
        for one in _join_keys(node, stubs, groups, queries)
        if {one.place, one.source} <= once and one.place != one.source
    ]
    return list(dict.fromkeys(found))


def _queries_of_ctes(root: Node) -> dict[str, Node]:
    """The queries of the CTEs of a plan, by their numbers."""
    ctes = [node for node in root.walk() if node.name == "CTE" and "Table Index" in node.info]
    return {node.info["Table Index"]: node.children[0] for node in ctes}


def _join_keys(
    join: Node, stubs: Sequence[StubColumns], groups: bool, queries: Mapping[str, Node]
) -> Iterator[JoinKeys]:
    """``queries``: of the CTEs."""
    kind = join.info.get("Join Type", "")
    for terms, nulls, widened in _equalities(join):
        left, right = (_traced(child, term, stubs, queries) for child, term in zip(join.children, terms, strict=True))
        if left is None or right is None:
            continue
        if not groups and any(node.name in GROUPS for node, _ in (*left.path, *right.path)):
            continue
        if kind in _LEFT_NOT_NEEDED and _is_independent(left, stubs) and _preserves_keys(right):
            yield JoinKeys(left.place, left.name, right.place, right.name, nulls, _may_pad(right), widened)
        if kind in _RIGHT_NOT_NEEDED and _is_independent(right, stubs) and _preserves_keys(left):
            yield JoinKeys(right.place, right.name, left.place, left.name, nulls, _may_pad(left), widened)


def _equalities(join: Node) -> Iterator[tuple[list[str], bool, bool]]:
    """The two terms of each equality of a join, whether NULL equals NULL, and whether one of them is cast."""
    for condition in join.info.get("Conditions", "").split("\n"):
        parts = _EQUALITY.split(condition)
        if len(parts) == 3:
            casts = [_WIDENED.fullmatch(term) for term in (parts[0], parts[2])]
            terms = [part if cast is None else cast[1] for part, cast in zip((parts[0], parts[2]), casts, strict=True)]
            yield terms, parts[1] != "=", any(casts)


def _traced(side: Node, term: str, stubs: Sequence[StubColumns], queries: Mapping[str, Node]) -> _Column | None:
    """The column of a scan that a term refers to on one side of a join; None if that cannot be traced."""
    ordinal = ORDINAL.fullmatch(term)
    if ordinal is not None:
        return _numbered(side, int(ordinal[1]), stubs, ())
    named = _named(side, term, stubs, ()) or _named_in_cte(side, term, stubs, queries)
    if named is None and _has_one_column(side):
        only = _numbered(side, 0, stubs, ())
        # The plan prints a correlated subquery's column under the name of the outer column that it must equal. And of
        # two tables with a name of one letter, only one can have it in another spelling.
        if any(term in stub.printed for stub in stubs) or (only is not None and only.name.lower() == term.lower()):
            return only
    return named


def _has_one_column(node: Node) -> bool:
    if node.name == "FILTER":
        return _has_one_column(node.children[0])
    return len(_shown(node)) == 1 and _shown(node) != [""] and not node.info.get("Aggregates")


def _shown(node: Node) -> list[str]:
    """The columns of an operator as printed, without aggregates. A filter has the columns of its child."""
    if node.name == "FILTER":
        return _shown(node.children[0])
    return node.info.get("Groups" if node.name in GROUPS else "Projections", "").split("\n")


def _numbered(
    node: Node, number: int, stubs: Sequence[StubColumns], path: tuple[tuple[Node, int], ...]
) -> _Column | None:
    """The column with this number, through operators that print all their columns or have those of their child."""
    shown = _shown(node)
    if (place := node.place) is not None:
        name = stubs[place].printed.get(shown[number]) if number < len(shown) else None
        return None if name is None else _Column(place, name, path)
    below = (*path, (node, 0))
    # A sort is excluded: it drops the columns that only the sort needs, and does not print which.
    if node.name in ("FILTER", "LIMIT", "STREAMING_LIMIT"):
        return _numbered(node.children[0], number, stubs, below)
    if (node.name == "PROJECTION" or node.name in GROUPS) and number < len(shown):
        ordinal = ORDINAL.fullmatch(shown[number])
        if ordinal is not None:
            return _numbered(node.children[0], int(ordinal[1]), stubs, below)
        return _named(node.children[0], shown[number], stubs, below)
    return None


def _named(node: Node, name: str, stubs: Sequence[StubColumns], path: tuple[tuple[Node, int], ...]) -> _Column | None:
    """The column with this name, if only one stub has the name and the operator's subtree scans that stub."""
    owners = [place for place, stub in enumerate(stubs) if name in stub.printed]
    if len(owners) != 1:
        return None
    found = _path_to(node, owners[0])
    return None if found is None else _Column(owners[0], stubs[owners[0]].printed[name], (*path, *found))


def _named_in_cte(
    node: Node,
    name: str,
    stubs: Sequence[StubColumns],
    queries: Mapping[str, Node],
    path: tuple[tuple[Node, int], ...] = (),
) -> _Column | None:
    """The column with this name in the query of a CTE, if a scan of the CTE alone feeds an operator. The plan of a
    correlated subquery has the outer rows as such a CTE, and their distinct keys as another one over it."""
    while len(node.children) == 1:
        path = (*path, (node, 0))
        (node,) = node.children
    query = queries.get(node.info.get("CTE Index", "")) if node.name == "CTE_SCAN" else None
    if query is None:
        return None
    path = (*path, (node, 0))
    return _named(query, name, stubs, path) or _named_in_cte(query, name, stubs, queries, path)


def _path_to(node: Node, place: int) -> tuple[tuple[Node, int], ...] | None:
    if node.place == place:
        return ()
    for number, child in enumerate(node.children):
        # The rows of a CTE's query do not flow to the parent of the CTE node, but to the scans of the CTE.
        found = None if node.name == "CTE" and number == 0 else _path_to(child, place)
        if found is not None:
            return ((node, number), *found)
    return None


def _is_independent(column: _Column, stubs: Sequence[StubColumns]) -> bool:
    """Whether removing all rows with one value of the column leaves the results for other values unchanged."""
    return all(
        node.name in (*_ROW_BY_ROW, "CTE", "CROSS_PRODUCT")
        or (node.name in _JOINS and node.info.get("Join Type") in (_KEEPS_RIGHT if child else _KEEPS_LEFT))
        or (node.name in GROUPS and _is_grouped_by(node, column, stubs))
        for node, child in column.path
    )


def _is_grouped_by(node: Node, column: _Column, stubs: Sequence[StubColumns]) -> bool:
    groups = [found for text in node.info.get("Groups", "").split("\n") if (found := ORDINAL.fullmatch(text))]
    grouped = [_numbered(node.children[0], int(group[1]), stubs, ()) for group in groups]
    return any(one is not None and (one.place, one.name) == (column.place, column.name) for one in grouped)


def _preserves_keys(column: _Column) -> bool:
    """Whether every value of the column on this side of the join is NULL or a value of the scan."""
    return all(
        node.name in (*_ROW_BY_ROW, *_TAKES_SOME, *GROUPS, "CTE", "CTE_SCAN", "CROSS_PRODUCT")
        or (node.name in _JOINS and node.info.get("Join Type") in _PASSES_KEYS)
        for node, _ in column.path
    )


def _may_pad(column: _Column) -> bool:
    """Whether an outer join may have replaced values of the column by NULL."""
    return any(node.name in _JOINS and node.info.get("Join Type") not in ("INNER", "SEMI") for node, _ in column.path)


# --- pruning by join keys ---
#
# Skips files without a row that has a join partner, by the keys left in the table on the other side: first by the
# bounds of those keys, which the index knows; then by the keys themselves, smallest table first, if the query for them
# is expected to cost less than it saves:
#
#     cost  = reading the files of the table that has the keys
#     gain  = reading the files of the other table × the share of them expected to be skipped
#
# On average, ``depth`` of a column's files contain a given key. So a key needs one of ``slices = files / depth`` parts
# of the files, and n keys at random positions need a share of 1 − (1 − 1/slices)ⁿ. Keys may also be adjacent, such as
# the days of a month, so some gain is always expected. A sketch of the column's values finds the files of keys that the
# layout does not cluster: if line items are clustered by date, the keys of one year's orders are in that year's files.

# Seconds per query, per file and per row, on a typical machine, for local files of which some columns are read.
_QUERY_SECONDS, FILE_SECONDS, ROW_SECONDS = 2e-3, 1.3e-4, 8e-9
# The share of a file's rows that is expected to match conditions or keys, if the file is not known to match as a whole.
MATCHING_SHARE = 0.1
# Pruning a table in a join does not pay below these seconds if the table has at least this many rows.
_LEAST_SAVED, _MANY_ROWS = 3e-3, 100_000
# The least share of the files expected to be skipped, relative to that for a single key: keys may be adjacent.
_ADJACENT_KEYS = 0.1
# With a sketch of the column's values: the share of the files expected to be skipped, seconds per entry of the sketch,
# and the number of entries looked up per key.
_SKIPPED_BY_SKETCH, _ENTRY_SECONDS, _ENTRIES_PER_KEY = 0.5, 1e-8, 10
# For a table with more shards, the depth is that of its shards, which is much quicker to compute.
_MOST_SHARDS_READ, _SLICES_BYTES = 4, 256


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
            self.reasons.append(f"{why}: {amount(int((~kept).sum()), 'file')} skipped")

    def whole_where_little_is_saved(self) -> JoinedTable:
        """The table with all its files if skipping saves little time but many rows remain; else the table itself.

        The engine estimates that only a share of the rows satisfies the conditions. After pruning, all rows may satisfy
        them, so that the engine underestimates the table and may choose a worse join order.
        """
        survivors = self.survivors
        skipped = len(survivors.index) - len(survivors.numbers)
        if not 0 < skipped * FILE_SECONDS < _LEAST_SAVED or known_rows(self.survivors) < _MANY_ROWS:
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
        return read_seconds(self.survivors)

    @property
    def expected_rows(self) -> float:
        """The expected number of rows that satisfy its conditions and keys."""
        if self.keys:
            return known_rows(self.survivors) * MATCHING_SHARE
        return self.survivors.once("expected rows", self._expected_rows)

    def _expected_rows(self) -> float:
        file_rows = np.asarray(pc.fill_null(self.survivors.rows, 0))[: len(self.survivors.all_match)]
        return float(file_rows @ np.where(self.survivors.all_match, 1.0, MATCHING_SHARE))


def known_rows(survivors: Survivors) -> int:
    """The rows of the surviving files of which the index knows the number."""
    return survivors.once("rows", lambda: pc.sum(survivors.rows).as_py() or 0)


def read_seconds(survivors: Survivors) -> float:
    """The expected time to read the surviving files."""
    return float(len(survivors) * FILE_SECONDS + known_rows(survivors) * ROW_SECONDS)


Ask = Callable[[JoinedTable, str, float], tuple[pa.Array, Hashable] | str]
"""A query for the distinct values of a column in the filtered rows of a table, with their ``origin`` as in `KeySet`;
the reason if there are too many values, or if the query takes longer than the given number of seconds."""


def prune_by_keys(tables: Sequence[JoinedTable], joins: Sequence[JoinKeys], ask: Ask) -> None:
    """Skip the files of ``tables`` that their joins do not need."""
    pending = []
    for join in joins:
        if tables[join.place].seconds <= 2 * _QUERY_SECONDS:
            _not_looked_up(tables, join, "the files are read in the time of a query for them")
        elif not can_prune(tables, join):
            _not_looked_up(tables, join, f"they do not compare exactly with {join.column}, or may change meanwhile")
        elif _slices(tables, join) <= 1 and _sketch_entries(tables[join.place], join.column) is None:
            _not_looked_up(tables, join, f"every file may hold any {join.column}, which has no sketch of its values")
        else:
            pending.append(join)
    for join in pending:
        _prune_by_bounds(tables[join.source], tables[join.place], join)
    while worth := [join for join in pending if _pays(tables, join)]:
        join = min(worth, key=lambda one: tables[one.source].seconds)
        pending.remove(join)
        source, table = tables[join.source], tables[join.place]
        # A query that takes longer than the most it could save is interrupted, and not run again.
        answer = ask(source, join.key, table.seconds)
        if isinstance(answer, str):
            _not_looked_up(tables, join, answer)
        else:
            _prune_by_values(source, table, join, *answer)
    for join in pending:
        _not_looked_up(tables, join, "reading them is expected to take longer than it saves")


def _not_looked_up(tables: Sequence[JoinedTable], join: JoinKeys, why: str) -> None:
    """Note why the keys of a join, beside their bounds, skip nothing, unless nothing selects among them."""
    source = tables[join.source]
    if source.is_reduced:
        tables[join.place].reasons.append(f"keys {join.key} of {source.name} are not looked up: {why}")


def can_prune(tables: Sequence[JoinedTable], join: JoinKeys) -> bool:
    """Whether the keys compare with the column's bounds, and cannot change before both tables are read."""
    column, key = column_of(tables[join.place], join.column), column_of(tables[join.source], join.key)
    source = tables[join.source].survivors.index
    if column is None or key is None or not (source.snapshot.managed or source.source):
        return False
    if t.is_integer(column.type) and t.is_integer(key.type):
        return True
    return not join.widened and column.type == key.type and t.is_exact(column.type)


def column_of(table: JoinedTable, name: str) -> Column | None:
    """The top-level column of a table that a plan prints by this name; None for a struct, and if there is none."""
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
    column = column_of(table, name)
    wanted = None if column is None else SketchName(column.path, "values")
    sketches = (one for one in table.survivors.index.snapshot.sketches if one.name == wanted)
    return next((sum(segment.entries for segment in one.segments) for one in sketches), None)


def _slices(tables: Sequence[JoinedTable], join: JoinKeys) -> float:
    table = tables[join.place]
    column = column_of(table, join.column)
    return 1.0 if column is None else file_slices(table.survivors.index, column.path)


def file_slices(index: Index, path: str) -> float:
    """The number of parts into which a column divides the files of a table; a key is in one of them on average."""
    from zskip.layouts import depths  # Only joins need it, and it takes a tenth of a process's first statement.

    def counted() -> float:
        shards = range(len(index.snapshot.shards))
        by_shard = len(shards) > _MOST_SHARDS_READ
        statistics = index.shards([path]) if by_shard else index.files(shards, [path]).statistics
        return len(statistics) / max(depths(statistics, [path])[path].average, 1.0)

    return index.once(("slices", path), counted, lambda _: _SLICES_BYTES)


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
    column = column_of(table, name)
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
    column, survivors = column_of(table, join.column), table.survivors
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

    return index.once(("keys", origin, column.path, or_null), found)


def cast_keys(values: pa.Array, type: pa.DataType) -> pa.Array | None:
    """The values cast to another type; None if it cannot represent one of them."""
    try:
        return values.cast(type)
    except pa.ArrowInvalid:
        return None
