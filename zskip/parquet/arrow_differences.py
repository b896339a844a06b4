"""Parquet types that Arrow reads as types with another order, equality or range."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from zskip.core import types as t
from zskip.core.types import TIME_TZ


def open_parquet(source: Any, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file, with INT96 timestamps as microseconds, as in DuckDB and Spark.

    Arrow's default is nanoseconds, which wrap around outside the years 1677 to 2262: 9999-12-31 becomes 1816-03-30.
    """
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", **options)


def with_parquet_types(schema: pa.Schema, file: Any) -> pa.Schema:
    """A file's Arrow schema, corrected to the file's Parquet types. ``file``: its `pyarrow.parquet.FileMetaData`.

    Arrow reads intervals as bytes, and times with a zone as times without one. Its older writers mark every time as
    one with a zone; in their files the Arrow schema in the footer is right.
    """
    arrow_wrote = b"ARROW:schema" in (file.metadata or {})
    columns = (file.schema.column(number) for number in range(len(file.schema.names)))
    types = {column.path: type for column in columns if (type := _misread_type(column, arrow_wrote)) is not None}

    def corrected(field: pa.Field, path: str) -> pa.Field:
        if path in types:
            return field.with_type(types[path])
        if t.is_struct(field.type):
            return field.with_type(pa.struct([corrected(inner, f"{path}.{inner.name}") for inner in field.type]))
        return field

    return pa.schema([corrected(field, field.name) for field in schema], schema.metadata) if types else schema


def geo_metadata(schemas: Iterable[pa.Schema]) -> dict[bytes, bytes]:
    """What the metadata of rows with these schemas says of their geometries; empty if none has any.

    GeoParquet says in the metadata of a file which columns of bytes are geometries. Columns stay geometries in other
    files by it, except those that two schemas describe in different ways. Boxes and the kinds of geometries, which
    hold for the rows of one file, are left out.
    """
    described = [found for schema in schemas if (found := _described(schema)) is not None]
    columns: dict[str, Any] = {}
    for each in described:
        for name, column in each["columns"].items():
            kept = {key: value for key, value in column.items() if key != "bbox"} | {"geometry_types": []}
            columns[name] = kept if columns.get(name, kept) == kept else None
    columns = {name: column for name, column in columns.items() if column is not None}
    if not columns:
        return {}
    primary = described[0]["primary_column"]
    first = primary if primary in columns else next(iter(columns))
    found = {"version": described[0]["version"], "primary_column": first, "columns": columns}
    return {b"geo": json.dumps(found).encode()}


def _described(schema: pa.Schema) -> dict[str, Any] | None:
    """The metadata of GeoParquet; None if there is none, or none that a reader of that format would take."""
    try:
        found = json.loads((schema.metadata or {}).get(b"geo", b"null"))
        valid = all(isinstance(column, dict) for column in found["columns"].values())
        return found if valid and {"version", "primary_column"} <= found.keys() else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _misread_type(column: Any, arrow_wrote: bool) -> pa.DataType | None:
    """The true type of a `pyarrow.parquet.ColumnSchema` that Arrow reads as another type; None for all others."""
    if column.converted_type == "INTERVAL":
        return pa.month_day_nano_interval()
    if column.logical_type.type == "TIME" and not arrow_wrote:
        return TIME_TZ if json.loads(column.logical_type.to_json())["isAdjustedToUTC"] else None
    return None
