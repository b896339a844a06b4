"""What counts of NULL and NaN prove where the other one, or a bound, is not known."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import zskip
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.pruning import Outcomes
from zskip.stats import ColumnStatistics, FileStatistics, Ranges, Statistics

SCHEMA = Schema(pa.schema({"x": pa.float64()}))


def asked(sql: str, nulls: int | None, nans: int | None, rows: int = 5) -> Outcomes:
    """Over one unit without bounds."""
    bound, flag = pa.nulls(1, pa.float64()), pa.nulls(1, pa.bool_())
    counts = pa.array([nulls], pa.int64()), pa.array([nans], pa.int64())
    statistics = FileStatistics(pa.array([rows]), {"x": ColumnStatistics(bound, bound, *counts, flag, flag)})
    return pruning.outcomes(bind(sql, SCHEMA), statistics.statistics())


@pytest.mark.parametrize("sql", ["x = 1", "x > 1", "x IS NOT NULL", "isnan(x)", "x <> 1"])
def test_all_null_rules_out_nan(sql: str) -> None:
    assert not asked(sql, nulls=5, nans=None).may_match.any()
    assert asked(sql, nulls=4, nans=None).may_match.all()
    assert asked("x IS NULL", nulls=5, nans=None).all_match.all()


def test_all_nan_rules_out_null() -> None:
    assert asked("isnan(x)", nulls=None, nans=5).all_match.all()
    assert not asked("NOT isnan(x)", nulls=None, nans=5).may_match.any()
    assert not asked("x IS NULL", nulls=None, nans=5).may_match.any()
    assert asked("x IS NULL", nulls=None, nans=4).may_match.all()
    assert not asked("isnan(x)", nulls=None, nans=4).all_match.any()


def test_one_nan_bound_does_not_cost_the_other_one() -> None:
    nan, yes, no = float("nan"), pa.array([True]), pa.array([False])

    def over(sql: str, lower: float, upper: float) -> Outcomes:
        ranges = Ranges(pa.array([lower]), pa.array([upper]), yes, no, no)
        return pruning.outcomes(bind(sql, SCHEMA), Statistics(pa.array([5]), {"x": ranges}))

    assert not over("x < 1", 2.0, nan).may_match.any()
    assert over("x > 9", 2.0, nan).may_match.all()
    assert over("isnan(x)", 2.0, nan).may_match.all()
    assert not over("x BETWEEN 8 AND 9", nan, 7.0).may_match.any()
    assert over("x > 9", nan, 7.0).may_match.all()  # a NaN is above 9
    assert over("x < 1", nan, 7.0).may_match.all()


def test_a_column_that_is_never_null_needs_no_count(tmp_path: Path) -> None:
    given = pa.table({"path": ["a.parquet"], "row_count": [5], "x.lower": [1], "x.upper": [3]})
    for nullable in (False, True):
        schema = pa.schema([pa.field("x", pa.int64(), nullable=nullable)])
        table = zskip.index(tmp_path / str(nullable), statistics=given, schema=schema)
        assert table.plan("x IS NULL").skipped.files.part == (0 if nullable else 1)


def test_a_struct_is_null_only_where_all_that_it_holds_is() -> None:
    schema = Schema(pa.schema({"s": pa.struct({"a": pa.int32(), "b": pa.int32()})}))
    yes, no = pa.array([True, True]), pa.array([False, True])
    bounds = pa.array([1, 1], pa.int32())
    a, b = Ranges(bounds, bounds, yes, no, yes), Ranges(bounds, bounds, yes, yes, yes)
    statistics = Statistics(pa.array([5, 5]), {"s.a": a, "s.b": b})
    assert pruning.outcomes(bind("s IS NULL", schema), statistics).may_match.tolist() == [False, True]
    assert pruning.outcomes(bind("s IS NOT NULL", schema), statistics).all_match.tolist() == [True, False]
    assert not pruning.outcomes(bind("s IS NULL", schema), statistics).all_match.any()


def test_a_struct_in_a_struct_is_null_only_where_all_that_it_holds_is() -> None:
    inner = pa.struct({"c": pa.int32(), "D": pa.int32(), "l": pa.list_(pa.int32())})
    schema = Schema(pa.schema({"s": pa.struct({"a": pa.int32(), "B": inner})}))
    yes, no = pa.array([True, True]), pa.array([False, True])
    bounds = pa.array([1, 1], pa.int32())
    a, c, d = (
        Ranges(bounds, bounds, yes, yes, yes),
        Ranges(bounds, bounds, yes, no, yes),
        Ranges(bounds, bounds, yes, yes, yes),
    )
    statistics = Statistics(pa.array([5, 5]), {"s.a": a, "s.B.c": c, "s.B.D": d})
    for name in ("s.b", "S.B", '"s"."B"', "(s.b)"):
        found = pruning.outcomes(bind(f"{name} IS NULL", schema), statistics)
        assert found.may_match.tolist() == [False, True], name
        assert not found.all_match.any(), name
    assert pruning.outcomes(bind("s.b IS NOT NULL", schema), statistics).all_match.tolist() == [True, False]
    assert pruning.outcomes(bind("s IS NULL", schema), statistics).may_match.tolist() == [False, True]
