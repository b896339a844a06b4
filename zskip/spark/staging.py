"""Writing files with Spark: to a staging folder first, then into the table, with their statistics."""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.schema import Schema
from zskip.spark import layout_expressions
from zskip.spark.executor_footers import read_footers
from zskip.spark.handoff import column, spark_uri
from zskip.spark.sampling import Sampled
from zskip.spark.sort_order import arranged
from zskip.spark.spark_session import setting
from zskip.stats import DataFiles, FileStatistics
from zskip.storage import Storage, abandon, undone_on_error
from zskip.writer import Routing, WriteOptions
from zskip.writer.options import ROW_GROUP_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["write"]

_FILE, _PARTITION = "__zskip_file", "__zskip_partition"
_CODECS = {"none": "uncompressed", "lz4": "lz4_raw"}
# These override the session's settings, for example for old readers: only footers of these forms can be trusted.
_PARQUET_FORM = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
# HotSpot never compiles longer methods. Spark's default permits generating them, and they run ten times slower.
_COMPILABLE = {"spark.sql.codegen.hugeMethodLimit": "8000"}


def write(
    rows: DataFrame,
    storage: Storage,
    schema: Schema,
    options: WriteOptions,
    routing: Routing,
    sampled: Sampled,
    rows_per_file: int,
) -> DataFiles:
    """Write the rows as data files, without a commit. After an error none of them remains."""
    identity = secrets.token_hex(8)
    staged = f"_zskip/staging-{identity}"
    moved: list[str] = []
    try:
        with undone_on_error(lambda: abandon(storage, moved)):
            if sampled.total:
                _run(rows, unquote(spark_uri(storage, staged)), options, routing, sampled, rows_per_file)
                _move(storage, staged, options, identity, moved)
            return _data_files(rows, storage, schema, moved)
    finally:
        _clear(storage, staged)


# --- on the cluster ---


def _run(
    rows: DataFrame,
    uri: str,
    options: WriteOptions,
    routing: Routing,
    sampled: Sampled,
    rows_per_file: int,
) -> None:
    from pyspark.sql import functions as f

    names = rows.columns
    group_rows = options.row_group_rows or ROW_GROUP_ROWS
    partition_by = list(routing.partition_by)
    order = [column(name) for name in partition_by]
    if partition_by:
        rows = _with_partition(rows, routing, sampled)
    rows = layout_expressions.file_numbers(routing, rows, _FILE, _PARTITION if partition_by else None)
    rows = rows.repartitionById(max(1, routing.files), f.col(_FILE))
    if 2 * rows_per_file > group_rows:  # the maximum rows of a file
        rows = arranged(rows, routing, sampled.rows, sampled.total, group_rows, _FILE, order)
    elif order:
        rows = rows.sortWithinPartitions(*order)
    writer = (
        rows.select(*[column(name) for name in names])
        .write.option("compression", _CODECS.get(options.compression, options.compression))
        .option("parquet.block.row.count.limit", str(group_rows))
        .option("maxRecordsPerFile", str(max(2 * rows_per_file, 1)))
    )
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    with setting(rows.sparkSession, {**_PARQUET_FORM, **_COMPILABLE}):
        writer.parquet(uri)


def _with_partition(rows: DataFrame, routing: Routing, sampled: Sampled) -> DataFrame:
    """The rows with the number of their partition in the routing, by a broadcast join on the partition columns."""
    from pyspark.sql import functions as f

    known = {key: number for number, key in enumerate(routing.keys)}
    numbers = pa.array([known[key] for key in sampled.keys], pa.int32())
    names = [f"__zskip_key_{number}" for number in range(len(routing.partition_by))]
    keys = pa.Table.from_arrays([*sampled.values.columns, numbers], [*names, _PARTITION])
    small = f.broadcast(rows.sparkSession.createDataFrame(keys))
    same = [column(name).eqNullSafe(f.col(key)) for name, key in zip(routing.partition_by, names, strict=True)]
    condition = same[0]
    for other in same[1:]:
        condition = condition & other
    return rows.join(small, condition).drop(*names)


# --- from the staging folder into the table ---


def _move(
    storage: Storage,
    staged: str,
    options: WriteOptions,
    identity: str,
    moved: list[str],
) -> None:
    """Move the committed files into the table in layout order, appending the path of each to ``moved``.

    A file's number in the layout is the number of its task, from its name.
    """
    found = []
    for path in storage.list(staged).path.to_pylist():
        inner = path[len(staged) + 1 :]
        folder, _, name = inner.rpartition("/")
        match = re.match(r"part-(\d+)-.*[-.]c(\d+)", name)
        if match and name.endswith(".parquet") and not inner.startswith("_temporary/"):
            found.append((int(match[1]), folder, int(match[2]), path))
    for number, folder, piece, path in sorted(found):
        suffix = f"-{piece}" if piece else ""
        target = options.data_path(f"{folder}/" if folder else "", f"part-{number:06d}-{identity}{suffix}")
        moved.append(target)
        storage.move(path, target)


def _data_files(rows: DataFrame, storage: Storage, schema: Schema, paths: list[str]) -> DataFiles:
    """The files with their statistics, in layout order. Files without rows are deleted."""
    if not paths:
        nothing = FileStatistics(pa.array([], pa.int64()), {})
        texts, whole = pa.array([], pa.string()), pa.array([], pa.int64())
        return DataFiles(texts, whole, whole, texts, nothing, nothing, np.zeros(1, np.int64))
    files = read_footers(rows.sparkSession, storage, paths, schema)
    place = np.asarray(pc.index_in(pa.array(paths), files.path))
    files = files.take(place.astype(np.int64))
    empty = np.asarray(pc.equal(files.files.row_count, 0))
    storage.delete([path for path, gone in zip(paths, empty.tolist(), strict=True) if gone])
    return files.take(np.flatnonzero(~empty)) if empty.any() else files


def _clear(storage: Storage, staged: str) -> None:
    with suppress(OSError):  # vacuum removes orphans
        storage.delete(storage.list(staged).path.to_pylist())
        storage.remove_empty(staged)
