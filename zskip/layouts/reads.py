"""The expected reading of a query: the cost that layouts minimise, `score` reports and the advisor compares.

`Sample`: a sample of rows as dense codes; `Boxes`: the ranges of codes of its cells or files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.core.schema import Column
from zskip.stats.keys import Codes, dense_codes


@dataclass(frozen=True, slots=True)
class Boxes:
    """The least and the greatest code of each unit of rows, ignoring NULL: int32 arrays (units, columns).

    Where a unit holds only NULL in a column, or no rows, lower > upper.
    """

    lower: NDArray[np.int32]
    upper: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.lower)


@dataclass(frozen=True, slots=True)
class Sample:
    """Sampled rows, column by column: dense codes (0 is NULL), distinct values, and their cumulative distribution.

    ``codes_null_last``: the codes with NULL above all others, so that a minimum ignores it, as a footer's does ·
    ``cdf[c][k]``: the share of the column's values with a code from 1 to k.
    """

    columns: tuple[Column, ...]
    codes: tuple[Codes, ...]
    codes_null_last: tuple[Codes, ...]
    distinct: tuple[pa.Array, ...]
    cdf: tuple[NDArray[np.float64], ...]

    @staticmethod
    def of(rows: pa.Table | pa.RecordBatch, columns: Sequence[Column]) -> Sample:
        """Encode the columns of some rows. Raises `NotOrderable`."""
        pairs = [dense_codes(column.of(rows)) for column in columns]
        codes = tuple(code for code, _ in pairs)
        distinct = tuple(values for _, values in pairs)
        null_last = tuple(
            np.where(code == 0, np.int32(len(values) + 1), code) if (code == 0).any() else code
            for code, values in pairs
        )
        return Sample(tuple(columns), codes, null_last, distinct, tuple(map(_cdf, codes, distinct)))

    def select(self, columns: Sequence[int]) -> Sample:
        """The same rows with these columns, by number and in this order."""
        parts = (self.columns, self.codes, self.codes_null_last, self.distinct, self.cdf)
        return Sample(*(tuple(part[number] for number in columns) for part in parts))  # type: ignore[arg-type]

    @property
    def rows(self) -> int:
        return len(self.codes[0])

    def boxes(self, unit: NDArray[np.integer], units: int) -> Boxes:
        """The box of each unit. ``unit``: the unit of each row; a unit without rows has an empty box."""
        order = np.argsort(unit, kind="stable")
        counts = np.bincount(unit, minlength=units)
        filled = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[filled]
        lower = np.empty((units, len(self.columns)), np.int32)
        upper = np.zeros((units, len(self.columns)), np.int32)
        for number, values in enumerate(self.distinct):
            lower[:, number] = len(values) + 1
        if len(filled):
            for number, (null_last, code) in enumerate(zip(self.codes_null_last, self.codes, strict=True)):
                lower[filled, number] = np.minimum.reduceat(null_last[order], starts)
                upper[filled, number] = np.maximum.reduceat(code[order], starts)
        return Boxes(lower, upper)

    def ranks(self, column: int) -> NDArray[np.float64]:
        """The quantile rank of each code, from 0 to 1: the middle of the interval of ranks that its rows occupy.

        Ranks fill the whole range in every column, and frequent values lie far apart.
        """
        counts = np.bincount(self.codes[column], minlength=len(self.distinct[column]) + 1)
        middle: NDArray[np.float64] = (np.cumsum(counts) - counts / 2) / max(1, self.rows)
        return middle


def _cdf(codes: Codes, distinct: pa.Array) -> NDArray[np.float64]:
    counts = np.bincount(codes, minlength=len(distinct) + 2)  # the last slot is NULL's code in `codes_null_last`
    counts[0] = 0
    cdf: NDArray[np.float64] = np.cumsum(counts) / max(1, counts.sum())
    return cdf


_MOST_ROUNDED = 6


class Reads(Protocol):
    """A cost function: the probability that a query reads a unit, given the unit's box."""

    def __call__(self, boxes: Boxes) -> NDArray[np.float64]:
        """One probability per box."""


