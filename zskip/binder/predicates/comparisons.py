"""``= <> < <= > >=`` and IS [NOT] DISTINCT FROM, of values and of rows: ``a = 1``, ``(a, b) < (1, 2)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from zskip import types as t
from zskip.binder.case_values import chosen
from zskip.binder.constants import constant
from zskip.binder.context import Binding
from zskip.binder.predicates.folded import folded
from zskip.binder.predicates.operands import compared, same
from zskip.binder.refusals import opaque
from zskip.expr import tree
from zskip.expr.literals import Refused
from zskip.expr.tree import Literal, Node, Opaque, Scalar
from zskip.expr.why import Why

__all__ = ["any_row", "comparison", "distinct", "row_of", "row_pairs"]


def comparison(op: str) -> Callable[[Binding, exp.Expr], Node]:
    """The rule of an operator."""
    return lambda binding, node: _compare(binding, op, node.this, node.expression, node)


def _compare(binding: Binding, op: str, left: exp.Expr, right: exp.Expr, whole: exp.Expr) -> Node:
    parts = [row_of(left), row_of(right)]
    try:
        if parts[0] is not None and parts[1] is not None:
            return _rows(binding, op, parts[0], parts[1], whole)
        return chosen(lambda a, b: compared(binding, op, a, b, whole), binding.value(left), binding.value(right))
    except Refused as refusal:
        if op != "=":
            return opaque(binding, whole, refusal.why)
        left, right = (left, right) if constant(left, binding.dialect) is None else (right, left)
        return folded(binding, left, [right], whole, refusal.why)


def distinct(binding: Binding, node: exp.Expr) -> Node:
    """``a IS [NOT] DISTINCT FROM b`` and Spark's ``a <=> b``."""
    found = chosen(lambda a, b: same(binding, a, b, node), binding.value(node.this), binding.value(node.expression))
    return found if isinstance(node, exp.NullSafeEQ) else tree.not_(found)


def _rows(binding: Binding, op: str, left: list[exp.Expr], right: list[exp.Expr], whole: exp.Expr) -> Node:
    """Row values: equal where all their parts are. What they give beside NULL is the dialect's own."""
    pairs = row_pairs(binding, [binding.scalar(each) for each in left], right)
    if op not in ("=", "<>"):
        return _ordered_rows(binding, op, pairs, whole)
    found = any_row(binding, [pairs], whole)
    return found if op == "=" else tree.not_(found)


def row_pairs(binding: Binding, left: list[Scalar], right: list[exp.Expr]) -> list[tuple[Scalar, Scalar]]:
    """The parts of two row values, side by side. Raises `Refused`."""
    if len(left) != len(right):
        raise Refused("row values of different lengths")
    pairs = list(zip(left, map(binding.scalar, right), strict=True))
    if any(t.is_string(a.type) != t.is_string(b.type) for a, b in pairs):
        raise Refused("a row value with a text beside another type: engines may compare both as texts")
    return pairs


def any_row(binding: Binding, rows: list[list[tuple[Scalar, Scalar]]], whole: exp.Expr) -> Node:
    """TRUE where the parts of any row are equal, side by side; elsewhere FALSE, or NULL."""
    legs = [tree.and_([_alike(binding, left, right, whole) for left, right in pairs]) for pairs in rows]
    # What engines say elsewhere, beside NULL, is their own.
    rest = Opaque("", (), Why("a row value beside NULL"), implies=tree.or_([]))
    return tree.choose(tree.or_(legs), tree.and_([]), rest)


def _alike(binding: Binding, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
    """TRUE where two parts of row values are equal, or both NULL; elsewhere FALSE, or NULL."""
    constants = [side.value.is_valid for side in (left, right) if isinstance(side, Literal)]
    if constants and all(constants):
        return compared(binding, "=", left, right, whole)
    return same(binding, left, right, whole)


def _ordered_rows(binding: Binding, op: str, pairs: list[tuple[Scalar, Scalar]], whole: exp.Expr) -> Node:
    """``(a, b) < (1, 2)`` is ``a < 1 OR a = 1 AND b < 2``; where a part is NULL, engines differ."""
    sides = dict.fromkeys(side for pair in pairs for side in pair)
    if any(isinstance(side, Literal) and not side.value.is_valid for side in sides):
        raise Refused("a row value that holds NULL, compared by something other than =")

    def ordered(test: Callable[[str, Scalar, Scalar], Node]) -> Node:
        *before, last = pairs
        found = test(op, *last)
        for left, right in reversed(before):
            found = tree.or_([test(op[0], left, right), tree.and_([test("=", left, right), found])])
        return found

    def part(op: str, left: Scalar, right: Scalar) -> Node:
        return compared(binding, op, left, right, whole)

    def part_or_null(op: str, left: Scalar, right: Scalar) -> Node:
        nulls = [tree.IsNull(side) for side in (left, right) if side in nullable]
        return tree.or_([part(op, left, right), *nulls])

    nullable = [side for side in sides if not isinstance(side, Literal)]
    left_open = opaque(binding, whole, "the order of row values beside NULL")
    beside_null = replace(left_open, implies=ordered(part_or_null))
    return tree.choose(tree.or_([tree.IsNull(side) for side in nullable]), beside_null, ordered(part))


def row_of(node: exp.Expr) -> list[exp.Expr] | None:
    """The parts of a row value; None where the expression is none."""
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("row", "struct"):
        return list(node.expressions)
    return None
