"""Enumeration: where a range holds few values, a predicate over one column is decided by trying them all.

Every value is a unit of its own, so the same proof answers for all of them at once; a unit's outcomes are those of the
values in its range. So ``month(d) = 7 AND day(d) = 4`` and ``x * 2 = 5`` are exact over dates and small integers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from zskip.interpret.outcomes import Outcomes
from zskip.interpret.spans import Span
from zskip.stats import Ranges, Statistics

__all__ = ["can_be_tried", "tried"]

WIDEST = 1024
"""Values in a unit's range."""

MOST = 1 << 17
"""Values of all units together."""


def can_be_tried(type: pa.DataType) -> bool:
    """Types whose values can be counted: dates and integers."""
    return bool(type == pa.date32() or (t.is_integer(type) and type != pa.uint64()))


def tried(found: Outcomes, span: Span, path: str, ask: Callable[[Statistics], Outcomes]) -> Outcomes:
    """``found``, narrowed in the units whose range of the column ``path`` holds few values."""
    unsure = found.can_be_true.astype(np.int8) + found.can_be_false + found.can_be_null > 1
    # Far from zero doubles are too coarse to count by, and integers could wrap: first the one, then the other.
    near = np.abs(span.upper.astype(np.float64) - span.lower) < 8 * WIDEST
    width = np.where(near, span.upper - span.lower, WIDEST)
    few = np.flatnonzero(unsure & span.value & (width >= 0) & (width < WIDEST))
    few = few[np.cumsum(width[few] + 1) <= MOST]
    if not len(few):
        return found
    counts = (width[few] + 1).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    values = np.sort(np.repeat(span.lower[few] - starts, counts) + np.arange(counts.sum()))
    values = values[np.append(True, values[1:] != values[:-1])]
    each = ask(_points(values, span.type, path))
    first, last = np.searchsorted(values, span.lower[few]), np.searchsorted(values, span.upper[few], side="right")
    names = ("can_be_true", "can_be_false", "can_be_null", "can_fail")
    narrowed = {}
    for name in names:
        of_value, mask = getattr(each, name), getattr(found, name).copy()
        sums = np.concatenate([[0], np.cumsum(of_value[:-1])])
        # The last unit stands for NULL.
        mask[few] &= (sums[last] > sums[first]) | (span.null[few] & of_value[-1])
        narrowed[name] = mask
    return Outcomes(**narrowed)


def _points(values: np.ndarray, type: pa.DataType, path: str) -> Statistics:
    raw = pa.array(values, pa.int64())
    bounds = raw.cast(pa.int32()).cast(type) if t.is_date(type) else raw.cast(type)
    bounds = pa.concat_arrays([bounds, pa.nulls(1, type)])
    has_value = np.ones(len(values) + 1, bool)
    has_value[-1] = False
    no = pa.array(np.zeros(len(values) + 1, bool))
    ranges = Ranges(bounds, bounds, pa.array(has_value), pa.array(~has_value), no)
    return Statistics(pa.array(np.ones(len(values) + 1, np.int64)), {path: ranges})
