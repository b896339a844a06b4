"""How the data files of a Delta or Iceberg table store its rows: other names, no partition values, deleted rows.

| what differs | how it is read |
| --- | --- |
| a column has another name in the files, or is found by its field id | the key of ``read_parquet(schema=…)`` |
| a nested field has another name | the column is rebuilt with the table's field names |
| a partition column is in the log but not in the files | a list with a value for each file, by ``file_index`` |
| rows are deleted | a list with a bit string for each file: 1 for each deleted row |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.engines.duckdb.duckdb_types import duckdb_type
from zskip.language.sql_literals import identifier

if TYPE_CHECKING:
    from zskip.plan.scan import Scan

_STORED_AS, _FIELD_ID, _DEFAULT = b"zskip.stored_as", b"zskip.field_id", b"zskip.default"
_NUMBER = "(file_index + 1)::BIGINT"
_VALUES, _DELETED = "zskip_files_value", "zskip_files_deleted"


@dataclass(frozen=True, slots=True)
class StoredForm:
    """For each planned file, the values of its partition columns, and its deleted rows as a string of 0 and 1."""

    values: Mapping[str, list[Any]]
    deleted: list[str | None]

    def take(self, files: Sequence[int]) -> StoredForm:
        """The form of some of the files, by number, in that order."""
        values = {name: [each[file] for file in files] for name, each in self.values.items()}
        return StoredForm(values, [self.deleted[file] for file in files])

    def columns(self, types: Mapping[str, str]) -> dict[str, str]:
        """The partition columns as expressions in a SELECT from the files, by name."""
        return {
            name: f"CAST(list_extract(${_VALUES}_{place}, {_NUMBER}) AS {types[name]})"
            for place, name in enumerate(self.values)
        }

    def live_rows(self, column: str) -> tuple[str, str] | None:
        """A table of one row to cross with the files, and the condition that a row is live; None if no row is deleted.

        ``column``: the name of the table's column. In the condition itself, DuckDB would convert the parameter again
        for every few thousand rows, which takes four times as long as all the rest.
        """
        if not any(self.deleted):
            return None
        bits = f"list_extract({column}, {_NUMBER})"
        return (
            f"(SELECT CAST(${_DELETED} AS BIT[]) AS {column})",
            f"CASE WHEN file_row_number < bit_length({bits}) THEN get_bit({bits}, file_row_number::INTEGER) = 0 "
            "ELSE true END",
        )

    def parameters(self) -> dict[str, Any]:
        """The values of the parameters in `columns` and `live_rows`."""
        given: dict[str, Any] = {f"{_VALUES}_{place}": values for place, values in enumerate(self.values.values())}
        return given | ({_DELETED: self.deleted} if any(self.deleted) else {})


def stored_form(scan: Scan) -> StoredForm | None:
    """The stored form of a scan's files; None if the files store the table's rows unchanged."""
    if scan.source is None:
        return None
    fields = scan.schema.arrow
    values = {name: _texts(values, fields.field(name).type) for name, values in scan.values.items()}
    return StoredForm(values, [_bits(scan.deletes.get(path)) for path in scan.relative_paths])


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of the table as the files store it.

    ``key``: its name or field id in the files · ``type``: DuckDB's, with the field names of the files · ``default``:
    the value in files without the column, as text.
    """

    name: str
    key: str | int
    type: str
    default: str | None
    arrow: pa.DataType

    def renamed(self, stored: str) -> str | None:
        """An expression that converts a stored value to the table's type; None if they are the same."""
        return _renamed(stored, self.arrow, 0)


def stored_columns(schema: pa.Schema) -> list[StoredColumn]:
    """The columns of a table as its files store them."""
    columns = []
    for field in schema:
        metadata = field.metadata or {}
        key: str | int = (
            int(metadata[_FIELD_ID])
            if _FIELD_ID in metadata
            else metadata.get(_STORED_AS, field.name.encode()).decode()
        )
        default = metadata.get(_DEFAULT)
        type = duckdb_type(_stored_type(field.type))
        columns.append(StoredColumn(field.name, key, type, None if default is None else default.decode(), field.type))
    return columns


def _stored_type(type: pa.DataType) -> pa.DataType:
    """The type with the field names of the files."""
    if t.is_struct(type):
        return pa.struct([pa.field(_stored_name(field), _stored_type(field.type)) for field in type])
    if t.is_list(type) or t.is_large_list(type):
        return pa.list_(_stored_type(type.value_type))
    if t.is_map(type):
        return pa.map_(_stored_type(type.key_type), _stored_type(type.item_type))
    return type


def _stored_name(field: pa.Field) -> str:
    return str((field.metadata or {}).get(_STORED_AS, field.name.encode()), "utf-8")


def _renamed(value: str, type: pa.DataType, depth: int) -> str | None:
    """An expression that converts a stored value to the table's type; None if they are the same."""
    one = f"x{depth}"
    if t.is_struct(type) and type.num_fields:
        parts = [f"{value}.{identifier(_stored_name(field))}" for field in type]
        inner = [_renamed(part, field.type, depth) for part, field in zip(parts, type, strict=True)]
        if not any(inner) and all(_stored_name(field) == field.name for field in type):
            return None
        packed = ", ".join(
            f"{identifier(field.name)} := {made or part}" for field, made, part in zip(type, inner, parts, strict=True)
        )
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({packed}) END"
    if t.is_list(type) or t.is_large_list(type):
        made = _renamed(one, type.value_type, depth + 1)
        return None if made is None else f"list_transform({value}, lambda {one}: {made})"
    if t.is_map(type):
        key, item = (_renamed(f"{one}.{part}", inner, depth + 1) for part, inner in _entry(type))
        if key is None and item is None:
            return None
        entry = f"struct_pack(key := {key or f'{one}.key'}, value := {item or f'{one}.value'})"
        return f"map_from_entries(list_transform(map_entries({value}), lambda {one}: {entry}))"
    return None


def _entry(type: pa.MapType) -> tuple[tuple[str, pa.DataType], tuple[str, pa.DataType]]:
    return ("key", type.key_type), ("value", type.item_type)


def _texts(values: pa.Array, type: pa.DataType) -> list[Any]:
    """Values as DuckDB's CAST takes them."""
    texts: list[Any] = (values if t.is_binary(type) else values.cast(pa.string())).to_pylist()
    return texts


def _bits(deleted: np.ndarray | None) -> str | None:
    """A text of 0 and 1, one for each row up to the last that is deleted.

    >>> _bits(np.array([0, 3]))
    '1001'
    """
    if deleted is None or not len(deleted):
        return None
    bits = np.full(int(deleted[-1]) + 1, ord("0"), np.uint8)
    bits[deleted] = ord("1")
    return bits.tobytes().decode()
