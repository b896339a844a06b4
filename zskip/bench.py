"""A user's own queries, through zskip and through a plain scan of all files, side by side."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zskip import layouts as fitted
from zskip.engines.duckdb.relation import planned_scan
from zskip.engines.duckdb.statement import rewrite
from zskip.errors import InvalidOption, MissingDependency, ZskipError, nearest
from zskip.interpret import outcomes
from zskip.plan import Share, plan
from zskip.predicate import Predicate, bind
from zskip.predicate.sql.workload import named_tables
from zskip.schema import Schema
from zskip.sidecar import Index
from zskip.stats import collect

if TYPE_CHECKING:
    import duckdb

    from zskip.table import Table

__all__ = ["LayoutScore", "Report", "Timing", "bench"]

_SAMPLE_ROWS = 200_000
_STATEMENT = re.compile(r"\s*(SELECT|WITH|FROM|EXPLAIN)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Timing:
    """One query, timed. Seconds are medians over the runs, and ``zskip`` includes ``plan``; bytes are of whole files.

    ``files``, ``rows`` and ``bytes``: what is scanned, of all. The Spark fields are None where Spark was not asked, or
    where the query is a whole statement.
    """

    query: str
    result_rows: int
    files: Share
    rows: Share
    bytes: Share
    plan_seconds: float
    zskip_seconds: float
    plain_seconds: float
    spark_zskip_seconds: float | None = None
    spark_plain_seconds: float | None = None

    @property
    def times_faster(self) -> float:
        """How many times as long the plain scan takes."""
        return self.plain_seconds / self.zskip_seconds


@dataclass(frozen=True, slots=True)
class LayoutScore:
    """A layout, fitted on a sample: the share of rows that it skips over these queries, and at most can."""

    layout: str
    skipped: float
    fit_seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """What `bench` measured; its text is a table."""

    table: str
    version: int
    runs: int
    timings: tuple[Timing, ...]
    layouts: tuple[LayoutScore, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.table} (version {self.version}), medians of {self.runs} runs",
            f"{'files':>15} {'rows':>8} {'bytes':>8} {'plan':>9} {'zskip':>9} {'plain':>9} {'faster':>7}  query",
        ]
        for one in self.timings:
            lines.append(
                f"{one.files.part:>7}/{one.files.whole:<7} {_scanned(one.rows)} {_scanned(one.bytes)} "
                f"{_time(one.plan_seconds)} {_time(one.zskip_seconds)} {_time(one.plain_seconds)} "
                f"{one.times_faster:>6.1f}×  {_short(one.query)}"
            )
            if one.spark_zskip_seconds is not None and one.spark_plain_seconds is not None:
                lines.append(
                    f"{'Spark':>43} {_time(one.spark_zskip_seconds)} {_time(one.spark_plain_seconds)} "
                    f"{one.spark_plain_seconds / one.spark_zskip_seconds:>6.1f}×"
                )
        if self.layouts:
            lines += ["", f"{'layout':<10} {'rows skipped':>13} {'to fit':>9}   (on a sample)"]
            lines += [f"{one.layout:<10} {one.skipped:>13.3f} {_time(one.fit_seconds)}" for one in self.layouts]
        return "\n".join(lines)


def bench(
    table: Table,
    queries: Sequence[str],
    *,
    runs: int = 5,
    layouts: Sequence[str] | None = None,
    spark: bool = False,
) -> Report:
    """Run each query through zskip and over all files, on DuckDB and, if asked, on Spark.

    ``queries``: predicates, or statements in which the table stands by its quoted path, by its folder's name, or by any
    name where that is the only one, as in a workload for `Table.advise` ·
    ``layouts``: names of layouts to compare on a sample, each judged by the share of rows that these queries skip ·
    ``spark``: run predicates on Spark as well, where they are Spark's SQL.
    Raises `InvalidOption`, what planning raises, and `ZskipError` where the two ways do not give as many rows.
    """
    import duckdb

    if runs < 1 or not queries:
        raise InvalidOption("bench needs one query and one run at least.")
    for name in layouts or ():
        if name not in fitted.LAYOUTS:
            raise InvalidOption(f'There is no layout "{name}".{nearest(name, fitted.LAYOUTS)}')
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    index = table.index
    session = _session() if spark else None
    timings = tuple(_timing(index, con, query, runs, session) for query in queries)
    con.execute("RESET TimeZone")
    scores = _scores(index, con, queries, layouts) if layouts else ()
    return Report(table.uri, table.version, runs, timings, scores)


def _timing(index: Index, con: duckdb.DuckDBPyConnection, query: str, runs: int, session: Any) -> Timing:
    statement = query if _STATEMENT.match(query) else f"SELECT * FROM zskip_bench WHERE {query}"
    tables = _tables(index, statement)

    def prepared(prune: bool) -> Any:
        return rewrite(statement, con, tables=tables, prune=prune)

    def answer(prune: bool) -> int:
        ready = prepared(prune)
        return len(con.sql(ready.sql, params=ready.parameters).to_arrow_table())

    plans = [planned for _, planned in prepared(True).plans]
    if not plans:
        raise InvalidOption(f"No table of zskip stands in this query: {_short(query)}")
    planning, _ = _median(lambda: prepared(True), runs)
    pruned, rows = _median(lambda: answer(True), runs)
    plain, all_rows = _median(lambda: answer(False), runs)
    if rows != all_rows:
        raise ZskipError(f"{query}\ngives {rows} rows through zskip, but {all_rows} over all files.")
    spark_pruned = spark_plain = None
    if session is not None and not _STATEMENT.match(query):
        spark_pruned, spark_plain = _on_spark(index, session, query, runs)
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


def _tables(index: Index, statement: str) -> dict[str, Index]:
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


def _median(run: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """Seconds of the run in the middle, and what the last one gave."""
    seconds, given = [], None
    for _ in range(runs):
        start = time.perf_counter()
        given = run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), given


# --- Spark ---


def _session() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingDependency('Spark is not installed: pip install "zskip[spark]".') from error
    return SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()


def _on_spark(index: Index, session: Any, predicate: str, runs: int) -> tuple[float, float]:
    """Seconds through zskip, and of all files, which Spark is handed in the same way."""
    zone = session.conf.get("spark.sql.session.timeZone")

    def pruned() -> int:
        bound = bind(predicate, index.snapshot.schema, dialect="spark", timezone=zone)
        return int(plan(index, bound).to_spark(session).count())

    def plain() -> int:
        return int(plan(index, None).to_spark(session).where(predicate).count())

    (fast, rows), (slow, all_rows) = _median(pruned, runs), _median(plain, runs)
    if rows != all_rows:
        raise ZskipError(f"{predicate}\ngives {rows} rows through zskip on Spark, but {all_rows} over all files.")
    return fast, slow


# --- layouts ---


def _scores(
    index: Index, con: duckdb.DuckDBPyConnection, queries: Sequence[str], names: Sequence[str]
) -> tuple[LayoutScore, ...]:
    """Each layout fitted for as many files as the table has, on a sample, and judged by the queries' own proofs."""
    predicates = [bound for query in queries if (bound := _predicate_of(index, con, query)) is not None]
    record = index.snapshot.layout
    by = list(record.columns) if record is not None else sorted({path for one in predicates for path in one.columns})
    if not predicates or not by:
        raise InvalidOption("There is nothing to compare layouts by: no query has a condition on the table.")
    sample = _sample(index, con)
    rows = index.snapshot.totals.rows or len(sample)
    return tuple(_score(name, sample, by, len(index), rows, predicates) for name in names)


