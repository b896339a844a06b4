"""The outcomes of predicates over one column at a time are sound, and as tight as the ranges allow."""

from __future__ import annotations

import random
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import zskip
from zskip import language as expr
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.pruning import Outcomes
from zskip.stats import ColumnStatistics, FileStatistics, Ranges, Statistics

CONNECTION = duckdb.connect()
SMALL = list(range(-3, 10))


def units(values: list[list[object]], type: pa.DataType) -> tuple[pa.Table, Statistics]:
    """Rows with a column ``unit``, and the exact statistics of each unit."""
    rows = pa.table(
        {
            "unit": pa.array([i for i, rows in enumerate(values) for _ in rows], pa.int64()),
            "x": pa.array([value for rows in values for value in rows], type),
        }
    )
    lower, upper, has_value, has_null, has_nan = [], [], [], [], []
    for unit in values:
        plain = [v for v in unit if v is not None and v == v]
        lower.append(min(plain, default=None))
        upper.append(max(plain, default=None))
        has_value.append(bool(plain))
        has_null.append(None in unit)
        has_nan.append(any(v is not None and v != v for v in unit))
    flags = (pa.array(flag, pa.bool_()) for flag in (has_value, has_null, has_nan))
    ranges = Ranges(pa.array(lower, type), pa.array(upper, type), *flags)
    return rows, Statistics(pa.array([len(unit) for unit in values]), {"x": ranges})


def engine_outcomes(rows: pa.Table, count: int, sql: str) -> dict[object, np.ndarray]:
    con = CONNECTION
    con.register("rows", rows)
    found = con.execute(f"SELECT DISTINCT unit, ({sql}) AS outcome FROM rows").fetchall()
    answers = {key: np.zeros(count, bool) for key in (True, False, None)}
    for unit, outcome in found:
        answers[outcome][unit] = True
    return answers


def bound(sql: str, type: pa.DataType) -> expr.Predicate:
    return bind(sql, Schema(pa.schema({"x": type})))


def random_predicate(draw: random.Random, values: list[str], level: int = 0) -> str:
    pick = draw.random()
    value = lambda: draw.choice(values)  # noqa: E731
    if level < 3 and pick < 0.5:
        left, right = (random_predicate(draw, values, level + 1) for _ in range(2))
        return draw.choice([f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})", f"({left}) IS TRUE"])
    return draw.choice(
        [
            f"x {draw.choice(['=', '<>', '<', '<=', '>', '>='])} {value()}",
            f"{value()} {draw.choice(['=', '<>', '<', '<=', '>', '>='])} x",
            f"x {draw.choice(['', 'NOT '])}IN ({value()}, {value()}, {value()})",
            f"x {draw.choice(['', 'NOT '])}BETWEEN {value()} AND {value()}",
            f"x IS {draw.choice(['', 'NOT '])}NULL",
        ]
    )


CASES = {
    "int64": (pa.int64(), SMALL, [str(v) for v in SMALL] + ["2.5", "NULL", "99999999999999999999", "3e0"]),
    "uint64": (
        pa.uint64(),
        [0, 1, 5, 2**63, 2**64 - 1],
        ["0", "1", "5", "9223372036854775808", "18446744073709551615"],
    ),
    "uint8": (pa.uint8(), [0, 1, 200, 255], ["-1", "0", "1", "200", "255", "300", "NULL", "0.5"]),
    "double": (
        pa.float64(),
        [float("nan"), -0.0, 0.0, 1.5, float("inf"), -2.0],
        ["0", "1.5", "-2", "'NaN'::DOUBLE", "1e0"],
    ),
    "float": (
        pa.float32(),
        [float("nan"), 0.10000000149011612, 1.5, -3.0],
        ["0.1", "1e-1", "1.5", "'Infinity'::DOUBLE"],
    ),
    "string": (
        pa.string(),
        ["", "a", "ab", "b", "é", "\U0001f600"],
        ["''", "'a'", "'ab'", "'b'", "'zz'", "NULL", "'é'"],
    ),
    "date": (
        pa.date32(),
        [__import__("datetime").date(2024, 1, day) for day in (1, 2, 5, 9)],
        ["'2024-01-01'", "DATE '2024-01-05'", "TIMESTAMP '2024-01-02 12:00:00'", "'2024-01-09'", "NULL"],
    ),
    "decimal": (
        pa.decimal128(5, 2),
        [__import__("decimal").Decimal(v) for v in ("1.00", "1.01", "-3.50", "999.99")],
        ["1", "1.005", "1.01", "12345.6", "-3.5", "1e0", "1.01e0"],
    ),
    "wide decimal": (
        pa.decimal128(30, 2),
        [__import__("decimal").Decimal(v) for v in ("1.00", "-1.01", "12345678901234567890.50")],
        ["1", "-1.01", "12345678901234567890.50", "0"],
    ),
    "bool": (pa.bool_(), [True, False], ["TRUE", "FALSE", "NULL", "1"]),
}


