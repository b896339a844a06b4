"""Writing files with Spark: to a staging folder first, then into the table, with their statistics."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
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
from zskip.writer import FileGroups, Routing, WriteOptions, least_rows, slot_label, slots_per_file
from zskip.writer.options import ROW_GROUP_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["write"]

_FILE, _SLOT, _PARTITION = "__zskip_file", "__zskip_slot", "__zskip_partition"
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
    slots: Sequence[tuple[int, int]] | None,
) -> DataFiles:
    """Write the rows as data files, without a commit. After an error none of them remains.

    ``slots``: for each file number, the first and last slot, after which the file is named. If it is None, a small
    write combines neighbouring slots and names files after those.
    """
    wide = 1 if slots is not None else slots_per_file(sampled.total, routing.files, least_rows(rows_per_file))
    groups = FileGroups.of(routing, wide)
    identity = secrets.token_hex(8)
    staged = f"_zskip/staging-{identity}"
    moved: list[str] = []
    try:
        with undone_on_error(lambda: abandon(storage, moved)):
            if sampled.total:
                _run(rows, unquote(spark_uri(storage, staged)), options, routing, sampled, rows_per_file, groups)
                _move(storage, staged, options, identity, slots, groups, moved)
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
    groups: FileGroups,
) -> None:
    from pyspark.sql import functions as f

    names = rows.columns
    group_rows = options.row_group_rows or ROW_GROUP_ROWS
    partition_by = list(routing.partition_by)
    order = [column(name) for name in partition_by]
    if partition_by:
        rows = _with_partition(rows, routing, sampled)
    rows = layout_expressions.file_numbers(routing, rows, _FILE, _PARTITION if partition_by else None)
    bundled = bool((groups.first < groups.last).any())
    if bundled:
        rows = rows.withColumn(_SLOT, f.col(_FILE)).withColumn(
            _FILE, layout_expressions.lookup(groups.first, f.col(_FILE))
        )
    # A small append has only a few rows for each file of the layout, so one task writes several files.
    rows_per_slot = sampled.total / max(1, routing.files)
    alone = not bundled and rows_per_slot > group_rows
    together = 1 if alone else max(1, int(rows_per_file / 2 / max(1.0, rows_per_slot)))
    number = f.col(_FILE) if together == 1 else (f.col(_FILE) / together).cast("int")
    rows = rows.repartitionById(max(1, -(-routing.files // together)), number)
    folders = partition_by if together == 1 else [*partition_by, _FILE]
    if together > 1:
        order.append(f.col(_FILE))
    if bundled:
        order.append(f.col(_SLOT))
    if together == 1 and not bundled and 2 * rows_per_file > group_rows:  # the maximum rows of a file
        rows = arranged(rows, routing, sampled.rows, sampled.total, group_rows, _FILE, order)
    elif order:
        rows = rows.sortWithinPartitions(*order)
    writer = (
        rows.select(*[column(name) for name in dict.fromkeys([*names, *folders])])
        .write.option("compression", _CODECS.get(options.compression, options.compression))
        .option("parquet.block.row.count.limit", str(group_rows))
        .option("maxRecordsPerFile", str(max(2 * rows_per_file, 1)))
    )
    if folders:
        writer = writer.partitionBy(*folders)
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
    slots: Sequence[tuple[int, int]] | None,
    groups: FileGroups,
    moved: list[str],
) -> None:
    """Move the committed files into the table in layout order, appending the path of each to ``moved``.

    A file's number in the layout is the number of its task, from its name, or of its folder if a task wrote several
    files.
    """
    found = []
    for path in storage.list(staged).path.to_pylist():
        inner = path[len(staged) + 1 :]
        folder, _, name = inner.rpartition("/")
        above, _, last = folder.rpartition("/")
        match = re.match(r"part-(\d+)-.*[-.]c(\d+)", name)
        if match and name.endswith(".parquet") and not inner.startswith("_temporary/"):
            shared = last.startswith(f"{_FILE}=")
            number = int(last.partition("=")[2] if shared else match[1])
            found.append((number, above if shared else folder, int(match[2]), path))
    for number, folder, piece, path in sorted(found):
        suffix = f"-{piece}" if piece else ""
        # Fitting partitions may yield one file more than requested.
        if slots is None:
            named = f"{slot_label(number, int(groups.last[number]))}-{identity}"
        else:
            named = f"{slot_label(*slots[min(number, len(slots) - 1)])}-{identity}-{number}"
        target = options.data_path(f"{folder}/" if folder else "", f"part-{named}{suffix}")
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
