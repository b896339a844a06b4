"""What Spark says, in the words of DuckDB: conditions of those functions alone that both compute alike.

Every constant and every result is cast to the type that Spark gives it, so that what overflows there overflows here.
What stands in no line of `zskip.expr.functions.SHARED`, or over other types, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pyarrow as pa
from pyarrow import types as t
from sqlglot import exp

from zskip.binder.constants import constant
from zskip.binder.context import Binding
from zskip.binder.nodes import known
from zskip.expr.functions import SHARED, is_plain_text
from zskip.expr.literals import Refused
from zskip.expr.sql_literals import literal, quoted
from zskip.expr.tree import Reference
from zskip.schema import split_path

__all__ = ["in_duckdb"]

Said = tuple[str, str]
"""A text of DuckDB, and its type's word in the table of functions."""


def in_duckdb(binding: Binding, node: exp.Expr) -> str:
    """The text by which DuckDB computes a condition of Spark's over plain values. Raises `Refused`."""
    sql, kind = _said(binding, node)
    if kind != "boolean":
        raise Refused("no condition")
    return sql


def _said(binding: Binding, node: exp.Expr) -> Said:
    while isinstance(node, exp.Paren):
        node = node.this
    value = constant(node, binding.dialect)
    if value is not None:
        return _constant(value, isinstance(node, exp.Cast), binding)
    if isinstance(node, exp.Column | exp.Dot):
        column = binding.scalar(node)
        if not isinstance(column, Reference):
            raise Refused("something inside of a column")
        return ".".join(_name(part) for part in split_path(column.path)), _kind(column.type)
    form = _FORMS.get(type(node))
    return form(binding, node) if form is not None else _function(binding, node)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _kind(type: pa.DataType) -> str:
    if t.is_signed_integer(type):
        return "integer"
    found = {pa.string(): "string", pa.float64(): "float", pa.bool_(): "boolean", pa.date32(): "date"}.get(type)
    if found is None:
        raise Refused(f"{type} is not computed alike by both engines")
    return found


def _constant(value: pa.Scalar, is_typed: bool, binding: Binding) -> Said:
    if not value.is_valid:
        return "NULL", "null"
    kind = _kind(value.type)
    plain = value.as_py()
    match kind:
        case "integer":
            if plain in map(int, binding.source.lists):
                raise Refused("a long list")
            small = value.type.bit_width < 64 or (not is_typed and -(2**31) <= plain < 2**31)
            name = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "INTEGER" if small else "BIGINT"}
            return f"CAST({plain} AS {name[value.type.bit_width]})", kind
        case "float":
            return f"CAST({quoted(repr(plain), 'duckdb')} AS DOUBLE)", kind
        case "string":
            if not is_plain_text(plain):
                raise Refused("a constant beside ASCII")
            return quoted(plain, "duckdb"), kind
    return literal(value, "duckdb"), kind


# ── predicates and choices ──


def _alike(*kinds: str) -> str:
    """The one type of several terms, beside NULL. Numbers of both sorts are none: engines cast them."""
    found = set(kinds) - {"null"}
    if len(found) > 1:
        raise Refused("terms of several types")
    return found.pop() if found else "null"


def _compared(*kinds: str) -> None:
    if not set(kinds) <= {"integer", "float", "null"}:
        _alike(*kinds)


def _operator(sign: str) -> Callable[[Binding, exp.Expr], Said]:
    def said(binding: Binding, node: exp.Expr) -> Said:
        known(node, "this", "expression")
        (left, a), (right, b) = _said(binding, node.this), _said(binding, node.expression)
        _compared(a, b)
        return f"({left} {sign} {right})", "boolean"

    return said


def _logic(word: str) -> Callable[[Binding, exp.Expr], Said]:
    def said(binding: Binding, node: exp.Expr) -> Said:
        known(node, "this", "expression")
        parts = [_said(binding, each) for each in node.flatten()]
        _conditions(kind for _, kind in parts)
        return "(" + f" {word} ".join(sql for sql, _ in parts) + ")", "boolean"

    return said


