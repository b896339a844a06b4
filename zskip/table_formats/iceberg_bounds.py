"""Decodes bounds in Iceberg's single-value serialization to Arrow arrays, a column at a time.

| type | bytes |
| --- | --- |
| int, date · long, time, timestamp | 4 · 8, little-endian; 4 for an int promoted to long |
| float · double | 4 · 8, little-endian; 4 for a float promoted to double |
| decimal | the unscaled number, big-endian, in as few bytes as possible |
| string, binary, fixed | UTF-8 or the bytes themselves |
| boolean | one byte |

UUIDs are left out: for years Java compared them as two signed numbers, and bounds do not name their writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa

from zskip.core import types as t


def decoded(bounds: Sequence[bytes | None], type: pa.DataType) -> pa.Array:
    """The bounds as values of a type; null where a bound is missing or is not a value of that type.

    >>> decoded([(7).to_bytes(4, "little"), None], pa.int64()).to_pylist()
    [7, None]
    """
    if t.is_string(type):
        return pa.array([_text(bound) for bound in bounds], pa.string())
    if t.is_binary(type):
        return pa.array(bounds, pa.binary())
    if t.is_decimal(type):
        return pa.array([_decimal(bound, type) for bound in bounds], type)
    if t.is_boolean(type):
        return pa.array([None if bound is None or len(bound) != 1 else bound != b"\x00" for bound in bounds], type)
    if t.is_floating(type):
        return _numbers(bounds, {4: "<f4", 8: "<f8"} if t.is_float64(type) else {4: "<f4"}, type)
    if t.is_int32(type) or t.is_date32(type):
        return _numbers(bounds, {4: "<i4"}, pa.int32()).view(type)
    if t.is_int64(type):
        return _numbers(bounds, {4: "<i4", 8: "<i8"}, type)
    if t.is_time64(type) or t.is_timestamp(type):
        # The 4-byte bounds of a date promoted to timestamp count days: they become null.
        return _numbers(bounds, {8: "<i8"}, pa.int64()).view(type)
    return pa.nulls(len(bounds), type)


def _numbers(bounds: Sequence[bytes | None], forms: dict[int, str], type: pa.DataType) -> pa.Array:
    lengths = np.fromiter((0 if bound is None else len(bound) for bound in bounds), np.int64, len(bounds))
    values = np.zeros(len(bounds), type.to_pandas_dtype())
    for length, form in forms.items():
        of_length = lengths == length
        data = b"".join(bound for bound in bounds if bound is not None and len(bound) == length)
        values[of_length] = np.frombuffer(data, form)
    return pa.array(values, type, mask=~np.isin(lengths, list(forms)))


def _text(bound: bytes | None) -> str | None:
    try:
        return None if bound is None else bound.decode("utf-8")
    except UnicodeDecodeError:
        return None  # truncated within a character


def _decimal(bound: bytes | None, type: pa.Decimal128Type) -> Decimal | None:
    if bound is None:
        return None
    number = int.from_bytes(bound, "big", signed=True)
    return t.decimal_of(number, type.scale) if abs(number) < 10**type.precision else None
