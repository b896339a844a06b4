"""`bench`: run a user's own queries through zskip and over all files, and compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zskip import layouts as fitted
from zskip.bench.queries import compare, timing
from zskip.bench.report import LayoutScore, Report, Timing
from zskip.core.engine_registry import engine
from zskip.errors import InvalidOption, nearest

if TYPE_CHECKING:
    from zskip.table import Table

__all__ = ["LayoutScore", "Report", "Timing", "bench"]


def bench(
    table: Table,
    queries: Sequence[str],
    *,
    runs: int = 5,
    layouts: Sequence[str] | None = None,
    spark: bool = False,
    before: Table | None = None,
) -> Report:
    """Run each query through zskip and over all files, on DuckDB and optionally on Spark.

    ``queries``: predicates, or statements that name the table by its quoted path, by its folder's name, or by any name
    if it is the only table, as in a workload for `Table.advise` · ``runs``: of each query; times are medians ·
    ``layouts``: layouts to compare on a sample with these queries as the workload, with two-fold cross-validation:
    fitted to every other query and scored on the rest ·
    ``spark``: run each query on Spark too; statements are translated to Spark's SQL · ``before``: the table as it was,
    which runs the same queries: the report says what each gained or lost in bytes and time.
    Raises `InvalidOption`, what planning raises, and `ZskipError` where the two results differ in their row counts.
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
    session = engine("spark session").active_session() if spark else None
    known = (table.index, *(() if before is None else (before.index,)))
    timings = tuple(timing(index, con, query, runs, session, known) for query in queries)
    earlier = None
    if before is not None:
        older = tuple(timing(before.index, con, query, runs, session, known) for query in queries)
        earlier = Report(before.uri, before.version, runs, older)
    con.execute("RESET TimeZone")
    scores, held_out = compare(index, con, queries, layouts) if layouts else ((), False)
    return Report(table.uri, table.version, runs, timings, scores, held_out, earlier)
