"""Functions of dates and timestamps: their parts, the beginning and end of periods, intervals and differences,
and seconds since the epoch.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from zskip.core import types as t
from zskip.language.bound import Dialect
from zskip.language.clocks import has_fixed_offset
from zskip.language.functions.function import ArgumentBinder, Builder, Function, require_only, whole_number
from zskip.language.intervals import periods
from zskip.language.intervals.periods import (
    Ints,
    days_to_months,
    month_of,
    months_to_days,
    part_of_clock,
    part_of_day,
    thursday_of,
)
from zskip.language.intervals.spans import Periodic
from zskip.language.literals import Refused
from zskip.language.tree import Call, Cause, Literal, Scalar

UNITS = {
    "year": "year", "yr": "year", "years": "year", "y": "year",
    "quarter": "quarter", "quarters": "quarter",
    "month": "month", "months": "month", "mon": "month", "mons": "month",
    "week": "week", "weeks": "week", "w": "week",
    "day": "day", "days": "day", "d": "day",
    "hour": "hour", "hours": "hour", "h": "hour",
    "minute": "minute", "minutes": "minute", "min": "minute",
    "second": "second", "seconds": "second", "sec": "second", "s": "second",
    "millisecond": "millisecond", "milliseconds": "millisecond", "ms": "millisecond",
    "microsecond": "microsecond", "microseconds": "microsecond", "us": "microsecond",
}  # fmt: skip
"""The unit of a truncation or an interval, by its spelling."""


def datetime_argument(binding: ArgumentBinder, node: exp.Expr, zone: bool = True) -> Scalar:
    """Binds an argument that is a date or a timestamp; ``zone``: it may have a time zone. Raises `Refused`."""
    inner = binding.scalar(node)
    if not (inner.type == pa.date32() or (t.is_timestamp(inner.type) and (zone or inner.type.tz is None))):
        raise Refused(f"a date function over {inner.type}")
    return inner


def zone_of(scalar: Scalar, dialect: Dialect) -> str | None:
    """The time zone in which the parts of a timestamp are computed; None for dates and timestamps without a zone."""
    return dialect.timezone if t.is_timestamp(scalar.type) and scalar.type.tz is not None else None


def as_date(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds a date or timestamp argument, cast to a date. Raises `Refused`."""
    inner = datetime_argument(binding, node)
    return inner if t.is_date(inner.type) else Call("date", (inner,), pa.date32(), (zone_of(inner, binding.dialect),))


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
    return Call(part, (inner,), pa.int32() if spark else pa.int64(), (zone_of(inner, binding.dialect),))


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
_BOTH, _DUCKDB, _SPARK = ("duckdb", "spark"), ("duckdb",), ("spark",)


def _within(
    around: str,
    name: str,
    spelled: str,
    bounds: Periodic,
    *parsed: type[exp.Expr],
    dialects: tuple[str, ...] = _BOTH,
    duckdb: tuple[str, ...] = (),
) -> Function:
    """The entry of a part that rises within a period, by the parser's classes of the functions that are named after it;
    ``duckdb``: DuckDB's further names."""
    names = (name, *duckdb) if "duckdb" in dialects else ()
    builders = dict.fromkeys(parsed, _part(name))
    rule = f"rises within {around}, and anew in the next; over several, every value"
    return Function(name, spelled, _DATETIMES, rule, bounds, builders, dialects=dialects, duckdb=names)


def _year(day: Ints) -> Ints:
    return days_to_months(day) // 12


def _week_of_year(day: Ints) -> Ints:
    return (thursday_of(day) - periods.year_start(thursday_of(day))) // 7 + 1


