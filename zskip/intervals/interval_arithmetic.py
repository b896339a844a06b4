"""Interval arithmetic: the range of ``x + y``, given the ranges of x and y.

Integers and decimals are computed exactly in 64 bits; beyond these the result is unbounded. Doubles are computed as the
engine does, since rounding is monotone; 32-bit floats, and functions that libraries round differently, are widened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from zskip import types as t
from zskip.expr.tree import Call
from zskip.intervals.spans import Span, key_limits

__all__ = [
    "absolute",
    "cast",
    "divide",
    "divide_whole",
    "library_function",
    "modulo",
    "negate",
    "power",
    "rounded",
    "sign",
    "sums_and_products",
]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Evaluate = Callable[[list[Span], Call], Span]

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def scale_of(type: pa.DataType) -> int:
    """Digits after the point of an exact type."""
    return int(type.scale) if t.is_decimal(type) else 0


def is_exact(type: pa.DataType) -> bool:
    """Integers and decimals."""
    return not t.is_floating(type)


def saturated(approximate: Floats, exact: Ints) -> Ints:
    """The exact result, or the end of 64 bits on the side where it overflowed."""
    over = np.abs(approximate) >= 9.2e18
    return np.where(over, np.where(approximate > 0, _MOST, _LEAST), exact)


def _times(left: Ints, right: Ints | int) -> Ints:
    with np.errstate(over="ignore"):
        return saturated(left.astype(np.float64) * right, left * right)


def _plus(left: Ints, right: Ints) -> Ints:
    """The sum, or the end of 64 bits on the side where it overflowed."""
    total = np.add(left, right)
    over = ((left ^ total) & (right ^ total)) < 0
    return np.where(over, np.where(left < 0, _LEAST, _MOST), total)


def _less(left: Ints, right: Ints) -> Ints:
    """The difference, or the end of 64 bits on the side where it overflowed."""
    total = np.subtract(left, right)
    over = ((left ^ right) & (left ^ total)) < 0
    return np.where(over, np.where(left < 0, _LEAST, _MOST), total)


def as_exact(span: Span, scale: int) -> tuple[Ints, Ints]:
    """The bounds as whole numbers of 10^-scale."""
    factor = 10 ** (scale - scale_of(span.type))
    return (span.lower, span.upper) if factor == 1 else (_times(span.lower, factor), _times(span.upper, factor))


def as_floats(span: Span) -> tuple[Floats, Floats]:
    """The bounds as doubles; those of decimals widened, for engines divide them in their own ways."""
    if not is_exact(span.type):
        return span.lower, span.upper
    lower, upper = np.asarray(span.lower, np.float64), np.asarray(span.upper, np.float64)
    if t.is_decimal(span.type):
        factor = 10.0**span.type.scale
        return widened(lower / factor, upper / factor, 4 * 2.0**-52)
    return lower, upper


def widened(lower: Floats, upper: Floats, relative: float) -> tuple[Floats, Floats]:
    """Bounds moved apart by a relative error. A bound that overflowed is as far as the greatest number at least."""
    most = np.finfo(np.float64).max
    lower, upper = np.minimum(lower, most), np.maximum(upper, -most)
    with np.errstate(over="ignore", invalid="ignore"):
        return lower - np.abs(lower) * relative - 5e-324, upper + np.abs(upper) * relative + 5e-324


def joined(spans: list[Span]) -> tuple[Any, Any, Any, Any]:
    """The flags of a result that is NULL where any argument is, and NaN where any is: value, null, nan, fail."""
    value, null, nan, fail = spans[0].value, spans[0].null, spans[0].nan, spans[0].fail
    for span in spans[1:]:
        value, null, nan, fail = value & span.value, null | span.null, nan | span.nan, fail | span.fail
    return value, null, nan, fail


def exact(spans: list[Span], call: Call, lower: Ints, upper: Ints) -> Span:
    """An exact result; where it may leave the type in which the engine computes, the engine raises or wraps."""
    value, null, nan, fail = joined(spans)
    low, high = key_limits(call.type)
    if call.options and t.is_integer(call.type):
        narrow, wraps = call.options
        least, most = key_limits(narrow)
        # An end of 64 bits may be a result that was saturated: it is on that side, and no more is known of it.
        lost = (lower == _MOST) | (upper == _LEAST)
        lower, upper = np.where(lost, low, lower), np.where(lost, high, upper)
        beyond = value & ((lower < least) | (upper > most) | (lower == _LEAST) | (upper == _MOST))
        fail = fail | beyond
        if wraps:
            lower, upper = np.where(beyond, low, lower), np.where(beyond, high, upper)
    else:
        fail = fail | value & ((lower <= low) | (upper >= high))
        null = null | value & ((lower <= low) | (upper >= high))
    return Span(call.type, np.clip(lower, low, high), np.clip(upper, low, high), value, null, nan, fail)


def inexact(spans: list[Span], call: Call, corners: list[Floats]) -> Span:
    """A float result from the values at the corners. A corner that is no number leaves that side open."""
    value, null, nan, fail = joined(spans)
    stacked = np.stack(corners)
    broken = np.isnan(stacked).any(axis=0)
    lower = np.where(broken, -np.inf, np.min(stacked, axis=0))
    upper = np.where(broken, np.inf, np.max(stacked, axis=0))
    if call.type == pa.float32():
        lower, upper = widened(lower, upper, 2.0**-22)
        lower, upper = np.where(lower < -3.4e38, -np.inf, lower), np.where(upper > 3.4e38, np.inf, upper)
    for span in spans:
        if not is_exact(span.type):
            # inf - inf, and 0 * inf, are NaN.
            nan = nan | value & (np.isinf(span.lower) | np.isinf(span.upper))
    # A NaN beside a value gives NaN too.
    return Span(call.type, lower, upper, value, null, nan, fail)


def sums_and_products(function: str) -> Evaluate:
    """``add``, ``subtract`` and ``multiply``: from the corners of the arguments' bounds."""

    def evaluate(spans: list[Span], call: Call) -> Span:
        left, right = spans
        if t.is_floating(call.type):
            (a, b), (c, d) = as_floats(left), as_floats(right)
            with np.errstate(all="ignore"):
                if function == "add":
                    corners = [a + c, b + d]
                elif function == "subtract":
                    corners = [a - d, b - c]
                else:
                    corners = [a * c, a * d, b * c, b * d]
            return inexact(spans, call, corners)
        if function == "multiply":
            (a1, b1), (c1, d1) = as_exact(left, scale_of(left.type)), as_exact(right, scale_of(right.type))
            products = np.stack([_times(a1, c1), _times(a1, d1), _times(b1, c1), _times(b1, d1)])
            return exact(spans, call, products.min(axis=0), products.max(axis=0))
        scale = scale_of(call.type)
        (a1, b1), (c1, d1) = as_exact(left, scale), as_exact(right, scale)
        if function == "subtract":
            return exact(spans, call, _less(a1, d1), _less(b1, c1))
        return exact(spans, call, _plus(a1, c1), _plus(b1, d1))

    return evaluate


