"""Interval arithmetic: the range of ``x + y``, given the ranges of x and y.

Integers and decimals are computed exactly in 64 bits; a result beyond 64 bits is unbounded. Doubles are computed as the
engine computes them, since rounding is monotone. The bounds of 32-bit floats, and of functions that libraries round
differently, are widened.

Sums and products of more than 18 digits, and of unsigned 64-bit integers, are computed in doubles with a margin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.language.intervals.spans import Keys, Periodic, Span, halves_of_period, key_family, key_limits
from zskip.language.tree import Call

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Evaluate = Callable[[list[Span], Call], Span]

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def scale_of(type: pa.DataType) -> int:
    """The number of digits after the decimal point of an exact type."""
    return int(type.scale) if t.is_decimal(type) else 0


def is_exact(type: pa.DataType) -> bool:
    """Whether values of a type are integers or decimals, not floats."""
    return not t.is_floating(type)


def saturated(approximate: Floats, exact: Ints) -> Ints:
    """The exact result, or the 64-bit limit on the side where it overflowed. ``approximate``: the result as doubles."""
    overflowed = np.abs(approximate) >= 9.2e18
    return np.where(overflowed, np.where(approximate > 0, _MOST, _LEAST), exact)


def _multiply(left: Ints, right: Ints | int) -> Ints:
    with np.errstate(over="ignore"):
        return saturated(left.astype(np.float64) * right, left * right)


def _add(left: Ints, right: Ints) -> Ints:
    """The sum, or the 64-bit limit on the side where it overflowed."""
    total = np.add(left, right)
    overflowed = ((left ^ total) & (right ^ total)) < 0
    return np.where(overflowed, np.where(left < 0, _LEAST, _MOST), total)


def _subtract(left: Ints, right: Ints) -> Ints:
    """The difference, or the 64-bit limit on the side where it overflowed."""
    difference = np.subtract(left, right)
    overflowed = ((left ^ right) & (left ^ difference)) < 0
    return np.where(overflowed, np.where(left < 0, _LEAST, _MOST), difference)


def as_exact(span: Span, scale: int) -> tuple[Ints, Ints]:
    """The bounds as integers, in units of 10^-scale."""
    factor = 10 ** (scale - scale_of(span.type))
    return (span.lower, span.upper) if factor == 1 else (_multiply(span.lower, factor), _multiply(span.upper, factor))


def as_floats(span: Span) -> tuple[Floats, Floats]:
    """The bounds as doubles. Those of decimals are widened, since engines convert decimals in different ways."""
    if not is_exact(span.type):
        return span.lower, span.upper
    lower, upper = np.asarray(span.lower, np.float64), np.asarray(span.upper, np.float64)
    if t.is_decimal(span.type):
        factor = 10.0**span.type.scale
        return widened(lower / factor, upper / factor, 4 * 2.0**-52)
    return lower, upper


def widened(lower: Floats, upper: Floats, relative: float) -> tuple[Floats, Floats]:
    """Bounds moved apart by a relative error. An overflowed bound, lower inf or upper -inf, becomes finite."""
    most = np.finfo(np.float64).max
    lower, upper = np.minimum(lower, most), np.maximum(upper, -most)
    with np.errstate(over="ignore", invalid="ignore"):
        return lower - np.abs(lower) * relative - 5e-324, upper + np.abs(upper) * relative + 5e-324


def combined_flags(spans: list[Span]) -> tuple[Any, Any, Any, Any]:
    """The flags of a result that is NULL if any argument is, and NaN if any is: value, null, nan, fail."""
    value, null, nan, fail = spans[0].value, spans[0].null, spans[0].nan, spans[0].fail
    for span in spans[1:]:
        value, null, nan, fail = value & span.value, null | span.null, nan | span.nan, fail | span.fail
    return value, null, nan, fail


def exact(spans: list[Span], call: Call, lower: Ints, upper: Ints) -> Span:
    """An exact result with these bounds. Where it may overflow the engine's type, the engine raises or wraps around."""
    value, null, nan, fail = combined_flags(spans)
    low, high = key_limits(call.type)
    if call.options and t.is_integer(call.type):
        narrow, wraps = call.options
        least, most = key_limits(narrow)
        # A bound at a 64-bit limit may be a saturated result, whose value is unknown.
        is_saturated = (lower == _MOST) | (upper == _LEAST)
        lower, upper = np.where(is_saturated, low, lower), np.where(is_saturated, high, upper)
        beyond = value & ((lower < least) | (upper > most) | (lower == _LEAST) | (upper == _MOST))
        fail = fail | beyond
        if wraps:
            lower, upper = np.where(beyond, low, lower), np.where(beyond, high, upper)
    else:
        fail = fail | value & ((lower <= low) | (upper >= high))
        null = null | value & ((lower <= low) | (upper >= high))
    return Span(call.type, np.clip(lower, low, high), np.clip(upper, low, high), value, null, nan, fail)


