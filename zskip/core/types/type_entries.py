"""The types that zskip knows, one entry each."""

from __future__ import annotations

import re
import uuid

import pyarrow as pa

from zskip.core.types.data_type import Type

UUID = pa.binary(16)
"""The logical type of UUIDs: their 16 bytes, which compare as unsigned. Bytes of a fixed width that are no UUIDs have
the logical type ``pa.binary()``, so no other column is of this type."""

TIME_TZ = pa.opaque(pa.time64("us"), "time_tz", "DuckDB")
"""A time of day with a zone, kept in UTC. Arrow has no such type; DuckDB compares it by the zone as well."""

UNIT_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def known_types() -> tuple[Type, ...]:
    """Every entry."""
    return (
        *(_BOOLEAN, _INTEGER, _FLOAT, _DECIMAL, _STRING, _BINARY, _UUID),
        *(_DATE, _TIME, _TIME_TZ, _TIMESTAMP, _DURATION, _INTERVAL, _NULL),
    )


def _bits(type: pa.DataType) -> tuple[int, int]:
    """The least and the greatest integer of a signed type's width."""
    return -(2 ** (type.bit_width - 1)), 2 ** (type.bit_width - 1) - 1


def _unit(type: pa.DataType) -> int:
    return UNIT_NANOSECONDS[type.unit]


_BOOLEAN = Type(
    name="boolean",
    arrow=(pa.bool_(),),
    form="integer",
    limits=lambda type: (0, 1),
    duckdb=lambda type: "BOOLEAN",
    spark=lambda type: "BOOLEAN",
    parsed={"BOOLEAN": pa.bool_()},
    plain=lambda type: True,
)

_UNSIGNED = {pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()}
_DUCKDB_INTEGERS = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}
_SPARK_INTEGERS = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_SPARK_UNSIGNED = {8: "SMALLINT", 16: "INT", 32: "BIGINT", 64: "DECIMAL(20, 0)"}

