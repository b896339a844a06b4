"""Joins: a row of one side that has no partner on the other is not needed, so the other side's keys prune its table.

| join of L and R       | rows of L without a partner | rows of R without a partner |
| --------------------- | --------------------------- | --------------------------- |
| INNER, SEMI           | are not needed              | are not needed              |
| LEFT, SINGLE, ANTI    | are needed                  | are not needed              |
| RIGHT, RIGHT_ANTI     | are not needed              | are needed                  |
| RIGHT_SEMI            | are not needed              | are not needed              |
| MARK, FULL, all other | are needed                  | are needed                  |

A plan prints the columns of a join by their names in the query, of which a stub has its own that occur nowhere else, or
by their numbers. They are traced to a scan through operators that hand them on as they are:

- for the rows that are not needed, through those of which each row, or group of one key, is independent of the others;
- for the keys, through those that take rows away, repeat them or put NULLs in their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zskip.statement.plan_tree import Node, StubColumns, places_scanned_once

__all__ = ["JoinKeys", "join_keys"]

_LEFT_NOT_NEEDED = {"INNER", "SEMI", "RIGHT", "RIGHT_SEMI", "RIGHT_ANTI"}
_RIGHT_NOT_NEEDED = {"INNER", "SEMI", "RIGHT_SEMI", "LEFT", "SINGLE", "ANTI"}
# Joins of which each row of the side gives rows of its own, whatever else the side holds.
_KEEPS_LEFT = {"INNER", "SEMI", "LEFT", "SINGLE", "ANTI", "MARK"}
_KEEPS_RIGHT = {"INNER", "RIGHT", "RIGHT_SEMI", "RIGHT_ANTI"}
_JOINS = {"HASH_JOIN", "NESTED_LOOP_JOIN", "PIECEWISE_MERGE_JOIN", "IE_JOIN", "BLOCKWISE_NL_JOIN"}
_ROW_BY_ROW = {"FILTER", "PROJECTION", "ORDER_BY"}
_GROUPS = {"HASH_GROUP_BY", "PERFECT_HASH_GROUP_BY"}
_TAKES_SOME = {"TOP_N", "LIMIT", "STREAMING_LIMIT", "WINDOW", "STREAMING_WINDOW"}
_EQUALITY = re.compile(r" (=|IS NOT DISTINCT FROM) ")
# Of an integer to a wider one: casts to a narrower one stand inside another cast, or fail.
_WIDENED = re.compile(r"CAST\(([^()]+) AS (?:SMALLINT|INTEGER|BIGINT|HUGEINT)\)")
_ORDINAL = re.compile(r"#(\d+)")


class JoinKeys(NamedTuple):
    """Of the table at ``place`` only rows are needed whose ``column`` is one of the values that ``key`` has in those
    rows of the table at ``source`` that its conditions leave.

    ``nulls``: NULL is such a value too · ``padded``: a join may have put NULLs in the key's place · ``widened``: the
    plan casts one of the two, which only says the same where both are integers.
    """

    place: int
    column: str
    source: int
    key: str
    nulls: bool
    padded: bool
    widened: bool


class _Column(NamedTuple):
    """A column of a place, and the operators from a side of a join down to its scan, each with the child gone to."""

    place: int
    name: str
    path: tuple[tuple[Node, int], ...]


def join_keys(root: Node, stubs: Sequence[StubColumns]) -> list[JoinKeys]:
    """What the joins of a plan say of tables that are scanned once each."""
    if any("\n" in name for stub in stubs for name in stub.printed):
        return []
    once = places_scanned_once(root)
    found = [
        one
        for node in root.walk()
        if node.name == "HASH_JOIN" and len(node.children) == 2
        for one in _join_keys(node, stubs)
        if {one.place, one.source} <= once and one.place != one.source
    ]
    return list(dict.fromkeys(found))


def _join_keys(join: Node, stubs: Sequence[StubColumns]) -> Iterator[JoinKeys]:
    kind = join.info.get("Join Type", "")
    for condition in join.info.get("Conditions", "").split("\n"):
        parts = _EQUALITY.split(condition)
        if len(parts) != 3:
            continue
        terms = [_WIDENED.fullmatch(term) for term in (parts[0], parts[2])]
        names = [part if cast is None else cast[1] for part, cast in zip((parts[0], parts[2]), terms, strict=True)]
        sides = [_traced(child, name, stubs) for child, name in zip(join.children, names, strict=True)]
        left, right = sides
        if left is None or right is None:
            continue
        nulls, widened = parts[1] != "=", any(terms)
        if kind in _LEFT_NOT_NEEDED and _is_independent(left, stubs) and _hands_on_keys(right):
            yield JoinKeys(left.place, left.name, right.place, right.name, nulls, _may_pad(right), widened)
        if kind in _RIGHT_NOT_NEEDED and _is_independent(right, stubs) and _hands_on_keys(left):
            yield JoinKeys(right.place, right.name, left.place, left.name, nulls, _may_pad(left), widened)


def _traced(side: Node, term: str, stubs: Sequence[StubColumns]) -> _Column | None:
    """The column that a term names among the rows of a side of a join."""
    ordinal = _ORDINAL.fullmatch(term)
    if ordinal is not None:
        return _numbered(side, int(ordinal[1]), stubs, ())
    named = _named(side, term, stubs, ())
    # A correlated subquery calls its own column by the name of the outer one that it must equal.
    if named is None and any(term in stub.printed for stub in stubs) and _has_one_column(side):
        return _numbered(side, 0, stubs, ())
    return named


def _has_one_column(node: Node) -> bool:
    if node.name == "FILTER":
        return _has_one_column(node.children[0])
    return len(_shown(node)) == 1 and _shown(node) != [""] and not node.info.get("Aggregates")


def _shown(node: Node) -> list[str]:
    """The columns of an operator as it prints them, but for aggregates; those of a filter are its child's."""
    if node.name == "FILTER":
        return _shown(node.children[0])
    return node.info.get("Groups" if node.name in _GROUPS else "Projections", "").split("\n")


