"""Decode the bounds of a footer (Parquet's PLAIN encoding) to Arrow arrays, for every physical form of a type."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.offsets import numbers_of_runs, offsets_of
from zskip.core.types import widened

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
_NUMBERS = {"BOOLEAN": np.uint8, "INT32": np.int32, "INT64": np.int64, "FLOAT": np.float32, "DOUBLE": np.float64}
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


@dataclass(frozen=True, slots=True)
class PlainDecoder:
    """Encoded values in a buffer: ``length`` bytes from ``at`` on for each. A negative ``at`` is a missing value."""

    data: np.ndarray
    at: np.ndarray
    length: np.ndarray

    def values(self, type: pa.DataType, physical: str, logical: str, *, upper: bool) -> pa.Array:
        """The values as ``type``; null for missing ones and for bytes that are not a value of the type.

        ``logical``: Parquet's logical type as JSON. A string that was truncated inside a character is shortened to the
        whole characters if it is a lower bound; as an upper bound it is null.
        """
        if physical in _WIDTHS:
            return self._numbers(type, physical, logical)
        if t.is_decimal(type):
            return self._decimals(type)
        if t.is_floating(type):
            present, raw = self._fixed(2)
            return _masked(raw.view(np.float16).reshape(-1), present, type)
        if t.is_fixed_size_binary(type):
            present, raw = self._fixed(type.byte_width)
            mask = pa.array(present).buffers()[1]
            return pa.Array.from_buffers(type, len(present), [mask, pa.py_buffer(np.ascontiguousarray(raw))])
        texts = self._texts()
        if not t.is_string(type):
            return texts
        try:
            return texts.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([_text(value, upper) for value in texts.to_pylist()], pa.string())

    def _fixed(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Whether each value has this width, and the bytes of all values; those of others are zero."""
        present = (self.at >= 0) & (self.length == width)
        # Overlapping items of this width, so that numpy reads each value in one step, not byte by byte.
        values = np.ndarray((len(self.data) - width + 1,), f"V{width}", self.data, strides=(1,))
        raw = values[np.where(present, self.at, 0)].view(np.uint8).reshape(len(present), width)
        if not present.all():
            raw[~present] = 0
        return present, raw

    def _numbers(self, type: pa.DataType, physical: str, logical: str) -> pa.Array:
        present, raw = self._fixed(_WIDTHS[physical])
        numbers = np.ascontiguousarray(raw).view(_NUMBERS[physical]).reshape(-1)
        if t.is_boolean(type):
            return _masked(numbers != 0, present & (numbers <= 1), type)
        if t.is_decimal(type):
            return _decimal_array(_sign_extended(numbers), present, type)
        if t.is_unsigned_integer(type):
            numbers = numbers.view(np.uint32 if physical == "INT32" else np.uint64)
        if t.is_integer(type):
            limits = np.iinfo(type.to_pandas_dtype())
            return _masked(numbers, present & (numbers >= limits.min) & (numbers <= limits.max), type)
        if t.is_floating(type):
            return _masked(numbers, present, type)
        stored = _temporal(type, physical, json.loads(logical))
        plain = _masked(numbers, present, pa.int32() if physical == "INT32" else pa.int64())
        return pa.nulls(len(plain), type) if stored is None else widened(plain.view(stored), type)

    def _decimals(self, type: pa.DataType) -> pa.Array:
        """Big-endian two's complement of any length, as decimals."""
        width = 32 if type.bit_width > 128 else 16
        present = (self.at >= 0) & (self.length > 0) & (self.length <= width)
        back = np.arange(width)
        place = self.at[:, None] + self.length[:, None] - 1 - back
        inside = present[:, None] & (back < self.length[:, None])
        raw = np.where(inside, self.data[np.where(inside, place, 0)], 0).astype(np.uint8)
        negative = present & (self.data[np.where(present, self.at, 0)] >= 0x80)
        raw[negative[:, None] & ~inside] = 0xFF
        return _decimal_array(raw, present, type)

    def _texts(self) -> pa.BinaryArray:
        present = self.at >= 0
        length = np.where(present, self.length, 0)
        start = np.where(present, self.at, 0)
        place, offsets = numbers_of_runs(start, start + length), offsets_of(length)
        mask = pa.array(present).buffers()[1]
        buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(self.data[place].tobytes())]
        return pa.Array.from_buffers(pa.large_binary(), len(present), buffers).cast(pa.binary())


def _masked(values: np.ndarray, present: np.ndarray, type: pa.DataType) -> pa.Array:
    plain = pa.array(np.ascontiguousarray(values), mask=None if present.all() else ~present)
    return plain if plain.type == type else plain.cast(type)


def _sign_extended(numbers: np.ndarray) -> np.ndarray:
    """Integers as 16 bytes each, little-endian two's complement."""
    low = numbers.astype(np.int64)
    return np.stack([low, low >> 63], axis=1).view(np.uint8).reshape(len(low), 16)


def _decimal_array(raw: np.ndarray, present: np.ndarray, type: pa.DataType) -> pa.Array:
    wide = pa.decimal256 if raw.shape[1] == 32 else pa.decimal128
    mask = pa.array(present).buffers()[1]
    digits = 76 if raw.shape[1] == 32 else 38
    values = pa.Array.from_buffers(
        wide(digits, type.scale), len(present), [mask, pa.py_buffer(np.ascontiguousarray(raw).tobytes())]
    )
    try:
        return values.cast(type)
    except pa.ArrowInvalid:
        # A bound has more digits than its type, which is an error of the writer: only that one becomes null.
        return pa.concat_arrays([_decimal_or_null(value, type) for value in values])


def _decimal_or_null(value: Any, type: pa.DataType) -> pa.Array:
    try:
        return pa.array([value.as_py()], type)
    except pa.ArrowInvalid:
        return pa.nulls(1, type)


def _temporal(type: pa.DataType, physical: str, logical: dict[str, Any]) -> pa.DataType | None:
    """The Arrow type of the numbers in the footer, which may have another unit; None if it does not fit ``type``."""
    unit = _UNITS.get(logical.get("timeUnit", ""))
    match logical.get("Type"):
        case "Date" if t.is_date(type):
            return pa.date32()
        case "Time" if unit and t.is_time(type):
            return pa.time32(unit) if physical == "INT32" else pa.time64(unit)
        case "Timestamp" if unit and t.is_timestamp(type) and physical == "INT64":
            return pa.timestamp(unit, type.tz)
        case _ if t.is_duration(type) and physical == "INT64":
            return type
    return None


def _text(value: bytes | None, upper: bool) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        # The bytes before the first invalid one are a prefix, and a prefix is a lower bound.
        return None if upper else value[: error.start].decode()
