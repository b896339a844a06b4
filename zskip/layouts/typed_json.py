"""Arrays as JSON, exact and with their types."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from zskip import types as t
from zskip.errors import UnsupportedFormat

__all__ = ["decode", "encode", "require_format"]


def encode(values: pa.Array) -> dict[str, Any]:
    """The values and their type, without nulls.

    Dates, times and durations are integers in the type's unit, binary is base64, decimals are strings, and so are the
    floats that JSON lacks (NaN and infinities).

    >>> encode(pa.array([1.5, float("inf")]))
    {'type': 'double', 'values': [1.5, 'inf']}
    """
    arrow = values.type
    if t.is_floating(arrow):
        plain: list[Any] = [
            value if math.isfinite(value) else str(value) for value in map(float, values.cast(pa.float64()).to_pylist())
        ]
    elif t.is_decimal(arrow):
        plain = [str(value) for value in values.to_pylist()]
    elif t.is_binary(arrow):
        plain = [base64.b64encode(value).decode() for value in values.to_pylist()]
    elif t.is_temporal(arrow):
        plain = values.view(_ticks(arrow)).to_pylist()
    else:
        plain = values.to_pylist()
    return {"type": str(arrow), "values": plain}


def decode(tree: Mapping[str, Any]) -> pa.Array:
    """The array that `encode` described. Raises `UnsupportedFormat` for a type that this release does not know."""
    arrow, values = _type(tree["type"]), tree["values"]
    if t.is_floating(arrow):
        return pa.array([float(value) for value in values], pa.float64()).cast(arrow)
    if t.is_decimal(arrow):
        return pa.array([Decimal(value) for value in values], arrow)
    if t.is_binary(arrow):
        return pa.array([base64.b64decode(value) for value in values], arrow)
    if t.is_temporal(arrow):
        return pa.array(values, _ticks(arrow)).view(arrow)
    return pa.array(values, arrow)


def require_format(tree: Mapping[str, Any], known: int) -> None:
    """Raises `UnsupportedFormat` where a newer zskip wrote this."""
    if tree.get("format") != known:
        raise UnsupportedFormat(
            f"The layout has format {tree.get('format')!r}, and this zskip reads format {known}. Update zskip."
        )


def _ticks(arrow: pa.DataType) -> pa.DataType:
    return pa.int32() if arrow.bit_width == 32 else pa.int64()


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
