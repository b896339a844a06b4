"""How much a query reads: the one cost that layouts minimise, that `score` reports, that the advisor compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from zskip.layouts.sample import Boxes, Sample

__all__ = ["LookUps", "Reads", "limit"]


class Reads(Protocol):
    """The chance that a query reads a unit, from the unit's box."""

    def __call__(self, boxes: Boxes) -> NDArray[np.float64]:
        """One number from 0 to 1 per box."""


@dataclass(frozen=True, slots=True)
class LookUps:
    """Point look-ups: a column drawn by weight, a value drawn from the rows.

    ``weights``: one per column of the sample, summing to 1; a column that is only cut, never asked for, has 0.
    """

    sample: Sample
    weights: NDArray[np.float64]

    def __call__(self, boxes: Boxes) -> NDArray[np.float64]:
        read = np.zeros(len(boxes))
        for column in np.flatnonzero(self.weights):
            read += self.weights[column] * self.extents(boxes, int(column))
        return read

    def extents(self, boxes: Boxes, column: int) -> NDArray[np.float64]:
        """The share of the column's values that lie in each box: what a look-up on it reads the box with."""
        reach = self.sample.reach[column]
        lower, upper = boxes.lower[:, column], boxes.upper[:, column]
        return np.maximum(reach[upper] - reach[lower - 1], 0.0)


def limit(files: float, weights: Sequence[float] | NDArray[np.float64]) -> float:
    """The greatest share of rows that any layout can skip on average, over even data: N files, look-ups by weight.

    A file holds 1/N of the rows only if the product of its extents is at least 1/N. The sum of weight times extent is
    least where those products are equal, with no extent above 1 (water-filling).

    >>> round(limit(100, [1, 1, 1, 1]), 3), round(limit(100, [0.7, 0.1, 0.1, 0.1]), 3)
    (0.684, 0.794)
    """
    positive = np.array([weight for weight in weights if weight > 0], float)
    if not len(positive) or files <= 1:
        return 0.0
    positive /= positive.sum()
    return 1.0 - float(least_read(np.ones((1, len(positive))), positive, files)[0])


def least_read(
    extents: NDArray[np.float64],
    weights: NDArray[np.float64],
    parts: NDArray[np.float64] | float,
    least: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """The least Σ weight · extent that boxes of these extents can reach when each is cut into so many parts.

    ``extents``: (boxes, columns); ``least``: how small an extent can become, since a value cannot be divided.
    """
    cost = extents * weights
    floor = np.zeros_like(cost) if least is None else np.minimum(least, extents) * weights
    # each column's share is clip(level, floor, cost); the product of cost / share must come to `parts`
    need = np.log(np.maximum(np.broadcast_to(parts, cost.shape[:1]), 1.0))
    tiny = 1e-300
    low = np.full(len(cost), tiny)
    high = np.maximum(cost.max(axis=1, initial=0.0), tiny)
    logs = np.log(np.maximum(cost, tiny))
    for _ in range(40):
        level = np.sqrt(low * high)
        share = np.clip(level[:, None], np.maximum(floor, tiny), np.maximum(cost, tiny))
        enough = (logs - np.log(share)).sum(axis=1) >= need
        low, high = np.where(enough, level, low), np.where(enough, high, level)
    result: NDArray[np.float64] = np.clip(high[:, None], floor, cost).sum(axis=1)
    return result
