"""Reading footers on the executors, for folders and writes with more files than one machine reads quickly."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import Column, Schema, identifier
from zskip.errors import CorruptFile, ZskipError
from zskip.parquet import footers, from_rows
from zskip.spark.hadoop import HadoopStorage
from zskip.spark.handoff import manifest, spark_uri
from zskip.spark.spark_session import setting
from zskip.spark.spark_types import spark_schema
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics, hull
from zskip.storage import Listing, Storage
from zskip.writer.evolution import united

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession


Item = TypeVar("Item")
Result = TypeVar("Result")

_FEWEST_FILES_FOR_EXECUTORS = 2000
_FILES_PER_TASK = 500


def read_footers(spark: SparkSession, storage: Storage, paths: Sequence[str], schema: Schema) -> DataFiles:
    """The statistics of files that Spark wrote: from their footers, and for floating-point columns from their rows.

    Many files are read on the executors, which need zskip installed. Files that only the driver's Hadoop client reaches
    are read in the driver, their rows by Spark's own scan. Raises `CorruptFile`.
    """
    if isinstance(storage, HadoopStorage):
        _, files = footers.read(storage, list(paths), schema)
        return _with_float_statistics(spark, storage, _floats_of(schema), files)
    if len(paths) < _FEWEST_FILES_FOR_EXECUTORS:
        return _footers_and_float_statistics(storage, schema, list(paths))
    work = partial(_footers_and_float_statistics, storage, schema)
    return DataFiles.concat(on_executors(spark, work, chunks_of(paths, _FILES_PER_TASK)))


def read_foreign_footers(
    spark: SparkSession, storage: Storage, listing: Listing, *, files_per_task: int, deep_scan: bool
) -> tuple[Schema, DataFiles]:
    """The common schema of files of any writer, and the statistics in their footers, sorted by path bytes.

    Files that only the driver's Hadoop client reaches are read in the driver. Raises `CorruptFile` and
    `SchemaMismatch`.
    """
    paths = sorted(listing.path.to_pylist(), key=str.encode)
    if isinstance(storage, HadoopStorage):
        table, files = footers.read(storage, paths, listing=listing)
        return table, from_rows.with_statistics_from_rows(storage, table, files) if deep_scan else files
    chunks = chunks_of(paths, files_per_task)
    found = on_executors(spark, partial(_foreign, storage, arrow=None, deep_scan=deep_scan), chunks)
    schemas = [schema for schema, _ in found]
    if any(not schema.equals(schemas[0]) for schema in schemas):
        # Read again: statistics have the table's types, which depend on the files of all chunks.
        union = united([(chunk[0], schema) for chunk, schema in zip(chunks, schemas, strict=True)])
        found = on_executors(spark, partial(_foreign, storage, arrow=union, deep_scan=deep_scan), chunks)
    files = DataFiles.concat([files for _, files in found])
    # Sizes and times come from the listing, which is older than the footers: a file replaced since counts as changed.
    listed = listing.take(np.asarray(pc.index_in(files.path, listing.path)).astype(np.int64))
    return Schema(found[0][0]), replace(files, size=listed.size, modified=listed.modified, etag=listed.etag)


def chunks_of(items: Sequence[Item], length: int) -> list[list[Item]]:
    """The items in lists of at most ``length``."""
    return [list(items[start : start + length]) for start in range(0, len(items), length)]


def on_executors(spark: SparkSession, work: Callable[[list[Item]], Result], chunks: list[list[Item]]) -> list[Result]:
    """The result of ``work`` for each chunk, in order. Raises the first `ZskipError` that ``work`` raises."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = [pickle.dumps(_outcome(work, pickle.loads(chunk))) for chunk in batch.column("chunk").to_pylist()]
            yield pa.record_batch({"number": batch.column("number"), "result": pa.array(results, pa.binary())})

    rows = pa.table({"number": list(range(len(chunks))), "chunk": [pickle.dumps(chunk) for chunk in chunks]})
    given = spark.createDataFrame(rows).repartitionByRange(len(chunks), "number")
    table = given.mapInArrow(run, "number bigint, result binary").toArrow().sort_by("number")
    outcomes: list[Result | ZskipError] = [pickle.loads(result) for result in table["result"].to_pylist()]
    for outcome in outcomes:
        if isinstance(outcome, ZskipError):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, ZskipError)]


def _outcome(work: Callable[[list[Item]], Result], items: list[Item]) -> Result | ZskipError:
    try:
        return work(items)
    except ZskipError as error:
        return error


def _footers_and_float_statistics(storage: Storage, schema: Schema, paths: list[str]) -> DataFiles:
    _, files = footers.read(storage, paths, schema)
    return from_rows.with_statistics_from_rows(storage, _floats_of(schema), files)


def _foreign(
    storage: Storage, paths: list[str], arrow: pa.Schema | None, deep_scan: bool
) -> tuple[pa.Schema, DataFiles]:
    table, files = footers.read(storage, paths, None if arrow is None else Schema(arrow))
    return table.arrow, from_rows.with_statistics_from_rows(storage, table, files) if deep_scan else files


def _floats_of(schema: Schema) -> Schema:
    return Schema(pa.schema([field for field in schema.arrow if _holds_floats(field.type)]))


