"""Time a query through zskip and over all files, on DuckDB and on Spark."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zskip import layouts
from zskip.bench.report import LayoutScore, Timing, short
from zskip.binder import bind
from zskip.binder.workload_sql import is_query, named_tables, table_query, translated
from zskip.engines.duckdb.relation import planned_scan
from zskip.errors import InvalidOption, ZskipError
from zskip.plan import Share, find_survivors, plan
from zskip.statements.duckdb.statement import rewrite
from zskip.tablelog import Index

if TYPE_CHECKING:
    import duckdb


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
        spark_pruned, spark_plain = _both_ways(index, session, query, tables if is_query(query) else (), runs)
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


# Time a query on Spark, through zskip and over all files, which are passed to Spark in the same way.

_VIEW = "zskip_bench"


def _both_ways(index: Index, session: Any, query: str, tables: Collection[str], runs: int) -> tuple[float, float]:
    """The median seconds to compute all columns of the result, through zskip and over all files.

    ``tables``: the names of the table in a statement; empty for a predicate. Each way runs once before it is timed.
    Raises `ZskipError` where the two results differ in their row counts.
    """
    if tables:
        text = translated(query, tables, _VIEW, into="spark")

        def pruned() -> Any:
            return session.sql(text, **{_VIEW: _self_pruning(session, index)})

        def plain() -> Any:
            return session.sql(text, **{_VIEW: plan(index, None).to_spark(session)})
    else:
        zone = session.conf.get("spark.sql.session.timeZone")

        def pruned() -> Any:
            bound = bind(query, index.snapshot.schema, dialect="spark", timezone=zone)
            return plan(index, bound).to_spark(session)

        def plain() -> Any:
            return plan(index, None).to_spark(session).where(query)

    rows, all_rows = pruned().count(), plain().count()
    if rows != all_rows:
        raise ZskipError(f"{query}\ngives {rows} rows through zskip on Spark, but {all_rows} over all files.")
    fast, _ = median(lambda: _computed(pruned()), runs)
    slow, _ = median(lambda: _computed(plain()), runs)
    return fast, slow


def _self_pruning(session: Any, index: Index) -> Any:
    """The table as `zskip.spark.table` gives it."""
    from zskip.spark import table
    from zskip.table import Table

    return table(session, Table(index.storage, index.snapshot))


def _computed(rows: Any) -> None:
    """Compute every column of every row and discard them: a count would skip columns."""
    rows.write.format("noop").mode("overwrite").save()


# Compare layouts on a sample of a table's rows, with a user's queries as the workload.

_SAMPLE_ROWS = 200_000


def compare(
    index: Index, con: duckdb.DuckDBPyConnection, queries: Sequence[str], names: Sequence[str]
) -> tuple[tuple[LayoutScore, ...], bool]:
    """The scores of the layouts, for as many files as the table has, best first; and whether queries were held out.

    Layouts are fitted to every other query and scored on the rest, then the other way round; a single query serves
    both. Rows are held out in the same way.
    """
    schema = index.snapshot.schema
    workload = [text for query in queries if table_query(text := _condition_or_select(index, query), schema)]
    if not workload:
        raise InvalidOption("There is nothing to compare layouts by: no query has a condition on the table.")
    held_out = len(workload) > 1
    folds = [(workload[::2], workload[1::2]), (workload[1::2], workload[::2])] if held_out else [(workload, workload)]
    sample = _sample(index, con)
    rows = np.arange(sample.num_rows)
    halves = sample.take(rows[::2]), sample.take(rows[1::2])
    scores = [_score(name, index, halves, folds) for name in dict.fromkeys(names)]
    return tuple(sorted(scores, key=lambda one: (-one.bytes, -one.rows, -one.files))), held_out


def _condition_or_select(index: Index, query: str) -> str:
    return translated(query, tables_of(index, query), "zskip_bench", into="duckdb") if is_query(query) else query


def _score(
    name: str, index: Index, halves: tuple[pa.Table, pa.Table], folds: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> LayoutScore:
    record, files = index.snapshot.layout, max(1, len(index))
    by = list(record.columns) if record is not None else None
    fitted_rows, judged_rows = halves
    total = index.snapshot.totals.rows or fitted_rows.num_rows
    seconds = 0.0
    read: list[layouts.Share] = []
    for fitted_to, judged_by in folds:
        start = time.perf_counter()
        assignment = layouts.fit(fitted_rows, by, layout=name, files=files, workload=fitted_to, total_rows=total)
        seconds += time.perf_counter() - start
        read += layouts.score(judged_rows, assignment, by, workload=judged_by).queries
    bytes_, rows, opened = (
        1 - float(np.mean(shares)) for shares in zip(*((one.bytes, one.rows, one.files) for one in read), strict=True)
    )
    return LayoutScore(name, bytes_, rows, opened, seconds / len(folds))


def _sample(index: Index, con: duckdb.DuckDBPyConnection) -> pa.Table:
    scan = planned_scan(find_survivors(index, None).scan, con, None)
    sampling = f"FROM ({scan.sql}) USING SAMPLE reservoir({_SAMPLE_ROWS} ROWS) REPEATABLE (1)"
    return con.sql(sampling, params=dict(scan.parameters)).to_arrow_table().cast(index.snapshot.schema.arrow)


# Measure the median duration of a function.


def median(run: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """The median duration in seconds, and the last result."""
    seconds, result = [], None
    for _ in range(runs):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result
