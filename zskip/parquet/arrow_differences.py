"""Parquet types that Arrow reads as types with another order, equality or range; INT96; and VARIANT."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip.core import types as t
from zskip.core.types import TIME_TZ
from zskip.errors import naming

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def open_parquet(source: Any, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file, with INT96 timestamps as microseconds, as in DuckDB and Spark.

    Arrow's default is nanoseconds, which wrap around outside the years 1677 to 2262: 9999-12-31 becomes 1816-03-30.
    An error of the system names the file, also if it is one about reading it, which Arrow leaves without a name.
    """
    import pyarrow.parquet as pq  # imports Arrow's file systems, which a look-up needs not

    with naming(source) if isinstance(source, str) else nullcontext():
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", **options)


def is_damage(error: Exception) -> bool:
    """Whether what was raised while Arrow read a file comes of the file's bytes.

    Arrow raises a bare `OSError` for bytes that are not Parquet. All others come of the system or the store that should
    have brought the bytes: they say nothing of the file.
    """
    return isinstance(error, pa.ArrowException) or (type(error) is OSError and error.errno is None)


def with_parquet_types(schema: pa.Schema, file: Any) -> pa.Schema:
    """A file's Arrow schema, corrected to the file's Parquet types. ``file``: its `pyarrow.parquet.FileMetaData`.

    Arrow reads intervals as bytes, times with a zone as times without one, and lists and texts as views if it wrote
    them from views. Its older writers mark every time as one with a zone; in their files the Arrow schema in the footer
    is right.
    """
    arrow_wrote = b"ARROW:schema" in (file.metadata or {})
    misread = any(_misread_type(file.schema.column(number), arrow_wrote) for number in range(len(file.schema.names)))
    if not misread and not any(_is_view(inner.type) for field in schema for inner in t.fields_within(field)):
        return schema
    return by_leaf(schema, file.schema, lambda type, leaf: _misread_type(leaf, arrow_wrote) or _without_view(type))


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


# INT96 timestamps are instants: Spark writes and reads them so, while Arrow and DuckDB show their UTC clock.
#
# | a file's column | Spark | Arrow, DuckDB | rewritten by zskip as | then Spark | then Arrow, DuckDB |
# | --- | --- | --- | --- | --- | --- |
# | INT96 | TIMESTAMP | the UTC clock, without a zone | TIMESTAMP, adjusted to UTC | TIMESTAMP | an instant, in UTC |
#
# If one file of a column holds INT96, clocks without a zone in its other files are UTC too.

ParquetSchema = Any
"""`pyarrow.parquet.ParquetSchema`: the leaves of a file."""
ColumnSchema = Any
"""`pyarrow.parquet.ColumnSchema`: one leaf."""


def with_instants(schema: pa.Schema, file: ParquetSchema) -> pa.Schema:
    """A file's Arrow schema, with its INT96 columns in UTC, also inside of structs, lists and maps."""
    return by_leaf(schema, file, lambda type, leaf: in_utc(type) if leaf.physical_type == "INT96" else type)


def by_leaf(
    schema: pa.Schema, file: ParquetSchema, change: Callable[[pa.DataType, ColumnSchema], pa.DataType]
) -> pa.Schema:
    """A file's Arrow schema with the type of each leaf changed by its type and what Parquet says of it."""
    columns = iter([file.column(number) for number in range(len(file.names))])

    def changed(type: pa.DataType) -> pa.DataType:
        stored = [next(columns) for _ in leaves(type)]
        return change(type, stored[0]) if len(stored) == 1 else type

    return _mapped(schema, changed)


def with_instants_of_all(schema: pa.Schema, files: Iterable[tuple[pa.Schema, ParquetSchema]]) -> pa.Schema:
    """The schema of a table, or of one of its files, with the columns in UTC that are INT96 in some file.

    ``files``: the schema of each file, in Arrow and in Parquet.
    """
    for own, file in files:
        if holds_int96(file):
            marked = with_instants(own, file)
            schema = pa.schema([_adopted(field, marked, own) for field in schema], schema.metadata)
    return schema


def holds_int96(file: ParquetSchema) -> bool:
    """Whether a file has an INT96 column."""
    return any(file.column(number).physical_type == "INT96" for number in range(len(file.names)))


