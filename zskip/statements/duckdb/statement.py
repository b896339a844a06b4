"""Whole SQL statements over zskip tables: each table in FROM is replaced by a native read of its survivors.

DuckDB's own planner decides which conditions apply to which scan: DuckDB explains the statement over empty stubs
(`stubs`), and the conditions at a stub's scan prune its table (`zskip.statements`). The rest of the text is unchanged.

| a statement                                                      | runs                                            |
| ---------------------------------------------------------------- | ----------------------------------------------- |
| reads only zskip tables, and no clock                            | when its relation is read                       |
| reads a clock, variable, macro, table or view of the connection  | at once, in the transaction in which it is read |
| is no query, or has no zskip table in it                         | as DuckDB runs it                               |
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zskip.core.option_checks import is_encodable, numbered, require_parameters
from zskip.core.schema import identifier
from zskip.engines.duckdb.native_scan import UNGUARDED
from zskip.engines.duckdb.relation import opened
from zskip.engines.missing_files import naming_bad_files, pointing_at
from zskip.errors import InvalidOption, SqlSyntaxError, TableNotFound, UnsupportedSql, amount, nearest
from zskip.plan import Plan, Survivors
from zskip.statements.duckdb.parsed_statements import Catalog, Parsed, Statement, open_index, parse_tables, statements
from zskip.statements.duckdb.pruning_rule import PrunedTable, forget_gain, is_explained, whole_tables
from zskip.statements.duckdb.session import (
    OutdatedGuard,
    detecting_outdated_guard,
    guard,
    in_transaction,
    schema_of,
    settings_read,
)
from zskip.statements.duckdb.stubs import asks_for_places, empty_rows, named_columns, names_file_columns
from zskip.statements.duckdb.survivor_reads import ReadBy, Values, read_survivors, with_index_rows
from zskip.statements.duckdb.table_places import Place, Word, default_alias, edited, has_pivot, stored_query, tokens
from zskip.storage import open_storage
from zskip.tablelog.log import nearest_folder, not_found
from zskip.tablelog.table_folders import holds_parquet

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A statement that reads only the survivors.

    ``plans``: the text of each table and its plan, in textual order · ``reasons``: what each rule skipped in each
    table, in the same order · ``settled``: it has the same meaning whenever it runs.
    """

    sql: str
    parameters: Mapping[str, Any] | Sequence[Any] | None
    plans: tuple[tuple[str, Plan], ...]
    reasons: tuple[tuple[str, ...], ...]
    settled: bool


def sql(
    statement: str,
    con: duckdb.DuckDBPyConnection | None = None,
    *,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
    tables: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    freshness: str = "list",
) -> duckdb.DuckDBPyRelation:
    """Run a statement that names zskip tables by their paths, and read only the files that it needs.

    ``SELECT count(*) FROM 'lake/conn' c JOIN 'lake/dns' d USING (uid) WHERE c.src_ip = '10.47.1.100'``: each table is
    pruned by the conditions that DuckDB itself applies to it, through joins, subqueries and CTEs; everything else is
    DuckDB's. ``con``: the connection, or None for DuckDB's default one · ``params``: values for ``?``, ``$1`` (a
    sequence) or ``$name`` (a mapping) · ``tables``: names for tables or paths, as in ``FROM conn`` ·
    ``storage_options``: for paths that are URLs · ``freshness``: "list" detects changes in folders that zskip only
    indexes, "trust" does not list them. The text may contain several statements: each runs before the next one,
    ``params`` belong to the last one, and the result is that of the last one that returns rows.
    A query returns a lazy relation over the current versions. A query that reads zskip tables together with a clock, a
    variable, a macro, or tables of the connection runs at once, and so does any statement that is not a query.

    Raises `SqlSyntaxError`, `UnsupportedSql` (for views, and for statements that change a zskip table),
    `UnknownParameter`, `SchemaError`, and `TableNotFound` for a path without a table; DuckDB raises all other errors.
    """
    _require_statement(statement, params)
    con = opened(con)
    catalog = _catalog(con, tables, storage_options, freshness)
    *first, last = statements(con, statement)
    rows = None
    for one in first:
        relation = _run(one, con, None, catalog, freshness, statement, at_once=True)
        rows = relation if _returns_rows(one, relation) else rows
    relation = _run(last, con, params, catalog, freshness, statement)
    return rows if rows is not None and not _returns_rows(last, relation) else relation