@pytest.mark.parametrize("name", CASES)
def test_one_column_is_sound_and_tight(name: str) -> None:
    type, values, literals = CASES[name]
    draw = random.Random(name)
    for _ in range(3):
        drawn = [[draw.choice([*values, None]) for _ in range(draw.randint(0, 4))] for _ in range(20)]
        rows, statistics = units(drawn, type)
        # The hull of a unit's values, filled with all values of the domain: the best that ranges can know.
        full = [
            [v for v in values if v == v and any(w == w and w is not None for w in unit) and _within(v, unit)]
            + [v for v in unit if v is None or v != v]
            for unit in drawn
        ]
        hull, _ = units(full, type)
        for _ in range(12):
            sql = random_predicate(draw, literals)
            found = pruning.outcomes(bound(sql, type), statistics)
            real = engine_outcomes(rows, len(drawn), sql)
            for outcome, claimed in ((True, found.can_be_true), (False, found.can_be_false), (None, found.can_be_null)):
                assert not (real[outcome] & ~claimed).any(), (sql, outcome, drawn)
            if name in ("bool", "string"):
                continue
            possible = engine_outcomes(hull, len(drawn), sql)
            if name == "int64":
                assert (found.can_be_true == possible[True]).all(), (sql, drawn)
                assert (found.can_be_false == possible[False]).all(), (sql, drawn)


def _within(value: object, unit: list[object]) -> bool:
    plain = [v for v in unit if v is not None and v == v]
    return bool(plain) and min(plain) <= value <= max(plain)  # type: ignore[operator, type-var]


def test_an_unknown_bound_keeps() -> None:
    unknown = pa.nulls(1, pa.int64())
    flag = pa.nulls(1, pa.bool_())
    statistics = Statistics(pa.nulls(1, pa.int64()), {"x": Ranges(unknown, unknown, flag, flag, flag)})
    found = pruning.outcomes(bound("x = 5", pa.int64()), statistics)
    assert found.may_match.all()
    assert not found.all_match.any()


@pytest.mark.parametrize(
    # Past the first thousand, conditions prove nothing: they may be TRUE anywhere.
    ("word", "term", "expected"),
    [("OR", "x = {}", [True, True]), ("AND", "x <> {}", [False, True])],
)
def test_four_thousand_terms_neither_overflow_nor_crawl(word: str, term: str, expected: list[bool]) -> None:
    _, statistics = units([[1, 3], [200_001, 200_005]], pa.int64())
    sql = f" {word} ".join(term.format(i) for i in range(4_000))
    started = time.process_time()
    found = pruning.outcomes(bound(sql, pa.int64()), statistics)
    assert found.may_match.tolist() == expected
    # A second or two of one's own; far from the minutes of a walk that is quadratic anywhere.
    assert time.process_time() - started < 30


@pytest.mark.parametrize(
    "nested",
    [
        "(" * 180 + "x = 1" + ")" * 180,
        "x = " + "(" * 180 + "1" + ")" * 180,
        "(" * 180 + "x" + " + 1)" * 180 + " = 181",
        "abs(" * 180 + "x" + ")" * 180 + " = 1",
        "NOT (" * 90 + "x = 1" + ")" * 90,
        "coalesce(" * 180 + "x" + ", 1)" * 180 + " = 1",
    ],
    ids=lambda sql: sql[:10],
)
def test_many_levels(nested: str) -> None:
    _, statistics = units([[1, 3], [7, 9]], pa.int64())
    started = time.process_time()
    predicate = bound(nested, pa.int64())
    assert pruning.outcomes(predicate, statistics).may_match.tolist() == [True, False]
    assert len(pruning.residuals(predicate, statistics)[0]) >= 1
    assert pruning.reasons(predicate, statistics)[0].units == 2
    assert time.process_time() - started < 30


