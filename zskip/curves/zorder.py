"""The Z-order key: the coordinates' bits interleaved, the most significant first (Morton 1966).

x = 3    0   1   1
y = 6     1   1   0
key      0 1 1 1 1 0   = 30
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zskip.errors import InvalidOption

MAX_KEY_BITS = 1024
_ROWS_AT_ONCE = 1 << 16

Keys = NDArray[np.uint64] | NDArray[np.bytes_]


def interleave(coordinates: Sequence[ArrayLike], bits: int) -> Keys:
    """The Z-order keys of some points.

    ``coordinates``: one array per column, all of one length, each value below ``2**bits``; among bits of equal
    significance, the first column's comes first. Returns ``uint64`` keys up to 64 bits, else byte strings. Raises
    `InvalidOption`.

    >>> [int(key) for key in interleave(([3, 7, 2], [6, 3, 3]), bits=3)]
    [30, 47, 13]
    """
    columns = coordinates_of(coordinates, bits)
    if len(columns) * bits > 64:
        return _interleave_bytes(columns, bits)
    chunk = 16 if len(columns) <= 4 else 8
    table = _spread(len(columns), chunk)
    keys = np.zeros(len(columns[0]), np.uint64)
    for offset, column in enumerate(reversed(columns)):
        for low in range(0, bits, chunk):
            part = table[(column >> np.uint64(low)) & np.uint64(len(table) - 1)]
            keys |= part << np.uint64(low * len(columns) + offset)
    return keys


def deinterleave(keys: ArrayLike, columns: int, bits: int) -> list[NDArray[np.uint64]]:
    """The points that have these Z-order keys: the inverse of `interleave`.

    >>> [int(column[0]) for column in deinterleave([0b1011011000101001], columns=2, bits=8)]
    [214, 97]
    """
    require_key_shape(columns, bits)
    if columns * bits > 64:
        return _deinterleave_bytes(np.asarray(keys, f"S{-(-columns * bits // 8)}"), columns, bits)
    whole = np.asarray(keys, np.uint64)
    width = max(1, 16 // columns)
    tables = _gather(columns, width) if columns <= 16 else None
    coordinates = [np.zeros(len(whole), np.uint64) for _ in range(columns)]
    for low in range(0, bits, width):
        part = whole >> np.uint64(low * columns)
        for offset, column in enumerate(reversed(coordinates)):
            if tables is None:
                column |= ((part >> np.uint64(offset)) & np.uint64(1)) << np.uint64(low)
            else:
                column |= tables[offset][part & np.uint64(len(tables[offset]) - 1)] << np.uint64(low)
    return [column & np.uint64((1 << bits) - 1) for column in coordinates]


def coordinates_of(coordinates: Sequence[ArrayLike], bits: int) -> list[NDArray[np.uint64]]:
    """The columns as ``uint64``. Raises `InvalidOption` if their lengths differ or a value needs more than ``bits``."""
    require_key_shape(len(coordinates), bits)
    arrays = [np.asarray(column) for column in coordinates]
    for array in arrays:
        if array.ndim != 1 or len(array) != len(arrays[0]):
            raise InvalidOption("Coordinates are one-dimensional arrays, all of one length.")
        if len(array) and (array.dtype.kind not in "uib" or int(array.min()) < 0 or int(array.max()) >> bits):
            raise InvalidOption(f"Each coordinate is an integer from 0 to 2**{bits} - 1.")
    return [array.astype(np.uint64) for array in arrays]


def require_key_shape(columns: int, bits: int) -> None:
    """Raise `InvalidOption` unless a key can have this many columns and bits."""
    if columns < 1 or not 1 <= bits <= 64 or columns * bits > MAX_KEY_BITS:
        raise InvalidOption(
            f"{columns} columns of {bits} bits: a key takes at least one column, 1 to 64 bits each, "
            f"and at most {MAX_KEY_BITS} bits in all."
        )


@cache
def _spread(columns: int, chunk: int) -> NDArray[np.uint64]:
    """A look-up table that moves bit i of a number to bit i * columns, up to bit 63."""
    values = np.arange(1 << chunk, dtype=np.uint64)
    spread = np.zeros_like(values)
    for bit in range(chunk):
        if bit * columns < 64:
            spread |= ((values >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * columns)
    return spread


@cache
def _gather(columns: int, width: int) -> list[NDArray[np.uint64]]:
    """For each offset, a look-up table that collects the bits offset, offset + columns, … of a number."""
    values = np.arange(1 << (width * columns), dtype=np.uint64)
    tables = []
    for offset in range(columns):
        table = np.zeros_like(values)
        for bit in range(width):
            table |= ((values >> np.uint64(bit * columns + offset)) & np.uint64(1)) << np.uint64(bit)
        tables.append(table)
    return tables


def _interleave_bytes(columns: Sequence[NDArray[np.uint64]], bits: int) -> NDArray[np.bytes_]:
    total, rows = len(columns) * bits, len(columns[0])
    width = -(-total // 8)
    keys = np.zeros((rows, width), np.uint8)
    for start in range(0, rows, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, rows)
        planes = np.zeros((stop - start, width * 8), np.uint8)
        for offset, column in enumerate(columns):
            big_endian = column[start:stop].astype(">u8").view(np.uint8).reshape(-1, 8)
            planes[:, width * 8 - total + offset :: len(columns)] = np.unpackbits(big_endian, axis=1)[:, 64 - bits :]
        keys[start:stop] = np.packbits(planes, axis=1)
    return keys.view(f"S{width}").reshape(rows)


def _deinterleave_bytes(keys: NDArray[np.bytes_], columns: int, bits: int) -> list[NDArray[np.uint64]]:
    total, width, rows = columns * bits, keys.dtype.itemsize, len(keys)
    raw = np.ascontiguousarray(keys).view(np.uint8).reshape(rows, width)
    coordinates = [np.empty(rows, np.uint64) for _ in range(columns)]
    for start in range(0, rows, _ROWS_AT_ONCE):
        planes = np.unpackbits(raw[start : start + _ROWS_AT_ONCE], axis=1)
        for offset, column in enumerate(coordinates):
            padded = np.zeros((len(planes), 64), np.uint8)
            padded[:, 64 - bits :] = planes[:, width * 8 - total + offset :: columns]
            column[start : start + len(planes)] = np.packbits(padded, axis=1).view(">u8").reshape(-1)
    return coordinates


# Z-order comparison without a key: the column that differs at the most significant bit decides (Chan 2002).


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
