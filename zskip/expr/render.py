"""A bound tree as SQL of a dialect, where that is exact; None where it is not."""

from __future__ import annotations

import pyarrow as pa

from zskip import types as t
from zskip.expr.sql_literals import literal, quoted
from zskip.expr.tree import And, Choose, Compare, Computable, In, Is, IsNull, Literal, Node, Not, Or, Reference, Scalar
from zskip.schema import split_path

__all__ = ["constant", "render", "type_name"]

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
        case Literal(value) if (text := constant(value, dialect)) is not None:
            return text
    raise _Unsaid


def type_name(type: pa.DataType, dialect: str) -> str:
    """What a dialect calls a column of this type; Arrow's own name where none is known.

    >>> type_name(pa.int32(), "duckdb"), type_name(pa.int32(), "spark"), type_name(pa.decimal128(9, 2), "spark")
    ('INTEGER', 'INT', 'DECIMAL(9, 2)')
    """
    named = {"duckdb": t.of(type).duckdb, "spark": t.of(type).spark}.get(dialect)
    return (named(type) if named else None) or str(type)


def constant(value: pa.Scalar, dialect: str) -> str | None:
    """A value as a constant of its type; None for a NULL, and for what the dialect cannot write exactly.

    >>> constant(pa.scalar(5, pa.int8()), "duckdb"), constant(pa.scalar(2**60, pa.timestamp("ns")), "duckdb")
    ('CAST(5 AS TINYINT)', None)
    """
    type, entry = value.type, t.of(value.type)
    if not value.is_valid or dialect not in entry.dialects:
        return None
    if entry.plain is not None and entry.plain(type):
        try:
            return literal(value, dialect)
        except OverflowError:  # a moment beyond the year 9999, which Python has no date for
            return None
    name = {"duckdb": entry.duckdb, "spark": entry.spark}[dialect](type)
    if name is None or entry.spelled is None or (t.is_decimal(type) and type.precision > 38):
        return None
    text = entry.spelled(value.as_py())
    return f"CAST({text if t.is_integer(type) else quoted(text, dialect)} AS {name})"
