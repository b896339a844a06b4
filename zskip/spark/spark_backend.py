"""A Spark session as the `Backend` of changes to a table: sample → fit → native file numbers → one task per file.

    DataFrame ──sample──▶ driver: layouts.fit ──▶ constant arrays
        └── file number, order (native) ──▶ repartitionById ──▶ sortWithinPartitions ──▶ _zskip/staging-…/ ──▶ table

Spark's commit protocol fills a staging folder without files of failed or speculative tasks. Then the files are moved
into the table and their footers are read. The commit is the same as for every backend.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.errors import InvalidOption, MissingDependency, SchemaError, UnsupportedSql
from zskip.plan import find_survivors
from zskip.plan.scan import Scan
from zskip.spark import staging
from zskip.spark.executor_footers import chunks_of, on_executors
from zskip.spark.hadoop import HadoopStorage, open_storage
from zskip.spark.handoff import column, read_files
from zskip.spark.spark_session import Semantics, clocks_of, require_java, require_pyspark, require_session, setting
from zskip.spark.spark_types import arrow_schema, spark_schema
from zskip.stats import DataFiles
from zskip.storage import Staged, Storage
from zskip.tablelog.index import Index
from zskip.tablelog.parts import Drafts
from zskip.tablelog.segments import new_ids
from zskip.tablelog.sketches import named_sketches
from zskip.tablelog.snapshot import SketchRecord
from zskip.writer.backend import Backend
from zskip.writer.look_ups import ReadLookUps
from zskip.writer.options import WriteOptions
from zskip.writer.refresh_joins import attributes_of_file, paths_and_row_counts, with_attributes
from zskip.writer.sketching import keys_of_file, segments_of
from zskip.writer.star import Star
from zskip.writer.storable import storable_rows, storable_schema
from zskip.writer.write import Written

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


_LOCAL_OPTIONS = ("memory_limit", "temp_directory", "threads")


def active_session() -> SparkSession:
    """The active session, or a new local one. Raises `MissingDependency` if pyspark or Java is missing."""
    require_pyspark()
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
        return active
    require_java()
    return SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()


def backend(session: SparkSession) -> Backend:
    """The backend that runs on a Spark session. Raises `MissingDependency` if pyspark is missing or too old."""
    require_session(session)
    from pyspark.sql import DataFrame

    if not hasattr(DataFrame, "repartitionById"):
        raise MissingDependency(
            "Writing tables needs Spark 4.1 or later: pip install 'pyspark>=4.1'. Reading does not."
        )
    return Backend(
        open_storage=partial(open_storage, session),
        open_rows=partial(_open_rows, session),
        rows_of_scan=partial(_rows_of_scan, session),
        count=lambda scan: _rows_of_scan(session, scan, scan.schema.arrow).df.count(),
        rows_of_files=partial(_rows_of_files, session),
        write=_write,
        map=partial(_map_items, session),
        timezone=lambda: Semantics.of(session).require_zone(),
        clocks=clocks_of(session),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """A DataFrame to write. ``schema``: the storable types of its rows."""

    df: DataFrame
    schema: pa.Schema


def _open_rows(session: SparkSession, source: Any, storage_options: Mapping[str, Any] | None) -> _Rows:
    from pyspark.sql import DataFrame

    if isinstance(source, pa.Table):
        schema = storable_schema(source.schema)
        _require_writable(schema)
        return _Rows(session.createDataFrame(storable_rows(source, schema), spark_schema(schema)), schema)
    if not isinstance(source, DataFrame):
        raise InvalidOption(
            "Spark writes DataFrames of its own and Arrow tables, not "
            f"{type(source).__module__}.{type(source).__name__}. Read it with Spark."
        )
    return _Rows(source, storable_schema(arrow_schema(source.schema)))


def collected(df: DataFrame) -> pa.Table:
    """All rows of a DataFrame on this machine, in the types in which Spark would write them: instants are in UTC."""
    return df.toArrow().cast(arrow_schema(df.schema))


def _rows_of_scan(session: SparkSession, scan: Scan, schema: pa.Schema) -> _Rows:
    """The rows that a scan selects, under the time zone and ANSI mode of its predicate, not the session's."""
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


