"""Changing tables with Spark: the verbs of `zskip.Table`, run by a session."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from zskip.api import Mode
from zskip.api import write as write_table
from zskip.core.option_checks import Progress
from zskip.core.receipts import Clustered, Deleted, Optimized
from zskip.core.schema import names_given
from zskip.errors import InvalidOption
from zskip.spark.executor_footers import read_foreign_footers
from zskip.spark.hadoop import open_storage
from zskip.spark.spark_backend import backend
from zskip.spark.spark_session import Semantics, clocks_of, require_proved_meaning, require_session
from zskip.table import Table
from zskip.tablelog import indexing, log
from zskip.writer import append as append_rows
from zskip.writer.compaction import compact
from zskip.writer.compaction.cluster import cluster_folder
from zskip.writer.options import FileLayout, WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_SIZES = ("files", "rows_per_file", "file_size")


class TableOptions(FileLayout, total=False):
    """The options of `zskip.write` that apply on a cluster."""

    mode: Mode
    progress: Progress | None
    joins: Mapping[str, tuple[Any, Mapping[str, str]]] | None


def write(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    by: str | Sequence[str] | None = None,
    **options: Unpack[TableOptions],
) -> Table:
    """Lay out a DataFrame's rows as a table, as `zskip.write` does, on the cluster. The options are the same.

    ``memory_limit``, ``temp_directory`` and ``threads`` apply to this machine and are refused. ``joins``: the driver
    loads the dimensions, and the executors, which need zskip, look up the attributes of each row. The DataFrame is
    evaluated three times: to count, to sample and to write. Cache it if that is expensive.

    Raises `TableExists`, `InvalidOption`, `UnknownColumn`, `NotOrderable`, `SchemaError` and `MissingDependency`. After
    an error no file remains; a driver that is killed leaves files that no snapshot names, which `vacuum` removes.
    """
    return write_table(df, path, by=by, session=_session(df), **options)


def delete(
    spark: SparkSession,
    path: str | os.PathLike[str] | Table,
    where: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Deleted:
    """Delete the rows for which ``where``, in Spark's SQL under the session's settings, is TRUE.

    Files in which every row matches are removed unread; files in which some rows match are rewritten.
    Raises `TableNotFound`, `SqlError`, `CommitConflict`, and `InvalidOption` if the session's time zone is unknown.
    """
    require_session(spark)
    table = _opened(spark, path, storage_options)
    require_proved_meaning(spark, where)
    semantics = Semantics.of(spark)
    semantics.require_zone()
    predicate = semantics.bind(where, table._index.snapshot.schema, clocks_of(spark))
    return table.delete(predicate, session=spark)


def optimize(
    spark: SparkSession,
    path: str | os.PathLike[str] | Table,
    *,
    by: str | Sequence[str] | None = None,
    **options: Unpack[FileLayout],
) -> Optimized:
    """Rewrite all rows of a table in a layout fitted to the current rows, by the same columns or those of ``by``.

    ``options`` are those of `write`; the table's options apply where none are given. To rewrite only what
    pays, call ``Table.optimize(session=spark)``. Readers see either the old files or the new ones. Raises
    `TableNotFound`, and `CommitConflict` if another writer removed files in the meantime.
    """
    require_session(spark)
    table = _opened(spark, path, options.pop("storage_options", None))
    table._index.snapshot.indexed.orderable(() if by is None else names_given(by, "by"))
    kept = append_rows.kept_options(table._index.snapshot, WriteOptions())
    sizes = {name: None for name in _SIZES if any(other in options for other in _SIZES)}
    given: dict[str, Any] = {
        **sizes,
        **options,
        **({} if by is None else {"by": by, "weights": options.get("weights")}),
    }
    _, done = compact.optimize(
        table._index.storage,
        table._index.snapshot,
        kept,
        full=True,
        wanted=replace(kept, **given),
        backend=backend(spark),
    )
    return done


def cluster(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    by: str | Sequence[str] | None = None,
    dry_run: bool = False,
    **options: Unpack[FileLayout],
) -> Clustered:
    """Lay out a folder of plain Parquet or a zskip table in place, as `zskip.cluster` does, on the cluster.

    ``options`` are those of `write` except ``partition_by``: hive folders stay. ``dry_run``: only report the rewrite.
    Raises what `index` raises, `SchemaError` for a column that Spark would store as another type and for names of
    folders that it does not read as DuckDB does, and `CommitConflict` if another program changed the folder in the
    meantime.
    """
    require_session(spark)
    storage_options = options.pop("storage_options", None)
    storage = open_storage(spark, path, storage_options)
    if "partition_by" in options:
        raise InvalidOption("The hive folders stay as they are: leave out partition_by=.")
    wanted = WriteOptions(by=() if by is None else names_given(by, "by"), **options)
    base = log.newest(storage)
    if base is not None and base.managed:
        return compact.cluster_table(storage, base, wanted, dry_run=dry_run, backend=backend(spark))
    return cluster_folder(
        storage,
        wanted,
        dry_run=dry_run,
        indexed=lambda _: index(spark, path, storage_options=storage_options)._index.snapshot,
        backend=backend(spark),
    )


def _opened(
    spark: SparkSession, path: str | os.PathLike[str] | Table, storage_options: Mapping[str, Any] | None
) -> Table:
    storage = path._index.storage if isinstance(path, Table) else open_storage(spark, path, storage_options)
    return Table(storage, log.load(storage))


def _session(df: DataFrame) -> SparkSession:
    require_session(df)
    return df.sparkSession


# Index a folder of foreign Parquet with Spark, which reads footers on the executors.


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
    return Table(storage, indexing.index_files(storage, deep_scan=deep, read=read))
