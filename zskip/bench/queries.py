"""Time a query through zskip and over all files, on DuckDB and on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zskip.bench import spark_bench
from zskip.bench.clock import median
from zskip.bench.report import Timing, short
from zskip.binder.workload_sql import is_query, named_tables
from zskip.errors import InvalidOption, ZskipError
from zskip.plan import Share
from zskip.statements.duckdb.statement import rewrite
from zskip.tablelog import Index

if TYPE_CHECKING:
    import duckdb

__all__ = ["tables_of", "timing"]


def timing(
    index: Index, con: duckdb.DuckDBPyConnection, query: str, runs: int, session: Any, known: Sequence[Index]
) -> Timing:
    """Time one query on DuckDB and, with a session, on Spark. Raises `ZskipError` where the results differ.

    ``known``: tables whose names in a statement stand for this one.
    """
    statement = query if is_query(query) else f"SELECT * FROM zskip_bench WHERE {query}"
    tables = tables_of(index, statement, known)

    def prepared(prune: bool) -> Any:
        return rewrite(statement, con, tables=tables, prune=prune)

    def answer(prune: bool) -> int:
        ready = prepared(prune)
        return len(con.sql(ready.sql, params=ready.parameters).to_arrow_table())

    plans = [planned for _, planned in prepared(True).plans]
    if not plans:
        raise InvalidOption(f"This query reads no zskip table: {short(query)}")
    planning, _ = median(lambda: prepared(True), runs)
    pruned, rows = median(lambda: answer(True), runs)
    plain, all_rows = median(lambda: answer(False), runs)
    if rows != all_rows:
        raise ZskipError(f"{query}\ngives {rows} rows through zskip, but {all_rows} over all files.")
    spark_pruned = spark_plain = None
    if session is not None:
        spark_pruned, spark_plain = spark_bench.both_ways(
            index, session, query, tables if is_query(query) else (), runs
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


def tables_of(index: Index, statement: str, known: Sequence[Index] = ()) -> dict[str, Index]:
    """The names of the table in a statement. If it uses none of the table's own, its only plain name is the table."""
    addresses = [each.storage.uri for each in (index, *known)]
    names = [name for address in addresses for name in (address, address.rsplit("/", 1)[-1])]
    tables = dict.fromkeys(("zskip_bench", *names), index)
    found = named_tables(statement)
    if not any(name.strip('"').lower() in {own.lower() for own in tables} for name in found):
        plain = [name for name in found if name.isidentifier()]
        if len(plain) == 1:
            tables[plain[0]] = index
    return tables


def _read(skipped: Sequence[Share]) -> Share:
    """What is scanned, over all tables of a query."""
    if any(one.part is None or one.whole is None for one in skipped):
        return Share(None, None)
    total = sum(one.whole or 0 for one in skipped)
    return Share(total - sum(one.part or 0 for one in skipped), total)
