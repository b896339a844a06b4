"""Rows in the types that a table stores: the types that Parquet returns exactly as written.

| given                                        | stored                                            |
| -------------------------------------------- | ------------------------------------------------- |
| large and view forms of strings and binaries | the plain form                                    |
| large and view forms of lists                | the plain form                                    |
| dictionary of strings                        | the same, with 32-bit indices                     |
| dictionary of anything else, run-end encoded | its values                                        |
| timestamp[s], time32[s]                      | milliseconds: Parquet has no seconds              |
| date64                                       | date32                                            |
| times with a zone, of DuckDB or in Parquet   | their times in UTC                                |
| intervals, unions, structs without fields    | refused: Arrow cannot write them to Parquet       |
| decimals of a negative scale                 | refused: Parquet has none                         |
| VARIANT                                      | refused: Arrow would write the struct in it       |
| texts, in a column of UUIDs or JSON          | UUIDs, JSON                                       |

All other types are unchanged. The metadata of fields and of pandas is dropped; that of geometries is kept
without what holds for one file alone.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zskip.core import types as t
from zskip.core.casts import cast
from zskip.errors import SchemaError, SchemaMismatch
from zskip.parquet.arrow_differences import ParquetSchema, geo_metadata, variants


def storable_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in which a table stores rows with this schema. Raises `SchemaError`, which names the column."""
    if not len(schema):
        raise SchemaError("The rows have no columns.")
    names: dict[str, str] = {}
    for name in schema.names:
        if not name:
            raise SchemaError("A column has no name, so SQL cannot refer to it. Give it one.")
        if name.lower() in names:
            raise SchemaError(
                f'The columns "{names[name.lower()]}" and "{name}" differ at most in case: SQL cannot tell them apart.'
            )
        names[name.lower()] = name
    for field in schema:
        _require_storable(field, field.name)
    kept = pa.schema([pa.field(field.name, storable_type(field.type), field.nullable) for field in schema])
    for field in () if _parquet_error(kept) is None else kept:
        if (error := _parquet_error(pa.schema([field]))) is not None:
            raise SchemaError(
                f'The column "{field.name}" of type {field.type} cannot be written to Parquet: cast it or leave it out.'
            ) from error
    metadata = {key: value for key, value in (schema.metadata or {}).items() if key not in _ENGINE_METADATA}
    return kept.with_metadata({**metadata, **geo_metadata([schema])} or None)


def _parquet_error(schema: pa.Schema) -> Exception | None:
    try:
        pq.write_metadata(schema, io.BytesIO())
    except (pa.ArrowException, OSError) as error:  # OSError for a decimal of a negative scale
        return error
    return None


def _require_storable(field: pa.Field, path: str) -> None:
    if (field.metadata or {}).get(b"ARROW:extension:name") == b"arrow.parquet.variant":
        raise _variant_refused(field.name)
    type = field.type
    inner = [type.field(number) for number in range(type.num_fields)]
    names = [field.name for field in inner]
    if t.is_struct(type) and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaError(f'The struct "{path}" has several fields "{twice}": nothing tells them apart. Rename one.')
    if t.is_fixed_size_list(type) and type.list_size == 0:  # Arrow writes them, and cannot read them again
        raise SchemaError(f'The column "{path}" has lists of the fixed size 0: cast it to {pa.list_(type.value_type)}.')
    for each in inner:
        _require_storable(each, f"{path}.{each.name}")


def refuse_variants_of_file(schema: pa.Schema, file: ParquetSchema, path: str) -> None:
    """Raise `SchemaError` for a Parquet file with a VARIANT. ``schema``: the file's in Arrow."""
    if names := variants(schema, file):
        raise _variant_refused(names[0], f" in {path}")


def _variant_refused(name: str, place: str = "") -> SchemaError:
    return SchemaError(f'The column "{name}"{place} is a VARIANT, which cannot be written: cast it, or leave it out.')


_ENGINE_METADATA = {b"pandas", b"ARROW:schema", b"geo"}


def storable_type(type: pa.DataType) -> pa.DataType:
    """The type in which a table stores values of this type.

    >>> storable_type(pa.list_view(pa.string_view()))
    ListType(list<item: string>)
    """
    if t.is_dictionary(type):
        values = storable_type(type.value_type)
        return pa.dictionary(pa.int32(), values, type.ordered) if t.is_string(values) else values
    if t.is_run_end_encoded(type):
        return storable_type(type.value_type)
    if t.is_list(type) or t.is_large_list(type) or t.is_list_view(type) or t.is_large_list_view(type):
        return pa.list_(_storable_field(type.value_field))
    if t.is_fixed_size_list(type):
        return pa.list_(_storable_field(type.value_field), type.list_size)
    if t.is_map(type):
        return pa.map_(_storable_field(type.key_field), _storable_field(type.item_field), type.keys_sorted)
    if t.is_struct(type):
        return pa.struct([_storable_field(type.field(index)) for index in range(type.num_fields)])
    return pa.json_() if isinstance(type, pa.JsonType) else t.stored_type(type)


def _storable_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, storable_type(field.type), field.nullable)


