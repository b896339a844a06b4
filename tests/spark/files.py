"""How many files a DataFrame's scans read, by Spark's own metric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["files_read", "scanned"]


def files_read(rows: DataFrame) -> int:
    """Run it, and add up the metric ``numFiles`` of every scan in its final plan."""
    rows.collect()
    return scanned(rows)


def scanned(rows: DataFrame) -> int:
    """The same of a DataFrame that has been run."""
    return sum(
        int(scan.metrics().apply("numFiles").value()) for scan in _scans(rows._jdf.queryExecution().executedPlan())
    )


def _scans(node: Any) -> Iterator[Any]:
    kind = node.getClass().getSimpleName()
    if kind == "FileSourceScanExec":
        yield node
    elif kind == "AdaptiveSparkPlanExec":
        yield from _scans(node.executedPlan())
    elif kind.endswith("QueryStageExec"):
        yield from _scans(node.plan())
    else:
        for number in range(node.children().size()):
            yield from _scans(node.children().apply(number))
