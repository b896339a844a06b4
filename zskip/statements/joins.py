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
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zskip.statements.plan_tree import Node, StubColumns, places_scanned_once

_LEFT_NOT_NEEDED = {"INNER", "SEMI", "RIGHT", "RIGHT_SEMI", "RIGHT_ANTI"}
_RIGHT_NOT_NEEDED = {"INNER", "SEMI", "RIGHT_SEMI", "LEFT", "SINGLE", "ANTI"}
# Joins whose output for a row of this side does not depend on other rows of the side.
_KEEPS_LEFT = {"INNER", "SEMI", "LEFT", "SINGLE", "ANTI", "MARK"}
_KEEPS_RIGHT = {"INNER", "RIGHT", "RIGHT_SEMI", "RIGHT_ANTI"}
# Joins that output only values of their inputs, or NULL.
_PASSES_KEYS = _KEEPS_LEFT | _KEEPS_RIGHT | {"RIGHT_SEMI"}
_JOINS = {"HASH_JOIN", "NESTED_LOOP_JOIN", "PIECEWISE_MERGE_JOIN", "IE_JOIN", "BLOCKWISE_NL_JOIN"}
_ROW_BY_ROW = {"FILTER", "PROJECTION", "ORDER_BY"}
_GROUPS = {"HASH_GROUP_BY", "PERFECT_HASH_GROUP_BY"}
_TAKES_SOME = {"TOP_N", "LIMIT", "STREAMING_LIMIT", "WINDOW", "STREAMING_WINDOW"}
_EQUALITY = re.compile(r" (=|IS NOT DISTINCT FROM) ")
# A cast of an integer to a wider type. A cast to a narrower type is nested in another cast, or fails.
_WIDENED = re.compile(r"CAST\(([^()]+) AS (?:SMALLINT|INTEGER|BIGINT|HUGEINT)\)")
_ORDINAL = re.compile(r"#(\d+)")


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
    each with the number of the child that leads there."""

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
    found = [
        one
        for node in root.walk()
        if node.name == "HASH_JOIN" and len(node.children) == 2
        for one in _join_keys(node, stubs, groups)
        if {one.place, one.source} <= once and one.place != one.source
    ]
    return list(dict.fromkeys(found))


def _join_keys(join: Node, stubs: Sequence[StubColumns], groups: bool) -> Iterator[JoinKeys]:
    kind = join.info.get("Join Type", "")
    for condition in join.info.get("Conditions", "").split("\n"):
        parts = _EQUALITY.split(condition)
        if len(parts) != 3:
            continue
        casts = [_WIDENED.fullmatch(term) for term in (parts[0], parts[2])]
        terms = [part if cast is None else cast[1] for part, cast in zip((parts[0], parts[2]), casts, strict=True)]
        left, right = (_traced(child, term, stubs) for child, term in zip(join.children, terms, strict=True))
        if left is None or right is None:
            continue
        if not groups and any(node.name in _GROUPS for node, _ in (*left.path, *right.path)):
            continue
        nulls, widened = parts[1] != "=", any(casts)
        if kind in _LEFT_NOT_NEEDED and _is_independent(left, stubs) and _preserves_keys(right):
            yield JoinKeys(left.place, left.name, right.place, right.name, nulls, _may_pad(right), widened)
        if kind in _RIGHT_NOT_NEEDED and _is_independent(right, stubs) and _preserves_keys(left):
            yield JoinKeys(right.place, right.name, left.place, left.name, nulls, _may_pad(left), widened)


def _traced(side: Node, term: str, stubs: Sequence[StubColumns]) -> _Column | None:
    """The column of a scan that a term refers to on one side of a join; None if that cannot be traced."""
    ordinal = _ORDINAL.fullmatch(term)
    if ordinal is not None:
        return _numbered(side, int(ordinal[1]), stubs, ())
    named = _named(side, term, stubs, ())
    # The plan prints a correlated subquery's column under the name of the outer column that it must equal.
    if named is None and any(term in stub.printed for stub in stubs) and _has_one_column(side):
        return _numbered(side, 0, stubs, ())
    return named


def _has_one_column(node: Node) -> bool:
    if node.name == "FILTER":
        return _has_one_column(node.children[0])
    return len(_shown(node)) == 1 and _shown(node) != [""] and not node.info.get("Aggregates")


def _shown(node: Node) -> list[str]:
    """The columns of an operator as printed, without aggregates. A filter has the columns of its child."""
    if node.name == "FILTER":
        return _shown(node.children[0])
    return node.info.get("Groups" if node.name in _GROUPS else "Projections", "").split("\n")


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
    if (node.name == "PROJECTION" or node.name in _GROUPS) and number < len(shown):
        ordinal = _ORDINAL.fullmatch(shown[number])
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
        or (node.name in _GROUPS and _is_grouped_by(node, column, stubs))
        for node, child in column.path
    )


def _is_grouped_by(node: Node, column: _Column, stubs: Sequence[StubColumns]) -> bool:
    groups = [found for text in node.info.get("Groups", "").split("\n") if (found := _ORDINAL.fullmatch(text))]
    grouped = [_numbered(node.children[0], int(group[1]), stubs, ()) for group in groups]
    return any(one is not None and (one.place, one.name) == (column.place, column.name) for one in grouped)


def _preserves_keys(column: _Column) -> bool:
    """Whether every value of the column on this side of the join is NULL or a value of the scan."""
    return all(
        node.name in (*_ROW_BY_ROW, *_TAKES_SOME, *_GROUPS, "CTE", "CROSS_PRODUCT")
        or (node.name in _JOINS and node.info.get("Join Type") in _PASSES_KEYS)
        for node, _ in column.path
    )


def _may_pad(column: _Column) -> bool:
    """Whether an outer join may have replaced values of the column by NULL."""
    return any(node.name in _JOINS and node.info.get("Join Type") not in ("INNER", "SEMI") for node, _ in column.path)
