"""Enumeration: where a range holds few values, evaluate the predicate on all of them.

Every value, or combination of the values of several columns, is a unit of its own, so the same proof answers for all of
them at once; a unit's outcomes are those of the values in its range, and of NULL. So ``month(d) = 7 AND day(d) = 4``
and ``x * 2 = 5`` are exact over dates and small integers, and what no rule knows, as ``upper(s) = 'DE'``, over units
that hold one value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import types as t
from zskip.expr.tree import Reference
from zskip.intervals.spans import Span
from zskip.pruning.outcomes import Outcomes
from zskip.stats import Ranges, Statistics

__all__ = ["Points", "can_be_tried", "narrowed_by_values"]

WIDEST = 1024
"""Values in a unit's range, or combinations of them in its ranges."""

MOST = 1 << 17
"""Values of all units together, counted once where units hold but one."""

MOST_BYTES = 1 << 24
"""Bytes of all single strings together."""

_MASKS = ("can_be_true", "can_be_false", "can_be_null", "can_fail")


def can_be_tried(type: pa.DataType) -> bool:
    """Types whose values can be counted: dates and integers."""
    return bool(type == pa.date32() or (t.is_integer(type) and type != pa.uint64()))


@dataclass(frozen=True, slots=True)
class Points:
    """Units of one row each, by the values of their columns."""

    values: Mapping[str, pa.Array]

    @property
    def statistics(self) -> Statistics:
        """What is known of each: everything."""
        columns = {}
        for path, values in self.values.items():
            null, no = values.is_null(), pa.array(np.zeros(len(values), bool))
            columns[path] = Ranges(values, values, pc.invert(null), null, no)
        return Statistics(pa.array(np.ones(len(next(iter(columns.values()))), np.int64)), columns)


@dataclass(frozen=True, slots=True)
class Few:
    """Units whose values of a column are few: each holds nothing but ``values[first:last]``, and NULL, which stands
    at the end of ``values``."""

    units: np.ndarray
    first: np.ndarray
    last: np.ndarray
    values: pa.Array

    @classmethod
    def no_units(cls, column: Reference) -> Few:
        """None, and NULL as the only value."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none, pa.nulls(1, column.type))


def narrowed_by_values(
    found: Outcomes,
    spans: Sequence[Span],
    statistics: Statistics,
    columns: Sequence[Reference],
    ask: Callable[[Points], Outcomes],
) -> Outcomes:
    """``found``, narrowed in the units whose ranges of the columns hold few values, or none but NULL."""
    unsure = found.can_be_true.astype(np.int8) + found.can_be_false + found.can_be_null > 1
    for span in spans:
        # What may be NaN besides has no range.
        unsure &= ~span.nan
    if not unsure.any():
        return found
    if len(columns) == 1:
        return _of_one(found, unsure, spans[0], statistics, columns[0], ask)
    return _of_several(found, unsure, spans, statistics, columns, ask)


def _of_one(
    found: Outcomes,
    unsure: np.ndarray,
    span: Span,
    statistics: Statistics,
    column: Reference,
    ask: Callable[[Points], Outcomes],
) -> Outcomes:
    valueless = unsure & ~span.value
    few = _few(unsure & span.value, span, statistics, column)
    if not len(few.units) and not valueless.any():
        return found
    each = ask(Points({column.path: few.values}))
    narrowed = {}
    for name in _MASKS:
        of_value, mask = getattr(each, name), getattr(found, name).copy()
        sums = np.concatenate([[0], np.cumsum(of_value[:-1])])
        mask[few.units] &= (sums[few.last] > sums[few.first]) | (span.null[few.units] & of_value[-1])
        mask[valueless] &= span.null[valueless] & of_value[-1]
        narrowed[name] = mask
    return Outcomes(**narrowed)


def _of_several(
    found: Outcomes,
    unsure: np.ndarray,
    spans: Sequence[Span],
    statistics: Statistics,
    columns: Sequence[Reference],
    ask: Callable[[Points], Outcomes],
) -> Outcomes:
    """Every combination of the columns' values is tried, and NULL among them; each once, in however many units."""
    choices = []
    sizes = np.ones(len(unsure), np.int64)
    for span, column in zip(spans, columns, strict=True):
        choice = _Choice.of(_few(unsure & span.value, span, statistics, column), unsure, span)
        unsure = choice.known
        sizes = np.minimum(sizes * (choice.count + choice.null), WIDEST + 1)
        choices.append(choice)
    units = np.flatnonzero(unsure & (sizes <= WIDEST))
    units = units[np.cumsum(sizes[units]) <= MOST]
    if not len(units):
        return found
    counts = sizes[units]
    owner = np.repeat(np.arange(len(units)), counts)
    # Which combination of its unit each one is, and of that a digit for every column.
    rest = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    combination = np.zeros(len(owner), np.int64)
    places = []
    for choice in choices:
        rest, place = choice.places(units[owner], rest)
        combination = np.unique(combination * len(choice.values) + place, return_inverse=True)[1].reshape(-1)
        places.append(place)
    _, shown, combination = np.unique(combination, return_index=True, return_inverse=True)
    places = [place[shown] for place in places]
    if sum(_bytes(choice.values, place) for choice, place in zip(choices, places, strict=True)) > MOST_BYTES:
        return found
    each = ask(
        Points(
            {
                column.path: choice.values.take(pa.array(place))
                for column, choice, place in zip(columns, choices, places, strict=True)
            }
        )
    )
    narrowed = {}
    for name in _MASKS:
        mask, hit = getattr(found, name).copy(), np.zeros(len(units), bool)
        hit[owner[getattr(each, name)[combination.reshape(-1)]]] = True
        mask[units] &= hit
        narrowed[name] = mask
    return Outcomes(**narrowed)


@dataclass(frozen=True, slots=True)
class _Choice:
    """For each unit, the values that a column may have: ``values[first:first + count]``, and NULL where ``null``.

    Only in the units that are ``known``.
    """

    known: np.ndarray
    first: np.ndarray
    count: np.ndarray
    null: np.ndarray
    values: pa.Array

    @classmethod
    def of(cls, few: Few, unsure: np.ndarray, span: Span) -> _Choice:
        known, first, count = unsure & ~span.value, np.zeros(len(span), np.int64), np.zeros(len(span), np.int64)
        known[few.units] = True
        first[few.units], count[few.units] = few.first, few.last - few.first
        return cls(known, first, count, span.null, few.values)

    def places(self, units: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places in ``values`` that numbers of combinations stand for, and what of the numbers is left."""
        choices = self.count[units] + self.null[units]
        rest, digit = np.divmod(rest, choices)
        return rest, np.where(digit < self.count[units], self.first[units] + digit, len(self.values) - 1)


def _bytes(values: pa.Array, places: np.ndarray) -> int:
    """The bytes of the values at these places."""
    if not t.is_string(values.type):
        return len(places) * 8
    lengths = np.asarray(pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False))
    return int(lengths[places].sum())


def _few(unsure: np.ndarray, span: Span, statistics: Statistics, column: Reference) -> Few:
    few = None
    if unsure.any():
        few = _counted(unsure, span, column) if can_be_tried(column.type) else _single(unsure, statistics, column)
    return few or Few.no_units(column)


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
    return Few(units, first, last, pa.concat_arrays([typed, pa.nulls(1, column.type)]))


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
    return Few(units, first, last, pa.concat_arrays([values, pa.nulls(1, column.type)]))


def _is_whole(values: pa.Array) -> bool:
    """Whether strings are UTF-8: a bound may have been cut inside a character."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
