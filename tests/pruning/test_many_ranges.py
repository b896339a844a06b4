"""Many ranges of one column in an OR, or left out by an AND, are one question: it has the answers of them all."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.pruning.asking import asked, masks
from tests.pruning.oracles import FALSE, NULL, TRUE, DuckDBOracle
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.pruning import evaluate, merge_conditions
from zskip.stats import Ranges, Statistics

SCHEMA = Schema(pa.schema({"s": pa.string(), "u": pa.string()}))
WORDS = ["", "a", "ab", "abc", "a\x7f", "aé", "b", "ba", "é", "éa", "\uffff", "\U0001f600", "\U0010ffff", "z", "zz"]
NUMBERS = {
    "tinyint": (pa.int8(), [-128, -127, -1, 0, 1, 2, 5, 126, 127]),
    "double": (pa.float64(), [-float("inf"), -1.5, 0.0, 0.5, 1.0, 1e300, float("inf"), float("nan")]),
}


def one(random: Random, column: str) -> str:
    """One range: a prefix, or two comparisons, which may leave nothing between them."""
    low, high = (random.choice(WORDS) for _ in range(2))
    return random.choice([
        f"{column} LIKE '{random.choice(WORDS)}%'",
        f"starts_with({column}, '{random.choice(WORDS)}')",
        f"({column} >= '{low}' AND {column} < '{high}')",
        f"({column} >= '{low}' AND {column} <= '{high}')",
        f"{column} BETWEEN '{low}' AND '{high}'",
        f"{column} = '{low}'",
    ])  # fmt: skip


def one_of_numbers(random: Random, column: str, type: str, values: list[float]) -> str:
    low, high = (f"CAST('{random.choice(values)}' AS {type})" for _ in range(2))
    return random.choice([
        f"({column} >= {low} AND {column} < {high})",
        f"({column} >= {low} AND {column} <= {high})",
        f"{column} BETWEEN {low} AND {high}",
        f"{column} = {low}",
    ])  # fmt: skip


def joined(random: Random, one: Callable[[str], str], columns: list[str]) -> str:
    columns = random.choice([columns[:1], columns[:1], columns])
    legs = [one(random.choice(columns)) for _ in range(random.choice([4, 5, 8, 20]))]
    if random.random() < 0.5:
        return " AND ".join(f"NOT ({leg})" for leg in legs)
    return " OR ".join(legs)


def many(random: Random) -> str:
    return joined(random, lambda column: one(random, column), ["s", "u"])


@pytest.mark.parametrize("type", ["tinyint", "double"])
@pytest.mark.parametrize("seed", range(40))
def test_many_ranges_of_numbers_say_what_each_of_them_says(type: str, seed: int) -> None:
    random, oracle, (arrow, values) = Random(seed), DuckDBOracle(), NUMBERS[type]
    schema = Schema(pa.schema({"x": arrow, "y": arrow}))
    sql = joined(random, lambda column: one_of_numbers(random, column, type, values), ["x", "y"])
    rows = pa.table(
        {name: pa.array([random.choice([*values, None]) for _ in range(40)], arrow) for name in schema.arrow.names}
    )
    oracle.read(rows)
    (yielded,) = oracle.yields([sql])
    single = {}
    for name in rows.column_names:
        column = rows[name].combine_chunks()
        nan = pc.fill_null(pc.is_nan(column), False) if type == "double" else pa.array([False] * len(rows))
        bound = pc.if_else(nan, pa.scalar(None, arrow), column)
        single[name] = Ranges(bound, bound, bound.is_valid(), column.is_null(), nan)
    found = asked(sql, schema, Statistics(pa.array([1] * len(rows)), single))
    assert masks(found) == [(np.asarray(yielded) == outcome).tolist() for outcome in (TRUE, FALSE, NULL)], sql


@pytest.mark.parametrize("seed", range(60))
def test_many_ranges_say_what_each_of_them_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    sql, oracle = many(random), DuckDBOracle()
    # Each value as a unit of its own: what DuckDB says, no less and no more.
    rows = pa.table({name: [random.choice([*WORDS, None]) for _ in range(40)] for name in SCHEMA.arrow.names})
    oracle.read(rows)
    (yielded,) = oracle.yields([sql])
    single = {}
    no = pa.array([False] * len(rows))
    for name in rows.column_names:
        values = rows[name].combine_chunks()
        single[name] = Ranges(values, values, values.is_valid(), values.is_null(), no)
    found = asked(sql, SCHEMA, Statistics(pa.array([1] * len(rows)), single))
    assert masks(found) == [(np.asarray(yielded) == outcome).tolist() for outcome in (TRUE, FALSE, NULL)], sql
    # Ranges of values: as if every range had been asked for alone.
    wide = {}
    for name in SCHEMA.arrow.names:
        ends = [sorted(random.choices(WORDS, k=2), key=str.encode) for _ in range(40)]
        lower = pa.array([None if random.random() < 0.1 else low for low, _ in ends], pa.string())
        upper = pa.array([None if random.random() < 0.1 else high for _, high in ends], pa.string())
        flag = pa.array([random.choice([True, False, None]) for _ in ends])
        wide[name] = Ranges(lower, upper, pa.array([True] * 40), flag, no)
    statistics = Statistics(pa.array([9] * 40), wide)
    together = asked(sql, SCHEMA, statistics)
    monkeypatch.setattr(merge_conditions, "_FEWEST", 10**9)
    assert masks(together) == masks(asked(sql, SCHEMA, statistics)), sql


def test_they_become_one_proof() -> None:
    prefixes = " OR ".join(f"s LIKE 'k{number}%'" for number in range(50))
    assert isinstance(evaluate.proof_of(bind(prefixes, SCHEMA).tree), evaluate.Steps)


@pytest.mark.parametrize("form", ["x BETWEEN {n} AND {n}5", "x >= {n} AND x < {n}5"])
def test_so_do_ranges_of_numbers(form: str) -> None:
    schema = Schema(pa.schema({"x": pa.int64()}))
    ranges = " OR ".join(f"({form.format(n=number)})" for number in range(0, 500, 10))
    assert isinstance(evaluate.proof_of(bind(ranges, schema).tree), evaluate.Steps)
