"""Columns of indexed folders in the types that ``spark.read.parquet`` infers from the same files.

    first file ──row metadata of Spark, else Parquet types──▶ columns
    names of folders ──`HiveRule`──▶ partition columns

zskip's index has the types that Arrow and DuckDB infer. Where Spark's have other values, nothing is proved by the
column (`spark_types.OPAQUE`): Spark itself still skips hive folders.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.errors import SchemaError
from zskip.language import clocks
from zskip.parquet.arrow_differences import by_leaf, holds_int96, in_utc, with_parquet_types
from zskip.parquet.footers import opened
from zskip.spark.spark_session import calendar_options
from zskip.spark.spark_types import spark_schema, with_spark_type
from zskip.storage import hive
from zskip.table import Table
from zskip.table_formats.source import may_hold_old_values
from zskip.tablelog.freshness import listed
from zskip.tablelog.index import Index
from zskip.tablelog.snapshot import Snapshot
from zskip.tablelog.table_folders import SOURCE_FORMATS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType


_ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
_TYPED = b"zskip.spark_types"
# Sources of an index that give the types of its columns.
_RECORDED = {"statistics", *SOURCE_FORMATS}
_MOST_FOOTERS = 16
# Where Spark records that a column, or a field of it, is a CHAR(n): its comparisons ignore blanks at the end.
_CHARS = "__CHAR_VARCHAR_TYPE_STRING"

_SparkType: TypeAlias = "tuple[DataType, dict[str, Any] | None]"
"""A type, and metadata that gives comparisons of the column another meaning."""


@dataclass(frozen=True, slots=True)
class Inference:
    """The settings of a session on which the types depend that Spark infers.

    ``int96``: whether INT96 can be read · ``clocks``: whether a timestamp without a zone is TIMESTAMP_NTZ · ``texts``:
    whether binary columns are strings · ``rebases``: whether dates and timestamps before 1901 are converted, in files
    that do not say in which calendar they are.
    """

    hive: HiveRule
    int96: bool
    clocks: bool
    texts: bool
    rebases: bool

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
            "LEGACY" in calendar_options(spark, is_table=False).values(),
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
    rebased = _rebased(index) if rule.rebases and not snapshot.managed else set()
    in_files |= {
        name: kind for name in rebased - in_files.keys() if (kind := _spark_type(arrow.field(name))) is not None
    }
    fields = [
        with_spark_type(field, *in_files[field.name], same_values=field.name not in rebased)
        if field.name in in_files
        else field
        for field in arrow
    ]
    for name, (given, same_values) in in_folders.items():
        place = arrow.get_field_index(name)
        fields[place] = with_spark_type(arrow.field(place), given, same_values=same_values)
    changed = {new.name for new, old in zip(fields, arrow, strict=True) if new.type != old.type}
    if not changed:
        return index
    kept = [each for each in snapshot.sketches if snapshot.schema.columns[each.name.column].parts[0] not in changed]
    typed = Schema(pa.schema(fields, {**(arrow.metadata or {}), _TYPED: b""}))
    return Index(index.storage, replace(snapshot, schema=typed, sketches=tuple(kept)))


def _rebased(index: Index) -> set[str]:
    """The columns of which a file may hold dates or timestamps that Spark converts to another calendar."""
    found = may_hold_old_values(index, np.arange(len(index), dtype=np.int64))
    return {index.snapshot.schema.columns[path].parts[0] for path, old in found.items() if old.any()}


def _records_types(snapshot: Snapshot) -> bool:
    """Whether all columns of a table have the types that it records, on Spark too."""
    layout = snapshot.layout
    in_place = layout is not None and bool(layout.options.get("hidden"))
    return snapshot.managed and not (in_place and snapshot.partition_by)


def _in_folders(snapshot: Snapshot, paths: pa.StringArray, rule: HiveRule) -> dict[str, tuple[DataType, bool]]:
    """The type of each partition column, and whether Spark reads the same texts as the index."""
    if not snapshot.partition_by:
        return {}
    found = texts_by_folder(paths)
    own = hive.partitions(pa.array(found, pa.string()))
    given = {}
    for name in snapshot.partition_by:
        texts = [values.get(name, hive.NULL) for values in found.values()]
        kind = snapshot.schema.arrow.field(name).type
        same = not t.is_timestamp(kind) and name in own
        read = hive.decoded(own[name]).fill_null(hive.NULL).to_pylist() if same else None
        given[name] = rule.type_of(texts), read == [*map(_decoded, texts)]
    return given


def _in_files(index: Index, paths: pa.StringArray, rule: Inference) -> dict[str, _SparkType]:
    """The columns of files to which Spark gives another type than that of their type in Arrow.

    Spark asks the first file by its path. A column that this lacks, and Spark would not find, has the type of the first
    file that may hold a value of it.
    """
    schema = index.snapshot.schema
    missing = [name for name in schema.arrow.names if name not in index.snapshot.partition_by]
    given: dict[str, _SparkType] = {}
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


def _types_in(file: pq.ParquetFile, rule: Inference) -> tuple[list[str], dict[str, _SparkType]]:
    """The columns of a file, and those to which Spark gives another type than that of their type in Arrow."""
    arrow = with_parquet_types(file.schema_arrow, file.metadata)
    declared = _declared(file.metadata)
    if declared is None:
        if holds_int96(file.metadata.schema) and not rule.int96:
            raise SchemaError("Spark cannot read INT96 while spark.sql.parquet.int96AsTimestamp is false.")
        read = by_leaf(arrow, file.metadata.schema, rule.leaf)
        declared = {field.name: found for field in read if (found := _spark_type(field)) is not None}
    own = {field.name: _spark_type(field) for field in arrow}
    return arrow.names, {name: kind for name, kind in declared.items() if name in own and kind != own[name]}


def _spark_type(field: pa.Field) -> _SparkType | None:
    try:
        return spark_schema(pa.schema([field]))[0].dataType, None
    except SchemaError:  # raised where the column is read
        return None


def _declared(footer: pq.FileMetaData) -> dict[str, _SparkType] | None:
    """The types that Spark recorded when it wrote a file; None for other writers."""
    from pyspark.sql.types import StructType

    text = (footer.metadata or {}).get(_ROW_METADATA)
    if text is None:
        return None
    try:
        fields = StructType.fromJson(json.loads(text)).fields
    except (ValueError, KeyError, ImportError, AttributeError):  # Spark, too, ignores what it cannot parse
        return None
    return {
        field.name: (
            field.dataType._as_nullable(),
            {_CHARS: text} if re.search(r"(?<!var)char\(", text := field.metadata.get(_CHARS, "")) else None,
        )
        for field in fields
    }


# The types and values that Spark infers from hive folders, ``day=2024-01-31/hour=07/``.
#
# | names of folders | Spark | DuckDB, and zskip's index |
# | --- | --- | --- |
# | ``7``, ``-3`` | INT, or BIGINT if one needs it | BIGINT |
# | ``7``, ``007`` | INT | VARCHAR |
# | integers beyond 64 bits, ``1e5`` | DECIMAL | VARCHAR |
# | ``9.5``, ``NaN`` | DOUBLE | VARCHAR |
# | ``2024-01-31`` | DATE | DATE |
# | ``2024-01-31 10:00:00`` | TIMESTAMP, in the session's zone | TIMESTAMP |
# | ``2024-1-1``; ``0x10`` | STRING | DATE; BIGINT |
# | ``10:00:00`` | TIME, which Spark 4.3 then refuses to read | VARCHAR |
# | anything else, ``7`` beside ``x`` | STRING | VARCHAR |
#
# Spark decodes %XX byte by byte: ``%C3%A9`` is ``Ã©`` on Spark, and ``é`` everywhere else.

NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX = r"0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
_DOUBLE = re.compile(rf"[\x00-\x20]*[+-]?(?:NaN|Infinity|(?:{_DECIMAL.pattern[5:]}|{_HEX})[fFdD]?)[\x00-\x20]*")
_DATE = re.compile(r"-?[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_TIME, _TIME_OF_DATE = re.compile(rf"{_CLOCK}(?:\.[0-9]{{1,6}})?"), re.compile(rf"{_CLOCK}(?:\.[0-9])?")
_ESCAPED = re.compile("%([0-9a-fA-F]{2})")
_BLANKS = "".join(map(chr, range(33)))
_DIGITS = {"int": 10, "bigint": 20}
_MOST_DIGITS = 38


def texts_by_folder(paths: pa.StringArray) -> dict[str, dict[str, str]]:
    """The texts of the hive columns in each different folder of these files, as Spark reads them.

    Raises `SchemaError` for a column that has another name on Spark.
    """
    folders = pc.unique(pc.replace_substring_regex(paths, r"[^/]*$", "")).to_pylist()
    found = {folder: values_of(folder) for folder in folders}
    for folder, texts in found.items():
        for name in hive.texts_of(folder):
            if name not in texts:
                raise SchemaError(
                    f'The hive column "{name}" has another name on Spark, which takes each byte of %XX for a letter: '
                    f"rename {folder}, and those like it."
                )
    return found


def values_of(path: str) -> dict[str, str]:
    """The partition columns in a path, with their values as they are written there.

    >>> values_of("day=2024-01-31/host=a%2Fb/part-0.parquet")
    {'day': '2024-01-31', 'host': 'a%2Fb'}
    """
    pairs = (segment.partition("=") for segment in path.split("/")[:-1] if "=" in segment)
    return {_decoded(name): text for name, _, text in pairs if name}


def _decoded(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


@dataclass(frozen=True, slots=True)
class HiveRule:
    """The settings of a session on which the types of hive columns depend.

    ``infers``: whether names are anything but strings · ``clock``: the type of timestamps, "timestamp" or
    "timestamp_ntz" · ``has_time``: whether times of day have a type.
    """

    infers: bool
    clock: str
    has_time: bool

    def type_of(self, texts: Iterable[str]) -> DataType:
        """The type that Spark infers for the values of a column."""
        from pyspark.sql import types as s

        kinds = {self._kind(text) for text in set(texts) if text != NULL}
        digits = {int(kind[8:]) for kind in kinds if kind.startswith("decimal")}
        if digits and kinds - _DIGITS.keys() == {f"decimal.{each}" for each in digits}:
            return s.DecimalType(max(digits | {_DIGITS[kind] for kind in kinds & _DIGITS.keys()}), 0)
        for wider, narrow in (("bigint", "int"), ("double", "int"), (self.clock, "date")):
            if kinds == {wider, narrow}:
                kinds = {wider}
        simple = {
            "int": s.IntegerType(),
            "bigint": s.LongType(),
            "double": s.DoubleType(),
            "date": s.DateType(),
            "timestamp": s.TimestampType(),
            "timestamp_ntz": s.TimestampNTZType(),
        }
        if kinds == {"time"}:
            return s.TimeType(6)
        return simple.get(kinds.pop(), s.StringType()) if len(kinds) == 1 else s.StringType()

    def _kind(self, text: str) -> str:
        """The type of one value: its name, or "decimal." and its digits. Numbers and dates have no escapes."""
        if not self.infers:
            return "string"
        if _INTEGER.fullmatch(text) and -(1 << 63) <= int(text) < 1 << 63:
            return "int" if -(1 << 31) <= int(text) < 1 << 31 else "bigint"
        if _DECIMAL.fullmatch(text):
            _, figures, exponent = Decimal(text).as_tuple()
            if isinstance(exponent, int) and exponent >= 0 and len(figures) + exponent <= _MOST_DIGITS:
                return f"decimal.{len(figures) + exponent}"
        if _DOUBLE.fullmatch(text):
            return "double"
        if _is_date(text):
            return "date"
        text = _decoded(text)
        date, _, time = text.partition(" ")
        if _is_date(date) and _TIME_OF_DATE.fullmatch(time):
            return self.clock
        return "time" if self.has_time and _TIME.fullmatch(text) else "string"


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    year, month, day = (int(part) for part in text.removeprefix("-").split("-"))
    try:
        # The calendar repeats after 400 years, and Python's begins in the year 1.
        dt.date((-year if text.startswith("-") else year) % 400 + 400, month, day)
    except ValueError:
        return False
    return True


def value(text: str, type: DataType, zone: ZoneInfo | None) -> Any:
    """The value that Spark reads from a name, for a column of the inferred type; None for NULL.

    ``text``: as it is written in the name · ``zone``: of the session. Raises `SchemaError` for a value that Python
    cannot hold.
    """
    if text == NULL:
        return None
    text = _decoded(text)
    kind = type.simpleString()
    try:
        if kind in ("int", "bigint"):
            return int(text)
        if kind.startswith("decimal"):
            return Decimal(text)
        if kind == "double":
            number = re.sub("[fFdD]?$", "", text.strip(_BLANKS), count=1)
            return float.fromhex(number) if "p" in number.lower() else float(number)
        if kind == "date":
            return dt.date.fromisoformat(text)
        if kind == "time(6)":
            return dt.time.fromisoformat(text)
        if kind == "timestamp_ntz":
            return dt.datetime.fromisoformat(text)
        if kind == "timestamp":
            if zone is None:
                raise ValueError("the session's time zone has no IANA name")
            local = dt.datetime.fromisoformat(text)
            instant = clocks.in_utc(local, zone.key) if 2 <= local.year <= 9998 else None
            # Of a local time that occurs twice or never, Java too takes the offset before the change.
            return local.replace(tzinfo=zone).astimezone(dt.UTC) if instant is None else instant.replace(tzinfo=dt.UTC)
    except ValueError as error:
        raise SchemaError(
            f'The folder name "{text}" is {kind} on Spark, and Python cannot read it so: {error}'
        ) from error
    return text
