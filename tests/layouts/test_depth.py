"""Clustering depth against counting, and the score against the share that exact boxes give."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zskip import layouts
from zskip.layouts.fitting import Widths
from zskip.stats import Ranges, Statistics
from zskip.writer.look_ups import LookUps

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
    asked = [(v, rows / (high - low + 1)) for low, high, rows in known for v in range(low, high + 1)]
    assert found.unknown == len(unknown)
    if asked:

        def over(value):
            return [rows for low, high, rows in known if low <= value <= high] + [rows for _, _, rows, _ in unknown]

        weight = sum(rows for _, rows in asked)
        assert found.average == pytest.approx(sum(len(over(v)) * rows for v, rows in asked) / weight)
        assert found.worst == max(len(over(v)) for v, _ in asked)
        assert found.skipped == pytest.approx(1 - sum(sum(over(v)) * rows for v, rows in asked) / weight / total)
        assert sum(share for *_, share in found.histogram) == pytest.approx(1)


@pytest.mark.parametrize("kind", ["numbers", "floats", "texts", "moments"])
def test_what_a_look_up_skips_is_what_look_ups_of_rows_skip(kind):
    """Boxes of a hundred files over two columns, as the writer cuts them: never more than the limit allows."""
    drawn = np.random.default_rng(1).integers(0, 10**8, (2, 50_000))
    values = {
        "numbers": lambda one: pa.array(one),
        "floats": lambda one: pa.array(one / 7 - 10**6),
        "texts": lambda one: pa.array([f"user-{each:08d}" for each in one.tolist()]),
        "moments": lambda one: pa.array(one * 1000).cast(pa.timestamp("us")),
    }[kind]
    rows = pa.table({"a": values(drawn[0]), "b": values(drawn[1])})
    files = layouts.fit(rows, ["a", "b"], files=100, total_rows=len(rows)).assign(rows)
    ends = rows.append_column("file", pa.array(files)).group_by("file").aggregate(
        [("a", "min"), ("a", "max"), ("b", "min"), ("b", "max"), ("a", "count")]
    )  # fmt: skip
    true, false = pa.array([True] * len(ends)), pa.array([False] * len(ends))
    known = {
        path: Ranges(*(ends[f"{path}_{end}"].combine_chunks() for end in ("min", "max")), true, false, false)
        for path in ("a", "b")
    }
    found = layouts.depths(Statistics(ends["a_count"].combine_chunks(), known), ["a", "b"])
    truth = layouts.score(rows, files, ["a", "b"])
    for path, depth in found.items():
        assert depth.skipped == pytest.approx(1 - truth.columns[path].rows, abs=0.006)
    assert np.mean([depth.skipped for depth in found.values()]) < layouts.limit(100, [1.0, 1.0]) + 0.002


@pytest.mark.parametrize("values", [["a", "a", "\U0010ffff" * 3], [0.0, 0.0, 1e300], [-(2**63), -(2**63), 2**63 - 1]])
def test_a_single_value_counts_beside_the_widest_range(values):
    """Two units of one value each, and one that spans all."""
    lower, upper = pa.array([values[0], values[2], values[0]]), pa.array([values[0], values[2], values[2]])
    true, false = pa.array([True] * 3), pa.array([False] * 3)
    found = layouts.depths(Statistics(pa.array([10, 10, 10]), {"a": Ranges(lower, upper, true, false, false)}), ["a"])[
        "a"
    ]
    assert found.average == pytest.approx((2 + 2 + 1) / 3, abs=1e-6)
    assert found.skipped == pytest.approx(1 - 5 / 9, abs=1e-6)


def test_a_column_without_statistics_is_read_whole():
    found = layouts.depths(Statistics(pa.array([5, 5]), {}), ["a"])["a"]
    assert (found.average, found.skipped, found.unknown) == (2.0, 0.0, 2)


def test_score_is_the_share_that_boxes_give():
    rows = pa.table({"a": np.arange(100) % 10, "b": np.arange(100)})
    by_b = layouts.score(rows, np.arange(100) // 10, ["a", "b"])
    assert {path: share.rows for path, share in by_b.columns.items()} == {
        "a": pytest.approx(1.0),
        "b": pytest.approx(0.1),
    }
    assert by_b.read == by_b.bytes == pytest.approx(0.55)
    asked = layouts.score(rows, np.arange(100) // 10, ["b"], workload=["b < 20", "a = 3", "b = 1000"])
    assert [share.rows for share in asked.queries] == [pytest.approx(0.2), pytest.approx(1.0), 0.0]
    fitted = layouts.fit(rows, ["a", "b"], files=10, total_rows=100)
    assert layouts.score(rows, fitted, ["a", "b"]).read < 0.45


def test_rows_bytes_and_files_are_counted_each_by_themselves():
    """Three files, of four short rows, of two, and of one that is as wide as all others; file 2 stays empty."""
    rows = pa.table({"a": pa.array([1, 2, 3, 4, 5, 6, 7], pa.int8()), "text": ["xyz"] * 6 + ["x" * 23]})
    score = layouts.score(rows, np.array([0, 0, 0, 0, 1, 1, 3]), ["a"], workload=["a >= 7", "a >= 5", "a < 9"])
    assert score.queries == (
        layouts.Share(pytest.approx(1 / 7), pytest.approx(1 / 2), pytest.approx(1 / 3)),
        layouts.Share(pytest.approx(3 / 7), pytest.approx(2 / 3), pytest.approx(2 / 3)),
        layouts.Share(pytest.approx(1), pytest.approx(1), pytest.approx(1)),
    )
    # a look-up of a drawn value reads a file of its share of the values
    assert score.columns["a"] == layouts.Share(
        pytest.approx((16 + 4 + 1) / 49), pytest.approx((4 * 16 + 2 * 8 + 24) / 48 / 7), pytest.approx(1 / 3)
    )


@pytest.mark.parametrize(
    ("values", "width"),
    [
        (pa.array([True, None]), [1 / 8, 1 / 8]),
        (pa.array([1, 2], pa.timestamp("us")), [8, 8]),
        (pa.array([b"abcd", None], pa.binary(4)), [4, 4]),
        (pa.array([1, 2]).cast(pa.decimal128(38)), [16, 16]),
        (pa.array(["ä", None], pa.string_view()), [2, 0]),
        (pa.array([b"123", b""], pa.large_binary()), [3, 0]),
        (pa.array(["abc", "d"]).dictionary_encode(), [3, 1]),
        (pa.nulls(2), [0, 0]),
        (pa.array([[1, 2, 3], []], pa.list_(pa.int64())), [16, 16]),
    ],
)
def test_a_row_is_as_wide_as_its_values(values, width):
    rows = pa.table({"a": values})
    assert Widths(rows).by_file(np.arange(2), 2).tolist() == width
    assert Widths(rows.slice(0, 0)).by_file(np.arange(0), 2).tolist() == [0, 0]


@pytest.mark.parametrize("values", [[1] * 8, list(range(8)), [0, 7, 0, 7, 0, 7, 0, 7], [None] * 8, [3] + [None] * 7])
def test_the_limit_is_never_below_what_is_reached(values: list[int | None]) -> None:
    """Of a column without a value every row was skipped, beyond a limit of 65 %."""
    bounds = pa.array(values, pa.int64())
    no = pa.array([False] * 8)
    ranges = Ranges(bounds, bounds, bounds.is_valid(), bounds.is_null(), no)
    both = {"a": ranges, "b": Ranges(bounds.fill_null(0), pa.array([9] * 8), pa.array([True] * 8), no, no)}
    for column in layouts.depths(Statistics(pa.array([10] * 8), both), ["a", "b"]).values():
        assert 0 <= column.skipped <= column.limit <= 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("values", [[0.0, 1e-310], [0.0, 1e-300, 2e-300], [-1.7e308, 0.0, 1.7e308]])
def test_numbers_as_close_or_as_far_apart_as_floats_can_be_share_the_look_ups(values: list[float]) -> None:
    """Rows divided by the width of their range overflowed, and the column found no merge."""
    bounds = pa.array(values)
    yes, no = (pa.array([each] * len(values)) for each in (True, False))
    ranges = Statistics(pa.array([10**9] * len(values)), {"a": Ranges(bounds, bounds, yes, no, no)})
    look_ups = LookUps.of(ranges, ["a"], None)
    shares = look_ups.extents(look_ups.lower, look_ups.upper).ravel().tolist()
    assert shares == pytest.approx([1 / len(values)] * len(values))
