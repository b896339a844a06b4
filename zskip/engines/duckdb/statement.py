"""Whole SQL statements over zskip tables: each table in FROM is replaced by a native read of its survivors.

The text around the tables runs as it stands. What prunes a table are only conditions that every row of it must meet to
matter to the result (`conjuncts`), so that the statement means the same over the survivors as over all files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from zskip.binder import bind
from zskip.binder.bind_constants import clocks, reads_clock
from zskip.binder.reading import parsed
from zskip.binder.sql_text import be_parameters
from zskip.binder.text_spans import what_is_wrong
from zskip.engines.duckdb.conjuncts import Conjunct, Scopes, default_alias
from zskip.engines.duckdb.duckdb_types import duckdb_type, quoted
from zskip.engines.duckdb.meaning import Meaning
from zskip.engines.duckdb.native_scan import literal, native_scan, reshaped
from zskip.engines.duckdb.pointing import pointing_at
from zskip.engines.duckdb.relation import opened, readable_paths
from zskip.engines.duckdb.stored_form import stored_form
from zskip.engines.missing_files import naming_what_is_gone
from zskip.errors import InvalidOption, SqlError, SqlSyntaxError, TableNotFound, UnknownParameter, UnsupportedSql
from zskip.expr import Predicate, conjunction
from zskip.expr.recursion import read_with_room
from zskip.plan import Plan, listed, plan
from zskip.pruning import outcomes
from zskip.scan import Scan
from zskip.sources import open_index
from zskip.stats import ColumnStatistics, FileStatistics
from zskip.tablelog import Index

if TYPE_CHECKING:
    import duckdb

__all__ = ["Rewritten", "rewrite", "sql"]

_PREFIX = re.compile(r"\s*(?:EXPLAIN(?:\s+ANALYZE)?\s)", re.IGNORECASE)
_KEPT_INDEXES = 16
_LONGEST_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A statement that reads the survivors alone.

    ``plans``: by the text of each table, in the order of the text.
    """

    sql: str
    parameters: Mapping[str, Any] | Sequence[Any] | None
    plans: tuple[tuple[str, Plan], ...]


def sql(
    statement: str,
    con: duckdb.DuckDBPyConnection | None = None,
    *,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
    tables: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    freshness: str = "list",
) -> duckdb.DuckDBPyRelation:
    """Run a statement in which zskip tables stand by their quoted path, and read only the files that matter.

    ``SELECT count(*) FROM 'lake/conn' c JOIN 'lake/dns' d USING (uid) WHERE c.src_ip = '10.47.1.100'``: each table is
    planned with the conditions that bind it, through joins, subqueries and CTEs; everything else is DuckDB's.
    ``con``: the connection, DuckDB's default one where it is None · ``params``: for ``?``, ``$1`` (a sequence) or
    ``$name`` (a mapping) · ``tables``: names for tables or paths, as in ``FROM conn`` · ``storage_options``: for paths
    that are URLs · ``freshness``: "list" notices what has changed in folders that zskip only indexes, "trust" takes the
    index's word. The result is a lazy relation; a statement that is no query runs at once.

    Raises `SqlSyntaxError`, `UnsupportedSql` (for views, and for what would change a table), `UnknownParameter`,
    `SchemaError`, and `TableNotFound` for a path at which there is nothing; everything else is raised by DuckDB itself.
    """
    import duckdb

    if not isinstance(statement, str):
        raise InvalidOption(f"A statement is a text in SQL, not {statement!r}.")
    be_parameters(params)
    con = opened(con)
    rewritten = rewrite(
        statement, con, params=params, tables=tables, storage_options=storage_options, freshness=freshness
    )
    try:
        scans = (planned.scan for _, planned in rewritten.plans)
        with pointing_at(statement, rewritten.sql), naming_what_is_gone(*scans):
            return con.sql(rewritten.sql, params=rewritten.parameters)
    except duckdb.CatalogException as error:
        missing = _MISSING.search(str(error))
        if missing is not None and (missing[1] in (tables or {}) or "/" in missing[1]):
            raise _misplaced(missing[1], statement, tables or {}, storage_options) from error
        raise


_MISSING = re.compile(r"Table with name (.+) does not exist!")


def _misplaced(
    name: str, statement: str, tables: Mapping[str, Any], options: Mapping[str, Any] | None
) -> UnsupportedSql | TableNotFound:
    """Why DuckDB finds no table of a name that looks like one of zskip's."""
    given = tables.get(name, name)
    if not isinstance(given, str) or _opened(given, options) is not None:
        start = statement.find(name)
        return UnsupportedSql(
            f'The zskip table "{name}" is read in FROM or JOIN of a query, and cannot stand here. Table.append, '
            "Table.overwrite and Table.delete change it.",
            statement,
            None if start < 0 else (start, start + len(name)),
        )
    return TableNotFound(
        f'There is no zskip table at "{given}", and DuckDB knows no table of that name. Make one with zskip.write or '
        "zskip.index."
    )


