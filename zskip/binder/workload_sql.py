"""Read the statements of a workload: the condition on one table's rows, and the columns that they read."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp

from zskip.binder.scan_conditions import Scans
from zskip.binder.source_text import parse_error_text
from zskip.binder.split import nesting, parses_exponentially
from zskip.core.schema import Schema
from zskip.errors import SqlSyntaxError
from zskip.language.recursion import MAX_DEPTH, TOO_DEEP, syntax_error_if_too_deep

_BLANK = r"(?:[\s(]|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_STATEMENT = re.compile(_BLANK + r"(?:SELECT|WITH|FROM)\b", re.IGNORECASE | re.DOTALL)
_WITH_A_QUERY = re.compile(_BLANK + r"(?:CREATE\b.*?\bTABLE|COPY\s*\(|INSERT)\b", re.IGNORECASE | re.DOTALL)
_ANALYZED = re.compile(_BLANK + r"EXPLAIN\s+ANALYZE\s", re.IGNORECASE | re.DOTALL)


class TableQuery(NamedTuple):
    """One query of a table: its condition, and the paths of the leaves that it reads; None for all."""

    condition: str
    columns: frozenset[str] | None


def table_query(
    text: str, schema: Schema, *, dialect: str = "duckdb", is_table: Callable[[exp.Table], bool] = lambda _: True
) -> TableQuery | None:
    """The rows and columns of a table that a predicate or statement reads; None for a statement without a condition on
    the table's columns.

    The result guides layouts and proves nothing: names are resolved without their qualifiers, and conditions on other
    tables' columns or with subqueries are left out. The conditions on one scan are ANDed: those of its SELECT, and
    those of the SELECT that reads it as a CTE or derived table. Several scans with conditions are ORed, so a file that
    two of them read counts once. A SELECT reads all columns that it names. A predicate alone reads all columns, and so
    does the `*` of the outermost SELECT; a `*` of an inner SELECT reads the columns that the statement names.

    ``is_table``: whether a table of the statement may be this one; by default any may be. Raises `SqlSyntaxError`.

    >>> import pyarrow as pa
    >>> schema = Schema(pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())]))
    >>> query = table_query("SELECT c FROM t JOIN u ON t.a = u.x WHERE t.a = 5 AND u.x < 3 AND b > 1", schema)
    >>> query.condition, sorted(query.columns)
    ('a = 5 AND b > 1', ['a', 'b', 'c'])
    >>> table_query("WITH x AS (SELECT * FROM t WHERE a = 5) SELECT c FROM x WHERE b > 1", schema).condition
    'a = 5 AND b > 1'
    """
    if not is_query(text):
        return TableQuery(text, None)
    with syntax_error_if_too_deep(text):
        try:
            statement = _parse(text, dialect)
        except sqlglot.errors.ParseError as error:
            raise _syntax_error("A statement of the workload", error, text, dialect) from error
        scans = Scans(statement, lambda part: _own_condition(part, schema, dialect), is_table)
        return union(
            [TableQuery(" AND ".join(parts), _columns_read(select, statement, schema)) for select, parts in scans]
        )


def union(scans: Sequence[TableQuery]) -> TableQuery | None:
    """Several scans of a table as one query: the rows and columns that any of them reads. None for no scan.

    >>> union([TableQuery("a = 1", frozenset({"a"})), TableQuery("b = 2", None)])
    TableQuery(condition='(a = 1) OR (b = 2)', columns=None)
    """
    if not scans:
        return None
    conditions = list(dict.fromkeys(scan.condition for scan in scans))
    condition = conditions[0] if len(conditions) == 1 else " OR ".join(f"({each})" for each in conditions)
    columns = [scan.columns for scan in scans if scan.columns is not None]
    return TableQuery(condition, frozenset().union(*columns) if len(columns) == len(scans) else None)


def _parse(text: str, dialect: str) -> exp.Expr:
    """Parses a statement. Raises sqlglot's errors, and `SqlSyntaxError` if it nests too deep."""
    tokens = sqlglot.tokenize(text, read=dialect)
    if nesting(tokens) > MAX_DEPTH or parses_exponentially(tokens):
        raise SqlSyntaxError(TOO_DEEP, text)
    with syntax_error_if_too_deep(text):
        return sqlglot.parse_one(text, read=dialect)


