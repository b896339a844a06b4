"""Hashes of values: equal wherever SQL says that two values are equal, of whatever types and widths."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zskip.core.types import widens
from zskip.tablelog.sketches.hashing import can_hash, hashes

_MASK = (1 << 64) - 1
_M = 0xC6A4A7935BD1E995


def murmur(key: bytes, seed: int = 0) -> int:
    """MurmurHash64A, as its author wrote it down, byte by byte."""
    hashed = (seed ^ len(key) * _M) & _MASK
    whole = len(key) // 8 * 8
    for start in range(0, whole, 8):
        word = int.from_bytes(key[start : start + 8], "little") * _M & _MASK
        word = (word ^ word >> 47) * _M & _MASK
        hashed = (hashed ^ word) * _M & _MASK
    if key[whole:]:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 47) * _M & _MASK
    return hashed ^ hashed >> 47


@given(st.lists(st.binary(max_size=129)))
def test_short_strings_are_hashed_by_murmur(values: list[bytes]) -> None:
    short = [value for value in values if len(value) <= 128]
    assert hashes(pa.array(short, pa.binary())).tolist() == [murmur(value) for value in short]
    sliced = pa.array([b"before", *values, b"after"], pa.binary())[1:-1]
    assert hashes(sliced).tolist() == hashes(pa.array(values, pa.binary())).tolist()


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_are_hashed_as_eight_bytes(value: int) -> None:
    assert hashes(pa.array([value])).tolist() == [murmur(value.to_bytes(8, "little", signed=True))]


def one(value: Any, type: pa.DataType) -> int:
    (found,) = hashes(pa.array([value], type)).tolist()
    return int(found)


@pytest.mark.parametrize(
    ("value", "old", "new"),
    [
        (-7, pa.int8(), pa.int64()),
        (200, pa.uint8(), pa.int16()),
        (-7, pa.int32(), pa.float64()),
        (7, pa.int64(), pa.decimal128(38, 6)),
        (-7, pa.int16(), pa.decimal128(9, 2)),
        (0.375, pa.float32(), pa.float64()),
        (1e300, pa.float64(), pa.float64()),
        (Decimal("1.50"), pa.decimal128(5, 2), pa.decimal128(38, 20)),
        (Decimal("-123456789012345678901.25"), pa.decimal128(30, 2), pa.decimal256(60, 10)),
        (Decimal("-0.10"), pa.decimal128(5, 2), pa.decimal128(20, 1)),
        (date(1931, 5, 1), pa.date32(), pa.timestamp("ns")),
        (date(1931, 5, 1), pa.date32(), pa.date64()),
        (datetime(1931, 5, 1, 1, 2, 3), pa.timestamp("s"), pa.timestamp("ns")),
        (datetime(1931, 5, 1, 1, 2, 3, 456789), pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")),
        (time(1, 2, 3), pa.time32("s"), pa.time64("ns")),
        (timedelta(seconds=-3), pa.duration("s"), pa.duration("us")),
        (True, pa.bool_(), pa.bool_()),
    ],
)
def test_a_widened_column_keeps_its_hashes(value: Any, old: pa.DataType, new: pa.DataType) -> None:
    assert widens(old, new) or are_decimals(old, new)
    narrow = pa.array([value], old)
    assert hashes(narrow).tolist() == hashes(narrow.cast(new)).tolist()


def are_decimals(old: pa.DataType, new: pa.DataType) -> bool:
    """Decimals of any scales: what one holds of the value is the same."""
    return bool(pa.types.is_decimal(old) and pa.types.is_decimal(new))


def test_floats_that_are_equal_in_sql_have_one_hash() -> None:
    strange = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    nans = hashes(pa.array([*strange, math.nan]))
    assert len(set(nans.tolist())) == 1
    assert one(-0.0, pa.float64()) == one(0.0, pa.float32()) == one(0, pa.int8())
    assert one(math.inf, pa.float64()) != one(-math.inf, pa.float64())


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9)))
def test_decimals_are_hashed_by_value(values: list[Decimal]) -> None:
    narrow, wide = (hashes(pa.array(values, type)) for type in (pa.decimal128(13, 3), pa.decimal128(38, 7)))
    assert narrow.tolist() == wide.tolist()
    assert len(set(narrow.tolist())) == len(set(values))


def test_nulls_have_no_hash() -> None:
    assert len(hashes(pa.array([None, "a", None]))) == 1


@pytest.mark.parametrize("type", [pa.list_(pa.int64()), pa.struct([]), pa.month_day_nano_interval(), pa.null()])
def test_types_without_equality_are_refused(type: pa.DataType) -> None:
    assert not can_hash(type)
