"""The outcomes of long, deep and nested predicates, and what counts of NULL, NaN and fields prove."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import zskip
from tests.statements.cases import statements
from tests.tables import ranges_of, statistics_of
from zskip import language as expr
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.stats import Ranges, Statistics


def integers(*bounds: tuple[int, int]) -> Statistics:
    """Units of a column x of int64, by their bounds."""
    lower, upper = (pa.array(ends) for ends in zip(*bounds, strict=True))
    return statistics_of(x=ranges_of(lower, upper))


def bound(sql: str) -> expr.Predicate:
    return bind(sql, Schema(pa.schema({"x": pa.int64()})))


@pytest.mark.parametrize(
    # Past the first thousand, conditions prove nothing: they may be TRUE anywhere.
    ("word", "term", "expected"),
    [("OR", "x = {}", [True, True]), ("AND", "x <> {}", [False, True])],
)
def test_four_thousand_terms_neither_overflow_nor_crawl(word: str, term: str, expected: list[bool]) -> None:
    statistics = integers((1, 3), (200_001, 200_005))
    sql = f" {word} ".join(term.format(i) for i in range(4_000))
    started = time.process_time()
    found = pruning.outcomes(bound(sql), statistics)
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
    statistics = integers((1, 3), (7, 9))
    started = time.process_time()
    predicate = bound(nested)
    assert pruning.outcomes(predicate, statistics).may_match.tolist() == [True, False]
    assert pruning.reasons(predicate, statistics)[0].units == 2
    assert time.process_time() - started < 30


def test_many_levels_of_and_and_or() -> None:
    statistics = integers((1, 3), (7, 9))
    nested = "".join(f"(x <> {i} {'AND' if i % 2 else 'OR'} " for i in range(180)) + "x = 1" + ")" * 180
    assert len(pruning.outcomes(bound(nested), statistics)) == 2


def test_ten_thousand_values_prune_the_gaps_between_them() -> None:
    statistics = integers((1, 3), (15, 15), (20, 25))
    sql = f"x IN ({', '.join(str(10 * i) for i in range(10_000))})"
    assert pruning.outcomes(bound(sql), statistics).may_match.tolist() == [False, False, True]


@pytest.mark.parametrize("sql", statements("outcomes", "of two columns", "pruning"))
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


def test_a_column_that_is_never_null_needs_no_count(tmp_path: Path) -> None:
    given = pa.table({"path": ["a.parquet"], "row_count": [5], "x.lower": [1], "x.upper": [3]})
    for nullable in (False, True):
        schema = pa.schema([pa.field("x", pa.int64(), nullable=nullable)])
        table = zskip.index(tmp_path / str(nullable), statistics=given, schema=schema)
        assert table.plan("x IS NULL").skipped.files.part == (0 if nullable else 1)


@pytest.mark.parametrize(
    ("sql", "may_match", "all_match"),
    [
        ("flat IS NULL", [False, True], [False, False]),
        ("flat IS NOT NULL", [True, True], [True, False]),
        ("s.b IS NULL", [False, True], [False, False]),
        ("S.B IS NULL", [False, True], [False, False]),
        ('"s"."B" IS NULL', [False, True], [False, False]),
        ("(s.b) IS NULL", [False, True], [False, False]),
        ("s.b IS NOT NULL", [True, True], [True, False]),
        ("s IS NULL", [False, True], [False, False]),
    ],
)
def test_a_struct_is_null_only_where_all_that_it_holds_is(
    sql: str, may_match: list[bool], all_match: list[bool]
) -> None:
    """One of its fields is NULL in both units; another, deep in it, in the second alone. A list has no ranges."""
    inner = pa.struct({"c": pa.int32(), "D": pa.int32(), "l": pa.list_(pa.int32())})
    flat = pa.struct({"a": pa.int32(), "b": pa.int32()})
    schema = Schema(pa.schema({"s": pa.struct({"a": pa.int32(), "B": inner}), "flat": flat}))
    ones = pa.array([1, 1], pa.int32())
    both, second = ranges_of(ones, null=True), ranges_of(ones, null=[False, True])
    fields = {"s.a": both, "s.B.c": second, "s.B.D": both, "flat.a": second, "flat.b": both}
    found = pruning.outcomes(bind(sql, schema), statistics_of(**fields))
    assert (found.may_match.tolist(), found.all_match.tolist()) == (may_match, all_match)


def test_a_list_of_null_alone_is_null_also_for_a_type_without_order(tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2, 3], "l": [[1], [2], None]})
    table = zskip.write(rows, tmp_path / "t", by="n", files=3)
    for sql in ("(l IN (NULL)) IS NULL", "coalesce(l IN (NULL), TRUE)"):
        assert table.plan(sql).to_arrow().equals(rows), sql
    assert not table.plan("NOT (l IN (NULL))").paths
