from __future__ import annotations

import pytest

from zskip.statements.duckdb import pruned_tables


@pytest.fixture(autouse=True)
def every_statement_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that gained nothing in another test."""
    monkeypatch.setattr(pruned_tables, "_GAINLESS", set())
