"""`LookUps`: the share of look-ups on each column that reach a box, modelled from the ranges of a table's files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip.core.schema import Schema
from zskip.layouts.depth import value_widths
from zskip.stats import Ranges, Statistics, collect
from zskip.stats.keys import Boundaries, dense_codes

_SPANNED = 0.9  # a group with this share of a column's values spans it
_LEAST_WEIGHT = 1 / 64  # of the column that weighs most


@dataclass(frozen=True, slots=True)
class LookUps:
    """Look-ups of a column drawn by weight, and of a value drawn from the table's rows.

    The rows of a file are spread evenly over its range, as in `zskip.layouts.depths`. ``lower``,
    ``upper``: (files, columns), the codes of each file's bounds, upper < lower where it has no value · ``weights``: of
    each column, summing to 1 · ``total``: the number of rows.
    """

    columns: tuple[str, ...]
    weights: NDArray[np.float64]
    total: float
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    _bounds: tuple[pa.Array | None, ...]
    _up_to: tuple[NDArray[np.float64], ...]

    @staticmethod
    def of(statistics: Statistics, columns: Sequence[str], weights: Sequence[float] | None) -> LookUps:
        """``weights``: how often each column is looked up, relative to the others; by default equally often."""
        rows = np.asarray(pc.fill_null(statistics.row_count, 0), np.float64)
        shares = np.ones(len(columns)) if weights is None else np.array(weights, float)
        lower, upper = (np.empty((len(rows), len(columns)), np.int64) for _ in range(2))
        bounds, up_to = [], []
        for number, path in enumerate(columns):
            lower[:, number], upper[:, number], distinct = _codes(statistics.columns.get(path), len(rows))
            bounds.append(distinct)
            up_to.append(_distribution(rows, lower[:, number], upper[:, number], distinct))
        whole = shares / max(shares.sum(), 1e-300)
        return LookUps(tuple(columns), whole, float(rows.sum()), lower, upper, tuple(bounds), tuple(up_to))

    def of_files(self, numbers: NDArray[np.int64]) -> LookUps:
        """The same look-ups, with the ranges of these files only."""
        return replace(self, lower=self.lower[numbers], upper=self.upper[numbers])

    def extents(self, lower: NDArray[np.int64], upper: NDArray[np.int64]) -> NDArray[np.float64]:
        """(boxes, columns): the share of the look-ups on the column that reach the box."""
        found: NDArray[np.float64] = np.empty(lower.shape)
        for column, up_to in enumerate(self._up_to):
            first, after = _segment(lower[:, column]), _segment(upper[:, column]) + 1
            first, after = (np.clip(ends, 0, len(up_to) - 1) for ends in (first, after))
            found[:, column] = np.maximum(up_to[after] - up_to[first], 0.0)
        return found

    def weights_within(self, extents: NDArray[np.float64]) -> dict[str, float]:
        """The weights to fit a group of files that has these extents: what a cut on each column can save.

        A column that the group does not span counts half, since the table will grow on. No column gets the weight 0.
        """
        reached = self.weights * np.where(extents < _SPANNED, extents / 2, extents)
        if not reached.any():
            reached = self.weights
        return dict(zip(self.columns, np.maximum(reached, _LEAST_WEIGHT * reached.max()).tolist(), strict=True))

    def weights_of(self, sample: pa.Table, rows: int) -> dict[str, float]:
        """The weights to fit ``rows`` new rows that join the table. ``sample``: some of them."""
        extents = np.ones(len(self.columns))
        if sample.num_rows:
            found = collect.row_groups(sample, np.array([0, sample.num_rows]), Schema(sample.schema)).columns
            lower, upper = np.zeros((2, 1, len(self.columns)), np.int64)
            for number, (path, bounds) in enumerate(zip(self.columns, self._bounds, strict=True)):
                if bounds is not None:
                    known = Boundaries(bounds)
                    lower[0, number], upper[0, number] = (
                        int(known.codes(end)[0]) for end in (found[path].lower, found[path].upper)
                    )
            extents = (self.extents(lower, upper)[0] * self.total + rows) / (self.total + rows)
        return self.weights_within(extents)


ReadLookUps = Callable[[], LookUps | None]
"""Reads the look-ups of the table that new rows join; None if it has none. Only a write of many rows calls it."""


def _codes(ranges: Ranges | None, files: int) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Array | None]:
    """The codes of the files' bounds, and the distinct bounds. An unknown range spans everything."""
    if ranges is None:
        return np.zeros(files, np.int64), np.ones(files, np.int64), None
    codes, distinct = dense_codes(pa.chunked_array([ranges.lower, ranges.upper]))
    known = np.asarray(ranges.lower.is_valid()) & np.asarray(ranges.upper.is_valid())
    empty = ~np.asarray(pc.fill_null(ranges.has_value, True))
    lower = np.where(known, codes[:files], 0).astype(np.int64)
    upper = np.where(known, codes[files:], len(distinct) + 1).astype(np.int64)
    lower[empty], upper[empty] = len(distinct) + 1, -1
    return lower, upper, distinct


def _distribution(
    rows: NDArray[np.float64], lower: NDArray[np.int64], upper: NDArray[np.int64], distinct: pa.Array | None
) -> NDArray[np.float64]:
    """The share of the rows below each bound, and below the gap that follows it."""
    kept = lower <= upper
    first, last, rows = _segment(lower[kept]), _segment(upper[kept]), rows[kept]
    widths = np.ones((1, 2)) if distinct is None or not len(distinct) else np.stack(value_widths(distinct), axis=1)
    edges = np.concatenate([[0.0], np.cumsum(widths.ravel())])
    first, last = np.clip(first, 0, len(edges) - 2), np.clip(last, 0, len(edges) - 2)
    density = rows / (edges[last + 1] - edges[first])
    over = np.cumsum(np.bincount(first, density, len(edges)) - np.bincount(last + 1, density, len(edges)))
    up_to = np.concatenate([[0.0], np.cumsum(over[:-1] * np.diff(edges))]) / max(rows.sum(), 1e-300)
    return np.asarray(up_to, np.float64)


def _segment(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of each bound's segment: each bound is one, and so is the gap between it and the next."""
    return 2 * (codes - 1)
