"""The ranks of bounds among cuts, as numpy and Python order them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from zskip.pruning.constant_comparison import RankIndex

ENDS = np.iinfo(np.int64)
INTEGERS = st.one_of(
    st.integers(ENDS.min, ENDS.max), st.integers(-300, 300), st.sampled_from([ENDS.min, ENDS.max, ENDS.max - 1, 0, -1])
)
FLOATS = st.one_of(
    st.floats(allow_nan=False),
    st.integers(-50, 50).map(float),
    st.sampled_from([0.0, -0.0, np.inf, -np.inf, 5e-324, -5e-324, 1.7976931348623157e308]),
)
BEGINNINGS = st.sampled_from([b"", b"key-", b"ke\0\0", b"http://example.com/a/long/one/", b"x" * 70])
TEXTS = st.one_of(
    st.binary(max_size=20),
    st.text("ab\0\xff", max_size=12).map(str.encode),
    st.tuples(BEGINNINGS, st.text("019\0", max_size=10)).map(lambda parts: parts[0] + parts[1].encode()),
)


@given(st.lists(INTEGERS, min_size=1, max_size=60), st.lists(INTEGERS, max_size=60))
def test_of_integers(cuts: list[int], bounds: list[int]) -> None:
    _agree(np.array(cuts, np.int64), np.array([*bounds, *cuts], np.int64))


@given(st.lists(FLOATS, min_size=1, max_size=60), st.lists(FLOATS, max_size=60))
def test_of_doubles(cuts: list[float], bounds: list[float]) -> None:
    _agree(np.array(cuts), np.array([*bounds, *cuts]))


def _agree(cuts: np.ndarray, bounds: np.ndarray) -> None:
    cuts = np.unique(cuts)
    assert RankIndex(cuts).at_most(bounds).tolist() == np.searchsorted(cuts, bounds, side="right").tolist()


@settings(deadline=None, max_examples=300)
@given(
    BEGINNINGS, st.lists(TEXTS, min_size=1, max_size=60), st.lists(TEXTS | st.none(), max_size=60), st.integers(0, 5)
)
def test_of_bytes(beginning: bytes, cuts: list[bytes], bounds: list[bytes | None], skipped: int) -> None:
    ordered = sorted({beginning + cut for cut in cuts})
    every = [*bounds, *cuts, *ordered, *(cut + b"\0" for cut in ordered), *(cut[:-1] for cut in ordered)]
    # A part of a larger array, as the units of a shard are.
    found = RankIndex(pa.array(ordered, pa.binary())).at_most(pa.array(every, pa.binary())[skipped:])
    expected = [len(ordered) if each is None else sum(cut <= each for cut in ordered) for each in every[skipped:]]
    assert found.tolist() == expected


def test_many_texts() -> None:
    random = np.random.default_rng(3)
    numbers = np.unique(np.concatenate([random.integers(0, 5000, 3000), random.integers(0, 2**62, 3000)]))
    bounds = np.concatenate([numbers, numbers - 1, random.integers(0, 2**62, 5000)])
    texts = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 20, "0").cast(pa.binary())
    asked = pc.utf8_lpad(pa.array(np.abs(bounds)).cast(pa.string()), 20, "0").cast(pa.binary())
    expected = np.searchsorted(np.array(texts.to_pylist(), "S20"), np.array(asked.to_pylist(), "S20"), side="right")
    assert RankIndex(texts).at_most(asked).tolist() == expected.tolist()
