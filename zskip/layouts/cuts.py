"""Planned cuts: group runs of neighbouring cells into files so that a query is expected to read the least.

Cuts at equal row counts leave a few rows of a neighbouring cell in a file, which widen its box. So files are cut at
cell borders only; each has half to twice its target of rows, and dynamic programming chooses the cuts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zskip.layouts.cells import Files
from zskip.layouts.reads import Reads
from zskip.layouts.sample import Boxes
from zskip.offsets import offsets_of

__all__ = ["Bounds", "plan_cuts"]

_LONGEST_RUN = 96


@dataclass(frozen=True, slots=True)
class Bounds:
    """Sampled rows per file: the target, the least and the most."""

    target: float
    least: float
    most: float

    @staticmethod
    def of(sampled: int, total: int, files: int) -> Bounds:
        """Half to twice the target, narrowed by the sampling error.

        The error is 3.7 standard deviations of a file's count for up to a hundred files, and 4.2 for a thousand: the
        more files there are, the larger is the largest deviation.
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

    ``rows``: sampled rows per cell, to which the bounds apply · ``held``: the cost of reading each cell, its rows or
    their bytes, in units of the average row.

    A cell with more rows than a file may have is spread over several by a hash. The number of files is reached by a
    price per file (a Lagrange multiplier): counting files exactly would add a dimension to the dynamic program.
    """
    runs = _Runs.of(rows, held, boxes, reads, bounds)
    # Each round evaluates a grid of prices in one pass, then refines around the best.
    low, high = 0.0, float(max(runs.cost.max(where=np.isfinite(runs.cost), initial=1.0), 1.0)) * 4
    prices = np.linspace(low, high, 12)
    best: tuple[NDArray[np.int64], int] | None = None
    for _ in range(6):
        ends, counts = runs.cut(prices)
        enough = np.flatnonzero(counts <= files)
        if not len(enough):
            # Even the highest price leaves too many files: the bounds require them.
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
    """Every run of cells that may become a file: ``cost[e, l]`` is that of the run of l + 1 cells ending at cell e."""

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
        reach = offsets_of(rows)
        light = offsets_of(np.where(heavy, 0, rows))
        heavies = offsets_of(heavy)
        held_to = np.concatenate([[0], np.cumsum(held)])
        heavy_held_to = np.concatenate([[0], np.cumsum(np.where(heavy, held, 0))])
        pieces = np.where(heavy, np.maximum(2, np.round(rows / bounds.target)), 1)
        parts = offsets_of(np.where(heavy, pieces, 0))
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
            heavy_in_run = heavies[end] - heavies[start]
            files = np.maximum(parts[end] - parts[start], 1)
            read = alone[start] if length == 1 else reads(Boxes(lower, upper))
            held_in_run = held_to[end] - held_to[start]
            price = held_in_run * read
            # The light neighbours of a heavy cell go to one of its files and widen only that one's box.
            mixed = (heavy_in_run == 1) & (length > 1)
            if mixed.any():
                in_heavy = (heavy_held_to[end] - heavy_held_to[start]) * (1 - 1 / files)
                own = alone[heavy_cells[np.minimum(heavies[start], len(heavy_cells) - 1)]]
                price = np.where(mixed, in_heavy * own + (held_in_run - in_heavy) * read, price)
            short = np.maximum(bounds.least - np.where(heavy_in_run, bounds.least, total), 0) / bounds.least
            price = price + short * (100.0 * bounds.target)
            too_long = np.where(heavy_in_run, (small > bounds.least) | (heavy_in_run > 1), total > bounds.most)
            price[too_long & (length > 1)] = np.inf
            cost.append(np.concatenate([np.full(length - 1, np.inf), price]))
            count.append(np.concatenate([np.ones(length - 1, np.int64), files]))
            if too_long.all():
                break
        return _Runs(np.stack(cost, axis=1), np.stack(count, axis=1), rows, bounds)

    def cut(self, prices: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The cheapest cuts at each price per file: run lengths by last cell (prices, cells), and the file counts."""
        cells, longest = self.cost.shape
        best = np.full((len(prices), cells + longest), np.inf)
        best[:, longest - 1] = 0.0
        chosen = np.zeros((len(prices), cells), np.int64)
        rows = np.arange(len(prices))
        for cell in range(cells):
            # best[:, longest + c] is the cost of the cells up to c; reversed, slot l belongs to runs of l + 1 cells.
            before = best[:, cell : cell + longest][:, ::-1]
            total = before + self.cost[cell] + prices[:, None] * self.count[cell]
            pick = total.argmin(axis=1)
            best[:, cell + longest] = total[rows, pick]
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
        """The files of the cells, given the chosen run lengths."""
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
