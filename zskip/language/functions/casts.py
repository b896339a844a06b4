"""CAST and TRY_CAST between numbers, and between dates and timestamps."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from zskip.core import types as t
from zskip.language.bound import Dialect
from zskip.language.functions import widths, zones
from zskip.language.functions.function import ArgumentBinder, Function, require_only, sql_type
from zskip.language.intervals import interval_arithmetic, periods
from zskip.language.intervals.wide_numbers import wide_cast
from zskip.language.literals import Refused, has_fixed_offset
from zskip.language.tree import Call, Scalar
from zskip.language.why import Cause


def cast(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``CAST(x AS type)`` and ``TRY_CAST``."""
    require_only(node, "this", "to", "safe")
    inner = binding.scalar(node.this)
    target = sql_type(node.args["to"], binding.dialect)
    if target is None:
        raise Refused(f"a cast to {node.args['to'].sql()}")
    if target == inner.type:
        return inner
    safe = bool(node.args.get("safe")) or (isinstance(node, exp.TryCast) and binding.dialect.name == "duckdb")
    if inner.type == pa.date32() or t.is_timestamp(inner.type):
        return _cast_datetime(inner, target, binding.dialect)
    widths.require_numbers(inner)
    if not widths.is_number(target):
        raise Refused(f"a cast of {inner.type} to {target}")
    wraps = widths.wraps(binding.dialect) and not safe
    return Call("cast", (inner,), target, ("null" if safe else "wrap" if wraps else "raise",))


def _cast_datetime(inner: Scalar, target: pa.DataType, dialect: Dialect) -> Scalar:
    zone = zones.zone_of(inner, dialect)
    if t.is_date(target):
        return Call("date", (inner,), pa.date32(), (zone,))
    if not t.is_timestamp(target) or target.unit != "us":
        raise Refused(f"a cast of {inner.type} to {target}")
    shifts = (target.tz is not None) != (zone is not None)
    if shifts and not has_fixed_offset(dialect.timezone):
        raise Refused(
            f"a cast between types with a zone and without, where clocks change in {dialect.timezone}",
            Cause.CLOCKS_CHANGE,
        )
    if t.is_timestamp(inner.type) and inner.type.unit == "ns":
        raise Refused("a cast that truncates nanoseconds")
    return Call("timestamp", (inner,), target, (dialect.timezone if shifts else None,))


FUNCTIONS = (
    Function(
        "cast",
        "CAST(x AS a number), TRY_CAST",
        "integers up to 64 bits, decimals up to 18 digits, floats",
        "rises; widened by one where fractions are rounded; what does not fit raises, or is NULL",
        interval_arithmetic.cast,
        {exp.Cast: cast, exp.TryCast: cast},
        wide=wide_cast,
    ),
    Function("timestamp", "CAST(x AS TIMESTAMP)", "date, timestamp", "rises", periods.timestamp),
)