def explain(
    statement: str,
    con: duckdb.DuckDBPyConnection | None = None,
    *,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
    tables: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    freshness: str = "list",
) -> str:
    """The files that `zskip.sql` skips in each table of one statement, and by which rule; the statement does not run.

    Takes the parameters of `zskip.sql` and raises the same errors, and `UnsupportedSql` for several statements.
    """
    rewritten = rewrite(
        statement,
        opened(con),
        params=params,
        tables=tables,
        storage_options=storage_options,
        freshness=freshness,
    )
    lines = []
    for (name, planned), reasons in zip(rewritten.plans, rewritten.reasons, strict=True):
        lines.append(f"{name} reads {amount(len(planned), 'file')}. Skipped: {planned.skipped}")
        lines += [f"  {reason}" for reason in reasons]
    return "\n".join(lines) or "No table of zskip stands in this statement."


def explain_facts(statement: str, con: duckdb.DuckDBPyConnection, **options: Any) -> list[dict[str, Any]]:
    """The content of `explain` as values for JSON: for each table in the statement, what is skipped and why."""
    rewritten = rewrite(statement, opened(con), **options)
    return [
        {
            "table": name,
            "files_read": len(planned),
            "skipped": {
                what: {"skipped": share.part, "total": share.whole} for what, share in planned.skipped._asdict().items()
            },
            "reasons": list(reasons),
        }
        for (name, planned), reasons in zip(rewritten.plans, rewritten.reasons, strict=True)
    ]


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
    """The statement that `sql` runs for one statement, with its plans. Without ``prune``, it reads all files.

    Makes remote tables readable on ``con``.
    """
    _require_statement(statement, params)
    catalog = _catalog(con, tables, storage_options, freshness)
    found = statements(con, statement)
    if len(found) != 1:
        raise UnsupportedSql(f"Expected one statement, got {len(found)}.", statement)
    parsed = parse_tables(found[0], catalog, params)
    forget_gain(parsed)
    return _rewritten(parsed, con, params, freshness, begun=False, prune=prune, explained=True)


def _require_statement(statement: object, params: object) -> None:
    if not isinstance(statement, str):
        raise InvalidOption(f"A statement is SQL text, not {statement!r}.")
    if not is_encodable(statement):
        raise SqlSyntaxError(
            "The statement contains half of a surrogate pair, not a character.", ascii(statement)[1:-1]
        )
    require_parameters(params)


def _catalog(
    con: duckdb.DuckDBPyConnection,
    tables: Mapping[str, Any] | None,
    storage_options: Mapping[str, Any] | None,
    freshness: str,
) -> Catalog:
    if freshness not in ("list", "trust"):
        raise InvalidOption(f'freshness= is "list" or "trust", not {freshness!r}.')
    if tables is not None and not isinstance(tables, Mapping):
        raise InvalidOption(
            f'tables= is a mapping of names to tables or paths, as {{"conn": "lake/conn"}}, not {tables!r}.'
        )
    return Catalog(con, tables or {}, storage_options)


# --- running ---


def _run(
    one: Statement,
    con: duckdb.DuckDBPyConnection,
    params: Sequence[Any] | Mapping[str, Any] | None,
    catalog: Catalog,
    freshness: str,
    text: str,
    *,
    at_once: bool = False,
) -> duckdb.DuckDBPyRelation:
    """The result of a statement. ``at_once``: run it now, even if it could be lazy."""
    import duckdb

    parsed = parse_tables(one, catalog, params)
    try:
        with _transaction(parsed, con) as begun:
            try:
                return _relation(parsed, con, params, freshness, text, at_once, begun)
            except OutdatedGuard:
                return _relation(parsed, con, params, freshness, text, at_once, begun)
    except duckdb.CatalogException as error:
        missing = _MISSING.search(str(error))
        if missing is None:
            raise
        name = missing[1]
        quoted, indexed = f"'{name}'" in text, open_index(name, catalog.options, catalog.con) is not None
        if catalog.names(name) or "/" in name or (quoted and (indexed or not os.path.isdir(name))):
            raise _misplaced(name, text, catalog) from error
        if indexed:
            raise duckdb.CatalogException(
                f"There is no table with the name {name}, but a zskip table at the path {name}: FROM '{name}' reads it."
            ) from None
        if os.path.isdir(name):
            if quoted:
                raise TableNotFound(not_found(open_storage(name))) from None
            if holds_parquet(name):
                raise duckdb.CatalogException(
                    f"There is no table with the name {name}, but a folder at the path {name} that has no index. Index "
                    f"it by zskip.index(\"{name}\"), or in a shell by zskip index {name}: then FROM '{name}' reads it."
                ) from None
        before, after = str(error)[: missing.end()], _OF_DUCKDB.sub("", str(error)[missing.end() :])
        raise duckdb.CatalogException(
            f"{before} A table of zskip is named by its path in single quotes, or by tables=, and rows in memory by "
            f"con.register(name, rows).{nearest(name, catalog.named, listed=True)}{after}"
        ) from None


