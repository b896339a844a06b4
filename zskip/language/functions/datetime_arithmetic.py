"""Datetimes plus intervals, differences of datetimes, and seconds since the epoch: date_add, datediff, epoch."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from zskip.core import types as t
from zskip.language.bound import Dialect
from zskip.language.functions import zones
from zskip.language.functions.function import ArgumentBinder, Builder, Function, require_only, whole_number
from zskip.language.functions.zones import UNITS, as_date, datetime_argument
from zskip.language.intervals import periods
from zskip.language.literals import Refused, has_fixed_offset
from zskip.language.tree import Call, Literal, Scalar

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
    zone = zones.zone_of(inner, dialect)
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
    """Binds ``date_diff('unit', x, y)``, the number of unit boundaries between x and y."""
    require_only(node, "this", "expression", "unit", "date_part_boundary")
    unit = UNITS.get(node.args["unit"].name.lower()) if node.args.get("unit") else "day"
    later, earlier = node.this, node.expression
    if binding.dialect.name == "spark":
        if node.args.get("unit"):
            raise Refused("datediff with a unit in Spark, which counts whole units")
        later, earlier = (each.this if isinstance(each, exp.TsOrDsToDate) else each for each in (later, earlier))
    elif binding.dialect.name != "duckdb":
        raise Refused(f"datediff() in {binding.dialect.name}")
    if unit is None or unit in ("millisecond", "microsecond", "decade", "century"):
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


_DATETIMES = "date, timestamp"

FUNCTIONS = (
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
        "epoch(x), epoch_ms, epoch_us, unix_timestamp, unix_seconds, unix_date",
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
        "to_timestamp(x), timestamp_seconds(x)",
        "integers",
        "rises",
        periods.from_epoch,
        {exp.UnixToTime: from_epoch},
        duckdb=("to_timestamp",),
    ),
)
