"""Comparisons of scalars and of row values: ``= <> < <= > >=``, IS [NOT] DISTINCT FROM, BETWEEN and IN over lists.

Two scalars are compared in the type to which the dialect casts them. A comparison with a choice of values becomes a
choice of comparisons. Of case-folded equality, ``lower(s) = 'text'``, ranges decide nothing, but sketches of trigrams
can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from zskip.binder.constants import literal_value
from zskip.binder.context import Binding, Choice, Value, opaque
from zskip.binder.source_text import sign_for_word, span, text_range, without_parentheses
from zskip.core import types as t
from zskip.errors import IncomparableTypes, SqlSyntaxError
from zskip.language import literals, tree
from zskip.language.bound import Dialect
from zskip.language.clocks import has_fixed_offset
from zskip.language.functions import widths
from zskip.language.functions.dates import zone_of
from zskip.language.functions.widths import approximate, is_exact, is_number, is_wide
from zskip.language.literals import Fit, Refused, constant, fit, unified
from zskip.language.patterns import and_of_known, contains_conditions
from zskip.language.render import type_name
from zskip.language.tree import And, Call, Cause, Compare, Literal, Node, Opaque, Reference, Scalar, Why


def _one_type(left: Scalar, right: Scalar, dialect: Dialect) -> tuple[Scalar, Scalar]:
    """Two scalars, cast to the type in which the dialect compares them. Raises `Refused` if that is not known."""
    if left.type == right.type:
        return left, right
    if isinstance(left, Literal):
        fitted = fit(left.value, right.type, dialect.name, dialect.timezone)
        if fitted.exact and fitted.floor is not None:
            return Literal(fitted.floor), right
    if all(is_number(each.type) or is_wide(each) for each in (left, right)):
        target = _number_type(left, right, dialect)
        if target is None:
            return approximate(left), approximate(right)
        return tuple(
            each if each.type == target else Call("cast", (each,), target, ("raise",)) for each in (left, right)
        )  # type: ignore[return-value]
    if all(t.is_date(each.type) or t.is_timestamp(each.type) for each in (left, right)):
        zoned = any(zone_of(each, dialect) is not None for each in (left, right))
        target = pa.timestamp("us", "UTC" if zoned else None)
        return _as_timestamp(left, target, dialect), _as_timestamp(right, target, dialect)
    raise Refused(f"{left.type} compared with {right.type}")


def _number_type(left: Scalar, right: Scalar, dialect: Dialect) -> pa.DataType | None:
    """The type in which numbers are compared; None for exact ones of more than 18 digits."""
    types = (left.type, right.type)
    wide = is_wide(left) or is_wide(right)
    if wide and not all(is_wide(each) or is_exact(each.type) for each in (left, right)):
        raise Refused(f"{left.type} compared with {right.type}, which a double does not hold")
    if all(t.is_integer(each) for each in types) and not wide:
        return pa.int64()
    if any(t.is_floating(each) for each in types) and not wide:
        widths.require_one_float_type(types, dialect)
        with_decimal = dialect.name == "spark" and any(t.is_decimal(each) for each in types)
        return pa.float64() if pa.float64() in types or with_decimal else pa.float32()
    if wide and any(t.is_floating(each) for each in types):
        return None
    whole, scale = (max(map(digits, (left, right))) for digits in (widths.digits, widths.scale))
    if whole + scale > 38:
        raise Refused("decimals of more than 38 digits together, which the engine rounds", Cause.ENGINE_ROUNDS)
    return None if wide or whole + scale > 18 else pa.decimal128(18, scale)


def _as_timestamp(scalar: Scalar, target: pa.DataType, dialect: Dialect) -> Scalar:
    if scalar.type == target:
        return scalar
    zone = zone_of(scalar, dialect)
    if t.is_timestamp(scalar.type) and scalar.type.unit == "ns":
        raise Refused("nanoseconds compared with microseconds")
    if (zone is None) != (target.tz is None):
        if not has_fixed_offset(dialect.timezone):
            raise Refused(
                f"a type with a zone compared with one without, where clocks change in {dialect.timezone}",
                Cause.CLOCKS_CHANGE,
            )
        return Call("timestamp", (scalar,), target, (dialect.timezone,))
    return Call("timestamp", (scalar,), target, (None,))


def bind_comparison(binding: Binding, op: str, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
    """``left op right``. Raises `Refused` if the dialect's rule is not known, `IncomparableTypes` if it has none."""
    if isinstance(left, Literal) and not isinstance(right, Literal):
        return bind_comparison(binding, tree.MIRRORED[op], right, left, whole)
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Call) and side.function == "negate" and t.is_floating(side.type) and _may_be_nan(other):
            raise Refused("NaN compared with a negated number: DuckDB moves the sign to NaN, which has none")
    if isinstance(right, Literal):
        if not right.value.is_valid or (isinstance(left, Literal) and not left.value.is_valid):
            return tree.unknown()
        _require_comparable(binding, left.type, right.type, whole, True)
        return literals.compare_fitted(op, left, _fitted(binding, left, right.value))
    _require_comparable(binding, left.type, right.type, whole, False)
    return tree.compare(op, *_one_type(left, right, binding.dialect))


