"""Footers read on the executors: for folders and writes with more files than one machine reads quickly."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import types as t
from zskip.errors import ZskipError
from zskip.parquet import footers, from_rows
from zskip.schema import Schema
from zskip.spark import floats
from zskip.spark.hadoop import HadoopStorage
from zskip.stats import DataFiles
from zskip.storage import Listing, Storage
from zskip.writer.evolution import united

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["chunks_of", "on_executors", "read_footers", "read_foreign_footers"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_MANY = 2000
_PER_TASK = 500


def read_footers(spark: SparkSession, storage: Storage, paths: Sequence[str], schema: Schema) -> DataFiles:
    """What the footers of files that Spark wrote tell; and of columns that hold NaN, what the rows tell.

    On the executors where there are many files; those need zskip installed. What only the driver's Hadoop client
    reaches is read in the driver, and by Spark's own scan. Raises `CorruptFile`.
    """
    if isinstance(storage, HadoopStorage):
        _, files = footers.read(storage, list(paths), schema)
        return floats.with_float_statistics(spark, storage, _with_floats(schema), files)
    if len(paths) < _MANY:
        return _complete(storage, list(paths), schema)
    work = partial(_complete_files, storage, arrow=schema.arrow)
    return DataFiles.concat(on_executors(spark, work, chunks_of(paths, _PER_TASK)))


def read_foreign_footers(
    spark: SparkSession, storage: Storage, listing: Listing, *, files_per_task: int, deep_scan: bool
) -> tuple[Schema, DataFiles]:
    """The schema of files that anyone wrote, and what their footers tell, in the order of the paths' bytes.

    What only the driver's Hadoop client reaches is read in the driver. Raises `CorruptFile` and `SchemaMismatch`.
    """
    paths = sorted(listing.path.to_pylist(), key=str.encode)
    if isinstance(storage, HadoopStorage):
        table, files = footers.read(storage, paths, listing=listing)
        return table, from_rows.with_statistics_from_rows(storage, table, files) if deep_scan else files
    chunks = chunks_of(paths, files_per_task)
    found = on_executors(spark, partial(_foreign, storage, arrow=None, deep_scan=deep_scan), chunks)
    schemas = [schema for schema, _ in found]
    if any(not schema.equals(schemas[0]) for schema in schemas):
        # Statistics are kept in the table's types, which no part alone can know.
        union = united([(chunk[0], schema) for chunk, schema in zip(chunks, schemas, strict=True)])
        found = on_executors(spark, partial(_foreign, storage, arrow=union, deep_scan=deep_scan), chunks)
    files = DataFiles.concat([files for _, files in found])
    # As they were listed, before anything was read: a file that is replaced meanwhile is then seen to have changed.
    listed = listing.take(np.asarray(pc.index_in(files.path, listing.path)).astype(np.int64))
    return Schema(found[0][0]), replace(files, size=listed.size, modified=listed.modified, etag=listed.etag)


def chunks_of(items: Sequence[Item], length: int) -> list[list[Item]]:
    """The items in lists of so many."""
    return [list(items[start : start + length]) for start in range(0, len(items), length)]


def on_executors(spark: SparkSession, work: Callable[[list[Item]], Result], chunks: list[list[Item]]) -> list[Result]:
    """The results of the work on each chunk of items, in their order. An error that it raises is raised here."""

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


def _complete(storage: Storage, paths: list[str], schema: Schema) -> DataFiles:
    _, files = footers.read(storage, paths, schema)
    return from_rows.with_statistics_from_rows(storage, _with_floats(schema), files)


def _complete_files(storage: Storage, paths: list[str], arrow: pa.Schema) -> DataFiles:
    return _complete(storage, paths, Schema(arrow))


def _foreign(
    storage: Storage, paths: list[str], arrow: pa.Schema | None, deep_scan: bool
) -> tuple[pa.Schema, DataFiles]:
    table, files = footers.read(storage, paths, None if arrow is None else Schema(arrow))
    return table.arrow, from_rows.with_statistics_from_rows(storage, table, files) if deep_scan else files


def _with_floats(schema: Schema) -> Schema:
    return Schema(pa.schema([field for field in schema.arrow if _holds_floats(field.type)]))


def _holds_floats(type: pa.DataType) -> bool:
    if t.is_struct(type):
        return any(_holds_floats(type.field(index).type) for index in range(type.num_fields))
    return bool(t.is_floating(type))
