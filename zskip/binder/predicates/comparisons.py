"""``= <> < <= > >=`` and IS [NOT] DISTINCT FROM, over scalars and row values: ``a = 1``, ``(a, b) < (1, 2)``; and
case-folded equality, ``lower(s) = 'text'``, which ranges cannot decide, but sketches of trigrams can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from zskip.binder.case_values import distribute
from zskip.binder.constants import literal_value
from zskip.binder.context import Binding
from zskip.binder.predicates.operands import bind_comparison, not_distinct
from zskip.binder.refusals import opaque
from zskip.binder.source_text import without_parentheses
from zskip.core import types as t
from zskip.language import tree
from zskip.language.literals import Refused
from zskip.language.required_text import and_of_known, contains_conditions
from zskip.language.tree import Literal, Node, Opaque, Scalar
from zskip.language.why import Why


def comparison(op: str) -> Callable[[Binding, exp.Expr], Node]:
    """The rule for a comparison operator."""
    return lambda binding, node: _compare(binding, op, node.this, node.expression, node)


def _compare(binding: Binding, op: str, left: exp.Expr, right: exp.Expr, whole: exp.Expr) -> Node:
    parts = [row_of(left), row_of(right)]
    try:
        if parts[0] is not None and parts[1] is not None:
            return _rows(binding, op, parts[0], parts[1], whole)
        return distribute(
            lambda a, b: bind_comparison(binding, op, a, b, whole), binding.value(left), binding.value(right)
        )
    except Refused as refusal:
        if op != "=":
            return opaque(binding, whole, refusal.why)
        left, right = (left, right) if literal_value(left, binding) is None else (right, left)
        return case_folded_equality(binding, left, [right], whole, refusal.why)


def distinct(binding: Binding, node: exp.Expr) -> Node:
    """``a IS [NOT] DISTINCT FROM b`` and Spark's ``a <=> b``."""
    equal = distribute(
        lambda a, b: not_distinct(binding, a, b, node), binding.value(node.this), binding.value(node.expression)
    )
    return equal if isinstance(node, exp.NullSafeEQ) else tree.not_(equal)


def _rows(binding: Binding, op: str, left: list[exp.Expr], right: list[exp.Expr], whole: exp.Expr) -> Node:
    """A comparison of row values. With a NULL in one of them the outcome depends on the dialect, and is left open."""
    pairs = row_pairs(binding, [binding.scalar(each) for each in left], right)
    if op not in ("=", "<>"):
        return _ordered_rows(binding, op, pairs, whole)
    equal = any_row(binding, [pairs], whole)
    return equal if op == "=" else tree.not_(equal)


def row_pairs(binding: Binding, left: list[Scalar], right: list[exp.Expr]) -> list[tuple[Scalar, Scalar]]:
    """The pairs of corresponding parts of two row values. Raises `Refused`."""
    if len(left) != len(right):
        raise Refused("row values of different lengths")
    pairs = list(zip(left, map(binding.scalar, right), strict=True))
    if any(t.is_string(a.type) != t.is_string(b.type) for a, b in pairs):
        raise Refused("a row value with a string compared with another type: engines may compare both as strings")
    return pairs


def any_row(binding: Binding, rows: list[list[tuple[Scalar, Scalar]]], whole: exp.Expr) -> Node:
    """TRUE where all pairs of any row are equal; FALSE or NULL elsewhere."""
    legs = [tree.and_([_equal_parts(binding, left, right, whole) for left, right in pairs]) for pairs in rows]
    # With a NULL in a row value, some engines return FALSE and others NULL.
    rest = Opaque("", (), Why("a row value compared with NULL"), implies=tree.or_([]))
    return tree.choose(tree.or_(legs), tree.and_([]), rest)


def _equal_parts(binding: Binding, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
    """TRUE where two parts of row values are equal or both NULL; FALSE or NULL elsewhere."""
    constants = [side.value.is_valid for side in (left, right) if isinstance(side, Literal)]
    if constants and all(constants):
        return bind_comparison(binding, "=", left, right, whole)
    return not_distinct(binding, left, right, whole)


def _ordered_rows(binding: Binding, op: str, pairs: list[tuple[Scalar, Scalar]], whole: exp.Expr) -> Node:
    """``(a, b) < (1, 2)`` is ``a < 1 OR a = 1 AND b < 2``; if a part is NULL, engines differ."""
    sides = dict.fromkeys(side for pair in pairs for side in pair)
    if any(isinstance(side, Literal) and not side.value.is_valid for side in sides):
        raise Refused("a row value with NULL, compared by something other than =")

    def ordered(test: Callable[[str, Scalar, Scalar], Node]) -> Node:
        *leading, last = pairs
        node = test(op, *last)
        for left, right in reversed(leading):
            node = tree.or_([test(op[0], left, right), tree.and_([test("=", left, right), node])])
        return node

    def part(op: str, left: Scalar, right: Scalar) -> Node:
        return bind_comparison(binding, op, left, right, whole)

    def part_or_null(op: str, left: Scalar, right: Scalar) -> Node:
        nulls = [tree.IsNull(side) for side in (left, right) if side in nullable]
        return tree.or_([part(op, left, right), *nulls])

    nullable = [side for side in sides if not isinstance(side, Literal)]
    unproved = opaque(binding, whole, "the order of row values with NULL")
    with_null = replace(unproved, implies=ordered(part_or_null))
    return tree.choose(tree.or_([tree.IsNull(side) for side in nullable]), with_null, ordered(part))


def row_of(node: exp.Expr) -> list[exp.Expr] | None:
    """The parts of a row value; None if the expression is not one."""
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("row", "struct"):
        return list(node.expressions)
    return None


_MAX_TEXTS = 1_000


def case_folded_equality(
    binding: Binding, left: exp.Expr, right: Sequence[exp.Expr], whole: exp.Expr, why: Why
) -> Node:
    """``lower(s) = 'text'`` or ``lower(s) IN (…)`` as opaque, with the texts that ``s`` must contain in any case.

    Any other expression is opaque for the reason ``why``. Spark's ``upper`` maps some letters to two, such as ß to
    SS, so an upper-case text does not show what ``s`` contains.
    """
    unproved, call = opaque(binding, whole, why), without_parentheses(left)
    kinds = (exp.Lower, exp.Upper) if binding.dialect.name == "duckdb" else (exp.Lower,)
    if binding.dialect.name not in ("duckdb", "spark") or not isinstance(call, kinds) or len(right) > _MAX_TEXTS:
        return unproved
    try:
        subject, texts = binding.scalar(call.this), [binding.scalar(each) for each in right]
    except Refused:
        return unproved
    alternatives = []
    for text in texts:
        if not isinstance(text, Literal) or not t.is_string(subject.type):
            return unproved
        if text.value.is_valid:
            if not t.is_string(text.type):
                return unproved
            alternatives.append(and_of_known(contains_conditions(subject, [text.value.as_py()], any_case=True)))
    known = [each for each in alternatives if each is not None]
    return replace(unproved, implies=tree.or_(known)) if len(known) == len(alternatives) else unproved
