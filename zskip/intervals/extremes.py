"""The spans of ``least`` and ``greatest``, of prefixes, and of concatenation with a constant."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.expr.tree import Call
from zskip.intervals.spans import Keys, Span

__all__ = ["concat", "greatest", "least", "prefix"]


def least(spans: list[Span], call: Call) -> Span:
    """``least``: NULLs are left out, and NaN is above every number."""
    return _extreme("least", spans, call)


def greatest(spans: list[Span], call: Call) -> Span:
    """``greatest``: NULLs are left out, and NaN is above every number."""
    return _extreme("greatest", spans, call)


def _extreme(function: str, spans: list[Span], call: Call) -> Span:
    """The least or the greatest of several terms of one type.

    An argument that is never NULL bounds the result on both sides; one that may be NULL, and is then ignored, on one
    side only; one that is always NULL on neither.
    """
    smaller = function == "least"
    sure = [span.value & ~span.null & ~span.nan for span in spans]
    if isinstance(spans[0].lower, np.ndarray):
        near, far = (np.minimum, np.maximum) if smaller else (np.maximum, np.minimum)
        # Of least: below everything that may be there, and not above anything that is.
        inner = [(span.lower, span.upper) if smaller else (span.upper, span.lower) for span in spans]
        bottom, top = _limits(spans[0].lower)
        nothing, everything = (top, bottom) if smaller else (bottom, top)
        start = near.reduce(
            [np.where(span.value, first, nothing) for span, (first, _) in zip(spans, inner, strict=True)]
        )
        end = near.reduce([np.where(known, last, nothing) for known, (_, last) in zip(sure, inner, strict=True)])
        open_ = far.reduce(
            [np.where(span.value, last, everything) for span, (_, last) in zip(spans, inner, strict=True)]
        )
        end = np.where(np.logical_or.reduce(sure), end, open_)
        has_value = np.logical_or.reduce([span.value for span in spans])
        lower, upper = (start, end) if smaller else (end, start)
        lower, upper = np.where(has_value, lower, bottom), np.where(has_value, upper, top)
    else:
        lower, upper = _of_binary(smaller, spans, np.logical_and.reduce(sure))
    value = np.logical_or.reduce([span.value for span in spans])
    null = np.logical_and.reduce([span.null for span in spans])
    nan = np.logical_or.reduce([span.nan for span in spans])
    fail = np.logical_or.reduce([span.fail for span in spans])
    if not call.options:
        # A dialect that may give NULL where any argument is.
        null = np.logical_or.reduce([span.null for span in spans])
    return Span(call.type, lower, upper, value, null, nan, fail)


def _limits(keys: np.ndarray) -> tuple[float | int, float | int]:
    if keys.dtype == np.float64:
        return -np.inf, np.inf
    info = np.iinfo(np.int64)
    return info.min, info.max


def _of_binary(smaller: bool, spans: list[Span], all_sure: np.ndarray) -> tuple[Keys, Keys]:
    choose = _smaller if smaller else _greater
    lower, upper = wide_low, wide_high = spans[0].lower, spans[0].upper
    for span in spans[1:]:
        lower, upper = choose(lower, span.lower), choose(upper, span.upper)
        wide_low, wide_high = _smaller(wide_low, span.lower), _greater(wide_high, span.upper)
    return _where(all_sure, lower, wide_low), _where(all_sure, upper, wide_high)


def _where(condition: np.ndarray, yes: Keys, no: Keys) -> Keys:
    if isinstance(yes, np.ndarray):
        return np.where(condition, yes, no)
    return pc.if_else(pa.array(condition), yes, no)


def _smaller(left: Keys, right: Keys) -> Keys:
    """The smaller key; a null is an open upper end, greater than all."""
    if isinstance(left, np.ndarray):
        return np.minimum(left, right)
    return pc.if_else(pc.fill_null(pc.less(left, right), right.is_null()), left, right)


def _greater(left: Keys, right: Keys) -> Keys:
    if isinstance(left, np.ndarray):
        return np.maximum(left, right)
    either = pc.or_(left.is_null(), right.is_null())
    larger = pc.if_else(pc.fill_null(pc.less(left, right), False), right, left)
    return pc.if_else(either, pa.scalar(None, pa.binary()), larger)


def prefix(spans: list[Span], call: Call) -> Span:
    """The first characters of a text. ``call.options``: their number."""
    (span,) = spans
    (count,) = call.options
    lower, upper = (_beginning(each, int(str(count))) for each in (span.lower, span.upper))
    return Span(call.type, lower, upper, span.value, span.null, span.nan, span.fail)


def _beginning(bounds: pa.Array, count: int) -> pa.Array:
    try:
        text = bounds.cast(pa.string())
    except pa.ArrowInvalid:
        # A bound that was cut inside a character: its first bytes still keep the order, up to the character.
        return pa.array([None if each is None else _cut(each, count) for each in bounds.to_pylist()], pa.binary())
    return pc.utf8_slice_codeunits(text, 0, count).cast(pa.binary())


def _cut(value: bytes, count: int) -> bytes:
    kept = 0
    for index, byte in enumerate(value):
        if byte & 0xC0 != 0x80:
            if kept == count:
                return value[:index]
            kept += 1
    return value


def concat(spans: list[Span], call: Call) -> Span:
    """A text behind a constant. ``call.options``: the constant, and whether NULL counts as the empty text."""
    (span,) = spans
    beginning, skips_null = call.options
    head = pa.scalar(str(beginning).encode(), pa.binary())
    lower, upper = (pc.binary_join_element_wise(head, each, b"") for each in (span.lower, span.upper))
    if not skips_null:
        return Span(call.type, lower, upper, span.value, span.null, span.nan, span.fail)
    # DuckDB's concat takes NULL for the empty string.
    lower = pc.if_else(pa.array(span.null), head, lower)
    upper = pc.if_else(pa.array(span.null & ~span.value), head, upper)
    no = np.zeros(len(span), bool)
    return Span(call.type, lower, upper, span.value | span.null, no, no, span.fail)
