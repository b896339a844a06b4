"""The tiles layout: sort-tile-recursive (Leutenegger 1997) that chooses the column and number of slabs at each node.

A node that is to become f files is cut into slabs along one column. The choice minimises the estimated cost: each
slab's measured extents, reduced by the most that cutting it into its own files could save (the formula of `limit`,
with no extent below that of a single value).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zskip.layouts.cells import CellFiles, Cells, Split, grow
from zskip.layouts.cuts import Bounds
from zskip.layouts.reads import Boxes, LookUps, Sample, least_extents, whole_read

_SLABS = (2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True, slots=True)
class _Slabs:
    """Slabs along a column: the first code of the second and later slabs, and the number of files of each slab."""

    column: int
    thresholds: tuple[int, ...]
    files: tuple[int, ...]

    def split(self) -> Split:
        """The binary split in the middle; a tree node has two children, so several slabs take several nodes."""
        middle = len(self.files) // 2
        below = _Slabs(self.column, self.thresholds[: middle - 1], self.files[:middle])
        above = _Slabs(self.column, self.thresholds[middle:], self.files[middle:])
        return Split(self.column, self.thresholds[middle - 1], False, below, above)


def tile(sample: Sample, look_ups: LookUps, files: int, bounds: Bounds) -> tuple[Cells, CellFiles]:
    """Cut the sample into ``files`` boxes; a hash spreads a box that no column divides over several files."""
    per_cell: list[int] = []
    value_shares = [_value_shares(sample, column) for column in range(len(sample.columns))]

    def rule(rows: NDArray[np.intp], node: _Slabs) -> Split | None:
        if len(node.files) > 1:
            return node.split()
        files = node.files[0]
        slabs = _best_slabs(sample, look_ups, value_shares, rows, files, bounds) if files > 1 else None
        if slabs is None:
            per_cell.append(files)
            return None
        return slabs.split()

    cells = grow(sample, rule, _Slabs(0, (), (files,)))
    salt = np.array(per_cell, np.int64)
    return cells, CellFiles(np.cumsum(salt) - salt, salt, int(salt.sum()))


def _value_shares(sample: Sample, column: int) -> NDArray[np.float64]:
    """For each row, the share of the column's values that equal its own."""
    cdf = sample.cdf[column]
    share = np.diff(cdf, prepend=0.0)
    share[0] = 0.0
    return share[sample.codes[column]]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Candidate slabs, and the box and the number of sampled rows of each."""

    slabs: _Slabs
    lower: NDArray[np.int32]
    upper: NDArray[np.int32]
    rows: NDArray[np.int64]


def _best_slabs(
    sample: Sample,
    look_ups: LookUps,
    value_shares: list[NDArray[np.float64]],
    rows: NDArray[np.intp],
    files: int,
    bounds: Bounds,
) -> _Slabs | None:
    """The slabs of least cost for a node of these rows and ``files``; None where no column divides it within bounds."""
    weights = look_ups.weights
    least = np.array([shares[rows].mean() for shares in value_shares])
    whole = _boxes(sample, rows, np.zeros(1, np.intp))
    extents = _extents(look_ups, whole)
    wanted = _wanted_slabs(extents[0], least, weights, files)
    candidates = []
    for column in np.flatnonzero((extents[0] > 0) | (whole.lower[0] != whole.upper[0])):
        candidates += _candidates(sample, rows, int(column), files, wanted[column], bounds)
    if not candidates:
        return None
    boxes = Boxes(
        np.concatenate([candidate.lower for candidate in candidates]),
        np.concatenate([candidate.upper for candidate in candidates]),
    )
    parts = np.concatenate([np.array(candidate.slabs.files, float) for candidate in candidates])
    counts = np.concatenate([candidate.rows for candidate in candidates])
    owner = np.repeat(np.arange(len(candidates)), [len(candidate.rows) for candidate in candidates])
    read = whole_read(_extents(look_ups, boxes), weights, parts, least)
    cost = np.bincount(owner, counts * read)
    return candidates[int(cost.argmin())].slabs


def _wanted_slabs(
    extents: NDArray[np.float64], least: NDArray[np.float64], weights: NDArray[np.float64], files: int
) -> NDArray[np.float64]:
    """The ideal number of slabs of each column, not rounded."""
    reached = least_extents(extents[None, :], weights, float(files), least)[0]
    wanted: NDArray[np.float64] = np.clip(extents / np.maximum(reached, 1e-300), 1.0, files)
    return wanted


def _candidates(
    sample: Sample, rows: NDArray[np.intp], column: int, files: int, wanted: float, bounds: Bounds
) -> list[_Candidate]:
    """Slabs along one column at the value boundaries nearest to an even cut, for several numbers of slabs.

    ``wanted``: the ideal number of slabs; numbers near it are tried, as are small ones and the number of files.
    """
    order = rows[np.argsort(sample.codes[column][rows], kind="stable")]
    codes = sample.codes[column][order]
    boundaries = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1, [len(codes)]])
    near = int(wanted)
    numbers = {number for number in (*_SLABS, *range(near - 2, near + 4), files) if 2 <= number <= files}
    distinct: dict[bytes, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = {}
    for number in sorted(numbers):
        goal = np.round(np.arange(1, number) * files / number) / files * len(codes)
        right = np.clip(np.searchsorted(boundaries, goal), 1, len(boundaries) - 1)
        lower, upper = boundaries[right - 1], boundaries[right]
        cuts = np.where(goal - lower <= upper - goal, lower, upper)
        cuts = np.unique(cuts[(cuts > 0) & (cuts < len(codes))])
        slabs = _distribute_files(np.diff(np.concatenate([[0], cuts, [len(codes)]])), cuts, files, bounds)
        if slabs is not None and len(slabs[0]):
            distinct.setdefault(slabs[0].tobytes(), slabs)
    if not distinct:
        return []
    # One pass over the rows measures the pieces between all cuts; each candidate's slabs consist of such pieces.
    pieces = np.unique(np.concatenate([[0], *(cuts for cuts, _, _ in distinct.values())]))
    boxes = _boxes(sample, order, pieces)
    candidates = []
    for cuts, counts, files_of_slab in distinct.values():
        starts = np.searchsorted(pieces, np.concatenate([[0], cuts]))
        lower, upper = np.minimum.reduceat(boxes.lower, starts), np.maximum.reduceat(boxes.upper, starts)
        candidate = _Slabs(column, tuple(codes[cuts].tolist()), tuple(files_of_slab.tolist()))
        candidates.append(_Candidate(candidate, lower, upper, counts))
    return candidates


def _distribute_files(
    counts: NDArray[np.int64], cuts: NDArray[np.int64], files: int, bounds: Bounds
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Distribute whole files over slabs of unequal size; a slab that gets none is merged with its smaller neighbour.

    ``counts``: the rows of each slab · ``cuts``: the positions between slabs. Returns the cuts, and the rows and the
    files of each slab; None where the files of a slab would be smaller or larger than ``bounds`` allow.
    """
    while True:
        share = counts / counts.sum() * files
        assigned = np.floor(share).astype(np.int64)
        missing = files - int(assigned.sum())
        # The slab with the fullest files gets the next one.
        for _ in range(missing):
            assigned[int((share / (assigned + 0.5)).argmax())] += 1
        if assigned.all():
            break
        empty = int(np.flatnonzero(assigned == 0)[0])
        joined = (
            empty if empty + 1 < len(counts) and (empty == 0 or counts[empty + 1] < counts[empty - 1]) else empty - 1
        )
        counts = np.concatenate([counts[:joined], [counts[joined] + counts[joined + 1]], counts[joined + 2 :]])
        cuts = np.delete(cuts, joined)
    size = counts / assigned
    if len(cuts) and (size.min() < bounds.least or size.max() > bounds.most):
        return None
    return cuts, counts, assigned


def _boxes(sample: Sample, order: NDArray[np.intp], starts: NDArray[np.integer]) -> Boxes:
    """The boxes of runs of rows. ``order``: row numbers · ``starts``: where in it each run begins."""
    lower = [np.minimum.reduceat(codes[order], starts) for codes in sample.codes_null_last]
    upper = [np.maximum.reduceat(codes[order], starts) for codes in sample.codes]
    return Boxes(np.stack(lower, axis=1), np.stack(upper, axis=1))


def _extents(look_ups: LookUps, boxes: Boxes) -> NDArray[np.float64]:
    """The extent of each box in each column: an array (boxes, columns)."""
    return np.stack([look_ups.extents(boxes, column) for column in range(boxes.lower.shape[1])], axis=1)
