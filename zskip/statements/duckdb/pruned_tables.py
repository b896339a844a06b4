"""The files of each table that a statement must read, after all rules of `zskip.statements`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from zskip.core import types as t
from zskip.core.late_loading import ask_duckdb
from zskip.core.schema import Schema, identifier
from zskip.engines.duckdb.native_scan import literal
from zskip.errors import ZskipError, amount
from zskip.plan import Survivors, kept_survivors
from zskip.statements.aggregates import Aggregates, aggregates, rows_of_index
from zskip.statements.attributes import prune_by_attributes
from zskip.statements.conditions import conditions_of
from zskip.statements.duckdb.parsed_statements import Parsed
from zskip.statements.duckdb.pruning_rule import PrunedTable, changes_of, remember_gain
from zskip.statements.duckdb.session import schema_of, session_of
from zskip.statements.duckdb.stubs import (
    Stub,
    engine_plan,
    file_columns,
    make_stubs,
    names_file_columns,
    printed_columns,
    stub_sql,
    tells_apart,
)
from zskip.statements.duckdb.survivor_reads import ReadBy, Values, read_survivors
from zskip.statements.duckdb.table_places import edited, explained_start
from zskip.statements.first_rows import FirstRows, first_rows, holding_first_rows
from zskip.statements.joins import (
    FILE_SECONDS,
    ROW_SECONDS,
    JoinedTable,
    JoinKeys,
    column_of,
    join_keys,
    prune_by_keys,
    read_seconds,
)
from zskip.statements.plan_tree import Node, Scan, StubColumns

if TYPE_CHECKING:
    import duckdb

    from zskip.language import Predicate
    from zskip.statements.joins import KeySet


# The fewest tables that can be joined in different orders.
_MANY_JOINED = 3


@dataclass(frozen=True, slots=True)
class _Rules:
    """The inputs of the rules of `zskip.statements`, from DuckDB's plan of a statement over stubs.

    ``only_named``: the stubs had only the columns that the text names · ``unneeded``: the tables of which DuckDB proves
    that no row is needed, by number.
    """

    scans: Sequence[Scan] = ()
    joins: Sequence[JoinKeys] = ()
    first: Sequence[FirstRows] = ()
    aggregates: Sequence[Aggregates] = ()
    only_named: bool = False
    unneeded: Collection[int] = ()


def pruned_tables(
    parsed: Parsed,
    con: duckdb.DuckDBPyConnection,
    params: Sequence[Any] | Mapping[str, Any] | None,
    freshness: str,
    *,
    begun: bool,
    for_user: bool = False,
) -> list[PrunedTable]:
    """The tables of a statement in textual order.

    ``begun``: as in `engine_plan` · ``for_user``: a user wants to know the row groups.
    """
    text, found = parsed.statement.query, parsed.found
    rules = _rules(parsed, con, params, begun)
    if names_file_columns(parsed.words):
        rules = replace(rules, aggregates=())  # rows of the index are of no file
    tables, complete, types = [], [], []
    changes = changes_of(parsed, freshness)
    for number, (place, index) in enumerate(found):
        scans = [scan for scan in rules.scans if scan.place == number]
        conditions = conditions_of(scans, schema_of(index, con), lambda: session_of(con))
        survivors = kept_survivors(index, conditions.predicate, changes=changes[index], few_as_whole=not for_user)
        if number in rules.unneeded:
            survivors = survivors.narrowed(np.zeros(0, np.int64))
        table = JoinedTable(text[place.start : place.end], survivors)
        if conditions.predicate is not None:
            skipped = survivors.total_files - len(survivors)
            table.reasons.append(f"conditions {conditions.predicate}: {amount(skipped, 'file')} skipped")
        if number in rules.unneeded:
            table.reasons.append(f"no row can satisfy the conditions: {amount(survivors.total_files, 'file')} skipped")
        tables.append(table)
        complete.append(conditions.complete)
        types.append(_types_read(index.snapshot.schema, conditions.predicate, rules, number))
    queries, joins = TableQueries(con), _by_exact_keys(rules.joins, tables, parsed, con)
    prune_by_attributes(tables, joins, queries.keys)
    prune_by_keys(tables, joins, queries.keys)
    if len(tables) >= _MANY_JOINED:
        # The rules for rows depend on the predicate, which a table that is read as a whole no longer has.
        with_row_rules = {one.place for one in rules.first} | {one.place for one in rules.aggregates}
        tables = [
            table if number in with_row_rules else table.whole_where_little_is_saved()
            for number, table in enumerate(tables)
        ]
    pruned = [
        _after_row_rules(table, rules, number, complete[number], queries, types[number])
        for number, table in enumerate(tables)
    ]
    remember_gain(parsed, params, sum(map(_saved_seconds, pruned)))
    return pruned


def _by_exact_keys(
    joins: Sequence[JoinKeys], tables: Sequence[JoinedTable], parsed: Parsed, con: duckdb.DuckDBPyConnection
) -> Sequence[JoinKeys]:
    """The joins of which strings that differ are no partners.

    A plan prints a collated key like the column itself. A collation is the connection's, or in the text, or that of a
    column of another relation, or in a function of the connection.
    """
    by_strings = [join for join in joins if _is_string(tables[join.place], join.column)]
    if not by_strings:
        return joins
    written = any(word.text.lower() == "collate" for word in parsed.words)
    if written or parsed.foreign or con.sql("SELECT current_setting('default_collation')").fetchall() != [("",)]:
        return [join for join in joins if join not in by_strings]
    return joins


def _is_string(table: JoinedTable, name: str) -> bool:
    column = column_of(table, name)
    return column is not None and t.is_string(t.logical_type(column.type))


def _types_read(schema: Schema, predicate: Predicate | None, rules: _Rules, place: int) -> tuple[pa.DataType, ...]:
    """The types of the columns that the rules read in a table; null for an unknown column."""
    names = {join.column for join in rules.joins if join.place == place}
    names |= {join.key for join in rules.joins if join.source == place}
    names |= {one.column for one in rules.first if one.place == place and one.column is not None}
    for one in rules.aggregates:
        if one.place == place:
            names |= one.ordered | one.counted | (one.groups or frozenset())
    paths = predicate.columns if predicate is not None else ()
    columns = [schema.find([name], case_sensitive=True) for name in sorted(names)]
    others = (pa.null() if column is None else column.type for column in columns)
    return (*(schema.columns[path].type for path in paths), *others)


def _rules(
    parsed: Parsed,
    con: duckdb.DuckDBPyConnection,
    params: Sequence[Any] | Mapping[str, Any] | None,
    begun: bool,
) -> _Rules:
    """The inputs of the rules; none if DuckDB's plan is unavailable or cannot be interpreted."""
    words, places = parsed.words, parsed.places
    schemas = tuple(schema_of(index, con).arrow for _, index in parsed.found)
    text, respelled = parsed.statement.query, not (places.reads_names or parsed.hidden)

    def planned(stubs: Sequence[Stub]) -> Node | None:
        edits = [
            (place.start, place.end, stub_sql(place, stub))
            for (place, _), stub in zip(parsed.found, stubs, strict=True)
        ]
        edits += file_columns(words, schemas)
        return engine_plan(con, edited(text, edits)[explained_start(words) :], stubs, params, begun)

    root, only_named = None, parsed.only_named
    if only_named:
        stubs = make_stubs(schemas, text, only_named=True, respelled=respelled)
        root = planned(stubs)
    if root is None:
        only_named, stubs = False, make_stubs(schemas, text, respelled=respelled)
        root = planned(stubs)
    if root is None:
        return _Rules()
    groups = not (places.grouping_sets or parsed.hidden)
    rules = _rules_of(root, printed_columns(root, stubs, text), groups, only_named)
    if parsed.statement.kind == "SELECT" and any(node.name == "EMPTY_RESULT" for node in root.walk()):
        scanned = {node.place for node in root.walk()}
        rules = replace(rules, unneeded=[number for number in range(len(stubs)) if number not in scanned])
    if parsed.foreign and respelled:
        # A view or macro of the user may have a column in the spelling of a stub.
        certain = _rules_of(root, printed_columns(root, stubs, text, unique=False), groups, only_named)
        if certain != replace(rules, unneeded=()):
            others = make_stubs(schemas, text, unlike=stubs)
            other = planned(others)
            if other is None or not tells_apart(root, stubs, other, others):
                return certain
    return rules


