"""Look-up of the entry of an Arrow type, and properties of types that are needed often."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow_types

from zskip.core.types.data_type import Type
from zskip.core.types.type_entries import known_types

_OTHER = Type(name="other", arrow=())
_ENTRIES: list[Type] = []
_BY_ID: dict[int, tuple[Type, ...]] = {}
_FORMS_BY_ID: dict[int, tuple[Type, ...]] = {}


def entries() -> tuple[Type, ...]:
    """All entries, in the order of their registration."""
    return tuple(_ENTRIES)


def register_type(entry: Type) -> None:
    """Registers a type. An ``exact`` entry takes precedence over one for all types of the same Arrow id."""
    _ENTRIES.append(entry)
    _index()


def unregister_type(entry: Type) -> None:
    """Removes a type. Raises `ValueError` for one that is not registered."""
    _ENTRIES.remove(entry)
    _index()


def _index() -> None:
    _BY_ID.clear()
    _FORMS_BY_ID.clear()
    for entry in sorted(_ENTRIES, key=lambda entry: not entry.exact):
        for table, examples in ((_BY_ID, entry.arrow), (_FORMS_BY_ID, entry.forms)):
            for number in dict.fromkeys(example.id for example in examples):
                table[number] = (*table.get(number, ()), entry)


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


for _entry in known_types():
    register_type(_entry)


def value_type(arrow: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary or run-end encoding; any other type as it is."""
    while arrow_types.is_dictionary(arrow) or arrow_types.is_run_end_encoded(arrow):
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


def may_hold_nan(arrow: pa.DataType) -> bool:
    """Whether the type has NaN, which sorts above every number and which Parquet bounds leave out."""
    return of(logical_type(arrow)).form == "float"


def ticks(type: pa.DataType) -> pa.DataType | None:
    """The integer type that stores the values of a date or time type in their unit; None for any other type."""
    if of(type).tick(type) is None:
        return None
    return pa.int32() if type.bit_width == 32 else pa.int64()


def is_boolean(type: pa.DataType) -> bool:
    return of(type).name == "boolean"


def is_integer(type: pa.DataType) -> bool:
    return of(type).name == "integer"


def is_floating(type: pa.DataType) -> bool:
    return of(type).name == "float"


def is_decimal(type: pa.DataType) -> bool:
    return of(type).name == "decimal"


def is_string(type: pa.DataType) -> bool:
    return of(type).name == "string"


def is_binary(type: pa.DataType) -> bool:
    return of(type).name == "binary"


def is_bytes(type: pa.DataType) -> bool:
    """Whether a type is binary of variable length, in any of Arrow's forms."""
    return bool(is_binary(type) or arrow_types.is_large_binary(type) or arrow_types.is_binary_view(type))


def is_date(type: pa.DataType) -> bool:
    return of(type).name == "date"


def is_time(type: pa.DataType) -> bool:
    return of(type).name == "time"


def is_timestamp(type: pa.DataType) -> bool:
    return of(type).name == "timestamp"


def is_duration(type: pa.DataType) -> bool:
    return of(type).name == "duration"


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


def is_exact(type: pa.DataType) -> bool:
    """Whether equal values are identical. Floats differ because of NaN and −0.0."""
    return bool(
        is_integer(type) or is_date(type) or is_timestamp(type) or arrow_types.is_decimal128(type) or is_string(type)
    )


def is_temporal(type: pa.DataType) -> bool:
    """Whether a type is a date, a time, a timestamp or a duration."""
    return of(type).tick(type) is not None
