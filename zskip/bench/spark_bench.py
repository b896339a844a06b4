"""Time a query on Spark, through zskip and over all files, which are passed to Spark in the same way."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from zskip.bench.clock import median
from zskip.binder import bind
from zskip.binder.workload_sql import translated
from zskip.errors import ZskipError
from zskip.plan import plan
from zskip.tablelog import Index

__all__ = ["both_ways"]

_VIEW = "zskip_bench"


def both_ways(index: Index, session: Any, query: str, tables: Collection[str], runs: int) -> tuple[float, float]:
    """The median seconds to compute all columns of the result, through zskip and over all files.

    ``tables``: the names of the table in a statement; empty for a predicate. Each way runs once before it is timed.
    Raises `ZskipError` where the two results differ in their row counts.
    """
    if tables:
        text = translated(query, tables, _VIEW, into="spark")

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
    """Compute every column of every row and discard them: a count would skip columns."""
    rows.write.format("noop").mode("overwrite").save()