def rewrite(
    statement: str,
    con: duckdb.DuckDBPyConnection,
    *,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
    tables: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    freshness: str = "list",
    prune: bool = True,
) -> Rewritten:
    """The statement that `sql` runs, with its plans; without ``prune``, one that reads every file of each table.

    Remote tables are readable on ``con`` afterwards.
    """
    if freshness not in ("list", "trust"):
        raise InvalidOption(f'freshness= is "list" or "trust", not {freshness!r}.')
    meaning = Meaning(con)
    text = _frozen(_selecting(statement, tables or {}), meaning if prune else None)
    catalog = _Catalog(con, text, tables or {}, storage_options)
    edits: list[tuple[int, int, str]] = []
    values = _Parameters(params)
    plans: list[tuple[str, Plan]] = []
    trees = _parsed(text)
    for tree in trees:
        scopes = Scopes(tree, catalog.columns_of)
        found = [table for table in tree.find_all(exp.Table) if not scopes.is_cte(table)]
        known = [table for table in found if catalog.index_of(table) is not None]
        _be_readable_later(tree, known, text)
        # DuckDB gives parameters to the last statement alone, and none to the query that finds the values of a PIVOT.
        inlined = tree is not trees[-1] or tree.find(exp.Pivot) is not None
        for table in sorted(known, key=lambda table: table.this.meta["start"]):
            index = catalog.index_of(table)
            assert index is not None
            types = catalog.columns_of(table) or {}
            binding = _predicate(index, types, scopes.of(table), values, meaning) if prune else None
            planned = plan(index, binding, changes=listed(index) if freshness == "list" else None)
            start, end = table.this.meta["start"], table.this.meta["end"] + 1
            edits.append((start, end, _read(planned.scan, con, table, None if inlined else values)))
            plans.append((text[start:end], planned))
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return Rewritten(text, values.all, tuple(plans))


def _parsed(text: str) -> tuple[exp.Expr, ...]:
    """The statements of a text, which nobody changes. EXPLAIN is blanked out: what it explains is parsed in its place.

    Texts come again: look-ups whose values are parameters, and all that a program asks more than once.
    """
    return _parsed_before(text) if len(text) <= _LONGEST_KEPT else _parsed_anew(text)


def _parsed_anew(text: str) -> tuple[exp.Expr, ...]:
    prefix = _PREFIX.match(text)
    body = text if prefix is None else " " * prefix.end() + text[prefix.end() :]
    try:
        trees = read_with_room(text, lambda: parsed(body, "duckdb"))
        return tuple(tree for tree in trees if tree is not None)
    except sqlglot.errors.SqlglotError as error:
        place: Mapping[str, Any] = (getattr(error, "errors", None) or [{"description": str(error)}])[0]
        raise SqlSyntaxError(
            f"The statement does not parse: {what_is_wrong(place)}.", text, _span(text, place)
        ) from error


_parsed_before = lru_cache(maxsize=64)(_parsed_anew)


def _span(text: str, place: Mapping[str, Any]) -> tuple[int, int] | None:
    line, column, word = place.get("line"), place.get("col"), place.get("highlight") or ""
    if not isinstance(line, int) or not isinstance(column, int):
        return None
    start = sum(len(one) for one in text.splitlines(keepends=True)[: line - 1])
    end = start + column
    return max(start, end - len(word)), end


# --- tables ---


class _Catalog:
    """The zskip tables that a statement may name: by quoted path, or by a name that was given."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        text: str,
        tables: Mapping[str, Any],
        storage_options: Mapping[str, Any] | None,
    ) -> None:
        self._con = con
        self._text = text
        self._named = {name.lower(): table for name, table in tables.items()}
        self._options = storage_options
        self._found: dict[tuple[str, bool], Index | None] = {}
        self._columns: dict[Index, Mapping[str, str]] = {}

    def index_of(self, table: exp.Table) -> Index | None:
        """The index of a table in FROM or JOIN; None where it is not one of zskip's."""
        identifier = table.this
        if not isinstance(identifier, exp.Identifier) or "start" not in identifier.meta or table.args.get("db"):
            return None
        if table.find_ancestor(exp.From, exp.Join, exp.Pivot) is None and table.arg_key != "using":
            return None
        said = identifier.name, self._text[identifier.meta["start"]] == '"'
        if said not in self._found:
            name, doubly = said
            given = self._named.get(name.lower())
            if given is not None and not isinstance(given, str):
                self._found[said] = given if isinstance(given, Index) else given.index
            elif given is None and (not identifier.quoted or (doubly and self._is_duckdbs(name))):
                self._found[said] = None
            else:
                self._found[said] = _opened(given or name, self._options)
        return self._found[said]

    def _is_duckdbs(self, name: str) -> bool:
        """Whether the connection has a table or view of this name, which double quotes mean before any folder."""
        import duckdb

        if "/" in name:
            return False
        try:
            self._con.table(quoted(name))
        except duckdb.CatalogException:
            return False
        return True

    def columns_of(self, table: exp.Table) -> Mapping[str, str] | None:
        """A zskip table's columns by lower-case name, with their types; None for any other table."""
        index = self.index_of(table)
        if index is None:
            return None
        if index not in self._columns:
            fields = index.snapshot.schema.arrow
            self._columns[index] = {field.name.lower(): duckdb_type(field.type) for field in fields}
        return self._columns[index]


