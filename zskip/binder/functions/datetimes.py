"""Parts and beginnings of dates and timestamps: year(x), extract, date_trunc, last_day."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types as t
from sqlglot import exp

from zskip.binder.context import Binding
from zskip.binder.functions import zones
from zskip.binder.functions.zones import PARTS, UNITS, as_date, moment
from zskip.binder.nodes import known
from zskip.expr.bound import Dialect
from zskip.expr.literals import Refused, is_fixed
from zskip.expr.tree import Call, Scalar

__all__ = ["date_part", "extract", "last_day", "part", "spark_trunc", "to_date", "truncate"]

Builder = Callable[[Binding, exp.Expr], Scalar]


def part(name: str) -> Builder:
    """``year(x)`` and its kind."""

    def build(binding: Binding, node: exp.Expr) -> Scalar:
        known(node, "this")
        inner = node.this
        if isinstance(inner, exp.TsOrDsToDate) and not inner.args.get("safe"):
            known(inner, "this")
            inner = inner.this
        return _part(name, moment(binding, inner), binding.dialect)

    return build


def _part(name: str, inner: Scalar, dialect: Dialect) -> Scalar:
    part = PARTS.get(name.lower())
    if part is None:
        raise Refused(f"the part {name} of a moment")
    if part in ("hour", "minute", "second") and t.is_date(inner.type) and dialect.name == "spark":
        raise Refused("an hour of a date in Spark")
    if part == "second" and dialect.name == "spark":
        raise Refused("seconds in Spark, which may hold fractions")
    if dialect.name == "spark" and part in ("dayofweek", "isodow"):
        part = (
            "spark_dayofweek"
            if name.lower() in ("dayofweek", "dow")
            else "spark_weekday"
            if name.lower() == "weekday"
            else "isodow"
        )
    return Call("part", (inner,), pa.int64(), (part, zones.zone_of(inner, dialect)))


def extract(binding: Binding, node: exp.Expr) -> Scalar:
    """``extract(part FROM x)``."""
    known(node, "this", "expression")
    name = node.this.name
    if name.lower() == "epoch" and binding.dialect.name == "duckdb":
        return Call("epoch", (moment(binding, node.expression),), pa.float64(), ("second",))
    return _part(_spark_part(name, binding.dialect), moment(binding, node.expression), binding.dialect)


def _spark_part(name: str, dialect: Dialect) -> str:
    if dialect.name == "spark" and name.lower() in (
        "week",
        "w",
        "weeks",
        "dow",
        "dayofweek",
        "dow_iso",
        "dayofweek_iso",
    ):
        return {"dow_iso": "isodow", "dayofweek_iso": "isodow"}.get(name.lower(), name)
    return name


def date_part(binding: Binding, arguments: Sequence[exp.Expr]) -> Scalar:
    """``date_part('month', x)``."""
    if len(arguments) != 2 or not isinstance(arguments[0], exp.Literal):
        raise Refused("date_part of something other than a constant part")
    name = arguments[0].this
    if name.lower() == "epoch" and binding.dialect.name == "duckdb":
        return Call("epoch", (moment(binding, arguments[1]),), pa.float64(), ("second",))
    return _part(_spark_part(name, binding.dialect), moment(binding, arguments[1]), binding.dialect)


def truncate(binding: Binding, node: exp.Expr) -> Scalar:
    """``date_trunc('month', x)``."""
    known(node, "this", "unit")
    unit = UNITS.get(node.args["unit"].name.lower())
    inner = moment(binding, node.this)
    if unit is None:
        raise Refused(f"date_trunc to {node.args['unit'].name}")
    zone = zones.zone_of(inner, binding.dialect)
    if binding.dialect.name == "spark":
        if zone is None:
            raise Refused("date_trunc over a column without zone, which Spark takes into the session's zone")
        if unit in ("decade", "century"):
            raise Refused(f"date_trunc to {unit} in Spark")
    elif binding.dialect.name != "duckdb":
        raise Refused(f"date_trunc in {binding.dialect.name}")
    if zone is not None and not is_fixed(zone) and unit not in ("day", "week", "month", "quarter", "year"):
        raise Refused(f"date_trunc to {unit} where clocks change")
    return Call("truncate", (inner,), pa.timestamp("us", "UTC" if zone else None), (unit, zone))


def spark_trunc(binding: Binding, node: exp.Expr) -> Scalar:
    """Spark's ``trunc(x, 'MM')``: a date."""
    known(node, "this", "unit")
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
    inner = moment(binding, node.this)
    if binding.dialect.name != "spark" or unit is None:
        raise Refused("trunc of a moment")
    return Call("truncate", (inner,), pa.date32(), (unit, zones.zone_of(inner, binding.dialect)))


def to_date(binding: Binding, node: exp.Expr) -> Scalar:
    """``to_date(x)`` and ``date(x)`` of a moment."""
    known(node, "this", "safe")
    return as_date(binding, node.this)


def last_day(binding: Binding, node: exp.Expr) -> Scalar:
    """``last_day(x)``: a date."""
    known(node, "this")
    inner = moment(binding, node.this)
    return Call("last_day", (inner,), pa.date32(), (zones.zone_of(inner, binding.dialect),))
