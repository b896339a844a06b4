"""BETWEEN [SYMMETRIC], and IN over lists."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from zskip.binder.context import Binding, distribute, opaque
from zskip.binder.predicates.comparisons import (
    any_row,
    bind_comparison,
    case_folded_equality,
    fitted,
    may_round,
    require_comparable,
    row_of,
    row_pairs,
)
from zskip.binder.source_text import text_range
from zskip.core import types as t
from zskip.language import tree
from zskip.language.literals import Refused, constant, unified
from zskip.language.tree import Cause, Literal, Node, Reference, Scalar

_MAX_TERMS = 1_000
"""Expressions in a list that are not constants: each of them becomes a comparison."""


def between(binding: Binding, node: exp.Expr) -> Node:
    """``x BETWEEN low AND high``."""

    def bound(term: Scalar, low: Scalar, high: Scalar) -> Node:
        if isinstance(low, Literal) and isinstance(high, Literal) and binding.dialect.name != "spark":
            low, high = (Literal(value) for value in unified([low.value, high.value]))
        elif (
            binding.dialect.name != "spark" and len({term.type, low.type, high.type}) > 1 and may_round(term, low, high)
        ):
            raise Refused(
                "BETWEEN over numbers of several types: the dialect casts them all to one", Cause.SEVERAL_TYPES
            )
        inside = tree.and_(
            [bind_comparison(binding, ">=", term, low, node), bind_comparison(binding, "<=", term, high, node)]
        )
        if not node.args.get("symmetric"):
            return inside
        swapped = tree.and_(
            [bind_comparison(binding, ">=", term, high, node), bind_comparison(binding, "<=", term, low, node)]
        )
        return tree.or_([inside, swapped])

    return distribute(
        bound, binding.value(node.this), binding.value(node.args["low"]), binding.value(node.args["high"])
    )


def in_(binding: Binding, node: exp.Expr) -> Node:
    """``x IN (…)`` and ``(x, y) IN (…)``."""
    if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
        return opaque(binding, node, "IN over something other than a list")
    row = row_of(node.this)
    if row is not None:
        rows = [row_of(each) for each in node.expressions]
        if None in rows:
            raise Refused("row values among something other than row values")
        left = [binding.scalar(each) for each in row]
        return any_row(binding, [row_pairs(binding, left, each) for each in rows if each is not None], node)
    try:
        subject = binding.value(node.this)
        values = _given_list(binding, node)
        if values is not None:
            if not len(values):
                return tree.or_([])  # FALSE, even for NULL
            if binding.dialect.name == "duckdb" and isinstance(values, list):
                # A list contains a value or does not, whether NULL is in it or not.
                values = [each for each in values if each is not None]
            return distribute(lambda term: _in_given(binding, term, values, node), subject)
        if sum(not isinstance(each, exp.Literal | exp.Cast | exp.Neg) for each in node.expressions) > _MAX_TERMS:
            raise Refused(f"IN over more than {_MAX_TERMS:,} expressions that are not constants")
        scalars = [binding.scalar(each) for each in node.expressions]
        if any(isinstance(each, Literal) and not each.value.is_valid for each in scalars) and _may_be_list_value(
            binding, node
        ):
            raise Refused("IN over a list value that contains NULL")
        return distribute(lambda term: _in_scalars(binding, term, scalars, node), subject)
    except Refused as refusal:
        return case_folded_equality(binding, node.this, node.expressions, node, refusal.why)


def _given_list(binding: Binding, node: exp.Expr) -> pa.Array | list[Any] | None:
    """The list that is the only operand of an IN: a parameter or a long written one; None for other operands."""
    only = node.expressions[0] if len(node.expressions) == 1 else None
    value = binding.source.values.get(only.meta.get("start", -1)) if isinstance(only, exp.Literal) else None
    return value.value if value is not None and isinstance(value.value, pa.Array | list) else None


def _in_given(binding: Binding, term: Scalar, values: pa.Array | list[Any], node: exp.Expr) -> Node:
    if isinstance(values, list) or isinstance(term, Literal) or not len(values):
        scalars: list[Scalar] = [Literal(each if isinstance(each, pa.Scalar) else constant(each)) for each in values]
        return _in_scalars(binding, term, scalars, node)
    require_comparable(binding, term.type, values.type, node, True)
    if term.type == values.type or (t.is_integer(term.type) and t.is_integer(values.type)):
        return among(term, values)
    if t.is_decimal(values.type) and isinstance(term, Reference) and t.is_integer(term.type) | t.is_decimal(term.type):
        fitted(binding, term, values[0])  # raises `Refused` for one value if it does for all
        exact = pc.equal(pc.round(values, getattr(term.type, "scale", 0), "towards_zero"), values)
        with suppress(pa.ArrowInvalid):  # some do not fit the term's type: fit them one by one below
            return tree.in_(term, values.filter(exact).cast(term.type))
    return _in_list(binding, term, list(values), node)


def among(term: Scalar, values: pa.Array) -> Node:
    """``term IN values`` of its type, or for an integer term int64 values; those that it cannot have are dropped."""
    if term.type == values.type:
        return tree.in_(term, values)
    low, high = t.limits(term.type)
    inside = pc.and_(pc.greater_equal(values, max(low, -(2**63))), pc.less_equal(values, min(high, 2**63 - 1)))
    return tree.in_(term, values.filter(inside).cast(term.type))


def _may_be_list_value(binding: Binding, node: exp.Expr) -> bool:
    """Whether the list may be a list value, in square brackets: the parser reads ``x IN [1, 2]`` as ``x IN (1, 2)``."""
    start, _ = text_range(node)
    return "[" in binding.source.text[start:] or (start == 0 and "[" in binding.source.text)


def _in_scalars(binding: Binding, term: Scalar, scalars: list[Scalar], node: exp.Expr) -> Node:
    if all(isinstance(each, Literal) for each in scalars) and not isinstance(term, Literal):
        return _in_list(binding, term, [each.value for each in scalars if isinstance(each, Literal)], node)
    if may_round(term, *scalars):
        raise Refused("IN over numbers of several types: the dialect casts them all to one", Cause.SEVERAL_TYPES)
    return tree.or_([bind_comparison(binding, "=", term, each, node) for each in scalars])


def _in_list(binding: Binding, term: Scalar, values: list[pa.Scalar], node: exp.Expr) -> Node:
    floors: list[pa.Scalar] = []
    or_null = False
    for value in unified(values):
        if not value.is_valid:
            or_null = True
            continue
        require_comparable(binding, term.type, value.type, node, True)
        fit = fitted(binding, term, value)
        if fit.exact and fit.floor is not None:
            floors.append(fit.floor)
    return tree.in_(term, pa.array(floors, term.type), or_null)
