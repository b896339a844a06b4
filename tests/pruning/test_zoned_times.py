"""Times with a zone in files of others: DuckDB's own type and comparisons, which prove nothing."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import zskip
from zskip.core.types import TIME_TZ


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    con = duckdb.connect()
    for number, time in enumerate(("10:00:00+00", "10:00:00+05", "10:00:00-08")):
        con.sql(
            f"COPY (SELECT {number} AS n, '{time}'::TIMETZ AS t, {{'t': '{time}'::TIMETZ, 'n': {number}}} AS s, "
            f"'12:00'::TIME AS plain) TO '{tmp_path}/{number}.parquet'"
        )
    return tmp_path


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
@pytest.mark.parametrize(
    "predicate",
    [
        "t = '10:00:00+05'",
        "t = '05:00:00'",
        "t < '12:00:00+05'",
        "t::VARCHAR = '05:00:00+00'",
        "t < '06:00:00+05'::TIMETZ",
        "s.t > '17:00:00+00'",
        "t IS NULL",
        "t IS NOT NULL AND n = 1",
    ],
)
def test_they_compare_as_in_duckdb(folder: Path, predicate: str, zone: str, deep: bool) -> None:
    table = zskip.index(folder, deep=deep)
    con = duckdb.connect()
    con.execute(f"SET TimeZone = '{zone}'")
    wanted = con.sql(f"SELECT n, t, s FROM '{folder}/*.parquet' WHERE {predicate} ORDER BY n").fetchall()
    assert zskip.sql(f"SELECT n, t, s FROM '{folder}' WHERE {predicate} ORDER BY n", con).fetchall() == wanted
    plan = table.plan(predicate, timezone=zone)
    assert sorted(plan.to_duckdb(con, ["n"]).fetchall()) == [row[:1] for row in wanted]
    assert sorted(plan.to_arrow(["n"])["n"].to_pylist()) == [row[0] for row in wanted]
    assert plan.count() == len(wanted)


def test_other_columns_prune_beside_them(folder: Path) -> None:
    table = zskip.index(folder)
    assert table.schema.field("t").type == TIME_TZ
    assert len(zskip.open(folder).plan("n = 1 AND plain = TIME '12:00'")) == 1
    assert len(zskip.open(folder).plan("plain > TIME '12:00:00'")) == 0


def test_a_table_of_zskip_keeps_their_times_in_utc(folder: Path, tmp_path: Path) -> None:
    table = zskip.write(str(folder / "*.parquet"), tmp_path / "lake", by="n")
    assert table.schema.field("t").type == pa.time64("us")
    assert [time.hour for time in table.to_arrow()["t"].to_pylist()] == [10, 5, 18]


def test_arrows_older_mark_of_a_zone_means_none(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    rows = pa.table({"t": pa.array([1, 2], pa.time64("us"))})
    pq.write_table(rows, tmp_path / "0.parquet", write_time_adjusted_to_utc=True)
    assert zskip.index(tmp_path).schema.field("t").type == pa.time64("us")
