"""`Span`: the values that a term may have in each unit, in a form that numpy compares.

    integers, dates, times, timestamps, bools, decimals up to 18 digits   int64, in the type's own unit
    unsigned 64-bit integers                                              int64, with the sign bit flipped
    floats                                                                float64; NaN apart
    strings, binary, UUIDs                                                Arrow binary
    longer decimals                                                       Arrow binary, big-endian, sign bit flipped

An unknown bound is the least or the greatest value of its type, so that no rule needs a special case for it. Binary
alone has no greatest value: its unknown upper bound is an Arrow null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.stats import Ranges
from zskip.stats.keys import sortable_bytes, sortable_numbers

Bools: TypeAlias = npt.NDArray[np.bool_]
"""One flag per unit."""

Keys: TypeAlias = Any
"""A numpy array of int64 or float64, or an Arrow array of binary."""

_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True)
class Span:
    """Every value of the term that is neither NULL nor NaN lies in [lower, upper], in each unit.

    ``value``, ``null``, ``nan``: whether the term may have such a value, NULL or NaN · ``fail``: whether evaluating it
    may raise an error.
    """

    type: pa.DataType
    lower: Keys
    upper: Keys
    value: Bools
    null: Bools
    nan: Bools
    fail: Bools

    def __len__(self) -> int:
        return len(self.value)

    @staticmethod
    def anything(type: pa.DataType, units: int, fail: bool = True) -> Span:
        """The span of a term about which nothing is known. ``fail``: whether evaluating it may raise an error."""
        yes = np.ones(units, bool)
        lower, upper = _unknown(type, units)
        return Span(type, lower, upper, yes, yes, np.full(units, t.is_floating(type)), np.full(units, fail))

    @staticmethod
    def constant(value: pa.Scalar, units: int) -> Span:
        """The span of a constant."""
        no = np.zeros(units, bool)
        if not value.is_valid or key_family(value.type) is None:
            lower, upper = _unknown(value.type, units)
            return Span(value.type, lower, upper, no, ~no, no, no)
        key = keys(pa.array([value.as_py()], value.type))
        if isinstance(key, np.ndarray):
            if key.dtype == np.float64 and np.isnan(key[0]):
                return Span(value.type, *_unknown(value.type, units), no, no, ~no, no)
            bound: Keys = np.broadcast_to(key, units)
        else:
            bound = pa.array([key[0].as_py()] * units, pa.binary())
        return Span(value.type, bound, bound, ~no, no, no, no)


@dataclass(frozen=True, slots=True)
class Periodic:
    """The bounds of a function that rises within a period and begins anew with the next one, such as a month's number.

    ``halves`` returns two spans, of which each value of a unit lies in one: in a unit that crosses the border of one
    period, those of its values before the border and after it.

        November to February:   month 11 to 12, and 1 to 2
    """

    halves: Callable[[list[Span], Any], tuple[Span, Span]]

    def __call__(self, spans: list[Span], call: Any) -> Span:
        first, second = self.halves(spans, call)
        lower, upper = np.minimum(first.lower, second.lower), np.maximum(first.upper, second.upper)
        return replace(first, lower=lower, upper=upper)


def halves_of_period(
    type: pa.DataType,
    crossed: Keys,
    low: Keys,
    high: Keys,
    least: Any,
    most: Any,
    flags: tuple[Bools, Bools, Bools, Bools],
) -> tuple[Span, Span]:
    """The halves of a function that rises from ``least`` to ``most`` in each period.

    ``crossed``: the borders of periods in each unit · ``low``, ``high``: the function's values at its ends ·
    ``flags``: value, null, nan and fail of the result
    """
    begins, ends = np.where(crossed <= 1, low, least), np.where(crossed <= 1, high, most)
    return (
        Span(type, begins, np.where(crossed == 0, high, most), *flags),
        Span(type, np.where(crossed == 0, low, least), ends, *flags),
    )


def key_family(type: pa.DataType) -> t.Form | None:
    """ "integer", "float" or "bytes": how the values of a type are compared; None for a type without order.

    >>> key_family(pa.decimal128(20, 2)), key_family(pa.date32())
    ('bytes', 'integer')
    """
    form = t.of(type).form
    if form == "decimal":
        return "integer" if type.precision <= 18 else "bytes"
    return form


def key_limits(type: pa.DataType) -> tuple[int, int]:
    """The least and the greatest key of a type of the family "integer". Raises `TypeError` for another type."""
    return (_INT64.min, _INT64.max) if type == pa.uint64() else t.limits(type)


def keys(values: pa.Array) -> Keys:
    """Arrow values as keys that compare as the values do. A null becomes an arbitrary key, or a null in binary.

    Raises `TypeError` for a type without order.
    """
    type = values.type
    match key_family(type):
        case "float":
            return values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        case "bytes":
            return sortable_bytes(values)
        case "integer":
            numbers = sortable_numbers(values)
            return numbers.view(np.int64) ^ _INT64.min if type == pa.uint64() else numbers.astype(np.int64, copy=False)
    raise TypeError(f"{type} has no order")


def values_of(key_values: Keys, type: pa.DataType) -> pa.Array:
    """The Arrow values of a type that have these keys: the inverse of `keys`.

    >>> values_of(keys(pa.array([3, 250], pa.uint8())), pa.uint8()).to_pylist()
    [3, 250]
    """
    if t.is_decimal(type):
        return _decimals(key_values, type)
    match key_family(type):
        case "float":
            return pa.array(key_values.astype(type.to_pandas_dtype()), type)
        case "bytes":
            return key_values.cast(type)
    if t.is_boolean(type):
        return pa.array(key_values.astype(bool))
    if type == pa.uint64():
        key_values = key_values ^ _INT64.min
    raw = pa.py_buffer(np.ascontiguousarray(key_values.astype(f"<i{type.bit_width // 8}")))
    return pa.Array.from_buffers(type, len(key_values), [None, raw])


def _decimals(key_values: Keys, type: pa.DataType) -> pa.Array:
    width = type.bit_width // 8
    if type.precision <= 18:
        limbs = np.empty((len(key_values), max(1, width // 8)), f"<i{min(width, 8)}")
        limbs[:, 0] = key_values
        limbs[:, 1:] = (key_values >> 63)[:, None]
        return pa.Array.from_buffers(type, len(key_values), [None, pa.py_buffer(limbs)])
    raw = np.frombuffer(b"".join(key_values.to_pylist()), np.uint8).reshape(-1, width)[:, ::-1].copy()
    raw[:, -1] ^= 0x80
    return pa.Array.from_buffers(type, len(key_values), [None, pa.py_buffer(raw)])


def _unknown(type: pa.DataType, units: int) -> tuple[Keys, Keys]:
    match key_family(type):
        case "float":
            return np.full(units, -np.inf), np.full(units, np.inf)
        case "integer":
            low, high = key_limits(type)
            return np.full(units, low, np.int64), np.full(units, high, np.int64)
    return pa.array([b""] * units, pa.binary()), pa.nulls(units, pa.binary())


def of_column(ranges: Ranges | None, type: pa.DataType, units: int) -> Span:
    """The span of a column; unknown without ranges of its type. Reading a column never fails."""
    if ranges is None or ranges.lower.type != type:
        return Span.anything(type, units, fail=False)
    if "span" not in ranges.derived:
        ranges.derived["span"] = _of_ranges(ranges, type, units)
    return cast(Span, ranges.derived["span"])


def _of_ranges(ranges: Ranges, type: pa.DataType, units: int) -> Span:
    value, null, nan = (_possible(flag) for flag in (ranges.has_value, ranges.has_null, ranges.has_nan))
    fail = np.zeros(units, bool)
    family = key_family(type)
    if family is None:
        return Span(type, *_unknown(type, units), value, null, nan, fail)
    if family == "bytes":
        low, high = keys(ranges.lower), keys(ranges.upper)
        is_reversed = pc.fill_null(pc.less(high, low), False)
        low = pc.if_else(is_reversed, b"", pc.fill_null(low, b""))
        return Span(type, low, pc.if_else(is_reversed, pa.scalar(None, pa.binary()), high), value, null, nan, fail)
    low, high = keys(ranges.lower), keys(ranges.upper)
    no_lower, no_upper = _is_null(ranges.lower), _is_null(ranges.upper)
    if family == "float":
        # By the Parquet format, a bound that is NaN is unknown, the other bound holds, and some row may be NaN.
        nan_lower, nan_upper = ~no_lower & np.isnan(low), ~no_upper & np.isnan(high)
        nan = nan | nan_lower | nan_upper
        no_lower, no_upper = no_lower | nan_lower, no_upper | nan_upper
    else:
        nan = fail
    with np.errstate(invalid="ignore"):
        is_reversed = ~no_lower & ~no_upper & (low > high)
    no_lower, no_upper = no_lower | is_reversed, no_upper | is_reversed
    if no_lower.any() or no_upper.any():
        lower, upper = _unknown(type, units)
        low, high = np.where(no_lower, lower, low), np.where(no_upper, upper, high)
    return Span(type, low, high, value, null, nan, fail)


def _is_null(values: pa.Array) -> Bools:
    if values.null_count == 0:
        return np.zeros(len(values), bool)
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), bool)


def _possible(flag: pa.BooleanArray) -> Bools:
    """Whether each flag may be True: an unknown one may."""
    if flag.null_count == 0:
        return np.asarray(flag.to_numpy(zero_copy_only=False), bool)
    return np.asarray(pc.fill_null(flag, True).to_numpy(zero_copy_only=False), bool)
