"""The beginning or end of a period: date_trunc, CAST AS DATE, last_day."""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from zskip.core import types as t
from zskip.language.functions import zones
from zskip.language.functions.function import ArgumentBinder, Function, require_only
from zskip.language.functions.zones import UNITS, as_date, datetime_argument
from zskip.language.intervals import periods
from zskip.language.literals import Refused, has_fixed_offset, offset_nanoseconds, per_day
from zskip.language.tree import Call, Scalar
from zskip.language.why import Cause


def truncate(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``date_trunc('month', x)``."""
    require_only(node, "this", "unit")
    unit = UNITS.get(node.args["unit"].name.lower())
    inner = datetime_argument(binding, node.this)
    if unit is None:
        raise Refused(f"date_trunc to {node.args['unit'].name}")
    zone = zones.zone_of(inner, binding.dialect)
    if binding.dialect.name == "spark":
        if zone is None:
            raise Refused("date_trunc over a column without zone, which Spark casts to the session's zone")
        if unit in ("decade", "century"):
            raise Refused(f"date_trunc to {unit} in Spark")
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
    return Call("truncate", (inner,), pa.date32(), (unit, zones.zone_of(inner, binding.dialect)))


def to_date(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``to_date(x)`` and ``date(x)``."""
    require_only(node, "this", "safe")
    return as_date(binding, node.this)


def last_day(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``last_day(x)``, which returns a date."""
    require_only(node, "this")
    inner = datetime_argument(binding, node.this)
    return Call("last_day", (inner,), pa.date32(), (zones.zone_of(inner, binding.dialect),))


_UNITS = {"year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"}
_FIRST, _LAST = ((date(*day) - date(1970, 1, 1)).days for day in ((1, 1, 8), (9999, 12, 24)))
"""The days since the epoch between which every unit begins and ends on a date that Python has."""


def _begins_unit(call: Call, value: pa.Scalar) -> bool:
    """Whether a value may be the beginning of the unit to which a call truncates."""
    unit, zone = call.options
    if unit not in _UNITS or (
        zone is not None and not (has_fixed_offset(str(zone)) and offset_nanoseconds(str(zone)) == 0)
    ):
        return True
    naive = value
    if not t.is_date32(value.type):
        naive = pa.scalar(value.value, pa.int64()).cast(pa.timestamp(value.type.unit))
    return not _is_in_calendar(naive) or bool(pc.floor_temporal(naive, unit=unit) == naive)


def _ends_a_month(call: Call, value: pa.Scalar) -> bool:
    return not _is_in_calendar(value) or (value.as_py() + timedelta(days=1)).day == 1


def _is_in_calendar(value: pa.Scalar) -> bool:
    """Whether a date or timestamp is within the years that Python has; infinities are not."""
    units = per_day(value.type)
    return bool(_FIRST * units <= value.value <= _LAST * units)


_DATETIMES = "date, timestamp"
_RULE = "rises; with a zone, the bounds are widened by the zone's offsets where its clocks change"

FUNCTIONS = (
    Function(
        "truncate",
        "date_trunc('unit', x), trunc(x, 'unit')",
        _DATETIMES,
        _RULE,
        periods.truncate,
        {exp.TimestampTrunc: truncate, exp.DateTrunc: spark_trunc},
        in_image=_begins_unit,
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
        in_image=_ends_a_month,
        duckdb=("last_day",),
    ),
)
