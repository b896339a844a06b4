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
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from zskip.core.types.type_lookup import is_string, of, ticks

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


def _decoder(type: pa.DataType) -> Callable[[Json], Any] | None:
    match of(type).form:
        case "float":
            return (lambda value: np.float16(value)) if type == pa.float16() else float
        case "decimal":
            return Decimal
        case "bytes" if not is_string(type):
            return lambda value: base64.b64decode(value, validate=True)
    return None
