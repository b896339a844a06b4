from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from zskip.statements.duckdb import pruning_rule


@pytest.fixture(autouse=True)
def every_statement_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one over few files, one that saves little, and one that gained nothing in another test."""
    monkeypatch.setattr(pruning_rule, "MOST_RANGES", -1)
    monkeypatch.setattr(pruning_rule, "LEAST_SAVED", 0.0)
    monkeypatch.setattr(pruning_rule, "LEAST_READ", 0.0)
    monkeypatch.setattr(pruning_rule, "_GAINLESS", set())


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@pytest.fixture(scope="module")
def reader() -> Iterator[duckdb.DuckDBPyConnection]:
    """The connection that a file's tests share, whose statements change nothing: opening one takes longer than them."""
    with duckdb.connect() as connection:
        yield connection
