"""`bench`: run a user's own queries through zskip and over all files, on DuckDB and on Spark, and compare."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zskip.binder import bind
from zskip.binder.workload_sql import is_query, named_tables, translated
from zskip.core.late_loading import engine
from zskip.errors import InvalidOption, ZskipError, amount
from zskip.plan import Share
from zskip.plan.planner import plan
from zskip.statements.duckdb.statement import rewrite
from zskip.tablelog.index import Index

if TYPE_CHECKING:
    import duckdb

    from zskip.table import Table


__all__ = ["Report", "Timing", "bench"]


def bench(
    table: Table,
    queries: Sequence[str],
    *,
    runs: int = 5,
    spark: bool = False,
    before: Table | None = None,
) -> Report:
    """Run each query through zskip and over all files, on DuckDB and optionally on Spark.

    ``queries``: predicates, or statements that name the table by its quoted path, by its folder's name, or by any name
    if it is the only table, as in a workload for `Table.advise` · ``runs``: of each query; times are medians ·
    ``spark``: run each query on Spark too; statements are translated to Spark's SQL · ``before``: the table as it was,
    which runs the same queries: the report says what each gained or lost in bytes and time.
    Raises `InvalidOption`, what planning raises, and `ZskipError` where the two results differ in their row counts.
    """
    import duckdb

    if runs < 1 or not queries:
        raise InvalidOption("bench needs one query and one run at least.")
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    index = table._index
    session = engine("spark session").active_session() if spark else None
    known = (table._index, *(() if before is None else (before._index,)))
    timings = tuple(timing(index, con, query, runs, session, known) for query in queries)
    earlier = None
    if before is not None:
        older = tuple(timing(before._index, con, query, runs, session, known) for query in queries)
        earlier = Report(before.uri, before.version, runs, older)
    con.execute("RESET TimeZone")
    return Report(table.uri, table.version, runs, timings, earlier)


# Time a query through zskip and over all files.


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
        raise ZskipError(f"{query}\ngives {amount(rows, 'row')} through zskip, but {all_rows} over all files.")
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
        raise ZskipError(f"{query}\ngives {amount(rows, 'row')} through zskip on Spark, but {all_rows} over all files.")
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


# Measure the median duration of a function.


def median(run: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """The median duration in seconds, and the last result."""
    seconds, result = [], None
    for _ in range(runs):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result


# The report.


SMALL_BYTES = 100_000_000
TOO_SMALL = (
    "This table is too small to tell: below 100 MB most of the time goes into opening files and planning. Compare the "
    "files and bytes that are read; they are what a larger table saves."
)

_MOST_GAINS = 20


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one query: medians in seconds; ``zskip_seconds`` includes ``plan_seconds``.

    ``files``, ``rows``, ``bytes``: what is scanned, of all; bytes of whole files. The Spark fields are None without
    Spark.
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
        """The time of the plain scan divided by that of zskip."""
        return self.plain_seconds / self.zskip_seconds


@dataclass(frozen=True, slots=True)
class Report:
    """The results of `bench`; its text is a table.

    ``before``: the same queries on the table as it was.
    """

    table: str
    version: int
    runs: int
    timings: tuple[Timing, ...]
    before: Report | None = None

    @property
    def too_small(self) -> bool:
        """Whether a scan of the whole table is so quick that the times prove little."""
        known = [one.bytes.whole for one in self.timings if one.bytes.whole is not None]
        return bool(known) and max(known) < SMALL_BYTES

    def __str__(self) -> str:
        lines = [
            f"{self.table} (version {self.version}), medians of {amount(self.runs, 'run')}",
            f"{'files':>15} {'rows':>8} {'bytes':>8} {'plan':>9} {'zskip':>9} {'plain':>9} {'faster':>7}  query",
        ]
        for one in self.timings:
            lines.append(
                f"{one.files.part:>7}/{one.files.whole:<7} {_scanned(one.rows)} {_scanned(one.bytes)} "
                f"{_time(one.plan_seconds)} {_time(one.zskip_seconds)} {_time(one.plain_seconds)} "
                f"{one.times_faster:>6.1f}×  {short(one.query)}"
            )
            if one.spark_zskip_seconds is not None and one.spark_plain_seconds is not None:
                lines.append(
                    f"{'Spark':>43} {_time(one.spark_zskip_seconds)} {_time(one.spark_plain_seconds)} "
                    f"{one.spark_plain_seconds / one.spark_zskip_seconds:>6.1f}×"
                )
        if self.too_small:
            lines.append(TOO_SMALL)
        if self.before is not None:
            lines += ["", *self._gains(self.before)]
        return "\n".join(lines)

    def _gains(self, before: Report) -> list[str]:
        """What each query gained or lost, those that lost first, and the sums."""
        pairs = list(zip(before.timings, self.timings, strict=True))
        worse = [new.bytes.part is not None and new.bytes.part > (old.bytes.part or 0) for old, new in pairs]
        lines = [
            f"before: {before.table} (version {before.version})",
            f"{'bytes before':>13} {'after':>13} {'time before':>12} {'after':>12}  query",
        ]
        for number in sorted(range(len(pairs)), key=lambda number: not worse[number])[:_MOST_GAINS]:
            old, new = pairs[number]
            mark = "  READS MORE" if worse[number] else ""
            differs = (
                "" if old.result_rows == new.result_rows else f"  ({old.result_rows} rows, then {new.result_rows})"
            )
            lines.append(_gain([old], [new]) + f"  {short(new.query)}{mark}{differs}")
        if len(pairs) > _MOST_GAINS:
            lines.append(f"and {len(pairs) - _MOST_GAINS} more queries")
        lines.append(f"{_gain(before.timings, self.timings)}  all {len(pairs)}; {sum(worse)} of them read more")
        return lines


def _gain(before: Sequence[Timing], after: Sequence[Timing]) -> str:
    sizes = (sum(one.bytes.part or 0 for one in timings) for timings in (before, after))
    seconds = (sum(one.zskip_seconds for one in timings) for timings in (before, after))
    return " ".join([*(f"{size:>13,}" for size in sizes), *(f"{second * 1e3:>9.1f} ms" for second in seconds)])


def _scanned(share: Share) -> str:
    return f"{'unknown':>8}" if share.part is None else f"{share.fraction:>8.2%}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:>6.1f} ms"


def short(text: str, width: int = 70) -> str:
    """A query in one line."""
    plain = " ".join(text.split())
    return plain if len(plain) <= width else plain[: width - 1] + "…"
