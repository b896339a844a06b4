"""Many ranges of one column in an OR, or left out by an AND, are one question: it has the answers of them all."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tests.pruning.asking import asked, masks
from tests.pruning.oracles import FALSE, NULL, TRUE, DuckDBOracle
from zskip.binder import bind
from zskip.pruning import evaluate, gathering
from zskip.schema import Schema
from zskip.stats import Ranges, Statistics

SCHEMA = Schema(pa.schema({"s": pa.string(), "u": pa.string()}))
WORDS = ["", "a", "ab", "abc", "a\x7f", "aé", "b", "ba", "é", "éa", "\uffff", "\U0001f600", "\U0010ffff", "z", "zz"]


def one(random: Random, column: str) -> str:
    """One range: a prefix, or two comparisons, which may leave nothing between them."""
    low, high = (random.choice(WORDS) for _ in range(2))
    return random.choice([
        f"{column} LIKE '{random.choice(WORDS)}%'",
        f"starts_with({column}, '{random.choice(WORDS)}')",
        f"({column} >= '{low}' AND {column} < '{high}')",
        f"({column} >= '{low}' AND {column} <= '{high}')",
        f"{column} = '{low}'",
    ])  # fmt: skip


def many(random: Random) -> str:
    columns = random.choice([["s"], ["s"], ["s", "u"]])
    legs = [one(random, random.choice(columns)) for _ in range(random.choice([4, 5, 8, 20]))]
    if random.random() < 0.5:
        return " AND ".join(f"NOT ({leg})" for leg in legs)
    return " OR ".join(legs)


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
    monkeypatch.setattr(gathering, "_FEWEST", 10**9)
    assert masks(together) == masks(asked(sql, SCHEMA, statistics)), sql


def test_they_become_one_proof() -> None:
    prefixes = " OR ".join(f"s LIKE 'k{number}%'" for number in range(50))
    assert isinstance(evaluate.proof_of(bind(prefixes, SCHEMA).tree), evaluate.Steps)
