"""Clustering depth against counting, and the score against the share that exact boxes give."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zskip import layouts
from zskip.stats import Ranges, Statistics

intervals = st.lists(
    st.tuples(
        st.integers(0, 9), st.integers(0, 9), st.integers(1, 5), st.sampled_from(["known", "known", "null", "empty"])
    ),
    min_size=1,
    max_size=12,
)


def statistics(units):
    known = [kind == "known" for *_, kind in units]
    lower = pa.array([min(a, b) if k else None for (a, b, *_), k in zip(units, known, strict=True)], pa.int64())
    upper = pa.array([max(a, b) if k else None for (a, b, *_), k in zip(units, known, strict=True)], pa.int64())
    value = pa.array([{"known": True, "null": None, "empty": False}[kind] for *_, kind in units], pa.bool_())
    flag = pa.array([False] * len(units), pa.bool_())
    return Statistics(pa.array([rows for _, _, rows, _ in units]), {"a": Ranges(lower, upper, value, flag, flag)})


@given(intervals)
def test_depth_is_what_counting_gives(units):
    found = layouts.depths(statistics(units), ["a"])["a"]
    unknown = [unit for unit in units if unit[3] == "null"]
    known = [(min(a, b), max(a, b), rows) for a, b, rows, kind in units if kind == "known"]
    total = sum(rows for _, _, rows, _ in units)
    asked = [(end, rows) for low, high, rows in known for end in (low, high)]
    assert found.unknown == len(unknown)
    if asked:

        def over(value):
            return [rows for low, high, rows in known if low <= value <= high] + [rows for _, _, rows, _ in unknown]

        weight = sum(rows for _, rows in asked)
        assert found.average == pytest.approx(sum(len(over(v)) * rows for v, rows in asked) / weight)
        assert found.worst == max(len(over(v)) for v, _ in asked)
        assert found.skipped == pytest.approx(1 - sum(sum(over(v)) * rows for v, rows in asked) / weight / total)
        assert sum(share for *_, share in found.histogram) == pytest.approx(1)


def test_a_column_without_statistics_is_read_whole():
    found = layouts.depths(Statistics(pa.array([5, 5]), {}), ["a"])["a"]
    assert (found.average, found.skipped, found.unknown) == (2.0, 0.0, 2)


def test_score_is_the_share_that_boxes_give():
    rows = pa.table({"a": np.arange(100) % 10, "b": np.arange(100)})
    by_b = layouts.score(rows, np.arange(100) // 10, ["a", "b"])
    assert by_b.columns == {"a": pytest.approx(1.0), "b": pytest.approx(0.1)}
    assert by_b.read == pytest.approx(0.55)
    asked = layouts.score(rows, np.arange(100) // 10, ["b"], workload=["b < 20", "a = 3", "b = 1000"])
    assert asked.queries == (pytest.approx(0.2), pytest.approx(1.0), 0.0)
    fitted = layouts.fit(rows, ["a", "b"], files=10, total_rows=100)
    assert layouts.score(rows, fitted, ["a", "b"]).read < 0.45
