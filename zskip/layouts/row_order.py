"""The order of rows inside a file: it continues the layout down to row groups, and to pages within them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.layouts.reads import whole_slabs
from zskip.stats.keys import Boundaries, dense_codes, order_bits

_PAGE_ROWS = 16384
_MEASURED_ROWS = 4096


def arrange(
    columns: Sequence[pa.ChunkedArray],
    quantiles: Sequence[Boundaries],
    weights: NDArray[np.float64],
    row_group_rows: int,
    *,
    linear: bool,
) -> NDArray[np.int64]:
    """The row numbers of one file in an order in which each run of ``row_group_rows`` rows covers a small box.

    Sort-tile-recursive (Leutenegger 1997), with the number of slabs chosen by the cost of their extents: first slabs
    of whole row groups, then of pages inside each row group. ``linear``: sort by the columns instead.
    """
    rows = len(columns[0])
    if linear:
        return np.lexsort([dense_codes(column)[0] for column in reversed(columns)]).astype(np.int64)
    if rows <= min(row_group_rows, _PAGE_ROWS):
        return np.arange(rows)
    tiles = _Tiles.of(columns, quantiles, weights)
    order = np.arange(rows)
    for unit in (row_group_rows, min(row_group_rows, _PAGE_ROWS)):
        start = 0
        while start < rows:
            # The first pass cuts the file into row groups, the second each row group into pages.
            stop = rows if unit == row_group_rows else min(start + row_group_rows, rows)
            order[start:stop] = tiles.cut(order[start:stop], unit)
            start = stop
    return order


class SlabLevel(NamedTuple):
    """One level of sort-tile-recursive in a file: for each unit, such as a row group, the node that holds it.

    ``first``: the first unit of that node · ``column``: the column along which the node is cut. The node's rows,
    sorted by this column, fill its units one after the other.
    """

    first: NDArray[np.int32]
    column: NDArray[np.int32]


def slabs(
    columns: Sequence[pa.ChunkedArray], quantiles: Sequence[Boundaries], weights: NDArray[np.float64], units: int
) -> list[SlabLevel]:
    """The levels of cuts by which `arrange` divides a file into ``units``, estimated from a sample of its rows.

    They are for engines that sort by themselves.
    """
    if not len(columns[0]):
        return [SlabLevel(np.zeros(units, np.int32), np.zeros(units, np.int32))] if units > 1 else []
    tiles = _Tiles.of(columns, quantiles, weights)
    nodes = [(0, units, np.arange(len(columns[0])))]
    levels: list[SlabLevel] = []
    while any(count > 1 for _, count, _ in nodes):
        # A node of one unit is not cut any further and keeps the column of the level before.
        level = SlabLevel(
            np.arange(units, dtype=np.int32), levels[-1].column.copy() if levels else np.zeros(units, np.int32)
        )
        below = []
        for first, count, rows in nodes:
            if count <= 1:
                continue
            column, widths = tiles.slabs(rows, count)
            level.first[first : first + count] = first
            level.column[first : first + count] = column
            ends = np.cumsum(widths)[:-1]
            parts = [rows] * len(widths)  # too few rows to divide: all slabs are cut alike
            if len(rows) > count:
                cuts = ends * len(rows) // count
                parts = np.split(tiles.partition(column, rows, cuts), cuts)
            below += list(zip((first + np.append(0, ends)).tolist(), widths.tolist(), parts, strict=True))
        levels.append(level)
        nodes = below
    return levels


class _Tiles:
    """The rows of a file as order-preserving bits of each column, and codes of a subset by which extents are measured.

    ``step``: the subset is every ``step``-th row · ``weights``: the cost of each column's whole extent.
    """

    def __init__(
        self, values: list[NDArray[np.uint64]], codes: NDArray[np.int64], step: int, weights: NDArray[np.float64]
    ) -> None:
        self.values = values
        self.leading = [_leading_bits(value) for value in values]
        self.codes = codes
        self.step = step
        self.measured = np.zeros(len(values[0]), bool)
        self.measured[::step] = True
        self.weights = weights
        # The average share of measured rows that equal a given row in a column: no slab is thinner than this.
        self.least = np.array([(np.bincount(code) ** 2).sum() / max(1, len(code)) ** 2 for code in codes])
        self.scale = codes.max(axis=1, initial=0) + 1.0

    @staticmethod
    def of(columns: Sequence[pa.ChunkedArray], quantiles: Sequence[Boundaries], weights: NDArray[np.float64]) -> _Tiles:
        rows = len(columns[0])
        step = max(1, rows // _MEASURED_ROWS)
        values = [order_bits(column) for column in columns]
        codes = [np.unique(value[::step], return_inverse=True)[1].reshape(-1) for value in values]
        # The cost of a column's whole extent in this file: its weight times the share of the table that it spans.
        spans = []
        for column, edges in zip(columns, quantiles, strict=True):
            code = edges.codes(column.take(pa.array(np.arange(0, rows, step))))
            code = code[code > 0]
            spans.append((int(code.max()) - int(code.min()) + 1) / (len(edges) + 1) if len(code) else 0.0)
        return _Tiles(values, np.array(codes, np.int64).reshape(len(columns), -1), step, weights * np.array(spans))

    def cut(self, rows: NDArray[np.int64], unit: int) -> NDArray[np.int64]:
        """These rows in an order in which each run of ``unit`` rows covers a small box."""
        units = -(-len(rows) // unit)
        if units <= 1:
            return rows
        column, widths = self.slabs(rows, units)
        ends = np.cumsum(widths)[:-1] * unit
        rows = self.partition(column, rows, ends)
        return np.concatenate([self.cut(slab, unit) for slab in np.split(rows, ends)])

    def slabs(self, rows: NDArray[np.int64], units: int) -> tuple[int, NDArray[np.int64]]:
        """The column along which to cut rows that fill ``units``, and the number of units of each slab."""
        measured = rows[self.measured[rows]] // self.step
        codes = self.codes[:, measured] if len(measured) else self.codes
        extents = (codes.max(axis=1, initial=0) - codes.min(axis=1, initial=len(self.measured)) + 1) / self.scale
        slabs = whole_slabs(extents, self.weights, units, np.minimum(self.least, extents))
        column = int(slabs.argmax())
        # Slabs hold whole units; the first slabs get one more each where the units do not divide evenly.
        number = int(min(max(2, round(slabs[column])), units))
        return column, np.array([units // number + (slab < units % number) for slab in range(number)])

    def partition(self, column: int, rows: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """These rows in an order in which no value before one of ``ends`` is greater than any value after it.

        It sorts by the leading bits, and compares all bits only around the ends. `numpy.argpartition` alone is as fast,
        but leaves the rows of a slab in no order, and files some 5 % larger.
        """
        leading = self.leading[column][rows]
        order = np.argsort(leading, kind="stable")  # numpy sorts 16-bit numbers by radix, in linear time
        rows, leading = rows[order], leading[order]
        edges = np.unique(leading[ends])
        starts, stops = np.searchsorted(leading, edges), np.searchsorted(leading, edges, side="right")
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            inside = rows[start:stop]
            inner = ends[(ends >= start) & (ends < stop)] - start
            rows[start:stop] = inside[np.argpartition(self.values[column][inside], inner)]
        return rows


def _leading_bits(values: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """The values' distances from the least one, shifted to sixteen bits, which preserves their order."""
    if not len(values):
        return np.empty(0, np.uint16)
    distances = values - values.min()
    distances >>= np.uint64(max(0, int(distances.max()).bit_length() - 16))
    leading: NDArray[np.uint16] = distances.astype(np.uint16)
    return leading