@dataclass(frozen=True, slots=True)
class LookUps:
    """Point look-ups: each picks a column by weight, and a value at random from the rows.

    ``weights``: one per column of the sample, summing to 1; 0 for a column that may be cut but is not looked up.
    """

    sample: Sample
    weights: NDArray[np.float64]

    def __call__(self, boxes: Boxes) -> NDArray[np.float64]:
        read = np.zeros(len(boxes))
        for column in np.flatnonzero(self.weights):
            read += self.weights[column] * self.extents(boxes, int(column))
        return read

    def extents(self, boxes: Boxes, column: int) -> NDArray[np.float64]:
        """The share of the column's values that lie in each box: the chance that a look-up reads the box."""
        cdf = self.sample.cdf[column]
        lower, upper = boxes.lower[:, column], boxes.upper[:, column]
        return np.maximum(cdf[upper] - cdf[lower - 1], 0.0)


def limit(files: float, weights: Sequence[float] | NDArray[np.float64]) -> float:
    """The greatest average share of rows that point look-ups can skip under any layout of evenly distributed data.

    ``weights``: how often each column is looked up. A file holds 1/N of the rows only if the product of its extents is
    at least 1/N. The sum of weight times extent is least where the products weight · extent are equal and no extent
    exceeds 1 (water-filling).

    >>> round(limit(100, [1, 1, 1, 1]), 3), round(limit(100, [0.7, 0.1, 0.1, 0.1]), 3)
    (0.684, 0.794)
    """
    positive = np.array([weight for weight in weights if weight > 0], float)
    if not len(positive) or files <= 1:
        return 0.0
    positive /= positive.sum()
    return 1.0 - float(
        least_extents(np.ones((1, len(positive))), positive, files, np.zeros(len(positive)))[0] @ positive
    )


