"""Columns of indexed folders in the types that ``spark.read.parquet`` infers from the same files.

    first file ──row metadata of Spark, else Parquet types──▶ columns
    names of folders ──`HiveRule`──▶ partition columns

zskip's index has the types that Arrow and DuckDB infer. Where Spark's have other values, nothing is proved by the
column (`spark_types.OPAQUE`): Spark itself still skips hive folders.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.errors import SchemaError
from zskip.parquet.arrow_differences import with_parquet_types
from zskip.parquet.footers import opened
from zskip.parquet.instants import by_leaf, holds_int96, in_utc
from zskip.spark.hive_values import HiveRule, values_of
from zskip.spark.spark_types import spark_schema, with_spark_type
from zskip.storage import hive
from zskip.table import Table
from zskip.tablelog import SOURCE_FORMATS, Index, Snapshot, listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
_TYPED = b"zskip.spark_types"
# Sources of an index that give the types of its columns.
_RECORDED = {"statistics", *SOURCE_FORMATS}
_MOST_FOOTERS = 16


@dataclass(frozen=True, slots=True)
class Inference:
    """The settings of a session on which the types depend that Spark infers.

    ``int96``: whether INT96 can be read · ``clocks``: whether a timestamp without a zone is TIMESTAMP_NTZ · ``texts``:
    whether binary columns are strings.
    """

    hive: HiveRule
    int96: bool
    clocks: bool
    texts: bool

    @staticmethod
    def of(spark: SparkSession) -> Inference:
        from pyspark.sql import types

        def is_set(name: str, default: str) -> bool:
            return str(spark.conf.get(f"spark.sql.{name}", default)).lower() == "true"

        clock = str(spark.conf.get("spark.sql.timestampType", "TIMESTAMP_LTZ")).upper()
        has_time = hasattr(types, "TimeType") and is_set("timeType.enabled", "true")
        return Inference(
            HiveRule(
                is_set("sources.partitionColumnTypeInference.enabled", "true"),
                "timestamp_ntz" if clock == "TIMESTAMP_NTZ" else "timestamp",
                has_time,
            ),
            is_set("parquet.int96AsTimestamp", "true"),
            is_set("parquet.inferTimestampNTZ.enabled", "true"),
            is_set("parquet.binaryAsString", "false"),
        )

    def leaf(self, type: pa.DataType, stored: pq.ColumnSchema) -> pa.DataType:
        """The Arrow type for what Spark infers for a leaf of a file that does not record Spark's types."""
        if t.is_timestamp(type):
            return in_utc(type) if stored.physical_type == "INT96" or not self.clocks else type
        text = self.texts and stored.logical_type.type == "NONE" and stored.physical_type == "BYTE_ARRAY"
        is_text = text or stored.converted_type in ("ENUM", "JSON")
        return pa.string() if is_text else type


def with_spark_types(table: Table, rule: Inference) -> Table:
    """The table with its columns in the types of ``spark.read.parquet``; see `in_spark_types`."""
    index = in_spark_types(table._index, rule)
    return table if index is table._index else Table(table._index.storage, index.snapshot)


def in_spark_types(index: Index, rule: Inference) -> Index:
    """An index with its columns in the types of ``spark.read.parquet``, without the sketches of those that change.

    Only folders that zskip indexed change, and the hive columns of those that it laid out in place, since it kept their
    names: tables that zskip wrote and tables of other formats record their types. The folder is listed, because a file
    that is not in the index yet can widen a partition column. Raises `CorruptFile`.
    """
    snapshot = index.snapshot
    arrow = snapshot.schema.arrow
    recorded = _records_types(snapshot)
    if snapshot.details.get("source") in _RECORDED or _TYPED in (arrow.metadata or {}) or recorded:
        return index
    changes = listed(index)
    paths = index.paths(np.arange(len(index), dtype=np.int64)) if changes is None else changes.listing.path
    in_files = {} if snapshot.managed else _in_files(index, paths, rule)
    in_folders = _in_folders(snapshot, paths, rule.hive)
    fields = [with_spark_type(field, in_files[field.name]) if field.name in in_files else field for field in arrow]
    for name, (kind, same_values) in in_folders.items():
        place = arrow.get_field_index(name)
        fields[place] = with_spark_type(arrow.field(place), kind, same_values=same_values)
    changed = {new.name for new, old in zip(fields, arrow, strict=True) if new.type != old.type}
    if not changed:
        return index
    kept = [each for each in snapshot.sketches if snapshot.schema.columns[each.name.column].parts[0] not in changed]
    typed = Schema(pa.schema(fields, {**(arrow.metadata or {}), _TYPED: b""}))
    return Index(index.storage, replace(snapshot, schema=typed, sketches=tuple(kept)))


