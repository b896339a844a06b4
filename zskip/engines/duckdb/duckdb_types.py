"""The DuckDB types of Parquet columns, and which of them convert back to their Arrow type without loss."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from zskip.core import types as t
from zskip.errors import SchemaError
from zskip.language.sql_literals import identifier


def duckdb_type(arrow: pa.DataType) -> str:
    """The type that DuckDB gives a Parquet column of this Arrow type. It may lose information; see `lossless`.

    >>> duckdb_type(pa.list_(pa.timestamp("ms", "UTC"))), duckdb_type(pa.json_())
    ('TIMESTAMPTZ[]', 'JSON')
    """
    arrow = t.value_type(arrow)
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
    if t.is_struct(arrow) and ambiguous([field.name for field in arrow]):
        return False
    inner = [arrow.field(index).type for index in range(arrow.num_fields)]
    # DuckDB has no null type. A column of that type is converted by the caller, but not one nested in another type.
    return all(lossless(type) and not t.is_null(type) for type in inner)


def ambiguous(names: Sequence[str]) -> bool:
    """Whether two of these names differ only in case: DuckDB cannot tell them apart."""
    return len({name.lower() for name in names}) < len(names)