def _rows_of_files(session: SparkSession, index: Index, numbers: np.ndarray) -> _Rows:
    return _rows_of_scan(session, find_survivors(index, None).narrowed(numbers).scan, index.snapshot.schema.arrow)


def _require_writable(schema: pa.Schema) -> None:
    """Raise `SchemaError` for a column that Spark would write back as another type."""
    for field in schema:
        back = arrow_schema(spark_schema(pa.schema([field]))).field(0).type
        if _stored_type(field.type) != _stored_type(back):
            raise SchemaError(
                f'Spark would write the column "{field.name}" of type {field.type} back as {back}. '
                "Cast it, or leave the session out."
            )


def _stored_type(type: pa.DataType) -> pa.DataType:
    """A type without details that the index keeps, not the file: time zone, dictionary, names of a list's items."""
    if t.is_timestamp(type):
        return pa.timestamp(type.unit, None if type.tz is None else "UTC")
    if t.is_dictionary(type):
        return _stored_type(type.value_type)
    if t.is_struct(type):
        return pa.struct([pa.field(one.name, _stored_type(one.type)) for one in type])
    if t.is_map(type):
        return pa.map_(_stored_type(type.key_type), pa.field("value", _stored_type(type.item_type)))
    if t.is_list(type):
        return pa.list_(pa.field("element", _stored_type(type.value_type)))
    return type


