"""Parts of dates and timestamps: year(x), hour(x), extract(part FROM x), date_part('part', x)."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from zskip.core import types as t
from zskip.language.functions import zones
from zskip.language.functions.function import ArgumentBinder, Builder, Function, require_only
from zskip.language.functions.zones import datetime_argument
from zskip.language.intervals import periods
from zskip.language.intervals.periods import (
    days_to_months,
    month_of,
    months_to_days,
    part_of_clock,
    part_of_day,
    thursday_of,
)
from zskip.language.literals import Refused
from zskip.language.tree import Call, Scalar


def _part(name: str) -> Builder:
    """Binds a function that is named after a part, such as ``year(x)``."""

    def build(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
        require_only(node, "this")
        inner = node.this
        if isinstance(inner, exp.TsOrDsToDate) and not inner.args.get("safe"):
            require_only(inner, "this")
            inner = inner.this
        return _part_call(name, datetime_argument(binding, inner), binding)

    return build


def _part_call(name: str, inner: Scalar, binding: ArgumentBinder) -> Scalar:
    """A call for the part of a date or timestamp that is spelled ``name``. Raises `Refused`."""
    spark = binding.dialect.name == "spark"
    part = (_SPARK_SPELLINGS.get(name.lower()) if spark else None) or _SPELLINGS.get(name.lower())
    if part is None:
        raise Refused(f"the part {name} of a date or timestamp")
    if part in ("hour", "minute", "second") and t.is_date(inner.type) and spark:
        raise Refused(f"the {part} of a date in Spark")
    if part == "second" and spark:
        raise Refused("seconds in Spark, which may hold fractions")
    return Call(part, (inner,), pa.int32() if spark else pa.int64(), (zones.zone_of(inner, binding.dialect),))


def _extract(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``extract(part FROM x)``."""
    require_only(node, "this", "expression")
    return _named_part(binding, node.this.name, node.expression)


