"""Statistics from rows: exact, for every type, and safe where a bound is cut."""

from __future__ import annotations

import decimal
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zskip.core.schema import Schema
from zskip.stats import FileStatistics, collect, hull

NAN = float("nan")
ORDERABLE = {
    "int8": pa.array([-128, 127, None], pa.int8()),
    "uint64": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "half": pa.array([1.5, -2.0, None], pa.float16()),
    "float": pa.array([math.inf, -math.inf, None], pa.float32()),
    "decimal32": pa.array([decimal.Decimal("1.25"), decimal.Decimal("-3.5"), None], pa.decimal32(5, 2)),
    "decimal256": pa.array([decimal.Decimal(10) ** 60, decimal.Decimal(-1), None], pa.decimal256(70, 2)),
    "boolean": pa.array([True, False, None]),
    "string": pa.array(["", "🦉", None]),
    "large_string": pa.array(["b", "a", None], pa.large_string()),
    "string_view": pa.array(["b", "a", None], pa.string_view()),
    "binary": pa.array([b"\xff", b"", None]),
    "fixed": pa.array([b"ab", b"aa", None], pa.binary(2)),
    "date32": pa.array([-1, 5, None], pa.date32()),
    "time32": pa.array([3, 1, None], pa.time32("s")),
    "time64": pa.array([3, 1, None], pa.time64("ns")),
    "timestamp": pa.array([3, -(2**62), None], pa.timestamp("ns", "Europe/Berlin")),
    "duration": pa.array([3, -1, None], pa.duration("us")),
    "dictionary": pa.array(["b", "a", None]).dictionary_encode(),
    "dictionary of numbers": pa.array([7, 5, None]).dictionary_encode(),
    "dictionary of floats": pa.array([7.5, 5.5, None]).dictionary_encode(),
}


def collected(values: pa.Array | pa.ChunkedArray, *cuts: int) -> tuple[FileStatistics, str]:
    rows = pa.table({"x": values})
    schema = Schema(rows.schema)
    return collect.row_groups(rows, np.array(cuts or (0, len(values))), schema), next(iter(schema)).path


@pytest.mark.parametrize("name", ORDERABLE)
def test_bounds_of_every_orderable_type(name: str) -> None:
    values = ORDERABLE[name]
    units, path = collected(values, 0, 3, 3)
    column = units.columns[path]
    plain = values.cast(column.lower.type).to_pylist()
    assert column.lower[0].as_py() == min(value for value in plain if value is not None)
    assert column.upper[0].as_py() == max(value for value in plain if value is not None)
    assert column.null_count.to_pylist() == [1, 0]
    assert column.lower.is_valid().to_pylist() == [True, False]
    ranges = column.ranges(units.row_count)
    assert ranges.has_value.to_pylist() == [True, False]
    assert ranges.has_null.to_pylist() == [True, False]


@pytest.mark.parametrize("name", ORDERABLE)
def test_slices_without_null_have_the_bounds_of_those_with_one(name: str) -> None:
    two = ORDERABLE[name][:2]
    values = pa.chunked_array([two, two, two])
    units, path = collected(values, 0, 1, 4)  # the rows after the last cut belong to no slice
    found = units.columns[path]
    for number, (start, stop) in enumerate(((0, 1), (1, 4))):
        own = pa.chunked_array([*values.slice(start, stop - start).chunks, pa.nulls(1, values.type)])
        expected = collected(own)[0].columns[path]
        for part in ("lower", "upper", "nan_count", "lower_exact", "upper_exact"):
            assert getattr(found, part).slice(number, 1).equals(getattr(expected, part))
    assert found.null_count.to_pylist() == [0, 0]
    assert collected(values, 0, 1)[0].columns[path].upper.equals(found.upper[:1])


def test_nan_is_counted_and_not_a_bound() -> None:
    units, _ = collected(pa.array([NAN, 1.0, None, NAN, NAN, None, 2.0]), 0, 3, 5, 6, 7)
    column = units.columns["x"]
    assert column.lower.to_pylist() == [1.0, None, None, 2.0]
    assert column.upper.to_pylist() == [1.0, None, None, 2.0]
    assert column.nan_count.to_pylist() == [1, 2, 0, 0]
    assert column.null_count.to_pylist() == [1, 0, 1, 0]
    assert column.ranges(units.row_count).has_nan.to_pylist() == [True, True, False, False]


def test_unused_dictionary_values_are_no_bounds() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([1, 1, None]), ["zz", "m", "aa"])
    column = collected(values)[0].columns["x"]
    assert (column.lower.to_pylist(), column.upper.to_pylist()) == (["m"], ["m"])


def test_a_null_in_the_dictionary_is_a_null() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), ["a", None])
    column = collected(values)[0].columns["x"]
    assert column.null_count.to_pylist() == [2]


def test_nested_fields_and_columns_without_order() -> None:
    rows = pa.table({"s": [{"a.b": 1, "l": [1]}, None, {"a.b": 3, "l": None}]})
    units = collect.row_groups(rows, np.array([0, 3]), Schema(rows.schema))
    assert units.columns['s."a.b"'].upper.to_pylist() == [3]
    assert units.columns['s."a.b"'].null_count.to_pylist() == [1]
    assert units.columns["s.l"].null_count.to_pylist() == [2]
    assert units.columns["s.l"].ranges(units.row_count).has_null.to_pylist() == [True]


@given(
    st.lists(st.one_of(st.text(max_size=400), st.text("\U0010ffff", min_size=60, max_size=90)), min_size=1, max_size=6)
)
@settings(max_examples=60, deadline=None)
def test_cut_bounds_still_hold_every_value(values: list[str]) -> None:
    for array in (pa.array(values), pa.array([value.encode() for value in values])):
        column = collected(array)[0].columns["x"]
        lower, upper = column.lower[0].as_py(), column.upper[0].as_py()
        plain = array.to_pylist()
        assert all(lower <= value and (upper is None or value <= upper) for value in plain)
        assert column.lower_exact[0].as_py() is (lower in plain)
        if column.upper_exact[0].as_py():
            assert upper in plain


def test_a_long_string_makes_a_short_bound() -> None:
    column = collected(pa.array(["x" * 10_000, "y" * 10_000]))[0].columns["x"]
    assert column.lower[0].as_py() == "x" * collect.LONGEST_BOUND
    assert column.upper[0].as_py() == "y" * (collect.LONGEST_BOUND - 1) + "z"
    assert column.upper_exact.to_pylist() == [False]


@given(st.lists(st.one_of(st.none(), st.floats()), max_size=30), st.data())
@settings(max_examples=60, deadline=None)
def test_a_file_is_the_hull_of_its_row_groups(values: list[float | None], data: st.DataObject) -> None:
    inner = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=4)))
    array = pa.array(values, pa.float64())
    units, _ = collected(array, 0, *inner, len(values))
    whole, _ = collected(array, 0, len(values))
    together = hull(units, np.zeros(len(units), np.int64), 1)
    assert together.row_count.to_pylist() == whole.row_count.to_pylist()
    for name in ("lower", "upper", "null_count", "nan_count", "lower_exact", "upper_exact"):
        assert getattr(together.columns["x"], name).to_pylist() == getattr(whole.columns["x"], name).to_pylist()


@pytest.mark.parametrize("name", ORDERABLE)
def test_row_groups_of_every_type_are_merged(name: str) -> None:
    units, path = collected(ORDERABLE[name], 0, 1, len(ORDERABLE[name]))
    whole, _ = collected(ORDERABLE[name], 0, len(ORDERABLE[name]))
    assert hull(units, np.zeros(2, np.int64), 1).columns[path] == whole.columns[path]
