"""A Spark session as the engine of a table's changes: sample → fit → native file numbers → one task per file.

    DataFrame ──sample──▶ driver: layouts.fit ──▶ constant arrays
        └── file number, order (native) ──▶ repartitionById ──▶ sortWithinPartitions ──▶ _zskip/staging-…/ ──▶ table

Spark's own commit protocol fills a staging folder, in which no file of a failed or speculative task remains. Only then
are the files moved into the table and their footers read. The commit is everybody's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import layouts
from zskip import types as t
from zskip.errors import InvalidOption, MissingDependency, SchemaError, UnsupportedSql
from zskip.layouts import Assignment
from zskip.plan import find_survivors
from zskip.scan import Scan
from zskip.schema import Schema
from zskip.spark import sampling, staging
from zskip.spark.executor_sketches import each, sketched
from zskip.spark.hadoop import HadoopStorage, open_storage
from zskip.spark.handoff import arrow_schema, column, read_files, require_session, setting, spark_schema
from zskip.storage import Storage, abandon
from zskip.tablelog import Index
from zskip.writer import Routing, WriteOptions, Written, storable_schema
from zskip.writer.backend import Backend

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

__all__ = ["backend"]

_OF_THIS_MACHINE = ("memory_limit", "temp_directory", "threads")


def backend(session: SparkSession) -> Backend:
    """The engine that has a session do the work. Raises `MissingDependency` where pyspark is missing or too old."""
    require_session(session)
    from pyspark.sql import DataFrame

    if not hasattr(DataFrame, "repartitionById"):
        raise MissingDependency(
            "Writing tables needs Spark 4.1 or later: pip install 'pyspark>=4.1'. Reading does not."
        )
    opened, scanned, stored = (partial(way, session) for way in (_opened, _scanned, _stored))
    storage, on_executors = partial(open_storage, session), partial(each, session)
    return Backend(storage, opened, scanned, stored, _some, _write, on_executors, recuts_at_once=True)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A DataFrame on its way into a table. ``schema``: of a table that it is written to."""

    df: DataFrame
    schema: pa.Schema


def _opened(session: SparkSession, source: Any, storage_options: Mapping[str, Any] | None) -> _Rows:
    from pyspark.sql import DataFrame

    df = source
    if isinstance(source, pa.Table):
        df = session.createDataFrame(source)
    if not isinstance(df, DataFrame):
        raise InvalidOption(
            f"Spark writes DataFrames and Arrow tables, not {type(source).__name__}. Read it with Spark."
        )
    return _Rows(df, storable_schema(arrow_schema(df.schema)))


def _scanned(session: SparkSession, scan: Scan) -> _Rows:
    """The rows that a scan selects, by the predicate's own zone and mode, whatever the session's are."""
    schema = scan.schema.arrow
    _require_writable(schema)
    rows = read_files(session, scan, schema)
    if scan.predicate is not None:
        where = scan.predicate.sql("spark")
        if where is None:
            raise UnsupportedSql(
                'Spark\'s SQL cannot say this predicate with the same meaning. Say it with dialect="spark".',
                scan.predicate.text,
            )
        meaning = scan.predicate.dialect
        settings = {"spark.sql.session.timeZone": meaning.timezone, "spark.sql.ansi.enabled": str(meaning.ansi).lower()}
        with setting(session, settings):
            rows = rows.where(where)
    return _Rows(rows, schema)


def _stored(session: SparkSession, index: Index, numbers: np.ndarray) -> _Rows:
    return _scanned(session, find_survivors(index, None).narrowed(numbers).scan)


def _some(rows: _Rows, columns: Sequence[str], size: int, total: int, seed: int) -> pa.Table:
    return sampling.some(rows.df, rows.schema, columns, size, total, seed)


def _require_writable(schema: pa.Schema) -> None:
    """Raises `SchemaError` for a column that Spark would write back as another type."""
    for field in schema:
        back = arrow_schema(spark_schema(pa.schema([field]))).field(0).type
        if _essence(field.type) != _essence(back):
            raise SchemaError(
                f'Spark would write the column "{field.name}" of type {field.type} back as {back}. '
                "Change this table without a session."
            )


