"""CAST and TRY_CAST between numbers, and between dates and timestamps."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as t
from sqlglot import exp

from zskip.binder.constants import sql_type
from zskip.binder.context import Binding
from zskip.binder.functions import widths, zones
from zskip.binder.nodes import known
from zskip.expr.bound import Dialect
from zskip.expr.literals import Refused, is_fixed
from zskip.expr.tree import Call, Scalar

__all__ = ["cast"]


def cast(binding: Binding, node: exp.Expr) -> Scalar:
    """``CAST(x AS type)`` and ``TRY_CAST``."""
    known(node, "this", "to", "safe")
    inner = binding.scalar(node.this)
    target = sql_type(node.args["to"], binding.dialect)
    if target is None:
        raise Refused(f"a cast to {node.args['to'].sql()}")
    if target == inner.type:
        return inner
    safe = bool(node.args.get("safe")) or (isinstance(node, exp.TryCast) and binding.dialect.name == "duckdb")
    if inner.type == pa.date32() or t.is_timestamp(inner.type):
        return _cast_moment(inner, target, binding.dialect)
    widths.must_be_numbers(inner)
    if not widths.is_number(target):
        raise Refused(f"a cast of {inner.type} to {target}")
    wraps = widths.wraps(binding.dialect) and not safe
    return Call("cast", (inner,), target, ("null" if safe else "wrap" if wraps else "raise",))


def _cast_moment(inner: Scalar, target: pa.DataType, dialect: Dialect) -> Scalar:
    zone = zones.zone_of(inner, dialect)
    if t.is_date(target):
        return Call("date", (inner,), pa.date32(), (zone,))
    if not t.is_timestamp(target) or target.unit != "us":
        raise Refused(f"a cast of {inner.type} to {target}")
    if (target.tz is not None) != (zone is not None) and not is_fixed(dialect.timezone):
        raise Refused(f"a cast between types with a zone and without, where clocks change in {dialect.timezone}")
    if t.is_timestamp(inner.type) and inner.type.unit == "ns":
        raise Refused("a cast that cuts nanoseconds")
    return Call(
        "timestamp", (inner,), target, (dialect.timezone if (target.tz is not None) != (zone is not None) else None,)
    )