def _relation(
    parsed: Parsed,
    con: duckdb.DuckDBPyConnection,
    params: Sequence[Any] | Mapping[str, Any] | None,
    freshness: str,
    text: str,
    at_once: bool,
    begun: bool,
) -> duckdb.DuckDBPyRelation:
    """The result of a statement. Raises `OutdatedGuard` on the first run after a SET."""
    rewritten = _rewritten(parsed, con, params, freshness, begun=begun)
    scans = (planned.scan for _, planned in rewritten.plans)
    with pointing_at(text, rewritten.sql), naming_bad_files(scans), detecting_outdated_guard(con):
        relation = con.sql(rewritten.sql, params=rewritten.parameters)
        if relation is None:
            return relation
        # DuckDB binds a relation again to get its names, which has no effects only for a query.
        if parsed.statement.kind == "SELECT":
            relation = _named_as_written(relation, con, parsed.statement.query, params, parsed.schemas(con))
        lazy = parsed.settled and not (at_once and parsed.statement.kind == "SELECT")
        return relation if lazy else _kept(relation)


def _returns_rows(one: Statement, relation: duckdb.DuckDBPyRelation | None) -> bool:
    """Whether a statement's result has rows of its own, not only the number of changed rows or a success."""
    if one.kind in ("SELECT", "CALL", "EXPLAIN"):
        return True
    if relation is None:
        return False
    return relation.columns not in (["Count"], ["Success"]) or any(
        word.kind == "keyword" and word.text.upper() == "RETURNING" for word in tokens(one.query)
    )