def is_query(text: str) -> bool:
    """Whether a text is a query, not a predicate or a statement of another kind."""
    return _STATEMENT.match(text) is not None


def query_run_by(text: str) -> str | None:
    """The query that a statement runs, in DuckDB's SQL; None for a statement that runs none.

    >>> query_run_by("CREATE TABLE x AS SELECT a FROM t WHERE a = 5")
    'SELECT a FROM t WHERE a = 5'
    """
    text = _ANALYZED.sub("", text, count=1)
    if is_query(text):
        return text
    if not _WITH_A_QUERY.match(text):
        return None
    try:
        statement = _parse(text, "duckdb")
    except (sqlglot.errors.SqlglotError, SqlSyntaxError):
        return None
    query = statement.this if isinstance(statement, exp.Copy) else statement.args.get("expression")
    return query.sql(dialect="duckdb") if isinstance(query, exp.Query) else None


def _syntax_error(subject: str, error: sqlglot.errors.SqlglotError, text: str, dialect: str) -> SqlSyntaxError:
    """A `SqlSyntaxError` without sqlglot's message, which contains terminal escapes and names of classes."""
    detail: dict[str, Any] = next(iter(getattr(error, "errors", ())), {})
    span = None
    with suppress(sqlglot.errors.TokenError):
        for token in sqlglot.tokenize(text, read=dialect):
            if (token.line, token.col) == (detail.get("line"), detail.get("col")):
                span = token.start, token.end + 1
    return SqlSyntaxError(f"{subject} does not parse: {parse_error_text(detail)}.", text, span)


def named_tables(text: str) -> set[str]:
    """The unqualified tables that a statement reads, quoted as it quotes them, without CTEs. Raises `SqlSyntaxError`.

    >>> sorted(named_tables("WITH c AS (SELECT * FROM t) SELECT * FROM c JOIN 'lake/conn' USING (a)"))
    ['"lake/conn"', 't']
    """
    tables = _tables_read(text, "duckdb")
    return {table.this.sql(dialect="duckdb") for table in tables if table.name and not table.db}


def relations_read(text: str, *, dialect: str) -> set[str]:
    """The names, aliases and paths of the tables and files that a statement reads, without CTEs.

    Raises `SqlSyntaxError`.

    >>> sql = "SELECT * FROM s.t AS x JOIN read_parquet(['a/1.parquet', 'a/2.parquet']) USING (k)"
    >>> sorted(relations_read(sql, dialect="duckdb"))
    ['a/1.parquet', 'a/2.parquet', 't', 'x']
    """
    found: set[str] = set()
    for table in _tables_read(text, dialect):
        found |= relations_of(table)
    return found


def relations_of(table: exp.Table) -> set[str]:
    """The name, alias and paths of one table of a statement."""
    arguments = table.walk(prune=lambda node: isinstance(node, exp.EQ | exp.PropertyEQ | exp.Kwarg))  # not options
    paths = {str(each.this) for each in arguments if isinstance(each, exp.Literal) and each.is_string}
    return {table.name, table.alias, *paths} - {""}


def _tables_read(text: str, dialect: str) -> list[exp.Table]:
    try:
        statement = _parse(text, dialect)
    except sqlglot.errors.SqlglotError as error:
        raise _syntax_error("The statement", error, text, dialect) from error
    ctes = _cte_names(statement)
    return [table for table in statement.find_all(exp.Table) if table.name.lower() not in ctes]


def _cte_names(statement: exp.Expr) -> set[str]:
    return {cte.alias.lower() for cte in statement.find_all(exp.CTE)}


