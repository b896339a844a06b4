"""A sink for structured streaming that commits each micro-batch exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zskip import tablelog
from zskip.spark import spark_backend
from zskip.spark.hadoop import open_storage
from zskip.table import Table
from zskip.writer import WriteOptions
from zskip.writer import append as append_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["append_batch"]


def append_batch(
    path: str | os.PathLike[str],
    *,
    application: str = "stream",
    storage_options: dict[str, Any] | None = None,
    **options: Any,
) -> Callable[[DataFrame, int], None]:
    """A function for ``writeStream.foreachBatch`` that appends each batch to a table exactly once.

    A batch that Spark runs again after a failure is recognised by its id and not appended again. ``application``
    identifies the stream among all that write to the table; a stream with a new checkpoint needs a new name.
    ``options`` are those of `zskip.spark.write`, at least ``by=``: the first batch creates a missing table with them.
    """

    def append(df: DataFrame, batch_id: int) -> None:
        storage = open_storage(df.sparkSession, path, storage_options)
        batch = (application, batch_id)
        newest = tablelog.newest(storage)
        if newest is not None:
            Table(storage, newest).append(df, batch=batch, session=df.sparkSession)
        else:
            backend = spark_backend.backend(df.sparkSession)
            append_rows.create(storage, None, backend.open_rows(df, None), WriteOptions(**options), backend, batch)

    return append