def storable_rows(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Rows with the columns and types of a storable schema, in its order. A column that they lack becomes NULL.

    Raises `SchemaMismatch` for a value that does not fit its type, and for a NULL where the schema allows none.
    """
    nullable = all(field.nullable for field in schema)
    if nullable and isinstance(rows, pa.Table) and rows.schema.equals(schema, check_metadata=True):
        return rows
    columns = []
    for field in schema:
        index = rows.schema.get_field_index(field.name)
        if index < 0:
            values = pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
        else:
            try:
                values = cast(rows.column(index), field.type)
            except (pa.ArrowInvalid, ValueError) as error:
                raise SchemaMismatch(
                    f'A value of the column "{field.name}" does not fit {field.type}: {error}'
                ) from error
        if not field.nullable and values.null_count:
            raise SchemaMismatch(f'The column "{field.name}" allows no NULL, and the rows hold one.')
        columns.append(values)
    return pa.Table.from_arrays(columns, schema=schema)


# Transit types: the types of rows inside a write, which are cheaper to move than the types that a table stores.
# Top-level strings with many repeats become a dictionary, four bytes per row to move, and decimal128 of up to 18 digits
# decimal64, half as wide. Values, their order and their hashes are the same, and so is the schema in the footer.
# Without transit types the write that `compact_rows` describes takes 1.3 times as long.

ENCODED_STRING = pa.dictionary(pa.int32(), pa.string())
"""The transit type of strings that repeat."""

TESTED_ROWS, _TESTED_BYTES = 16_384, 4 << 20
_MOST_DISTINCT = 1 / 16
_MOST_BYTES = 2.0
_MOST_FOOTERS, _MOST_GROUPS = 64, 8

_Item = TypeVar("_Item")


def transit_schema(rows: pa.Table, kept: pa.Schema, plain: Sequence[str] = ()) -> pa.Schema:
    """The schema of rows like these in their transit types.

    ``kept``: their storable schema · ``plain``: columns that keep their stored type.

    >>> rows = pa.table({"s": ["a", "b"] * 99, "u": [str(n) for n in range(198)]})
    >>> [field.type.id == pa.lib.Type_DICTIONARY for field in transit_schema(rows, rows.schema)]
    [True, False]
    """
    fields, given = [], set(rows.column_names)
    for field in kept:
        type = field.type
        if field.name in given and field.name not in plain:
            if t.is_decimal128(type) and type.precision <= 18:
                type = pa.decimal64(type.precision, type.scale)
            elif t.is_string(type) and _repeats(rows.column(field.name)):
                type = ENCODED_STRING
        fields.append(field.with_type(type))
    return pa.schema(fields, metadata=kept.metadata)


def _repeats(values: pa.ChunkedArray) -> bool:
    if t.is_dictionary(values.type):
        return True  # the source returns dictionaries only where strings repeat
    if t.is_null(values.type):
        return False
    head = first_values(values)
    return bool(len(head) and pc.count_distinct(head, mode="all").as_py() <= max(2, _MOST_DISTINCT * len(head)))


def first_values(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The first values of a column, enough to tell whether its values repeat: fewer of long ones, to bound memory."""
    head = values[:TESTED_ROWS]
    return head if head.nbytes <= _TESTED_BYTES else head[: max(1, len(head) * _TESTED_BYTES // head.nbytes)]


def trimmed(rows: pa.Table, longest: int = 0) -> pa.Table:
    """The rows with unused entries removed from their dictionaries: a Parquet file would store them.

    ``longest``: the length up to which dictionaries stay as they are.

    >>> rows = pa.table({"s": pa.array(["a", "b", "c"]).dictionary_encode().take([2, 2])})
    >>> trimmed(rows).column("s").chunk(0).dictionary.to_pylist()
    ['c']
    """
    for number, field in enumerate(rows.schema):
        if t.is_dictionary(field.type):
            chunks = rows.column(number).chunks
            chunks = [_trimmed(chunk) if len(chunk.dictionary) > longest else chunk for chunk in chunks]
            rows = rows.set_column(number, field, pa.chunked_array(chunks, field.type))
    return rows


def _trimmed(values: pa.DictionaryArray) -> pa.DictionaryArray:
    used = np.zeros(len(values.dictionary), bool)
    used[np.asarray(values.indices.drop_null())] = True
    if used.all():
        return values
    new_index = pa.array(np.cumsum(used) - 1, values.type.index_type)
    dictionary = values.dictionary.filter(pa.array(used))
    return pa.DictionaryArray.from_arrays(new_index.take(values.indices), dictionary, ordered=values.type.ordered)


def with_encoded(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """The schema with these string columns as `ENCODED_STRING`."""
    chosen = set(names)
    fields = [field.with_type(ENCODED_STRING) if field.name in chosen else field for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def compact_strings(footers: Sequence[pq.FileMetaData], kept: pa.Schema) -> list[str]:
    """The string columns that files store as short dictionaries. Reading these as dictionaries saves work.

    A footer does not record how many pages of a column chunk are dictionary-encoded. But if the pages, which include
    the dictionary, take less than two bytes per value, the dictionary has far fewer values than the chunk has rows.
    Only some of the footers are checked.
    """
    strings = {field.name for field in kept if t.is_string(field.type) and "." not in field.name}
    size, values = dict.fromkeys(strings, 0), dict.fromkeys(strings, 0)
    encoded = dict.fromkeys(strings, True)
    for footer in _evenly(footers, _MOST_FOOTERS):
        # Use the schema's paths. The chunks repeat them, but differ from them in a damaged footer.
        paths = [footer.schema.column(number).path for number in range(footer.num_columns)]
        for group in _evenly(range(footer.num_row_groups), _MOST_GROUPS):
            row_group = footer.row_group(group)
            for number, name in enumerate(paths):
                if name not in strings:
                    continue
                chunk = row_group.column(number)
                size[name] += chunk.total_uncompressed_size
                values[name] += chunk.num_values
                encoded[name] &= bool({"RLE_DICTIONARY", "PLAIN_DICTIONARY"} & set(chunk.encodings))
    return [
        field.name
        for field in kept
        if values.get(field.name) and encoded[field.name] and size[field.name] <= _MOST_BYTES * values[field.name]
    ]


def _evenly(items: Sequence[_Item], most: int) -> Sequence[_Item]:
    """At most ``most`` items at even distances."""
    return items[:: max(1, -(-len(items) // most))]
