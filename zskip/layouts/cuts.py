"""Planned cuts: group runs of neighbouring cells into files, to minimise the expected reading of a query.

Cuts at equal row counts would leave a few rows of a neighbouring cell in a file, and these widen its box. So all cuts
are at cell boundaries; each file has half to twice its target of rows, and dynamic programming chooses the cuts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zskip.core.offsets import offsets_of
from zskip.layouts.cells import CellFiles
from zskip.layouts.reads import Boxes, Reads

_LONGEST_RUN = 96


@dataclass(frozen=True, slots=True)
class Bounds:
    """Sampled rows per file: the target, the minimum and the maximum."""

    target: float
    least: float
    most: float

    @staticmethod
    def of(sampled: int, total: int, files: int) -> Bounds:
        """Half to twice the target, narrowed by the sampling error.

        The error is 3.7 standard deviations of a file's row count for up to a hundred files, and 4.2 for a thousand:
        the largest of more deviations is larger.
        """
        target = sampled / files
        unseen = max(0.0, 1.0 - sampled / max(total, 1))
        least, most = target / 2, target * 2
        deviations = 3.7 + 0.5 * max(0.0, np.log10(files / 100))
        return Bounds(
            target,
            min(least + deviations * np.sqrt(least * unseen), 0.9 * target),
            max(most - deviations * np.sqrt(most * unseen), 1.2 * target),
        )


def plan_cuts(
    rows: NDArray[np.int64],
    weights: NDArray[np.float64] | NDArray[np.int64],
    boxes: Boxes,
    reads: Reads,
    files: int,
    bounds: Bounds,
) -> CellFiles:
    """Group cells, in their order, into at most ``files`` files.

    ``rows``: sampled rows per cell, to which the bounds apply · ``weights``: the cost of reading each cell, its rows or
    their bytes, in units of the average row.

    A hash spreads a cell with more rows than a file may have over several files. A price per file (a Lagrange
    multiplier) leads to the number of files: counting them exactly would add a dimension to the dynamic program.
    """
    runs = _Runs.of(rows, weights, boxes, reads, bounds)
    # Each round evaluates a grid of prices in one pass; the next refines it around the lowest sufficient price.
    low, high = 0.0, float(max(runs.cost.max(where=np.isfinite(runs.cost), initial=1.0), 1.0)) * 4
    prices = np.linspace(low, high, 12)
    best: tuple[NDArray[np.int64], int] | None = None
    for _ in range(6):
        lengths, counts = runs.cut(prices)
        enough = np.flatnonzero(counts <= files)
        if not len(enough):
            # Even the highest price gives too many files: the bounds require them.
            return runs.files(lengths[-1])
        first = int(enough[0])
        best = lengths[first], int(counts[first])
        if best[1] == files or first == 0:
            break
        prices = np.linspace(prices[first - 1], prices[first], 12)
    assert best is not None
    return runs.files(best[0])


@dataclass(frozen=True, slots=True)
class _Runs:
    """Every run of cells that may become a file, or several files if it contains a heavy cell.

    ``cost[e, l]``, ``count[e, l]``: the cost and the number of files of the run of l + 1 cells that ends at cell e ·
    ``rows``: sampled rows per cell. A cell is heavy if it has more rows than a file may have.
    """

    cost: NDArray[np.float64]
    count: NDArray[np.int64]
    rows: NDArray[np.int64]

    @staticmethod
    def of(
        rows: NDArray[np.int64],
        weights: NDArray[np.float64] | NDArray[np.int64],
        boxes: Boxes,
        reads: Reads,
        bounds: Bounds,
    ) -> _Runs:
        cells = len(rows)
        heavy = rows > bounds.most
        heavy_cells = np.flatnonzero(heavy)
        # Prefix sums: the figure of a run is a difference of two.
        rows_before = offsets_of(rows)
        light_rows_before = offsets_of(np.where(heavy, 0, rows))
        heavy_cells_before = offsets_of(heavy)
        weight_before = np.concatenate([[0], np.cumsum(weights)])
        heavy_weight_before = np.concatenate([[0], np.cumsum(np.where(heavy, weights, 0))])
        pieces = np.where(heavy, np.maximum(2, np.round(rows / bounds.target)), 1)
        heavy_files_before = offsets_of(np.where(heavy, pieces, 0))
        read_alone = reads(boxes)
        cost: list[NDArray[np.float64]] = []
        count: list[NDArray[np.int64]] = []
        lower, upper = boxes.lower, boxes.upper
        for length in range(1, min(cells, _LONGEST_RUN) + 1):
            if length > 1:
                lower = np.minimum(lower[:-1], boxes.lower[length - 1 :])
                upper = np.maximum(upper[:-1], boxes.upper[length - 1 :])
            start, end = np.arange(cells - length + 1), np.arange(length, cells + 1)
            run_rows = rows_before[end] - rows_before[start]
            light_rows = light_rows_before[end] - light_rows_before[start]
            heavy_count = heavy_cells_before[end] - heavy_cells_before[start]
            files = np.maximum(heavy_files_before[end] - heavy_files_before[start], 1)
            read = read_alone[start] if length == 1 else reads(Boxes(lower, upper))
            weight = weight_before[end] - weight_before[start]
            run_cost = weight * read
            # The light neighbours of a heavy cell go to one of its files and widen only the box of that file.
            mixed = (heavy_count == 1) & (length > 1)
            if mixed.any():
                unmixed = (heavy_weight_before[end] - heavy_weight_before[start]) * (1 - 1 / files)
                heavy_read = read_alone[heavy_cells[np.minimum(heavy_cells_before[start], len(heavy_cells) - 1)]]
                run_cost = np.where(mixed, unmixed * heavy_read + (weight - unmixed) * read, run_cost)
            shortfall = np.maximum(bounds.least - np.where(heavy_count, bounds.least, run_rows), 0) / bounds.least
            run_cost = run_cost + shortfall * (100.0 * bounds.target)
            too_long = np.where(heavy_count, (light_rows > bounds.least) | (heavy_count > 1), run_rows > bounds.most)
            run_cost[too_long & (length > 1)] = np.inf
            cost.append(np.concatenate([np.full(length - 1, np.inf), run_cost]))
            count.append(np.concatenate([np.ones(length - 1, np.int64), files]))
            if too_long.all():
                break
        return _Runs(np.stack(cost, axis=1), np.stack(count, axis=1), rows)

    def cut(self, prices: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The cheapest cuts at each price per file.

        Returns an array (prices, cells), which gives at a run's last cell its length less 1, and the number of files
        at each price.
        """
        cells, longest = self.cost.shape
        best = np.full((len(prices), cells + longest), np.inf)
        best[:, longest - 1] = 0.0
        lengths = np.zeros((len(prices), cells), np.int64)
        rows = np.arange(len(prices))
        for cell in range(cells):
            # best[:, longest + c] is the cost of the cells up to c; reversed, column l belongs to runs of l + 1 cells.
            before = best[:, cell : cell + longest][:, ::-1]
            total = before + self.cost[cell] + prices[:, None] * self.count[cell]
            pick = total.argmin(axis=1)
            best[:, cell + longest] = total[rows, pick]
            lengths[:, cell] = pick
        files = np.zeros(len(prices), np.int64)
        for number in rows:
            cell = cells - 1
            while cell >= 0:
                length = lengths[number, cell]
                files[number] += self.count[cell, length]
                cell -= int(length) + 1
        return lengths, files

    def files(self, lengths: NDArray[np.int64]) -> CellFiles:
        """The files of the cells for one row of the lengths that `cut` returns."""
        cells = len(self.rows)
        first, salt = np.zeros(cells, np.int64), np.ones(cells, np.int64)
        ends = []
        cell = cells - 1
        while cell >= 0:
            ends.append(cell)
            cell -= int(lengths[cell]) + 1
        file, start = 0, 0
        for end in reversed(ends):
            run = slice(start, end + 1)
            count = int(self.count[end, end - start])
            first[run] = file
            if count > 1:
                heavy = start + int(self.rows[run].argmax())
                first[heavy + 1 : end + 1] = file + count - 1
                salt[heavy] = count
            file += count
            start = end + 1
        return CellFiles(first, salt, file)
