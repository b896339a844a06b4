"""How well a table is clustered: how many files hold a value, column by column, from their ranges alone.

file 0   [-------]
file 1        [-------]
file 2                    [----]
depth     1   2   1    0    1         a look-up reads as many files as stand above one another at its value
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip import types as t
from zskip.keys import dense_codes, fixed, order_bits
from zskip.layouts.reads import limit
from zskip.stats import Ranges, Statistics

__all__ = ["ColumnDepth", "depths"]

_LEAST_SHARE = 1e-10
"""Of a column's whole range: sums of doubles tell this much apart."""


@dataclass(frozen=True, slots=True)
class ColumnDepth:
    """One column's clustering over some units (files, or row groups).

    ``average`` and ``worst``: units that a look-up reads, over the look-ups of every unit's rows and at worst;
    ``skipped``: the share of rows that a look-up skips, from 0 to 1; ``limit``: the most that any layout by so many
    columns could skip over as many units of even data, or what uneven data lets it skip where that is more;
    ``histogram``: rows of ``(depth from, depth to, share of look-ups)``;
    ``unknown``: units without bounds, which every look-up reads.
    """

    units: int
    average: float
    worst: int
    skipped: float
    limit: float
    histogram: tuple[tuple[int, int, float], ...]
    unknown: int


def depths(statistics: Statistics, columns: Sequence[str]) -> Mapping[str, ColumnDepth]:
    """The clustering of each column, by its path, for look-ups of values as the rows hold them.

    A unit's values are taken to lie evenly in its range, for nothing more is known of them: whole numbers, dates and
    times each as likely as the next, strings by their first bytes that differ.
    """
    rows = np.asarray(statistics.row_count.fill_null(0).to_numpy(zero_copy_only=False), np.float64)
    at_most = limit(len(statistics), [1.0] * len(columns))
    return {path: _depth(statistics.columns.get(path), rows, at_most) for path in columns}


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
        return ColumnDepth(units, float(always), always, 1 - always_rows / max(rows.sum(), 1.0), at_most, (), always)
    # A sweep over the ends: at each of them, and between it and the next, what began before and did not end yet.
    at, between = _lengths(distinct)
    before = np.concatenate([[0.0], np.cumsum(np.stack([at, between], axis=1).ravel())])
    first, last = 2 * (lower - 1), 2 * (upper - 1)

    def over(each: NDArray[np.float64]) -> NDArray[np.float64]:
        changes = np.bincount(first, each, len(before)) - np.bincount(last + 1, each, len(before))
        return np.asarray(np.cumsum(changes)[:-1])

    share = over(weight / (before[last + 1] - before[first])) * np.diff(before) / max(weight.sum(), 1.0)
    depth, read = np.rint(over(np.ones(count))).astype(np.int64) + always, over(weight) + always_rows
    skipped = float(1.0 - (read * share).sum() / max(rows.sum(), 1.0))
    return ColumnDepth(
        units,
        float((depth * share).sum()),
        int(depth.max()),
        skipped,
        max(at_most, skipped),
        _histogram(depth, share),
        always,
    )


def _lengths(distinct: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of sorted values, how much room each takes, and how much lies between it and the next: as many as look-ups."""
    if t.is_floating(distinct.type):
        most = np.finfo(np.float64).max / 4
        gaps, one = np.diff(np.clip(fixed(distinct).astype(np.float64), -most, most)), 0.0
    else:
        gaps, one = np.diff(order_bits(distinct, after_prefix=True)).astype(np.float64), 1.0
    # A value of its own must not get lost beside a range of many.
    one = max(one, float(gaps.sum()) * _LEAST_SHARE) or 1.0
    return np.full(len(distinct), one), np.append(np.maximum(gaps - one, 0.0), 0.0)


def _histogram(depth: NDArray[np.int64], share: NDArray[np.float64]) -> tuple[tuple[int, int, float], ...]:
    """Shares by depth, in classes that double: 1, 2, 3–4, 5–8, …"""
    number = np.ceil(np.log2(np.maximum(depth, 1))).astype(int)
    shares = np.bincount(number, share)
    return tuple(
        (2 ** (each - 1) + 1 if each else 1, 2**each, float(shares[each])) for each in np.flatnonzero(shares).tolist()
    )
