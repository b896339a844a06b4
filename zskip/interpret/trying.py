"""Enumeration: where a range holds few values, a predicate over one column is decided by trying them all.

Every value is a unit of its own, so the same proof answers for all of them at once; a unit's outcomes are those of the
values in its range, and of NULL. So ``month(d) = 7 AND day(d) = 4`` and ``x * 2 = 5`` are exact over dates and small
integers, and what no rule knows, as ``upper(s) = 'DE'``, over units that hold one value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from zskip.interpret.outcomes import Outcomes
from zskip.interpret.spans import Span
from zskip.predicate.tree import Reference
from zskip.stats import Ranges, Statistics

__all__ = ["Points", "can_be_tried", "tried"]

WIDEST = 1024
"""Values in a unit's range."""

MOST = 1 << 17
"""Values of all units together, counted once where units hold but one."""

MOST_BYTES = 1 << 24
"""Bytes of all single strings together."""


def can_be_tried(type: pa.DataType) -> bool:
    """Types whose values can be counted: dates and integers."""
    return bool(type == pa.date32() or (t.is_integer(type) and type != pa.uint64()))


@dataclass(frozen=True, slots=True)
class Points:
    """Values of one column as units, ascending, and NULL as the last unit."""

    path: str
    values: pa.Array

    @property
    def statistics(self) -> Statistics:
        """What is known of each: everything."""
        null = self.values.is_null()
        no = pa.array(np.zeros(len(self.values), bool))
        ranges = Ranges(self.values, self.values, pc.invert(null), null, no)
        return Statistics(pa.array(np.ones(len(self.values), np.int64)), {self.path: ranges})


@dataclass(frozen=True, slots=True)
class Few:
    """Units whose values are few: each holds nothing but ``points.values[first:last]``, and NULL."""

    units: np.ndarray
    first: np.ndarray
    last: np.ndarray
    points: Points

    @classmethod
    def no_units(cls, column: Reference) -> Few:
        """None, and NULL as the only point."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none, Points(column.path, pa.nulls(1, column.type)))


def tried(
    found: Outcomes, span: Span, statistics: Statistics, column: Reference, ask: Callable[[Points], Outcomes]
) -> Outcomes:
    """``found``, narrowed in the units whose range of the column holds few values, or none but NULL."""
    # What may be NaN besides has no range.
    unsure = (found.can_be_true.astype(np.int8) + found.can_be_false + found.can_be_null > 1) & ~span.nan
    valueless = unsure & ~span.value
    unsure &= span.value
    few = None
    if unsure.any():
        few = _counted(unsure, span, column) if can_be_tried(column.type) else _single(unsure, statistics, column)
    if few is None:
        if not valueless.any():
            return found
        few = Few.no_units(column)
    each = ask(few.points)
    narrowed = {}
    for name in ("can_be_true", "can_be_false", "can_be_null", "can_fail"):
        of_value, mask = getattr(each, name), getattr(found, name).copy()
        sums = np.concatenate([[0], np.cumsum(of_value[:-1])])
        mask[few.units] &= (sums[few.last] > sums[few.first]) | (span.null[few.units] & of_value[-1])
        mask[valueless] &= span.null[valueless] & of_value[-1]
        narrowed[name] = mask
    return Outcomes(**narrowed)


def _counted(unsure: np.ndarray, span: Span, column: Reference) -> Few | None:
    """The units whose range of an integer or a date holds few values."""
    # Far from zero doubles are too coarse to count by, and integers could wrap: first the one, then the other.
    near = np.abs(span.upper.astype(np.float64) - span.lower) < 8 * WIDEST
    width = np.where(near, span.upper - span.lower, WIDEST)
    units = np.flatnonzero(unsure & (width >= 0) & (width < WIDEST))
    units = units[np.cumsum(width[units] + 1) <= MOST]
    if not len(units):
        return None
    counts = (width[units] + 1).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    values = np.sort(np.repeat(span.lower[units] - starts, counts) + np.arange(counts.sum()))
    values = values[np.append(True, values[1:] != values[:-1])]
    first, last = np.searchsorted(values, span.lower[units]), np.searchsorted(values, span.upper[units], side="right")
    raw = pa.array(values, pa.int64())
    typed = raw.cast(pa.int32()).cast(column.type) if t.is_date(column.type) else raw.cast(column.type)
    return Few(units, first, last, Points(column.path, pa.concat_arrays([typed, pa.nulls(1, column.type)])))


def _single(unsure: np.ndarray, statistics: Statistics, column: Reference) -> Few | None:
    """The units whose bounds are equal: between them lies one value, however its file wrote them."""
    ranges = statistics.columns.get(column.path)
    if ranges is None or ranges.lower.type != column.type:
        return None
    same = np.asarray(pc.fill_null(pc.equal(ranges.lower, ranges.upper), False).to_numpy(zero_copy_only=False), bool)
    units = np.flatnonzero(unsure & same)
    if not len(units):
        return None
    encoded = ranges.lower.take(pa.array(units)).dictionary_encode()
    values, place = encoded.dictionary, encoded.indices.to_numpy()
    if len(values) > MOST or values.nbytes > MOST_BYTES or not _is_whole(values):
        return None
    first, last = place, place + 1
    if t.is_floating(column.type):
        # 0.0 and -0.0 are one value to compare, and two to a function: both are tried.
        zeros = pc.equal(values, 0.0)
        if pc.any(zeros).as_py():
            rest = values.filter(pc.invert(zeros))
            values = pa.concat_arrays([pa.array([-0.0, 0.0], column.type), rest])
            code = np.cumsum(~np.asarray(zeros.to_numpy(zero_copy_only=False), bool)) + 1
            is_zero = np.asarray(zeros.to_numpy(zero_copy_only=False), bool)[place]
            first, last = np.where(is_zero, 0, code[place]), np.where(is_zero, 2, code[place] + 1)
    return Few(units, first, last, Points(column.path, pa.concat_arrays([values, pa.nulls(1, column.type)])))


def _is_whole(values: pa.Array) -> bool:
    """Whether strings are UTF-8: a bound may have been cut inside a character."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