def inexact(spans: list[Span], call: Call, corners: list[Floats]) -> Span:
    """A float result, bounded by its values at the corners of the arguments; unbounded if one of them is NaN."""
    value, null, nan, fail = combined_flags(spans)
    stacked = np.stack(corners)
    has_nan = np.isnan(stacked).any(axis=0)
    lower = np.where(has_nan, -np.inf, np.min(stacked, axis=0))
    upper = np.where(has_nan, np.inf, np.max(stacked, axis=0))
    if call.type == pa.float32():
        lower, upper = widened(lower, upper, 2.0**-22)
        lower, upper = np.where(lower < -3.4e38, -np.inf, lower), np.where(upper > 3.4e38, np.inf, upper)
    for span in spans:
        if not is_exact(span.type):
            # inf - inf, and 0 * inf, are NaN.
            nan = nan | value & (np.isinf(span.lower) | np.isinf(span.upper))
    return Span(call.type, lower, upper, value, null, nan, fail)


def sums_and_products(function: str) -> Evaluate:
    """``add``, ``subtract`` or ``multiply``, bounded by its values at the corners of the arguments' bounds."""

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
            products = np.stack([_multiply(a1, c1), _multiply(a1, d1), _multiply(b1, c1), _multiply(b1, d1)])
            return exact(spans, call, products.min(axis=0), products.max(axis=0))
        scale = scale_of(call.type)
        (a1, b1), (c1, d1) = as_exact(left, scale), as_exact(right, scale)
        if function == "subtract":
            return exact(spans, call, _subtract(a1, d1), _subtract(b1, c1))
        return exact(spans, call, _add(a1, c1), _add(b1, d1))

    return evaluate


def _negated(values: Ints) -> Ints:
    """The negated values; the least integer becomes the greatest."""
    return np.where(values == _LEAST, _MOST, -np.maximum(values, _LEAST + 1))


def divide(spans: list[Span], call: Call) -> Span:
    """Division of doubles; unbounded where the divisor may be zero."""
    left, right = spans
    (a, b), (c, d) = as_floats(left), as_floats(right)
    zero = right.value & (c <= 0) & (d >= 0)
    with np.errstate(all="ignore"):
        quotient = inexact(spans, call, [a / c, a / d, b / c, b / d])
    lower, upper = np.where(zero, -np.inf, quotient.lower), np.where(zero, np.inf, quotient.upper)
    null, nan, fail = quotient.null, quotient.nan, quotient.fail | zero
    if call.options == ("null",):
        null = null | zero
    if call.options == ("infinity",) or right.type in (pa.float32(), pa.float64()):
        nan = nan | zero
    return Span(call.type, lower, upper, quotient.value, null, nan, fail)


def _truncated_quotient(values: Ints, divisor: int) -> Ints:
    """Integer division that rounds towards zero."""
    quotient = values // divisor
    return np.asarray(quotient + ((values % divisor != 0) & ((values < 0) != (divisor < 0))))


