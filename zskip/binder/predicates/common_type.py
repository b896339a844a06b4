"""The common type to which a dialect casts several values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from zskip.binder.case_values import Choice, Value, samples
from zskip.core import types as t
from zskip.language.bound import Dialect
from zskip.language.functions.numbers import aligned
from zskip.language.functions.widths import is_number, is_wide
from zskip.language.functions.zones import zone_of
from zskip.language.literals import Refused, fit, has_fixed_offset
from zskip.language.tree import Call, Literal, Scalar
from zskip.language.why import Cause


def one_branch_type(values: Sequence[Value], dialect: Dialect) -> list[Value]:
    """The branches of a choice, in their common type. Raises `Refused` if the engine's cast may round."""
    scalars = samples(values)
    types = _distinct(each.type for each in scalars if each.type != pa.null())
    exact = all(t.is_integer(each) or t.is_decimal(each) for each in types) and _fits_38(types)
    if len(types) <= 1 or exact:
        return list(values)
    terms = _distinct(each.type for each in scalars if not isinstance(each, Literal))
    if len(terms) != 1 or any(isinstance(value, Choice) for value in values):
        raise Refused("a choice among values of several types", Cause.SEVERAL_TYPES)
    return list(aligned([value for value in values if not isinstance(value, Choice)], dialect))


def _distinct(types: Iterable[pa.DataType]) -> list[pa.DataType]:
    """The types without duplicates. They are compared, since not every extension type has a hash."""
    found: list[pa.DataType] = []
    for type in types:
        if type not in found:
            found.append(type)
    return found


def _fits_38(types: Iterable[pa.DataType]) -> bool:
    """Whether a decimal of 38 digits holds all values of some exact types, so that no engine rounds."""
    sizes = [(each.precision - each.scale, each.scale) if t.is_decimal(each) else (20, 0) for each in types]
    return max((whole for whole, _ in sizes), default=0) + max((scale for _, scale in sizes), default=0) <= 38


def one_type(left: Scalar, right: Scalar, dialect: Dialect) -> tuple[Scalar, Scalar]:
    """Two scalars, cast to the type in which the dialect compares them. Raises `Refused` if that is not known."""
    if left.type == right.type:
        return left, right
    if isinstance(left, Literal):
        fitted = fit(left.value, right.type, dialect.name, dialect.timezone)
        if fitted.exact and fitted.floor is not None:
            return Literal(fitted.floor), right
    if all(is_number(each.type) or is_wide(each.type) for each in (left, right)):
        target = _number_type(left.type, right.type, dialect)
        return tuple(
            each if each.type == target else Call("cast", (each,), target, ("raise",)) for each in (left, right)
        )  # type: ignore[return-value]
    if all(t.is_date(each.type) or t.is_timestamp(each.type) for each in (left, right)):
        zoned = any(zone_of(each, dialect) is not None for each in (left, right))
        target = pa.timestamp("us", "UTC" if zoned else None)
        return _as_timestamp(left, target, dialect), _as_timestamp(right, target, dialect)
    raise Refused(f"{left.type} compared with {right.type}")


def _number_type(left: pa.DataType, right: pa.DataType, dialect: Dialect) -> pa.DataType:
    types = (left, right)
    wide = any(is_wide(each) for each in types)
    if all(t.is_integer(each) for each in types) and not wide:
        return pa.int64()
    if any(t.is_floating(each) for each in types):
        if wide:
            raise Refused(f"{left} compared with {right}, which a double does not hold")
        with_decimal = dialect.name == "spark" and any(t.is_decimal(each) for each in types)
        return pa.float64() if pa.float64() in types or with_decimal else pa.float32()
    scale = max(each.scale if t.is_decimal(each) else 0 for each in types)
    whole = max(
        each.precision - each.scale if t.is_decimal(each) else {8: 3, 16: 5, 32: 10}.get(each.bit_width, 20)
        for each in types
    )
    if whole + scale > 38:
        raise Refused("decimals of more than 38 digits together, which the engine rounds", Cause.ENGINE_ROUNDS)
    return pa.decimal128(38 if wide or whole + scale > 18 else 18, scale)


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
