"""Settings of DuckDB: each has been looked at for whether it changes what a condition means."""

from __future__ import annotations

import duckdb

from tests import ROOT


def test_every_setting_of_duckdb_has_been_looked_at() -> None:
    """Of a new one: see what it does, add it to `zskip.engines.duckdb.meaning` if it does, and to the file."""
    found = {name for (name,) in duckdb.sql("SELECT name FROM duckdb_settings()").fetchall()}
    known = set((ROOT / "fixtures" / "settings" / "duckdb.txt").read_text(encoding="utf-8").split())
    assert sorted(found - known) == []
