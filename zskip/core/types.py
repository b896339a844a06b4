"""Types of values: one entry defines how a type is ordered, encoded and stored, and its names in engines and SQL.

In this order: `Type`, the class of an entry · the entries · look-up of the entry of an Arrow type, and common
properties · bounds of one type as bounds of another · values as JSON.

The rest of zskip uses these entries; only this module uses `pyarrow.types`. It re-exports Arrow's functions for
properties other than those of values: nested types, encodings, widths.
"""

from __future__ import annotations

import base64
import math
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import types as arrow_types
from pyarrow.types import (  # noqa: F401  # for other modules
    is_binary_view,
    is_date32,
    is_date64,
    is_decimal32,
    is_decimal64,
    is_decimal128,
    is_decimal256,
    is_dictionary,
    is_fixed_size_binary,
    is_fixed_size_list,
    is_float16,
    is_float32,
    is_float64,
    is_int8,
    is_int16,
    is_int32,
    is_int64,
    is_interval,
    is_large_binary,
    is_large_list,
    is_large_list_view,
    is_large_string,
    is_list,
    is_list_view,
    is_map,
    is_nested,
    is_null,
    is_primitive,
    is_run_end_encoded,
    is_signed_integer,
    is_string_view,
    is_struct,
    is_time32,
    is_time64,
    is_uint8,
    is_uint16,
    is_uint32,
    is_uint64,
    is_unsigned_integer,
)

from zskip.core.late_loading import pc
from zskip.errors import UnsupportedFormat

Form: TypeAlias = Literal["integer", "float", "decimal", "bytes"]
"""The representation of values, by which they are compared, hashed and stored in the index."""


def _itself(type: pa.DataType) -> pa.DataType:
    return type


def _none(type: pa.DataType) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """One type: how its values are ordered, stored, named and written in SQL. To add a type is to add an entry.

    ``arrow``: an example of each Arrow type of the entry. ``forms``: an example of each that `logical` turns into one.
    ``exact``: the entry covers only these Arrow types, not others with the same Arrow id.
    ``form``: None for a type whose values have no agreed order: it is stored and read, but never used to prune.
    ``kind``: the group of types that engines compare with one another, such as "number"; the type's name if empty.
    ``compared``: the type in which Arrow's kernels compare the values of a logical type.
    ``limits``: the least and the greatest value of a type of the form "integer", in its own units.
    ``tick``: the unit of a date or time in nanoseconds, for a type whose integers count such units.
    ``stored``: the type with which a table stores this one.
    ``duckdb``, ``spark``: the engine's name of the type of a Parquet column; None if it has none.
    ``dialects``: the dialects that have the type, and to which `parsed` and `read` apply.
    ``parsed``: the parser's names of the type. ``spelled``: a value as the text that a cast to the type reads.
    ``plain``: whether a constant of the type needs no cast. ``read``: the value of a string that is compared with a
    column; None if its cast is left to the engine. ``docs``: the row of docs/predicates.md.
    """

    name: str
    arrow: tuple[pa.DataType, ...]
    forms: tuple[pa.DataType, ...] = ()
    exact: bool = False
    form: Form | None = None
    kind: str = ""
    logical: Callable[[pa.DataType], pa.DataType] = _itself
    compared: Callable[[pa.DataType], pa.DataType] = _itself
    limits: Callable[[pa.DataType], tuple[int, int]] | None = None
    tick: Callable[[pa.DataType], int | None] = _none
    stored: Callable[[pa.DataType], pa.DataType] = _itself
    duckdb: Callable[[pa.DataType], str | None] = _none
    spark: Callable[[pa.DataType], str | None] = _none
    dialects: tuple[str, ...] = ("duckdb", "spark")
    parsed: Mapping[str, pa.DataType] = field(default_factory=dict)
    spelled: Callable[[Any], str] | None = None
    plain: Callable[[pa.DataType], bool] | None = None
    read: Callable[[str], pa.Scalar | None] | None = None
    docs: tuple[str, str] | None = None


# The entries.