def _records_types(snapshot: Snapshot) -> bool:
    """Whether all columns of a table have the types that it records, on Spark too."""
    layout = snapshot.layout
    in_place = layout is not None and bool(layout.options.get("hidden"))
    return snapshot.managed and not (in_place and snapshot.partition_by)


def _in_folders(snapshot: Snapshot, paths: pa.StringArray, rule: HiveRule) -> dict[str, tuple[DataType, bool]]:
    """The type of each partition column, and whether Spark reads the same texts as the index."""
    if not snapshot.partition_by:
        return {}
    folders = pc.unique(pc.replace_substring_regex(paths, r"[^/]*$", ""))
    found = [values_of(folder) for folder in folders.to_pylist()]
    own = hive.partitions(folders)
    given = {}
    for name in snapshot.partition_by:
        texts = [values.get(name, hive.NULL) for values in found]
        given[name] = rule.type_of(texts), name in own and own[name].to_pylist() == texts
    return given


def _in_files(index: Index, paths: pa.StringArray, rule: Inference) -> dict[str, DataType]:
    """The columns of files to which Spark gives another type than that of their type in Arrow.

    Spark asks the first file by its path. A column that this lacks, and Spark would not find, has the type of the first
    file that may hold a value of it.
    """
    schema = index.snapshot.schema
    missing = [name for name in schema.arrow.names if name not in index.snapshot.partition_by]
    given: dict[str, DataType] = {}
    asked: list[str] = []
    path = pc.min(paths).as_py()
    while path is not None and len(asked) < _MOST_FOOTERS:
        asked.append(path)
        own, types = _types_in(opened(index.storage, path), rule)
        given |= {name: kind for name, kind in types.items() if name in missing}
        missing = [name for name in missing if name not in own]
        rest = paths.filter(pc.invert(pc.is_in(paths, pa.array(asked))))
        path = next(filter(None, (_first_file_with(index, name, rest) for name in missing)), None)
    return given


def _first_file_with(index: Index, name: str, paths: pa.StringArray) -> str | None:
    """The first of some files that may hold a value of a top-level column."""
    leaves = [path for path, column in index.snapshot.schema.columns.items() if column.parts[0] == name]
    units = index.files(None, leaves)
    may_hold = [np.asarray(pc.fill_null(ranges.has_value, True)) for ranges in units.statistics.columns.values()]
    holding = index.paths(units.numbers[np.logical_or.reduce([*may_hold, np.zeros(len(units.numbers), bool)])])
    first: str | None = pc.min(holding.filter(pc.is_in(holding, paths))).as_py()
    return first


def _types_in(file: pq.ParquetFile, rule: Inference) -> tuple[list[str], dict[str, DataType]]:
    """The columns of a file, and those to which Spark gives another type than that of their type in Arrow."""
    arrow = with_parquet_types(file.schema_arrow, file.metadata)
    declared = _declared(file.metadata)
    if declared is None:
        if holds_int96(file.metadata.schema) and not rule.int96:
            raise SchemaError("Spark cannot read INT96 while spark.sql.parquet.int96AsTimestamp is false.")
        read = by_leaf(arrow, file.metadata.schema, rule.leaf)
        declared = {field.name: kind for field in read if (kind := _spark_type(field)) is not None}
    own = {field.name: _spark_type(field) for field in arrow}
    return arrow.names, {name: kind for name, kind in declared.items() if name in own and kind != own[name]}


def _spark_type(field: pa.Field) -> DataType | None:
    try:
        return spark_schema(pa.schema([field]))[0].dataType
    except SchemaError:  # raised where the column is read
        return None


def _declared(footer: pq.FileMetaData) -> dict[str, DataType] | None:
    """The types that Spark recorded when it wrote a file; None for other writers."""
    from pyspark.sql.types import StructType

    text = (footer.metadata or {}).get(_ROW_METADATA)
    if text is None:
        return None
    try:
        fields = StructType.fromJson(json.loads(text)).fields
    except (ValueError, KeyError, ImportError, AttributeError):  # Spark, too, ignores what it cannot parse
        return None
    return {field.name: field.dataType._as_nullable() for field in fields}