_INTEGER = Type(
    name="integer",
    arrow=(*(pa.int8(), pa.int16(), pa.int32(), pa.int64()), *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    form="integer",
    kind="number",
    limits=lambda type: (0, 2**type.bit_width - 1) if type in _UNSIGNED else _bits(type),
    duckdb=lambda type: ("U" if type in _UNSIGNED else "") + _DUCKDB_INTEGERS[type.bit_width],
    # Spark has no unsigned numbers: it reads them as the next wider type.
    spark=lambda type: (_SPARK_UNSIGNED if type in _UNSIGNED else _SPARK_INTEGERS)[type.bit_width],
    parsed={
        "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "UTINYINT": pa.uint8(),
        "USMALLINT": pa.uint16(),
        "UINT": pa.uint32(),
        "UBIGINT": pa.uint64(),
    },
    spelled=str,
)

_FLOAT = Type(
    name="float",
    arrow=(pa.float16(), pa.float32(), pa.float64()),
    form="float",
    kind="number",
    # Arrow does not compare half floats; floats hold the same values.
    logical=lambda type: pa.float32() if type == pa.float16() else type,
    duckdb=lambda type: "DOUBLE" if type == pa.float64() else "FLOAT",
    spark=lambda type: {32: "FLOAT", 64: "DOUBLE"}.get(type.bit_width),
    parsed={"FLOAT": pa.float32(), "DOUBLE": pa.float64()},
    spelled=repr,
)

_DECIMAL = Type(
    name="decimal",
    arrow=(pa.decimal128(1, 0), pa.decimal256(1, 0), pa.decimal32(1, 0), pa.decimal64(1, 0)),
    form="decimal",
    kind="number",
    logical=lambda type: pa.decimal128(type.precision, type.scale) if type.bit_width < 128 else type,
    limits=lambda type: (1 - 10**type.precision, 10**type.precision - 1),
    duckdb=lambda type: f"DECIMAL({type.precision},{type.scale})" if type.precision <= 38 else "DOUBLE",
    spark=lambda type: f"DECIMAL({type.precision}, {type.scale})" if type.precision <= 38 else None,
    spelled=lambda value: format(value, "f"),
)

_STRING = Type(
    name="string",
    arrow=(pa.string(),),
    forms=(pa.large_string(), pa.string_view()),
    form="bytes",
    logical=lambda type: pa.string(),
    stored=lambda type: pa.string(),
    duckdb=lambda type: "VARCHAR",
    spark=lambda type: "STRING",
    parsed={"VARCHAR": pa.string(), "TEXT": pa.string()},
    plain=lambda type: True,
)

_BINARY = Type(
    name="binary",
    arrow=(pa.binary(),),
    forms=(pa.large_binary(), pa.binary_view(), pa.binary(1)),
    form="bytes",
    logical=lambda type: pa.binary(),
    stored=lambda type: type if type.id == pa.binary(1).id else pa.binary(),
    duckdb=lambda type: "BLOB",
    spark=lambda type: "BINARY",
    parsed={"BINARY": pa.binary(), "VARBINARY": pa.binary(), "BLOB": pa.binary()},
    plain=lambda type: True,
)


def _read_uuid(text: str) -> pa.Scalar | None:
    canonical = re.fullmatch(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", text)
    return pa.scalar(bytes.fromhex(text.replace("-", "")), UUID) if canonical else None


_UUID = Type(
    name="UUID",
    arrow=(UUID,),
    forms=(pa.uuid(),),
    exact=True,
    form="bytes",
    logical=lambda type: UUID,
    compared=lambda type: pa.binary(),
    stored=lambda type: type,
    duckdb=lambda type: "UUID",
    dialects=("duckdb",),
    parsed={"UUID": UUID},
    spelled=lambda value: str(uuid.UUID(bytes=value)),
    read=_read_uuid,
    docs=(
        "UUIDs beside `'…'`, `UUID '…'`, `'…'::UUID`",
        "compared exactly, if the text is a whole UUID of 36 characters; beside `'…'` in `spark`, if in lower case",
    ),
)

_DATE = Type(
    name="date",
    arrow=(pa.date32(), pa.date64()),
    form="integer",
    kind="moment",
    limits=_bits,
    tick=lambda type: 86_400 * 10**9 if type.bit_width == 32 else 10**6,
    stored=lambda type: pa.date32(),
    duckdb=lambda type: "DATE",
    spark=lambda type: "DATE",
    parsed={"DATE": pa.date32(), "DATE32": pa.date32()},
    plain=lambda type: True,
)

_TIME = Type(
    name="time",
    arrow=(pa.time32("s"), pa.time64("us")),
    form="integer",
    limits=_bits,
    tick=_unit,
    stored=lambda type: pa.time32("ms") if type.bit_width == 32 else type,
    duckdb=lambda type: "TIME_NS" if type.unit == "ns" else "TIME",
    parsed={"TIME": pa.time64("us")},
)

_TIME_TZ = Type(
    name="time with a zone",
    arrow=(TIME_TZ,),
    exact=True,
    stored=lambda type: TIME_TZ.storage_type,
    duckdb=lambda type: "TIMETZ",
    dialects=("duckdb",),
)


def _spark_timestamp(type: pa.DataType) -> str | None:
    if type.unit != "ns":
        return "TIMESTAMP_NTZ" if type.tz is None else "TIMESTAMP"
    # Arrow reads INT96, Spark's older form of an instant, as nanoseconds without a zone.
    return "TIMESTAMP" if type.tz is None else None


_TIMESTAMP = Type(
    name="timestamp",
    arrow=(pa.timestamp("us"),),
    form="integer",
    kind="moment",
    limits=_bits,
    tick=_unit,
    stored=lambda type: pa.timestamp("ms", type.tz) if type.unit == "s" else type,
    duckdb=lambda type: ("TIMESTAMP" if type.tz is None else "TIMESTAMPTZ") + ("_NS" if type.unit == "ns" else ""),
    spark=_spark_timestamp,
    parsed={
        "TIMESTAMPNTZ": pa.timestamp("us"),
        "TIMESTAMP_S": pa.timestamp("s"),
        "TIMESTAMP_MS": pa.timestamp("ms"),
        "TIMESTAMP_NS": pa.timestamp("ns"),
        "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
        "TIMESTAMPLTZ": pa.timestamp("us", "UTC"),
    },
    plain=lambda type: type.unit != "ns",
)

_DURATION = Type(
    name="duration",
    arrow=(pa.duration("us"),),
    form="integer",
    limits=_bits,
    tick=_unit,
    # Parquet keeps a duration as a plain integer.
    duckdb=lambda type: "BIGINT",
    spark=lambda type: "BIGINT",
)

_INTERVAL = Type(name="interval", arrow=(pa.month_day_nano_interval(),), duckdb=lambda type: "INTERVAL")

_NULL = Type(name="null", arrow=(pa.null(),), duckdb=lambda type: "INTEGER", spark=lambda type: "INT")
