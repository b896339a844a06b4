"""Codes keep the order of every type; the order is one."""

from __future__ import annotations

import datetime as dt
import functools
import math
from bisect import bisect_right
from decimal import Decimal
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zskip.core.types import logical_type
from zskip.errors import NotOrderable
from zskip.stats import keys
from zskip.stats.keys import Boundaries, order_bits

MOMENTS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2250, 1, 1))
BYTES = st.one_of(
    st.binary(max_size=20), st.sampled_from([b"", b"\0", b"a", b"a\0", b"12345678", b"12345678\0", b"12345678abcdefgh"])
)
TEXT = st.one_of(st.text(max_size=12), st.sampled_from(["", "a", "a\0", "12345678", "123456789", "é", "😀", "\uffff"]))
VALUES = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float16(): st.floats(width=16).map(np.float16),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.decimal32(5, 2): st.integers(-99999, 99999).map(lambda i: Decimal(i).scaleb(-2)),
    pa.decimal64(18, 2): st.integers(-(10**17), 10**17).map(lambda i: Decimal(i).scaleb(-2)),
    pa.decimal128(18, 4): st.integers(-(10**17), 10**17).map(lambda i: Decimal(i).scaleb(-4)),
    pa.decimal128(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    pa.decimal256(70, 0): st.integers(-(10**70) + 1, 10**70 - 1).map(Decimal),
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.string_view(): TEXT,
    pa.dictionary(pa.int32(), pa.string()): TEXT,
    pa.binary(): BYTES,
    pa.binary(4): st.binary(min_size=4, max_size=4),
    pa.date32(): st.dates(dt.date(1700, 1, 1), dt.date(2250, 1, 1)),
    pa.date64(): st.dates(dt.date(1700, 1, 1), dt.date(2250, 1, 1)),
    pa.time32("s"): st.times().map(lambda time: time.replace(microsecond=0)),
    pa.time64("us"): st.times(),
    pa.timestamp("ns"): MOMENTS,
    pa.timestamp("us", "Europe/Berlin"): MOMENTS,
    pa.duration("us"): st.timedeltas(dt.timedelta(-1000), dt.timedelta(1000)),
}
columns = st.sampled_from(list(VALUES)).flatmap(
    lambda arrow: st.tuples(st.just(arrow), st.lists(st.none() | VALUES[arrow], max_size=25))
)


def plain(value):
    return value.encode() if isinstance(value, str) else value


def compare(a, b):
    """The one order, a pair at a time: NULL first, NaN last, text by its bytes."""
    if a is None or b is None:
        return (a is not None) - (b is not None)
    a, b = plain(a), plain(b)
    nan_a, nan_b = (isinstance(v, float | np.floating) and math.isnan(v) for v in (a, b))
    if nan_a or nan_b:
        return nan_a - nan_b
    return bool(a > b) - bool(a < b)


@given(columns)
def test_dense_codes_keep_the_order_and_are_dense(case):
    arrow, values = case
    codes, distinct = keys.dense_codes(pa.array(values, arrow))
    for a, code_a in zip(values, codes, strict=True):
        for b, code_b in zip(values, codes, strict=True):
            assert np.sign(code_a - code_b) == compare(a, b)
    assert sorted({int(code) for code in codes} - {0}) == list(range(1, len(distinct) + 1))
    assert distinct.type == logical_type(arrow)


@given(columns, st.data())
def test_codes_count_the_boundaries_up_to_a_value(case, data):
    arrow, values = case
    chosen = pa.array(data.draw(st.lists(VALUES[arrow], max_size=12)), arrow)
    boundaries = keys.Boundaries(keys.dense_codes(chosen)[1])
    edges = sorted(boundaries.values.to_pylist(), key=functools.cmp_to_key(compare))
    rows = pa.array(values + values[:3], arrow)
    expected = [0 if v is None else 1 + sum(compare(edge, v) <= 0 for edge in edges) for v in rows.to_pylist()]
    assert boundaries.codes(rows).tolist() == expected
    assert boundaries.codes(rows.slice(1)).tolist() == expected[1:]
    assert boundaries.codes(pa.chunked_array([rows.slice(0, 2), rows.slice(2)])).tolist() == expected
    if arrow == pa.string():
        for nulls in ("mask", "encode"):  # NULL among the indices, or in the dictionary
            assert boundaries.codes(pc.dictionary_encode(rows, nulls)).tolist() == expected


@given(columns)
def test_order_bits_never_reverse_the_order(case):
    arrow, values = case
    bits = keys.order_bits(pa.array(values, arrow)).tolist()
    for a, bits_a in zip(values, bits, strict=True):
        for b, bits_b in zip(values, bits, strict=True):
            assert compare(a, b) >= 0 or bits_a <= bits_b


def test_zeros_are_one_and_nan_is_greatest():
    codes, distinct = keys.dense_codes(pa.array([0.0, -0.0, math.nan, math.inf, -math.nan, None]))
    assert codes.tolist() == [1, 1, 3, 2, 3, 0]
    assert keys.Boundaries(distinct).codes(pa.array([-0.0, math.nan, -1.0])).tolist() == [2, 4, 1]
    assert keys.order_bits(pa.array([0.0])) == keys.order_bits(pa.array([-0.0]))


@pytest.mark.parametrize("arrow", [pa.list_(pa.int8()), pa.null(), pa.struct([("a", pa.int8())])])
def test_what_has_no_order_is_refused(arrow):
    with pytest.raises(NotOrderable):
        keys.dense_codes(pa.nulls(2, arrow))


@pytest.mark.parametrize("prefix", [0, 60, 64, 70, 5_000])
def test_texts_that_begin_alike_are_numbered_as_they_compare(prefix: int) -> None:
    random = Random(prefix)
    ends = ["", "\0", "\0\0", "a", "a\0", "ab", "b", "é", "b" * 40, "b" * 40 + "c", *(str(i) for i in range(30))]
    texts = ["x" * prefix + end for end in ends] + ["", "w", "y", "x" * (prefix // 2), "x" * prefix + "b" * 90]
    boundaries = sorted(random.sample(texts, 25), key=str.encode)
    values = [random.choice([*texts, None]) for _ in range(3_000)]
    by_bytes = [each.encode() for each in boundaries]
    wanted = [0 if each is None else 1 + bisect_right(by_bytes, each.encode()) for each in values]
    assert Boundaries(pa.array(boundaries)).codes(pa.array(values)).tolist() == wanted
    bits = order_bits(pa.array(values))
    order = sorted((each.encode(), int(bit)) for each, bit in zip(values, bits, strict=True) if each is not None)
    assert all(one[1] <= other[1] for one, other in pairwise(order))


def test_long_texts_that_begin_alike() -> None:
    texts = pa.array(["a" * 100_000 + f"{i:04d}" for i in range(40)])
    boundaries = Boundaries(texts.take(pa.array([10, 20])))
    assert boundaries.codes(texts).tolist() == [1] * 10 + [2] * 10 + [3] * 20
    assert (np.diff(order_bits(texts).astype(object)) > 0).all()
