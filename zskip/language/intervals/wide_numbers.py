"""Interval arithmetic over decimals of more than 18 digits and unsigned 64-bit integers, computed in 256 bits.

A bound is a 256-bit decimal, or null where it is unknown. Up to 38 digits a sum or a product is exact in every engine
that does not round it; beyond these the engine raises or returns NULL, and the bound is unknown.

    bound       10**38 - 1        b null
    b + 1       null              null
    -b          1 - 10**38        null
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.language.intervals.spans import Bools, Keys, Span, key_family, keys
from zskip.language.tree import Call

Exact: TypeAlias = pa.Decimal256Array
"""One bound per unit; null where it is unknown."""

_END = 10**38
_BYTES = 16


def _exact(type: pa.DataType, bounds: Keys) -> Exact:
    """The numbers that keys represent, at the scale of their type."""
    if key_family(type) == "integer":
        low = np.ascontiguousarray(bounds)
        unsigned = type == pa.uint64()
        low = low ^ np.iinfo(np.int64).min if unsigned else low
        high = np.zeros(len(low), np.int64) if unsigned else low >> 63
        limbs = np.stack([low, *[high] * 3], axis=1)
        return _numbers(limbs, _scale(type), None)
    known = pc.fill_null(pc.equal(pc.binary_length(bounds), _BYTES), False)
    whole = pc.if_else(known, bounds, b"\x80" + b"\0" * (_BYTES - 1))
    _, ends, data = whole.buffers()
    start = int(np.frombuffer(ends, np.int32, 1, whole.offset * 4)[0]) if len(whole) else 0
    raw = np.frombuffer(data, np.uint8, len(whole) * _BYTES, start).reshape(-1, _BYTES)[:, ::-1].copy()
    raw[:, -1] ^= 0x80
    halves = raw.view("<i8")
    limbs = np.concatenate([halves, np.repeat(halves[:, 1:] >> 63, 2, axis=1)], axis=1)
    numbers = _numbers(limbs, _scale(type), known)
    # An engine's widest integers may have more than 38 digits, which are unknown here.
    return pc.if_else(_within(numbers), numbers, pa.scalar(None, numbers.type))


def _numbers(limbs: np.ndarray, scale: int, known: pa.BooleanArray | None) -> Exact:
    """Numbers from four limbs of 64 bits each, the lowest first.

    Their declared precision is 37 digits, so that the product of two fits in a 256-bit decimal.
    """
    mask = None if known is None else pa.array(np.asarray(known.to_numpy(zero_copy_only=False))).buffers()[1]
    raw = pa.py_buffer(np.ascontiguousarray(limbs, "<i8").tobytes())
    return pa.Array.from_buffers(pa.decimal256(37, scale), len(limbs), [mask, raw])


def _scale(type: pa.DataType) -> int:
    return int(type.scale) if t.is_decimal(type) else 0


def _within(numbers: Exact) -> pa.BooleanArray:
    """Whether each number has at most 38 digits; null where it is unknown."""
    end = pa.scalar(t.decimal_of(_END, numbers.type.scale), pa.decimal256(76, numbers.type.scale))
    return pc.and_(pc.less(numbers, end), pc.greater(numbers, pc.negate(end)))


def _bounds(span: Span, scale: int | None = None) -> tuple[Exact, Exact]:
    """The bounds of a span, at its own scale or at a greater one."""
    lower, upper = _exact(span.type, span.lower), _exact(span.type, span.upper)
    wide = lower.type if scale is None else pa.decimal256(75, scale)
    return lower.cast(wide), upper.cast(wide)


def _span(spans: list[Span], call: Call, lower: Exact, upper: Exact) -> Span:
    """A result with these bounds. Where it may overflow a type of ``call.options``, it may fail or be NULL."""
    value, null, nan, fail = spans[0].value, spans[0].null, spans[0].nan, spans[0].fail
    for span in spans[1:]:
        value, null, fail = value & span.value, null | span.null, fail | span.fail
    beyond = value & ~(_certain(_within(lower)) & _certain(_within(upper)))
    for result_type in call.options:
        least, most = (pa.scalar(end, pa.decimal256(76, lower.type.scale)) for end in _limits(result_type))
        beyond |= value & ~(_certain(pc.greater_equal(lower, least)) & _certain(pc.less_equal(upper, most)))
    return Span(call.type, pc.fill_null(_keys(lower), b""), _keys(upper), value, null | beyond, nan, fail | beyond)


def _limits(result_type: pa.DataType) -> tuple[Decimal, Decimal]:
    """The least and the greatest number of an engine's type."""
    if result_type == pa.uint64():
        return Decimal(0), Decimal(2**64 - 1)
    most = 10**result_type.precision - 1
    return t.decimal_of(-most, result_type.scale), t.decimal_of(most, result_type.scale)


def _rescaled(spans: list[Span], scale: int) -> tuple[list[Span], list[tuple[Exact, Exact]]]:
    """Arguments and their bounds at one scale. An engine that rescales them first may fail, even beside a NULL."""
    bounds = [_bounds(span, scale) for span in spans]
    beyond = [
        span.value & ~(_certain(_within(lower)) & _certain(_within(upper)))
        for span, (lower, upper) in zip(spans, bounds, strict=True)
    ]
    return [replace(span, fail=span.fail | overflows) for span, overflows in zip(spans, beyond, strict=True)], bounds


def _certain(flags: pa.BooleanArray) -> Bools:
    """Whether each flag is known to be True."""
    return np.asarray(pc.fill_null(flags, False).to_numpy(zero_copy_only=False), bool)


def _keys(numbers: Exact) -> pa.BinaryArray:
    """The keys of numbers as decimals of 38 digits; null where a number is unknown or has more digits."""
    within = pa.array(_certain(_within(numbers)))
    low = np.frombuffer(numbers.buffers()[1], np.uint8).reshape(-1, 32)[numbers.offset :][: len(numbers), :_BYTES]
    kind = pa.decimal128(38, numbers.type.scale)
    return keys(
        pa.Array.from_buffers(
            kind, len(numbers), [within.buffers()[1], pa.py_buffer(np.ascontiguousarray(low).tobytes())]
        )
    )


def wide_sum(spans: list[Span], call: Call) -> Span:
    """``x + y``."""
    spans, ((a, b), (c, d)) = _rescaled(spans, call.type.scale)
    return _span(spans, call, pc.add(a, c), pc.add(b, d))


def wide_difference(spans: list[Span], call: Call) -> Span:
    """``x - y``."""
    spans, ((a, b), (c, d)) = _rescaled(spans, call.type.scale)
    return _span(spans, call, pc.subtract(a, d), pc.subtract(b, c))


def wide_product(spans: list[Span], call: Call) -> Span:
    """``x * y``."""
    (a, b), (c, d) = (_bounds(span) for span in spans)
    corners = [pc.multiply(*each) for each in ((a, c), (a, d), (b, c), (b, d))]
    lower, upper = (each(*corners, skip_nulls=False) for each in (pc.min_element_wise, pc.max_element_wise))
    return _span(spans, call, lower, upper)


def wide_negative(spans: list[Span], call: Call) -> Span:
    """``-x``."""
    lower, upper = _bounds(spans[0])
    return _span(spans, call, pc.negate(upper), pc.negate(lower))


def wide_cast(spans: list[Span], call: Call) -> Span:
    """A cast to a decimal of more digits."""
    return _span(spans, replace(call, options=()), *_bounds(spans[0], call.type.scale))