def _write(
    rows: _Rows,
    storage: Storage,
    schema: Schema,
    options: WriteOptions,
    look_ups: ReadLookUps | None,
    staged: Staged,
) -> Written:
    """`write_files` on the cluster. The DataFrame is evaluated three times: to count, to sample and to write."""
    local_options = [name for name in _LOCAL_OPTIONS if getattr(options, name) is not None]
    if local_options:
        raise InvalidOption(f"{local_options[0]}= is this machine's. Spark's own settings say what a session may use.")
    if not options.by and not options.workload:
        raise InvalidOption("by= names no column. Name at least one column to cluster by.")
    if isinstance(storage, HadoopStorage):
        storage.require_writable()  # fail before the work
    df = _conformed(rows.df, schema, options)
    star = None if options.star is None else options.star(storage)
    if star is not None:
        star.require_distinct_names(schema)
    joined, wide = (df, schema) if star is None else _joined(df, schema, star)
    sampled = staging.count_and_sample(joined, wide, options)
    routing = staging.fit(df, sampled, wide, options, look_ups)
    length = max(1, -(-sampled.total // max(routing.files, 1)))
    files = staging.write(joined, storage, schema, options, routing, sampled, length, staged)
    if star is not None:
        files = _with_attributes(df.sparkSession, storage, schema, options, files, star)
    files, sketches = _sketched(df.sparkSession, storage, schema, options, files, staged)
    return Written(routing, files, pc.sum(files.files.row_count, min_count=0).as_py(), length, sketches)


def _conformed(df: DataFrame, schema: Schema, options: WriteOptions) -> DataFrame:
    """The rows cast to the table's types. Of the columns that they lack, those that the layout reads are added, NULL in
    all rows; readers fill the others with NULL."""
    from pyspark.sql import functions as f

    given = {field.name: field.dataType for field in df.schema}
    read = {*(schema.columns[path].parts[0] for path in options.by if path in schema.columns), *options.partition_by}
    return df.select(
        *(
            _as(column(field.name), given[field.name], field.dataType).alias(field.name)
            if field.name in given
            else f.lit(None).cast(field.dataType).alias(field.name)
            for field in spark_schema(schema.arrow)
            if field.name in given or field.name in read
        )
    )


def _as(values: Column, given: DataType, wanted: DataType) -> Column:
    """Values cast to another type, with struct fields matched by name: Spark's own cast matches them by position."""
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


# Dimensions: the layout needs their attributes of each row, and the index those of each file.


def _joined(df: DataFrame, schema: Schema, star: Star) -> tuple[DataFrame, Schema]:
    """The rows with the attributes of their dimensions as further columns, which each executor looks up by the keys."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructField, StructType

    wide = Schema(pa.schema([*schema.arrow, *star.attributes], metadata=schema.arrow.metadata))
    keys = pa.schema([schema.arrow.field(name) for name in star.keys])
    attributes = pa.schema(star.attributes)
    if not len(attributes):
        return df, wide
    # By position: in a struct, a dot in a name would be that of a field.
    fields = [pa.field(f"a{place}", field.type) for place, field in enumerate(attributes)]

    def found(*values: pa.Array) -> pa.Array:
        rows = pa.Table.from_arrays([*values], names=keys.names).cast(keys)
        named = star.with_attributes(rows, attributes.names).cast(attributes).combine_chunks()
        return pa.StructArray.from_arrays([each.combine_chunks() for each in named.columns], fields=fields)

    types = [
        StructField(field.name, each.dataType) for field, each in zip(fields, spark_schema(attributes), strict=True)
    ]
    look_up = f.arrow_udf(found, StructType(types))  # type: ignore[attr-defined]  # pyspark's stubs lack it
    rows = df.withColumn(_STAR, look_up(*map(column, keys.names)))
    named = [f.col(_STAR)[field.name].alias(name) for field, name in zip(fields, attributes.names, strict=True)]
    return rows.select(*map(column, df.columns), *named), wide


_STAR = "__zskip_star"


def _with_attributes(
    spark: SparkSession, storage: Storage, schema: Schema, options: WriteOptions, files: DataFiles, star: Star
) -> DataFiles:
    """Files with the ranges of their attributes, for which the executors read their keys again."""
    read = partial(attributes_of_file, storage, schema.arrow, tuple(options.partition_by), star)
    return with_attributes(files, star, list(_map_items(spark, storage, read, paths_and_row_counts(files), options)))


# Sketches of files that Spark wrote: the executors read the sketched columns, the driver sorts and writes segments.

_ITEMS_PER_TASK, _TASKS_AT_ONCE = 4, 64


def _sketched(
    spark: SparkSession, storage: Storage, schema: Schema, options: WriteOptions, files: DataFiles, staged: Staged
) -> tuple[DataFiles, tuple[SketchRecord, ...]]:
    """The files with ids, and the segments of the sketches that the options name. Without sketches, files get no ids.

    The driver holds the keys of at most 256 files at once, besides its memory for sorting. Raises `CorruptFile`.
    """
    names = named_sketches(options.sketches, schema)
    if not names:
        return files, ()
    files = replace(files, id=new_ids(len(files)))
    paths = files.path.to_pylist()
    read = partial(keys_of_file, storage, schema, tuple(options.partition_by), names)
    keys = _map_items(spark, storage, read, paths, options)
    return files, segments_of(Drafts(storage, staged), names, keys, paths, files.id.to_numpy(), options)


def _map_items(
    spark: SparkSession, storage: Storage, work: Callable[[Any], Any], items: Sequence[Any], options: WriteOptions
) -> Generator[Any, None, None]:
    """`Backend.map` on the executors; in the driver for files that only its Hadoop client reaches."""
    if isinstance(storage, HadoopStorage):
        yield from map(work, items)
        return
    for some in chunks_of(items, _ITEMS_PER_TASK * _TASKS_AT_ONCE):
        for found in on_executors(spark, partial(_all_of, work), chunks_of(some, _ITEMS_PER_TASK)):
            yield from found


def _all_of(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    return [work(item) for item in items]
