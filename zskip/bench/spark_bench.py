"""A query on Spark, through zskip and over all files, which Spark is handed in the same way as the survivors."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from zskip.bench.clock import median
from zskip.binder import bind
from zskip.binder.workload_sql import spoken
from zskip.errors import MissingDependency, ZskipError
from zskip.plan import plan
from zskip.tablelog import Index

__all__ = ["both_ways", "session"]

_VIEW = "zskip_bench"


def session() -> Any:
    """The session that there is, or a local one."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingDependency('Spark is not installed: pip install "zskip[spark]".') from error
    return SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()


def both_ways(index: Index, session: Any, query: str, tables: Collection[str], runs: int) -> tuple[float, float]:
    """Seconds through zskip, and of all files, of computing every column of the result; medians.

    ``tables``: the names that mean the table in a statement; without them the query is a predicate. Each way runs once
    before it is timed. Raises `ZskipError` where the two do not give as many rows.
    """
    if tables:
        text = spoken(query, tables, _VIEW, into="spark")

        def pruned() -> Any:
            return session.sql(text, **{_VIEW: self_pruning(session, index)})

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


def self_pruning(session: Any, index: Index) -> Any:
    """The table as `zskip.spark.table` gives it."""
    from zskip.spark import table
    from zskip.table import Table

    return table(session, Table(index.storage, index.snapshot))


def _computed(rows: Any) -> None:
    """Every column of every row, which goes nowhere: a count would leave columns out."""
    rows.write.format("noop").mode("overwrite").save()
