"""A query timed through zskip and over all files, on DuckDB and on Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zskip.bench import spark_bench
from zskip.bench.clock import median
from zskip.bench.report import Timing, short
from zskip.binder.workload_sql import named_tables
from zskip.engines.duckdb.statement import rewrite
from zskip.errors import InvalidOption, ZskipError
from zskip.plan import Share
from zskip.tablelog import Index

if TYPE_CHECKING:
    import duckdb

__all__ = ["is_statement", "tables_of", "timing"]

_STATEMENT = re.compile(r"\s*(SELECT|WITH|FROM|EXPLAIN)\b", re.IGNORECASE)


def timing(index: Index, con: duckdb.DuckDBPyConnection, query: str, runs: int, session: Any) -> Timing:
    """One query on DuckDB and, with a session, on Spark. Raises `ZskipError` where two ways differ."""
    statement = query if is_statement(query) else f"SELECT * FROM zskip_bench WHERE {query}"
    tables = tables_of(index, statement)

    def prepared(prune: bool) -> Any:
        return rewrite(statement, con, tables=tables, prune=prune)

    def answer(prune: bool) -> int:
        ready = prepared(prune)
        return len(con.sql(ready.sql, params=ready.parameters).to_arrow_table())

    plans = [planned for _, planned in prepared(True).plans]
    if not plans:
        raise InvalidOption(f"No table of zskip stands in this query: {short(query)}")
    planning, _ = median(lambda: prepared(True), runs)
    pruned, rows = median(lambda: answer(True), runs)
    plain, all_rows = median(lambda: answer(False), runs)
    if rows != all_rows:
        raise ZskipError(f"{query}\ngives {rows} rows through zskip, but {all_rows} over all files.")
    spark_pruned = spark_plain = None
    if session is not None:
        spark_pruned, spark_plain = spark_bench.both_ways(
            index, session, query, tables if is_statement(query) else (), runs
        )
    skipped = [planned.skipped for planned in plans]
    return Timing(
        query=query,
        result_rows=rows,
        files=_read([one.files for one in skipped]),
        rows=_read([one.rows for one in skipped]),
        bytes=_read([one.bytes for one in skipped]),
        plan_seconds=planning,
        zskip_seconds=pruned,
        plain_seconds=plain,
        spark_zskip_seconds=spark_pruned,
        spark_plain_seconds=spark_plain,
    )


def is_statement(query: str) -> bool:
    """Whether it is a whole statement, and not a predicate."""
    return _STATEMENT.match(query) is not None


def tables_of(index: Index, statement: str) -> dict[str, Index]:
    """The names under which a statement may mean the table: where none of its own stands there, the only plain one."""
    tables = dict.fromkeys(("zskip_bench", index.storage.uri, index.storage.uri.rsplit("/", 1)[-1]), index)
    found = named_tables(statement)
    if not any(name.strip('"').lower() in {own.lower() for own in tables} for name in found):
        plain = [name for name in found if name.isidentifier()]
        if len(plain) == 1:
            tables[plain[0]] = index
    return tables


def _read(skipped: Sequence[Share]) -> Share:
    """What is scanned, over all tables of a query."""
    whole = [one.whole for one in skipped]
    part = [None if one.part is None or one.whole is None else one.whole - one.part for one in skipped]
    if None in whole or None in part:
        return Share(None, None)
    return Share(sum(one or 0 for one in part), sum(one or 0 for one in whole))
