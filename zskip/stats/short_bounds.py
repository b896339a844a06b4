"""Truncates long bounds so that they remain bounds: lower ones down, upper ones up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t

_LAST_CODE_POINT, _SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)


def shorten_lower(bounds: pa.Array, length: int) -> tuple[pa.Array, pa.BooleanArray]:
    """Truncate lower bounds to ``length`` characters or bytes; also returns which were truncated.

    >>> shorten_lower(pa.array(["abc", "b"]), 2)[0].to_pylist()
    ['ab', 'b']
    """
    if not (t.is_string(bounds.type) or t.is_binary(bounds.type)):
        return bounds, pa.array(np.zeros(len(bounds), bool))
    cut = pc.fill_null(pc.greater(_length(bounds), length), False)
    return (pc.if_else(cut, _slice(bounds, 0, length), bounds), cut) if pc.any(cut).as_py() else (bounds, cut)


def shorten_upper(bounds: pa.Array, length: int) -> tuple[pa.Array, pa.BooleanArray]:
    """Truncate upper bounds to ``length`` characters or bytes, and round them up; also returns which were truncated.

    The last character kept is replaced with its successor. If it has none, the bound becomes unknown.

    >>> shorten_upper(pa.array(["abc", "b", "a" + chr(0x10FFFF) + "c"]), 2)[0].to_pylist()
    ['ac', 'b', None]
    """
    shorter, cut = shorten_lower(bounds, length)
    if not pc.any(cut).as_py():
        return bounds, cut
    chosen = np.flatnonzero(cut.to_numpy(zero_copy_only=False))
    kept = shorter.take(pa.array(chosen))
    head, last = _slice(kept, 0, length - 1), _slice(kept, length - 1, length)
    successor, exists = (_next_character if t.is_string(bounds.type) else _next_byte)(last)
    empty = pa.scalar("" if t.is_string(bounds.type) else b"", bounds.type)
    raised = pc.if_else(exists, pc.binary_join_element_wise(head, successor, empty), pa.scalar(None, bounds.type))
    return pc.replace_with_mask(bounds, cut, raised), cut


def _length(bounds: pa.Array) -> pa.Array:
    return pc.utf8_length(bounds) if t.is_string(bounds.type) else pc.binary_length(bounds)


def _slice(bounds: pa.Array, start: int, stop: int) -> pa.Array:
    slicer = pc.utf8_slice_codeunits if t.is_string(bounds.type) else pc.binary_slice
    return slicer(bounds, start=start, stop=stop)


def _next_character(last: pa.Array) -> tuple[pa.Array, pa.BooleanArray]:
    points = np.array(last.to_pylist(), dtype="U1").view(np.uint32).astype(np.int64) + 1
    points[points == _SURROGATES[0]] = _SURROGATES[1] + 1
    exists = points <= _LAST_CODE_POINT
    points[~exists] = 0x20
    return pa.array(points.astype(np.uint32).view("U1"), pa.string()), pa.array(exists)


def _next_byte(last: pa.Array) -> tuple[pa.Array, pa.BooleanArray]:
    values = np.array([one[0] for one in last.to_pylist()], np.uint8)
    exists = values < 0xFF
    raised = np.where(exists, values + np.uint8(1), 0).astype(np.uint8)
    offsets = np.arange(len(raised) + 1, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(raised), [None, pa.py_buffer(offsets), pa.py_buffer(raised)]
    ), pa.array(exists)
