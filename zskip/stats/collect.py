"""Statistics of rows in memory that are being written: exact bounds, null counts and NaN counts.

Long bounds are truncated so that they remain bounds: lower ones down, upper ones up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.late_loading import pc
from zskip.core.schema import Column, Schema
from zskip.core.types import is_orderable
from zskip.stats.files import ColumnStatistics, FileStatistics

_LAST_CODE_POINT, _SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)


def shorten_lower(bounds: pa.Array, length: int) -> tuple[pa.Array, pa.BooleanArray]:
    """Truncate lower bounds to ``length`` characters or bytes; also returns which were truncated.

    >>> shorten_lower(pa.array(["abc", "b"]), 2)[0].to_pylist()
    ['ab', 'b']
    """
    if not (t.is_string(bounds.type) or t.is_binary(bounds.type)):
        return bounds, pa.array(np.zeros(len(bounds), bool))
    cut = pc.fill_null(pc.greater(_length(bounds), length), False)
    return (pc.if_else(cut, _slice(bounds, 0, length), bounds), cut) if cut.true_count else (bounds, cut)


def shorten_upper(bounds: pa.Array, length: int) -> tuple[pa.Array, pa.BooleanArray]:
    """Truncate upper bounds to ``length`` characters or bytes, and round them up; also returns which were truncated.

    The last character kept is replaced with its successor. If it has none, the bound becomes unknown.

    >>> shorten_upper(pa.array(["abc", "b", "a" + chr(0x10FFFF) + "c"]), 2)[0].to_pylist()
    ['ac', 'b', None]
    """
    shorter, cut = shorten_lower(bounds, length)
    if not cut.true_count:
        return bounds, cut
    chosen = np.flatnonzero(cut.to_numpy(zero_copy_only=False))
    kept = shorter.take(pa.array(chosen))
    head, last = _slice(kept, 0, length - 1), _slice(kept, length - 1, length)
    successor, exists = (_next_character if t.is_string(bounds.type) else _next_byte)(last)
    empty = pa.scalar("" if t.is_string(bounds.type) else b"", bounds.type)
    raised = pc.if_else(exists, pc.binary_join_element_wise(head, successor, empty), pa.scalar(None, bounds.type))
    return pc.replace_with_mask(bounds, cut, raised), cut


def shortened(column: ColumnStatistics, length: int) -> ColumnStatistics:
    """The statistics with longer bounds truncated to ``length`` characters or bytes; these are then inexact."""
    if not (t.is_string(column.lower.type) or t.is_binary(column.lower.type)):
        return column
    lower, lower_cut = shorten_lower(column.lower, length)
    upper, upper_cut = shorten_upper(column.upper, length)
    return replace(
        column,
        lower=lower,
        upper=upper,
        lower_exact=pc.and_kleene(column.lower_exact, pc.invert(lower_cut)),
        upper_exact=pc.and_kleene(column.upper_exact, pc.invert(upper_cut)),
    )


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


LONGEST_BOUND = 256
"""A bound of more characters or bytes than this is cut, the upper one upwards, and is then not called exact."""


def row_groups(rows: pa.Table, cuts: np.ndarray, schema: Schema) -> FileStatistics:
    """The statistics of slices of rows: unit i is ``rows[cuts[i]:cuts[i + 1]]``.

    Columns of the schema that ``rows`` lacks stay unknown; columns without an order get their null counts.

    >>> rows = pa.table({"x": [3, None, 5, 7]})
    >>> units = row_groups(rows, np.array([0, 2, 4]), Schema(rows.schema))
    >>> units.columns["x"].lower.to_pylist(), units.columns["x"].null_count.to_pylist()
    ([3, 5], [1, 0])
    """
    present = set(rows.column_names)
    columns = {column.path: _of_slices(column, rows, cuts) for column in schema if column.parts[0] in present}
    return FileStatistics(pa.array(np.diff(cuts), pa.int64()), columns)


def _of_slices(column: Column, rows: pa.Table, cuts: np.ndarray) -> ColumnStatistics:
    values = column.encoded(rows)
    if t.is_dictionary(values.type) and (
        t.is_floating(column.type) or any(chunk.dictionary.null_count for chunk in values.chunks)
    ):
        values = values.cast(column.type)  # NaN and null in the dictionary, which the indices do not mark
    if (fixed := _bounds_of_slices(values, cuts)) is not None:
        zeros, exact = pa.array(np.zeros(len(cuts) - 1, np.int64)), pa.repeat(True, len(cuts) - 1)
        return ColumnStatistics(*fixed, zeros, zeros, exact, exact)
    bounds = list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
    slices = [values.slice(start, end - start) for start, end in bounds]
    null_count = pa.array([part.null_count for part in slices], pa.int64())
    if not is_orderable(column.type):
        unknown = ColumnStatistics.unknown(column.type, len(slices))
        return ColumnStatistics(
            unknown.lower, unknown.upper, null_count, unknown.nan_count, unknown.lower_exact, unknown.upper_exact
        )
    if t.is_floating(column.type):
        nan_count = pa.array([pc.sum(pc.is_nan(part), min_count=0).as_py() for part in slices], pa.int64())
    else:
        nan_count = pa.array(np.zeros(len(slices), np.int64))
    ends = [ends_of(part) for part in slices]
    lower, upper = (of_scalars([each[side] for each in ends], column.type) for side in (0, 1))
    exact = pc.if_else(pc.is_valid(lower), True, None)
    return shortened(ColumnStatistics(lower, upper, null_count, nan_count, exact, exact), LONGEST_BOUND)


def _bounds_of_slices(values: pa.ChunkedArray, cuts: np.ndarray) -> tuple[pa.Array, pa.Array] | None:
    """The bounds of all slices at once, for integers, times and floats without NULL and NaN; None for other values."""
    floats = t.is_floating(values.type)
    stored = values.type if floats or t.is_integer(values.type) else t.ticks(values.type)
    if stored is None or t.is_dictionary(values.type) or values.null_count or not (np.diff(cuts) > 0).all():
        return None
    numbers = pa.chunked_array([chunk.view(stored) for chunk in values.chunks], stored).to_numpy()[: cuts[-1]]
    lower, upper = np.minimum.reduceat(numbers, cuts[:-1]), np.maximum.reduceat(numbers, cuts[:-1])
    if floats and np.isnan(upper).any():
        return None
    return pa.array(lower, stored).view(values.type), pa.array(upper, stored).view(values.type)


def ends_of(values: pa.Array | pa.ChunkedArray) -> tuple[pa.Scalar, pa.Scalar]:
    """The least and the greatest value that is neither null nor NaN; null scalars if there is none."""
    if t.is_dictionary(values.type):
        plain = pa.bool_() if values.num_chunks == 0 else values.type.value_type
        used = [chunk.dictionary.take(chunk.indices.unique().drop_null()) for chunk in values.chunks]
        return ends_of(pa.chunked_array(used, plain))
    if t.is_duration(values.type):
        # Arrow's kernels do not compare durations; their integers have the same order.
        ticks = pc.min_max(values.cast(pa.int64()))
        return ticks["min"].cast(values.type), ticks["max"].cast(values.type)
    if t.is_decimal64(values.type):
        # Nor do they compare narrow decimals, whose unscaled integers have the same order.
        unscaled = pc.min_max(pa.chunked_array([chunk.view(pa.int64()) for chunk in values.chunks], pa.int64()))
        lower, upper = (pa.array([unscaled[end].as_py()], pa.int64()).view(values.type)[0] for end in ("min", "max"))
        return lower, upper
    ends = pc.min_max(values)
    lower, upper = ends["min"], ends["max"]
    if t.is_floating(values.type) and lower.is_valid and math.isnan(lower.as_py()):
        return pa.scalar(None, values.type), pa.scalar(None, values.type)
    return lower, upper


def of_scalars(bounds: Sequence[pa.Scalar], type: pa.DataType) -> pa.Array:
    """Scalars as an array. Not by Python's values: decimals of other writers may have more digits than their type."""
    return pa.concat_arrays(
        [pa.nulls(0, type), *(pa.repeat(one, 1).cast(type) if one.is_valid else pa.nulls(1, type) for one in bounds)]
    )
