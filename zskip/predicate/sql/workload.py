"""What a workload's statements ask of one table: the conditions of their WHERE clauses that read its columns alone."""

from __future__ import annotations

import re

import sqlglot
from sqlglot import exp

from zskip.errors import SqlSyntaxError
from zskip.schema import Schema

__all__ = ["conditions"]

_STATEMENT = re.compile(r"(?:[\s(]|--[^\n]*(?:\n|$)|/\*.*?\*/)*(?:SELECT|WITH)\b", re.IGNORECASE | re.DOTALL)


def conditions(text: str, schema: Schema, *, dialect: str = "duckdb") -> list[str]:
    """The predicates behind a line of a workload: itself, or one for each SELECT in a statement that has any.

    A guide for a layout and never a proof: a condition that reads another table's columns, or a subquery, is left out,
    and of a qualified name the last parts count. Raises `SqlSyntaxError`.

    >>> import pyarrow as pa
    >>> schema = Schema(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    >>> conditions("SELECT count(*) FROM t JOIN u ON t.a = u.x WHERE t.a = 5 AND u.x < 3 AND b > 1", schema)
    ['a = 5 AND b > 1']
    """
    if _STATEMENT.match(text) is None:
        return [text]
    try:
        statement = sqlglot.parse_one(text, read=dialect)
    except sqlglot.errors.ParseError as error:
        raise SqlSyntaxError(f"A statement of the workload does not parse: {error}", text) from error
    found = []
    for select in statement.find_all(exp.Select):
        where = select.args.get("where")
        parts = list(where.this.flatten()) if where is not None and isinstance(where.this, exp.And) else []
        if where is not None and not parts:
            parts = [where.this]
        mine = [own for part in parts if (own := _alone(part, schema, dialect)) is not None]
        if mine:
            found.append(" AND ".join(mine))
    return found


def _alone(part: exp.Expr, schema: Schema, dialect: str) -> str | None:
    """A condition with its columns unqualified; None where it reads anything but this table's columns."""
    condition = part.copy()
    if condition.find(exp.Query) is not None:
        return None
    named = list(condition.find_all(exp.Column))
    for column in named:
        names = [piece.name for piece in column.parts]
        while names and schema.find(names) is None:
            names = names[1:]
        if not names:
            return None
        for qualifier in ("catalog", "db", "table")[: 4 - len(names)]:
            column.set(qualifier, None)
    return condition.sql(dialect=dialect) if named else None