def shape(condition: str, *, dialect: str = "duckdb") -> str:
    """A condition with `?` in place of its constants, so that conditions that differ only in these are equal.

    >>> shape("a IN (1, 2, 3) AND d >= DATE '2020-01-01' AND b = -5")
    'a IN (?) AND d >= ? AND b = ?'
    """

    def without_constants(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.In) and node.expressions and all(map(_is_constant, node.expressions)):
            node.set("expressions", [exp.Placeholder()])
        return exp.Placeholder() if _is_constant(node) else node

    try:
        return _parse(condition, dialect).transform(without_constants).sql(dialect=dialect)
    except (sqlglot.errors.SqlglotError, SqlSyntaxError):
        return condition


def _is_constant(node: exp.Expr) -> bool:
    if isinstance(node, exp.Cast | exp.Neg | exp.Paren):
        return _is_constant(node.this)
    return isinstance(node, exp.Literal | exp.Placeholder)


def translated(text: str, tables: Collection[str], name: str, *, dialect: str = "duckdb", into: str) -> str:
    """A statement translated to another dialect, with the tables of some names, in any case, replaced by ``name``.

    For Spark, ``name`` becomes a parameter of ``spark.sql``, in braces. Raises `SqlSyntaxError`.

    >>> translated("FROM 'lake/conn' WHERE a = 5", ["lake/conn"], "rows", into="spark")
    'SELECT * FROM {rows} AS `lake/conn` WHERE a = 5'
    """
    folded = {table.lower() for table in tables}
    placeholder = f"zskip_{name}_here"
    try:
        statement = _parse(text, dialect)
        replaced = folded - _cte_names(statement)
        for table in list(statement.find_all(exp.Table)):
            if table.name.lower() in replaced and not table.db:
                if not table.alias:
                    table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
                table.set("this", exp.to_identifier(placeholder if into == "spark" else name))
        with syntax_error_if_too_deep(text):
            rewritten = statement.sql(dialect=into)
    except sqlglot.errors.SqlglotError as error:
        raise SqlSyntaxError(f"The statement cannot be put into {into}'s SQL: {error}", text) from error
    if into == "spark":
        return rewritten.replace("{", "{{").replace("}", "}}").replace(placeholder, f"{{{name}}}")
    return rewritten


def _columns_read(select: exp.Select, statement: exp.Expr, schema: Schema) -> frozenset[str] | None:
    """The paths of the leaves that one SELECT of a statement reads; None for all."""
    if not _has_star(select):
        return _columns_named(select, schema)
    outermost = [each for each in statement.find_all(exp.Select) if each.find_ancestor(exp.Select, exp.CTE) is None]
    return None if any(each is select or _has_star(each) for each in outermost) else _columns_named(statement, schema)


def _has_star(select: exp.Select) -> bool:
    """Whether a SELECT list contains `*`, `t.*` or `COLUMNS(…)`; the star of `count(*)` reads nothing."""
    return any(each.is_star or each.find(exp.Columns) is not None for each in select.expressions)


def _columns_named(part: exp.Expr, schema: Schema) -> frozenset[str]:
    """The paths of the leaves that a part of a statement names; the name of a struct stands for all of its fields."""
    paths: set[str] = set()
    for names in {tuple(piece.name.lower() for piece in column.parts) for column in part.find_all(exp.Column)}:
        # A column's name may follow qualifiers, and may be followed by a field's name.
        for first in range(len(names)):
            leaves = {leaf.path for leaf in schema if _is_under(leaf.parts, names[first:])}
            paths |= leaves
            if leaves:
                break
    return frozenset(paths)


def _is_under(parts: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return all(part.lower() == name for part, name in zip(parts, names, strict=False))


def _own_condition(part: exp.Expr, schema: Schema, dialect: str) -> str | None:
    """A condition with unqualified column names; None if it reads anything but this table's columns, or none."""
    condition = part.copy()
    if condition.find(exp.Query) is not None:
        return None
    columns = list(condition.find_all(exp.Column))
    for column in columns:
        names = [piece.name for piece in column.parts]
        while names and schema.find(names) is None:
            names = names[1:]
        if not names:
            return None
        for qualifier in ("catalog", "db", "table")[: 4 - len(names)]:
            column.set(qualifier, None)
    return condition.sql(dialect=dialect, comments=False) if columns else None
