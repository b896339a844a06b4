"""Types of Parquet that Arrow takes for others: with another order, other equality, or a smaller range."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from zskip import types as t
from zskip.types import TIME_TZ

__all__ = ["open_parquet", "told_apart"]


def open_parquet(source: Any, **options: Any) -> pq.ParquetFile:
    """A Parquet file, its INT96 timestamps as microseconds, as DuckDB and Spark take them.

    Arrow's own choice is nanoseconds, which wrap around outside the years 1677 to 2262: 9999-12-31 becomes 1816-03-30.
    """
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", **options)


def told_apart(schema: pa.Schema, file: Any) -> pa.Schema:
    """A file's Arrow schema with such types as what they are; ``file`` is its `pyarrow.parquet.FileMetaData`.

    Arrow takes intervals for bytes, and times with a zone for times without one. Its own older writers mark every time
    as one with a zone: there the Arrow schema that they keep in the footer says what was meant.
    """
    arrow_wrote = b"ARROW:schema" in (file.metadata or {})
    columns = (file.schema.column(number) for number in range(len(file.schema.names)))
    types = {column.path: type for column in columns if (type := _lacking(column, arrow_wrote)) is not None}

    def told(field: pa.Field, path: str) -> pa.Field:
        if path in types:
            return field.with_type(types[path])
        if t.is_struct(field.type):
            return field.with_type(pa.struct([told(inner, f"{path}.{inner.name}") for inner in field.type]))
        return field

    return pa.schema([told(field, field.name) for field in schema], schema.metadata) if types else schema


def _lacking(column: Any, arrow_wrote: bool) -> pa.DataType | None:
    """The type of a `pyarrow.parquet.ColumnSchema`, where Arrow has none of its own for it."""
    if column.converted_type == "INTERVAL":
        return pa.month_day_nano_interval()
    if column.logical_type.type == "TIME" and not arrow_wrote:
        return TIME_TZ if json.loads(column.logical_type.to_json())["isAdjustedToUTC"] else None
    return None