def _date_part(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``date_part('month', x)``."""
    arguments = node.expressions
    if len(arguments) != 2 or not isinstance(arguments[0], exp.Literal):
        raise Refused("date_part of something other than a constant part")
    return _named_part(binding, arguments[0].this, arguments[1])


def _named_part(binding: ArgumentBinder, name: str, node: exp.Expr) -> Scalar:
    if name.lower() == "epoch" and binding.dialect.name == "duckdb":
        return Call("epoch", (datetime_argument(binding, node),), pa.float64(), ("second",))
    return _part_call(name, datetime_argument(binding, node), binding)


_DATETIMES = "date, timestamp"
_RISES_WITHIN = "rises within {}, else every value"

FUNCTIONS = (
    Function(
        "year",
        "year(x); extract(part FROM x), date_part('part', x) of every part",
        _DATETIMES,
        "rises",
        periods.year,
        {exp.Year: _part("year"), exp.Extract: _extract},
        {"date_part": _date_part, "datepart": _date_part},
        spellings=("year", "yr", "years", "y"),
        duckdb=("year", "date_part", "datepart"),
    ),
    Function(
        "quarter",
        "quarter(x)",
        _DATETIMES,
        _RISES_WITHIN.format("a year"),
        part_of_day(lambda day: days_to_months(day) // 12, lambda day: (month_of(day) + 2) // 3, 1, 4),
        {exp.Quarter: _part("quarter")},
        spellings=("quarter", "quarters"),
        duckdb=("quarter",),
    ),
    Function(
        "month",
        "month(x)",
        _DATETIMES,
        _RISES_WITHIN.format("a year"),
        part_of_day(lambda day: days_to_months(day) // 12, month_of, 1, 12),
        {exp.Month: _part("month")},
        spellings=("month", "months", "mon", "mons"),
        duckdb=("month",),
    ),
    Function(
        "week",
        "week(x), weekofyear(x)",
        _DATETIMES,
        _RISES_WITHIN.format("a year of weeks"),
        part_of_day(
            periods.iso_year, lambda day: (thursday_of(day) - periods.year_start(thursday_of(day))) // 7 + 1, 1, 53
        ),
        {exp.Week: _part("week"), exp.WeekOfYear: _part("week")},
        spellings=("week", "weeks", "weekofyear", "w"),
        duckdb=("week", "weekofyear"),
    ),
    Function(
        "day",
        "day(x), dayofmonth(x)",
        _DATETIMES,
        _RISES_WITHIN.format("a month"),
        part_of_day(days_to_months, lambda day: day - months_to_days(days_to_months(day)) + 1, 1, 31),
        {exp.Day: _part("day"), exp.DayOfMonth: _part("day")},
        spellings=("day", "days", "d", "dayofmonth"),
        duckdb=("day", "dayofmonth"),
    ),
    Function(
        "dayofyear",
        "dayofyear(x)",
        _DATETIMES,
        _RISES_WITHIN.format("a year"),
        part_of_day(lambda day: days_to_months(day) // 12, lambda day: day - periods.year_start(day) + 1, 1, 366),
        {exp.DayOfYear: _part("dayofyear")},
        spellings=("dayofyear", "doy"),
        duckdb=("dayofyear",),
    ),
    Function(
        "dayofweek",
        "dayofweek(x), weekday(x): Sunday is 0",
        _DATETIMES,
        _RISES_WITHIN.format("a week"),
        part_of_day(lambda day: (day + 4) // 7, lambda day: (day + 4) % 7, 0, 6),
        {exp.DayOfWeek: _part("dayofweek")},
        spellings=("dayofweek", "dow", "weekday"),
        dialects=("duckdb",),
        duckdb=("dayofweek", "weekday"),
    ),
    Function(
        "dayofweek_from_1",
        "dayofweek(x): Sunday is 1",
        _DATETIMES,
        _RISES_WITHIN.format("a week"),
        part_of_day(lambda day: (day + 4) // 7, lambda day: (day + 4) % 7 + 1, 1, 7),
        dialects=("spark",),
    ),
    Function(
        "weekday_from_monday",
        "extract(weekday FROM x): Monday is 0",
        _DATETIMES,
        _RISES_WITHIN.format("a week"),
        part_of_day(lambda day: (day + 3) // 7, lambda day: (day + 3) % 7, 0, 6),
        dialects=("spark",),
    ),
    Function(
        "isodow",
        "isodow(x): Monday is 1",
        _DATETIMES,
        _RISES_WITHIN.format("a week"),
        part_of_day(lambda day: (day + 3) // 7, lambda day: (day + 3) % 7 + 1, 1, 7),
        {exp.DayOfWeekIso: _part("isodow")},
        spellings=("isodow",),
        duckdb=("isodow",),
    ),
    Function(
        "hour",
        "hour(x)",
        _DATETIMES,
        _RISES_WITHIN.format("a day"),
        part_of_clock("hour", "day", 24),
        {exp.Hour: _part("hour")},
        spellings=("hour", "hours", "h"),
        duckdb=("hour",),
    ),
    Function(
        "minute",
        "minute(x)",
        _DATETIMES,
        _RISES_WITHIN.format("an hour"),
        part_of_clock("minute", "hour", 60),
        {exp.Minute: _part("minute")},
        spellings=("minute", "minutes", "min", "m"),
        duckdb=("minute",),
    ),
    Function(
        "second",
        "second(x)",
        _DATETIMES,
        _RISES_WITHIN.format("a minute"),
        part_of_clock("second", "minute", 60),
        {exp.Second: _part("second")},
        spellings=("second", "seconds", "sec", "s"),
        dialects=("duckdb",),
        duckdb=("second",),
    ),
)

_SPELLINGS = {spelling: function.name for function in FUNCTIONS for spelling in function.spellings}
_SPARK_SPELLINGS = {
    "dayofweek": "dayofweek_from_1",
    "dow": "dayofweek_from_1",
    "weekday": "weekday_from_monday",
    "dow_iso": "isodow",
    "dayofweek_iso": "isodow",
}
"""Spellings that mean another part in Spark, which numbers the days of a week differently, or that only Spark has."""
