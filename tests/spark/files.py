"""How many files a DataFrame's scans read: by Spark's own metric, or by the tasks that a connector planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["files_read", "scanned"]


def files_read(rows: DataFrame) -> int:
    """Run it, and add up the files of every scan in its final plan."""
    rows.collect()
    return scanned(rows)


def scanned(rows: DataFrame) -> int:
    """The same of a DataFrame that has been run."""
    return sum(map(_files, _scans(rows._jdf.queryExecution().executedPlan())))


def _files(scan: Any) -> int:
    if scan.getClass().getSimpleName() == "FileSourceScanExec":
        return int(scan.metrics().apply("numFiles").value())
    tasks = scan.filteredPartitions()
    parts = [tasks.apply(number) for number in range(tasks.size())]
    read = [file.filePath().toString() for part in parts if part.isDefined() for file in part.get().files()]
    return len(set(read))


def _scans(node: Any) -> Iterator[Any]:
    kind = node.getClass().getSimpleName()
    if kind in ("FileSourceScanExec", "BatchScanExec"):
        yield node
    elif kind == "AdaptiveSparkPlanExec":
        yield from _scans(node.executedPlan())
    elif kind.endswith("QueryStageExec"):
        yield from _scans(node.plan())
    else:
        for number in range(node.children().size()):
            yield from _scans(node.children().apply(number))