def _minus(values: Ints) -> Ints:
    return np.where(values == _LEAST, _MOST, -np.maximum(values, _LEAST + 1))


def divide(spans: list[Span], call: Call) -> Span:
    """Division of doubles: unbounded where the divisor may be zero."""
    left, right = spans
    (a, b), (c, d) = as_floats(left), as_floats(right)
    zero = right.value & (c <= 0) & (d >= 0)
    with np.errstate(all="ignore"):
        found = inexact(spans, call, [a / c, a / d, b / c, b / d])
    lower, upper = np.where(zero, -np.inf, found.lower), np.where(zero, np.inf, found.upper)
    null = found.null | zero if call.options == ("null",) else found.null
    fail = found.fail | zero
    nan = found.nan | zero if call.options == ("infinity",) or right.type in (pa.float32(), pa.float64()) else found.nan
    return Span(call.type, lower, upper, found.value, null, nan, fail)


def _cut(values: Ints, divisor: int) -> Ints:
    """Division that cuts towards zero."""
    quotient = values // divisor
    return np.asarray(quotient + ((values % divisor != 0) & ((values < 0) != (divisor < 0))))


def divide_whole(spans: list[Span], call: Call) -> Span:
    """Division by a whole constant, cut towards zero."""
    left, right = spans
    divisor = int(right.lower[0]) if len(right) else 1
    with np.errstate(over="ignore"):
        ends = [_cut(left.lower, divisor), _cut(left.upper, divisor)]
    if divisor == -1:
        ends = [_minus(left.upper), _minus(left.lower)]
    return exact(spans, call, np.minimum(*ends), np.maximum(*ends))


