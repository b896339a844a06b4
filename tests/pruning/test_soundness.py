"""The law of laws: every outcome that a row has in an engine is in the `Outcomes` of its unit."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot.errors import ParseError

from tests.pruning import reference
from tests.pruning.fuzz import run
from tests.pruning.grammar import Grammar
from tests.pruning.oracles import FALSE, NULL, TRUE, DuckDBOracle, breaches
from tests.pruning.units import Units, random_statistics, random_units
from zskip import pruning
from zskip.binder import bind
from zskip.errors import SqlError

CASES = int(os.environ.get("ZSKIP_FUZZ_CASES", "24000"))
PARTS = 32
PLAIN_KINDS = ("i32", "i64", "f64", "n18_3", "s", "b", "d", "tus")


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_every_outcome_that_duckdb_shows_is_foreseen(part: int) -> None:
    cases = CASES // PARTS if part else 400
    tally = run(cases, seed=part)
    assert not tally.failures, "\n\n".join(tally.failures)
    # The run is worth something only where much is skipped, and much is proved to match.
    assert tally.cases["units skipped"] > tally.cases["units"] / 6
    assert tally.cases["units that match wholly"] > tally.cases["units"] / 10
    assert tally.cases["residuals"] > cases / 10


@settings(max_examples=12)
@given(st.randoms(use_true_random=False))
def test_every_outcome_that_the_reference_shows_is_foreseen(random: Random) -> None:
    """Against a walk of one row at a time that shares no code with zskip."""
    table = random_units(random, kinds=PLAIN_KINDS, columns=3, units=5)
    statistics, grammar = random_statistics(random, table), Grammar(random, table)
    rows, unit = table.rows.to_pylist(), np.asarray(table.unit, int)
    for sql in (grammar.predicate(random.choice((0, 1, 2))) for _ in range(20)):
        try:
            outcomes = pruning.outcomes(bind(sql, table.schema), statistics)
        except SqlError:
            continue
        found = referred(sql, rows)
        known = np.array([place for place, value in enumerate(found) if value is not None], int)
        yielded = np.array([found[place] for place in known], int)
        breach = next(breaches(outcomes, yielded, unit[known]), None)
        assert breach is None, f"{sql}\n  {breach}: {rows[known[breach.row]]}"


def test_the_reference_agrees_with_duckdb() -> None:
    """Row by row, wherever the reference says anything: on at least a third of all predicates."""
    oracle, random = DuckDBOracle(), Random(7)
    covered = asked = 0
    for _ in range(40):
        table = random_units(random, kinds=PLAIN_KINDS, columns=4, units=4)
        if not table.unit:
            continue
        oracle.read(table.rows)
        predicates = [Grammar(random, table).predicate(random.choice((0, 1, 2))) for _ in range(25)]
        for sql, yielded in zip(predicates, oracle.yields(predicates), strict=True):
            if yielded is None:
                continue
            found = referred(sql, table.rows.to_pylist())
            asked, covered = asked + 1, covered + any(value is not None for value in found)
            for value, duckdb_says in zip(found, yielded, strict=True):
                assert value is None or duckdb_says < 0 or value == duckdb_says, sql
    assert covered > asked / 3


def referred(sql: str, rows: list[dict[str, object]]) -> list[int | None]:
    """What the reference says of each row; None where it does not know."""
    try:
        ask = reference.parsed(sql)
    except ParseError:
        return [None] * len(rows)
    return [_referred(ask, row) for row in rows]


def _referred(ask: Callable[[dict[str, object]], bool | None], row: dict[str, object]) -> int | None:
    try:
        return {True: TRUE, False: FALSE, None: NULL}[ask(row)]
    except (reference.NotCovered, KeyError, ValueError, TypeError, ArithmeticError, AttributeError):
        return None


def test_a_planted_lie_is_found() -> None:
    """The law bites: statistics that leave out a value of the unit are caught by it."""
    random, oracle, caught = Random(3), DuckDBOracle(), 0
    for _ in range(30):
        table = random_units(random, kinds=("i32",), columns=1, units=3)
        if len(table.unit) < 2:
            continue
        kept = Units(table.fields, {path: v[:-1] for path, v in table.values.items()}, table.unit[:-1], table.count)
        oracle.read(table.rows)
        sql = f"{table.fields[0].sql} < 10"
        outcomes = pruning.outcomes(bind(sql, table.schema), random_statistics(random, kept, 0.0))
        caught += any(True for _ in breaches(outcomes, oracle.yields([sql])[0], np.asarray(table.unit)))
    assert caught
