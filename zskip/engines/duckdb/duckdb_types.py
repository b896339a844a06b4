"""The DuckDB types of Parquet columns, and which of them convert back to their Arrow type without loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import identifier
from zskip.errors import SchemaError

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType


class DuckdbType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow is untyped
    """The type that DuckDB gives a column that Arrow reads as ``storage``. ``name``: as DuckDB prints it."""

    def __init__(self, name: str, storage: pa.DataType) -> None:
        self.name = name
        super().__init__(storage, "zskip.duckdb")

    def __arrow_ext_serialize__(self) -> bytes:
        return self.name.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> DuckdbType:
        return cls(serialized.decode(), storage)


def with_types_read(schema: pa.Schema, read: Mapping[str, DuckDBPyType], bytes_as_texts: bool) -> pa.Schema:
    """The schema in which bytes have the types that DuckDB gives them.

    Only DuckDB knows whether they are a BLOB, a GEOMETRY, a part of a VARIANT, or text. ``read``: the types in a file,
    by the names of columns in lower case · ``bytes_as_texts``: whether the connection reads all bytes as texts.
    """
    return pa.schema(
        [
            field.with_type(_type_read(field.type, read[name], bytes_as_texts))
            if (name := field.name.lower()) in read
            else field
            for field in schema
        ]
    )


def _type_read(arrow: pa.DataType, read: DuckDBPyType, bytes_as_texts: bool) -> pa.DataType:
    kind = read.id
    # DuckDB types these as if an enumeration, whose children are its values, could be among them.
    children = cast("list[tuple[str, DuckDBPyType]]", read.children) if kind in ("struct", "map", "list") else []
    if t.is_bytes(t.value_type(arrow)):
        if str(read) in ("VARCHAR", '"NULL"'):  # where this file has texts, or no value, others have bytes
            return DuckdbType("VARCHAR", arrow) if bytes_as_texts else arrow
        return arrow if kind == "blob" else DuckdbType(str(read), arrow)
    if t.is_struct(arrow):
        if kind == "variant":
            return DuckdbType("VARIANT", arrow)
        if kind == "struct":
            inner = {name.lower(): type for name, type in children}
            return pa.struct(with_types_read(pa.schema(list(arrow)), inner, bytes_as_texts))
    elif t.is_map(arrow) and kind == "map":
        key, item = (
            _type_read(part, found, bytes_as_texts)
            for part, (_, found) in zip((arrow.key_type, arrow.item_type), children, strict=True)
        )
        return pa.map_(key, item)
    elif (t.is_list(arrow) or t.is_large_list(arrow)) and kind == "list":
        return pa.list_(_type_read(arrow.value_type, children[0][1], bytes_as_texts))
    return arrow


def duckdb_type(arrow: pa.DataType) -> str:
    """The type that DuckDB gives a Parquet column of this Arrow type. It may lose information; see `lossless`.

    >>> duckdb_type(pa.list_(pa.timestamp("ms", "UTC"))), duckdb_type(pa.json_())
    ('TIMESTAMPTZ[]', 'JSON')
    """
    arrow = t.value_type(arrow)
    if isinstance(arrow, DuckdbType):
        return arrow.name
    if isinstance(arrow, pa.BaseExtensionType) and arrow.extension_name == "arrow.json":
        return "JSON"
    if t.is_struct(arrow):
        return "STRUCT(" + ", ".join(f"{identifier(field.name)} {duckdb_type(field.type)}" for field in arrow) + ")"
    if t.is_map(arrow):
        return f"MAP({duckdb_type(arrow.key_type)}, {duckdb_type(arrow.item_type)})"
    if t.is_list(arrow) or t.is_large_list(arrow) or t.is_fixed_size_list(arrow):
        return f"{duckdb_type(arrow.value_type)}[]"
    name = t.sql_name(arrow, "duckdb")
    if name is None and isinstance(arrow, pa.BaseExtensionType):
        return duckdb_type(arrow.storage_type)
    if name is None:
        raise SchemaError(f"DuckDB has no type for {arrow}.")
    return name


def lossless(arrow: pa.DataType) -> bool:
    """Whether values read by DuckDB can be cast back to this type without loss.

    UUIDs need the setting ``arrow_lossless_conversion``.

    >>> lossless(pa.decimal128(38, 2)), lossless(pa.decimal256(60, 2))
    (True, False)
    """
    if isinstance(arrow, pa.BaseExtensionType):
        return bool(arrow.extension_name == "arrow.uuid")
    arrow = t.value_type(arrow)
    if t.is_decimal(arrow):
        return bool(arrow.precision <= 38)
    if t.is_struct(arrow):
        names = [field.name for field in arrow]
        if ambiguous(names) or names[:2] == _VARIANT:
            return False
    return all(lossless(arrow.field(index).type) for index in range(arrow.num_fields))


# The first fields of a struct that DuckDB may read as a VARIANT.
_VARIANT = ["metadata", "value"]


def ambiguous(names: Sequence[str]) -> bool:
    """Whether two of these names differ only in case: DuckDB cannot tell them apart."""
    return len({name.lower() for name in names}) < len(names)
