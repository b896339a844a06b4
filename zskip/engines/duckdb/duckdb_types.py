"""Arrow types as DuckDB reads them from Parquet, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from zskip import types as t
from zskip.errors import SchemaError
from zskip.types import TIME_TZ

__all__ = ["ambiguous", "duckdb_type", "lossless", "quoted"]

# What DuckDB 2.0 yields for a Parquet column of each type. A duration is kept as a plain integer by Parquet.
_PLAIN: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float16(): "FLOAT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.time32("s"): "TIME",
    pa.time32("ms"): "TIME",
    pa.time64("us"): "TIME",
    pa.time64("ns"): "TIME_NS",
    pa.null(): "INTEGER",
    pa.month_day_nano_interval(): "INTERVAL",
}

_BY_FAMILY: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (t.is_string, "VARCHAR"),
    (t.is_large_string, "VARCHAR"),
    (t.is_string_view, "VARCHAR"),
    (t.is_binary, "BLOB"),
    (t.is_large_binary, "BLOB"),
    (t.is_binary_view, "BLOB"),
    (t.is_fixed_size_binary, "BLOB"),
    (t.is_date, "DATE"),
    (t.is_duration, "BIGINT"),
)


def duckdb_type(arrow: pa.DataType) -> str:
    """The type that DuckDB gives a Parquet column of this type; `lossless` says whether its values survive that.

    >>> duckdb_type(pa.list_(pa.timestamp("ms", "UTC")))
    'TIMESTAMPTZ[]'
    """
    if arrow == TIME_TZ:
        return "TIMETZ"
    if isinstance(arrow, pa.BaseExtensionType):
        return "UUID" if arrow.extension_name == "arrow.uuid" else duckdb_type(arrow.storage_type)
    if t.is_dictionary(arrow) or t.is_run_end_encoded(arrow):
        return duckdb_type(arrow.value_type)
    if t.is_timestamp(arrow):
        return ("TIMESTAMP" if arrow.tz is None else "TIMESTAMPTZ") + ("_NS" if arrow.unit == "ns" else "")
    if t.is_decimal(arrow):
        return f"DECIMAL({arrow.precision},{arrow.scale})" if arrow.precision <= 38 else "DOUBLE"
    if t.is_struct(arrow):
        return "STRUCT(" + ", ".join(f"{quoted(field.name)} {duckdb_type(field.type)}" for field in arrow) + ")"
    if t.is_map(arrow):
        return f"MAP({duckdb_type(arrow.key_type)}, {duckdb_type(arrow.item_type)})"
    if t.is_list(arrow) or t.is_large_list(arrow) or t.is_fixed_size_list(arrow):
        return f"{duckdb_type(arrow.value_type)}[]"
    name = _PLAIN.get(arrow) or next((name for holds, name in _BY_FAMILY if holds(arrow)), None)
    if name is None:
        raise SchemaError(f"DuckDB has no type for {arrow}.")
    return name


def lossless(arrow: pa.DataType) -> bool:
    """Whether values read by DuckDB can be cast back to this type without loss.

    >>> lossless(pa.decimal128(38, 2)), lossless(pa.decimal256(60, 2))
    (True, False)
    """
    if isinstance(arrow, pa.BaseExtensionType):
        return False
    if t.is_dictionary(arrow) or t.is_run_end_encoded(arrow):
        return lossless(arrow.value_type)
    if t.is_decimal(arrow):
        return bool(arrow.precision <= 38)
    if t.is_struct(arrow) and ambiguous([field.name for field in arrow]):
        return False
    inner = [arrow.field(index).type for index in range(arrow.num_fields)]
    # DuckDB has no type of NULL alone; of a whole column the engine makes one.
    return all(lossless(type) and not t.is_null(type) for type in inner)


def ambiguous(names: Sequence[str]) -> bool:
    """Whether two of these names differ only in case, so that DuckDB cannot tell them apart."""
    return len({name.lower() for name in names}) < len(names)


def quoted(name: str) -> str:
    """A name as an SQL identifier.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'
