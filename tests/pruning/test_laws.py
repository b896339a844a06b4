"""Laws of three-valued proofs, by name: what must hold whatever the columns, the statistics and the predicate are.

The law of laws: every outcome that a row has in an engine is in the `Outcomes` of its unit.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sqlglot.errors import ParseError

from tests.pruning import reference
from tests.pruning.fuzz import run
from tests.pruning.grammar import Grammar
from tests.pruning.oracles import FALSE, NULL, TRUE, DuckDBOracle, breaches
from tests.pruning.units import DUCKDB_KINDS, KINDS, Units, random_statistics, random_units
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.errors import SqlError
from zskip.pruning import Outcomes
from zskip.stats import Statistics

BITS = ("can_be_true", "can_be_false", "can_be_null")
randoms = st.randoms(use_true_random=False)
examples = settings(max_examples=settings.default.max_examples // 2, derandomize=True)
# Of these no range is decided by trying its values, which may be tighter for one spelling than for another.
UNCOUNTABLE = [name for name in DUCKDB_KINDS if KINDS[name].family not in ("integer", "date")]


def planned(sql: str, table: Units, statistics: Statistics) -> Outcomes:
    try:
        return pruning.outcomes(bind(sql, table.schema), statistics)
    except SqlError:
        assume(False)
        raise


def world(random: Random, kinds: list[str] = DUCKDB_KINDS) -> tuple[Units, Statistics, Grammar]:
    table = random_units(random, columns=2, units=6, kinds=kinds)
    return table, random_statistics(random, table), Grammar(random, table)


def same(one: Outcomes, other: Outcomes) -> bool:
    return all(np.array_equal(getattr(one, bit), getattr(other, bit)) for bit in BITS)


def same_but_for_errors(one: Outcomes, other: Outcomes) -> bool:
    """Whether they agree where nothing fails: DuckDB raises in one order of legs, and in another never gets there."""
    fine = ~(one.can_fail | other.can_fail)
    return all(np.array_equal(getattr(one, bit)[fine], getattr(other, bit)[fine]) for bit in BITS)


def within(narrow: Outcomes, wide: Outcomes) -> bool:
    return not any((getattr(narrow, bit) & ~getattr(wide, bit)).any() for bit in BITS)


def loosened(random: Random, statistics: Statistics) -> Statistics:
    """The same statistics with some bounds and flags forgotten: still true, and less telling."""
    columns = {}
    for path, ranges in statistics.columns.items():
        if random.random() < 0.1:
            continue
        forgotten = {}
        for part in (field for field in fields(ranges) if field.init):
            values = getattr(ranges, part.name)
            drop = pa.array([random.random() < 0.3 for _ in range(len(values))])
            forgotten[part.name] = pa.array(
                [None if gone else value for gone, value in zip(drop.to_pylist(), values, strict=True)], values.type
            )
        columns[path] = replace(ranges, **forgotten)
    return Statistics(statistics.row_count, columns)


@examples
@given(randoms)
def test_negation_swaps_true_and_false(random: Random) -> None:
    table, statistics, grammar = world(random)
    sql = grammar.predicate(1)
    plain, negated = planned(sql, table, statistics), planned(f"NOT ({sql})", table, statistics)
    assert same(negated, replace(plain, can_be_true=plain.can_be_false, can_be_false=plain.can_be_true)), sql


@examples
@given(randoms)
def test_double_negation(random: Random) -> None:
    table, statistics, grammar = world(random)
    sql = grammar.predicate(1)
    assert same(planned(sql, table, statistics), planned(f"NOT (NOT ({sql}))", table, statistics)), sql


@examples
@given(randoms, st.sampled_from([("AND", "OR"), ("OR", "AND")]))
def test_de_morgan(random: Random, words: tuple[str, str]) -> None:
    table, statistics, grammar = world(random, UNCOUNTABLE)
    a, b = grammar.predicate(0), grammar.predicate(0)
    left = planned(f"NOT (({a}) {words[0]} ({b}))", table, statistics)
    right = planned(f"(NOT ({a})) {words[1]} (NOT ({b}))", table, statistics)
    assert same_but_for_errors(left, right), f"{a} / {b}"


@examples
@given(randoms, st.sampled_from(["AND", "OR"]))
def test_the_order_of_legs_does_not_matter(random: Random, word: str) -> None:
    table, statistics, grammar = world(random, UNCOUNTABLE)
    a, b = grammar.predicate(1), grammar.predicate(0)
    left, right = (planned(f"({x}) {word} ({y})", table, statistics) for x, y in ((a, b), (b, a)))
    assert same_but_for_errors(left, right), f"{a} / {b}"


@examples
@given(randoms)
def test_a_conjunction_is_never_wider_than_its_legs(random: Random) -> None:
    table, statistics, grammar = world(random)
    a, b = grammar.predicate(1), grammar.predicate(1)
    joint = planned(f"({a}) AND ({b})", table, statistics)
    for leg in (a, b):
        assert not (joint.can_be_true & ~planned(leg, table, statistics).can_be_true).any(), f"{a} / {b}"


@examples
@given(randoms)
def test_knowing_less_never_proves_more(random: Random) -> None:
    table, statistics, grammar = world(random)
    sql = grammar.predicate(2)
    assert within(planned(sql, table, statistics), planned(sql, table, loosened(random, statistics))), sql


@examples
@given(randoms)
def test_unknown_statistics_exclude_nothing_that_any_statistics_allow(random: Random) -> None:
    table, statistics, grammar = world(random)
    sql = grammar.predicate(2)
    nothing = Statistics(pa.nulls(table.count, pa.int64()), {})
    assert within(planned(sql, table, statistics), planned(sql, table, nothing)), sql


@examples
@given(randoms)
def test_units_are_judged_each_for_itself(random: Random) -> None:
    table, statistics, grammar = world(random)
    sql = grammar.predicate(1)
    chosen = np.array([random.randrange(table.count) for _ in range(4)])
    whole, part = planned(sql, table, statistics), planned(sql, table, statistics.take(chosen))
    assert same(part, replace(whole, **{field.name: getattr(whole, field.name)[chosen] for field in fields(whole)})), (
        sql
    )


@pytest.mark.parametrize(
    "sql",
    ["x = 1", "x <> 1", "x IS NULL", "x IS NOT NULL", "NOT (x < 5)", "x IN (1, 2)", "x NOT IN (1, 2)", "s LIKE 'a%'"],
)
def test_unknown_statistics_skip_nothing(sql: str) -> None:
    schema = Schema(pa.schema({"x": pa.int64(), "s": pa.string()}))
    outcomes = pruning.outcomes(bind(sql, schema), Statistics(pa.nulls(3, pa.int64()), {}))
    assert outcomes.may_match.all()
    assert not outcomes.all_match.any()


# --- the law of laws: no outcome that a row has is excluded ---


CASES = int(os.environ.get("ZSKIP_FUZZ_CASES", "24000"))
PARTS = 32
PLAIN_KINDS = ("i32", "i64", "f64", "n18_3", "s", "b", "d", "tus")


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_every_outcome_that_duckdb_shows_is_foreseen(part: int) -> None:
    cases = CASES // PARTS if part else 240
    tally = run(cases, seed=part)
    assert not tally.failures, "\n\n".join(tally.failures)
    # The run is worth something only where much is skipped, and much is proved to match.
    assert tally.cases["units skipped"] > tally.cases["units"] / 6
    assert tally.cases["units that match wholly"] > tally.cases["units"] / 10
    assert tally.cases["residuals"] > cases / 10


@settings(max_examples=settings.default.max_examples // 5)
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
    for _ in range(15):
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
