"""Tree: split each cell where that saves the most reading; planned cuts group the leaves into files.

All cells of a level are split at once, so the work is per column and level, not per cell. The rows of the open cells
are sorted by cell and by one column at a time; a candidate lies between each two neighbouring segments of a cell:

    cell         0              |  1                |  2
    rows         3  7  0  5  1  9  2  8  6  4  …
    segments     [  )[    )[    |  [     )[         |  [  …
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zskip.layouts.cells import Cells, OpenCells, grow_levels
from zskip.layouts.reads import Reads
from zskip.layouts.sample import Boxes, Sample

__all__ = ["tree_cells"]

_PLACES = 16
_LITERALS = 64
_ROWS_AT_ONCE = 1 << 16
_BOXES_AT_ONCE = 1 << 13


def tree_cells(
    sample: Sample,
    cell_rows: float,
    reads: Reads,
    borders: Sequence[NDArray[np.int32]] | None = None,
    row_weights: NDArray[np.float64] | None = None,
) -> Cells:
    """Split greedily until each cell holds at most ``cell_rows`` sampled rows, or is a single point.

    Candidates are the value borders nearest to sixteen even positions in each column, and the literals of a workload
    (``borders``: their codes, for each column). The chosen split leaves the least to read in its two sides;
    ``row_weights``: the weight of each row, 1 by default.
    """

    def rule(level: OpenCells) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        column, threshold = np.full(len(level), -1, np.int32), np.zeros(len(level), np.int32)
        for some in _blocks(level.sizes, cell_rows):
            column[some], threshold[some] = _best_splits(sample, reads, level.take(some), borders, row_weights)
        return column, threshold

    return grow_levels(sample, rule)


def _blocks(sizes: NDArray[np.int64], cell_rows: float) -> Iterator[NDArray[np.intp]]:
    """The cells that are still too large, some at a time, which bounds the memory for their rows."""
    large = np.flatnonzero(sizes > cell_rows)
    if len(large):
        block = np.cumsum(sizes[large]) // _ROWS_AT_ONCE
        yield from np.split(large, np.flatnonzero(np.diff(block)) + 1)


class _Candidates(NamedTuple):
    """Candidate splits: the cell of each, its column and threshold, the weight of the rows before it and after it,
    and the boxes of these rows."""

    cell: NDArray[np.int64]
    column: NDArray[np.int32]
    threshold: NDArray[np.int32]
    before: NDArray[np.float64]
    after: NDArray[np.float64]
    below: Boxes
    above: Boxes


def _best_splits(
    sample: Sample,
    reads: Reads,
    cells: OpenCells,
    borders: Sequence[NDArray[np.int32]] | None,
    row_weights: NDArray[np.float64] | None,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The column and threshold of each cell's best split; the column -1 where no threshold divides the cell."""
    found = [
        _candidates(sample, cells, c, borders[c] if borders else None, row_weights) for c in range(len(sample.columns))
    ]
    column, threshold = np.full(len(cells), -1, np.int32), np.zeros(len(cells), np.int32)
    cell, before, after = (
        np.concatenate([getattr(each, name) for each in found]) for name in ("cell", "before", "after")
    )
    read = np.concatenate(
        [_read(reads, side) for sides in ([c.below for c in found], [c.above for c in found]) for side in sides]
    ).reshape(2, -1)
    cost = before * read[0] + after * read[1]
    ranked = np.lexsort((cost, cell))
    split, first = np.unique(cell[ranked], return_index=True)
    best = ranked[first]
    column[split] = np.concatenate([each.column for each in found])[best]
    threshold[split] = np.concatenate([each.threshold for each in found])[best]
    return column, threshold


def _read(reads: Reads, boxes: Boxes) -> NDArray[np.float64]:
    starts = range(0, len(boxes), _BOXES_AT_ONCE)
    some = [slice(start, start + _BOXES_AT_ONCE) for start in starts]
    return np.concatenate([np.empty(0), *(reads(Boxes(boxes.lower[s], boxes.upper[s])) for s in some)])