_INDEXES: dict[str, Index] = {}
# What DuckDB reads by itself, unless there is a folder of that name: a pattern, or a file by its name's end.
_NO_FOLDER = re.compile(
    r"[*?]|\.(parquet|parq|pq|csv|tsv|txt|json|jsonl|ndjson|gz|zst|arrow|db|duckdb)$", re.IGNORECASE
)


def _opened(path: str, options: Mapping[str, Any] | None) -> Index | None:
    """The newest state of the table at a path; what was loaded of that very state before is used again."""
    if _NO_FOLDER.search(path) and not os.path.isdir(path):
        return None
    try:
        index = open_index(path, storage_options=options)
    except TableNotFound:
        return None
    storage, kept = index.storage, _INDEXES.get(index.storage.uri)
    if kept is None or kept.snapshot.commit_id != index.snapshot.commit_id or options:
        kept = index
        if len(_INDEXES) >= _KEPT_INDEXES:
            _INDEXES.clear()
        _INDEXES[storage.uri] = kept
    return kept


def _be_readable_later(tree: exp.Expr, tables: Sequence[exp.Table], text: str) -> None:
    """Refuse what DuckDB would keep: the files of today."""
    if isinstance(tree, exp.Create) and tree.kind != "TABLE" and tables:
        start, end = tables[0].this.meta["start"], tables[0].this.meta["end"] + 1
        raise UnsupportedSql(
            "A view or macro would go on reading the files that this table has now. Create a TABLE, or run the query "
            "itself through zskip.sql each time.",
            text,
            (start, end),
        )


def _read(scan: Scan, con: duckdb.DuckDBPyConnection, table: exp.Table, values: _Parameters | None) -> str:
    """What stands in a table's place: a read of its survivors, under the name that the table had.

    The files and their schema are parameters among ``values``; None for a statement that may have none.
    """
    files, schema = ("zskip_files", None) if values is None else values.two_fresh_names()
    read = native_scan(
        readable_paths(scan, con),
        scan.schema.arrow,
        partition_by=scan.partition_by,
        rows=scan.rows,
        files_parameter=files,
        schema_parameter=schema,
        whole=reshaped(scan),
        form=stored_form(scan),
    )
    said = read.sql
    for key, value in read.parameters.items():
        if values is None:
            inlined = "[" + ", ".join("NULL" if one is None else literal(one) for one in value) + "]"
            said = re.sub(rf"\${key}\b", lambda _, inlined=inlined: inlined, said)  # type: ignore[misc]
        else:
            values.add(key, value)
    alias = "" if table.args.get("alias") else f" AS {quoted(default_alias(table.name))}"
    return f"({said}){alias}"


# --- conditions ---


def _predicate(
    index: Index, types: Mapping[str, str], conjuncts: Sequence[Conjunct], values: _Parameters, meaning: Meaning
) -> Predicate | None:
    """What the conditions prove about a table; None where they prove nothing."""
    timezone = meaning.timezone_of((conjunct.condition for conjunct in conjuncts), types)
    if timezone is None:
        return None
    bound = []
    for conjunct in conjuncts:
        predicate = _bound(index, conjunct.condition, values, timezone)
        if predicate is None or (conjunct.rejects_null and _may_hold_for_nulls(predicate)):
            continue
        if meaning.is_proved(conjunct.condition, predicate):
            bound.append(predicate)
    return conjunction(bound) if bound else None


def _bound(index: Index, condition: exp.Expr, values: _Parameters, timezone: str) -> Predicate | None:
    used: dict[str, Any] = {}

    def named(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Placeholder):
            used[f"p{node.name}"] = values.value_of(node.name)
            return exp.Placeholder(this=f"p{node.name}")
        return node

    renamed = condition.transform(named) if condition.find(exp.Placeholder) else condition
    said = renamed.sql(dialect="duckdb")
    try:
        # Only what survives being written and read again is taken for what the statement says.
        if _parsed(said) != (renamed,):
            return None
        return bind(said, index.snapshot.schema, timezone=timezone, params=used or None)
    except SqlError:
        # DuckDB says what is wrong with the statement; here it merely proves nothing.
        return None


