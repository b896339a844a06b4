"""Arrow arrays as JSON, exactly and with their types."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from zskip.core.types import decode_values, encode_values
from zskip.errors import SchemaMismatch, UnsupportedFormat

__all__ = ["decode", "encode", "require_format"]


def encode(column: str, values: pa.Array) -> dict[str, Any]:
    """The JSON form of a column's values and their type; none of them is null. See `zskip.core.types.encode_values`.

    Raises `SchemaMismatch` for a string that is not UTF-8.

    >>> encode("x", pa.array([1.5, float("inf")]))
    {'type': 'double', 'values': [1.5, 'Infinity']}
    """
    try:
        return {"type": str(values.type), "values": encode_values(values)}
    except UnicodeDecodeError as error:
        raise SchemaMismatch(f'The column "{column}" holds a text that is not UTF-8: {error}') from error


def decode(tree: Mapping[str, Any]) -> pa.Array:
    """The array that `encode` described. Raises `UnsupportedFormat` for a type that this release does not know."""
    if not isinstance(tree["values"], list):
        raise TypeError("values must be a list")
    return decode_values(tree["values"], _type(tree["type"]))


def require_format(tree: Mapping[str, Any], known: int) -> None:
    """Raise `UnsupportedFormat` unless the JSON has the format ``known``: a newer zskip wrote it."""
    if tree.get("format") != known:
        raise UnsupportedFormat(
            f"The layout has format {tree.get('format')!r}, and this zskip reads format {known}. Update zskip."
        )


_NAMED = {str(arrow): arrow for arrow in map(pa.type_for_alias, (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "bool", "string", "binary", "date32", "date64",
    "time32[s]", "time32[ms]", "time64[us]", "time64[ns]",
    "duration[s]", "duration[ms]", "duration[us]", "duration[ns]",
))}  # fmt: skip

_PATTERNS: dict[str, Callable[..., pa.DataType]] = {
    r"timestamp\[(\w+)\]": pa.timestamp,
    r"timestamp\[(\w+), tz=(.+)\]": pa.timestamp,
    r"decimal32\((\d+), (-?\d+)\)": lambda precision, scale: pa.decimal32(int(precision), int(scale)),
    r"decimal64\((\d+), (-?\d+)\)": lambda precision, scale: pa.decimal64(int(precision), int(scale)),
    r"decimal128\((\d+), (-?\d+)\)": lambda precision, scale: pa.decimal128(int(precision), int(scale)),
    r"decimal256\((\d+), (-?\d+)\)": lambda precision, scale: pa.decimal256(int(precision), int(scale)),
}


def _type(name: str) -> pa.DataType:
    if name in _NAMED:
        return _NAMED[name]
    for pattern, build in _PATTERNS.items():
        if match := re.fullmatch(pattern, name):
            return build(*match.groups())
    raise UnsupportedFormat(f"The layout names the type {name}, which this zskip does not know. Update zskip.")
