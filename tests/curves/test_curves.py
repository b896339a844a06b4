"""The curves, against bit loops and over whole small grids."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zskip import curves
from zskip.curves import zorder
from zskip.errors import InvalidOption

SHAPES = [(1, 5), (2, 1), (2, 4), (3, 3), (4, 2), (5, 2), (6, 1)]
points = st.integers(1, 18).flatmap(
    lambda columns: st.integers(1, min(64, 1024 // columns)).flatmap(
        lambda bits: st.tuples(
            st.just(bits),
            st.lists(st.tuples(*[st.integers(0, 2**bits - 1)] * columns), min_size=1, max_size=20),
        )
    )
)


def z_by_bits(point, bits):
    key = 0
    for bit in range(bits - 1, -1, -1):
        for value in point:
            key = key << 1 | int(value) >> bit & 1
    return key


def hilbert_by_bits(point, bits):
    """Skilling's program as it was published, one point at a time."""
    x = list(point)
    q = 1 << (bits - 1)
    while q > 1:
        p = q - 1
        for i in range(len(x)):
            if x[i] & q:
                x[0] ^= p
            else:
                t = (x[0] ^ x[i]) & p
                x[0] ^= t
                x[i] ^= t
        q >>= 1
    for i in range(1, len(x)):
        x[i] ^= x[i - 1]
    t = 0
    q = 1 << (bits - 1)
    while q > 1:
        if x[-1] & q:
            t ^= q - 1
        q >>= 1
    return z_by_bits([value ^ t for value in x], bits)


def number(key, columns, bits):
    return int(key) if columns * bits <= 64 else int.from_bytes(bytes(key).ljust(-(-columns * bits // 8), b"\0"), "big")


def grid(columns, bits):
    return [np.array(axis, np.uint64) for axis in zip(*product(range(1 << bits), repeat=columns), strict=True)]


@pytest.mark.parametrize(
    ("point", "bits", "key"), [((3, 6), 3, 30), ((7, 3), 3, 47), ((2, 3), 3, 13), ((214, 97), 8, 0b1011011000101001)]
)
def test_known_answers(point, bits, key):
    assert int(curves.interleave([[value] for value in point], bits)[0]) == key
    assert [int(column[0]) for column in curves.deinterleave([key], len(point), bits)] == list(point)


@pytest.mark.parametrize(("columns", "bits"), SHAPES)
def test_curve_is_a_bijection(columns, bits):
    cells = grid(columns, bits)
    for there, back in (
        (curves.interleave, curves.deinterleave),
        (curves.hilbert_key, curves.hilbert_coordinates),
    ):
        keys = there(cells, bits)
        assert sorted(map(int, keys)) == list(range(1 << columns * bits))
        assert all(np.array_equal(a, b) for a, b in zip(back(keys, columns, bits), cells, strict=True))


@pytest.mark.parametrize(("columns", "bits"), SHAPES)
def test_neighbours_on_the_hilbert_curve_differ_by_one_step(columns, bits):
    path = np.array(curves.hilbert_coordinates(np.arange(1 << columns * bits, dtype=np.uint64), columns, bits))
    assert (np.abs(np.diff(path.astype(np.int64), axis=1)).sum(axis=0) == 1).all()


@given(points)
def test_keys_equal_those_of_a_bit_loop(case):
    bits, rows = case
    columns = [np.array(column, np.uint64) for column in zip(*rows, strict=True)]
    shape = len(columns), bits
    assert [number(key, *shape) for key in curves.interleave(columns, bits)] == [z_by_bits(row, bits) for row in rows]
    hilbert = curves.hilbert_key(columns, bits)
    assert [number(key, *shape) for key in hilbert] == [hilbert_by_bits(row, bits) for row in rows]
    for back in (
        curves.deinterleave(curves.interleave(columns, bits), *shape),
        curves.hilbert_coordinates(hilbert, *shape),
    ):
        assert all(np.array_equal(a, b) for a, b in zip(back, columns, strict=True))


@given(points)
def test_keys_sort_as_the_curve_does(case):
    bits, rows = case
    columns = [np.array(column, np.uint64) for column in zip(*rows, strict=True)]
    keys = curves.interleave(columns, bits)
    expected = sorted(range(len(rows)), key=lambda row: z_by_bits(rows[row], bits))
    assert np.argsort(keys, kind="stable").tolist() == expected
    assert curves.z_argsort(columns).tolist() == expected


@given(points)
def test_comparison_without_a_key_agrees_with_the_keys(case):
    bits, rows = case
    columns = [np.array(column, np.uint64) for column in zip(*rows, strict=True)]
    shifted = [np.roll(column, 1) for column in columns]
    expected = [z_by_bits(a, bits) < z_by_bits(b, bits) for a, b in zip(rows, zip(*shifted, strict=True), strict=True)]
    assert curves.z_less(columns, shifted).tolist() == expected


def test_many_rows_cross_the_chunks():
    rng = np.random.default_rng(7)
    for columns, bits in ((2, 32), (3, 21), (4, 16), (2, 60)):
        cells = [rng.integers(0, 1 << bits, 70_001, dtype=np.uint64) for _ in range(columns)]
        for there, back in (
            (curves.interleave, curves.deinterleave),
            (curves.hilbert_key, curves.hilbert_coordinates),
        ):
            assert all(
                np.array_equal(a, b) for a, b in zip(back(there(cells, bits), columns, bits), cells, strict=True)
            )


@pytest.mark.parametrize(
    ("coordinates", "bits"),
    [([], 3), ([[8]], 3), ([[1], [1, 2]], 3), ([[-1]], 3), ([[1]], 65), ([[1.5]], 3), ([[1]] * 17, 64), ([[[1]]], 2)],
)
def test_what_has_no_key_is_refused(coordinates, bits):
    with pytest.raises(InvalidOption):
        curves.interleave(coordinates, bits)
    assert zorder.MAX_KEY_BITS == 1024