def test_many_levels_of_and_and_or() -> None:
    _, statistics = units([[1, 3], [7, 9]], pa.int64())
    nested = "".join(f"(x <> {i} {'AND' if i % 2 else 'OR'} " for i in range(180)) + "x = 1" + ")" * 180
    assert len(pruning.outcomes(bound(nested, pa.int64()), statistics)) == 2


def test_ten_thousand_values_prune_the_gaps_between_them() -> None:
    _, statistics = units([[1, 3], [15, 15], [20, 25]], pa.int64())
    sql = f"x IN ({', '.join(str(10 * i) for i in range(10_000))})"
    assert pruning.outcomes(bound(sql, pa.int64()), statistics).may_match.tolist() == [False, False, True]


def test_residuals_leave_out_what_is_proved() -> None:
    _, statistics = units([[1, 3], [6, 9], [4, 6]], pa.int64())
    found, numbers = pruning.residuals(bound("x > 5 AND x < 100", pa.int64()), statistics)
    assert [None if found[n] is None else found[n].sql() for n in numbers] == ['"x" > 5', None, '"x" > 5']


def test_binary_search_over_strings_agrees_with_sorting() -> None:
    words = pa.array([f"{i:04d}" for i in range(0, 200, 7)])
    lower, upper = pa.array(["0003", "0007", "0190", "01"]), pa.array(["0006", "0007", "0202", "0150"])
    yes, no = pa.array([True] * 4), pa.array([False] * 4)
    statistics = Statistics(pa.array([3] * 4), {"x": Ranges(lower, upper, yes, no, no)})
    found = pruning.outcomes(bound(f"x IN ({', '.join(repr(w) for w in words.to_pylist())})", pa.string()), statistics)
    expected = [
        pc.any(pc.and_(pc.greater_equal(words, low), pc.less_equal(words, high))).as_py()
        for low, high in zip(lower, upper, strict=True)
    ]
    assert found.may_match.tolist() == expected


@pytest.mark.parametrize(
    "sql",
    [
        "x = 3 AND y = 5",
        "x = 3 AND y <> 5 AND x + y > 7",
        "x > 1 AND y > 1",
        "y % 7 = 3 AND x = 2",
        "x IS NULL AND y < 4",
        "x = 99 AND y = 1",
        "NOT (x = 3 AND y = 5)",
        "x = 3 AND (y = 1 OR x = 4)",
    ],
)
def test_many_units_are_judged_as_few(sql: str) -> None:
    """Of many, the second part of an AND is asked only where the first one leaves some."""
    generator = np.random.default_rng(4)
    count = 9_000
    columns = {}
    for path in "xy":
        lower = generator.integers(0, 40, count)
        nulls = pa.array(generator.random(count) < 0.1)
        yes, no = pa.array(np.ones(count, bool)), pa.array(np.zeros(count, bool))
        columns[path] = Ranges(pa.array(lower), pa.array(lower + generator.integers(0, 3, count)), yes, nulls, no)
    whole = Statistics(pa.array(np.where(np.arange(count) % 97, 9, 0)), columns)
    bound = bind(sql, Schema(pa.schema({"x": pa.int64(), "y": pa.int64()})))
    found = pruning.outcomes(bound, whole)
    parts = [pruning.outcomes(bound, whole.take(np.arange(start, start + 1_000))) for start in range(0, count, 1_000)]
    assert found.may_match.tolist() == [each for part in parts for each in part.may_match.tolist()]
    with_rows = np.arange(count) % 97 != 0
    assert found.all_match[with_rows].tolist() == np.concatenate([part.all_match for part in parts])[with_rows].tolist()


# --- what counts of NULL and NaN prove where the other one, or a bound, is not known ---


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