def _candidates(
    sample: Sample,
    cells: OpenCells,
    column: int,
    borders: NDArray[np.int32] | None,
    row_weights: NDArray[np.float64] | None,
) -> _Candidates:
    """The value borders near even positions of a column in each cell, and the literals within each cell."""
    codes = len(sample.distinct[column]) + 2
    owner = np.repeat(np.arange(len(cells)), cells.sizes)
    # The key sorts the rows by cell, then by code.
    key = owner * codes + sample.codes[column][cells.rows]
    order = np.argsort(key, kind="stable")
    key, ends = key[order], np.cumsum(cells.sizes)
    starts = ends - cells.sizes
    middle = key[starts[:, None] + np.arange(1, _PLACES) * cells.sizes[:, None] // _PLACES].reshape(-1)
    places = [np.searchsorted(key, middle), np.searchsorted(key, middle, side="right")]
    if borders is not None:
        places.append(np.searchsorted(key, _literals(borders, key[starts], key[ends - 1], codes)))
    inside = np.zeros(len(key) + 1, bool)
    inside[np.concatenate(places)] = True
    inside[starts] = False
    inside[-1] = False
    cuts = np.flatnonzero(inside)
    cell = key[cuts] // codes
    below, above = _sides(sample, cells.rows[order], starts, cuts, cell)
    threshold = (key[cuts] - cell * codes).astype(np.int32)
    rows = cells.rows[order]
    reach = np.arange(len(rows) + 1) if row_weights is None else np.append(0.0, np.cumsum(row_weights[rows]))
    before, after = reach[cuts] - reach[starts[cell]], reach[ends[cell]] - reach[cuts]
    columns = np.full(len(cuts), column, np.int32)
    return _Candidates(cell, columns, threshold, before, after, below, above)


def _literals(
    borders: NDArray[np.int32], least: NDArray[np.int64], most: NDArray[np.int64], codes: int
) -> NDArray[np.int64]:
    """The keys of the literals within each cell; an even selection where there are many."""
    cell = least // codes
    first = np.searchsorted(borders, least - cell * codes, side="right")
    count = np.searchsorted(borders, most - cell * codes, side="right") - first
    step = np.maximum(1, count // _LITERALS)
    taken = -(-count // step)
    number = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
    keys: NDArray[np.int64] = borders[np.repeat(first, taken) + number * np.repeat(step, taken)] + np.repeat(
        cell * codes, taken
    )
    return keys


def _sides(
    sample: Sample,
    order: NDArray[np.intp],
    starts: NDArray[np.int64],
    cuts: NDArray[np.int64],
    cell: NDArray[np.int64],
) -> tuple[Boxes, Boxes]:
    """The boxes of the rows before each cut and after it. ``cell``: the cell of each cut."""
    counts = np.bincount(cell, minlength=len(starts))
    before_cell = np.cumsum(counts) - counts
    # Each cell's segments fill one row of a padded matrix; unused slots hold empty boxes.
    width = int(counts.max(initial=0)) + 1
    place = np.arange(len(cuts)) - before_cell[cell]
    segments = np.concatenate([starts, cuts])
    slots = np.concatenate([np.arange(len(starts)) * width, cell * width + place + 1])
    ordered = np.argsort(segments)
    segments, slots = segments[ordered], slots[ordered]
    at = cell * width + place
    below, above = (Boxes(*np.empty((2, len(cuts), len(sample.columns)), np.int32)) for _ in range(2))
    for number, (low, high) in enumerate(zip(sample.low, sample.codes, strict=True)):
        least = np.full(len(starts) * width, len(sample.distinct[number]) + 1, np.int32)
        most = np.zeros(len(starts) * width, np.int32)
        high = high[order]
        least[slots] = np.minimum.reduceat(low[order] if low is not sample.codes[number] else high, segments)
        most[slots] = np.maximum.reduceat(high, segments)
        lower, upper = least.reshape(-1, width), most.reshape(-1, width)
        below.lower[:, number] = np.minimum.accumulate(lower, axis=1).reshape(-1)[at]
        below.upper[:, number] = np.maximum.accumulate(upper, axis=1).reshape(-1)[at]
        above.lower[:, number] = np.minimum.accumulate(lower[:, ::-1], axis=1)[:, ::-1].reshape(-1)[at + 1]
        above.upper[:, number] = np.maximum.accumulate(upper[:, ::-1], axis=1)[:, ::-1].reshape(-1)[at + 1]
    return below, above
