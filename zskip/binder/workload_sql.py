"""Read the statements of a workload: the condition on one table's rows, and the columns that they read.

Conditions that are derived from the text guide layouts and prove nothing: plans take theirs from the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp

from zskip.binder.source_text import parse_error_text
from zskip.binder.tokens import require_parsable, syntax_error_if_too_deep
from zskip.core.schema import Schema
from zskip.errors import SqlSyntaxError


class Scans:
    """The scans of a table in a parsed statement.

    ``on_table``: rewrites a condition in terms of the table's columns, or returns None if it reads anything else ·
    ``is_table``: whether a relation may be the table.
    """

    def __init__(
        self, statement: exp.Expr, on_table: Callable[[exp.Expr], str | None], is_table: Callable[[exp.Table], bool]
    ) -> None:
        self._statement, self._on_table, self._is_table = statement, on_table, is_table
        self._ctes = {cte.alias.lower(): cte for cte in statement.find_all(exp.CTE)}
        self._aliases = {
            source.alias_or_name.lower()
            for source in statement.find_all(exp.Table, exp.Subquery)
            if source.alias_or_name
        }

    def __iter__(self) -> Iterator[tuple[exp.Select, list[str]]]:
        """Each scan with conditions on the table's columns, as its SELECT and these conditions.

        Conditions without a table's name apply to every scan of the SELECT that has a condition with its name. If no
        scan has one, they count as the conditions of a single scan.
        """
        for select in self._statement.find_all(exp.Select):
            scanned = [alias for alias, source in _sources(select).items() if self._is_scan(source)]
            if not scanned:
                continue
            qualified: dict[str, list[str]] = {}
            unqualified: list[str] = []
            for part in self._reaching(select):
                condition, qualifiers = self._on_table(part), self._qualifiers(part)
                if condition is None:
                    continue
                if not qualifiers:
                    unqualified.append(condition)
                elif len(qualifiers) == 1 and (alias := qualifiers.pop()) in scanned:
                    qualified.setdefault(alias, []).append(condition)
            for parts in qualified.values() or [[]]:
                if parts or unqualified:
                    yield select, list(dict.fromkeys([*parts, *unqualified]))

    def _is_scan(self, source: exp.Expr) -> bool:
        return isinstance(source, exp.Table) and not self._is_cte(source) and self._is_table(source)

    def _is_cte(self, table: exp.Table) -> bool:
        return not table.db and table.name.lower() in self._ctes

    def _reaching(self, select: exp.Select) -> list[exp.Expr]:
        """The conditions on the input rows of a SELECT: its own, and those of the SELECT that reads its result."""
        where = select.args.get("where")
        parts = [] if where is None else list(_conjuncts(where.this))
        if (reader := self._reader(select)) is not None:
            through = (self._through(select, part, reader[1]) for part in self._reaching(reader[0]))
            parts += [part for part in through if part is not None]
        # The caller joins them by AND, so an OR needs parentheses.
        return parts if len(parts) == 1 else [exp.paren(part) if isinstance(part, exp.Or) else part for part in parts]

    def _reader(self, select: exp.Select) -> tuple[exp.Select, str] | None:
        """The only SELECT that reads the result of a derived table or CTE, and its alias for the result."""
        query: exp.Expr = select
        while isinstance(query, exp.Query) and not _changes_rows(query):
            holder = query.parent
            if isinstance(holder, exp.CTE):
                uses = [
                    table
                    for table in self._statement.find_all(exp.Table)
                    if self._is_cte(table) and table.name.lower() == holder.alias.lower()
                ]
                if len(uses) != 1 or any(each is holder for each in _ancestors(uses[0])):
                    return None
                query = uses[0]
                break
            if holder is None or isinstance(holder, exp.From | exp.Join):
                break
            query = holder
        above = query.find_ancestor(exp.Select)
        if above is None or not isinstance(query.parent, exp.From | exp.Join) or _changes_rows(query):
            return None
        return above, query.alias_or_name.lower()

    def _through(self, select: exp.Select, part: exp.Expr, alias: str) -> exp.Expr | None:
        """A condition on the result of a SELECT, rewritten as a condition on its input; None if that is impossible."""
        if self._qualifiers(part) - {alias} or part.find(exp.Query) is not None:
            return None
        outputs = {each.alias_or_name.lower(): each.unalias() for each in select.expressions}
        star = any(each.is_star for each in select.expressions)
        found = part.copy()
        for column in list(found.find_all(exp.Column)):
            if column.table.lower() == alias:
                column.set("table", None)
            first = column.parts[0].name.lower()
            inner = outputs.get(first)
            if inner is None and star:
                continue
            if inner is None or len(column.parts) > 1 or inner.find(exp.AggFunc, exp.Window, exp.Query) is not None:
                return None
            inner = inner.copy() if isinstance(inner, exp.Column) else exp.Paren(this=inner.copy())
            if column is found:
                return inner
            column.replace(inner)
        return found

    def _qualifiers(self, part: exp.Expr) -> set[str]:
        """The table names that qualify a condition's columns. The name of a struct is not one."""
        first = (column.parts[0].name.lower() for column in part.find_all(exp.Column) if len(column.parts) > 1)
        return {name for name in first if name in self._aliases}


