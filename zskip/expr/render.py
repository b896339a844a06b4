"""The text of a bound tree in a dialect of choice, where it can be said exactly; None where it cannot."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pyarrow as pa

from zskip import types as t
from zskip.expr.sql_literals import literal, quoted
from zskip.expr.tree import And, Choose, Compare, Computable, In, Is, IsNull, Literal, Node, Not, Or, Reference, Scalar
from zskip.schema import split_path
from zskip.types import UUID

__all__ = ["render", "type_name"]

_QUOTES = {"duckdb": '"', "spark": "`"}


class _Unsaid(Exception):  # it never leaves the module: the answer is None
    pass


def render(node: Node, dialect: str) -> str | None:
    """SQL of "duckdb" or "spark" with the outcomes of the tree for every row; None for what cannot be said exactly.

    >>> render(Compare("<", Reference("a", pa.int32()), Literal(pa.scalar(5, pa.int32()))), "spark")
    '`a` < CAST(5 AS INT)'
    """
    if dialect not in _QUOTES:
        return None
    try:
        return _node(node, dialect)
    except _Unsaid:
        return None


def _node(node: Node, dialect: str) -> str:
    match node:
        case Compare(op, left, right):
            return f"{_scalar(left, dialect)} {op} {_scalar(right, dialect)}"
        case In(term, values, or_null):
            return _in(term, values, or_null, dialect)
        case IsNull(term):
            return f"{_scalar(term, dialect)} IS NULL"
        case And(parts) | Or(parts):
            word = "AND" if isinstance(node, And) else "OR"
            if not parts:
                return "TRUE" if word == "AND" else "FALSE"
            return f" {word} ".join(f"({_node(part, dialect)})" for part in parts)
        case Not(part):
            return f"NOT ({_node(part, dialect)})"
        case Is(part, outcome):
            return f"({_node(part, dialect)}) IS {'NULL' if outcome is None else str(outcome).upper()}"
        case Choose(condition, then, otherwise):
            parts3 = (_node(each, dialect) for each in (condition, then, otherwise))
            return "CASE WHEN {} THEN {} ELSE {} END".format(*parts3)
        case Computable(part):
            return _node(part, dialect)
    raise _Unsaid


def _in(term: Scalar, values: pa.Array, or_null: bool, dialect: str) -> str:
    if isinstance(term, Literal) and not term.value.is_valid:
        return "CAST(NULL AS BOOLEAN)"
    subject = _scalar(term, dialect)
    listed = [_scalar(Literal(value), dialect) for value in values]
    if or_null:
        listed.append("NULL")
    if not listed:
        return f"CASE WHEN {subject} IS NULL THEN CAST(NULL AS BOOLEAN) ELSE FALSE END"
    return f"{subject} IN ({', '.join(listed)})"


def _scalar(scalar: Scalar, dialect: str) -> str:
    match scalar:
        case Reference(path, _):
            mark = _QUOTES[dialect]
            return ".".join(mark + part.replace(mark, mark * 2) + mark for part in split_path(path))
        case Literal(value):
            return _literal(value, dialect)
    raise _Unsaid


_TYPES = {
    "duckdb": {
        pa.int8(): "TINYINT",
        pa.int16(): "SMALLINT",
        pa.int32(): "INTEGER",
        pa.int64(): "BIGINT",
        pa.uint8(): "UTINYINT",
        pa.uint16(): "USMALLINT",
        pa.uint32(): "UINTEGER",
        pa.uint64(): "UBIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
    },
    "spark": {
        pa.int8(): "TINYINT",
        pa.int16(): "SMALLINT",
        pa.int32(): "INT",
        pa.int64(): "BIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
    },
}


_NAMES: dict[str, tuple[tuple[Callable[[pa.DataType], bool], str], ...]] = {
    "duckdb": (
        (t.is_string, "VARCHAR"),
        (t.is_binary, "BLOB"),
        (UUID.equals, "UUID"),
        (lambda type: t.is_timestamp(type) and type.tz is not None, "TIMESTAMP WITH TIME ZONE"),
        (t.is_timestamp, "TIMESTAMP"),
        (t.is_time, "TIME"),
    ),
    "spark": (
        (t.is_string, "STRING"),
        (t.is_binary, "BINARY"),
        (lambda type: t.is_timestamp(type) and type.tz is None, "TIMESTAMP_NTZ"),
        (t.is_timestamp, "TIMESTAMP"),
        (t.is_uint8, "SMALLINT"),
        (t.is_uint16, "INT"),
        (t.is_uint32, "BIGINT"),
        (t.is_uint64, "DECIMAL(20, 0)"),
    ),
}


def type_name(type: pa.DataType, dialect: str) -> str:
    """What a dialect calls a column of this type; Arrow's own name where none is known.

    >>> type_name(pa.int32(), "duckdb"), type_name(pa.int32(), "spark"), type_name(pa.decimal128(9, 2), "spark")
    ('INTEGER', 'INT', 'DECIMAL(9, 2)')
    """
    if dialect not in _NAMES:
        return str(type)
    if type in _TYPES[dialect]:
        return _TYPES[dialect][type]
    if t.is_boolean(type):
        return "BOOLEAN"
    if t.is_date(type):
        return "DATE"
    if t.is_decimal(type):
        return f"DECIMAL({type.precision}, {type.scale})"
    return next((name for holds, name in _NAMES[dialect] if holds(type)), str(type))


def _literal(value: pa.Scalar, dialect: str) -> str:
    type = value.type
    if not value.is_valid:
        raise _Unsaid
    if t.is_boolean(type) or t.is_string(type) or t.is_binary(type) or t.is_date(type):
        return literal(value, dialect)
    if t.is_decimal(type) and type.precision <= 38:
        return f"CAST({quoted(format(value.as_py(), 'f'), dialect)} AS DECIMAL({type.precision}, {type.scale}))"
    if t.is_timestamp(type) and type.unit in ("s", "ms", "us"):
        return literal(value, dialect)
    if type == UUID and dialect == "duckdb":
        return f"UUID '{uuid.UUID(bytes=value.as_py())}'"
    if type in _TYPES[dialect]:
        plain = str(value.as_py()) if t.is_integer(type) else quoted(repr(value.as_py()), dialect)
        return f"CAST({plain} AS {_TYPES[dialect][type]})"
    raise _Unsaid