def modulo(spans: list[Span], call: Call) -> Span:
    """The remainder of a division by an integer constant."""
    left, right = spans
    divisor = abs(int(right.lower[0])) if len(right) else 1
    first, last = _cut(left.lower, divisor), _cut(left.upper, divisor)
    low, high = left.lower - first * divisor, left.upper - last * divisor
    one = (first == last) & ((left.lower >= 0) | (left.upper <= 0))
    lower = np.where(one, low, np.where(left.lower >= 0, 0, 1 - divisor))
    upper = np.where(one, high, np.where(left.upper <= 0, 0, divisor - 1))
    found = exact(spans, call, lower, upper)
    if divisor == 1:
        # The least integer % -1 overflows on the way to its 0.
        return replace(found, fail=found.fail | left.value & (left.lower <= key_limits(call.options[0])[0]))
    return found


def negate(spans: list[Span], call: Call) -> Span:
    """``-x``."""
    (span,) = spans
    if not is_exact(span.type):
        return Span(call.type, -span.upper, -span.lower, span.value, span.null, span.nan, span.fail)
    return exact(spans, call, _minus(span.upper), _minus(span.lower))


def absolute(spans: list[Span], call: Call) -> Span:
    """``abs(x)``."""
    (span,) = spans
    if is_exact(span.type):
        a, b = _minus(span.lower), span.upper
    else:
        a, b = -span.lower, span.upper
    inside = (span.lower <= 0) & (span.upper >= 0)
    ends = (
        np.maximum(a, _minus(a) if is_exact(span.type) else -a),
        np.maximum(b, _minus(b) if is_exact(span.type) else -b),
    )
    lower, upper = np.where(inside, 0, np.minimum(*ends)), np.maximum(*ends)
    if is_exact(span.type):
        return exact(spans, call, lower, upper)
    return Span(call.type, lower, upper, span.value, span.null, span.nan, span.fail)


def sign(spans: list[Span], call: Call) -> Span:
    """``sign(x)``."""
    (span,) = spans
    lower, upper = np.sign(span.lower).astype(np.int64), np.sign(span.upper).astype(np.int64)
    # DuckDB says that NaN has the sign 0.
    lower, upper = np.where(span.nan, np.minimum(lower, 0), lower), np.where(span.nan, np.maximum(upper, 0), upper)
    lower, upper = np.where(span.value, lower, 0), np.where(span.value, upper, 0)
    return Span(call.type, lower, upper, span.value | span.nan, span.null, np.zeros(len(span), bool), span.fail)


def rounded(function: str) -> Evaluate:
    """``floor``, ``ceil``, ``trunc`` and ``round``."""

    def evaluate(spans: list[Span], call: Call) -> Span:
        (span,) = spans
        (places,) = call.options
        assert isinstance(places, int)
        if is_exact(span.type):
            factor = 10 ** max(0, scale_of(span.type) - scale_of(call.type))
            first, last = (_exact_rounding(function, each, factor) for each in (span.lower, span.upper))
            low, high = key_limits(call.type)
            return Span(call.type, np.clip(first, low, high), np.clip(last, low, high), *joined(spans))
        with np.errstate(all="ignore"):
            if function == "round" and places:
                margin = 10.0**-places
                lower, upper = widened(span.lower - margin, span.upper + margin, 2.0**-20)
            else:
                # Half a way up or half to even: whichever the engine takes lies between floor and ceil.
                down, up = _WHOLE[function]
                lower, upper = down(span.lower), up(span.upper)
        if call.type == pa.float32():
            lower, upper = widened(lower, upper, 2.0**-22)
        return Span(call.type, lower, upper, *joined(spans))

    return evaluate


def _half_down(values: Floats) -> Floats:
    return np.ceil(values - 0.5)


def _half_up(values: Floats) -> Floats:
    return np.floor(values + 0.5)


