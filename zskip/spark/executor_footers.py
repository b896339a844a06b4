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
from zskip.core.schema import Schema
from zskip.errors import ZskipError
from zskip.parquet import footers, from_rows
from zskip.spark import float_statistics
from zskip.spark.hadoop import HadoopStorage
from zskip.stats import DataFiles
from zskip.storage import Listing, Storage
from zskip.writer.evolution import united

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["chunks_of", "on_executors", "read_footers", "read_foreign_footers"]

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
        return float_statistics.with_float_statistics(spark, storage, _floats_of(schema), files)
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
