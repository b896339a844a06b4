"""The files of each table that a statement must read, after all rules of `zskip.statement`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip.engines.duckdb.named_columns import names_its_columns
from zskip.engines.duckdb.session import reads_bytes_as_text, session_of
from zskip.engines.duckdb.stubs import Stub, engine_plan, file_columns, make_stubs, printed_columns
from zskip.engines.duckdb.survivor_reads import default_alias
from zskip.engines.duckdb.table_places import Place, Word, edited
from zskip.engines.duckdb.table_queries import TableQueries
from zskip.plan import Survivors, kept_survivors
from zskip.statement.aggregates import Aggregates, IndexRows, aggregates, rows_of_index
from zskip.statement.conditions import conditions_of
from zskip.statement.first_rows import FirstRows, first_rows, holding_first_rows
from zskip.statement.joins import JoinKeys, join_keys
from zskip.statement.key_pruning import JoinedTable, prune_by_keys
from zskip.statement.plan_tree import Scan
from zskip.tablelog import listed

if TYPE_CHECKING:
    import duckdb

    from zskip.expr import Predicate
    from zskip.schema import Schema
    from zskip.tablelog import Index

__all__ = ["PrunedTable", "pruned_tables"]

# A column with positions in the list of files, which differ in a shorter list.
_NUMBERS_FILES = "file_index"

# Fewer tables have only one join order.
_MANY_JOINED = 3


@dataclass(frozen=True, slots=True)
class PrunedTable:
    """``beside``: rows that represent files answered by the index · ``reasons``: what each rule skipped ·
    ``read``: the types of the columns that the rules read · ``ordered``: whether a rule depends on an order of rows ·
    ``named``: the statement needs the columns alone that its text may name."""

    survivors: Survivors
    beside: IndexRows | None
    reasons: tuple[str, ...]
    read: tuple[pa.DataType, ...] = ()
    ordered: bool = False
    named: bool = False

    @property
    def gains(self) -> bool:
        """Whether any file is skipped."""
        return self.beside is not None or len(self.survivors) < self.survivors.total_files


@dataclass(frozen=True, slots=True)
class _Rules:
    """The inputs of the rules of `zskip.statement`, from DuckDB's plan of a statement over stubs.

    ``named``: the stubs had the columns alone that the text may name.
    """

    scans: Sequence[Scan] = ()
    joins: Sequence[JoinKeys] = ()
    first: Sequence[FirstRows] = ()
    aggregates: Sequence[Aggregates] = ()
    named: bool = False


def pruned_tables(
    text: str,
    words: Sequence[Word],
    found: Sequence[tuple[Place, Index]],
    con: duckdb.DuckDBPyConnection,
    params: Sequence[Any] | Mapping[str, Any] | None,
    freshness: str,
    prune: bool,
    settled: bool,
) -> list[PrunedTable]:
    """The tables of a statement in textual order. Without ``prune``, no files are skipped. ``settled``: it reads no
    other tables, and none but DuckDB's own functions."""
    rules = _rules(text, words, found, con, params, settled) if prune else _Rules()
    tables, complete, types = [], [], []
    for number, (place, index) in enumerate(found):
        scans = [scan for scan in rules.scans if scan.place == number]
        conditions = conditions_of(scans, index.snapshot.schema, lambda: session_of(con))
        survivors = kept_survivors(index, conditions.predicate, changes=listed(index) if freshness == "list" else None)
        table = JoinedTable(text[place.start : place.end], survivors)
        if conditions.predicate is not None:
            skipped = survivors.total_files - len(survivors)
            table.reasons.append(f"conditions {conditions.predicate}: {skipped:,} files skipped")
        tables.append(table)
        complete.append(conditions.complete)
        types.append(_types_read(index.snapshot.schema, conditions.predicate, rules, number))
    queries = TableQueries(con)
    prune_by_keys(tables, rules.joins, queries.keys)
    if len(tables) >= _MANY_JOINED:
        # Those rules hold what the conditions leave against the rows that files have.
        ruled = {one.place for one in rules.first} | {one.place for one in rules.aggregates}
        joined = (
            table if number in ruled else table.whole_where_little_is_saved() for number, table in enumerate(tables)
        )
        tables = list(joined)
    return [
        _by_its_rows(table, rules, number, complete[number], queries, types[number])
        for number, table in enumerate(tables)
    ]