def divide_whole(spans: list[Span], call: Call) -> Span:
    """Division by an integer constant, rounded towards zero."""
    left, right = spans
    divisor = int(right.lower[0]) if len(right) else 1
    with np.errstate(over="ignore"):
        ends = [_truncated_quotient(left.lower, divisor), _truncated_quotient(left.upper, divisor)]
    if divisor == -1:
        ends = [_negated(left.upper), _negated(left.lower)]
    return exact(spans, call, np.minimum(*ends), np.maximum(*ends))


def _modulo(spans: list[Span], call: Call) -> tuple[Span, Span]:
    """The remainder of a division by an integer constant."""
    left, right = spans
    divisor = abs(int(right.lower[0])) if len(right) else 1
    first, last = _truncated_quotient(left.lower, divisor), _truncated_quotient(left.upper, divisor)
    low, high = left.lower - first * divisor, left.upper - last * divisor
    least, most = np.where(left.lower >= 0, 0, 1 - divisor), np.where(left.upper <= 0, 0, divisor - 1)
    crossed = np.where((left.lower >= 0) | (left.upper <= 0), last - first, 2)
    flags = combined_flags(spans)
    if divisor == 1:
        # The least integer % -1 is 0, but the engine's division overflows.
        flags = (*flags[:3], flags[3] | left.value & (left.lower <= key_limits(call.options[0])[0]))
    return halves_of_period(call.type, crossed, low, high, least, most, flags)


modulo = Periodic(_modulo)


def negate(spans: list[Span], call: Call) -> Span:
    """``-x``."""
    (span,) = spans
    if not is_exact(span.type):
        return Span(call.type, -span.upper, -span.lower, span.value, span.null, span.nan, span.fail)
    return exact(spans, call, _negated(span.upper), _negated(span.lower))


def absolute(spans: list[Span], call: Call) -> Span:
    """``abs(x)``."""
    (span,) = spans
    if is_exact(span.type):
        a, b = _negated(span.lower), span.upper
    else:
        a, b = -span.lower, span.upper
    inside = (span.lower <= 0) & (span.upper >= 0)
    ends = (
        np.maximum(a, _negated(a) if is_exact(span.type) else -a),
        np.maximum(b, _negated(b) if is_exact(span.type) else -b),
    )
    lower, upper = np.where(inside, 0, np.minimum(*ends)), np.maximum(*ends)
    if is_exact(span.type):
        return exact(spans, call, lower, upper)
    return Span(call.type, lower, upper, span.value, span.null, span.nan, span.fail)


def rounded(function: str) -> Evaluate:
    """``floor``, ``ceil``, ``trunc`` and ``round``."""

    def evaluate(spans: list[Span], call: Call) -> Span:
        (span,) = spans
        (digits,) = call.options
        assert isinstance(digits, int)
        if is_exact(span.type):
            factor = 10 ** max(0, scale_of(span.type) - scale_of(call.type))
            first, last = (_exact_rounding(function, each, factor) for each in (span.lower, span.upper))
            low, high = key_limits(call.type)
            return Span(call.type, np.clip(first, low, high), np.clip(last, low, high), *combined_flags(spans))
        with np.errstate(all="ignore"):
            if function == "round" and digits:
                margin = 10.0**-digits
                lower, upper = widened(span.lower - margin, span.upper + margin, 2.0**-20)
            else:
                # Halves may round away from zero or to even; these bounds include both.
                down, up = _ROUNDINGS[function]
                lower, upper = down(span.lower), up(span.upper)
        if call.type == pa.float32():
            lower, upper = widened(lower, upper, 2.0**-22)
        return Span(call.type, lower, upper, *combined_flags(spans))

    return evaluate


def _half_down(values: Floats) -> Floats:
    return np.ceil(values - 0.5)


def _half_up(values: Floats) -> Floats:
    return np.floor(values + 0.5)


