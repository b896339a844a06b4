"""Z-order comparison without a key: the column that differs at the most significant bit decides (Chan 2002)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["z_argsort", "z_less"]


def z_less(left: Sequence[ArrayLike], right: Sequence[ArrayLike]) -> NDArray[np.bool_]:
    """Whether each left point comes before its right point on the Z-curve. Columns hold unsigned integers of any width.

    The column whose coordinates differ at the most significant bit decides; the first one, where several do.

    >>> z_less(([3, 7], [6, 3]), ([7, 3], [3, 6])).tolist()
    [True, False]
    """
    pairs = [(np.asarray(a, np.uint64), np.asarray(b, np.uint64)) for a, b in zip(left, right, strict=True)]
    shape = np.broadcast_shapes(*(array.shape for pair in pairs for array in pair))
    highest = np.zeros(shape, np.uint64)
    less = np.zeros(shape, bool)
    for a, b in pairs:
        difference = a ^ b
        # Chan's test of whether the most significant bit of `highest` is below that of `difference`.
        decides = (highest < difference) & (highest < (highest ^ difference))
        highest = np.where(decides, difference, highest)
        less = np.where(decides, a < b, less)
    return less


def z_argsort(coordinates: Sequence[ArrayLike]) -> NDArray[np.int64]:
    """The stable order of some points along the Z-curve: row numbers, from a merge sort vectorised over each pass.

    Takes any number of columns of up to 64 bits each, since it compares by `z_less` and builds no key.
    """
    columns = [np.asarray(column, np.uint64) for column in coordinates]
    rows = len(columns[0])
    order = np.arange(rows, dtype=np.int64)
    width = 1
    while width < rows:
        order = _merge_pass(columns, order, width)
        width *= 2
    return order


def _merge_pass(columns: Sequence[NDArray[np.uint64]], order: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    # A row's position in the merged run is its position in its own half plus the number of rows of the other half
    # that precede it. A binary search finds that number, for all rows at once.
    rows = len(order)
    position = np.arange(rows)
    run = position // (2 * width) * (2 * width)
    upper = position - run >= width
    low = np.where(upper, run, np.minimum(run + width, rows))
    start, high = low.copy(), np.where(upper, run + width, np.minimum(run + 2 * width, rows))
    rows_in_order = [column[order] for column in columns]
    while (searching := low < high).any():
        middle = np.where(searching, (low + high) // 2, 0)
        others = [column[middle] for column in rows_in_order]
        # The sort is stable: of equal rows, those of the lower half come first.
        before = np.where(upper, ~z_less(rows_in_order, others), z_less(others, rows_in_order))
        low = np.where(searching & before, middle + 1, low)
        high = np.where(searching & ~before, middle, high)
    merged = np.empty_like(order)
    merged[np.where(upper, position - width, position) + (low - start)] = order
    return merged
