"""Indexing a folder of someone else's Parquet with Spark: footers are read on the executors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zskip import sidecar
from zskip.engines.spark import require_pyspark
from zskip.errors import NoParquet, TableExists
from zskip.sidecar import freshness
from zskip.spark.footers import read_foreign_footers
from zskip.stats import hive
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
    """Index the Parquet files of a folder where they lie: the same index as `zskip.index` makes, by many machines.

    ``deep``: read the rows for what the footers lack. The executors need zskip installed and must reach the folder
    under the same path or URL. Raises `TableExists`, `NoParquet`, `CorruptFile` and `SchemaMismatch`.
    """
    require_pyspark()
    storage = sidecar.open_storage(path, storage_options)
    if sidecar.latest_version(storage):
        raise TableExists(f"There is an index at {storage.uri} already. Open it and refresh it.")
    listing = freshness.data_files(storage)
    if not len(listing):
        raise NoParquet(f"There is no Parquet file in {storage.uri}.")
    schema, files = read_foreign_footers(spark, storage, listing.path.to_pylist(), files_per_task, deep)
    snapshot = sidecar.commit(
        storage,
        None,
        "index",
        add=files,
        schema=schema,
        managed=False,
        partition_by=tuple(hive.partitions(files.path)),
        details={"source": "rows" if deep else "footers"},
    )
    return Table(storage, snapshot)
