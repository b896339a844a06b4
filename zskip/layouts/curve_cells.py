"""Cells that are prefixes of a curve's key: Z-order, Hilbert, and linear order, whose key is the columns themselves.

A prefix of a key over quantile ranks is a box with dyadic boundaries, so these layouts too are trees of thresholds.
Each bit of the key halves one column; the curve determines which column, and which half comes first. No key is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from zskip.curves import Orientation
from zskip.layouts.cells import Cells, Split, grow
from zskip.layouts.sample import Sample

_MOST_HALVINGS = 50


def zorder_cells(sample: Sample, cell_rows: float) -> Cells:
    """Prefixes of the Z-order key, extended until each holds at most ``cell_rows`` sampled rows or a single point."""
    return _curve_cells(sample, cell_rows, lambda orientation, digit: orientation)


def hilbert_cells(sample: Sample, cell_rows: float) -> Cells:
    """Prefixes of the Hilbert key; see `zorder_cells`."""
    return _curve_cells(sample, cell_rows, Orientation.below)


def linear_cells(sample: Sample, cell_rows: float) -> Cells:
    """Runs of the rows in lexicographic order; where possible, equal values of a column share a cell."""

    def rule(rows: NDArray[np.intp], _: None) -> Split | None:
        if len(rows) <= cell_rows:
            return None
        for column, codes in enumerate(sample.codes):
            ordered = np.sort(codes[rows])
            if ordered[0] == ordered[-1]:
                continue
            middle = ordered[len(ordered) // 2]
            starts, ends = np.searchsorted(ordered, middle), np.searchsorted(ordered, middle, side="right")
            # Cut before or after the median value, whichever is nearer to an even cut and leaves rows on both sides.
            at_start = starts and (len(ordered) - ends < starts or ends == len(ordered))
            threshold = middle if at_start else ordered[ends]
            return Split(column, int(threshold), False, None, None)
        return None

    return grow(sample, rule, None)


@dataclass(frozen=True, slots=True)
class _Prefix:
    """A prefix of the key: its box of quantile ranks, the curve's orientation in it, and the bits of its last,
    incomplete digit."""

    box: tuple[tuple[float, float], ...]
    orientation: Orientation
    digit: tuple[int, ...] = ()

    def halved(self, column: int, upper: bool, key_bit: int, below: Callable[..., Orientation]) -> _Prefix:
        """The prefix with one more bit, which halves ``column``. ``below``: gives the orientation in a sub-cube."""
        low, high = self.box[column]
        middle = (low + high) / 2
        box = (*self.box[:column], (middle, high) if upper else (low, middle), *self.box[column + 1 :])
        digit = (*self.digit, key_bit)
        if len(digit) < len(box):
            return replace(self, box=box, digit=digit)
        return _Prefix(box, below(self.orientation, digit))


def _curve_cells(sample: Sample, cell_rows: float, below: Callable[..., Orientation]) -> Cells:
    columns = len(sample.columns)
    ranks = [sample.ranks(column) for column in range(columns)]
    hilbert = below is Orientation.below

    def rule(rows: NDArray[np.intp], prefix: _Prefix) -> Split | None:
        if len(rows) <= cell_rows:
            return None
        lowest = [int(codes[rows].min()) for codes in sample.codes]
        highest = [int(codes[rows].max()) for codes in sample.codes]
        if lowest == highest:
            return None
        for _ in range(_MOST_HALVINGS * columns):
            position = len(prefix.digit)
            column = prefix.orientation.axes[position]
            upper_first = hilbert and prefix.orientation.upper_first(position, prefix.digit[-1] if position else 0)
            threshold = int(np.searchsorted(ranks[column], sum(prefix.box[column]) / 2))
            if lowest[column] < threshold <= highest[column]:
                down = prefix.halved(column, False, int(upper_first), below)
                up = prefix.halved(column, True, int(not upper_first), below)
                return Split(column, threshold, upper_first, down, up)
            upper = threshold <= lowest[column]  # all rows lie in one half
            prefix = prefix.halved(column, upper, int(upper != upper_first), below)
        return None

    return grow(sample, rule, _Prefix(((0.0, 1.0),) * columns, Orientation.first(columns)))