def _numbered(
    node: Node, number: int, stubs: Sequence[StubColumns], path: tuple[tuple[Node, int], ...]
) -> _Column | None:
    """A column by its number: through operators that print all of their columns, or have those of their child."""
    shown = _shown(node)
    if (place := node.place) is not None:
        name = stubs[place].printed.get(shown[number]) if number < len(shown) else None
        return None if name is None else _Column(place, name, path)
    below = (*path, (node, 0))
    # Not those of a sort, which drops what only it needs and does not print that.
    if node.name in ("FILTER", "LIMIT", "STREAMING_LIMIT"):
        return _numbered(node.children[0], number, stubs, below)
    if (node.name == "PROJECTION" or node.name in _GROUPS) and number < len(shown):
        ordinal = _ORDINAL.fullmatch(shown[number])
        if ordinal is not None:
            return _numbered(node.children[0], int(ordinal[1]), stubs, below)
        return _named(node.children[0], shown[number], stubs, below)
    return None


def _named(node: Node, name: str, stubs: Sequence[StubColumns], path: tuple[tuple[Node, int], ...]) -> _Column | None:
    """A column by the name that only its stub gives it, if that is scanned below."""
    owners = [place for place, stub in enumerate(stubs) if name in stub.printed]
    if len(owners) != 1:
        return None
    found = _path_to(node, owners[0])
    return None if found is None else _Column(owners[0], stubs[owners[0]].printed[name], (*path, *found))


def _path_to(node: Node, place: int) -> tuple[tuple[Node, int], ...] | None:
    if node.place == place:
        return ()
    for number, child in enumerate(node.children):
        # The rows of a CTE's query go where it is read, not upwards.
        found = None if node.name == "CTE" and number == 0 else _path_to(child, place)
        if found is not None:
            return ((node, number), *found)
    return None


def _is_independent(column: _Column, stubs: Sequence[StubColumns]) -> bool:
    """Whether rows of the scan with one value of the column can go without a change to those with other values."""
    return all(
        node.name in (*_ROW_BY_ROW, "CTE", "CROSS_PRODUCT")
        or (node.name in _JOINS and node.info.get("Join Type") in (_KEEPS_RIGHT if child else _KEEPS_LEFT))
        or (node.name in _GROUPS and _is_grouped_by(node, column, stubs))
        for node, child in column.path
    )


def _is_grouped_by(node: Node, column: _Column, stubs: Sequence[StubColumns]) -> bool:
    groups = [found for text in node.info.get("Groups", "").split("\n") if (found := _ORDINAL.fullmatch(text))]
    columns = [_numbered(node.children[0], int(group[1]), stubs, ()) for group in groups]
    return any(one is not None and (one.place, one.name) == (column.place, column.name) for one in columns)


def _hands_on_keys(column: _Column) -> bool:
    """Whether a join's side has no other values of the column than the scan, but for NULL."""
    return all(
        node.name in (*_ROW_BY_ROW, *_TAKES_SOME, *_GROUPS, "CTE", "CROSS_PRODUCT")
        or (node.name in _JOINS and node.info.get("Join Type") != "FULL")
        for node, _ in column.path
    )


def _may_pad(column: _Column) -> bool:
    return any(node.name in _JOINS and node.info.get("Join Type") not in ("INNER", "SEMI") for node, _ in column.path)
