"""Settings of DuckDB: each has been looked at for whether it changes what a condition means."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import zskip
from tests import ROOT
from zskip.errors import InvalidOption


def test_every_setting_of_duckdb_has_been_looked_at() -> None:
    """See what a new one does: add it to `READ_BY_FUNCTIONS` if it changes a predicate's meaning, and to the file."""
    found = {name for (name,) in duckdb.sql("SELECT name FROM duckdb_settings()").fetchall()}
    known = set((ROOT / "fixtures" / "settings" / "duckdb.txt").read_text(encoding="utf-8").split())
    assert sorted(found - known) == []


def test_another_dialect_of_duckdb_is_refused(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": [1, 2, 3]}), tmp_path / "t", by=["a"], files=3)
    with duckdb.connect() as con:
        assert table.plan("a / 2 > 1").to_duckdb(con).fetchall() == [(3,)]
        con.execute("SET dialect_compatibility_mode = 'spark'")
        with pytest.raises(InvalidOption, match="dialect_compatibility_mode"):
            table.plan("a / 2 > 1").to_duckdb(con)


@pytest.mark.parametrize("where", ["ts >= '2018-02-01'", "ts::DATE >= '2018-02-01'", "ts = l"])
def test_another_calendar_is_refused_where_times_have_a_zone(where: str, tmp_path: Path) -> None:
    moments = [dt.datetime(2018, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=n) for n in range(90)]
    rows = {
        "ts": pa.array(moments, pa.timestamp("us", "UTC")),
        "l": pa.array([moment.replace(tzinfo=None) for moment in moments], pa.timestamp("us")),
    }
    table = zskip.write(pa.table(rows), tmp_path / "t", by=["ts"], files=9)
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'; SET Calendar = 'buddhist'")
        with pytest.raises(InvalidOption, match="Calendar"):
            table.plan(where).to_duckdb(con)
        assert len(table.plan("l >= '2018-02-01'").to_duckdb(con).fetchall()) == 59