def _of_week(first: int, least: int) -> Periodic:
    """The day of the week, which begins with day ``first``, counted from Thursday; the first one is ``least``."""
    return part_of_day(lambda day: (day + first) // 7, lambda day: (day + first) % 7 + least, least, least + 6)


_QUARTER = part_of_day(_year, lambda day: (month_of(day) + 2) // 3, 1, 4)
_WEEK = part_of_day(periods.iso_year, _week_of_year, 1, 53)
_DAY_OF_MONTH = part_of_day(days_to_months, lambda day: day - months_to_days(days_to_months(day)) + 1, 1, 31)
_DAY_OF_YEAR = part_of_day(_year, lambda day: day - periods.year_start(day) + 1, 1, 366)

_PARTS = (
    Function(
        "year",
        "year(x); extract(part FROM x), date_part('part', x) of every part",
        _DATETIMES,
        "rises",
        periods.year,
        {exp.Year: _part("year"), exp.Extract: _extract},
        {"date_part": _date_part, "datepart": _date_part},
        duckdb=("year", "date_part", "datepart"),
    ),
    _within("a year", "quarter", "quarter(x)", _QUARTER, exp.Quarter),
    _within("a year", "month", "month(x)", part_of_day(_year, month_of, 1, 12), exp.Month),
    _within(
        "a year of weeks", "week", "week(x), weekofyear(x)", _WEEK, exp.Week, exp.WeekOfYear, duckdb=("weekofyear",)
    ),
    _within("a month", "day", "day(x), dayofmonth(x)", _DAY_OF_MONTH, exp.Day, exp.DayOfMonth, duckdb=("dayofmonth",)),
    _within("a year", "dayofyear", "dayofyear(x)", _DAY_OF_YEAR, exp.DayOfYear),
    _within(
        "a week",
        "dayofweek",
        "dayofweek(x), weekday(x): Sunday is 0",
        _of_week(4, 0),
        exp.DayOfWeek,
        dialects=_DUCKDB,
        duckdb=("weekday",),
    ),
    _within("a week", "dayofweek_from_1", "dayofweek(x): Sunday is 1", _of_week(4, 1), dialects=_SPARK),
    _within("a week", "weekday_from_monday", "extract(weekday FROM x): Monday is 0", _of_week(3, 0), dialects=_SPARK),
    _within("a week", "isodow", "isodow(x): Monday is 1", _of_week(3, 1), exp.DayOfWeekIso),
    _within("a day", "hour", "hour(x)", part_of_clock("hour", "day", 24), exp.Hour),
    _within("an hour", "minute", "minute(x)", part_of_clock("minute", "hour", 60), exp.Minute),
    _within("a minute", "second", "second(x)", part_of_clock("second", "minute", 60), exp.Second, dialects=_DUCKDB),
)

_SPELLINGS = {
    "year": "year", "years": "year", "yr": "year", "y": "year",
    "quarter": "quarter", "quarters": "quarter",
    "month": "month", "months": "month", "mon": "month", "mons": "month",
    "week": "week", "weeks": "week", "w": "week", "weekofyear": "week",
    "day": "day", "days": "day", "d": "day", "dayofmonth": "day",
    "dayofyear": "dayofyear", "doy": "dayofyear",
    "dayofweek": "dayofweek", "dow": "dayofweek", "weekday": "dayofweek", "isodow": "isodow",
    "hour": "hour", "hours": "hour", "h": "hour",
    "minute": "minute", "minutes": "minute", "min": "minute", "m": "minute",
    "second": "second", "seconds": "second", "sec": "second", "s": "second",
}  # fmt: skip
"""The part, by its spelling in EXTRACT and DATE_PART."""

_SPARK_SPELLINGS = {
    "dayofweek": "dayofweek_from_1",
    "dow": "dayofweek_from_1",
    "weekday": "weekday_from_monday",
    "dow_iso": "isodow",
    "dayofweek_iso": "isodow",
}
"""Spellings that mean another part in Spark, which numbers the days of a week differently, or that only Spark has."""


def truncate(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``date_trunc('month', x)``."""
    require_only(node, "this", "unit")
    unit = UNITS.get(node.args["unit"].name.lower())
    inner = datetime_argument(binding, node.this)
    if unit is None:
        raise Refused(f"date_trunc to {node.args['unit'].name}")
    zone = zone_of(inner, binding.dialect)
    if binding.dialect.name == "spark":
        if zone is None:
            raise Refused("date_trunc over a column without zone, which Spark casts to the session's zone")
    elif binding.dialect.name != "duckdb":
        raise Refused(f"date_trunc in {binding.dialect.name}")
    if zone is not None and not has_fixed_offset(zone) and unit not in ("day", "week", "month", "quarter", "year"):
        raise Refused(f"date_trunc to {unit} where clocks change", Cause.CLOCKS_CHANGE)
    return Call("truncate", (inner,), pa.timestamp("us", "UTC" if zone else None), (unit, zone))


def spark_trunc(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds Spark's ``trunc(x, 'MM')``, which returns a date."""
    require_only(node, "this", "unit")
    spellings = {
        "year": "year",
        "yyyy": "year",
        "yy": "year",
        "quarter": "quarter",
        "month": "month",
        "mm": "month",
        "mon": "month",
        "week": "week",
    }
    unit = spellings.get(node.args["unit"].name.lower())
    inner = datetime_argument(binding, node.this)
    if binding.dialect.name != "spark" or unit is None:
        raise Refused(f"trunc to {node.args['unit'].name}")
    return Call("truncate", (inner,), pa.date32(), (unit, zone_of(inner, binding.dialect)))


def to_date(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``to_date(x)`` and ``date(x)``."""
    require_only(node, "this", "safe")
    return as_date(binding, node.this)


def last_day(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``last_day(x)``, which returns a date."""
    require_only(node, "this")
    inner = datetime_argument(binding, node.this)
    return Call("last_day", (inner,), pa.date32(), (zone_of(inner, binding.dialect),))


_RULE = "rises; with a zone, the bounds are widened by the zone's offsets where its clocks change"

_PERIODS = (
    Function(
        "truncate",
        "date_trunc('unit', x), trunc(x, 'unit')",
        _DATETIMES,
        _RULE,
        periods.truncate,
        {exp.TimestampTrunc: truncate, exp.DateTrunc: spark_trunc},
        duckdb=("date_trunc", "datetrunc"),
    ),
    Function(
        "date",
        "CAST(x AS DATE), date(x), to_date(x)",
        _DATETIMES,
        _RULE,
        periods.date,
        {exp.TsOrDsToDate: to_date, exp.Date: to_date},
    ),
    Function(
        "last_day",
        "last_day(x)",
        _DATETIMES,
        "rises",
        periods.last_day,
        {exp.LastDay: last_day},
        duckdb=("last_day",),
    ),
)


_UNIT_LENGTHS = {
    "year": (12, 0, 0), "quarter": (3, 0, 0), "month": (1, 0, 0), "week": (0, 7, 0), "day": (0, 1, 0),
    "hour": (0, 0, 3_600_000_000), "minute": (0, 0, 60_000_000), "second": (0, 0, 1_000_000),
    "millisecond": (0, 0, 1_000), "microsecond": (0, 0, 1),
}  # fmt: skip
"""The length of each unit in months, days and microseconds."""


def interval(node: exp.Expr) -> tuple[int, int, int]:
    """The months, days and microseconds of a constant interval. Raises `Refused`."""
    if not isinstance(node, exp.Interval) or node.args.get("unit") is None:
        raise Refused("an interval that is not a constant")
    require_only(node, "this", "unit")
    count = whole_number(node.this)
    unit = _UNIT_LENGTHS.get(UNITS.get(node.args["unit"].name.lower(), ""))
    if count is None or unit is None or abs(count) > 100_000:
        raise Refused("an interval of an unsupported unit or length")
    return unit[0] * count, unit[1] * count, unit[2] * count


def shifted(inner: Scalar, months: int, days: int, micros: int, dialect: Dialect) -> Scalar:
    """A datetime plus a constant interval. Raises `Refused`."""
    zone = zone_of(inner, dialect)
    if zone is not None and not has_fixed_offset(zone) and (months or days):
        raise Refused(f"days differ in length in {zone}")
    result = pa.timestamp("us", "UTC" if zone else None)
    if t.is_date(inner.type) and dialect.name == "spark":
        if micros:
            raise Refused("a time of day added to a date in Spark")
        result = pa.date32()
    if t.is_timestamp(inner.type) and inner.type.unit == "ns":
        raise Refused("an interval and nanoseconds, which are truncated")
    return Call("shift", (inner,), result, (months, days, micros, zone))


def shift_by_interval(binding: ArgumentBinder, node: exp.Expr, function: str) -> Scalar:
    """Binds ``x + INTERVAL …``, ``INTERVAL … + x`` and ``x - INTERVAL …``. Raises `Refused`."""
    base, amount = node.this, node.expression
    if isinstance(base, exp.Interval):
        if function != "add":
            raise Refused("something subtracted from an interval")
        base, amount = amount, base
    inner = datetime_argument(binding, base)
    sign = -1 if function == "subtract" else 1
    if function == "multiply":
        raise Refused("a product with an interval")
    months, days, micros = (sign * each for each in interval(amount))
    return shifted(inner, months, days, micros, binding.dialect)


def date_add(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds DuckDB's ``date_add(x, INTERVAL …)``."""
    require_only(node, "this", "expression")
    return shifted(datetime_argument(binding, node.this), *interval(node.expression), binding.dialect)


def spark_date_add(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds Spark's ``date_add(x, n)`` and ``date_sub(x, n)``, which return a date."""
    require_only(node, "this", "expression", "unit")
    amount, sign = node.expression, 1
    if isinstance(amount, exp.Mul) and isinstance(amount.expression, exp.Neg):
        amount, sign = amount.this, -1
    count = whole_number(amount)
    if (
        binding.dialect.name != "spark"
        or count is None
        or (node.args.get("unit") and node.args["unit"].name.upper() != "DAY")
    ):
        raise Refused("date_add with something other than a constant number of days")
    return Call("add_days", (as_date(binding, node.this), Literal(pa.scalar(sign * count))), pa.date32(), ("add",))


def add_months(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds Spark's ``add_months(x, n)``."""
    require_only(node, "this", "expression")
    count = whole_number(node.expression)
    if binding.dialect.name != "spark" or count is None or abs(count) > 100_000:
        raise Refused("add_months with something other than a constant")
    return Call("shift", (as_date(binding, node.this),), pa.date32(), (count, 0, 0, None))


def date_diff(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``date_diff('unit', x, y)``, the number of unit boundaries, or of whole weeks, between x and y."""
    require_only(node, "this", "expression", "unit", "date_part_boundary")
    unit = UNITS.get(node.args["unit"].name.lower()) if node.args.get("unit") else "day"
    later, earlier = node.this, node.expression
    if binding.dialect.name == "spark":
        if node.args.get("unit"):
            raise Refused("datediff with a unit in Spark, which counts whole units")
        later, earlier = (each.this if isinstance(each, exp.TsOrDsToDate) else each for each in (later, earlier))
    elif binding.dialect.name != "duckdb":
        raise Refused(f"datediff() in {binding.dialect.name}")
    if unit is None or unit in ("millisecond", "microsecond"):
        raise Refused("date_diff in that unit")
    type = pa.int32() if binding.dialect.name == "spark" else pa.int64()
    return Call(
        "difference",
        (datetime_argument(binding, earlier, False), datetime_argument(binding, later, False)),
        type,
        (unit,),
    )


def epoch(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``epoch(x)``, which returns seconds as a double."""
    require_only(node, "this")
    if binding.dialect.name != "duckdb":
        raise Refused(f"epoch() in {binding.dialect.name}")
    return Call("epoch", (datetime_argument(binding, node.this),), pa.float64(), ("second",))


def from_epoch(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``to_timestamp(x)``, and ``epoch_ms`` of a timestamp, which the parser gives the same class."""
    require_only(node, "this", "scale")
    inner = binding.scalar(node.this)
    if binding.dialect.name != "duckdb":
        raise Refused(f"to_timestamp() in {binding.dialect.name}")
    scale = whole_number(node.args["scale"]) if node.args.get("scale") else None
    if t.is_timestamp(inner.type) or t.is_date(inner.type):
        if scale != 3 or inner.type == pa.date64():
            raise Refused("to_timestamp of a timestamp")
        return Call("epoch", (inner,), pa.int64(), ("millisecond", "towards zero"))
    if scale is not None or not t.is_integer(inner.type) or inner.type == pa.uint64():
        raise Refused("to_timestamp of something other than whole seconds")
    return Call("from_epoch", (inner,), pa.timestamp("us", "UTC"), ("second",))


def unix(unit: str, type: pa.DataType) -> Builder:
    """Binds Spark's ``unix_seconds(x)`` and ``unix_date(x)``."""

    def build(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
        require_only(node, "this")
        inner = datetime_argument(binding, node.this)
        if binding.dialect.name != "spark" or (unit == "second" and (t.is_date(inner.type) or inner.type.tz is None)):
            raise Refused("unix time of a date, or of a timestamp without a zone")
        if unit == "day" and not t.is_date(inner.type):
            raise Refused("unix_date of a timestamp")
        return Call("epoch", (inner,), type, (unit,))

    return build


_ARITHMETIC = (
    Function(
        "shift",
        "x + INTERVAL …, x - INTERVAL …, date_add, date_sub, add_months",
        _DATETIMES,
        "rises; the 31st becomes the month's last day",
        periods.shift,
        {exp.DateAdd: date_add, exp.AddMonths: add_months},
        duckdb=("date_add",),
    ),
    Function("add_days", "x + n, x - n", "date", "rises", periods.add_days, {exp.TsOrDsAdd: spark_date_add}),
    Function(
        "difference",
        "date_diff('unit', x, y), datediff(y, x), x - y",
        "date, timestamp without zone",
        "interval arithmetic on the numbers of the units",
        periods.difference,
        {exp.DateDiff: date_diff},
        duckdb=("date_diff", "datediff"),
    ),
    Function(
        "epoch",
        "epoch(x), epoch_ms, epoch_us; unix_seconds, unix_date in Spark",
        _DATETIMES,
        "rises",
        periods.epoch,
        {
            exp.TimeToUnix: epoch,
            exp.UnixSeconds: unix("second", pa.int64()),
            exp.UnixDate: unix("day", pa.int32()),
        },
        duckdb=("epoch", "epoch_ms"),
    ),
    Function(
        "from_epoch",
        "to_timestamp(x)",
        "integers",
        "rises",
        periods.from_epoch,
        {exp.UnixToTime: from_epoch},
        dialects=_DUCKDB,
        duckdb=("to_timestamp",),
    ),
)

FUNCTIONS = (*_PARTS, *_PERIODS, *_ARITHMETIC)
