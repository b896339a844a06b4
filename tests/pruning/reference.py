"""SQL's three-valued logic, a row at a time and as plain as can be: the oracle that shares no code with zskip.

`outcome` walks sqlglot's tree over one row of Python values and gives True, False, or None for NULL. It knows a
fragment of DuckDB's dialect; what lies outside raises `NotCovered`. Numbers have no width: overflow is the engine's.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from sqlglot import exp, parse_one


class NotCovered(Exception):
    """The reference says nothing about this expression."""


def outcome(sql: str, row: Mapping[str, Any]) -> bool | None:
    """What a predicate yields for one row: True, False, or None for NULL."""
    return parsed(sql)(row)


def parsed(sql: str) -> Callable[[Mapping[str, Any]], bool | None]:
    """The same for many rows: the predicate is read once."""
    tree = parse_one(sql, dialect="duckdb")
    return lambda row: evaluate(tree, row)


def comparable(a: Any, b: Any) -> tuple[Any, Any]:
    """Two values as keys in one order: NaN above all numbers, strings by their bytes, text as the date beside it."""
    if isinstance(a, dt.date) and isinstance(b, str):
        return tuple(reversed(comparable(b, a)))
    if isinstance(a, str) and isinstance(b, dt.date):
        if not re.fullmatch(r"\d{4}-\d\d-\d\d" + r"( \d\d:\d\d:\d\d(\.\d+)?)?" * isinstance(b, dt.datetime), a):
            raise NotCovered(f"{a!r} beside {b!r}")
        a = type(b).fromisoformat(a)
    kinds = {type(a), type(b)}
    if kinds == {dt.date, dt.datetime}:
        a, b = (v if isinstance(v, dt.datetime) else dt.datetime(v.year, v.month, v.day) for v in (a, b))
    elif float in kinds and kinds <= {float, int, Decimal}:
        a, b = ((math.isnan(v), 0.0 if math.isnan(v) else v) for v in (float(a), float(b)))
    elif kinds == {str}:
        a, b = a.encode(), b.encode()
    elif len(kinds) > 1 and kinds != {int, Decimal}:
        raise NotCovered(f"{a!r} beside {b!r}")
    return a, b


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """NULL where any argument is NULL."""
    return lambda *values: None if None in values else function(*values)


def comparison(test: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return strict(lambda a, b: test(*comparable(a, b)))


def arithmetic(test: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def apply(a: Any, b: Any) -> Any:
        if {type(a), type(b)} == {float, Decimal}:
            a, b = float(a), float(b)
        if not {type(a), type(b)} <= {int, float, Decimal}:
            raise NotCovered(f"{a!r} beside {b!r}")
        return test(a, b)

    return strict(apply)


def conjunction(*values: bool | None) -> bool | None:
    return False if False in values else None if None in values else True


def disjunction(*values: bool | None) -> bool | None:
    return True if True in values else None if None in values else False


def same(a: Any, b: Any) -> bool:
    return a is b if a is None or b is None else bool(EQUAL(a, b))


def like(text: str, pattern: str, escape: str = "") -> bool:
    parts = re.findall(f"{re.escape(escape)}(.)|(.)" if escape else "()(.)", pattern, re.DOTALL)
    regex = (re.escape(escaped) if escaped else {"%": ".*", "_": "."}.get(c, re.escape(c)) for escaped, c in parts)
    return re.fullmatch("".join(regex), text, re.DOTALL) is not None


NOT, EQUAL, BELOW, UP_TO = strict(operator.not_), *map(comparison, (operator.eq, operator.lt, operator.le))
OPERATORS: dict[type[exp.Expression], Callable[..., Any]] = {
    exp.And: conjunction, exp.Or: disjunction, exp.Not: NOT, exp.Paren: lambda v: v, exp.Is: same,
    exp.EQ: EQUAL, exp.LT: BELOW, exp.LTE: UP_TO, exp.GT: lambda a, b: BELOW(b, a), exp.GTE: lambda a, b: UP_TO(b, a),
    exp.NEQ: comparison(operator.ne), exp.NullSafeEQ: same, exp.NullSafeNEQ: lambda a, b: not same(a, b),
    exp.Between: lambda v, low, high: conjunction(UP_TO(low, v), UP_TO(v, high)),
    exp.In: lambda v, *listed: disjunction(*(EQUAL(v, x) for x in listed)), exp.Like: strict(like),
    exp.Add: arithmetic(operator.add), exp.Sub: arithmetic(operator.sub), exp.Mul: arithmetic(operator.mul),
    exp.Neg: lambda v: OPERATORS[exp.Sub](0, v), exp.Abs: strict(abs),
    exp.Nullif: lambda a, b: None if EQUAL(a, b) else a,
    exp.Coalesce: lambda *values: next((v for v in values if v is not None), None),
    exp.Year: strict(lambda v: v.year), exp.Month: strict(lambda v: v.month), exp.Day: strict(lambda v: v.day),
    exp.StartsWith: strict(str.startswith), exp.Length: strict(len), exp.DPipe: strict(operator.add),
}  # fmt: skip
CAST = {exp.DType.DATE: dt.date.fromisoformat, exp.DType.TIMESTAMP: dt.datetime.fromisoformat}


def evaluate(node: exp.Expression, row: Mapping[str, Any]) -> Any:
    match node:
        case exp.Column(this=exp.Identifier(this=name)):
            if not node.table:
                return row[name]
        case exp.Null() | exp.Boolean():
            return None if isinstance(node, exp.Null) else node.this
        case exp.Literal(this=text):
            return (
                text
                if node.is_string
                else float(text)
                if "e" in text.lower()
                else int(text)
                if node.is_int
                else Decimal(text)
            )
        case exp.Cast(this=exp.Literal(this=text)) if node.to.this in CAST:
            return CAST[node.to.this](text)
        case exp.Escape(this=exp.Like(this=subject, expression=pattern), expression=exp.Literal(this=escape)):
            matched = strict(like)(evaluate(subject, row), evaluate(pattern, row), escape)
            return NOT(matched) if node.this.args.get("negate") else matched
        case exp.Case() | exp.If():
            subject = exp.true() if isinstance(node, exp.If) or node.this is None else node.this
            for branch in [node] if isinstance(node, exp.If) else node.args["ifs"]:
                if EQUAL(evaluate(subject, row), evaluate(branch.this, row)):
                    return evaluate(branch.args["true"], row)
            return evaluate(node.args.get("default") or node.args.get("false") or exp.null(), row)
        case _ if type(node) in OPERATORS and not node.args.get("symmetric"):
            value = OPERATORS[type(node)](*(evaluate(child, row) for child in node.iter_expressions()))
            return NOT(value) if node.args.get("negate") else value
    raise NotCovered(type(node).__name__)