def _conditions(kinds: Iterable[str]) -> None:
    if not set(kinds) <= {"boolean", "null"}:
        raise Refused("no condition")


def _not(binding: Binding, node: exp.Expr) -> Said:
    sql, kind = _said(binding, node.this)
    _conditions([kind])
    return f"(NOT {sql})", "boolean"


def _is(binding: Binding, node: exp.Expr) -> Said:
    known(node, "this", "expression")
    sql, kind = _said(binding, node.this)
    tested, _ = _said(binding, node.expression)
    if tested != "NULL":
        _conditions([kind])
    if tested not in ("NULL", "TRUE", "FALSE"):
        raise Refused("IS with something other than NULL, TRUE or FALSE")
    return f"({sql} IS {tested})", "boolean"


def _in(binding: Binding, node: exp.Expr) -> Said:
    known(node, "this", "expressions")
    parts = [_said(binding, each) for each in (node.this, *node.expressions)]
    _alike(*(kind for _, kind in parts))
    subject, *listed = (sql for sql, _ in parts)
    return f"({subject} IN ({', '.join(listed)}))", "boolean"


def _between(binding: Binding, node: exp.Expr) -> Said:
    known(node, "this", "low", "high")
    parts = [_said(binding, node.args[name]) for name in ("this", "low", "high")]
    _compared(*(kind for _, kind in parts))
    subject, low, high = (sql for sql, _ in parts)
    return f"({subject} >= {low} AND {subject} <= {high})", "boolean"


def _case(binding: Binding, node: exp.Expr) -> Said:
    known(node, "this", "ifs", "default")
    subject = None if node.this is None else _said(binding, node.this)
    text, kinds = "CASE", []
    for branch in node.args["ifs"]:
        when, kind = _said(binding, branch.this)
        then, result = _said(binding, branch.args["true"])
        if subject is None:
            _conditions([kind])
        else:
            _compared(subject[1], kind)
            when = f"{subject[0]} = {when}"
        text += f" WHEN {when} THEN {then}"
        kinds.append(result)
    default, kind = _said(binding, node.args["default"]) if node.args.get("default") else ("NULL", "null")
    return f"({text} ELSE {default} END)", _alike(*kinds, kind)


def _if(binding: Binding, node: exp.Expr) -> Said:
    known(node, "this", "true", "false")
    condition, kind = _said(binding, node.this)
    _conditions([kind])
    then, result = _said(binding, node.args["true"])
    otherwise, other = _said(binding, node.args["false"]) if node.args.get("false") else ("NULL", "null")
    return f"(CASE WHEN {condition} THEN {then} ELSE {otherwise} END)", _alike(result, other)


def _coalesce(binding: Binding, node: exp.Expr) -> Said:
    known(node, "this", "expressions")
    parts = [_said(binding, each) for each in (node.this, *node.expressions)]
    return f"coalesce({', '.join(sql for sql, _ in parts)})", _alike(*(kind for _, kind in parts))


def _nullif(binding: Binding, node: exp.Expr) -> Said:
    known(node, "this", "expression")
    (left, a), (right, b) = _said(binding, node.this), _said(binding, node.expression)
    return f"nullif({left}, {right})", _alike(a, b)


_FORMS: dict[type[exp.Expr], Callable[[Binding, exp.Expr], Said]] = {
    exp.EQ: _operator("="),
    exp.NEQ: _operator("<>"),
    exp.LT: _operator("<"),
    exp.LTE: _operator("<="),
    exp.GT: _operator(">"),
    exp.GTE: _operator(">="),
    exp.NullSafeEQ: _operator("IS NOT DISTINCT FROM"),
    exp.And: _logic("AND"),
    exp.Or: _logic("OR"),
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
}


# ── functions ──


