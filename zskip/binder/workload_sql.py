"""What the statements of a workload read of one table: their conditions on its columns, and these columns."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp

from zskip.binder.split import is_read_too_often, nesting
from zskip.binder.text_spans import what_is_wrong
from zskip.errors import SqlSyntaxError
from zskip.expr.recursion import DEEPEST, TOO_DEEP, refused_if_too_deep
from zskip.schema import Schema

__all__ = [
    "TableQuery",
    "conditions",
    "is_query",
    "named_tables",
    "places_read",
    "shape",
    "table_queries",
    "translated",
]

_STATEMENT = re.compile(r"(?:[\s(]|--[^\n]*(?:\n|$)|/\*.*?\*/)*(?:SELECT|WITH|FROM)\b", re.IGNORECASE | re.DOTALL)


class TableQuery(NamedTuple):
    """One query: its condition, and the paths of the leaves that it reads; None for all of them."""

    condition: str
    columns: frozenset[str] | None


def table_queries(text: str, schema: Schema, *, dialect: str = "duckdb") -> list[TableQuery]:
    """The queries behind a line of a workload: a predicate itself, or one for each SELECT in a statement that has any.

    A guide for a layout and never a proof: a condition that reads another table's columns, or a subquery, is left out,
    and of a qualified name the last parts count. A SELECT reads the columns that it names anywhere, and a predicate
    alone reads all, as `*` does; a `*` within a statement stands for what the whole statement names. Raises
    `SqlSyntaxError`.

    >>> import pyarrow as pa
    >>> schema = Schema(pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())]))
    >>> (query,) = table_queries("SELECT c FROM t JOIN u ON t.a = u.x WHERE t.a = 5 AND u.x < 3 AND b > 1", schema)
    >>> query.condition, sorted(query.columns)
    ('a = 5 AND b > 1', ['a', 'b', 'c'])
    """
    if not is_query(text):
        return [TableQuery(text, None)]
    with refused_if_too_deep(text):
        return _selects(text, schema, dialect)


def _selects(text: str, schema: Schema, dialect: str) -> list[TableQuery]:
    try:
        statement = _parsed(text, dialect)
    except sqlglot.errors.ParseError as error:
        raise _unparsed("A statement of the workload", error, text, dialect) from error
    found = []
    for select in statement.find_all(exp.Select):
        where = select.args.get("where")
        parts = list(where.this.flatten()) if where is not None and isinstance(where.this, exp.And) else []
        if where is not None and not parts:
            parts = [where.this]
        of_select = [own for part in parts if (own := _alone(part, schema, dialect)) is not None]
        if of_select:
            found.append(TableQuery(" AND ".join(of_select), _read(select, statement, schema)))
    return found


def _parsed(text: str, dialect: str) -> exp.Expr:
    """A statement. Raises sqlglot's errors, and `SqlSyntaxError` where it nests too deep."""
    tokens = sqlglot.tokenize(text, read=dialect)
    if nesting(tokens) > DEEPEST or is_read_too_often(tokens):
        raise SqlSyntaxError(TOO_DEEP, text)
    with refused_if_too_deep(text):
        return sqlglot.parse_one(text, read=dialect)


def is_query(text: str) -> bool:
    """Whether a text is a SELECT statement, not a predicate or a statement of another kind."""
    return _STATEMENT.match(text) is not None


def conditions(text: str, schema: Schema, *, dialect: str = "duckdb") -> list[str]:
    """The conditions of `table_queries` alone."""
    return [query.condition for query in table_queries(text, schema, dialect=dialect)]


def _unparsed(what: str, error: sqlglot.errors.SqlglotError, text: str, dialect: str) -> SqlSyntaxError:
    """The error of a text, without sqlglot's own message, which has escapes for terminals and names of its classes."""
    detail: dict[str, Any] = next(iter(getattr(error, "errors", ())), {})
    span = None
    with suppress(sqlglot.errors.TokenError):
        for token in sqlglot.tokenize(text, read=dialect):
            if (token.line, token.col) == (detail.get("line"), detail.get("col")):
                span = token.start, token.end + 1
    return SqlSyntaxError(f"{what} does not parse: {what_is_wrong(detail)}.", text, span)


def named_tables(text: str) -> set[str]:
    """The tables that a statement names, in quotes where it quotes them, without its own CTEs. Raises `SqlSyntaxError`.

    >>> sorted(named_tables("WITH c AS (SELECT * FROM t) SELECT * FROM c JOIN 'lake/conn' USING (a)"))
    ['"lake/conn"', 't']
    """
    found = _tables_read(text, "duckdb")
    return {table.this.sql(dialect="duckdb") for table in found if table.name and not table.db}