def _sources(select: exp.Select) -> dict[str, exp.Expr]:
    """The relations that a SELECT reads, by alias or name in lower case."""
    origin = select.args.get("from_")
    sources = [] if origin is None else [origin.this]
    sources += [join.this for join in select.args.get("joins") or ()]
    return {source.alias_or_name.lower(): source.unnest() for source in sources}


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    return condition.flatten() if isinstance(condition, exp.And) else iter([condition])


def _changes_rows(query: exp.Expr) -> bool:
    """Whether filtering a query's input differs from filtering its result: with LIMIT, windows, DISTINCT ON."""
    if any(query.args.get(name) is not None for name in ("limit", "offset", "qualify")):
        return True
    distinct = query.args.get("distinct")
    if isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None:
        return True
    return isinstance(query, exp.Select) and any(each.find(exp.Window) is not None for each in query.expressions)


def _ancestors(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node


_BLANK = r"(?:[\s(]|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_STATEMENT = re.compile(_BLANK + r"(?:SELECT|WITH|FROM)\b", re.IGNORECASE | re.DOTALL)
_WITH_A_QUERY = re.compile(_BLANK + r"(?:CREATE\b.*?\bTABLE|COPY\s*\(|INSERT)\b", re.IGNORECASE | re.DOTALL)
_ANALYZED = re.compile(_BLANK + r"EXPLAIN\s+ANALYZE\s", re.IGNORECASE | re.DOTALL)


class TableQuery(NamedTuple):
    """One query of a table: its condition, and the paths of the leaves that it reads; None for all."""

    condition: str
    columns: frozenset[str] | None


def table_query(
    text: str, schema: Schema, *, is_table: Callable[[exp.Table], bool] = lambda _: True
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
            statement = _parse(text)
        except sqlglot.errors.ParseError as error:
            raise _syntax_error("A statement of the workload", error, text) from error
        scans = Scans(statement, lambda part: _own_condition(part, schema), is_table)
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


def _parse(text: str) -> exp.Expr:
    """Parses a statement. Raises sqlglot's errors, and `SqlSyntaxError` if it nests too deep."""
    tokens = sqlglot.tokenize(text, read="duckdb")
    require_parsable(tokens, text)
    with syntax_error_if_too_deep(text):
        return sqlglot.parse_one(text, read="duckdb")


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
        statement = _parse(text)
    except (sqlglot.errors.SqlglotError, SqlSyntaxError):
        return None
    query = statement.this if isinstance(statement, exp.Copy) else statement.args.get("expression")
    return query.sql(dialect="duckdb") if isinstance(query, exp.Query) else None


def _syntax_error(subject: str, error: sqlglot.errors.SqlglotError, text: str) -> SqlSyntaxError:
    """A `SqlSyntaxError` without sqlglot's message, which contains terminal escapes and names of classes."""
    detail: dict[str, Any] = next(iter(getattr(error, "errors", ())), {})
    span = None
    with suppress(sqlglot.errors.TokenError):
        for token in sqlglot.tokenize(text, read="duckdb"):
            if (token.line, token.col) == (detail.get("line"), detail.get("col")):
                span = token.start, token.end + 1
    return SqlSyntaxError(f"{subject} does not parse: {parse_error_text(detail)}.", text, span)


def named_tables(text: str) -> set[str]:
    """The unqualified tables that a statement reads, quoted as it quotes them, without CTEs. Raises `SqlSyntaxError`.

    >>> sorted(named_tables("WITH c AS (SELECT * FROM t) SELECT * FROM c JOIN 'lake/conn' USING (a)"))
    ['"lake/conn"', 't']
    """
    tables = _tables_read(text)
    return {table.this.sql(dialect="duckdb") for table in tables if table.name and not table.db}


def relations_read(text: str) -> set[str]:
    """The names, aliases and paths of the tables and files that a statement reads, without CTEs.

    Raises `SqlSyntaxError`.

    >>> sql = "SELECT * FROM s.t AS x JOIN read_parquet(['a/1.parquet', 'a/2.parquet']) USING (k)"
    >>> sorted(relations_read(sql))
    ['a/1.parquet', 'a/2.parquet', 't', 'x']
    """
    found: set[str] = set()
    for table in _tables_read(text):
        found |= relations_of(table)
    return found


def relations_of(table: exp.Table) -> set[str]:
    """The name, alias and paths of one table of a statement."""
    arguments = table.walk(prune=lambda node: isinstance(node, exp.EQ | exp.PropertyEQ | exp.Kwarg))  # not options
    paths = {str(each.this) for each in arguments if isinstance(each, exp.Literal) and each.is_string}
    return {table.name, table.alias, *paths} - {""}


def _tables_read(text: str) -> list[exp.Table]:
    try:
        statement = _parse(text)
    except sqlglot.errors.SqlglotError as error:
        raise _syntax_error("The statement", error, text) from error
    ctes = _cte_names(statement)
    return [table for table in statement.find_all(exp.Table) if table.name.lower() not in ctes]


def _cte_names(statement: exp.Expr) -> set[str]:
    return {cte.alias.lower() for cte in statement.find_all(exp.CTE)}


def shape(condition: str) -> str:
    """A condition with `?` in place of its constants, so that conditions that differ only in these are equal.

    >>> shape("a IN (1, 2, 3) AND d >= DATE '2020-01-01' AND b = -5")
    'a IN (?) AND d >= ? AND b = ?'
    """

    def without_constants(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.In) and node.expressions and all(map(_is_constant, node.expressions)):
            node.set("expressions", [exp.Placeholder()])
        return exp.Placeholder() if _is_constant(node) else node

    try:
        return _parse(condition).transform(without_constants).sql(dialect="duckdb")
    except (sqlglot.errors.SqlglotError, SqlSyntaxError):
        return condition


def _is_constant(node: exp.Expr) -> bool:
    if isinstance(node, exp.Cast | exp.Neg | exp.Paren):
        return _is_constant(node.this)
    return isinstance(node, exp.Literal | exp.Placeholder)


def translated(text: str, tables: Collection[str], name: str, *, into: str) -> str:
    """A statement translated to another dialect, with the tables of some names, in any case, replaced by ``name``.

    For Spark, ``name`` becomes a parameter of ``spark.sql``, in braces. Raises `SqlSyntaxError`.

    >>> translated("FROM 'lake/conn' WHERE a = 5", ["lake/conn"], "rows", into="spark")
    'SELECT * FROM {rows} AS `lake/conn` WHERE a = 5'
    """
    folded = {table.lower() for table in tables}
    placeholder = f"zskip_{name}_here"
    try:
        statement = _parse(text)
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


def _own_condition(part: exp.Expr, schema: Schema) -> str | None:
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
    return condition.sql(dialect="duckdb", comments=False) if columns else None
