"""Index a folder of foreign Parquet with Spark, which reads footers on the executors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from zskip import tablelog
from zskip.spark.executor_footers import read_foreign_footers
from zskip.spark.hadoop import open_storage
from zskip.spark.spark_session import require_session
from zskip.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["index"]


def index(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    deep: bool = False,
    files_per_task: int = 500,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """Index the Parquet files of a folder in place, as `zskip.index` does, on the cluster.

    ``deep``: also read rows for statistics that the footers lack. The executors need zskip installed and must reach the
    folder under the same path or URL. Raises `TableExists`, `NoParquet`, `CorruptFile` and `SchemaMismatch`.
    """
    require_session(spark)
    storage = open_storage(spark, path, storage_options)
    read = partial(read_foreign_footers, spark, storage, files_per_task=files_per_task, deep_scan=deep)
    return Table(storage, tablelog.index_files(storage, deep_scan=deep, read=read))
