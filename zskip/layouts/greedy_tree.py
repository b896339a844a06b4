"""The tree layout: split each cell at the threshold that saves the most reading; planned cuts group leaves into files.

All cells of a level are split at once, so there is one pass per column and level, not per cell. The rows of the open
cells are sorted by cell and by one column at a time; a candidate split lies between two neighbouring segments:

    cell         0              |  1                |  2
    rows         3  7  0  5  1  9  2  8  6  4  …
    segments     [  )[    )[    |  [     )[         |  [  …
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zskip.core.offsets import numbers_of_runs, offsets_of
from zskip.layouts.cells import Cells, ThresholdTree
from zskip.layouts.reads import Boxes, Reads, Sample

_QUANTILES = 16
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

    Candidate splits of each column lie on both sides of each 16-quantile of the cell's values, and at the literals of a
    workload (``borders``: their codes, for each column). The chosen split minimises the expected reading of its two
    sides. ``row_weights``: the weight of each row, 1 by default.
    """

    def rule(level: _OpenCells) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        column, threshold = np.full(len(level), -1, np.int32), np.zeros(len(level), np.int32)
        for block in _blocks(level.sizes, cell_rows):
            column[block], threshold[block] = _best_splits(sample, reads, level.take(block), borders, row_weights)
        return column, threshold

    return _grow_levels(sample, rule)


@dataclass(frozen=True, slots=True)
class _OpenCells:
    """The cells of a level that may still be split: their sampled rows, cell after cell, and the row count of each."""

    rows: NDArray[np.intp]
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, cells: NDArray[np.intp]) -> _OpenCells:
        """Some of the cells, by number."""
        offsets = offsets_of(self.sizes)
        return _OpenCells(self.rows[numbers_of_runs(offsets[cells], offsets[cells + 1])], self.sizes[cells])


def _grow_levels(sample: Sample, rule: Callable[[_OpenCells], tuple[NDArray[np.int32], NDArray[np.int32]]]) -> Cells:
    """Split cells breadth first, a whole level at a time, until the rule splits none.

    ``rule(cells)``: for each cell a column, -1 for a cell that is not split, and a threshold. The lower side comes
    first in layout order.
    """
    codes = np.stack(sample.codes)
    # All rows in layout order: a split reorders rows only within its cell.
    order = np.arange(sample.rows)
    starts, sizes = np.zeros(1, np.int64), np.array([sample.rows])
    # The link under which each cell or node is entered: 2 * its parent + its side.
    links = np.array([-1])
    nodes = 0
    split: list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]] = []
    leaves: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    while len(starts):
        positions = numbers_of_runs(starts, starts + sizes)
        column, threshold = rule(_OpenCells(order[positions], sizes))
        leaf = column < 0
        leaves.append((starts[leaf], links[leaf]))
        starts, sizes, column, threshold = starts[~leaf], sizes[~leaf], column[~leaf], threshold[~leaf]
        split.append((column, threshold, links[~leaf]))
        positions = numbers_of_runs(starts, starts + sizes)
        rows, owner = order[positions], np.repeat(np.arange(len(starts)), sizes)
        high = codes[column[owner], rows] >= threshold[owner]
        order[positions] = rows[np.argsort(2 * owner + high, kind="stable")]
        upper = np.bincount(owner[high], minlength=len(starts))
        links = 2 * nodes + np.arange(2 * len(starts))
        nodes += len(starts)
        starts = np.stack([starts, starts + sizes - upper], axis=1).reshape(-1)
        sizes = np.stack([sizes - upper, upper], axis=1).reshape(-1)
    first, link = (np.concatenate(parts) for parts in zip(*leaves, strict=True))
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    children = np.zeros(2 * nodes + 1, np.int32)  # the last slot is the root's, which has no parent
    children[link] = ~number
    children[np.concatenate([links for *_, links in split])] = np.arange(nodes)
    cell = np.empty(sample.rows, np.int32)
    cell[order] = np.repeat(np.arange(len(first)), np.diff(np.append(np.sort(first), sample.rows)))
    below, above = children[:-1].reshape(-1, 2).T
    columns, thresholds = np.concatenate([each[0] for each in split]), np.concatenate([each[1] for each in split])
    return Cells(ThresholdTree(columns, thresholds, below.copy(), above.copy()), cell)


def _blocks(sizes: NDArray[np.int64], cell_rows: float) -> Iterator[NDArray[np.intp]]:
    """The numbers of the cells that are still too large, in blocks, which bound the memory for their rows."""
    large = np.flatnonzero(sizes > cell_rows)
    if len(large):
        block = np.cumsum(sizes[large]) // _ROWS_AT_ONCE
        yield from np.split(large, np.flatnonzero(np.diff(block)) + 1)


class _Candidates(NamedTuple):
    """Candidate splits: the cell, the column and the threshold of each, and the weight and box of its two sides."""

    cell: NDArray[np.int64]
    column: NDArray[np.int32]
    threshold: NDArray[np.int32]
    weight_below: NDArray[np.float64]
    weight_above: NDArray[np.float64]
    below: Boxes
    above: Boxes


