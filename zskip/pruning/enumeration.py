"""Enumeration: if a range holds few values, evaluate the predicate on each of them.

Each value becomes a unit of its own, so that one evaluation of the proof covers them all. The outcomes of a real unit
are those of the values in its range, and of NULL. This makes ``month(d) = 7 AND day(d) = 4`` and ``x * 2 = 5`` exact
over dates and small integers, and expressions without a rule, such as ``upper(s) = 'DE'`` or ``length(a || b) = 3``,
over units of a single value of each column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.language.intervals.spans import Span
from zskip.language.tree import Reference
from zskip.pruning.outcomes import Outcomes
from zskip.stats import Ranges, Statistics

WIDEST = 1024
"""The most values in a unit's range."""

MOST = 1 << 17
"""The most values in the ranges of all units together."""

MOST_DISTINCT, MOST_BYTES = 1 << 14, 1 << 22
"""The most distinct values, or rows of values, of units that hold only one, and their bytes."""

_MASKS = ("can_be_true", "can_be_false", "can_be_null", "can_fail")


def is_enumerable(type: pa.DataType) -> bool:
    """Whether the values in a range of a type can be enumerated: those of dates and integers."""
    return bool(type == pa.date32() or (t.is_integer(type) and type != pa.uint64()))


@dataclass(frozen=True, slots=True)
class Points:
    """Units of one row each: ``values`` holds the value of each column in each unit."""

    values: Mapping[str, pa.Array]

    @property
    def statistics(self) -> Statistics:
        """Exact statistics of the units."""
        columns = {}
        for path, values in self.values.items():
            null, no = values.is_null(), pa.array(np.zeros(len(values), bool))
            columns[path] = Ranges(values, values, pc.invert(null), null, no)
        return Statistics(pa.array(np.ones(len(next(iter(columns.values()))), np.int64)), columns)


