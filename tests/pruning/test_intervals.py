"""Intervals in files of others: DuckDB's own comparisons, in which 24 hours are a day; they prove nothing."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import zskip
from zskip.errors import SchemaError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    con = duckdb.connect()
    for number, value in enumerate(("1 day", "30 days", "2 years")):
        con.sql(
            f"COPY (SELECT {number} AS n, INTERVAL '{value}' AS i, {{'a': INTERVAL '{value}', 'b': {number}}} AS s) "
            f"TO '{tmp_path}/{number}.parquet'"
        )
    return tmp_path


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    "predicate",
    ["i = INTERVAL '24 hours'", "i = '1 month'", "i < INTERVAL '1 month'", "s.a > INTERVAL '30 days'", "i IS NULL"],
)
def test_they_compare_as_in_duckdb(folder: Path, predicate: str, deep: bool) -> None:
    table = zskip.index(folder, deep=deep)
    con = duckdb.connect()
    wanted = con.sql(f"SELECT n FROM '{folder}/*.parquet' WHERE {predicate} ORDER BY n").fetchall()
    assert table.plan(predicate).count() == len(wanted)
    assert sorted(table.plan(predicate).to_duckdb(con, ["n"]).fetchall()) == wanted
    assert zskip.sql(f"SELECT n FROM '{folder}' WHERE {predicate} ORDER BY n", con).fetchall() == wanted


def test_they_are_read_beside_what_prunes(folder: Path) -> None:
    plan = zskip.index(folder).plan("n = 1 AND s.b = 1")
    assert len(plan) == 1
    (row,) = plan.to_arrow().to_pylist()
    assert (row["n"], row["i"].days, row["s"]["a"].days) == (1, 30, 30)


def test_they_are_not_written_as_bytes(folder: Path) -> None:
    with pytest.raises(SchemaError, match='"i" of type month_day_nano_interval cannot be written'):
        zskip.write(str(folder / "*.parquet"), folder / "lake", by="n")
    assert not (folder / "lake").exists()