def _holds_floats(type: pa.DataType) -> bool:
    if t.is_struct(type):
        return any(_holds_floats(type.field(index).type) for index in range(type.num_fields))
    return bool(t.is_floating(type))


# Statistics that footers lack for floating-point columns, such as NaN counts, aggregated by Spark from the rows.
# Spark's own scan reads these columns of files that Python cannot reach.

_FILE, _ROW, _GROUP, _COUNT, _STARTS = (f"__zskip_{name}" for name in ("file", "row", "group", "count", "starts"))


def _with_float_statistics(spark: SparkSession, storage: Storage, schema: Schema, files: DataFiles) -> DataFiles:
    """The files with the bounds and the NULL and NaN counts of each row group's floating-point columns.

    ``schema``: the top-level columns that hold them. Spark must have written the files with exactly these types. File
    names must be unique, because Spark and Hadoop spell paths differently. Raises `CorruptFile` if row counts differ
    from the footers'.
    """
    floats = [column for column in schema if t.is_floating(column.type) and column.path in files.row_groups.columns]
    if not floats or not len(files):
        return files
    uris = [spark_uri(storage, path) for path in files.path.to_pylist()]
    names = pc.replace_substring_regex(files.path, r"^.*/", "")
    with manifest(list(zip(uris, files.size.to_pylist(), strict=True))) as folder:
        rows = spark.read.schema(spark_schema(schema.arrow)).option("recursiveFileLookup", "true").parquet(folder)
    with setting(spark, {"spark.sql.ansi.enabled": "false"}):
        found = _aggregated(spark, rows, floats, files, names).toArrow()
    number = np.asarray(pc.index_in(found[_FILE], value_set=names))
    unit = files.first_row_group[number] + np.asarray(found[_GROUP], dtype=np.int64)
    order = np.argsort(unit)
    counts = np.asarray(files.row_groups.row_count)
    filled = np.flatnonzero(counts)
    if not np.array_equal(unit[order], filled) or not np.array_equal(np.asarray(found[_COUNT])[order], counts[filled]):
        raise CorruptFile(f"The files that were just written to {storage.uri} have other rows than their footers say.")
    place = np.zeros(len(counts), np.int64)
    place[filled] = order
    columns = dict(files.row_groups.columns)
    for position, column in enumerate(floats):
        columns[column.path] = _column_statistics(found, position, column, pa.array(place, mask=counts == 0))
    row_groups = FileStatistics(files.row_groups.row_count, columns)
    owner = np.repeat(np.arange(len(files)), np.diff(files.first_row_group))
    return replace(files, row_groups=row_groups, files=hull(row_groups, owner, len(files)))


def _aggregated(
    spark: SparkSession, rows: DataFrame, floats: Sequence[Column], files: DataFiles, names: pa.StringArray
) -> DataFrame:
    """One row for each row group: its file's name, its number in the file, its row count and statistics."""
    from pyspark.sql import functions as f

    name = f.substring_index(f.col("_metadata.file_path"), "/", -1)
    rows = rows.withColumns({_FILE: name, _ROW: f.col("_metadata.row_index")})
    lengths = np.asarray(files.row_groups.row_count)
    last = np.zeros(len(lengths), bool)
    last[files.first_row_group[1:][np.diff(files.first_row_group) > 0] - 1] = True
    inner = np.unique(lengths[~last])
    if len(inner) <= 1:
        length = int(inner[0]) if len(inner) else int(lengths.max(initial=1))
        group = f.floor(f.col(_ROW) / max(length, 1)).cast("bigint")
    else:
        # Row groups were cut by size: join the first row of each row group of a file.
        ends = np.cumsum(lengths)
        first = np.split(ends - lengths, files.first_row_group[1:-1])
        starts = pa.array([(each - each[:1].sum()).tolist() for each in first], pa.list_(pa.int64()))
        known = spark.createDataFrame(pa.table({_FILE: names, _STARTS: starts}))
        rows = rows.join(f.broadcast(known), _FILE)
        group = (f.size(f.filter(f.col(_STARTS), lambda start: start <= f.col(_ROW))) - 1).cast("bigint")
    wanted: list[Expression] = [f.count(f.lit(1)).alias(_COUNT)]
    for position, column in enumerate(floats):
        value = f.col(identifier(*column.parts, dialect="spark"))
        number = f.when(~f.isnan(value), value)
        wanted += [
            f.min(number).alias(f"lower{position}"),
            f.max(number).alias(f"upper{position}"),
            f.count_if(value.isNull()).alias(f"nulls{position}"),
            f.count_if(f.isnan(value)).alias(f"nans{position}"),
        ]
    return rows.groupBy(f.col(_FILE), group.alias(_GROUP)).agg(*wanted)


def _column_statistics(found: pa.Table, position: int, column: Column, place: pa.Int64Array) -> ColumnStatistics:
    lower, upper, nulls, nans = (
        found[f"{name}{position}"].combine_chunks().take(place) for name in ("lower", "upper", "nulls", "nans")
    )
    nulls, nans = (
        pc.fill_null(count, 0).cast(pa.int64()) for count in (nulls, nans)
    )  # null for row groups without rows
    exact = pc.if_else(pc.is_valid(lower), True, pa.scalar(None, pa.bool_()))
    return ColumnStatistics(lower.cast(column.type), upper.cast(column.type), nulls, nans, exact, exact)
