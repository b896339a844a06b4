"""Tree: each cell is halved where that saves the most reading; planned cuts over its leaves make the files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zskip.layouts.cells import Cells, Split, grow
from zskip.layouts.reads import Reads
from zskip.layouts.sample import Boxes, Sample

__all__ = ["tree_cells"]

_PLACES = 16
_LITERALS = 64


def tree_cells(
    sample: Sample, cell_rows: float, reads: Reads, borders: Sequence[NDArray[np.int32]] | None = None
) -> Cells:
    """Cut greedily until a cell holds at most ``cell_rows`` sampled rows, or is a single point.

    Candidates are the value borders nearest to sixteen even places of each column, and the literals of a workload
    (``borders``: codes by column); the cut that is taken leaves the fewest rows to read in its two sides.
    """

    def rule(rows: NDArray[np.intp], _: None) -> Split | None:
        return None if len(rows) <= cell_rows else _best_split(sample, reads, rows, borders)

    return grow(sample, rule, None)


def _best_split(
    sample: Sample, reads: Reads, rows: NDArray[np.intp], borders: Sequence[NDArray[np.int32]] | None
) -> Split | None:
    columns: list[NDArray[np.int64]] = []
    thresholds: list[NDArray[np.int32]] = []
    counts: list[NDArray[np.int64]] = []
    boxes: list[tuple[Boxes, Boxes]] = []
    goal = np.arange(1, _PLACES) * len(rows) // _PLACES
    for column, codes in enumerate(sample.codes):
        order = rows[np.argsort(codes[rows], kind="stable")]
        mine = codes[order]
        if mine[0] == mine[-1]:
            continue
        middle = mine[goal]
        places = [np.searchsorted(mine, middle), np.searchsorted(mine, middle, side="right")]
        if borders is not None:
            inside = borders[column]
            inside = inside[(inside > mine[0]) & (inside <= mine[-1])]
            places.append(np.searchsorted(mine, inside[:: max(1, len(inside) // _LITERALS)]))
        cuts = np.unique(np.concatenate(places))
        cuts = cuts[(cuts > 0) & (cuts < len(mine))]
        columns.append(np.full(len(cuts), column))
        thresholds.append(mine[cuts])
        counts.append(cuts)
        boxes.append(_sides(sample, order, cuts))
    if not columns:
        return None
    below = _joined([pair[0] for pair in boxes])
    above = _joined([pair[1] for pair in boxes])
    read = reads(Boxes(np.concatenate([below.lower, above.lower]), np.concatenate([below.upper, above.upper])))
    count = np.concatenate(counts)
    cost = count * read[: len(count)] + (len(rows) - count) * read[len(count) :]
    best = int(cost.argmin())
    return Split(int(np.concatenate(columns)[best]), int(np.concatenate(thresholds)[best]), False, None, None)


def _sides(sample: Sample, order: NDArray[np.intp], cuts: NDArray[np.int64]) -> tuple[Boxes, Boxes]:
    """The boxes of the rows before each cut, and of those after it."""
    starts = np.concatenate([[0], cuts])
    lower = np.stack([np.minimum.reduceat(low[order], starts) for low in sample.low], axis=1)
    upper = np.stack([np.maximum.reduceat(codes[order], starts) for codes in sample.codes], axis=1)
    before = Boxes(np.minimum.accumulate(lower)[:-1], np.maximum.accumulate(upper)[:-1])
    after = Boxes(np.minimum.accumulate(lower[::-1])[-2::-1], np.maximum.accumulate(upper[::-1])[-2::-1])
    return before, after


def _joined(parts: list[Boxes]) -> Boxes:
    return Boxes(np.concatenate([part.lower for part in parts]), np.concatenate([part.upper for part in parts]))