def _kept(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The materialized rows of a relation, under the same names: DuckDB would number names that occur twice."""
    kept = relation.materialize()
    if kept.columns == relation.columns:
        return kept
    pairs = zip(kept.columns, relation.columns, strict=True)
    return kept.project(", ".join(f"{identifier(numbered)} AS {identifier(name)}" for numbered, name in pairs))


@contextmanager
def _transaction(parsed: Parsed, con: duckdb.DuckDBPyConnection) -> Iterator[bool]:
    """A transaction for the block, for one clock and one state of all tables, and whether it was begun here.

    That of the user goes on. A statement that has the same meaning whenever it runs needs none.
    """
    import duckdb

    if not parsed.found or parsed.settled or in_transaction(con):
        yield False
        return
    con.begin()
    try:
        yield True
    except BaseException:
        with suppress(duckdb.TransactionException):  # DuckDB has ended it: the error to raise is the first
            con.rollback()
        raise
    con.commit()


_MISSING = re.compile(r"Table with name (.+) does not exist!")
# Its suggestion of one of its own tables.
_OF_DUCKDB = re.compile(r'\nDid you mean "(pg_|sqlite_|duckdb_|information_schema)[^"]*"\?')


def _misplaced(name: str, statement: str, catalog: Catalog) -> UnsupportedSql | TableNotFound:
    """The error for a name that refers to a zskip table by its form, but that DuckDB cannot find."""
    path = catalog.path_of(name)
    if path is None or open_index(path, catalog.options, catalog.con) is not None:
        start = statement.find(name)
        return _unreadable(name, statement, None if start < 0 else (start, start + len(name)))
    return TableNotFound(
        f'There is no zskip table at "{path}", and DuckDB knows no table of that name.'
        f"{nearest_folder(open_storage(path)) or ' Make one with zskip.write or zskip.index.'}"
    )


def _unreadable(name: str, statement: str, span: tuple[int, int] | None) -> UnsupportedSql:
    """The error for a zskip table outside the FROM of a query."""
    return UnsupportedSql(
        f"The zskip table \"{name}\" is read in FROM or JOIN of a query, as in FROM '{name}' or "
        f"COPY (FROM '{name}') TO …, and cannot stand here. Table.append, upsert, overwrite and delete change it.",
        statement,
        span,
    )


# --- rewriting ---


def _rewritten(
    parsed: Parsed,
    con: duckdb.DuckDBPyConnection,
    params: Sequence[Any] | Mapping[str, Any] | None,
    freshness: str,
    *,
    begun: bool,
    prune: bool = True,
    explained: bool = False,
) -> Rewritten:
    one, words, found = parsed.statement, parsed.words, parsed.found
    text = one.query
    values = Values(params, takes=_takes_parameters(one))
    values.require(one.named_parameters, text)
    if not found:
        return Rewritten(text, values.all, (), (), True)
    edits = []
    if one.kind != "SELECT":
        _refuse_other_uses(words, [place for place, _ in found], text)
    given = params if one.named_parameters else None
    if prune and is_explained(parsed, con, given, for_user=explained):
        from zskip.statements.duckdb.pruned_tables import pruned_tables  # most of the time of a process's first look-up

        tables = pruned_tables(parsed, con, given, freshness, begun=begun, for_user=explained)
    else:
        tables = whole_tables(parsed, freshness)
    if one.kind != "SELECT":
        edits = _naming_edits(words, con, text, params, parsed.schemas(con))
    edits += _numbered_marks(words)
    plans, reasons = [], []
    joined, by_place = len(found) > 1 or not parsed.settled, names_file_columns(words) or asks_for_places(words)
    guards = _guards(parsed, con, params, tables)
    for (place, index), table, guarding in zip(found, tables, guards, strict=True):
        planned = Plan(table.survivors)
        reasons.append(table.reasons)
        read, survivors, schema = "", table.survivors, schema_of(index, con).arrow
        schema = named_columns(schema, text) if table.only_named else schema
        if by_place and table.index_rows is None and not len(survivors):
            # A read of no file would lack the columns that DuckDB adds.
            survivors = Survivors.of_all(index).narrowed(np.zeros(1, np.int64))
        if table.index_rows is None or len(table.survivors) or guarding != UNGUARDED:
            by = ReadBy(tuple(schema.names), joined, by_place)
            read = read_survivors(survivors, con, values, by, guarding)
        if table.index_rows is not None:
            read = with_index_rows(read, table.index_rows, schema, values)
        if not place.aliased:
            read = f"{read} AS {default_alias(place.name)}"
        read = f"SELECT * FROM {read}" if place.bare else read
        # The error of a later run shows one line of the text. On lines of their own, reads are not shown.
        edits.append((place.start, place.end, f"\n{read}\n"))
        plans.append((text[place.start : place.end], planned))
    return Rewritten(edited(text, edits), values.all, tuple(plans), tuple(reasons), parsed.settled)


def _guards(
    parsed: Parsed,
    con: duckdb.DuckDBPyConnection,
    params: Sequence[Any] | Mapping[str, Any] | None,
    tables: Sequence[PrunedTable],
) -> list[str]:
    """The guard of each table's read. Only a statement that DuckDB binds again later needs any."""
    guards = [UNGUARDED] * len(tables)
    if not parsed.settled or not any(table.gains for table in tables):
        return guards
    types, ordered = (each for table in tables for each in table.types_read), any(table.ordered for table in tables)
    names = settings_read(parsed.words, [place for place, _ in parsed.found], params, types, ordered)
    if not names:
        return guards
    guarding = guard(names, con)
    # DuckDB binds every table of a statement except those in a CTE that is never read, so one guard is enough without
    # WITH.
    if any(word.text.upper() == "WITH" for word in parsed.words):
        return [guarding if table.gains else UNGUARDED for table in tables]
    return [guarding, *guards[1:]]


def _numbered_marks(words: Sequence[Word]) -> Iterator[tuple[int, int, str]]:
    """Each ``?`` without a number as ``$1``: after it come the parameters of reads."""
    marks = []
    for word, following in zip_longest(words, words[1:]):
        if word.text in ("?", "$"):
            has_number = following is not None and following.start == word.end and following.text.isdigit()
            if has_number or word.text == "?":
                marks.append((word, following.text if following is not None and has_number else ""))
    for (word, written), key in zip(marks, numbered([written for _, written in marks]), strict=True):
        if not written:
            yield word.start, word.end, f" ${key} "  # in ?and?, too


def _takes_parameters(one: Statement) -> bool:
    """Whether DuckDB accepts parameters: not for the query that finds the values of a PIVOT, nor for PREPARE."""
    return one.kind not in ("MULTI", "PREPARE")


def _refuse_other_uses(words: Sequence[Word], places: Sequence[Place], text: str) -> None:
    """Raise `UnsupportedSql` for a view or macro, in which DuckDB would store the current list of files, and for the
    file of a COPY … FROM."""
    verbs = [word.text.upper() for word in words[:12]]
    if verbs[0] == "COPY" and verbs[1] != "(":
        raise _unreadable(places[0].name, text, (places[0].start, places[0].end))
    if verbs[0] == "EXPLAIN" and "CREATE" in verbs:
        verbs = verbs[verbs.index("CREATE") :]
    if verbs[0] == "CREATE" and {"VIEW", "MACRO", "FUNCTION"} & set(verbs[1:6]):
        raise UnsupportedSql(
            "A view or macro would go on reading the files that this table has now. Create a TABLE, or run the query "
            "itself through zskip.sql each time.",
            text,
            (places[0].start, places[0].end),
        )


# --- the column names of a query as in the user's text ---
#
# DuckDB names a column without an alias after its expression, and a subquery in it is text that zskip has rewritten.

_SUBQUERY = "(SELECT "


def _named_as_written(
    relation: duckdb.DuckDBPyRelation,
    con: duckdb.DuckDBPyConnection,
    text: str,
    params: Sequence[Any] | Mapping[str, Any] | None,
    tables: Mapping[str, pa.Schema],
) -> duckdb.DuckDBPyRelation:
    """The relation with the column names that ``text`` has over ``tables``, the schemas by name.

    Returned unchanged if no name contains a subquery, or DuckDB cannot bind the text over empty tables.
    """
    if not any(_SUBQUERY in name for name in relation.columns):
        return relation
    names = _names(con, text, params, tables)
    pairs = list(zip(relation.columns, names, strict=False))
    others = any(found != name for found, name in pairs if _SUBQUERY not in found)
    if others or len(names) != len(relation.columns):
        return relation
    return relation.project(_named(names))


def _naming_edits(
    words: Sequence[Word],
    con: duckdb.DuckDBPyConnection,
    text: str,
    params: Sequence[Any] | Mapping[str, Any] | None,
    tables: Mapping[str, pa.Schema],
) -> list[tuple[int, int, str]]:
    """Edits that make a statement store a query's columns under the names in the user's text."""
    inside = stored_query(words)
    if inside is None or has_pivot(words):
        return []
    start, end = words[inside.start].start, words[inside.stop - 1].end
    names = _names(con, text[start:end], params, tables)
    if not any(_SUBQUERY in name for name in names):
        return []
    return [(start, start, f"SELECT {_named(names)} FROM ("), (end, end, ")")]


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"#{at} AS {identifier(name)}" for at, name in enumerate(names, start=1))


def _names(
    con: duckdb.DuckDBPyConnection,
    query: str,
    params: Sequence[Any] | Mapping[str, Any] | None,
    tables: Mapping[str, pa.Schema],
) -> list[str]:
    """The column names of a query over empty tables; none if DuckDB cannot bind it."""
    import duckdb

    # DuckDB looks up tables that its catalog lacks among the variables of the calling function.
    scope = {name: empty_rows(schema) for name, schema in tables.items()}
    try:
        # A parsed statement that DuckDB cannot bind does not abort an open transaction.
        (parsed,) = con.extract_statements(query)
        found = eval("con.sql(parsed, params=params)", {**scope, "con": con, "parsed": parsed, "params": params})
    except (duckdb.Error, ValueError):
        return []
    return [] if found is None else list(found.columns)
