"""Values as JSON, exactly.

| form | in JSON |
| --- | --- |
| boolean, integers | true, 7 (64 bits: read them as integers, not as doubles) |
| floats | 0.5, and "Infinity", "-Infinity", "NaN" |
| decimals | "12.50" |
| strings; other bytes | the text; base64 |
| dates, times, timestamps, durations | an integer in the type's own unit (date32: days, date64: milliseconds) |
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from zskip.core.types.type_lookup import is_string, of, ticks
from zskip.errors import UnsupportedFormat

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