def places_read(text: str, *, dialect: str) -> set[str]:
    """The names, aliases and paths of all that a statement reads, without its own CTEs. Raises `SqlSyntaxError`.

    >>> sql = "SELECT * FROM s.t AS x JOIN read_parquet(['a/1.parquet', 'a/2.parquet']) USING (k)"
    >>> sorted(places_read(sql, dialect="duckdb"))
    ['a/1.parquet', 'a/2.parquet', 't', 'x']
    """
    found: set[str] = set()
    for table in _tables_read(text, dialect):
        found |= {table.name, table.alias, *(str(each.this) for each in table.find_all(exp.Literal))}
    return found - {""}


def _tables_read(text: str, dialect: str) -> list[exp.Table]:
    try:
        statement = _parsed(text, dialect)
    except sqlglot.errors.SqlglotError as error:
        raise _unparsed("The statement", error, text, dialect) from error
    own = _cte_names(statement)
    return [table for table in statement.find_all(exp.Table) if table.name.lower() not in own]


def _cte_names(statement: exp.Expr) -> set[str]:
    return {cte.alias.lower() for cte in statement.find_all(exp.CTE)}


def in_duckdb(condition: str, dialect: str) -> str:
    """A condition of another dialect in DuckDB's SQL. Raises `SqlSyntaxError`."""
    if dialect == "duckdb":
        return condition
    try:
        return _parsed(condition, dialect).sql(dialect="duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise _unparsed("The condition", error, condition, dialect) from error


def shape(condition: str, *, dialect: str = "duckdb") -> str:
    """A condition with `?` in place of its constants, the same for all that differ in nothing else.

    >>> shape("a IN (1, 2, 3) AND d >= DATE '2020-01-01' AND b = -5")
    'a IN (?) AND d >= ? AND b = ?'
    """

    def without_constants(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.In) and node.expressions and all(map(_is_constant, node.expressions)):
            node.set("expressions", [exp.Placeholder()])
        return exp.Placeholder() if _is_constant(node) else node

    try:
        return _parsed(condition, dialect).transform(without_constants).sql(dialect=dialect)
    except (sqlglot.errors.SqlglotError, SqlSyntaxError):
        return condition


def _is_constant(node: exp.Expr) -> bool:
    if isinstance(node, exp.Cast | exp.Neg | exp.Paren):
        return _is_constant(node.this)
    return isinstance(node, exp.Literal | exp.Placeholder)


def translated(text: str, tables: Collection[str], name: str, *, dialect: str = "duckdb", into: str) -> str:
    """A statement in another dialect, in which some tables, whichever case they are spelled in, have another name.

    For Spark the name is a parameter of ``spark.sql``, in braces. Raises `SqlSyntaxError`.

    >>> translated("FROM 'lake/conn' WHERE a = 5", ["lake/conn"], "rows", into="spark")
    'SELECT * FROM {rows} AS `lake/conn` WHERE a = 5'
    """
    folded = {table.lower() for table in tables}
    placed = f"zskip_{name}_here"
    try:
        statement = _parsed(text, dialect)
        own = _cte_names(statement)
        for table in list(statement.find_all(exp.Table)):
            if table.name.lower() in folded - own and not table.db:
                if not table.alias:
                    table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
                table.set("this", exp.to_identifier(placed if into == "spark" else name))
        with refused_if_too_deep(text):
            rewritten = statement.sql(dialect=into)
    except sqlglot.errors.SqlglotError as error:
        raise SqlSyntaxError(f"The statement cannot be put into {into}'s SQL: {error}", text) from error
    if into == "spark":
        return rewritten.replace("{", "{{").replace("}", "}}").replace(placed, f"{{{name}}}")
    return rewritten


def _read(select: exp.Select, statement: exp.Expr, schema: Schema) -> frozenset[str] | None:
    """The leaves that one SELECT of a statement reads; None for all."""
    if not _has_star(select):
        return _named(select, schema)
    outermost = [each for each in statement.find_all(exp.Select) if each.find_ancestor(exp.Select, exp.CTE) is None]
    return None if any(each is select or _has_star(each) for each in outermost) else _named(statement, schema)


def _has_star(select: exp.Select) -> bool:
    """Whether a SELECT list holds `*`, `t.*` or `COLUMNS(…)`; the star of `count(*)` reads nothing."""
    return any(each.is_star or each.find(exp.Columns) is not None for each in select.expressions)


def _named(part: exp.Expr, schema: Schema) -> frozenset[str]:
    """The leaves that a part of a statement names; a struct stands for all of its fields."""
    found: set[str] = set()
    for names in {tuple(piece.name.lower() for piece in column.parts) for column in part.find_all(exp.Column)}:
        # a qualifier may stand before a column's name, and a field's name behind it
        for first in range(len(names)):
            under = [leaf.path for leaf in schema if _is_under(leaf.parts, names[first:])]
            found |= set(under)
            if under:
                break
    return frozenset(found)


def _is_under(parts: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return all(part.lower() == name for part, name in zip(parts, names, strict=False))


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
    return condition.sql(dialect=dialect, comments=False) if named else None