def _best_splits(
    sample: Sample,
    reads: Reads,
    cells: _OpenCells,
    borders: Sequence[NDArray[np.int32]] | None,
    row_weights: NDArray[np.float64] | None,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The column and threshold of each cell's best split; the column is -1 if no threshold divides the cell."""
    by_column = [
        _candidates(sample, cells, c, borders[c] if borders else None, row_weights) for c in range(len(sample.columns))
    ]
    column, threshold = np.full(len(cells), -1, np.int32), np.zeros(len(cells), np.int32)
    cell = np.concatenate([each.cell for each in by_column])
    cost = np.concatenate(
        [
            each.weight_below * _read(reads, each.below) + each.weight_above * _read(reads, each.above)
            for each in by_column
        ]
    )
    ranked = np.lexsort((cost, cell))
    split, first = np.unique(cell[ranked], return_index=True)
    best = ranked[first]
    column[split] = np.concatenate([each.column for each in by_column])[best]
    threshold[split] = np.concatenate([each.threshold for each in by_column])[best]
    return column, threshold


def _read(reads: Reads, boxes: Boxes) -> NDArray[np.float64]:
    """The cost of each box, computed in blocks, which bound the memory."""
    starts = range(0, len(boxes), _BOXES_AT_ONCE)
    blocks = [slice(start, start + _BOXES_AT_ONCE) for start in starts]
    return np.concatenate([np.empty(0), *(reads(Boxes(boxes.lower[b], boxes.upper[b])) for b in blocks)])


def _candidates(
    sample: Sample,
    cells: _OpenCells,
    column: int,
    borders: NDArray[np.int32] | None,
    row_weights: NDArray[np.float64] | None,
) -> _Candidates:
    """The candidate splits of each cell along one column."""
    codes = len(sample.distinct[column]) + 2
    owner = np.repeat(np.arange(len(cells)), cells.sizes)
    # The key sorts the rows by cell, then by code.
    key = owner * codes + sample.codes[column][cells.rows]
    order = np.argsort(key, kind="stable")
    key, ends = key[order], np.cumsum(cells.sizes)
    starts = ends - cells.sizes
    quantiles = key[starts[:, None] + np.arange(1, _QUANTILES) * cells.sizes[:, None] // _QUANTILES].reshape(-1)
    positions = [np.searchsorted(key, quantiles), np.searchsorted(key, quantiles, side="right")]
    if borders is not None:
        positions.append(np.searchsorted(key, _literals(borders, key[starts], key[ends - 1], codes)))
    is_cut = np.zeros(len(key) + 1, bool)
    is_cut[np.concatenate(positions)] = True
    is_cut[starts] = False
    is_cut[-1] = False
    cuts = np.flatnonzero(is_cut)
    cell = key[cuts] // codes
    below, above = _sides(sample, cells.rows[order], starts, cuts, cell)
    threshold = (key[cuts] - cell * codes).astype(np.int32)
    rows = cells.rows[order]
    cumulative = np.arange(len(rows) + 1) if row_weights is None else np.append(0.0, np.cumsum(row_weights[rows]))
    weight_below = cumulative[cuts] - cumulative[starts[cell]]
    weight_above = cumulative[ends[cell]] - cumulative[cuts]
    columns = np.full(len(cuts), column, np.int32)
    return _Candidates(cell, columns, threshold, weight_below, weight_above, below, above)


def _literals(
    borders: NDArray[np.int32], least: NDArray[np.int64], most: NDArray[np.int64], codes: int
) -> NDArray[np.int64]:
    """The keys of the literals within each cell; only every n-th of them if there are many.

    ``least``, ``most``: the least and the greatest key of each cell · ``codes``: the number of codes of the column.
    """
    cell = least // codes
    first = np.searchsorted(borders, least - cell * codes, side="right")
    count = np.searchsorted(borders, most - cell * codes, side="right") - first
    step = np.maximum(1, count // _LITERALS)
    taken = -(-count // step)
    number = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
    chosen = borders[np.repeat(first, taken) + number * np.repeat(step, taken)]
    keys: NDArray[np.int64] = chosen + np.repeat(cell * codes, taken)
    return keys


def _sides(
    sample: Sample,
    order: NDArray[np.intp],
    starts: NDArray[np.int64],
    cuts: NDArray[np.int64],
    cell: NDArray[np.int64],
) -> tuple[Boxes, Boxes]:
    """The boxes of the rows before each cut and after it, within the cut's cell. ``cell``: the cell of each cut."""
    counts = np.bincount(cell, minlength=len(starts))
    cuts_before = np.cumsum(counts) - counts
    # Each cell's segments fill one row of a padded matrix; unused slots hold empty boxes.
    width = int(counts.max(initial=0)) + 1
    slot_before = cell * width + np.arange(len(cuts)) - cuts_before[cell]  # the slot of the segment before each cut
    segments = np.concatenate([starts, cuts])
    slots = np.concatenate([np.arange(len(starts)) * width, slot_before + 1])
    ordered = np.argsort(segments)
    segments, slots = segments[ordered], slots[ordered]
    below, above = (Boxes(*np.empty((2, len(cuts), len(sample.columns)), np.int32)) for _ in range(2))
    for number, (null_last, codes) in enumerate(zip(sample.codes_null_last, sample.codes, strict=True)):
        least = np.full(len(starts) * width, len(sample.distinct[number]) + 1, np.int32)
        most = np.zeros(len(starts) * width, np.int32)
        ordered_codes = codes[order]
        least[slots] = np.minimum.reduceat(ordered_codes if null_last is codes else null_last[order], segments)
        most[slots] = np.maximum.reduceat(ordered_codes, segments)
        lower, upper = least.reshape(-1, width), most.reshape(-1, width)
        below.lower[:, number] = np.minimum.accumulate(lower, axis=1).reshape(-1)[slot_before]
        below.upper[:, number] = np.maximum.accumulate(upper, axis=1).reshape(-1)[slot_before]
        above.lower[:, number] = np.minimum.accumulate(lower[:, ::-1], axis=1)[:, ::-1].reshape(-1)[slot_before + 1]
        above.upper[:, number] = np.maximum.accumulate(upper[:, ::-1], axis=1)[:, ::-1].reshape(-1)[slot_before + 1]
    return below, above
