"""Offsets of consecutive runs in one flat array, as in Arrow's lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_Counts = NDArray[np.integer] | NDArray[np.bool_] | Sequence[int]


def int64s(values: pa.Int64Array) -> NDArray[np.int64]:
    """The values of an array without nulls, as a view. pyarrow's own conversion imports pandas, if it is installed.

    >>> int64s(pa.array([7, 8, 9])[1:])
    array([8, 9])
    """
    buffer = values.buffers()[1]
    return np.frombuffer(buffer, np.int64, len(values), 8 * values.offset) if len(values) else np.zeros(0, np.int64)


def offsets_of(counts: _Counts) -> NDArray[np.int64]:
    """The start of each of some consecutive runs of given lengths, and the end of the last one.

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(np.asarray(counts, np.int64), out=offsets[1:])
    return offsets


def numbers_of_runs(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The integers in half-open ranges, one range after another.

    >>> numbers_of_runs(np.array([2, 7]), np.array([4, 8])).tolist()
    [2, 3, 7]
    """
    if len(starts) and (starts[1:] == ends[:-1]).all():
        return np.arange(starts[0], ends[-1], dtype=np.int64)
    offsets = offsets_of(ends - starts)
    return np.repeat(starts - offsets[:-1], ends - starts) + np.arange(offsets[-1])
