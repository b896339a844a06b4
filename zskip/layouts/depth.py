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

from zskip.keys import dense_codes
from zskip.layouts.reads import limit
from zskip.stats import Ranges, Statistics

__all__ = ["ColumnDepth", "depths"]


@dataclass(frozen=True, slots=True)
class ColumnDepth:
    """One column's clustering over some units (files, or row groups).

    ``average`` and ``worst``: units that a look-up reads, over the look-ups of every unit's rows and at worst;
    ``skipped``: the share of rows that a look-up skips, from 0 to 1; ``limit``: the most that any layout by so many
    columns could skip over as many even units; ``histogram``: rows of ``(depth from, depth to, share of look-ups)``;
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
    """The clustering of each column, by its path, with look-ups spread over the rows as they are over the ranges.

    A look-up's value is taken to lie at the lower or at the upper end of some unit's range, by the unit's rows: where
    values lie in between is not known from ranges.
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
    # sweep over the ends: what begins at a code, less what ended before it
    places = len(distinct) + 2
    begins, stops = np.bincount(lower, minlength=places), np.bincount(upper + 1, minlength=places)
    depth = np.cumsum(begins - stops)
    read = np.cumsum(np.bincount(lower, weight, places) - np.bincount(upper + 1, weight, places))
    asked = np.concatenate([lower, upper])
    share = np.concatenate([weight, weight]) / max(2 * weight.sum(), 1.0)
    depth_asked, read_asked = depth[asked] + always, read[asked] + always_rows
    if not count:
        return ColumnDepth(units, float(always), always, 1 - always_rows / max(rows.sum(), 1.0), at_most, (), always)
    return ColumnDepth(
        units,
        float((depth_asked * share).sum()),
        int(depth_asked.max()),
        float(1.0 - (read_asked * share).sum() / max(rows.sum(), 1.0)),
        at_most,
        _histogram(depth_asked, share),
        always,
    )


def _histogram(depth: NDArray[np.int64], share: NDArray[np.float64]) -> tuple[tuple[int, int, float], ...]:
    """Shares by depth, in classes that double: 1, 2, 3–4, 5–8, …"""
    number = np.ceil(np.log2(np.maximum(depth, 1))).astype(int)
    shares = np.bincount(number, share)
    return tuple(
        (2 ** (each - 1) + 1 if each else 1, 2**each, float(shares[each])) for each in np.flatnonzero(shares).tolist()
    )
