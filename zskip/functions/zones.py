"""Date and timestamp arguments: their time zone, and the names of units."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from zskip import types as t
from zskip.expr.bound import Dialect
from zskip.expr.literals import Refused
from zskip.expr.tree import Call, Scalar
from zskip.functions.function import Arguments

__all__ = ["UNITS", "as_date", "moment", "zone_of"]

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
"""The units of a truncation or an interval by their spellings."""


def moment(binding: Arguments, node: exp.Expr, zone: bool = True) -> Scalar:
    """An argument that is a date or a timestamp. Raises `Refused`."""
    inner = binding.scalar(node)
    if not (inner.type == pa.date32() or (t.is_timestamp(inner.type) and (zone or inner.type.tz is None))):
        raise Refused(f"a date function over {inner.type}")
    return inner


def zone_of(scalar: Scalar, dialect: Dialect) -> str | None:
    """The zone in which the parts of a moment are read; None without one."""
    return dialect.timezone if t.is_timestamp(scalar.type) and scalar.type.tz is not None else None


def as_date(binding: Arguments, node: exp.Expr) -> Scalar:
    """A moment as a date."""
    inner = moment(binding, node)
    return inner if t.is_date(inner.type) else Call("date", (inner,), pa.date32(), (zone_of(inner, binding.dialect),))
