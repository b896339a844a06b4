"""SQL of DuckDB or Spark: of a bound tree, if that is exact, and of Python's values, texts and names."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import identifier, split_path
from zskip.errors import UnknownParameter
from zskip.language.literals import constant, is_list, plain_value
from zskip.language.tree import (
    MIRRORED,
    And,
    Choose,
    Compare,
    Computable,
    In,
    Is,
    IsNull,
    Literal,
    Node,
    Not,
    Opaque,
    Or,
    Reference,
    Scalar,
)


class _NotExact(Exception):
    """The dialect cannot express a part exactly. `render` then returns None."""


def render(node: Node, dialect: str, *, own: bool = False) -> str | None:
    """SQL of "duckdb" or "spark" with the tree's outcome for every row; None if the dialect cannot express it exactly.

    ``own``: the tree is of this dialect, so that the texts of its opaque parts are.

    >>> render(Compare("<", Reference("a", pa.int32()), Literal(pa.scalar(5, pa.int32()))), "spark")
    '`a` < CAST(5 AS INT)'
    """
    if dialect not in ("duckdb", "spark"):
        return None
    try:
        return _node(node, dialect, own)
    except _NotExact:
        return None


def _node(node: Node, dialect: str, own: bool) -> str:
    match node:
        case Compare("<" | "<=" as op, Literal() as left, right):
            return f"{_scalar(right, dialect)} {MIRRORED[op]} {_scalar(left, dialect)}"
        case Compare(op, left, right):
            return f"{_scalar(left, dialect)} {op} {_scalar(right, dialect)}"
        case In(term, values, or_null):
            return _in(term, values, or_null, dialect)
        case IsNull(term):
            return f"{_scalar(term, dialect)} IS NULL"
        case And(parts) | Or(parts):
            operator = "AND" if isinstance(node, And) else "OR"
            if not parts:
                return "TRUE" if operator == "AND" else "FALSE"
            return f" {operator} ".join(f"({_node(part, dialect, own)})" for part in parts)
        case Not(part):
            return f"NOT ({_node(part, dialect, own)})"
        case Is(part, outcome):
            return f"({_node(part, dialect, own)}) IS {'NULL' if outcome is None else str(outcome).upper()}"
        case Choose(condition, then, otherwise):
            branches = (_node(each, dialect, own) for each in (condition, then, otherwise))
            return "CASE WHEN {} THEN {} ELSE {} END".format(*branches)
        case Computable(part):
            return _node(part, dialect, own)
        case Opaque(sql) if own:
            return sql
    raise _NotExact


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
            return identifier(*split_path(path), dialect=dialect)
        case Literal(value) if dialect == "duckdb" and t.is_integer(value.type) and value.is_valid and _fits_32(value):
            return str(value.as_py())
        case Literal(value) if (text := constant_sql(value, dialect)) is not None:
            return text
    raise _NotExact


def _fits_32(value: pa.Scalar) -> bool:
    """Whether DuckDB compares the number with a column of its type as it is written, without a cast."""
    return bool(-(2**31) < value.as_py() < 2**31)


def type_name(type: pa.DataType, dialect: str) -> str:
    """The name of a type in a dialect; Arrow's own name if the dialect's is not known.

    >>> type_name(pa.int32(), "duckdb"), type_name(pa.int32(), "spark"), type_name(pa.decimal128(9, 2), "spark")
    ('INTEGER', 'INT', 'DECIMAL(9, 2)')
    """
    named = {"duckdb": t.of(type).duckdb, "spark": t.of(type).spark}.get(dialect)
    return (named(type) if named else None) or str(type)


def constant_sql(value: pa.Scalar, dialect: str) -> str | None:
    """SQL for a value as a constant of its type; None for a NULL, and if the dialect cannot express it exactly.

    >>> constant_sql(pa.scalar(5, pa.int8()), "duckdb"), constant_sql(pa.scalar(2**60, pa.timestamp("ns")), "duckdb")
    ('CAST(5 AS TINYINT)', None)
    """
    type, entry = value.type, t.of(value.type)
    name = {"duckdb": entry.duckdb, "spark": entry.spark}[dialect](type)
    if not value.is_valid or dialect not in entry.dialects or name is None:
        return None
    if entry.plain is not None and entry.plain(type):
        try:
            return literal(value, dialect)
        except (OverflowError, UnknownParameter):  # Python has no dates after the year 9999, and no 24:00
            return None
    if entry.spelled is None or (t.is_decimal(type) and type.precision > 38):
        return None
    text = entry.spelled(value.as_py())
    return f"CAST({text if t.is_integer(type) else quoted(text, dialect)} AS {name})"


# Python values, texts and names as SQL of DuckDB or Spark.


def literal(value: Any, dialect: str) -> str:
    """SQL for a value of Python, numpy or Arrow, as a constant of the same type. Raises `UnknownParameter`.

    >>> literal(date(2024, 1, 31), "duckdb"), literal("it's", "duckdb")
    ("DATE '2024-01-31'", "'it''s'")
    """
    if is_list(value):
        elements = value.to_pylist() if isinstance(value, pa.Array | pa.ChunkedArray) else value
        listed = ", ".join([literal(each, dialect) for each in elements])
        # ``x IN (1, NULL)`` is never FALSE in DuckDB, and ``x IN [1, NULL]``, like a list as a parameter, is.
        is_set = dialect != "duckdb" or (listed and None not in elements)
        return f"({listed})" if is_set else f"[{listed}]"
    value = plain_value(value)
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value) if value >= 0 else f"({value})"
        case float():
            text = (
                "NaN"
                if math.isnan(value)
                else ("-" if value < 0 else "") + "Infinity"
                if math.isinf(value)
                else repr(value)
            )
            return f"CAST({quoted(text, dialect)} AS DOUBLE)"
        case Decimal():
            type = constant(value).type
            return f"CAST({quoted(f'{value:f}', dialect)} AS DECIMAL({type.precision}, {type.scale}))"
        case str():
            return quoted(value, dialect)
        case bytes():
            return f"X'{value.hex()}'" if dialect == "spark" else f"from_hex('{value.hex()}')"
        case datetime():
            return _timestamp(value, dialect)
        case date():
            return f"DATE '{value.isoformat()}'"
        case time():
            return f"TIME '{value.isoformat()}'"
    micros: int = value // timedelta(microseconds=1)
    return f"INTERVAL '{micros}' MICROSECONDS"


def quoted(text: str, dialect: str) -> str:
    """A string literal."""
    if dialect == "spark":
        text = text.replace("\\", "\\\\").replace("'", "\\'")
    else:
        text = text.replace("'", "''")
    return f"'{text}'"


def _timestamp(value: datetime, dialect: str) -> str:
    if value.tzinfo is None:
        return f"{'TIMESTAMP_NTZ' if dialect == 'spark' else 'TIMESTAMP'} '{value.isoformat(' ')}'"
    utc = value.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    return f"{'TIMESTAMP' if dialect == 'spark' else 'TIMESTAMPTZ'} '{utc}+00:00'"