def least_extents(
    extents: NDArray[np.float64],
    weights: NDArray[np.float64],
    parts: NDArray[np.float64] | float,
    least: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The extents (boxes, columns) that minimise reading when each box is cut into ``parts`` (water-filling).

    ``extents``: (boxes, columns) before the cut · ``least``: the smallest possible extents, since a single value cannot
    be divided. The product of old over new extents is ``parts``, unless ``least`` prevents it.
    """
    tiny = 1e-300
    cost = np.maximum(extents * weights, tiny)
    floor = np.minimum(np.maximum(least * weights, tiny), cost)
    # Each column contributes clip(level, floor, cost). In logarithms, the total saving is piecewise linear in the
    # level, with corners at the columns' costs and floors; the level that saves enough is interpolated between two.
    need = np.log(np.maximum(np.broadcast_to(parts, cost.shape[:1]), 1.0))[:, None]
    logs, floors = np.log(cost), np.log(floor)
    levels = -np.sort(-np.concatenate([logs, floors], axis=1), axis=1)
    saved = (logs[:, None, :] - np.minimum(np.maximum(levels[:, :, None], floors[:, None, :]), logs[:, None, :])).sum(
        axis=2
    )
    after = np.minimum((saved < need).sum(axis=1, keepdims=True), levels.shape[1] - 1)
    before = np.maximum(after - 1, 0)
    top, bottom = np.take_along_axis(levels, before, 1), np.take_along_axis(levels, after, 1)
    little, much = np.take_along_axis(saved, before, 1), np.take_along_axis(saved, after, 1)
    share = np.clip((need - little) / np.where(much > little, much - little, 1.0), 0.0, 1.0)
    level = top + share * (bottom - top)
    reached: NDArray[np.float64] = extents * np.exp(np.clip(level, floors, logs) - logs)
    return reached


def whole_read(
    extents: NDArray[np.float64],
    weights: NDArray[np.float64],
    parts: NDArray[np.float64],
    least: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Approximately the least Σ weight · extent for each box when it is cut into ``parts`` files by whole slabs."""
    columns = np.flatnonzero(weights > 0)
    if len(columns) > _MOST_ROUNDED:
        return np.asarray((least_extents(extents, weights, parts, least) * weights).sum(axis=1))
    best: NDArray[np.float64] = (extents * weights).sum(axis=1)
    for slabs in _rounded_slabs(extents, weights, parts, least):
        cost = np.maximum(extents / slabs, np.minimum(least, extents)) * weights
        read = cost.sum(axis=1) + _unevenness(cost, slabs, parts)
        best = np.where((slabs >= 1 - 1e-9).all(axis=1) & (read < best), read, best)
    return best


def _unevenness(
    cost: NDArray[np.float64], slabs: NDArray[np.float64], parts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The extra cost of slabs of unequal width, if the number of slabs does not divide the number of files.

    Six files in five slabs are four slabs of one file and one of two, twice as wide: Σ width² is 8/36, not 1/5.
    ``cost``: (boxes, columns). The uneven widths are charged to the cheapest column that is cut into whole slabs.
    """
    row = np.arange(len(slabs))
    fraction = np.abs(slabs - np.round(slabs)).argmax(axis=1)
    whole = np.maximum(np.round(slabs.prod(axis=1) / slabs[row, fraction]), 1.0)
    few = np.floor(parts / whole + 1e-9)
    more = parts - whole * few
    wider = np.maximum(whole * (more * (few + 1) ** 2 + (whole - more) * few**2) / parts**2 - 1.0, 0.0)
    cut = slabs > 1 + 1e-9
    cut[row, fraction] = False
    least = cost.min(axis=1, where=cut, initial=np.inf)
    return np.where(cut.any(axis=1), wider * np.where(np.isfinite(least), least, 0.0), 0.0)


def whole_slabs(
    extents: NDArray[np.float64], weights: NDArray[np.float64], parts: float, least: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The number of slabs into which to cut each column of one box for ``parts`` files; at most one is not whole.

    >>> whole_slabs(np.ones(2), np.array([0.5, 0.5]), 100, np.zeros(2)).tolist()
    [10.0, 10.0]
    """
    one, count = extents[None, :], np.array([float(parts)])
    columns = np.flatnonzero(weights > 0)
    if not len(columns) or len(columns) > _MOST_ROUNDED:
        return np.asarray(extents / np.maximum(least_extents(one, weights, count, least)[0], 1e-300))
    # Evaluate all ways to round at once, each on its own copy of the box.
    ways = _roundings(len(columns))
    wanted = extents / np.maximum(least_extents(one, weights, count, least)[0], 1e-300)
    choices = np.ones((len(ways), len(extents)))
    choices[:, columns] = np.maximum(np.floor(wanted[columns] + 1e-9), 1.0) + np.maximum(ways, 0)
    last = columns[(ways < 0).argmax(axis=1)]
    row = np.arange(len(ways))
    choices[row, last] = 1.0
    choices[row, last] = parts / choices.prod(axis=1)
    read = (np.maximum(extents / choices, np.minimum(least, extents)) * weights).sum(axis=1)
    read[(choices < 1 - 1e-9).any(axis=1)] = np.inf
    best: NDArray[np.float64] = choices[int(read.argmin())]
    return best


@cache
def _roundings(columns: int) -> NDArray[np.int64]:
    """All ways to round: one column takes the remaining factor (-1), the others round down (0) or up (1)."""
    ways = []
    for last in range(columns):
        for ups in product((0, 1), repeat=columns - 1):
            ways.append([*ups[:last], -1, *ups[last:]])  # noqa: PERF401  # plainer than a nested comprehension
    return np.array(ways, np.int64)


def _rounded_slabs(
    extents: NDArray[np.float64],
    weights: NDArray[np.float64],
    parts: NDArray[np.float64],
    least: NDArray[np.float64],
) -> Iterator[NDArray[np.float64]]:
    """The slabs of each column for each way to round: arrays (boxes, columns); below 1 where the way is impossible.

    All columns but one are cut into whole numbers of slabs. The other one takes the remaining factor, which may be a
    fraction, since some slabs can be cut once more than others.
    """
    wanted = np.where(extents > 0, extents / np.maximum(least_extents(extents, weights, parts, least), 1e-300), 1.0)
    columns = np.flatnonzero(weights > 0)
    down = np.maximum(np.floor(wanted[:, columns] + 1e-9), 1.0)
    for way in _roundings(len(columns)):
        slabs = np.ones_like(extents)
        slabs[:, columns] = down + np.maximum(way, 0)
        last = columns[int((way < 0).argmax())]
        slabs[:, last] = 1.0
        slabs[:, last] = parts / slabs.prod(axis=1)
        yield slabs