def _may_be_nan(constant: Scalar) -> bool:
    """Whether a literal is NaN, or an expression without columns may be."""
    if isinstance(constant, Literal):
        return "nan" in str(constant.value).lower()
    return not any(tree.paths_of(constant))


def _not_distinct(binding: Binding, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
    """``left IS NOT DISTINCT FROM right``, which is never NULL."""
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Literal) and not side.value.is_valid:
            return tree.IsNull(other)
    equal = tree.Is(bind_comparison(binding, "=", left, right, whole), True)
    if isinstance(left, Literal) or isinstance(right, Literal):
        return equal
    return tree.or_([equal, tree.and_([tree.IsNull(left), tree.IsNull(right)])])


def _fitted(binding: Binding, term: Scalar, value: pa.Scalar) -> Fit:
    """A constant converted to a term's type. Raises `Refused`."""
    if isinstance(term, Call) and t.is_string(value.type) and _kind(term.type) == "number":
        raise Refused("a string compared with a computed number: the cast is left to the engine", Cause.ENGINE_CASTS)
    nearest = fit(value, term.type, binding.dialect.name, binding.dialect.timezone)
    if isinstance(term, Call) and t.is_decimal(term.type):
        # The result may have more digits than its type, so a constant near the type's limits proves nothing.
        floor, digits = nearest.floor, max(term.type.precision, 18)
        if floor is None or floor.as_py().copy_abs() >= t.decimal_of(1, term.type.scale + 1 - digits):
            raise Refused(f"a constant of about {digits} digits compared with a computed decimal")
    return nearest


def _require_comparable(
    binding: Binding, left: pa.DataType, right: pa.DataType, whole: exp.Expr, literal: bool
) -> None:
    """Raises `IncomparableTypes`, pointing at the comparison ``whole``. ``literal``: the right side is one."""
    if not _are_comparable(left, right, literal):
        one, other = (type_name(type, binding.dialect.name) for type in (left, right))
        unquoted = literal and (_kind(left), _kind(right)) == ("moment", "number")
        hint = " Dates and times need quotes: '2025-03-01'." if unquoted else ""
        message = f"{binding.dialect.name} does not compare {one} with {other}.{hint}"
        raise IncomparableTypes(message, binding.source.text, span(binding.source, whole))


def _may_round(*scalars: Scalar) -> bool:
    """Whether a cast of the scalars to a common type may round: some are floats, and others are other numbers."""
    types = {each.type for each in scalars if _kind(each.type) == "number"}
    return len(types) > 1 and any(t.is_floating(each) for each in types)


def _are_comparable(left: pa.DataType, right: pa.DataType, literal: bool) -> bool:
    """Whether dialects compare two types; with a ``literal``, a string is comparable to any type."""
    kinds = {_kind(left), _kind(right)}
    return ("string" in kinds and literal) or kinds not in _NEVER_COMPARED


def _kind(type: pa.DataType) -> str:
    entry = t.of(type)
    return entry.kind or entry.name


_NEVER_COMPARED = ({"moment", "number"}, {"moment", "boolean"}, {"moment", "time"}, {"time", "number"})


_MAX_COMPARISONS = 256
"""Comparisons that one may become; past that it is opaque."""


def distribute(build: Callable[..., Node], *values: Value) -> Node:
    """The predicate that ``build`` makes of scalars, distributed over the branches of choices among ``values``.

    Raises `Refused` past 256 combinations of branches.
    """
    combinations = math.prod(map(_scalar_count, values))
    if combinations > _MAX_COMPARISONS:
        raise Refused(f"a choice of {combinations} ways")
    return _distribute(build, values)