@dataclass(frozen=True, slots=True)
class FewValues:
    """Units that hold few values of a column: unit i may hold only ``values[first[i]:last[i]]`` and NULL.

    The last entry of ``values`` is NULL.
    """

    units: np.ndarray
    first: np.ndarray
    last: np.ndarray
    values: pa.Array

    @classmethod
    def no_units(cls, column: Reference) -> FewValues:
        """No units, and NULL as the only value."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none, pa.nulls(1, column.type))


def narrowed_by_values(
    found: Outcomes,
    spans: Sequence[Span],
    statistics: Statistics,
    columns: Sequence[Reference],
    evaluate: Callable[[Points], Outcomes],
) -> Outcomes:
    """``found``, narrowed in the units whose ranges of the columns hold few values, or only NULL.

    ``evaluate`` returns the outcomes of single values.
    """
    unsure = found.can_be_true.astype(np.int8) + found.can_be_false + found.can_be_null > 1
    for span in spans:
        # Ranges do not include NaN.
        unsure &= ~span.nan
    if not unsure.any():
        return found
    if len(columns) == 1:
        return _of_one(found, unsure, spans[0], statistics, columns[0], evaluate)
    return _of_several(found, unsure, spans, statistics, columns, evaluate)


def _of_one(
    found: Outcomes,
    unsure: np.ndarray,
    span: Span,
    statistics: Statistics,
    column: Reference,
    evaluate: Callable[[Points], Outcomes],
) -> Outcomes:
    only_null = unsure & ~span.value
    few = _few_values(unsure & span.value, span, statistics, column)
    if not len(few.units) and not only_null.any():
        return found
    each = evaluate(Points({column.path: few.values}))
    narrowed = {}
    for name in _MASKS:
        of_value, mask = getattr(each, name), getattr(found, name).copy()
        sums = np.concatenate([[0], np.cumsum(of_value[:-1])])
        mask[few.units] &= (sums[few.last] > sums[few.first]) | (span.null[few.units] & of_value[-1])
        mask[only_null] &= span.null[only_null] & of_value[-1]
        narrowed[name] = mask
    return Outcomes(**narrowed)


def _of_several(
    found: Outcomes,
    unsure: np.ndarray,
    spans: Sequence[Span],
    statistics: Statistics,
    columns: Sequence[Reference],
    evaluate: Callable[[Points], Outcomes],
) -> Outcomes:
    """Narrows the units in which every column holds a single value, or only NULL."""
    values, indices = [], []
    for span, column in zip(spans, columns, strict=True):
        few = _few_values(unsure & span.value & ~span.null, span, statistics, column)
        single = few.last - few.first == 1
        index = np.full(len(unsure), len(few.values) - 1)
        index[few.units[single]] = few.first[single]
        unsure = unsure & (~span.value | (index < len(few.values) - 1))
        values.append(few.values)
        indices.append(index)
    units = np.flatnonzero(unsure)
    if not len(units):
        return found
    points, point = np.unique(np.stack(indices)[:, units], axis=1, return_inverse=True)
    if points.shape[1] > MOST_DISTINCT:
        return found
    taken = [each.take(pa.array(index)) for each, index in zip(values, points, strict=True)]
    each = evaluate(Points({column.path: one for column, one in zip(columns, taken, strict=True)}))
    narrowed = {}
    for name in _MASKS:
        mask = getattr(found, name).copy()
        mask[units] &= getattr(each, name)[point.reshape(-1)]
        narrowed[name] = mask
    return Outcomes(**narrowed)


def _few_values(unsure: np.ndarray, span: Span, statistics: Statistics, column: Reference) -> FewValues:
    few = None
    if unsure.any():
        few = (
            _enumerated_range(unsure, span, column)
            if is_enumerable(column.type)
            else _single_values(unsure, statistics, column)
        )
    return few or FewValues.no_units(column)


def _enumerated_range(unsure: np.ndarray, span: Span, column: Reference) -> FewValues | None:
    """The units whose range of an integer or a date holds few values."""
    # Doubles are inexact far from zero, and integers may wrap: doubles find the ranges that are narrow enough.
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
    return FewValues(units, first, last, pa.concat_arrays([typed, pa.nulls(1, column.type)]))


def _single_values(unsure: np.ndarray, statistics: Statistics, column: Reference) -> FewValues | None:
    """The units whose bounds are equal, so that they hold a single value."""
    ranges = statistics.columns.get(column.path)
    if ranges is None or ranges.lower.type != column.type:
        return None
    same = np.asarray(pc.fill_null(pc.equal(ranges.lower, ranges.upper), False).to_numpy(zero_copy_only=False), bool)
    units = np.flatnonzero(unsure & same)
    if not len(units):
        return None
    encoded = ranges.lower.take(pa.array(units)).dictionary_encode()
    values, index = encoded.dictionary, encoded.indices.to_numpy()
    if len(values) > MOST_DISTINCT or values.nbytes > MOST_BYTES or not _is_utf8(values):
        return None
    first, last = index, index + 1
    if t.is_floating(column.type):
        # 0.0 and -0.0 are equal, but functions tell them apart: evaluate both.
        zeros = pc.equal(values, 0.0)
        if pc.any(zeros).as_py():
            rest = values.filter(pc.invert(zeros))
            values = pa.concat_arrays([pa.array([-0.0, 0.0], column.type), rest])
            code = np.cumsum(~np.asarray(zeros.to_numpy(zero_copy_only=False), bool)) + 1
            is_zero = np.asarray(zeros.to_numpy(zero_copy_only=False), bool)[index]
            first, last = np.where(is_zero, 0, code[index]), np.where(is_zero, 2, code[index] + 1)
    return FewValues(units, first, last, pa.concat_arrays([values, pa.nulls(1, column.type)]))


def _is_utf8(values: pa.Array) -> bool:
    """Whether strings are valid UTF-8: a bound may have been truncated inside a character."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