UUID = pa.binary(16)
"""The logical type of UUIDs: their 16 bytes, which compare as unsigned. Bytes of a fixed width that are no UUIDs have
the logical type ``pa.binary()``, so no other column is of this type."""

TIME_TZ = pa.opaque(pa.time64("us"), "time_tz", "Parquet")
"""A time of day with a zone, kept in UTC. Arrow has no such type; DuckDB compares it by the zone as well."""

UNIT_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


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
    plain=lambda type: type.unit != "ns",
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

_NULL = Type(name="null", arrow=(pa.null(),), duckdb=lambda type: '"NULL"', spark=lambda type: "INT")


# Look-up, and properties of types that are needed often.

_OTHER = Type(name="other", arrow=())
ENTRIES = (
    *(_BOOLEAN, _INTEGER, _FLOAT, _DECIMAL, _STRING, _BINARY, _UUID),
    *(_DATE, _TIME, _TIME_TZ, _TIMESTAMP, _DURATION, _INTERVAL, _NULL),
)
"""Every entry."""


def _by_id(examples: Callable[[Type], Sequence[pa.DataType]]) -> dict[int, list[Type]]:
    """The entries with examples of each Arrow id; first those that are ``exact``, as the others cover all its types."""
    found: dict[int, list[Type]] = {}
    for entry in sorted(ENTRIES, key=lambda entry: not entry.exact):
        for number in dict.fromkeys(example.id for example in examples(entry)):
            found.setdefault(number, []).append(entry)
    return found


_BY_ID = _by_id(lambda entry: entry.arrow)
_FORMS_BY_ID = _by_id(lambda entry: entry.forms)


def of(type: pa.DataType) -> Type:
    """The entry of a logical type; for a type without an entry, one without order and names.

    >>> of(pa.int8()).name, of(pa.timestamp("ns", "UTC")).name, of(pa.list_(pa.int8())).name
    ('integer', 'timestamp', 'other')
    """
    for entry in _BY_ID.get(type.id, ()):
        if not entry.exact or type in entry.arrow:
            return entry
    return _OTHER


def _of_form(type: pa.DataType) -> Type:
    for entry in _FORMS_BY_ID.get(type.id, ()):
        if not entry.exact or type in entry.forms:
            return entry
    return of(type)


