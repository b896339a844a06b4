"""Comparisons of two bound scalars, and the types that a dialect compares."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from zskip.binder.context import Binding
from zskip.binder.predicates.common_type import one_type
from zskip.binder.source_text import span
from zskip.core import types as t
from zskip.errors import IncomparableTypes
from zskip.language import literals, tree
from zskip.language.functions import in_image
from zskip.language.literals import Fit, Refused, fit
from zskip.language.render import type_name
from zskip.language.tree import Call, Literal, Node, Scalar
from zskip.language.why import Cause

_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def bind_comparison(binding: Binding, op: str, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
    """``left op right``. Raises `Refused` if the dialect's rule is not known, `IncomparableTypes` if it has none."""
    if isinstance(left, Literal) and not isinstance(right, Literal):
        return bind_comparison(binding, _MIRRORED[op], right, left, whole)
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Call) and side.function == "negate" and t.is_floating(side.type) and _may_be_nan(other):
            raise Refused("NaN compared with a negated number: DuckDB moves the sign to NaN, which has none")
    if isinstance(right, Literal):
        if not right.value.is_valid or (isinstance(left, Literal) and not left.value.is_valid):
            return tree.unknown()
        require_comparable(binding, left.type, right.type, whole, True)
        return literals.compare_fitted(op, left, fitted(binding, left, right.value))
    require_comparable(binding, left.type, right.type, whole, False)
    return tree.compare(op, *one_type(left, right, binding.dialect))


def _may_be_nan(constant: Scalar) -> bool:
    """Whether a literal is NaN, or an expression without columns may be."""
    if isinstance(constant, Literal):
        return "nan" in str(constant.value).lower()
    return not any(tree.paths_of(constant))


def not_distinct(binding: Binding, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
    """``left IS NOT DISTINCT FROM right``, which is never NULL."""
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Literal) and not side.value.is_valid:
            return tree.IsNull(other)
    equal = tree.is_(bind_comparison(binding, "=", left, right, whole), True)
    if isinstance(left, Literal) or isinstance(right, Literal):
        return equal
    return tree.or_([equal, tree.and_([tree.IsNull(left), tree.IsNull(right)])])


def fitted(binding: Binding, term: Scalar, value: pa.Scalar) -> Fit:
    """A constant converted to a term's type; not exact if the term cannot have this value. Raises `Refused`."""
    if isinstance(term, Call) and t.is_string(value.type) and _kind(term.type) == "number":
        raise Refused("a string compared with a computed number: the cast is left to the engine", Cause.ENGINE_CASTS)
    nearest = fit(value, term.type, binding.dialect.name, binding.dialect.timezone)
    if isinstance(term, Call) and t.is_decimal(term.type):
        # The result may have more digits than its type, so a constant near the type's limits proves nothing.
        floor, digits = nearest.floor, max(term.type.precision, 18)
        if floor is None or floor.as_py().copy_abs() >= t.decimal_of(1, term.type.scale + 1 - digits):
            raise Refused(f"a constant of about {digits} digits compared with a computed decimal")
    if nearest.exact and nearest.floor is not None and not in_image(term, nearest.floor):
        return replace(nearest, exact=False)
    return nearest


def require_comparable(binding: Binding, left: pa.DataType, right: pa.DataType, whole: exp.Expr, literal: bool) -> None:
    """Raises `IncomparableTypes`, pointing at the comparison ``whole``. ``literal``: the right side is one."""
    if not are_comparable(left, right, literal):
        one, other = (type_name(type, binding.dialect.name) for type in (left, right))
        message = f"{binding.dialect.name} does not compare {one} with {other}."
        raise IncomparableTypes(message, binding.source.text, span(binding.source, whole))


def may_round(*scalars: Scalar) -> bool:
    """Whether a cast of the scalars to a common type may round: some are floats, and others are other numbers."""
    types = {each.type for each in scalars if _kind(each.type) == "number"}
    return len(types) > 1 and any(t.is_floating(each) for each in types)


def are_comparable(left: pa.DataType, right: pa.DataType, literal: bool) -> bool:
    """Whether dialects compare two types; with a ``literal``, a string is comparable to any type."""
    kinds = {_kind(left), _kind(right)}
    return ("string" in kinds and literal) or kinds not in _NEVER_COMPARED


def _kind(type: pa.DataType) -> str:
    entry = t.of(type)
    return entry.kind or entry.name


_NEVER_COMPARED = ({"moment", "number"}, {"moment", "boolean"}, {"moment", "time"}, {"time", "number"})
