"""Combine comparisons of one term with constants: a hundred thousand parts of an OR become one IN.

x = 1 OR x = 5 OR x IN (7, 9)      x IN (1, 5, 7, 9)
x <> 1 AND x <> 5                  x NOT IN (1, 5)
x < 3 OR x < 7                     x < 7
x < 3 AND x < 7                    x < 3

Many ranges of one term, such as those of BETWEEN or LIKE 'p%', become arrays of their bounds. Many rows of constants,
such as (a = 1 AND b = 2) OR (a = 3 AND b = 4), become an array for each column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.language import tree
from zskip.language.intervals.spans import key_family
from zskip.language.tree import And, Compare, In, Literal, Node, Not, Or, Reference, Scalar
from zskip.pruning.constant_comparison import is_nan

_FEWEST = 4
"""The number of parts from which they are combined."""

_Key = tuple[str, Scalar]


def merged_by_term(parts: Sequence[Node], conjunction: bool) -> Sequence[Node]:
    """The parts of an AND or OR, with the comparisons of each term combined."""
    if len(parts) < _FEWEST:
        return parts
    constants: dict[_Key, list[pa.Scalar]] = {}
    arrays: dict[_Key, list[pa.Array]] = {}
    others: list[Node] = []
    for part in parts:
        found = _member(part, conjunction) or _bound(part)
        if found is None:
            others.append(part)
        else:
            key, members = found
            listed = constants.setdefault(key, [])
            if isinstance(members, pa.Array):
                arrays.setdefault(key, []).append(members)
            else:
                listed.append(members)
    return [
        *others,
        *(
            _merged(*key, pa.concat_arrays([pa.array(listed, key[1].type), *arrays.get(key, ())]), conjunction)
            for key, listed in constants.items()
        ),
    ]


def _member(part: Node, conjunction: bool) -> tuple[_Key, pa.Scalar | pa.Array] | None:
    """The term and constants of ``x = c`` or ``x IN (…)`` in an OR, or of the negation of these in an AND."""
    if conjunction:
        if not isinstance(part, Not):
            return None
        part = part.part
    match part:
        case Compare("=", term, Literal(value)) | Compare("=", Literal(value), term) if not isinstance(term, Literal):
            return ("in", term), value
        case In(term, values, False):
            return ("in", term), values
    return None


def _bound(part: Node) -> tuple[_Key, pa.Scalar | pa.Array] | None:
    """The operator, term and constant of ``x < c``, ``x <= c``, ``c < x`` (``>``) or ``c <= x`` (``>=``)."""
    match part:
        case Compare("<" | "<=" as op, term, Literal(value)) if not isinstance(term, Literal) and not is_nan(value):
            return (op, term), value
        case Compare("<" | "<=" as op, Literal(value), term) if not isinstance(term, Literal) and not is_nan(value):
            return (">" + op[1:], term), value
    return None


def _merged(op: str, term: Scalar, constants: pa.Array, conjunction: bool) -> Node:
    if op == "in":
        found = tree.in_(term, constants)
        return tree.not_(found) if conjunction else found
    # Of upper bounds, the least decides an AND, and the greatest an OR; of lower bounds it is the other way round.
    least = op.startswith("<") == conjunction
    order = pc.sort_indices(constants)
    return tree.compare(op, term, Literal(constants[order[0 if least else -1].as_py()]))


def split_ranges(
    parts: Sequence[Node], conjunction: bool
) -> tuple[dict[Scalar, tuple[pa.Array, pa.Array, np.ndarray]], Sequence[Node]]:
    """The ranges among the parts of an OR, by term, as their lower bounds, upper bounds, and whether each includes its
    upper bound; and all other parts.

    Of an AND, the negated ranges.
    """
    ends: dict[Scalar, tuple[list[pa.Scalar], list[pa.Scalar], list[bool]]] = {}
    others: list[Node] = []
    if len(parts) < _FEWEST:
        return {}, parts
    for part in parts:
        found = _range(part, conjunction)
        if found is None:
            others.append(part)
        else:
            for side, listed in zip(found[1:], ends.setdefault(found[0], ([], [], [])), strict=True):
                listed.append(side)
    return {
        term: (pa.array(lows, term.type), pa.array(highs, term.type), np.array(closed))
        for term, (lows, highs, closed) in ends.items()
    }, others


def _range(part: Node, conjunction: bool) -> tuple[Scalar, pa.Scalar, pa.Scalar, bool] | None:
    """The term and bounds of ``low <= x AND x < high``, or ``x <= high``; in an AND, of the negation of it."""
    if conjunction:
        if not isinstance(part, Not):
            return None
        part = part.part
    match part:
        case And((Compare("<=", Literal(low), term), Compare("<" | "<=" as op, above, Literal(high)))) if (
            term == above
            and not isinstance(term, Literal)
            and key_family(term.type) is not None
            and not is_nan(low)
            and not is_nan(high)
        ):
            return term, low, high, op == "<="
    return None


def split_row_values(
    parts: Sequence[Node], conjunction: bool
) -> tuple[dict[tuple[Reference, ...], list[pa.Array]], Sequence[Node]]:
    """The rows of constants among the parts of an OR, by the columns that they are compared with; and all other parts.

    Of an AND, the negated rows.
    """
    if len(parts) < _FEWEST:
        return {}, parts
    found: dict[tuple[Reference, ...], list[tuple[Node, dict[Reference, pa.Scalar]]]] = {}
    others: list[Node] = []
    for part in parts:
        row = _row(part, conjunction)
        if row is None:
            others.append(part)
        else:
            found.setdefault(tuple(sorted(row, key=lambda term: term.path)), []).append((part, row))
    rows = {}
    for terms, members in found.items():
        if len(members) < _FEWEST:
            others += [part for part, _ in members]
        else:
            rows[terms] = [pa.array([row[term] for _, row in members], term.type) for term in terms]
    return rows, others


def _row(part: Node, conjunction: bool) -> dict[Reference, pa.Scalar] | None:
    """The constants of ``a = 1 AND b = 2`` by column; in an AND, of its negation, such as ``a <> 1 OR b <> 2``."""
    match part:
        case And(parts) if not conjunction:
            pass
        case Not(And(parts)) if conjunction:
            pass
        case Or(negated) if conjunction and all(isinstance(each, Not) for each in negated):
            parts = tuple(each.part for each in negated if isinstance(each, Not))
        case _:
            return None
    found: dict[Reference, pa.Scalar] = {}
    for each in parts:
        match each:
            case Compare("=", Reference() as term, Literal(value)) | Compare("=", Literal(value), Reference() as term):
                if term in found or key_family(term.type) is None or is_nan(value):
                    return None
                found[term] = value
            case _:
                return None
    return found if len(found) > 1 else None