def _may_hold_for_nulls(predicate: Predicate) -> bool:
    """Whether the predicate might be TRUE for a row of NULLs, such as an outer join makes."""
    one = pa.array([1], pa.int64())
    columns = {path: ColumnStatistics.all_null(predicate.schema.columns[path].type, one) for path in predicate.columns}
    return bool(outcomes(predicate, FileStatistics(one, columns).statistics()).may_match[0])


class _Parameters:
    """The statement's own parameters and those of the reads, in the one style that the statement uses."""

    def __init__(self, params: Sequence[Any] | Mapping[str, Any] | None) -> None:
        self._named = params is None or isinstance(params, Mapping)
        given = {} if params is None else params
        self._values: dict[str, Any] = (
            dict(given) if isinstance(given, Mapping) else {str(i): value for i, value in enumerate(given, start=1)}
        )

    @property
    def all(self) -> Mapping[str, Any] | Sequence[Any] | None:
        """As DuckDB takes them."""
        return (self._values or None) if self._named else list(self._values.values())

    def value_of(self, name: str) -> Any:
        """A parameter's value. Raises `UnknownParameter`."""
        if name not in self._values:
            raise UnknownParameter(f"There is no value for the parameter ${name}.")
        return self._values[name]

    def two_fresh_names(self) -> tuple[str, str]:
        """Names that no parameter has."""
        first = len(self._values) + 1
        if not self._named:
            return str(first), str(first + 1)
        unused = (name for number in count(first) if (name := f"zskip_{number}") not in self._values)
        return next(unused), next(unused)

    def add(self, name: str, value: Any) -> None:
        """One more parameter."""
        self._values[name] = value


# --- the clock ---


def _frozen(statement: str, meaning: Meaning | None) -> str:
    """The statement with ``?`` numbered, and with the clock read once, before anything is proved from it.

    ``meaning``: None where nothing is to be proved, and DuckDB may read the clock itself.

    Only what SELECT lists say of the clock stays: it names columns, and decides nothing.
    """
    tokens = _tokens(statement)
    edits = []
    if meaning is not None and reads_clock(statement, "duckdb") and meaning.timezone is not None:
        listed = _in_select_lists(tokens)
        read = clocks(tokens, "duckdb", meaning.now, meaning.timezone)
        edits = [edit for edit in read if edit[0] not in listed]
    marks = [token for token in tokens if token.token_type is TokenType.PLACEHOLDER and token.text == "?"]
    edits += [(mark.start, mark.end + 1, f"${number}") for number, mark in enumerate(marks, start=1)]
    for start, end, replacement in sorted(edits, reverse=True):
        statement = statement[:start] + replacement + statement[end:]
    return statement


_ABOUT_TABLES = ("SUMMARIZE", "DESCRIBE", "DESC")


def _selecting(statement: str, named: Collection[str]) -> str:
    """The statement with ``SUMMARIZE 'lake/conn'`` said as ``SUMMARIZE SELECT * FROM 'lake/conn'``, and the like."""
    tokens = _tokens(statement)
    before = [None, *tokens]
    starts = [
        table.start
        for ahead, verb, table in zip(before, tokens, tokens[1:], strict=False)
        if verb.text.upper() in _ABOUT_TABLES
        and (ahead is None or ahead.token_type in (TokenType.L_PAREN, TokenType.SEMICOLON))
        and (statement[table.start] in "'\"" or table.text.lower() in {name.lower() for name in named})
    ]
    for start in reversed(starts):
        statement = f"{statement[:start]}SELECT * FROM {statement[start:]}"
    return statement


def _tokens(statement: str) -> Sequence[Token]:
    try:
        return sqlglot.tokenize(statement, read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise SqlSyntaxError(f"The statement does not parse: {error}.", statement) from error


_AFTER_LIST = {
    TokenType.FROM,
    TokenType.WHERE,
    TokenType.JOIN,
    TokenType.ON,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.QUALIFY,
    TokenType.ORDER_BY,
    TokenType.LIMIT,
    TokenType.UNION,
    TokenType.EXCEPT,
    TokenType.INTERSECT,
    TokenType.VALUES,
    TokenType.SEMICOLON,
}


def _in_select_lists(tokens: Sequence[Token]) -> set[int]:
    """Where the tokens start that stand between SELECT and what follows its list."""
    within, outer, found = False, [], set()
    for token in tokens:
        if token.token_type is TokenType.SELECT:
            within = True
        elif token.token_type in _AFTER_LIST:
            within = False
        elif token.token_type is TokenType.L_PAREN:
            outer.append(within)
        elif token.token_type is TokenType.R_PAREN and outer:
            within = outer.pop()
        if within:
            found.add(token.start)
    return found
