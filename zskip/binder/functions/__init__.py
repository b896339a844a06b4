"""Function calls of SQL as terms: which parsed call is which function of the table, and the type of its result.

``arithmetic``: the operators, in the ``widths`` that engines compute in · ``numbers``: abs, round, least · ``casts`` ·
``moments``: parts and beginnings of them · ``shifts``: intervals, and time between moments · ``zones``: arguments that
are moments · ``texts``: left, concat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlglot import exp

from zskip.binder.context import Binding
from zskip.binder.functions import arithmetic, casts, datetimes, numbers, shifts, strings
from zskip.expr.tree import Scalar

__all__ = ["call"]

Builder = Callable[[Binding, exp.Expr], Scalar]


def call(binding: Binding, node: exp.Expr) -> Scalar | None:
    """The term that a function call is; None where zskip has no such function. Raises `Refused`."""
    builder = _BUILDERS.get(type(node))
    if builder is not None:
        return builder(binding, node)
    if isinstance(node, exp.Anonymous):
        named = _NAMED.get(node.name.lower())
        return named(binding, node.expressions) if named is not None else None
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
    exp.Year: datetimes.part("year"),
    exp.Quarter: datetimes.part("quarter"),
    exp.Month: datetimes.part("month"),
    exp.Week: datetimes.part("week"),
    exp.WeekOfYear: datetimes.part("week"),
    exp.Day: datetimes.part("day"),
    exp.DayOfMonth: datetimes.part("day"),
    exp.DayOfYear: datetimes.part("dayofyear"),
    exp.DayOfWeek: datetimes.part("dayofweek"),
    exp.DayOfWeekIso: datetimes.part("isodow"),
    exp.Hour: datetimes.part("hour"),
    exp.Minute: datetimes.part("minute"),
    exp.Second: datetimes.part("second"),
    exp.Extract: datetimes.extract,
    exp.TimestampTrunc: datetimes.truncate,
    exp.DateTrunc: datetimes.spark_trunc,
    exp.TsOrDsToDate: datetimes.to_date,
    exp.Date: datetimes.to_date,
    exp.LastDay: datetimes.last_day,
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
    exp.Left: strings.prefix,
    exp.Substring: strings.prefix,
    exp.DPipe: strings.concat,
    exp.Concat: strings.concat,
}

_NAMED: dict[str, Callable[[Binding, Sequence[exp.Expr]], Scalar]] = {
    "date_part": datetimes.date_part,
    "datepart": datetimes.date_part,
}
