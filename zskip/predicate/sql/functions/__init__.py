"""Function calls of SQL as terms: which parsed call is which function of the table, and the type of its result.

``arithmetic``: the operators, in the ``widths`` that engines compute in · ``numbers``: abs, round, least · ``casts`` ·
``moments``: parts and beginnings of them · ``shifts``: intervals, and time between moments · ``zones``: arguments that
are moments · ``texts``: left, concat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from zskip.predicate.sql.functions import arithmetic, casts, moments, numbers, shifts, texts
from zskip.predicate.tree import Scalar

if TYPE_CHECKING:
    from zskip.predicate.sql.binder import Binder

__all__ = ["call"]

Builder = Callable[["Binder", exp.Expr], Scalar]


def call(binder: Binder, node: exp.Expr) -> Scalar | None:
    """The term that a function call is; None where zskip has no such function. Raises `Refused`."""
    builder = _BUILDERS.get(type(node))
    if builder is not None:
        return builder(binder, node)
    if isinstance(node, exp.Anonymous):
        named = _NAMED.get(node.name.lower())
        return named(binder, node.expressions) if named is not None else None
    return None


_BUILDERS: dict[type[exp.Expr], Builder] = {
    exp.Add: arithmetic.arithmetic("add"),
    exp.Sub: arithmetic.arithmetic("subtract"),
    exp.Mul: arithmetic.arithmetic("multiply"),
    exp.Div: arithmetic.divide,
    exp.IntDiv: arithmetic.whole("divide_whole"),
    exp.Mod: arithmetic.whole("modulo"),
    exp.Neg: numbers.unary("negate"),
    exp.Abs: numbers.unary("abs"),
    exp.Sign: numbers.unary("sign", "duckdb"),
    exp.Floor: numbers.unary("floor"),
    exp.Ceil: numbers.unary("ceil"),
    exp.Round: numbers.unary("round"),
    exp.Trunc: numbers.unary("trunc", "duckdb"),
    exp.Sqrt: numbers.unary("sqrt"),
    exp.Ln: numbers.unary("ln"),
    exp.Exp: numbers.unary("exp"),
    exp.Pow: numbers.power,
    exp.Least: numbers.extreme("least"),
    exp.Greatest: numbers.extreme("greatest"),
    exp.Year: moments.part("year"),
    exp.Quarter: moments.part("quarter"),
    exp.Month: moments.part("month"),
    exp.Week: moments.part("week"),
    exp.WeekOfYear: moments.part("week"),
    exp.Day: moments.part("day"),
    exp.DayOfMonth: moments.part("day"),
    exp.DayOfYear: moments.part("dayofyear"),
    exp.DayOfWeek: moments.part("dayofweek"),
    exp.DayOfWeekIso: moments.part("isodow"),
    exp.Hour: moments.part("hour"),
    exp.Minute: moments.part("minute"),
    exp.Second: moments.part("second"),
    exp.Extract: moments.extract,
    exp.TimestampTrunc: moments.truncate,
    exp.DateTrunc: moments.spark_trunc,
    exp.TsOrDsToDate: moments.to_date,
    exp.Date: moments.to_date,
    exp.LastDay: moments.last_day,
    exp.DateAdd: shifts.date_add,
    exp.TsOrDsAdd: shifts.spark_date_add,
    exp.AddMonths: shifts.add_months,
    exp.DateDiff: shifts.date_diff,
    exp.TimeToUnix: shifts.epoch,
    exp.UnixToTime: shifts.from_epoch,
    exp.UnixSeconds: shifts.unix("second", pa.int64()),
    exp.UnixDate: shifts.unix("day", pa.int64()),
    exp.Cast: casts.cast,
    exp.TryCast: casts.cast,
    exp.Left: texts.prefix,
    exp.Substring: texts.prefix,
    exp.DPipe: texts.concat,
    exp.Concat: texts.concat,
}

_NAMED: dict[str, Callable[[Binder, Sequence[exp.Expr]], Scalar]] = {
    "date_part": moments.date_part,
    "datepart": moments.date_part,
}
