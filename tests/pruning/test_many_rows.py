"""Many rows of constants in an OR, or left out by an AND, are one question: it has the answers of them all."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.pruning.asking import asked, masks
from tests.pruning.oracles import FALSE, NULL, TRUE, DuckDBOracle
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.pruning import evaluate, merge_conditions, row_values
from zskip.stats import Ranges, Statistics

TYPES = {
    "i": pa.int64(),
    "t": pa.int8(),
    "u": pa.uint64(),
    "f": pa.float64(),
    "s": pa.string(),
    "w": pa.decimal128(30, 2),
}
SCHEMA = Schema(pa.schema(TYPES))
VALUES: dict[str, list[Any]] = {
    "i": [-(2**63), -3, 0, 1, 2, 5, 2**63 - 1],
    "t": [-128, -1, 0, 1, 2, 126, 127],
    "u": [0, 1, 2, 3, 2**63, 2**64 - 1],
    "f": [float("-inf"), -1.5, -0.0, 0.0, 1.0, 2.5, float("inf")],
    "s": ["", "a", "a\x7f", "ab", "b", "é", "\U0010ffff"],
    "w": [Decimal(-5), Decimal("0.01"), Decimal(7), Decimal(10) ** 25],
}


def constant(value: Any) -> str:
    match value:
        case str():
            return f"'{value}'"
        case float():
            return f"CAST('{value}' AS DOUBLE)"
    return str(value)


def many(random: Random, columns: list[str]) -> str:
    legs = []
    for _ in range(random.choice([4, 5, 9, 40])):
        sides = [f"{name} = {constant(random.choice(VALUES[name]))}" for name in columns]
        random.shuffle(sides)
        legs.append(f"({' AND '.join(sides)})")
    legs += random.choice([[], [f"{columns[0]} IS NULL"], [f"{columns[1]} > {constant(VALUES[columns[1]][-2])}"]])
    if random.random() < 0.3:
        constants = [
            f"({', '.join(constant(random.choice(VALUES[name])) for name in columns)})"
            for _ in range(random.choice([4, 9]))
        ]
        return f"({', '.join(columns)}) {random.choice(['', 'NOT '])}IN ({', '.join(constants)})"
    if random.random() < 0.5:
        return " AND ".join(f"NOT {leg}" for leg in legs)
    return " OR ".join(legs)


def boxes(random: Random, units: int) -> Statistics:
    """Random ranges: narrow and wide, unknown, of one value, beside NULL and NaN, and of nothing else."""
    columns = {}
    for name, type in TYPES.items():
        places = [sorted(random.choices(range(len(VALUES[name])), k=2)) for _ in range(units)]
        places = [[low, low] if random.random() < 0.4 else [low, high] for low, high in places]
        lower = pa.array([None if random.random() < 0.1 else VALUES[name][low] for low, _ in places], type)
        upper = pa.array([None if random.random() < 0.1 else VALUES[name][high] for _, high in places], type)
        flags = [pa.array(random.choices([True, False, None], weights, k=units)) for weights in ((6, 2, 1), (1, 4, 1))]
        nan = pa.array([pa.types.is_floating(type) and random.random() < 0.2 for _ in range(units)])
        columns[name] = Ranges(lower, upper, *flags, nan)
    return Statistics(pa.array([9] * units), columns)


@pytest.mark.parametrize("seed", range(60))
def test_many_rows_say_what_each_of_them_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    columns = random.sample(list(TYPES), random.choice([2, 2, 3, 4]))
    sql, oracle = many(random, columns), DuckDBOracle()
    # Each row of a table as a unit of its own: what DuckDB says, no less and no more.
    table = pa.table(
        {name: pa.array(random.choices([*VALUES[name], None], k=60), type) for name, type in TYPES.items()}
    )
    oracle.read(table)
    (yielded,) = oracle.yields([sql])
    no = pa.array([False] * len(table))
    ends = {name: table[name].combine_chunks() for name in TYPES}
    of_rows = {name: Ranges(each, each, each.is_valid(), each.is_null(), no) for name, each in ends.items()}
    found = asked(sql, SCHEMA, Statistics(pa.array([1] * len(table)), of_rows))
    if "IN (" in sql:
        # What a row value beside NULL gives is left to the engine.
        assert np.all(np.asarray(masks(found)) >= [np.asarray(yielded) == outcome for outcome in (TRUE, FALSE, NULL)])
    else:
        assert masks(found) == [(np.asarray(yielded) == outcome).tolist() for outcome in (TRUE, FALSE, NULL)], sql
    # Boxes: as if every row of constants had been asked for alone.
    statistics = boxes(random, 200)
    together = asked(sql, SCHEMA, statistics)
    monkeypatch.setattr(merge_conditions, "_FEWEST", 10**9)
    assert masks(together) == masks(asked(sql, SCHEMA, statistics)), sql


@pytest.mark.parametrize("columns", [["i", "u"], ["i", "t", "u"]])
def test_points_off_the_box_are_told_apart(columns: list[str]) -> None:
    """Constants of a and of b lie in both ranges, but of different rows."""
    legs = " OR ".join(f"({' AND '.join(f'{name} = {number}' for name in columns)})" for number in range(100))
    lower, upper = (
        {"i": [0, 10, 50], "t": [60, 15, 0], "u": [60, 18, 0]},
        {"i": [40, 16, 99], "t": [99] * 3, "u": [99] * 3},
    )
    yes, no = pa.array([True] * 3), pa.array([False] * 3)
    of = {
        name: Ranges(pa.array(lower[name], TYPES[name]), pa.array(upper[name], TYPES[name]), yes, no, no)
        for name in columns
    }
    assert asked(legs, SCHEMA, Statistics(pa.array([9] * 3), of)).may_match.tolist() == [False, False, True]


def test_a_look_that_takes_too_long_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(5)
    sql, statistics = many(random, ["i", "t", "u"]), boxes(random, 400)
    exact = asked(sql, SCHEMA, statistics)
    monkeypatch.setattr(row_values, "AT_ONCE", 7)
    assert masks(asked(sql, SCHEMA, statistics)) == masks(exact)
    monkeypatch.setattr(row_values, "MOST", 0)
    for wide, narrow in zip(masks(asked(sql, SCHEMA, statistics)), masks(exact), strict=True):
        assert np.all(np.asarray(wide) >= np.asarray(narrow))


def test_they_become_one_proof() -> None:
    legs = [f"(i = {number} AND s = 'k{number}')" for number in range(50)]
    assert isinstance(evaluate.proof_of(bind(" OR ".join(legs), SCHEMA).tree), row_values.Rows)
    left_out = evaluate.proof_of(bind(" AND ".join(f"NOT {leg}" for leg in legs), SCHEMA).tree)
    assert isinstance(left_out, evaluate.Negated)
    assert isinstance(left_out.part, row_values.Rows)


def test_a_thousand_row_values_prune() -> None:
    listed = ", ".join(f"({number}, {number % 100})" for number in range(0, 10_000, 10))
    yes, no = pa.array([True] * 2), pa.array([False] * 2)
    columns = {
        "i": Ranges(pa.array([0, 5000]), pa.array([9000, 5100]), yes, no, no),
        "t": Ranges(pa.array([0, 5], pa.int8()), pa.array([20, 9], pa.int8()), yes, no, no),
    }
    found = asked(f"(i, t) IN ({listed})", SCHEMA, Statistics(pa.array([9, 9]), columns))
    assert found.may_match.tolist() == [True, False]