def _essence(type: pa.DataType) -> pa.DataType:
    """A type without what the index keeps beside the file: an instant's zone, a dictionary, the names in a list."""
    if t.is_timestamp(type):
        return pa.timestamp(type.unit, None if type.tz is None else "UTC")
    if t.is_dictionary(type):
        return _essence(type.value_type)
    if t.is_struct(type):
        return pa.struct([pa.field(one.name, _essence(one.type)) for one in type])
    if t.is_map(type):
        return pa.map_(_essence(type.key_type), pa.field("value", _essence(type.item_type)))
    if t.is_list(type):
        return pa.list_(pa.field("element", _essence(type.value_type)))
    return type


def _write(
    rows: _Rows,
    storage: Storage,
    schema: Schema,
    options: WriteOptions,
    routing: Routing | None,
    rows_per_file: int | None,
    slots: Sequence[tuple[int, int]] | None,
) -> Written:
    """As `write_files`, on the cluster. The DataFrame is run three times: counted, sampled and written."""
    local_options = [name for name in _OF_THIS_MACHINE if getattr(options, name) is not None]
    if local_options:
        raise InvalidOption(f"{local_options[0]}= is this machine's. Spark's own settings say what a session may use.")
    if not options.by:
        raise InvalidOption("by= names no column. Name at least one column to cluster by.")
    if isinstance(storage, HadoopStorage):
        storage.require_writable()  # before the work, not after it
    df = _conformed(rows.df, schema)
    sampled = sampling.look(df, schema, options, routing)
    if routing is None:
        routing = sampling.fit(df, sampled, schema, options)
        rows_per_file = max(1, -(-sampled.total // max(routing.files, 1)))
    else:
        routing = routing.extended(sampled.keys, _one_file(routing, schema))
    length = rows_per_file or max(1, sampled.total)
    files = staging.write(df, storage, schema, options, routing, sampled, length, slots)
    try:
        files, sketches = sketched(df.sparkSession, storage, schema, options, files)
    except BaseException:
        abandon(storage, files.path.to_pylist())
        raise
    return Written(routing, files, pc.sum(files.files.row_count, min_count=0).as_py(), length, sketches)


def _conformed(df: DataFrame, schema: Schema) -> DataFrame:
    """The rows in the table's types; columns that they lack stay away, and are NULL."""
    given = {field.name: field.dataType for field in df.schema}
    return df.select(
        *(
            _as(column(field.name), given[field.name], field.dataType).alias(field.name)
            for field in spark_schema(schema.arrow)
            if field.name in given
        )
    )


def _as(values: Column, given: DataType, wanted: DataType) -> Column:
    """Values in another type. The fields of structs are found by name: Spark's own cast goes by their places."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    if given.simpleString() == wanted.simpleString():
        return values
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        given_types = {field.name: field.dataType for field in given}
        fields = [
            _as(values.getField(field.name), given_types[field.name], field.dataType)
            if field.name in given_types
            else f.lit(None).cast(field.dataType)
            for field in wanted
        ]
        named = f.struct(*(value.alias(field.name) for value, field in zip(fields, wanted, strict=True)))
        return f.when(values.isNotNull(), named)
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return f.transform(values, lambda value: _as(value, given.elementType, wanted.elementType))
    if isinstance(given, MapType) and isinstance(wanted, MapType) and given.keyType == wanted.keyType:
        return f.transform_values(values, lambda _, value: _as(value, given.valueType, wanted.valueType))
    return values.cast(wanted)


def _one_file(routing: Routing, schema: Schema) -> Assignment:
    """An assignment for partitions that no one has fitted: one file each."""
    like = routing.assignments[0]
    return layouts.fit(schema.arrow.empty_table(), list(like.columns), layout=like.layout, files=1, total_rows=0)