def value_type(arrow: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary or run-end encoding; any other type as it is."""
    while is_dictionary(arrow) or is_run_end_encoded(arrow):
        arrow = arrow.value_type
    return arrow


def logical_type(arrow: pa.DataType) -> pa.DataType:
    """The type of the values: dictionary and run-end encodings unwrapped, views, large and small forms made plain.

    Half floats become floats, which hold the same values: Arrow has no comparison for half floats. UUIDs become `UUID`,
    for the same reason.

    >>> logical_type(pa.dictionary(pa.int32(), pa.large_string()))
    DataType(string)
    """
    plain = value_type(arrow)
    return _of_form(plain).logical(plain)


def stored_type(arrow: pa.DataType) -> pa.DataType:
    """The type with which a table stores a type that is neither nested nor encoded.

    >>> stored_type(pa.large_string()), stored_type(pa.time32("s"))
    (DataType(string), Time32Type(time32[ms]))
    """
    return _of_form(arrow).stored(arrow)


def sql_name(arrow: pa.DataType, dialect: str) -> str | None:
    """An engine's name of the type of a Parquet column that is neither nested nor encoded; None if it has none.

    >>> sql_name(pa.uint8(), "duckdb"), sql_name(pa.uint8(), "spark"), sql_name(pa.time64("us"), "spark")
    ('UTINYINT', 'SMALLINT', None)
    """
    entry = _of_form(arrow)
    named: str | None = {"duckdb": entry.duckdb, "spark": entry.spark}[dialect](arrow)
    return named


def is_orderable(arrow: pa.DataType) -> bool:
    """Whether all engines order the values of a type alike, so that bounds are meaningful."""
    return of(logical_type(arrow)).form is not None


def limits(type: pa.DataType) -> tuple[int, int]:
    """The least and the greatest value of an integer, date or time type, or unscaled value of a decimal one, in its own
    units. Raises `TypeError` for another type.

    >>> limits(pa.uint8()), limits(pa.decimal128(3, 2))
    ((0, 255), (-999, 999))
    """
    found = of(type).limits
    if found is None:
        raise TypeError(f"values of {type} have no integer keys")
    return found(type)


def ticks(type: pa.DataType) -> pa.DataType | None:
    """The integer type that stores the values of a date or time type in their unit; None for any other type."""
    if of(type).tick(type) is None:
        return None
    return pa.int32() if type.bit_width == 32 else pa.int64()


def _is(entry: Type) -> Callable[[pa.DataType], bool]:
    """Whether a type is one of an entry."""

    def is_of_entry(type: pa.DataType) -> bool:
        return of(type) is entry

    return is_of_entry


is_boolean, is_integer, is_floating, is_decimal = map(_is, (_BOOLEAN, _INTEGER, _FLOAT, _DECIMAL))
is_string, is_binary = map(_is, (_STRING, _BINARY))
is_date, is_time, is_timestamp, is_duration = map(_is, (_DATE, _TIME, _TIMESTAMP, _DURATION))


def is_bytes(type: pa.DataType) -> bool:
    """Whether a type is binary of variable length, in any of Arrow's forms."""
    return bool(is_binary(type) or is_large_binary(type) or is_binary_view(type))


def integer_digits(type: pa.DataType) -> int:
    """The decimal digits of the largest value of an integer type.

    >>> integer_digits(pa.int32()), integer_digits(pa.int64()), integer_digits(pa.uint64())
    (10, 19, 20)
    """
    return len(str(2 ** (type.bit_width - (not is_unsigned_integer(type))) - 1))


def decimal_of(unscaled: int, scale: int) -> Decimal:
    """``unscaled`` × 10^-``scale``. Unlike arithmetic on decimals, it never rounds to the caller's decimal context.

    >>> decimal_of(-12345, 2)
    Decimal('-123.45')
    """
    return Decimal(f"{unscaled}E{-scale}")


def within_digits(values: pa.Array) -> pa.BooleanArray:
    """Whether each decimal has at most the digits of its type; null where it is null.

    DuckDB's widest integers have more than the 38 digits of the type that they get in Arrow.
    """
    type = values.type
    low, high = (pa.scalar(decimal_of(sign * (10**type.precision - 1), type.scale), type) for sign in (-1, 1))
    return pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))


def within_years(values: pa.Array) -> pa.BooleanArray:
    """Whether each date or timestamp lies in the years 1 to 9999, which all text forms share; null where it is null.

    DuckDB stores infinite ones as the ends of the integers. Nanoseconds end in 1677 and 2262: whole days count.
    """
    unit, tick = ticks(values.type), of(values.type).tick(values.type)
    assert unit is not None
    assert tick is not None
    per_day = 86_400 * 10**9 // tick
    most = (2**63 - 1) // per_day
    low, high = (pa.scalar(days * per_day, unit) for days in (max(-719_162, 1 - most), min(2_932_897, most)))
    numbers = values.cast(unit)
    return pc.and_(pc.greater_equal(numbers, low), pc.less(numbers, high))


def is_exact(type: pa.DataType) -> bool:
    """Whether equal values are identical. Floats differ because of NaN and −0.0."""
    return bool(is_integer(type) or is_date(type) or is_timestamp(type) or is_decimal128(type) or is_string(type))


def is_numeric(type: pa.DataType) -> bool:
    """Whether a type is an integer, a float or a decimal, of any width."""
    return is_integer(type) or is_floating(type) or is_decimal(type)


def is_temporal(type: pa.DataType) -> bool:
    """Whether a type is a date, a time, a timestamp or a duration."""
    return of(type).tick(type) is not None


# The types of the values inside structs, lists and maps.


def fields_within(field: pa.Field) -> Iterator[pa.Field]:
    """A field, and the fields inside it at any depth, also those of encoded values.

    >>> [inner.name for inner in fields_within(pa.field("s", pa.struct({"a": pa.int8(), "l": pa.list_(pa.int8())})))]
    ['s', 'a', 'l', 'item']
    """
    yield field
    type = value_type(field.type)
    for number in range(type.num_fields):
        yield from fields_within(type.field(number))


