"""What queries give over a plain scan, and how many files a DataFrame's scans read.

The files are counted by Spark's own metric, or by the tasks that a connector planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from pyspark.sql import DataFrame

from tests.tables import sorted_rows

CONNECTOR, _FILE_SOURCE = "BatchScanExec", "FileSourceScanExec"


def matching(rows: DataFrame, conditions: Sequence[str]) -> list[list[str]]:
    """For each condition the rows that meet it, by one scan that no filter is pushed down to."""
    marks = [f"coalesce({where}, false) AS c{number}" for number, where in enumerate(conditions)]
    marked = rows.selectExpr("*", *marks).toArrow()
    return [sorted_rows(marked.filter(marked[f"c{number}"]).select(rows.columns)) for number in range(len(conditions))]


def answered(query: str, schema: pa.Schema, **tables: pa.Table) -> list[str]:
    """The rows that DuckDB gives for a statement in Spark's SQL, in the types that Spark gave. Spark takes longer."""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        for name, rows in tables.items():
            con.register(name, rows)
        found = con.sql(sqlglot.transpile(query, "spark", "duckdb")[0]).to_arrow_table()
    return sorted_rows(found.rename_columns(schema.names).cast(schema))


def files_read(rows: DataFrame, *kinds: str) -> int:
    """Run it, and add up the files of every scan in its final plan; of these kinds only, where some are given.

    Scans below what Spark broadcasts for the keys of a join, with AQE off, are not in that plan.
    """
    rows.collect()
    return scanned(rows, *kinds)


def scanned(rows: DataFrame, *kinds: str) -> int:
    """The same of a DataFrame that has been run."""
    scans = _scans(rows._jdf.queryExecution().executedPlan())
    return sum(_files(scan) for scan in scans if not kinds or _kind(scan) in kinds)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _files(scan: Any) -> int:
    if _kind(scan) == _FILE_SOURCE:
        return int(scan.metrics().apply("numFiles").value())
    tasks = scan.filteredPartitions()
    parts = [tasks.apply(number) for number in range(tasks.size())]
    read = [file.filePath().toString() for part in parts if part.isDefined() for file in part.get().files()]
    return len(set(read))


def _scans(node: Any) -> Iterator[Any]:
    kind = _kind(node)
    if kind in (_FILE_SOURCE, CONNECTOR):
        yield node
    elif kind == "AdaptiveSparkPlanExec":
        yield from _scans(node.executedPlan())
    elif kind.endswith("QueryStageExec"):
        yield from _scans(node.plan())
    else:
        for number in range(node.children().size()):
            yield from _scans(node.children().apply(number))