def _rules_of(root: Node, columns: Sequence[StubColumns], groups: bool, only_named: bool) -> _Rules:
    """The inputs of the rules from a plan. ``groups``: as in `join_keys`."""
    scans = root.scans(columns)
    if scans is None:
        return _Rules()
    joins = join_keys(root, columns, groups=groups)
    return _Rules(scans, joins, first_rows(root, columns), aggregates(root, columns), only_named)


def _after_row_rules(
    table: JoinedTable,
    rules: _Rules,
    place: int,
    complete: bool,
    queries: TableQueries,
    types: tuple[pa.DataType, ...],
) -> PrunedTable:
    """One table after the rules for first rows and aggregates. ``complete``: as in `Conditions`."""
    survivors, reasons = table.survivors, table.reasons
    ordered = any(one.place == place and one.column is not None for one in rules.first)
    # Both rules need rows that the statement certainly selects; an incomplete predicate may match others.
    if complete:
        for first in rules.first:
            if first.place == place:
                before = len(survivors)
                survivors = holding_first_rows(survivors, first, queries.worst_of_first)
                reasons.append(f"{first}: {amount(before - len(survivors), 'file')} skipped")
        for aggregate in rules.aggregates:
            from_index = rows_of_index(survivors, aggregate) if aggregate.place == place else None
            if from_index is not None:
                reasons.append(f"count, min and max: {amount(from_index.files, 'file')} answered by the index")
                return PrunedTable(from_index.rest, from_index, tuple(reasons), types, ordered, rules.only_named)
    return PrunedTable(survivors, None, tuple(reasons), types, ordered, rules.only_named)


