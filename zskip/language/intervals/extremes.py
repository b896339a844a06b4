"""The spans of ``least`` and ``greatest``, of prefixes, and of concatenation with a constant."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.language.intervals.spans import Keys, Span
from zskip.language.tree import Call


def least(spans: list[Span], call: Call) -> Span:
    """``least``, which ignores NULL and places NaN above every number."""
    return _extreme("least", spans, call)


def greatest(spans: list[Span], call: Call) -> Span:
    """``greatest``, which ignores NULL and places NaN above every number."""
    return _extreme("greatest", spans, call)


def _extreme(function: str, spans: list[Span], call: Call) -> Span:
    """The least or the greatest of several terms of one type.

    An argument that is never NULL bounds the result on both sides. One that may be NULL bounds it on one side only,
    since the function ignores NULL, and one that is always NULL on neither.
    """
    smaller = function == "least"
    never_null = [span.value & ~span.null & ~span.nan for span in spans]
    if isinstance(spans[0].lower, np.ndarray):
        near, far = (np.minimum, np.maximum) if smaller else (np.maximum, np.minimum)
        # The result of least is not below any value that may occur, and not above any value that certainly does.
        inner = [(span.lower, span.upper) if smaller else (span.upper, span.lower) for span in spans]
        bottom, top = _limits(spans[0].lower)
        ignored, unbounded = (top, bottom) if smaller else (bottom, top)
        start = near.reduce(
            [np.where(span.value, first, ignored) for span, (first, _) in zip(spans, inner, strict=True)]
        )
        end = near.reduce(
            [np.where(certain, last, ignored) for certain, (_, last) in zip(never_null, inner, strict=True)]
        )
        possible_end = far.reduce(
            [np.where(span.value, last, unbounded) for span, (_, last) in zip(spans, inner, strict=True)]
        )
        end = np.where(np.logical_or.reduce(never_null), end, possible_end)
        has_value = np.logical_or.reduce([span.value for span in spans])
        lower, upper = (start, end) if smaller else (end, start)
        lower, upper = np.where(has_value, lower, bottom), np.where(has_value, upper, top)
    else:
        lower, upper = _extreme_of_binary(smaller, spans, np.logical_and.reduce(never_null))
    value = np.logical_or.reduce([span.value for span in spans])
    null = np.logical_and.reduce([span.null for span in spans])
    nan = np.logical_or.reduce([span.nan for span in spans])
    fail = np.logical_or.reduce([span.fail for span in spans])
    if not call.options:
        # The dialect may return NULL if any argument is NULL.
        null = np.logical_or.reduce([span.null for span in spans])
    return Span(call.type, lower, upper, value, null, nan, fail)


def _limits(keys: np.ndarray) -> tuple[float | int, float | int]:
    """The least and the greatest key of an array's type."""
    if keys.dtype == np.float64:
        return -np.inf, np.inf
    info = np.iinfo(np.int64)
    return info.min, info.max


def _extreme_of_binary(smaller: bool, spans: list[Span], none_null: np.ndarray) -> tuple[Keys, Keys]:
    """The bounds of the least or greatest string; those of all strings unless no argument is NULL."""
    choose = _smaller if smaller else _greater
    lower, upper = wide_low, wide_high = spans[0].lower, spans[0].upper
    for span in spans[1:]:
        lower, upper = choose(lower, span.lower), choose(upper, span.upper)
        wide_low, wide_high = _smaller(wide_low, span.lower), _greater(wide_high, span.upper)
    return _where(none_null, lower, wide_low), _where(none_null, upper, wide_high)


def _where(condition: np.ndarray, yes: Keys, no: Keys) -> Keys:
    if isinstance(yes, np.ndarray):
        return np.where(condition, yes, no)
    return pc.if_else(pa.array(condition), yes, no)


def _smaller(left: Keys, right: Keys) -> Keys:
    """The smaller of two upper or lower bounds; a null is an unknown upper bound, greater than every key."""
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
    """The first characters of a string. ``call.options``: their number."""
    (span,) = spans
    (count,) = call.options
    lower, upper = (_prefix_of(bound, int(str(count))) for bound in (span.lower, span.upper))
    return Span(call.type, lower, upper, span.value, span.null, span.nan, span.fail)


def _prefix_of(bounds: pa.Array, count: int) -> pa.Array:
    try:
        text = bounds.cast(pa.string())
    except pa.ArrowInvalid:
        # A bound was truncated inside a character. The bytes before that character still preserve the order.
        return pa.array(
            [None if bound is None else _first_characters(bound, count) for bound in bounds.to_pylist()], pa.binary()
        )
    return pc.utf8_slice_codeunits(text, 0, count).cast(pa.binary())


def _first_characters(value: bytes, count: int) -> bytes:
    kept = 0
    for index, byte in enumerate(value):
        if byte & 0xC0 != 0x80:
            if kept == count:
                return value[:index]
            kept += 1
    return value


def concat(spans: list[Span], call: Call) -> Span:
    """A constant prefix and a string. ``call.options``: the prefix, and whether NULL counts as the empty string."""
    (span,) = spans
    constant, skips_null = call.options
    head = pa.scalar(str(constant).encode(), pa.binary())
    lower, upper = (pc.binary_join_element_wise(head, bound, b"") for bound in (span.lower, span.upper))
    if not skips_null:
        return Span(call.type, lower, upper, span.value, span.null, span.nan, span.fail)
    # DuckDB's concat treats NULL as the empty string.
    lower = pc.if_else(pa.array(span.null), head, lower)
    upper = pc.if_else(pa.array(span.null & ~span.value), head, upper)
    no = np.zeros(len(span), bool)
    return Span(call.type, lower, upper, span.value | span.null, no, no, span.fail)
