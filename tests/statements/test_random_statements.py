"""Random statements of every kind give the rows, types and names that DuckDB gives over the same rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.statements.fuzz import Sides, run, sides
from zskip.statements.duckdb import stubs


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with sides(tmp_path_factory.mktemp("random")) as made:
        yield made


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_random_statements_are_what_duckdb_says_they_are(given: Sides, seed: int) -> None:
    cases = 80 if seed == 0 else 2_000
    counts, failures = run(given, cases, seed)
    assert not failures, "\n\n".join(failures)
    # The run is worth something only where most statements give rows.
    assert counts["answers"] > cases / 3


@pytest.mark.parametrize("seed", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_columns_are_told_apart_by_several_plans(given: Sides, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where each name is a letter, and no spelling of it is left."""
    monkeypatch.setattr(stubs, "_MOST_SPELLINGS", 0)
    stubs._stubs.cache_clear()
    _, failures = run(given, 80 if seed == 4 else 2_000, seed)
    assert not failures, "\n\n".join(failures)