def with_leaves(type: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with its leaves changed; the type itself if none changes. Lists of a varying length become plain lists.

    >>> with_leaves(pa.struct({"a": pa.list_(pa.float16())}), lambda leaf: pa.float32())
    StructType(struct<a: list<item: float>>)
    """
    if not is_nested(type) or arrow_types.is_union(type):
        return change(type)
    fields = [type.field(number) for number in range(type.num_fields)]
    changed = [field.with_type(with_leaves(field.type, change)) for field in fields]
    if changed == fields:
        return type
    if is_struct(type):
        return pa.struct(changed)
    if is_map(type):
        key, item = changed[0].type
        return pa.map_(key.type, item.type)
    return pa.list_(changed[0], type.list_size if is_fixed_size_list(type) else -1)


# Bounds of one type as bounds of another that holds all its values, or unknown: never rounded, never wrapped.


def empty_table(schema: pa.Schema) -> pa.Table:
    """No rows. `pyarrow.Schema.empty_table` fails for extension types inside others.

    >>> empty_table(pa.schema([("ids", pa.list_(pa.uuid()))])).num_rows
    0
    """
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of ``old`` is a value of ``new``, in the same order.

    >>> widens(pa.int32(), pa.int64()), widens(pa.int64(), pa.int32()), widens(pa.string(), pa.int64())
    (True, False, False)
    """
    if old == new or is_null(old):
        return True
    if is_integer(old) and is_integer(new):
        signs = is_unsigned_integer(old), is_unsigned_integer(new)
        return bool(old.bit_width < new.bit_width and (signs[0] == signs[1] or signs == (True, False)))
    if is_floating(new) and (is_integer(old) or is_floating(old)):
        mantissa = {16: 11, 32: 24, 64: 53}[new.bit_width]
        narrower = mantissa + 1 if is_integer(old) else new.bit_width
        return bool(old.bit_width < narrower)
    if is_decimal(old) and is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if is_integer(old) and is_decimal(new):
        return bool(new.precision - new.scale >= integer_digits(old))
    if is_date(old):
        return bool(is_date(new) and new.bit_width > old.bit_width) or (is_timestamp(new) and new.tz is None)
    finer = ("s", "ms", "us", "ns")
    if is_timestamp(old) and is_timestamp(new):
        return (old.tz is None) == (new.tz is None) and finer.index(new.unit) >= finer.index(old.unit)
    if (is_time(old) and is_time(new)) or (is_duration(old) and is_duration(new)):
        return finer.index(new.unit) >= finer.index(old.unit)
    return False


def widened(bounds: pa.Array, type: pa.DataType) -> pa.Array:
    """The bounds as values of ``type``; all unknown if it cannot hold every value of their type.

    >>> widened(pa.array([1, None], pa.int32()), pa.int64()).to_pylist()
    [1, None]
    >>> widened(pa.array([0, 2**30], pa.date32()), pa.timestamp("ns")).is_null().to_pylist()
    [False, True]
    """
    if bounds.type == type:
        return bounds
    if not widens(bounds.type, type):
        return pa.nulls(len(bounds), type)
    try:
        return bounds.cast(type)
    except pa.ArrowException:  # a date outside the range of timestamps in nanoseconds
        wrapped = bounds.cast(type, safe=False)
        return pc.if_else(pc.equal(wrapped.cast(bounds.type, safe=False), bounds), wrapped, pa.scalar(None, type))


# Values as JSON, exactly.
#
# boolean, integers                         true, 7 (64 bits: read them as integers, not as doubles)
# floats                                    0.5, and "Infinity", "-Infinity", "NaN"
# decimals                                  "12.50"
# strings; other bytes                      the text; base64
# dates, times, timestamps, durations       an integer in the type's own unit (date32: days, date64: milliseconds)

Json = Any  # a value that json.loads returns


def encode_values(values: pa.Array) -> list[Json]:
    """Each value as JSON; null stays null.

    >>> encode_values(pa.array([1.5, float("inf"), None]))
    [1.5, 'Infinity', None]
    """
    number = ticks(values.type)
    if number is not None:
        values = values.view(number)
    plain = values.to_pylist()
    encode = _encoder(values.type)
    return plain if encode is None else [None if value is None else encode(value) for value in plain]


def decode_values(values: Sequence[Json], type: pa.DataType) -> pa.Array:
    """The inverse of `encode_values`. Raises `ValueError`, `TypeError` or an Arrow error for values of another type."""
    number = ticks(type)
    if number is not None:
        return pa.array(values, number).view(type)
    if of(type).form == "decimal":
        return _decimals(values, type)
    decode = _decoder(type)
    return pa.array(values if decode is None else [None if value is None else decode(value) for value in values], type)


def _encoder(type: pa.DataType) -> Callable[[Any], Json] | None:
    match of(type).form:
        case "float":
            return _float
        case "decimal":
            return str
        case "bytes" if not is_string(type):
            return lambda value: base64.b64encode(value).decode()
    return None


def _float(value: Any) -> float | str:
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _decimals(texts: Sequence[Json], type: pa.DataType) -> pa.Array:
    """Decimals, also those that have more digits than ``type`` says, as DuckDB's widest integers have in Arrow.

    Arrow holds and compares them, but refuses to build them from Python's decimals.
    """
    exact = pa.array(texts, pa.string()).cast(pa.decimal256(76, type.scale))
    values = exact.cast(type, safe=False)
    if not values.cast(exact.type).equals(exact):
        raise ValueError(f"values that {type} cannot hold")
    return values


def _decoder(type: pa.DataType) -> Callable[[Json], Any] | None:
    match of(type).form:
        case "float":
            return (lambda value: np.float16(value)) if type == pa.float16() else float
        case "bytes" if not is_string(type):
            return lambda value: base64.b64decode(value, validate=True)
    return None


def encode_typed(values: pa.Array) -> dict[str, Json]:
    """An array as JSON, exactly and with its type.

    >>> encode_typed(pa.array([1.5, float("inf")]))
    {'type': 'double', 'values': [1.5, 'Infinity']}
    """
    return {"type": str(values.type), "values": encode_values(values)}


def decode_typed(form: Mapping[str, Json]) -> pa.Array:
    """The inverse of `encode_typed`. Raises `UnsupportedFormat` for a type that this zskip does not know."""
    if not isinstance(form["values"], list):
        raise TypeError("values must be a list")
    return decode_values(form["values"], _type(form["type"]))


_NAMED = {str(arrow): arrow for arrow in map(pa.type_for_alias, (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "bool", "string", "binary", "date32", "date64",
    "time32[s]", "time32[ms]", "time64[us]", "time64[ns]",
    "duration[s]", "duration[ms]", "duration[us]", "duration[ns]",
))}  # fmt: skip

_PATTERNS: dict[str, Callable[..., pa.DataType]] = {
    r"timestamp\[(\w+)\]": pa.timestamp,
    r"timestamp\[(\w+), tz=(.+)\]": pa.timestamp,
    r"fixed_size_binary\[(\d+)\]": lambda width: pa.binary(int(width)),
    r"decimal32\((\d+), (-?\d+)\)": lambda precision, scale: pa.decimal32(int(precision), int(scale)),
    r"decimal64\((\d+), (-?\d+)\)": lambda precision, scale: pa.decimal64(int(precision), int(scale)),
    r"decimal128\((\d+), (-?\d+)\)": lambda precision, scale: pa.decimal128(int(precision), int(scale)),
    r"decimal256\((\d+), (-?\d+)\)": lambda precision, scale: pa.decimal256(int(precision), int(scale)),
}


def _type(name: str) -> pa.DataType:
    """The type that `str` of a type gives."""
    if name in _NAMED:
        return _NAMED[name]
    for pattern, build in _PATTERNS.items():
        if match := re.fullmatch(pattern, name):
            return build(*match.groups())
    raise UnsupportedFormat(f"Values have the type {name}, which this zskip does not know. Update zskip.")
