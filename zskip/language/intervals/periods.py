"""The spans of date functions. A moment is a date or timestamp; the number of the period that contains it is monotone.

A part (such as the month) is monotone while the enclosing period (the year) is the same at both bounds. In a zone whose
offset changes, local time is not monotone in UTC, so the bounds are first widened by the greatest offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from zskip.core import types as t
from zskip.language.clocks import has_fixed_offset, offset_nanoseconds
from zskip.language.intervals.spans import Periodic, Span, halves_of_period, key_limits
from zskip.language.literals import per_day
from zskip.language.tree import Call

Ints = npt.NDArray[np.int64]

_DAY = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The years 1 to 9999. Outside them, engines differ in calendars and special values, and the result is unbounded."""

_WIDEST_OFFSET_HOURS = 16
"""No zone has ever been further from UTC."""


_LIMITS = np.iinfo(np.int64)


def calendar(units_a_day: int) -> tuple[int, int]:
    """The first moment of the supported years, and the first moment after them.

    Nanoseconds span fewer years, and their limits are DuckDB's infinities, which have no parts.
    """
    return max(_FIRST_DAY * units_a_day, _LIMITS.min + 2), min(_LAST_DAY * units_a_day, _LIMITS.max)


def days_to_months(days: Ints) -> Ints:
    """The number of each day's month, 0 for January 1970."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def months_to_days(months: Ints) -> Ints:
    """The number of each month's first day, 0 for 1970-01-01."""
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


_SUBDAY = {"hour": 24, "minute": 1_440, "second": 86_400, "millisecond": 86_400_000, "microsecond": _DAY}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def period(values: Ints, units_a_day: int, unit: str) -> Ints:
    """The number of the period that contains each moment; monotone."""
    if unit in _SUBDAY:
        per = _SUBDAY[unit]
        return values // (units_a_day // per) if units_a_day >= per else values * (per // units_a_day)
    days = values // units_a_day
    if unit == "day":
        return days
    if unit == "week":
        return (days + 3) // 7
    return days_to_months(days) // _MONTHS[unit]


