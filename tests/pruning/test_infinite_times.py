"""The infinities of DuckDB's dates and timestamps, which have no parts: year('infinity') is NULL."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import zskip

PARTS = ("epoch", "epoch_ms", "year", "month", "day", "dayofweek", "dayofyear", "week", "isoyear", "decade", "last_day")
CONDITIONS = (
    *(f"{part}(x) IS NULL" for part in PARTS),
    *(f"NOT ({part}(x) IS NOT NULL)" for part in PARTS),
    "hour(x::TIMESTAMP) IS NULL",
    "year(x) <> 2020",
    "date_trunc('month', x) > DATE '2100-01-01'",
    "x::DATE >= DATE '9999-01-01'",
    "x::DATE < DATE '0001-01-01'",
    "date_diff('day', x::TIMESTAMP, TIMESTAMP '2020-01-01') IS NULL",
)


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_NS", "TIMESTAMP_MS"])
@pytest.mark.parametrize("value", ["infinity", "-infinity"])
def test_a_part_of_infinity_is_null(kind: str, value: str, tmp_path: Path) -> None:
    con = duckdb.connect()
    con.sql("SET TimeZone = 'UTC'")
    file = tmp_path / "a.parquet"
    con.sql(
        f"COPY (SELECT x::{kind} AS x FROM (VALUES ('{value}'), ('2020-02-29'), ('2020-03-01')) t(x)) "
        f"TO '{file}' (ROW_GROUP_SIZE 1)"
    )
    table = zskip.index(tmp_path)
    for condition in CONDITIONS:
        if kind == "TIMESTAMP_NS" and "epoch_ms" in condition:
            continue  # DuckDB 2.0.1 raises for it
        ((wanted,),) = con.sql(f"SELECT count(*) FROM (SELECT x FROM '{file}') WHERE {condition}").fetchall()
        assert table.plan(condition).count() == wanted, condition
        assert table.plan(f"({condition}) OR x IS NULL").count() == wanted, condition
