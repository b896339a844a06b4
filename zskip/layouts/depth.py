"""Clustering depth: how many files may hold a value of a column, from the files' ranges.

file 0   [-------]
file 1        [-------]
file 2                    [----]
depth     1   2   1    0    1         the number of files that a look-up of this value reads
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.core import types as t
from zskip.layouts.reads import limit
from zskip.stats import Ranges, Statistics
from zskip.stats.keys import dense_codes, order_bits, sortable_numbers

_LEAST_SHARE = 1e-10
"""The least width of a single value, as a share of the column's range: smaller ones vanish in sums of doubles."""


@dataclass(frozen=True, slots=True)
class ColumnDepth:
    """One column's clustering over some units (files, or row groups).

    ``average``, ``worst``: units that a look-up reads, on average over the rows' values and at most · ``skipped``: the
    average share of rows that a look-up skips, from 0 to 1 · ``limit``: the greatest share that any layout by as many
    columns could skip with as many units of evenly distributed data, or ``skipped`` if that is greater ·
    ``histogram``: rows of ``(least depth, greatest depth, share of look-ups)`` ·
    ``unknown``: units without bounds, which every look-up reads.
    """

    units: int
    average: float
    worst: int
    skipped: float
    limit: float
    histogram: tuple[tuple[int, int, float], ...]
    unknown: int


class Clustering(dict[str, ColumnDepth]):
    """The clustering of each column, by path. Printed, or shown in a notebook, it is a table."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        lines = [f"{'units':>9} {'average':>9} {'worst':>9} {'skipped':>8} {'limit':>8}  column"]
        for path, depth in self.items():
            figures = f"{depth.units:>9,} {depth.average:>9,.1f} {depth.worst:>9,}"
            figures += f" {depth.skipped:>8.1%} {depth.limit:>8.1%}"
            lines.append(f"{figures}  {path}")
        return "\n".join(lines)


def depths(statistics: Statistics, columns: Sequence[str]) -> Clustering:
    """The clustering of each column, by path, for look-ups of the values that the rows hold.

    It assumes that a unit's values are spread evenly over its range. The distance between strings is that of the first
    eight-byte words in which they differ.
    """
    rows = np.asarray(statistics.row_count.fill_null(0).to_numpy(zero_copy_only=False), np.float64)
    at_most = limit(len(statistics), [1.0] * len(columns))
    return Clustering({path: _depth(statistics.columns.get(path), rows, at_most) for path in columns})


def _depth(ranges: Ranges | None, rows: NDArray[np.float64], at_most: float) -> ColumnDepth:
    units = len(rows)
    if ranges is None:
        return ColumnDepth(units, float(units), units, 0.0, at_most, ((units, units, 1.0),), units)
    empty = np.asarray(ranges.has_value.fill_null(True).to_numpy(zero_copy_only=False) == 0)
    known = np.asarray(ranges.lower.is_valid()) & np.asarray(ranges.upper.is_valid()) & ~empty
    unknown = ~known & ~empty
    always, always_rows = int(unknown.sum()), float(rows[unknown].sum())
    chosen = pa.array(np.flatnonzero(known))
    ends = pa.chunked_array([ranges.lower.take(chosen), ranges.upper.take(chosen)])
    codes, distinct = dense_codes(ends)
    count = int(known.sum())
    lower, upper, weight = codes[:count], codes[count:], rows[known]
    if not count:
        skipped = float(1 - always_rows / max(rows.sum(), 1.0))
        return ColumnDepth(units, float(always), always, skipped, max(at_most, skipped), (), always)
    # Sweep over the segments: each bound is a segment, and so is the gap between it and the next. ``edges``: the starts
    # and ends of the segments; a unit covers the segments from ``first`` to ``last``.
    at, between = value_widths(distinct)
    edges = np.concatenate([[0.0], np.cumsum(np.stack([at, between], axis=1).ravel())])
    first, last = 2 * (lower - 1), 2 * (upper - 1)

    def over(figure: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each segment, the sum of a figure over the units that cover it."""
        changes = np.bincount(first, figure, len(edges)) - np.bincount(last + 1, figure, len(edges))
        return np.asarray(np.cumsum(changes)[:-1])

    share = over(weight / (edges[last + 1] - edges[first])) * np.diff(edges) / max(weight.sum(), 1.0)
    depth, read = np.rint(over(np.ones(count))).astype(np.int64) + always, over(weight) + always_rows
    skipped = max(0.0, float(1.0 - (read * share).sum() / max(rows.sum(), 1.0)))  # not -2e-16
    return ColumnDepth(
        units,
        float((depth * share).sum()),
        int(depth.max()),
        skipped,
        max(at_most, skipped),
        _histogram(depth, share),
        always,
    )


def value_widths(distinct: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The width of each sorted value, and of the gap from it to the next; the width of an integer is 1."""
    if t.is_floating(distinct.type):
        most = np.finfo(np.float64).max / 4
        gaps, width = np.diff(np.clip(sortable_numbers(distinct).astype(np.float64), -most, most)), 0.0
        # Only ratios count, and rows divided by a width of 1e-310 would overflow.
        gaps = gaps / (gaps.sum() or 1.0)
    else:
        gaps, width = np.diff(order_bits(distinct)).astype(np.float64), 1.0
    width = max(width, float(gaps.sum()) * _LEAST_SHARE) or 1.0
    return np.full(len(distinct), width), np.append(np.maximum(gaps - width, 0.0), 0.0)


def _histogram(depth: NDArray[np.int64], share: NDArray[np.float64]) -> tuple[tuple[int, int, float], ...]:
    """The share of look-ups by depth, in buckets of doubling width: 1, 2, 3–4, 5–8, …"""
    bucket = np.ceil(np.log2(np.maximum(depth, 1))).astype(int)
    shares = np.bincount(bucket, share)
    return tuple((2 ** (n - 1) + 1 if n else 1, 2**n, float(shares[n])) for n in np.flatnonzero(shares).tolist())