def _predicate_of(index: Index, con: duckdb.DuckDBPyConnection, query: str) -> Predicate | None:
    if not _STATEMENT.match(query):
        return bind(query, index.snapshot.schema)
    plans = [planned for _, planned in rewrite(query, con, tables=_tables(index, query)).plans]
    return plans[0].predicate if plans else None


def _sample(index: Index, con: duckdb.DuckDBPyConnection) -> pa.Table:
    scan = planned_scan(plan(index, None), con, None)
    sampling = f"FROM ({scan.sql}) USING SAMPLE reservoir({_SAMPLE_ROWS} ROWS) REPEATABLE (1)"
    return con.sql(sampling, params=dict(scan.parameters)).to_arrow_table().cast(index.snapshot.schema.arrow)


def _score(
    name: str, sample: pa.Table, by: Sequence[str], files: int, rows: int, predicates: Sequence[Predicate]
) -> LayoutScore:
    start = time.perf_counter()
    assignment = fitted.fit(sample, by, layout=name, files=files, total_rows=rows)
    seconds = time.perf_counter() - start
    numbers = assignment.assign(sample)
    ordered = sample.take(np.argsort(numbers, kind="stable"))
    cuts = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=assignment.files))]).astype(np.int64)
    found = collect.row_groups(ordered, cuts, Schema(sample.schema))
    held = np.diff(cuts)
    read = [held[outcomes(one, found.statistics(sorted(one.columns))).may_match].sum() for one in predicates]
    return LayoutScore(name, 1.0 - float(np.mean(read)) / max(len(sample), 1), seconds)


def _scanned(share: Share) -> str:
    return f"{'unknown':>8}" if share.part is None else f"{share.fraction:>8.2%}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:>6.1f} ms"


def _short(text: str, width: int = 70) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= width else plain[: width - 1] + "…"