def period_start(periods: Ints, unit: str) -> Ints:
    """The first microsecond of each period, counted from 1970."""
    if unit in _SUBDAY:
        return periods * (_DAY // _SUBDAY[unit])
    if unit == "day":
        return periods * _DAY
    if unit == "week":
        return (periods * 7 - 3) * _DAY
    return months_to_days(periods * _MONTHS[unit]) * _DAY


def local_bounds(span: Span, zone: str | None) -> tuple[Ints, Ints]:
    """The bounds in local time: shifted by the zone's offset if it never changes, else widened."""
    if zone is None:
        return span.lower, span.upper
    scale = 1000 * _DAY // per_day(span.type)
    if has_fixed_offset(zone):
        shift = offset_nanoseconds(zone) // scale
        return _add(span.lower, shift), _add(span.upper, shift)
    margin = _WIDEST_OFFSET_HOURS * per_day(span.type) // 24
    return _add(span.lower, -margin), _add(span.upper, margin)


def without_nanoseconds(span: Span) -> Span:
    """The span of the values in microseconds: engines truncate or round nanoseconds, so it is widened by 1 µs."""
    if not t.is_timestamp(span.type) or span.type.unit != "ns":
        return span
    lower, upper = _add(span.lower, -1000), _add(span.upper, 1000)
    return Span(span.type, lower, upper, span.value, span.null, span.nan, span.fail)


def _add(values: Ints, amount: int) -> Ints:
    """The sums, saturated at the limits of 64 bits."""
    if amount >= 0:
        return np.minimum(values, _LIMITS.max - amount) + amount
    return np.maximum(values, _LIMITS.min - amount) + amount


def monotone(
    span: Span, call: Call, zone: str | None, compute: Callable[[Ints], Ints], from_local: bool = False
) -> Span:
    """A monotone function applied to the bounds; unbounded where a bound is outside the years 1 to 9999.

    ``from_local``: whether the result is local time in ``zone`` and must be converted back to UTC.
    """
    lower, upper = local_bounds(span, zone)
    least, end = calendar(per_day(span.type))
    low, high = key_limits(call.type)
    early, late = lower < least, upper >= end
    first, last = (compute(np.clip(each, least, end - 1)) for each in (lower, upper))
    if from_local and zone is not None:
        margin = _WIDEST_OFFSET_HOURS * 3_600_000_000
        fixed = offset_nanoseconds(zone) // 1000 if has_fixed_offset(zone) else None
        first, last = (first - fixed, last - fixed) if fixed is not None else (first - margin, last + margin)
    unsupported = span.value & (early | late)
    first, last = np.where(early, low, np.clip(first, low, high)), np.where(late, high, np.clip(last, low, high))
    # Neither a lower bound after the last year nor an upper bound before the first one bounds the result.
    first = np.where(lower >= end, low, first)
    last = np.where(upper < least, high, last)
    return Span(
        call.type, first, last, span.value, span.null | unsupported, np.zeros(len(span), bool), span.fail | unsupported
    )


def month_of(days: Ints) -> Ints:
    """The month of a day, 1 to 12."""
    return days_to_months(days) % 12 + 1


def thursday_of(days: Ints) -> Ints:
    """The Thursday of each day's week; the ISO year of the week is the year of its Thursday."""
    return (days + 3) // 7 * 7


def year_start(days: Ints) -> Ints:
    """The first day of each day's year."""
    return months_to_days(days_to_months(days) // 12 * 12)


def iso_year(days: Ints) -> Ints:
    """The ISO year of each day's week, counted from 1970."""
    return days_to_months(thursday_of(days)) // 12


Days: TypeAlias = Callable[[Ints], Ints]
"""A function of day numbers, 0 for 1970-01-01."""


def year(spans: list[Span], call: Call) -> Span:
    """The year of a moment. ``call.options``: the time zone."""
    (span,) = map(without_nanoseconds, spans)
    units = per_day(span.type)
    return monotone(span, call, _zone(call), lambda values: period(values, units, "year") + 1970)


def part_of_day(around: Days, value: Days, least: int, most: int) -> Periodic:
    """A part of a date: monotone within the period ``around`` it, whose numbers are consecutive, and otherwise from
    ``least`` to ``most``."""

    def halves(spans: list[Span], call: Call) -> tuple[Span, Span]:
        (span,) = map(without_nanoseconds, spans)
        units = per_day(span.type)

        def of_days(compute: Days) -> Days:
            return lambda values: compute(values // units)

        return _part(span, call, of_days(around), of_days(value), least, most)

    return Periodic(halves)


def part_of_clock(unit: str, around: str, count: int) -> Periodic:
    """A part of the time of day in ``unit``, of which the enclosing unit ``around`` has ``count``."""

    def halves(spans: list[Span], call: Call) -> tuple[Span, Span]:
        (span,) = map(without_nanoseconds, spans)
        units = per_day(span.type)
        within = lambda values: period(values, units, unit) % count  # noqa: E731
        return _part(span, call, lambda values: period(values, units, around), within, 0, count - 1)

    return Periodic(halves)


def _part(span: Span, call: Call, around: Days, value: Days, least: int, most: int) -> tuple[Span, Span]:
    lower, upper = local_bounds(span, _zone(call))
    first_moment, end = calendar(per_day(span.type))
    unsupported = span.value & ((lower < first_moment) | (upper >= end))
    low, high = (np.clip(each, first_moment, end - 1) for each in (lower, upper))
    crossed = np.where(unsupported, 2, around(high) - around(low))
    flags = (span.value, span.null | unsupported, np.zeros(len(span), bool), span.fail | unsupported)
    return halves_of_period(call.type, crossed, value(low), value(high), least, most, flags)


def _zone(call: Call) -> str | None:
    """The time zone of a call, which is its last option."""
    return None if call.options[-1] is None else str(call.options[-1])


def truncate(spans: list[Span], call: Call) -> Span:
    """``date_trunc``. ``call.options``: the unit, and the zone."""
    (span,) = map(without_nanoseconds, spans)
    unit, _ = call.options
    units = per_day(span.type)
    divisor = _DAY if t.is_date(call.type) else 1
    return monotone(
        span,
        call,
        _zone(call),
        lambda values: period_start(period(values, units, str(unit)), str(unit)) // divisor,
        from_local=not t.is_date(call.type),
    )


def date(spans: list[Span], call: Call) -> Span:
    """The day of a moment."""
    (span,) = map(without_nanoseconds, spans)
    units = per_day(span.type)
    return monotone(span, call, _zone(call), lambda values: values // units)


def timestamp(spans: list[Span], call: Call) -> Span:
    """A moment as a timestamp of another type. ``call.options``: a zone of fixed offset, or None."""
    (span,) = map(without_nanoseconds, spans)
    (zone,) = call.options
    shift = 0
    if zone is not None:
        # Subtract the offset when converting to a type with a zone, and add it when converting from one.
        shift = offset_nanoseconds(str(zone)) // 1000 * (-1 if call.type.tz is not None else 1)
    units = per_day(span.type)
    scale = _DAY // units if units <= _DAY else 1
    return monotone(span, call, None, lambda values: values * scale + shift)


def last_day(spans: list[Span], call: Call) -> Span:
    """The last day of a moment's month."""
    (span,) = map(without_nanoseconds, spans)
    units = per_day(span.type)
    return monotone(span, call, _zone(call), lambda v: months_to_days(days_to_months(v // units) + 1) - 1)


def shift(spans: list[Span], call: Call) -> Span:
    """A moment moved by an interval. ``call.options``: months, days, microseconds, zone."""
    (span,) = map(without_nanoseconds, spans)
    months, days, micros = (int(str(each)) for each in call.options[:3])
    units = per_day(span.type)

    def shifted(values: Ints) -> Ints:
        day = values // units
        time_of_day = (values - day * units) * (_DAY // units)
        if months:
            month = days_to_months(day)
            day_of_month = day - months_to_days(month)
            length = months_to_days(month + months + 1) - months_to_days(month + months)
            day = months_to_days(month + months) + np.minimum(day_of_month, length - 1)
        if t.is_date(call.type):
            return day + days
        return (day + days) * _DAY + time_of_day + micros

    return monotone(span, call, None, shifted)


def add_days(spans: list[Span], call: Call) -> Span:
    """A date moved by a number of days."""
    span, amount = spans
    sign = -1 if call.options == ("subtract",) else 1
    small, large = (amount.lower, amount.upper) if sign > 0 else (-amount.upper, -amount.lower)
    low, high = key_limits(call.type)
    lower, upper = span.lower + np.clip(small, low, high), span.upper + np.clip(large, low, high)
    value, null, fail = span.value & amount.value, span.null | amount.null, span.fail | amount.fail
    # An infinite date stays infinite.
    unsupported = value & ((lower <= low) | (upper >= high) | (span.lower <= low + 1) | (span.upper >= high))
    lower, upper = (
        np.where(unsupported, low, np.clip(lower, low, high)),
        np.where(unsupported, high, np.clip(upper, low, high)),
    )
    return Span(call.type, lower, upper, value, null, np.zeros(len(span), bool), fail | unsupported)


def difference(spans: list[Span], call: Call) -> Span:
    """The number of boundaries of a unit between two moments; of weeks, of every seven days between their days.

    ``spans``: the earlier moment first.
    """
    spans = [without_nanoseconds(span) for span in spans]
    earlier, later = spans
    (unit,) = call.options
    counted = "day" if unit == "week" else str(unit)
    bounds: list[tuple[Any, Any]] = []
    unsupported = np.zeros(len(earlier), bool)
    for span in spans:
        units = per_day(span.type)
        least, end = calendar(units)
        unsupported = unsupported | span.value & ((span.lower < least) | (span.upper >= end))
        clipped = np.clip(span.lower, least, end - 1), np.clip(span.upper, least, end - 1)
        bounds.append((period(clipped[0], units, counted), period(clipped[1], units, counted)))
    (first_low, first_high), (last_low, last_high) = bounds
    ends = last_low - first_high, last_high - first_low
    if unit == "week":
        # DuckDB counted Mondays before 2.0; now it divides the days by seven, towards zero.
        ends = np.sign(ends[0]) * (np.abs(ends[0]) // 7), np.sign(ends[1]) * (np.abs(ends[1]) // 7)
    low, high = key_limits(call.type)
    lower, upper = np.where(unsupported, low, ends[0]), np.where(unsupported, high, ends[1])
    value, null, fail = earlier.value & later.value, earlier.null | later.null, earlier.fail | later.fail
    return Span(call.type, lower, upper, value, null | unsupported, np.zeros(len(earlier), bool), fail | unsupported)


def epoch(spans: list[Span], call: Call) -> Span:
    """The number of units since 1970. ``call.options``: the unit, and optionally that it is truncated towards zero."""
    (span,) = map(without_nanoseconds, spans)
    unit, *truncated = call.options
    units = per_day(span.type)
    if truncated:
        # DuckDB truncates to milliseconds towards zero: 1 µs before 1970 is 0.
        parts = max(1, units // (_DAY // 1000))
        return monotone(span, call, None, lambda values: period(values + (values < 0) * (parts - 1), units, str(unit)))
    if call.type == pa.float64():
        whole = Call("epoch", call.arguments, pa.int64(), call.options)
        seconds = monotone(span, whole, None, lambda values: period(values, units, "second"))
        low, high = key_limits(pa.int64())
        fraction = 0 if units <= 86_400 else 1
        lower = np.where(seconds.lower == low, -np.inf, seconds.lower.astype(np.float64))
        upper = np.where(seconds.upper == high, np.inf, seconds.upper.astype(np.float64) + fraction)
        return Span(call.type, lower, upper, seconds.value, seconds.null, seconds.nan, seconds.fail)
    return monotone(span, call, None, lambda values: period(values, units, str(unit)))


def from_epoch(spans: list[Span], call: Call) -> Span:
    """The timestamp of a number of seconds since 1970."""
    (span,) = spans
    low, high = key_limits(call.type)
    least, most = _FIRST_DAY * 86_400, _LAST_DAY * 86_400
    early, late = span.lower < least, span.upper > most
    unsupported = span.value & (early | late)
    lower = np.where(early | (span.lower > most), low, np.clip(span.lower, least, most) * 1_000_000)
    upper = np.where(late | (span.upper < least), high, np.clip(span.upper, least, most) * 1_000_000)
    return Span(
        call.type, lower, upper, span.value, span.null | unsupported, np.zeros(len(span), bool), span.fail | unsupported
    )
