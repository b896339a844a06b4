"""Date and timestamp arguments, their time zones, and the names of units."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from zskip.core import types as t
from zskip.language.bound import Dialect
from zskip.language.functions.function import ArgumentBinder
from zskip.language.literals import Refused
from zskip.language.tree import Call, Scalar

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
    "decade": "decade", "century": "century",
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
