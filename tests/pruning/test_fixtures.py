"""The text fixtures, which are the language's documentation: the planner gives each answer, and DuckDB confirms it."""

from __future__ import annotations

from itertools import groupby

import duckdb
import pytest

from tests import one_in
from tests.pruning.cases import Case, load
from tests.pruning.oracles import DuckDBOracle, observed
from zskip import pruning
from zskip.binder import bind

CASES = list(load())
BY_FILE = {file: list(cases) for file, cases in groupby(CASES, lambda case: case.file)}


def planned(case: Case) -> frozenset[str]:
    bound = bind(case.sql, case.schema, **case.options)
    outcomes = pruning.outcomes(bound, case.statistics, budget=pruning.Budget(1 << 50))
    bits = {"true": outcomes.can_be_true, "false": outcomes.can_be_false, "null": outcomes.can_be_null}
    return frozenset(name for name, bit in bits.items() if bit[0])


@pytest.mark.parametrize("file", BY_FILE)
def test_the_planner_gives_every_answer(file: str) -> None:
    wrong = []
    for case in BY_FILE[file]:
        found = planned(case)
        if not case.outcomes <= found or (found != case.outcomes and not case.loose):
            wrong.append(f"{case}\n    expected {sorted(case.outcomes)}, planned {sorted(found)}")
    assert not wrong, "\n".join(wrong)


ASKED = [file for file in BY_FILE if "spark" not in file]


@pytest.mark.parametrize("file", one_in(5, ASKED))
def test_duckdb_confirms_every_answer(file: str) -> None:
    """Rows that fill the box have exactly the outcomes of the answer; fewer only where it says that it is loose."""
    oracle, wrong = DuckDBOracle(), []
    for case in BY_FILE[file]:
        try:
            found = observed(oracle, case)
        except duckdb.Error as error:
            wrong.append(f"{case}\n    DuckDB: {error}")
            continue
        if not found <= case.outcomes or (found != case.outcomes and not case.loose):
            wrong.append(f"{case}\n    expected {sorted(case.outcomes)}, DuckDB shows {sorted(found)}")
    assert not wrong, "\n".join(wrong)


def test_the_verdicts_say_what_the_outcomes_say() -> None:
    for case in CASES:
        verdict = "skip" if "true" not in case.outcomes else "all" if case.outcomes == {"true"} else "keep"
        assert case.verdict == verdict, str(case)


def test_there_are_at_least_four_hundred() -> None:
    assert len({(case.file, case.line) for case in CASES}) >= 400