def _distribute(build: Callable[..., Node], values: tuple[Value, ...]) -> Node:
    for index, value in enumerate(values):
        if isinstance(value, Choice):
            then, otherwise = (
                _distribute(build, (*values[:index], each, *values[index + 1 :]))
                for each in (value.then, value.otherwise)
            )
            return tree.Choose(value.condition, then, otherwise)
    return build(*values)


def _scalar_count(value: Value) -> int:
    return _scalar_count(value.then) + _scalar_count(value.otherwise) if isinstance(value, Choice) else 1


def comparison(op: str) -> Callable[[Binding, exp.Expr], Node]:
    """The rule for a comparison operator."""
    return lambda binding, node: _compare(binding, op, node.this, node.expression, node)


_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def _are_chained(left: exp.Expr, right: exp.Expr) -> bool:
    """Whether a side of a comparison is another one without parentheses: DuckDB takes such beside ANY and ALL alone."""
    inner = [each for each in (left, right) if isinstance(each, _COMPARISONS)]
    sides = [left, right, *(side for each in inner for side in (each.this, each.expression))]
    return bool(inner) and not any(isinstance(side, exp.Any) or side.name.upper() == "ALL" for side in sides)


def _compare(binding: Binding, op: str, left: exp.Expr, right: exp.Expr, whole: exp.Expr) -> Node:
    if binding.dialect.name == "duckdb" and _are_chained(left, right):
        chained = "Comparisons are not chained: join them by AND or OR, as in 1 < x AND x < 5."
        place = span(binding.source, whole)
        message, place = sign_for_word(binding.source.text, place) or (chained, place)
        raise SqlSyntaxError(message, binding.source.text, place)
    parts = [_row_of(left), _row_of(right)]
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
        return _case_folded_equality(binding, left, [right], whole, refusal.why)


def distinct(binding: Binding, node: exp.Expr) -> Node:
    """``a IS [NOT] DISTINCT FROM b`` and Spark's ``a <=> b``."""
    equal = distribute(
        lambda a, b: _not_distinct(binding, a, b, node), binding.value(node.this), binding.value(node.expression)
    )
    return equal if isinstance(node, exp.NullSafeEQ) else tree.not_(equal)


def _rows(binding: Binding, op: str, left: list[exp.Expr], right: list[exp.Expr], whole: exp.Expr) -> Node:
    """A comparison of row values. With a NULL in one of them the outcome depends on the dialect, and is left open."""
    pairs = _row_pairs(binding, [binding.scalar(each) for each in left], right)
    if op not in ("=", "<>"):
        return _ordered_rows(binding, op, pairs, whole)
    equal = _any_row(binding, [pairs], whole)
    return equal if op == "=" else tree.not_(equal)


def _row_pairs(binding: Binding, left: list[Scalar], right: list[exp.Expr]) -> list[tuple[Scalar, Scalar]]:
    """The pairs of corresponding parts of two row values. Raises `Refused`."""
    if len(left) != len(right):
        raise Refused("row values of different lengths")
    pairs = list(zip(left, map(binding.scalar, right), strict=True))
    if any(t.is_string(a.type) != t.is_string(b.type) for a, b in pairs):
        raise Refused("a row value with a string compared with another type: engines may compare both as strings")
    return pairs


_MOST_ROWS = 250
"""Rows of constants that are proved one by one."""


def _any_row(binding: Binding, rows: list[list[tuple[Scalar, Scalar]]], whole: exp.Expr) -> Node:
    """TRUE where all pairs of any row are equal; FALSE or NULL elsewhere."""
    legs = [tree.and_([_equal_parts(binding, left, right, whole) for left, right in pairs]) for pairs in rows]
    equal = tree.or_(legs) if len(rows) <= _MOST_ROWS else _many_rows(legs)
    # With a NULL in a row value, some engines return FALSE and others NULL.
    rest = Opaque("", (), Why("a row value compared with NULL"), implies=tree.or_([]))
    return tree.Choose(equal, tree.and_([]), rest)