_ROUNDINGS: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "floor": (np.floor, np.floor),
    "ceil": (np.ceil, np.ceil),
    "trunc": (np.trunc, np.trunc),
    "round": (_half_down, _half_up),
}


def _exact_rounding(function: str, values: Ints, factor: int) -> Ints:
    """Integers divided by ``factor`` and rounded as the function does."""
    match function:
        case "floor":
            return values // factor
        case "ceil":
            return -(-values // factor)
        case "trunc":
            return _truncated_quotient(values, factor)
    # round: halves away from zero.
    return np.asarray(np.sign(values) * ((2 * np.abs(values) + factor) // (2 * factor)))


def cast(spans: list[Span], call: Call) -> Span:
    """A cast between numeric types. ``call.options``: "null", "wrap" or "raise" for a value that does not fit."""
    (span,) = spans
    value, null, nan, fail = combined_flags(spans)
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
    overflows = np.zeros(len(span), bool)
    if is_exact(span.type):
        if scale >= scale_of(span.type):
            first, last = as_exact(span, scale)
        else:
            factor = 10 ** (scale_of(span.type) - scale)
            # Engines truncate or round; these bounds include both.
            first, last = span.lower // factor, -(-span.upper // factor)
    else:
        with np.errstate(all="ignore"):
            down, up = np.floor(span.lower * 10.0**scale) - (scale > 0), np.ceil(span.upper * 10.0**scale) + (scale > 0)
            first = saturated(down, np.where(np.abs(down) < 9.2e18, down, 0).astype(np.int64))
            last = saturated(up, np.where(np.abs(up) < 9.2e18, up, 0).astype(np.int64))
            # A saturated bound equals a limit of the widest type, although the value is beyond it.
            overflows = (down < -9.2e18) | (up > 9.2e18)
    beyond = value & ((first < low) | (last > high) | overflows) | nan
    if misfit == "wrap":
        first, last = np.where(beyond, low, first), np.where(beyond, high, last)
        value = value | nan
    null, fail = (null | beyond, fail) if misfit == "null" else (null, fail | beyond)
    if misfit == "wrap" and t.is_decimal(call.type):
        null = null | beyond
    return Span(
        call.type, np.clip(first, low, high), np.clip(last, low, high), value, null, np.zeros(len(span), bool), fail
    )


_BYTES = 16


def approximate(spans: list[Span], call: Call) -> Span:
    """An exact number of any length as a double, widened so that sums and products bound what engines compute exactly.

    Past the range of its own type an engine raises an error or returns NULL.
    """
    (span,) = spans
    if key_family(span.type) == "bytes":
        factor = 10.0**span.type.scale
        ends = [_floats(end, unknown) / factor for end, unknown in ((span.lower, -(2.0**128)), (span.upper, 2.0**128))]
    elif span.type == pa.uint64():
        ends = [(end ^ _LEAST).view(np.uint64).astype(np.float64) for end in (span.lower, span.upper)]
    else:
        ends = list(as_floats(span))
    every = np.ones(len(span), bool)
    return Span(call.type, *widened(ends[0], ends[1], 4 * 2.0**-52), span.value, every, span.nan, every)


def _floats(bounds: Keys, unknown: float) -> Floats:
    """The integers, as doubles, that the keys of decimals of more than 18 digits stand for."""
    known = pc.fill_null(pc.equal(pc.binary_length(bounds), _BYTES), False)
    whole = pc.if_else(known, bounds, b"\0" * _BYTES)
    words = np.frombuffer(whole.buffers()[2] or b"", ">u8").astype(np.uint64).reshape(-1, 2)
    high, low = words[:, 0] ^ np.uint64(1 << 63), words[:, 1]
    # The bits of -1 are all set: as doubles, their high and low half would cancel out.
    negative = high >> np.uint64(63) == 1
    above, below = (np.where(negative, ~half, half).astype(np.float64) for half in (high, low))
    magnitude = above * 2.0**64 + below + negative
    return np.where(np.asarray(known), np.where(negative, -magnitude, magnitude), unknown)
