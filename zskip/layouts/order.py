"""The order inside a file: the layout goes on, down to row groups, and to pages within them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.keys import Boundaries, dense_codes, order_bits
from zskip.layouts.reads import whole_slabs

__all__ = ["arrange"]

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
    """The rows of one file in an order in which each ``row_group_rows`` neighbours lie in a small box.

    Sort-tile-recursive (Leutenegger 1997), the number of slabs chosen by what their extents cost: slabs of whole row
    groups first, then of pages inside a row group. A linear layout is sorted.
    """
    rows = len(columns[0])
    if linear:
        return np.lexsort([dense_codes(column)[0] for column in reversed(columns)]).astype(np.int64)
    tiles = _Tiles.of(columns, quantiles, weights)
    order = np.arange(rows)
    for unit in (row_group_rows, min(row_group_rows, _PAGE_ROWS)):
        start = 0
        while start < rows:
            # the row groups are cut out of the whole file, the pages out of each row group
            stop = rows if unit == row_group_rows else min(start + row_group_rows, rows)
            order[start:stop] = tiles.cut(order[start:stop], unit)
            start = stop
    return order


class _Tiles:
    """The rows of a file by numbers that keep each column's order, and codes of some of them to measure extents by."""

    def __init__(
        self, values: list[NDArray[np.uint64]], codes: NDArray[np.int64], step: int, weights: NDArray[np.float64]
    ) -> None:
        self.values = values
        self.codes = codes
        self.step = step
        self.weights = weights
        # the share of the measured rows that equal a row in a column, on average: no slab gets thinner than that
        self.least = np.array([(np.bincount(code) ** 2).sum() / max(1, len(code)) ** 2 for code in codes])
        self.scale = codes.max(axis=1, initial=0) + 1.0

    @staticmethod
    def of(columns: Sequence[pa.ChunkedArray], quantiles: Sequence[Boundaries], weights: NDArray[np.float64]) -> _Tiles:
        rows = len(columns[0])
        step = max(1, rows // _MEASURED_ROWS)
        values = [order_bits(column, after_prefix=True) for column in columns]
        codes = [np.unique(value[::step], return_inverse=True)[1].reshape(-1) for value in values]
        # what a column's whole extent in this file costs: its weight, times the share of the table that it spans
        spans = []
        for column, edges in zip(columns, quantiles, strict=True):
            code = edges.codes(column.take(pa.array(np.arange(0, rows, step))))
            code = code[code > 0]
            spans.append((int(code.max()) - int(code.min()) + 1) / (len(edges) + 1) if len(code) else 0.0)
        return _Tiles(values, np.array(codes, np.int64).reshape(len(columns), -1), step, weights * np.array(spans))

    def cut(self, rows: NDArray[np.int64], unit: int) -> NDArray[np.int64]:
        """The rows in an order whose every ``unit`` neighbours lie in a small box."""
        units = -(-len(rows) // unit)
        if units <= 1:
            return rows
        # a row that was measured has a number that the step divides
        measured = rows[rows % self.step == 0] // self.step
        part = self.codes[:, measured] if len(measured) else self.codes
        extents = (part.max(axis=1) - part.min(axis=1) + 1) / self.scale
        slabs = whole_slabs(extents, self.weights, units, np.minimum(self.least, extents))
        column = int(slabs.argmax())
        # slabs of whole units; the first of them get one more where they do not share evenly
        number = int(min(max(2, round(slabs[column])), units))
        ends = np.cumsum([units // number + (slab < units % number) for slab in range(number)])[:-1] * unit
        values = self.values[column][rows]
        rows = rows[np.argpartition(values, ends)]
        return np.concatenate([self.cut(slab, unit) for slab in np.split(rows, ends)])