def _many_rows(legs: list[Node]) -> Node:
    """Many rows of constants: opaque, with a list for each column, of which a match has a value in each.

    (a = 1 AND b = 9) OR (a = 2 AND b = 7)      implies      a IN (1, 2) AND b IN (7, 9)
    """
    values: dict[Scalar, list[pa.Scalar]] = {}
    for leg in legs:
        for each in leg.parts if isinstance(leg, And) else ():
            if isinstance(each, Compare) and each.op == "=" and isinstance(each.right, Literal):
                values.setdefault(each.left, []).append(each.right.value)
    lists = [tree.in_(term, pa.array(found, term.type)) for term, found in values.items() if len(found) == len(legs)]
    return Opaque("", (), Why(f"more than {_MOST_ROWS} rows of constants"), implies=tree.and_(lists))


def _equal_parts(binding: Binding, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
    """TRUE where two parts of row values are equal or both NULL; FALSE or NULL elsewhere."""
    constants = [side.value.is_valid for side in (left, right) if isinstance(side, Literal)]
    if constants and all(constants):
        return bind_comparison(binding, "=", left, right, whole)
    return _not_distinct(binding, left, right, whole)


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
    return tree.Choose(tree.or_([tree.IsNull(side) for side in nullable]), with_null, ordered(part))


def _row_of(node: exp.Expr) -> list[exp.Expr] | None:
    """The parts of a row value; None if the expression is not one."""
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("row", "struct"):
        return list(node.expressions)
    return None


_MAX_TEXTS = 1_000


def _case_folded_equality(
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


# BETWEEN, and IN over lists.

_MAX_TERMS = 1_000
"""Expressions in a list that are not constants: each of them becomes a comparison."""


def between(binding: Binding, node: exp.Expr) -> Node:
    """``x BETWEEN low AND high``."""

    def bound(term: Scalar, low: Scalar, high: Scalar) -> Node:
        if isinstance(low, Literal) and isinstance(high, Literal) and binding.dialect.name != "spark":
            low, high = (Literal(value) for value in unified([low.value, high.value], term.type))
        elif (
            binding.dialect.name != "spark"
            and len({term.type, low.type, high.type}) > 1
            and _may_round(term, low, high)
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
    row = _row_of(node.this)
    if row is not None:
        rows = [_row_of(each) for each in node.expressions]
        if None in rows:
            raise Refused("row values among something other than row values")
        left = [binding.scalar(each) for each in row]
        return _any_row(binding, [_row_pairs(binding, left, each) for each in rows if each is not None], node)
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
        return _case_folded_equality(binding, node.this, node.expressions, node, refusal.why)


def _given_list(binding: Binding, node: exp.Expr) -> pa.Array | list[Any] | None:
    """The list that is the only operand of an IN: a parameter or a long written one; None for other operands."""
    only = node.expressions[0] if len(node.expressions) == 1 else None
    value = binding.source.values.get(only.meta.get("start", -1)) if isinstance(only, exp.Literal) else None
    return value.value if value is not None and isinstance(value.value, pa.Array | list) else None


def _in_given(binding: Binding, term: Scalar, values: pa.Array | list[Any], node: exp.Expr) -> Node:
    if isinstance(values, list) or isinstance(term, Literal) or not len(values):
        scalars: list[Scalar] = [Literal(each if isinstance(each, pa.Scalar) else constant(each)) for each in values]
        return _in_scalars(binding, term, scalars, node)
    _require_comparable(binding, term.type, values.type, node, True)
    if term.type == values.type or (t.is_integer(term.type) and t.is_integer(values.type)):
        return among(term, values)
    if t.is_decimal(values.type) and isinstance(term, Reference) and t.is_integer(term.type) | t.is_decimal(term.type):
        _fitted(binding, term, values[0])  # raises `Refused` for one value if it does for all
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
    if _may_round(term, *scalars):
        raise Refused("IN over numbers of several types: the dialect casts them all to one", Cause.SEVERAL_TYPES)
    return tree.or_([bind_comparison(binding, "=", term, each, node) for each in scalars])


def _in_list(binding: Binding, term: Scalar, values: list[pa.Scalar], node: exp.Expr) -> Node:
    floors: list[pa.Scalar] = []
    or_null = False
    for value in unified(values, term.type):
        if not value.is_valid:
            or_null = True
            continue
        _require_comparable(binding, term.type, value.type, node, True)
        fit = _fitted(binding, term, value)
        if fit.exact and fit.floor is not None:
            floors.append(fit.floor)
    return tree.in_(term, pa.array(floors, term.type), or_null)
