"""One bound term beside another: their comparison, and which types a dialect compares at all."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from zskip import types as t
from zskip.binder.context import Binding
from zskip.binder.nodes import span
from zskip.binder.predicates.common_type import one_type
from zskip.errors import IncomparableTypes
from zskip.expr import literals, tree
from zskip.expr.literals import Fit, Refused, fit
from zskip.expr.render import type_name
from zskip.expr.tree import Call, Literal, Node, Scalar
from zskip.expr.why import Cause
from zskip.functions import may_give

__all__ = ["are_comparable", "compared", "fitted", "must_compare", "rounds", "same"]

_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compared(binding: Binding, op: str, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
    """``left op right``. Raises `Refused` where the dialect's rule is unknown, `IncomparableTypes` where none is."""
    if isinstance(left, Literal) and not isinstance(right, Literal):
        return compared(binding, _MIRRORED[op], right, left, whole)
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Call) and side.function == "negate" and t.is_floating(side.type) and _may_be_nan(other):
            raise Refused("NaN beside a negated number: DuckDB moves the sign, which NaN does not have")
    if isinstance(right, Literal):
        if not right.value.is_valid or (isinstance(left, Literal) and not left.value.is_valid):
            return tree.unknown()
        must_compare(binding, left.type, right.type, whole, isinstance(right, Literal))
        return literals.compared(op, left, fitted(binding, left, right.value))
    must_compare(binding, left.type, right.type, whole, False)
    return tree.compare(op, *one_type(left, right, binding.dialect))


def _may_be_nan(constant: Scalar) -> bool:
    """Whether a term without columns may be NaN: a literal that is, and whatever is computed."""
    if isinstance(constant, Literal):
        return "nan" in str(constant.value).lower()
    return not any(tree.paths_of(constant))


def same(binding: Binding, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
    """``left IS NOT DISTINCT FROM right``: never NULL."""
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Literal) and not side.value.is_valid:
            return tree.IsNull(other)
    equal = tree.is_(compared(binding, "=", left, right, whole), True)
    if isinstance(left, Literal) or isinstance(right, Literal):
        return equal
    return tree.or_([equal, tree.and_([tree.IsNull(left), tree.IsNull(right)])])


def fitted(binding: Binding, term: Scalar, value: pa.Scalar) -> Fit:
    """A constant among the values of a term's type. Raises `Refused`."""
    if isinstance(term, Call) and t.is_string(value.type) and _kind(term.type) == "number":
        raise Refused("a text beside a number that was computed: the cast is left to the engine", Cause.ENGINE_CASTS)
    found = fit(value, term.type, binding.dialect.name, binding.dialect.timezone)
    if isinstance(term, Call) and t.is_decimal(term.type):
        # The result may be longer than the digits of its type: a constant near their end is no bound.
        least, digits = found.floor, max(term.type.precision, 18)
        if least is None or abs(least.as_py()) >= Decimal(10) ** (digits - 1 - term.type.scale):
            raise Refused(f"a constant near the end of {digits} digits beside a decimal that was computed")
    if found.exact and found.floor is not None and not may_give(term, found.floor):
        return replace(found, exact=False)
    return found


def must_compare(binding: Binding, left: pa.DataType, right: pa.DataType, whole: exp.Expr, literal: bool) -> None:
    """Raises `IncomparableTypes`, pointing at the comparison."""
    if not are_comparable(left, right, literal):
        one, other = (type_name(type, binding.dialect.name) for type in (left, right))
        what = f"{binding.dialect.name} does not compare {one} with {other}."
        raise IncomparableTypes(what, binding.source.original, span(binding.source, whole))


def rounds(*scalars: Scalar) -> bool:
    """Whether floats stand beside other numbers, so that a cast to one type may round."""
    types = {each.type for each in scalars if _kind(each.type) == "number"}
    return len(types) > 1 and any(t.is_floating(each) for each in types)


def are_comparable(left: pa.DataType, right: pa.DataType, literal: bool) -> bool:
    """Whether a dialect compares two types at all; a text's ``literal`` beside any."""
    kinds = {_kind(left), _kind(right)}
    return ("string" in kinds and literal) or kinds not in _NEVER_COMPARED


def _kind(type: pa.DataType) -> str:
    entry = t.of(type)
    return entry.kind or entry.name


_NEVER_COMPARED = ({"moment", "number"}, {"moment", "boolean"}, {"moment", "time"}, {"time", "number"})
