"""Where bounds stand among cuts: by the words of texts as by the texts, whatever they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zskip.pruning import rank_search
from zskip.pruning.rank_search import RankIndex, TextCuts

ENDS = np.iinfo(np.int64)
INTEGERS = st.one_of(
    st.integers(ENDS.min, ENDS.max),
    st.integers(-300, 300),
    st.integers(0, 62).map(lambda bit: 1 << bit),
    st.integers(ENDS.max - 300, ENDS.max),
    st.sampled_from([ENDS.min, ENDS.max, 0, -1]),
)
FLOATS = st.one_of(
    st.floats(allow_nan=False),
    st.integers(-50, 50).map(float),
    st.sampled_from([0.0, -0.0, np.inf, -np.inf, 5e-324, -5e-324, 1.7976931348623157e308]),
)
TEXTS = st.one_of(
    st.binary(max_size=20),
    st.text("ab\0\xff", max_size=12).map(str.encode),
    st.tuples(st.sampled_from([b"", b"key-", b"http://example.com/a/long/one/"]), st.text("019", max_size=10)).map(
        lambda parts: parts[0] + parts[1].encode()
    ),
)


@given(st.lists(INTEGERS, min_size=1, max_size=60), st.lists(INTEGERS, max_size=60))
@settings(max_examples=200)
def test_of_integers(cuts: list[int], bounds: list[int]) -> None:
    _agree(np.array(cuts, np.int64), np.array([*bounds, *cuts], np.int64))


@given(st.lists(FLOATS, min_size=1, max_size=60), st.lists(FLOATS, max_size=60))
@settings(max_examples=200)
def test_of_doubles(cuts: list[float], bounds: list[float]) -> None:
    _agree(np.array(cuts), np.array([*bounds, *cuts]))


@given(st.lists(TEXTS, min_size=1, max_size=60), st.lists(TEXTS | st.none(), max_size=60), st.integers(0, 5))
@settings(max_examples=300)
def test_of_bytes(cuts: list[bytes], bounds: list[bytes | None], skipped: int) -> None:
    every = [*bounds, *cuts, *(cut + b"\0" for cut in cuts), *(cut[:-1] for cut in cuts)]
    ordered = sorted(set(cuts))
    # A part of a larger array, as the units of a shard are.
    asked = pa.array(every, pa.binary())[skipped:]
    found = TextCuts.of(pa.array(ordered, pa.binary())).at_most(asked)
    expected = [len(ordered) if each is None else sum(cut <= each for cut in ordered) for each in every[skipped:]]
    assert found.tolist() == expected


def _agree(cuts: np.ndarray, bounds: np.ndarray) -> None:
    cuts = np.unique(cuts)
    assert RankIndex(cuts).at_most(bounds).tolist() == np.searchsorted(cuts, bounds, side="right").tolist()


def test_many_texts() -> None:
    random = np.random.default_rng(3)
    numbers = np.unique(np.concatenate([random.integers(0, 5000, 3000), random.integers(0, 2**62, 3000)]))
    bounds = np.concatenate([numbers, numbers - 1, random.integers(0, 2**62, 5000)])
    texts = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 20, "0").cast(pa.binary())
    asked = pc.utf8_lpad(pa.array(np.abs(bounds)).cast(pa.string()), 20, "0").cast(pa.binary())
    expected = np.searchsorted(np.array(texts.to_pylist(), "S20"), np.array(asked.to_pylist(), "S20"), side="right")
    assert RankIndex(texts).at_most(asked).tolist() == expected.tolist()


def test_a_text_that_ends_where_others_have_zero_bytes() -> None:
    cuts = [b"ke", b"ke\0", *(b"ke\0\0" + bytes([last]) for last in b"abcdefghij")]
    found = RankIndex(pa.array(cuts, pa.binary()))
    assert found.at_most(pa.array([b"k", b"ke", b"ke\0", b"ke\0\0", b"ke\0\0a", b"kf"], pa.binary())).tolist() == [
        0, 1, 2, 2, 3, len(cuts)
    ]  # fmt: skip


@settings(deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=30, unique=True), st.lists(TEXTS, max_size=30))
def test_long_cuts_are_shortened_without_a_change(cuts: list[bytes], bounds: list[bytes]) -> None:
    cuts = sorted(cuts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_search, "LONG", 1)
        found = RankIndex(pa.array(cuts, pa.binary())).at_most(pa.array(bounds, pa.binary()))
    assert found.tolist() == [sum(cut <= bound for cut in cuts) for bound in bounds]