def _saved_seconds(table: PrunedTable) -> float:
    """The expected time to read the files that all rules skip; infinite if it is unknown."""
    totals = table.survivors.index.snapshot.totals
    if not table.gains:
        return 0.0
    if table.index_rows is not None or totals.rows is None:
        return np.inf
    return totals.files * FILE_SECONDS + totals.rows * ROW_SECONDS - read_seconds(table.survivors)


# --- queries that the rules need ---
#
# They run on a cursor of the connection, in a transaction of its own, so that a query that fails or takes too long does
# not affect the user's transaction. Results are cached by the table's version, which is immutable.

_MOST_KEYS = 1_000_000
_KNOWN_BYTES = 64 << 20
_KNOWN: LRUCache[Hashable, pa.Array | None] = LRUCache(_KNOWN_BYTES, lambda keys: 4096 + (keys.nbytes if keys else 0))
_LOCK = Lock()
_CALLED = re.compile(r'(\w+)"?\s*\(')


class TableQueries:
    """Queries for `zskip.statements.joins` and `zskip.statements.first_rows`, run on a connection."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con

    def keys(self, table: JoinedTable, key: str, seconds: float) -> tuple[pa.Array, Hashable] | str:
        """The distinct values, with NULL, of a column in the rows of a table's survivors, and the query's cache key.

        The reason if there are too many, or the query fails or takes longer than ``seconds``.
        """
        query = f"SELECT DISTINCT {identifier(key)} AS key FROM {{}} LIMIT {_MOST_KEYS + 1}"
        values, origin = self._answer(query, key, table.survivors, table.keys, _conditions(table.survivors), seconds)
        if values is None:
            return "reading them took longer than it could save"  # what fails, fails in the statement as well
        return (values, origin) if len(values) <= _MOST_KEYS else f"they are more than {_MOST_KEYS:,}"

    def worst_of_first(self, survivors: Survivors, wanted: FirstRows, seconds: float) -> pa.Scalar | None:
        """The last value of the wanted first rows in these files.

        None if the files hold fewer rows, or if other conditions may exclude some of them.
        """
        conditions, predicate = _conditions(survivors), survivors.predicate
        schema = survivors.index.snapshot.schema
        column = None if wanted.column is None else schema.find([wanted.column], case_sensitive=True)
        if column is None or len(conditions) < len(predicate.conjuncts if predicate else ()):
            return None
        name = identifier(column.parts[0])
        worst, order = ("min", "DESC") if wanted.descending else ("max", "ASC")
        # NULL and NaN sort before or after all values; their files are always read.
        present = f"{name} IS NOT NULL{f' AND NOT isnan({name})' if t.is_floating(column.type) else ''}"
        first = f"SELECT {name} AS key FROM {{}} AND {present} ORDER BY key {order} LIMIT {wanted.rows}"
        query = f"SELECT {worst}(key) AS key FROM ({first}) HAVING count(*) = {wanted.rows}"
        values, _ = self._answer(query, column.parts[0], survivors, (), conditions, seconds)
        return values[0] if values is not None and len(values) else None

    def _answer(
        self,
        query: str,
        column: str,
        survivors: Survivors,
        keys: Sequence[KeySet],
        conditions: Sequence[str],
        seconds: float,
    ) -> tuple[pa.Array | None, Hashable]:
        """The column "key" of a query in which ``{}`` stands for the rows of some files, and its cache key.

        ``column``: the table's column in the query. The result's column is None if the query fails or takes longer than
        ``seconds``.
        """
        snapshot, storage = survivors.index.snapshot, survivors.index.storage
        # Rules may have skipped more files than the conditions and keys, so the files are part of the cache key.
        files = hashlib.sha256(survivors.numbers.tobytes()).digest()
        origins = tuple(each.origin for each in keys)
        origin = storage.identity, snapshot.commit_id, files, query, tuple(conditions), origins
        with _LOCK:
            if origin in _KNOWN:
                return _KNOWN[origin], origin
        values = self._run(query, column, survivors, keys, conditions, seconds)
        with _LOCK:
            _KNOWN[origin] = values
        return values, origin

    def _run(
        self,
        query: str,
        column: str,
        survivors: Survivors,
        keys: Sequence[KeySet],
        conditions: Sequence[str],
        seconds: float,
    ) -> pa.Array | None:
        import duckdb

        parameters = Values(None, takes=True)
        with self._con.cursor() as cursor, _at_most(seconds, cursor):
            try:
                read = read_survivors(survivors, self._con, parameters, ReadBy(_columns_read(survivors, column, keys)))
                wanted = [f"({one})" for one in conditions]
                for number, each in enumerate(keys):
                    cursor.register(f"zskip_keys_{number}", pa.table({"key": each.values}))
                    name = identifier(each.column)
                    missing = f" OR {name} IS NULL" if each.or_null else ""
                    wanted.append(f"({name} IN (SELECT key FROM zskip_keys_{number}){missing})")
                if survivors.predicate is not None:
                    cursor.execute(f"SET TimeZone = {literal(survivors.predicate.dialect.timezone)}")
                text = query.replace("{}", f"{read} WHERE {' AND '.join(wanted) or 'TRUE'}")
                rows: pa.Table = cursor.sql(text, params=parameters.all).to_arrow_table()
            except (duckdb.Error, ZskipError):
                # The statement itself will raise the error when it runs.
                return None
        return rows.column("key").combine_chunks()


def _columns_read(survivors: Survivors, column: str, keys: Sequence[KeySet]) -> tuple[str, ...]:
    predicate, columns = survivors.predicate, survivors.index.snapshot.schema.columns
    names = [] if predicate is None else [columns[path].parts[0] for path in predicate.columns]
    return tuple(dict.fromkeys([*names, *(each.column for each in keys), column]))


def _conditions(survivors: Survivors) -> tuple[str, ...]:
    """The conditions that select the same rows on every connection at any time."""
    predicate = survivors.predicate
    texts = [part.sql("duckdb") for part in predicate.conjuncts] if predicate is not None else []
    return tuple(text for text in texts if text is not None and _is_repeatable(text))


def _is_repeatable(condition: str) -> bool:
    called = {name.lower() for name in _CALLED.findall(condition)} - {"and", "in", "not", "or"}
    return not called or called <= _repeatable_functions()


@lru_cache(maxsize=1)
def _repeatable_functions() -> frozenset[str]:
    """DuckDB's deterministic functions, and the keywords that may precede a parenthesis."""
    rows = ask_duckdb(
        "SELECT function_name FROM duckdb_functions() GROUP BY ALL HAVING bool_and(stability = 'CONSISTENT') "
        "UNION SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN ('reserved', 'column_name')"
    )
    return frozenset(name for (name,) in rows)


@contextmanager
def _at_most(seconds: float, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    timer = Timer(seconds, cursor.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