def _types_read(schema: Schema, predicate: Predicate | None, rules: _Rules, place: int) -> tuple[pa.DataType, ...]:
    """The types of the columns of a table that the rules read; null for an unknown column."""
    names = {join.column for join in rules.joins if join.place == place}
    names |= {join.key for join in rules.joins if join.source == place}
    names |= {one.column for one in rules.first if one.place == place and one.column is not None}
    for one in rules.aggregates:
        if one.place == place:
            names |= one.ordered | one.counted | (one.groups or frozenset())
    paths = predicate.columns if predicate is not None else ()
    found = [schema.find([name], case_sensitive=True) for name in sorted(names)]
    others = (pa.null() if column is None else column.type for column in found)
    return (*(schema.columns[path].type for path in paths), *others)


def _rules(
    text: str,
    words: Sequence[Word],
    found: Sequence[tuple[Place, Index]],
    con: duckdb.DuckDBPyConnection,
    params: Sequence[Any] | Mapping[str, Any] | None,
    settled: bool,
) -> _Rules:
    """The inputs of the rules; none if DuckDB's plan is unavailable or cannot be interpreted."""
    if any(word.text.lower() == _NUMBERS_FILES for word in words):
        return _Rules()
    if any(reads_bytes_as_text(con, index.snapshot.schema) for index in {index for _, index in found}):
        return _Rules()
    schemas = tuple(index.snapshot.schema.arrow for _, index in found)
    for named in (True, False) if settled and names_its_columns(text) else (False,):
        stubs = make_stubs(schemas, text, named=named)
        edits = [(place.start, place.end, _as_stub(place, stub)) for (place, _), stub in zip(found, stubs, strict=True)]
        edits += file_columns(words, schemas)
        root = engine_plan(con, edited(text, edits)[_explained(words) :], stubs, params)
        if root is not None:
            break
    else:
        return _Rules()
    columns = printed_columns(root, stubs, text)
    scans = root.scans(columns)
    if scans is None:
        return _Rules()
    return _Rules(scans, join_keys(root, columns), first_rows(root, columns), aggregates(root, columns), named)


def _by_its_rows(
    table: JoinedTable,
    rules: _Rules,
    place: int,
    complete: bool,
    queries: TableQueries,
    types: tuple[pa.DataType, ...],
) -> PrunedTable:
    """Apply the rules for first rows and aggregates to one table."""
    survivors, reasons = table.survivors, table.reasons
    ordered = any(one.place == place and one.column is not None for one in rules.first)
    # An unbound condition may select fewer rows than the statistics of a file imply.
    if complete:
        for wanted in rules.first:
            if wanted.place == place:
                before = len(survivors)
                survivors = holding_first_rows(survivors, wanted, queries.worst_of_first)
                reasons.append(f"{wanted}: {before - len(survivors):,} files skipped")
        for asked in rules.aggregates:
            beside = rows_of_index(survivors, asked) if asked.place == place else None
            if beside is not None:
                reasons.append(f"count, min and max: {beside.files:,} files answered by the index")
                return PrunedTable(beside.rest, beside, tuple(reasons), types, ordered, rules.named)
    return PrunedTable(survivors, None, tuple(reasons), types, ordered, rules.named)


def _as_stub(place: Place, stub: Stub) -> str:
    shown = stub.sql if place.aliased else f"{stub.sql} AS {default_alias(place)}"
    return f"SELECT * FROM {shown}" if place.bare else shown


def _explained(words: Sequence[Word]) -> int:
    """The offset of the statement that EXPLAIN explains; 0 for any other statement."""
    if words[0].text.upper() != "EXPLAIN":
        return 0
    at = 1
    if words[at].text.upper() == "ANALYZE":
        at += 1
    if words[at].text == "(" and words[at + 1].text.upper() not in ("SELECT", "FROM", "WITH", "VALUES", "("):
        at = next(number for number, word in enumerate(words) if word.text == ")") + 1
    return words[at].start
