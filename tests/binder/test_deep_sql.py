"""SQL that nests or chains absurdly deep: an answer or an error of zskip's own, and never a broken stack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

import zskip
from zskip import pruning
from zskip.binder.bind import bind
from zskip.binder.workload_sql import named_tables, table_query
from zskip.core.schema import Schema
from zskip.errors import SqlError
from zskip.stats import Statistics

Result = TypeVar("Result")

SCHEMA = Schema(pa.schema([("a", pa.int64()), ("s", pa.string())]))

DEEP = {
    "parentheses": lambda n: "(" * n + "a = 1" + ")" * n,
    "NOTs": lambda n: "NOT " * n + "a = 1",
    "CASEs": lambda n: "CASE WHEN " * n + "a = 1" + " THEN true END" * n,
    "functions": lambda n: "abs(" * n + "a" + ")" * n + " = 1",
    "lists": lambda n: "[" * n + "1" + "]" * n + " = s",
    "signs": lambda n: "- " * n + "a = 1",
    "sums": lambda n: "a + " * n + "a = 1",
    "casts": lambda n: "a" + "::INT" * n + " = 1",
    "tests": lambda n: "a IS NOT " * n + "NULL",
    "structs": lambda n: "a::" + "STRUCT(x " * n + "INT" + ")" * n + " IS NULL",
    "unclosed": lambda n: "(" * n,
}


@pytest.mark.parametrize("shape", ["parentheses", "NOTs", "CASEs", "functions", "signs", "sums", "casts"])
def test_many_levels_are_read_and_more_refused(shape: str) -> None:
    limit = sys.getrecursionlimit()
    assert bind(DEEP[shape](180), SCHEMA).columns == {"a"}
    if shape != "casts":  # of the same type in a row, they are one
        with pytest.raises(SqlError, match="more than 200 levels"):
            bind(DEEP[shape](1_000), SCHEMA)
    assert sys.getrecursionlimit() == limit


def at_frame(frame: int, work: Callable[[], Result]) -> Result:
    """The result of ``work``, called with so many more frames on the stack."""
    return work() if frame == 0 else at_frame(frame - 1, work)


@pytest.mark.parametrize("shape", DEEP)
def test_a_caller_deep_in_its_own_stack_gets_an_answer_or_an_error_of_ours(shape: str) -> None:
    statistics = Statistics(pa.array([1]), {})
    for frame in range(0, 850, 50):
        with suppress(SqlError):
            predicate = at_frame(frame, lambda: bind(DEEP[shape](150), SCHEMA))
            found = at_frame(frame, lambda predicate=predicate: pruning.outcomes(predicate, statistics))
            assert found.may_match.tolist() == [True]


@pytest.mark.parametrize("shape", DEEP)
def test_any_more_is_read_or_refused(shape: str) -> None:
    for levels in (1_000, 12_000):
        with suppress(SqlError):
            assert bind(DEEP[shape](levels), SCHEMA).columns <= {"a", "s"}


def test_a_statement_and_a_workload_are_read_or_refused(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": range(10)}), tmp_path / "t", by=["a"], files=2)
    query = table_query(f"SELECT * FROM t WHERE {DEEP['functions'](180)}", SCHEMA)
    assert query.condition.count("ABS(") == 180
    deep = f"SELECT * FROM t WHERE {DEEP['functions'](12_000)}"
    with pytest.raises(SqlError, match="nests too deep"):
        table_query(deep, SCHEMA)
    with pytest.raises(SqlError, match="nests too deep"):
        named_tables(deep)
    with pytest.raises(SqlError, match="expression depth"):  # DuckDB reads whole statements itself
        zskip.sql(deep, tables={"t": table})


def test_a_long_sum_is_planned_and_explained(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": range(100)}), tmp_path / "t", by=["a"], files=4)
    found = table.plan(DEEP["sums"](180).replace("= 1", "= 181"))
    assert found.to_arrow().to_pydict() == {"a": [1]}
    assert "181" in str(found.explain())
