"""Bounds of one type as bounds of another that holds all its values, or unknown: never rounded, never wrapped."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

__all__ = ["widened", "widens"]


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of ``old`` is a value of ``new``, in the same order.

    >>> widens(pa.int32(), pa.int64()), widens(pa.int64(), pa.int32()), widens(pa.string(), pa.int64())
    (True, False, False)
    """
    if old == new or t.is_null(old):
        return True
    if t.is_integer(old) and t.is_integer(new):
        signs = t.is_unsigned_integer(old), t.is_unsigned_integer(new)
        return bool(old.bit_width < new.bit_width and (signs[0] == signs[1] or signs == (True, False)))
    if t.is_floating(new) and (t.is_integer(old) or t.is_floating(old)):
        mantissa = {16: 11, 32: 24, 64: 53}[new.bit_width]
        narrower = mantissa + 1 if t.is_integer(old) else new.bit_width
        return bool(old.bit_width < narrower)
    if t.is_decimal(old) and t.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if t.is_integer(old) and t.is_decimal(new):
        return bool(new.precision - new.scale >= len(str(2**old.bit_width)))
    if t.is_date(old):
        return bool(t.is_date(new) and new.bit_width > old.bit_width) or (t.is_timestamp(new) and new.tz is None)
    finer = ("s", "ms", "us", "ns")
    if t.is_timestamp(old) and t.is_timestamp(new):
        return (old.tz is None) == (new.tz is None) and finer.index(new.unit) >= finer.index(old.unit)
    if (t.is_time(old) and t.is_time(new)) or (t.is_duration(old) and t.is_duration(new)):
        return finer.index(new.unit) >= finer.index(old.unit)
    return False


def widened(bounds: pa.Array, type: pa.DataType) -> pa.Array:
    """The bounds as values of ``type``; all unknown if it cannot hold every value of their type.

    >>> widened(pa.array([1, None], pa.int32()), pa.int64()).to_pylist()
    [1, None]
    >>> widened(pa.array([0, 2**30], pa.date32()), pa.timestamp("ns")).is_null().to_pylist()
    [False, True]
    """
    if bounds.type == type:
        return bounds
    if not widens(bounds.type, type):
        return pa.nulls(len(bounds), type)
    try:
        return bounds.cast(type)
    except pa.ArrowException:  # a date outside the range of timestamps in nanoseconds
        wrapped = bounds.cast(type, safe=False)
        return pc.if_else(pc.equal(wrapped.cast(bounds.type, safe=False), bounds), wrapped, pa.scalar(None, type))