_WHOLE: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "floor": (np.floor, np.floor),
    "ceil": (np.ceil, np.ceil),
    "trunc": (np.trunc, np.trunc),
    "round": (_half_down, _half_up),
}


def _exact_rounding(function: str, values: Ints, factor: int) -> Ints:
    match function:
        case "floor":
            return values // factor
        case "ceil":
            return -(-values // factor)
        case "trunc":
            return _cut(values, factor)
    # Half away from zero.
    return np.asarray(np.sign(values) * ((2 * np.abs(values) + factor) // (2 * factor)))


def library_function(function: str) -> Evaluate:
    """Functions that libraries round differently."""
    compute: Callable[[Floats], Floats] = {"sqrt": np.sqrt, "ln": np.log, "exp": np.exp}[function]

    def evaluate(spans: list[Span], call: Call) -> Span:
        (span,) = spans
        value, null, nan, fail = joined(spans)
        lower, upper = as_floats(span)
        with np.errstate(all="ignore"):
            low, high = compute(lower), compute(upper)
        outside = np.zeros(len(span), bool)
        if function != "exp":
            outside = value & (lower <= 0 if function == "ln" else lower < 0)
            low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
        low, high = widened(low, high, 2.0**-48)
        low, high = low - 1e-300, high + 1e-300
        if function != "ln":
            low = np.maximum(low, 0)
        return Span(call.type, low, high, value, null | outside, nan | outside, fail | outside)

    return evaluate


def power(spans: list[Span], call: Call) -> Span:
    """``power(x, n)``, n a positive whole constant."""
    (span,) = spans
    (exponent,) = call.options
    assert isinstance(exponent, int)
    lower, upper = as_floats(span)
    with np.errstate(all="ignore"):
        ends = np.stack([lower**exponent, upper**exponent])
    low, high = ends.min(axis=0), ends.max(axis=0)
    if exponent % 2 == 0:
        low = np.where((lower <= 0) & (upper >= 0), 0.0, low)
    low, high = widened(low, high, 2.0**-44)
    return Span(call.type, low, high, *joined(spans))


def cast(spans: list[Span], call: Call) -> Span:
    """A cast between types of numbers."""
    (span,) = spans
    value, null, nan, fail = joined(spans)
    (misfit,) = call.options
    if t.is_floating(call.type):
        lower, upper = as_floats(span)
        if call.type == pa.float32() and span.type != pa.float32():
            lower, upper = widened(lower, upper, 2.0**-22)
            lower, upper = np.where(lower < -3.4e38, -np.inf, lower), np.where(upper > 3.4e38, np.inf, upper)
            beyond = value & (np.isinf(lower) | np.isinf(upper))
            return Span(call.type, lower, upper, value, null | beyond, nan, fail | beyond)
        return Span(call.type, lower, upper, value, null, nan, fail)
    scale = scale_of(call.type)
    low, high = key_limits(call.type)
    out = np.zeros(len(span), bool)
    if is_exact(span.type):
        if scale >= scale_of(span.type):
            first, last = as_exact(span, scale)
        else:
            factor = 10 ** (scale_of(span.type) - scale)
            # Cut or rounded: the engines differ.
            first, last = span.lower // factor, -(-span.upper // factor)
    else:
        with np.errstate(all="ignore"):
            down, up = np.floor(span.lower * 10.0**scale) - (scale > 0), np.ceil(span.upper * 10.0**scale) + (scale > 0)
            first = saturated(down, np.where(np.abs(down) < 9.2e18, down, 0).astype(np.int64))
            last = saturated(up, np.where(np.abs(up) < 9.2e18, up, 0).astype(np.int64))
            # What was saturated may be beyond even the widest type, whose limits it then equals.
            out = (down < -9.2e18) | (up > 9.2e18)
    beyond = value & ((first < low) | (last > high) | out) | nan
    if misfit == "wrap":
        first, last = np.where(beyond, low, first), np.where(beyond, high, last)
        value = value | nan
    null, fail = (null | beyond, fail) if misfit == "null" else (null, fail | beyond)
    if misfit == "wrap" and t.is_decimal(call.type):
        null = null | beyond
    return Span(
        call.type, np.clip(first, low, high), np.clip(last, low, high), value, null, np.zeros(len(span), bool), fail
    )