def _function(binding: Binding, node: exp.Expr) -> Said:
    name, arguments, negated = _named(binding, node)
    shared = SHARED.get(name)
    if shared is None:
        raise Refused(f"{name} is not known to be computed alike by both engines")
    if name == "concat":
        parts = [_argument(binding, each, "string")[0] for each in arguments]
        return "(" + " || ".join(parts) + ")", "string"
    if len(arguments) != len(shared.arguments):
        raise Refused(f"{name} of {len(arguments)} arguments")
    said = [_argument(binding, each, kind) for each, kind in zip(arguments, shared.arguments, strict=True)]
    result = shared.result
    if result == "number":
        result = "float" if "float" in {kind for _, kind in said} else "integer"
    sql = shared.duckdb.format(*(sql for sql, _ in said))
    return (f"(NOT {sql})" if negated else sql), result


def _named(binding: Binding, node: exp.Expr) -> tuple[str, list[exp.Expr], bool]:
    """The name of a function in the table, and its arguments; and whether it is turned round."""
    if isinstance(node, exp.Concat):
        known(node, "expressions", "safe")
        return "concat", list(node.expressions), False
    if isinstance(node, exp.Cast):
        to = node.args["to"]
        name = "cast" if isinstance(to, exp.DataType) and to.is_type("text") and not to.expressions else "another cast"
        return name, [node.this], False
    if isinstance(node, exp.Trim):
        known(node, "this", "position")
        return (
            {None: "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position"), "?"),
            [node.this],
            False,
        )
    if isinstance(node, exp.TimeToStr):
        known(node, "this", "format")
        if "YYYY" in binding.source.frozen:
            raise Refused("years of weeks")
        day = node.this.this if isinstance(node.this, exp.Cast | exp.TimeStrToTime) else node.this
        return "date_format", [day, node.args["format"]], False
    names = _ARGUMENTS.get(node.key, ("this", "expression"))
    known(node, *names, "safe", "negate")
    given = [node.args[name] for name in names if node.args.get(name) is not None]
    return (
        node.key,
        [each.this if isinstance(each, exp.TsOrDsToDate) else each for each in given],
        bool(node.args.get("negate")),
    )


_ARGUMENTS = {
    "substring": ("this", "start", "length"),
    "replace": ("this", "expression", "replacement"),
    "strposition": ("this", "substr"),
}
"""What the parser calls the arguments of a function, in their order."""


def _argument(binding: Binding, node: exp.Expr, wanted: str) -> Said:
    """An argument of one of the table's types."""
    if wanted in _CONSTANTS:
        value = constant(node, binding.dialect)
        if value is None or not value.is_valid or not _CONSTANTS[wanted](value.as_py()):
            raise Refused(f"no constant such as {wanted}")
        if wanted == "a format":
            return quoted(str(value.as_py()).replace("strict", ""), "duckdb"), "string"
        return _constant(value, isinstance(node, exp.Cast), binding)
    sql, kind = _said(binding, node)
    if kind != wanted and not (wanted == "number" and kind in ("integer", "float")):
        raise Refused(f"{kind} where {wanted} is wanted")
    return sql, kind


def _is_count(value: object, least: int) -> bool:
    return type(value) is int and least <= value < 2**31


_FORMAT = re.compile(r"(?!.*%Y%Y)(%Y|%mstrict|%dstrict|[-/ .])+")
"""Years of four digits, months and days of two, as the parser spells them."""

_CONSTANTS: dict[str, Callable[[object], bool]] = {
    "a count": lambda value: _is_count(value, 0),
    "a positive integer": lambda value: _is_count(value, 1),
    "a text": lambda value: isinstance(value, str) and value != "",
    "a pattern": lambda value: isinstance(value, str) and "\\" not in value,
    "a format": lambda value: isinstance(value, str) and _FORMAT.fullmatch(value) is not None,
}
"""Arguments that must be constants, by the table's words for them."""
