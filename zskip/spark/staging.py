"""Writing files with Spark: to a staging folder first, then into the table, with their statistics."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.offsets import offsets_of
from zskip.core.schema import Schema
from zskip.layouts.row_order import SlabLevel
from zskip.spark import layout_expressions
from zskip.spark.executor_footers import read_footers
from zskip.spark.handoff import column, spark_uri
from zskip.spark.layout_expressions import leaf_column, lookup, union_of_columns
from zskip.spark.spark_session import setting
from zskip.spark.spark_types import spark_schema
from zskip.stats import DataFiles, FileStatistics
from zskip.storage import Staged, Storage
from zskip.writer.encode import fitted_encoding, stored_bytes
from zskip.writer.look_ups import ReadLookUps
from zskip.writer.options import ROW_GROUP_ROWS, WriteOptions
from zskip.writer.routing import Routing, fitted, fitted_columns, partition_numbers
from zskip.writer.row_sample import sample_size

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
    staged: Staged,
) -> DataFiles:
    """Write the rows as data files, without a commit. ``staged`` has each from before it is in the table's folders.

    Columns that are not in the schema serve the layout alone, and are not stored.
    """
    identity = secrets.token_hex(8)
    folder = f"_zskip/staging-{identity}"
    try:
        moved: list[str] = []
        if sampled.total:
            stored = [name for name in rows.columns if name in schema.arrow.names]
            _run(rows, stored, unquote(spark_uri(storage, folder)), options, routing, sampled, rows_per_file)
            moved = _move(storage, folder, options, identity, staged)
        return _data_files(rows, storage, schema, moved)
    finally:
        _clear(storage, folder)


# --- on the cluster ---


def _run(
    rows: DataFrame,
    names: Sequence[str],
    uri: str,
    options: WriteOptions,
    routing: Routing,
    sampled: Sampled,
    rows_per_file: int,
) -> None:
    from pyspark.sql import functions as f

    group_rows = options.row_group_rows or ROW_GROUP_ROWS
    partition_by = list(routing.partition_by)
    order = [column(name) for name in partition_by]
    if partition_by:
        rows = _with_partition(rows, routing, sampled)
    rows = layout_expressions.file_numbers(routing, rows, _FILE, _PARTITION if partition_by else None)
    rows = rows.repartitionById(max(1, routing.files), f.col(_FILE))
    if 2 * rows_per_file > group_rows:  # the maximum rows of a file
        rows = _arranged(rows, routing, sampled.rows, sampled.total, group_rows, _FILE, order)
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
    small = f.broadcast(rows.sparkSession.createDataFrame(keys, spark_schema(keys.schema)))
    same = [column(name).eqNullSafe(f.col(key)) for name, key in zip(routing.partition_by, names, strict=True)]
    condition = same[0]
    for other in same[1:]:
        condition = condition & other
    return rows.join(small, condition).drop(*names)


# --- from the staging folder into the table ---


def _move(
    storage: Storage,
    staging: str,
    options: WriteOptions,
    identity: str,
    staged: Staged,
) -> list[str]:
    """Move the files from the staging folder into the table in layout order. Returns their new paths.

    A file's number in the layout is the number of its task, from its name.
    """
    found, moved = [], []
    for path in storage.list(staging).path.to_pylist():
        inner = path[len(staging) + 1 :]
        folder, _, name = inner.rpartition("/")
        match = re.match(r"part-(\d+)-.*[-.]c(\d+)", name)
        if match and name.endswith(".parquet") and not inner.startswith("_temporary/"):
            found.append((int(match[1]), folder, int(match[2]), path))
    for number, folder, piece, path in sorted(found):
        suffix = f"-{piece}" if piece else ""
        target = options.data_path(f"{folder}/" if folder else "", f"part-{number:06d}-{identity}{suffix}")
        moved.append(target)
        staged.add([target])
        storage.move(path, target)
    return moved


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


def _clear(storage: Storage, staging: str) -> None:
    with suppress(OSError):  # vacuum removes orphans
        storage.delete(storage.list(staging).path.to_pylist())
        storage.remove_empty(staging)


# The order of rows inside a file on Spark: the layout continues down to row groups, as in `Assignment.arrange`. rows
# of a file ──sort──▶ slabs of whole row groups ──sort inside each──▶ thinner slabs ──▶ … ──▶ row groups The driver
# chooses from its sample of the file which columns are cut and into how many slabs. Slabs end after a fixed number of
# sorted rows, exactly where Spark, which cuts row groups by count, ends a row group. Boundaries estimated from the
# sample would leave a few rows in a neighbouring row group and widen its ranges.

_UNIT, _FIRST = "__zskip_unit", "__zskip_first"


def _arranged(
    rows: DataFrame,
    routing: Routing,
    sample: pa.Table,
    total_rows: int,
    row_group_rows: int,
    file: str,
    leading: Sequence[Column],
) -> DataFrame:
    """The rows sorted within partitions so that every ``row_group_rows`` rows of a file have narrow ranges.

    Each partition must hold a single file, whose number is in the column ``file``. ``sample``: a sample of the table's
    ``total_rows`` · ``leading``: sort keys that come first, equal for all rows of a file.
    """
    from pyspark.sql import functions as f

    columns, places = union_of_columns(routing.assignments)
    if routing.assignments[0].layout == "linear":
        return rows.sortWithinPartitions(*leading, *map(leaf_column, columns))
    first_unit, levels = _cuts(routing, places, sample, total_rows, row_group_rows)
    if len(first_unit) - 1 == first_unit[-1]:  # one row group per file
        return rows.sortWithinPartitions(*leading) if leading else rows
    # The lower 33 bits are the row's position in its partition, from 0.
    place = f.monotonically_increasing_id().bitwiseAND(f.lit((1 << 33) - 1))
    most = np.diff(first_unit) - 1
    number = f.col(file)
    unit = lookup(first_unit[:-1], number)
    for depth, level in enumerate(levels):
        if depth:
            rank = f.least(f.floor(place / row_group_rows).cast("int"), lookup(most, number))
            unit = lookup(first_unit[:-1], number) + rank
        rows = rows.withColumn(_UNIT, unit).withColumn(_FIRST, lookup(level.first, f.col(_UNIT)))
        chosen = lookup(level.column, f.col(_UNIT))
        # Each node compares one column: the others are NULL within it.
        compared = np.unique(level.column).tolist()
        values = [
            leaf_column(columns[one]) if len(compared) == 1 else f.when(chosen == one, leaf_column(columns[one]))
            for one in compared
        ]
        outer = leading if depth == len(levels) - 1 else []
        rows = rows.sortWithinPartitions(*outer, f.col(_FIRST), *values)
    return rows.drop(_UNIT, _FIRST)


def _cuts(
    routing: Routing, places: Sequence[np.ndarray], sample: pa.Table, total_rows: int, row_group_rows: int
) -> tuple[np.ndarray, list[SlabLevel]]:
    """The number of each file's first row group, counted over all files, and the cuts of each level.

    ``places``: the positions of each assignment's columns among those of all assignments; the cuts refer to the latter.
    """
    numbers = routing.route(sample)
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=routing.files))
    ordered = sample.take(pa.array(order))
    share = total_rows / max(1, sample.num_rows)
    counts = np.diff(ends, prepend=0)
    units = np.maximum(1, np.ceil(counts * share / row_group_rows)).astype(np.int64)
    first = offsets_of(units)
    plans = [
        _slabs(routing, places, number, ordered.slice(end - count, count), groups)
        for number, (end, count, groups) in enumerate(zip(ends.tolist(), counts.tolist(), units.tolist(), strict=True))
    ]
    levels = []
    for depth in range(max(map(len, plans), default=0) or 1):
        # A file with fewer levels repeats its last one.
        parts = [plan[min(depth, len(plan) - 1)] for plan in plans]
        nodes = np.concatenate([part.first + start for part, start in zip(parts, first.tolist(), strict=False)])
        levels.append(SlabLevel(nodes.astype(np.int32), np.concatenate([part.column for part in parts])))
    return first, levels


def _slabs(
    routing: Routing, places: Sequence[np.ndarray], file: int, rows: pa.Table, row_groups: int
) -> list[SlabLevel]:
    number = routing.partition_of(file)
    cuts = routing.assignments[number].slabs(rows, row_groups)
    one = SlabLevel(np.zeros(row_groups, np.int32), np.zeros(row_groups, np.int32))
    return [SlabLevel(cut.first, places[number][cut.column]) for cut in cuts or [one]]


# Counting and sampling a DataFrame before it is written.

_HEAD_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Sampled:
    """A sample of ``total`` rows, with the columns that the layout reads.

    ``keys``: the partitions, as in `Routing` · ``counts``: their row counts · ``values``: their values, one row each
    """

    rows: pa.Table
    total: int
    keys: list[tuple[str, ...]]
    counts: list[int]
    values: pa.Table


def count_and_sample(rows: DataFrame, schema: Schema, options: WriteOptions) -> Sampled:
    total, keys, counts, values = _partitions(rows, schema, options)
    existing = [name for name in fitted_columns(schema, options) if name in rows.columns]
    size = sample_size(options.files or (total // options.rows_per_file if options.rows_per_file else 0))
    return Sampled(_sample(rows, schema.arrow, existing, size, total, options.seed), total, keys, counts, values)


def _sample(rows: DataFrame, schema: pa.Schema, columns: Sequence[str], size: int, total: int, seed: int) -> pa.Table:
    """About ``size`` of the ``total`` rows with these columns; all rows if there are no more than ``size``."""
    arrow = pa.schema([schema.field(name).with_nullable(True) for name in columns])
    if not total or not columns:
        return arrow.empty_table()
    selected = rows.select(*[column(name) for name in columns])
    if total > size:
        selected = selected.sample(fraction=size / total, seed=seed)
    return _in_utc(selected.toArrow()).cast(arrow)


def fit(
    rows: DataFrame, sampled: Sampled, schema: Schema, options: WriteOptions, look_ups: ReadLookUps | None
) -> Routing:
    """Fit a routing to the sample. ``look_ups``: those of the table that the rows join"""
    by = [found.path for found in schema.orderable(options.by)]
    counts = dict(zip(sampled.keys, sampled.counts, strict=True))
    return fitted(sampled.rows, by, counts, _files(rows, sampled.total, options), options, look_ups)


def _partitions(
    rows: DataFrame, schema: Schema, options: WriteOptions
) -> tuple[int, list[tuple[str, ...]], list[int], pa.Table]:
    if not options.partition_by:
        total = rows.count()
        return total, [()], [total], pa.table({})
    names = list(options.partition_by)
    counted = rows.groupBy(*[column(name) for name in names]).count().toArrow()
    values = counted.select(names).cast(pa.schema([schema.arrow.field(name).with_nullable(True) for name in names]))
    keys, numbers = partition_numbers(values, names)
    order = np.argsort(numbers)
    counts = np.asarray(counted["count"])[order].astype(np.int64).tolist()
    return sum(counts), keys if counts else [], counts, values.take(pa.array(order))


def _files(rows: DataFrame, total: int, options: WriteOptions) -> int:
    if not options.sized_by_bytes:
        return options.file_count(total, 0.0)
    head = _in_utc(rows.limit(_HEAD_ROWS).toArrow())
    if not head.num_rows:
        return 1
    return options.file_count(total, stored_bytes(head, fitted_encoding(head, options.compression)) / head.num_rows)


def _in_utc(rows: pa.Table) -> pa.Table:
    """The rows with instants in UTC: Spark returns them in the session's time zone."""
    fields = [
        field.with_type(pa.timestamp("us", "UTC"))
        if t.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