def holds_clock(schema: pa.Schema) -> bool:
    """Whether a schema has a timestamp without a zone, at any depth: only those can be INT96."""
    return any(t.is_timestamp(leaf) and leaf.tz is None for field in schema for leaf in leaves(field.type))


def _adopted(field: pa.Field, marked: pa.Schema, own: pa.Schema) -> pa.Field:
    if field.name not in own.names or marked.field(field.name).equals(own.field(field.name)):
        return field
    return field.with_type(_merged(field.type, marked.field(field.name).type, own.field(field.name).type))


def _merged(type: pa.DataType, marked: pa.DataType, own: pa.DataType) -> pa.DataType:
    """``type`` with the leaves in UTC that ``marked`` has in UTC and ``own`` has not."""
    if t.is_struct(type) and t.is_struct(marked):
        known = {field.name: (field.type, own.field(place).type) for place, field in enumerate(marked)}
        return pa.struct(
            [
                field.with_type(_merged(field.type, *known[field.name])) if field.name in known else field
                for field in type
            ]
        )
    if t.is_map(type) and t.is_map(marked):
        key = type.key_field.with_type(_merged(type.key_type, marked.key_type, own.key_type))
        return pa.map_(key, type.item_field.with_type(_merged(type.item_type, marked.item_type, own.item_type)))
    if _is_list(type) and _is_list(marked):
        return _list(type, _merged(type.value_type, marked.value_type, own.value_type))
    return in_utc(type) if marked != own else type


# Arrow reads a VARIANT as the struct that stores it, and would write it as that struct.

_VARIANT = re.compile(r" group field_id=-?\d+ (.+) \(Variant\b")


def variants(schema: pa.Schema, file: ParquetSchema) -> list[str]:
    """The names of a file's columns and fields that are VARIANTs. ``schema``: the file's in Arrow."""
    if not any(_may_be_variant(inner.type) for field in schema for inner in t.fields_within(field)):
        return []
    return _VARIANT.findall(repr(file))  # pyarrow tells the types of leaves alone


def _may_be_variant(type: pa.DataType) -> bool:
    return bool(t.is_struct(type)) and {"metadata", "value"} <= {field.name for field in type}


def in_utc(type: pa.DataType) -> pa.DataType:
    """A timestamp without a zone in UTC; any other type as it is."""
    return pa.timestamp(type.unit, "UTC") if t.is_timestamp(type) and type.tz is None else type


def _mapped(fields: pa.Schema, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    def inner(type: pa.DataType) -> pa.DataType:
        if t.is_struct(type):
            return pa.struct([field.with_type(inner(field.type)) for field in type])
        if t.is_map(type):
            key = type.key_field.with_type(inner(type.key_type))
            return pa.map_(key, type.item_field.with_type(inner(type.item_type)))
        return _list(type, inner(type.value_type)) if _is_list(type) else leaf(type)

    return pa.schema([field.with_type(inner(field.type)) for field in fields], fields.metadata)


def _is_list(type: pa.DataType) -> bool:
    return bool(t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type) or _is_list_view(type))


def _is_list_view(type: pa.DataType) -> bool:
    return bool(t.is_list_view(type) or t.is_large_list_view(type))


def _is_view(type: pa.DataType) -> bool:
    return _is_list_view(type) or _without_view(type) != type


def _without_view(leaf: pa.DataType) -> pa.DataType:
    return pa.string() if t.is_string_view(leaf) else pa.binary() if t.is_binary_view(leaf) else leaf


def _list(type: pa.DataType, item: pa.DataType) -> pa.DataType:
    field = type.value_field.with_type(item)
    if t.is_fixed_size_list(type):
        return pa.list_(field, type.list_size)
    return pa.large_list(field) if t.is_large_list(type) else pa.list_(field)


def leaves(type: pa.DataType) -> Iterator[pa.DataType]:
    """The leaves of a type, as Parquet stores it."""
    if isinstance(type, pa.BaseExtensionType):
        yield from leaves(type.storage_type)
    elif t.is_struct(type):
        for field in type:
            yield from leaves(field.type)
    elif t.is_map(type):
        yield from leaves(type.key_type)
        yield from leaves(type.item_type)
    elif _is_list(type):
        yield from leaves(type.value_type)
    else:
        yield type
