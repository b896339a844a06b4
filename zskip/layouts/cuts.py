"""Planned cuts: runs of neighbouring cells become files, so that a query is expected to read the least.

Cutting at equal counts leaves a few stray rows of a cell's neighbour in a file, and those blow up its box. So cuts
stand at cell borders only, each file has half to twice its target of rows, and dynamic programming picks the cuts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zskip.layouts.cells import Files
from zskip.layouts.reads import Reads
from zskip.layouts.sample import Boxes

__all__ = ["Bounds", "plan_cuts"]

_LONGEST_RUN = 96


@dataclass(frozen=True, slots=True)
class Bounds:
    """Sampled rows per file: the target, and what a file may have at least and at most."""

    target: float
    least: float
    most: float

    @staticmethod
    def of(sampled: int, total: int, files: int) -> Bounds:
        """Half to twice the target, less what a sample can be wrong by.

        That is 3.7 standard deviations of a file's count for up to a hundred files, and 4.2 for a thousand: the more
        there are, the further off is the one that is furthest.
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
    held: NDArray[np.float64] | NDArray[np.int64],
    boxes: Boxes,
    reads: Reads,
    files: int,
    bounds: Bounds,
) -> Files:
    """Group cells, in their order, into at most ``files`` files.

    ``rows``: sampled rows per cell, which the bounds count; ``held``: what a query that reads the cell reads, the rows
    or their bytes, in units of the average row.

    A cell that is heavier than a file is salted over several. A price per file is sought that leads to the wanted
    number of files (Lagrange), since exact counting would cost a dimension.
    """
    runs = _Runs.of(rows, held, boxes, reads, bounds)
    # prices are searched in rounds of a grid, all of a grid in one pass
    low, high = 0.0, float(max(runs.cost.max(where=np.isfinite(runs.cost), initial=1.0), 1.0)) * 4
    prices = np.linspace(low, high, 12)
    best: tuple[NDArray[np.int64], int] | None = None
    for _ in range(6):
        ends, counts = runs.cut(prices)
        enough = np.flatnonzero(counts <= files)
        if not len(enough):
            # even the highest price leaves too many: the bounds force them
            return runs.files(ends[-1])
        first = int(enough[0])
        best = ends[first], int(counts[first])
        if best[1] == files or first == 0:
            break
        prices = np.linspace(prices[first - 1], prices[first], 12)
    assert best is not None
    return runs.files(best[0])


@dataclass(frozen=True, slots=True)
class _Runs:
    """Every run of cells that may become a file: ``cost[e, l]`` of the run of l + 1 cells that ends at cell e."""

    cost: NDArray[np.float64]
    count: NDArray[np.int64]
    rows: NDArray[np.int64]
    bounds: Bounds

    @staticmethod
    def of(
        rows: NDArray[np.int64],
        held: NDArray[np.float64] | NDArray[np.int64],
        boxes: Boxes,
        reads: Reads,
        bounds: Bounds,
    ) -> _Runs:
        cells = len(rows)
        heavy = rows > bounds.most
        heavy_cells = np.flatnonzero(heavy)
        reach = np.concatenate([[0], np.cumsum(rows)])
        light = np.concatenate([[0], np.cumsum(np.where(heavy, 0, rows))])
        heavies = np.concatenate([[0], np.cumsum(heavy)])
        held_to = np.concatenate([[0], np.cumsum(held)])
        heavy_held_to = np.concatenate([[0], np.cumsum(np.where(heavy, held, 0))])
        pieces = np.where(heavy, np.maximum(2, np.round(rows / bounds.target)), 1)
        parts = np.concatenate([[0], np.cumsum(np.where(heavy, pieces, 0))]).astype(np.int64)
        alone = reads(boxes)
        cost: list[NDArray[np.float64]] = []
        count: list[NDArray[np.int64]] = []
        lower, upper = boxes.lower, boxes.upper
        for length in range(1, min(cells, _LONGEST_RUN) + 1):
            if length > 1:
                lower = np.minimum(lower[:-1], boxes.lower[length - 1 :])
                upper = np.maximum(upper[:-1], boxes.upper[length - 1 :])
            start, end = np.arange(cells - length + 1), np.arange(length, cells + 1)
            total, small = reach[end] - reach[start], light[end] - light[start]
            heavy_here = heavies[end] - heavies[start]
            files = np.maximum(parts[end] - parts[start], 1)
            read = alone[start] if length == 1 else reads(Boxes(lower, upper))
            held_here = held_to[end] - held_to[start]
            price = held_here * read
            # a heavy cell's strays go to one of its files, and blow up that one only
            mixed = (heavy_here == 1) & (length > 1)
            if mixed.any():
                in_heavy = (heavy_held_to[end] - heavy_held_to[start]) * (1 - 1 / files)
                own = alone[heavy_cells[np.minimum(heavies[start], len(heavy_cells) - 1)]]
                price = np.where(mixed, in_heavy * own + (held_here - in_heavy) * read, price)
            short = np.maximum(bounds.least - np.where(heavy_here, bounds.least, total), 0) / bounds.least
            price = price + short * (100.0 * bounds.target)
            too_long = np.where(heavy_here, (small > bounds.least) | (heavy_here > 1), total > bounds.most)
            price[too_long & (length > 1)] = np.inf
            cost.append(np.concatenate([np.full(length - 1, np.inf), price]))
            count.append(np.concatenate([np.ones(length - 1, np.int64), files]))
            if too_long.all():
                break
        return _Runs(np.stack(cost, axis=1), np.stack(count, axis=1), rows, bounds)

    def cut(self, prices: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The cheapest cuts at each price per file: run lengths by their last cell (prices, cells), files in all."""
        cells, longest = self.cost.shape
        best = np.full((len(prices), cells + longest), np.inf)
        best[:, longest - 1] = 0.0
        chosen = np.zeros((len(prices), cells), np.int64)
        rows = np.arange(len(prices))
        for cell in range(cells):
            # best[:, longest + c] is for the cells up to c; reversed, so that slot l goes with runs of l + 1 cells
            before = best[:, cell : cell + longest][:, ::-1]
            whole = before + self.cost[cell] + prices[:, None] * self.count[cell]
            pick = whole.argmin(axis=1)
            best[:, cell + longest] = whole[rows, pick]
            chosen[:, cell] = pick
        files = np.zeros(len(prices), np.int64)
        for number in rows:
            cell = cells - 1
            while cell >= 0:
                length = chosen[number, cell]
                files[number] += self.count[cell, length]
                cell -= int(length) + 1
        return chosen, files

    def files(self, chosen: NDArray[np.int64]) -> Files:
        """The files of the cells under the chosen run lengths."""
        cells = len(self.rows)
        first, salt = np.zeros(cells, np.int64), np.ones(cells, np.int64)
        ends = []
        cell = cells - 1
        while cell >= 0:
            ends.append(cell)
            cell -= int(chosen[cell]) + 1
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
        return Files(first, salt, file)
