"""The cost model of rewrites: the expected cost of a query on files, before and after they are merged and cut.

A look-up reads a file with the probability that its value lies in the file's range. A scan, one query in ten, reads all
files. Opening a file costs as much as reading a sixteenth of a full one. The files that would replace a group have the
group's hull as their box, cut into slabs if it holds more rows than one file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zskip.layouts.reads import whole_read
from zskip.writer.file_groups import LEAST_FILL

__all__ = ["SMALL", "LookUps", "Runs", "cut_small", "parts_of"]

SMALL = 0.5
"""The rows of a small file, as a share of a full file."""
_OPENING = 1 / 16  # of reading a full file
_SCANS = 0.1  # of all queries
_LARGEST_PART = 0.75  # of a full file, in a slot whose large files joined


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of files, or groups of runs: one slot of each array per run. Rows and costs are in units of a full file.

    ``slot``, ``last``: the first and the last slot · ``parts``: the number of files that replace it · ``read``: the
    expected cost of a query · ``lower``, ``upper``: (runs, columns), the codes of the hull's bounds; upper < lower
    if the column has no value.
    """

    folder: NDArray[np.int64]
    slot: NDArray[np.int64]
    last: NDArray[np.int64]
    parts: NDArray[np.float64]
    rows: NDArray[np.float64]
    read: NDArray[np.float64]
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: NDArray[np.int64]) -> Runs:
        return Runs(*(getattr(self, name)[chosen] for name in self.__slots__))

    def joined(self, group: NDArray[np.int64], look_ups: LookUps, *, as_one: bool = False) -> Runs:
        """One run per group. ``group``: the group of each run, ascending · ``as_one``: each group becomes one file."""
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        rows = np.add.reduceat(self.rows, starts)
        slot, last = np.minimum.reduceat(self.slot, starts), np.maximum.reduceat(self.last, starts)
        lower = np.minimum.reduceat(self.lower, starts)
        upper = np.maximum.reduceat(self.upper, starts)
        alone = np.diff(starts, append=len(self)) == 1
        parts = np.where(alone, self.parts[starts], 1.0 if as_one else parts_of(rows, last - slot + 1))
        read = np.where(alone, self.read[starts], look_ups.read(rows, parts, lower, upper)[0])
        return Runs(self.folder[starts], slot, last, parts, rows, read, lower, upper)


class LookUps:
    """The share of all queries that reach a box: look-ups on a column drawn by weight, of a value drawn from the rows.

    Half of each file's values are assumed to equal its lower bound, the other half its upper bound.
    """

    def __init__(self, weights: NDArray[np.float64], up_to: Sequence[NDArray[np.float64]]) -> None:
        self._weights, self._up_to = weights, up_to

    @staticmethod
    def of(
        weights: Sequence[float], rows: NDArray[np.float64], lower: NDArray[np.int64], upper: NDArray[np.int64]
    ) -> LookUps:
        up_to = []
        for low, high in zip(lower.T, upper.T, strict=True):
            has_values = low <= high
            ends = np.concatenate([low[has_values], high[has_values]])
            mass = np.bincount(ends, np.tile(rows[has_values], 2))
            up_to.append(np.concatenate([[0.0], np.cumsum(mass)]) / max(mass.sum(), 1e-300))
        shares = np.array(weights, float)
        return LookUps(shares / max(shares.sum(), 1e-300), up_to)

    def read(
        self, rows: NDArray[np.float64], parts: NDArray[np.float64], lower: NDArray[np.int64], upper: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The expected cost of a query on each box when it is cut into ``parts``, and the share that reaches it."""
        size = rows + _OPENING * parts
        if not len(self._weights):
            return size, np.ones(len(rows))
        extents = self._extents(lower, upper)
        uncut = extents @ self._weights
        least = np.where(lower == upper, extents, 0.0)
        cut = parts > 1
        after = uncut.copy()
        after[cut] = whole_read(extents[cut], self._weights, parts[cut], least[cut])
        return size * (_SCANS + (1 - _SCANS) * after), _SCANS + (1 - _SCANS) * uncut

    def by_column(self, lower: NDArray[np.int64], upper: NDArray[np.int64]) -> NDArray[np.float64]:
        """(boxes, columns): the share of all look-ups that are on this column and reach the box."""
        return self._extents(lower, upper) * self._weights

    def _extents(self, lower: NDArray[np.int64], upper: NDArray[np.int64]) -> NDArray[np.float64]:
        extents = np.empty(lower.shape)
        for column, up_to in enumerate(self._up_to):
            first, last = (np.clip(ends[:, column], 0, len(up_to) - 1) for ends in (lower, upper + 1))
            extents[:, column] = np.maximum(up_to[last] - up_to[first], 0.0)
        return extents


def parts_of(rows: NDArray[np.float64], slots: NDArray[np.int64]) -> NDArray[np.float64]:
    """The number of files for the rows of some slots: full files, or one per slot if a slot has enough rows."""
    return np.maximum(np.maximum(np.floor(rows + 0.5), np.minimum(slots, np.floor(rows / LEAST_FILL + 1e-9))), 1.0)


def cut_small(rows: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """The number of files for a slot whose large files joined: each is half to three quarters full.

    >>> cut_small(np.array([0.3, 1.0, 1.2, 1.5, 2.4])).tolist()
    [1.0, 2.0, 2.0, 2.0, 4.0]
    """
    found: NDArray[np.float64] = np.maximum(np.ceil(np.asarray(rows) / _LARGEST_PART - 1e-9), 1.0)
    return np.where(np.asarray(rows) < 2 * SMALL, 1.0, found)
