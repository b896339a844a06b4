"""Times with a zone, intervals and infinite times in files of others: as DuckDB compares them."""

from __future__ import annotations

import shutil
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import zskip
from zskip.core.types import TIME_TZ
from zskip.errors import SchemaError
from zskip.language import clocks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    con = duckdb.connect()
    for number, time in enumerate(("10:00:00+00", "10:00:00+05", "10:00:00-08")):
        con.sql(
            f"COPY (SELECT {number} AS n, '{time}'::TIMETZ AS t, {{'t': '{time}'::TIMETZ, 'n': {number}}} AS s, "
            f"'12:00'::TIME AS plain) TO '{tmp_path}/{number}.parquet'"
        )
    return tmp_path


PREDICATES = (
    "t = '10:00:00+05'",
    "t = '05:00:00'",
    "t < '12:00:00+05'",
    "t::VARCHAR = '05:00:00+00'",
    "t < '06:00:00+05'::TIMETZ",
    "s.t > '17:00:00+00'",
    "t IS NULL",
    "t IS NOT NULL AND n = 1",
)


@pytest.mark.parametrize(("zone", "deep"), [("UTC", True), ("Asia/Tokyo", False)])
def test_they_compare_as_in_duckdb(folder: Path, zone: str, deep: bool) -> None:
    table = zskip.index(folder, deep=deep)
    con = duckdb.connect()
    con.execute(f"SET TimeZone = '{zone}'")
    for predicate in PREDICATES:
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


# --- intervals in files of others: DuckDB's own comparisons, in which 24 hours are a day; they prove nothing ---


@pytest.fixture
def intervals(tmp_path: Path) -> Path:
    con = duckdb.connect()
    for number, value in enumerate(("1 day", "30 days", "2 years")):
        con.sql(
            f"COPY (SELECT {number} AS n, INTERVAL '{value}' AS i, {{'a': INTERVAL '{value}', 'b': {number}}} AS s) "
            f"TO '{tmp_path}/{number}.parquet'"
        )
    return tmp_path


INTERVALS = (
    "i = INTERVAL '24 hours'", "i = '1 month'", "i < INTERVAL '1 month'", "s.a > INTERVAL '30 days'", "i IS NULL",
)  # fmt: skip


@pytest.mark.parametrize("deep", [False, True])
def test_intervals_compare_as_in_duckdb(intervals: Path, deep: bool) -> None:
    table = zskip.index(intervals, deep=deep)
    con = duckdb.connect()
    for predicate in INTERVALS:
        wanted = con.sql(f"SELECT n FROM '{intervals}/*.parquet' WHERE {predicate} ORDER BY n").fetchall()
        assert table.plan(predicate).count() == len(wanted)
        assert sorted(table.plan(predicate).to_duckdb(con, ["n"]).fetchall()) == wanted
        assert zskip.sql(f"SELECT n FROM '{intervals}' WHERE {predicate} ORDER BY n", con).fetchall() == wanted


def test_they_are_read_beside_what_prunes(intervals: Path) -> None:
    plan = zskip.index(intervals).plan("n = 1 AND s.b = 1")
    assert len(plan) == 1
    (row,) = plan.to_arrow().to_pylist()
    assert (row["n"], row["i"].days, row["s"]["a"].days) == (1, 30, 30)


def test_they_are_not_written_as_bytes(intervals: Path) -> None:
    with pytest.raises(SchemaError, match='"i" of type month_day_nano_interval cannot be written'):
        zskip.write(str(intervals / "*.parquet"), intervals / "lake", by="n")
    assert not (intervals / "lake").exists()


# --- the infinities of DuckDB's dates and timestamps, which have no parts: year('infinity') is NULL ---


PARTS = ("epoch", "epoch_ms", "year", "month", "day", "dayofweek", "dayofyear", "week", "isoyear", "decade", "last_day")
CONDITIONS = (
    *(f"{part}(x) IS NULL" for part in PARTS),
    *(f"NOT ({part}(x) IS NOT NULL)" for part in ("epoch", "year", "last_day")),
    "hour(x::TIMESTAMP) IS NULL",
    "year(x) <> 2020",
    "date_trunc('month', x) > DATE '2100-01-01'",
    "x::DATE >= DATE '9999-01-01'",
    "x::DATE < DATE '0001-01-01'",
    "date_diff('day', x::TIMESTAMP, TIMESTAMP '2020-01-01') IS NULL",
)


@pytest.mark.parametrize(
    "kind",
    [
        "DATE",
        "TIMESTAMPTZ",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMP_MS")),
    ],
)
def test_a_part_of_infinity_is_null(kind: str, tmp_path: Path) -> None:
    con = duckdb.connect()
    con.sql("SET TimeZone = 'UTC'")
    file = tmp_path / "a.parquet"
    con.sql(
        f"COPY (SELECT x::{kind} AS x FROM (VALUES ('infinity'), ('-infinity'), ('2020-02-29'), ('2020-03-01')) t(x)) "
        f"TO '{file}' (ROW_GROUP_SIZE 1)"
    )
    table = zskip.index(tmp_path)
    for number, condition in enumerate(CONDITIONS):
        if kind == "TIMESTAMP_NS" and "epoch_ms" in condition:
            continue  # DuckDB 2.0.1 raises for it
        ((wanted,),) = con.sql(f"SELECT count(*) FROM (SELECT x FROM '{file}') WHERE {condition}").fetchall()
        assert table.plan(condition).count() == wanted, condition
        if number % 3 == 0:
            assert table.plan(f"({condition}) OR x IS NULL").count() == wanted, condition


# --- local times by the clocks of the engine, which need not be those of the operating system ---


@pytest.fixture
def other_clocks(tmp_path: Path) -> Iterator[None]:
    """The operating system takes Tokyo's clocks for Stockholm's."""
    tokyo = next(Path(folder, "Asia/Tokyo") for folder in zoneinfo.TZPATH if Path(folder, "Asia/Tokyo").exists())
    (tmp_path / "zones" / "Europe").mkdir(parents=True)
    shutil.copy(tokyo, tmp_path / "zones" / "Europe" / "Stockholm")
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([str(tmp_path / "zones"), *before])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath(before)
    zoneinfo.ZoneInfo.clear_cache()


def test_local_times_are_those_of_duckdb(other_clocks: None, tmp_path: Path) -> None:
    """Files were skipped by the clocks of the operating system, and with them rows that match."""
    begins = "'1900-01-01'", "'1947-07-02 12:00'", "'2024-07-01'"
    con = duckdb.connect()
    moments = ", ".join(f"TIMESTAMPTZ {each} + INTERVAL 1 MINUTE * i" for each in begins)
    rows = con.sql(f"SELECT unnest([{moments}]) AS t FROM range(-600, 600) r(i)").to_arrow_table()
    table = zskip.write(rows, tmp_path / "t", by="t", files=60)
    for zone in ("Europe/Stockholm", "Europe/Amsterdam", "America/New_York"):
        con.execute(f"SET TimeZone = '{zone}'")
        for begin in begins:
            for condition in (
                f"t BETWEEN TIMESTAMPTZ {begin} AND TIMESTAMPTZ {begin} + INTERVAL 20 MINUTE",
                f"t = TIMESTAMP {begin}",
                f"t < {begin}",
            ):
                ((wanted,),) = con.sql(f"SELECT count(*) FROM rows WHERE {condition}").fetchall()
                plan = table.plan(condition, timezone=zone)
                assert plan.count() == len(plan.to_duckdb(con).fetchall()) == wanted, (zone, condition)
    assert len(table.plan("t = TIMESTAMP '1947-07-02 12:00'", timezone="Europe/Stockholm")) == 1
    assert len(table.plan("t = '1947-07-02 12:00'", timezone="Europe/Stockholm", dialect="spark")) == 60
    assert len(table.plan("t = '2024-07-01'", timezone="Europe/Stockholm", dialect="spark")) == 1


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"])
def test_local_times_that_occur_once_have_an_instant(zone: str) -> None:
    con = duckdb.connect()
    for year in (1911, 1980, 2011, 2024):
        for _, change, _ in clocks.duckdb_clocks(zone, year)[:-1]:
            for minutes in range(-90, 90):
                instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=change, minutes=minutes)
                local = clocks.local_time(instant, zone)
                assert con.execute("SELECT timezone($1, $2)", [zone, instant]).fetchall() == [(local,)]
                assert clocks.in_utc(local, zone) in (instant.replace(tzinfo=None), None)
    assert clocks.in_utc(datetime(2024, 7, 1), "Europe/Berlin") == datetime(2024, 6, 30, 22)
    assert clocks.in_utc(datetime(2024, 3, 31, 2, 30), "Europe/Berlin") is None
    assert clocks.in_utc(datetime(2024, 10, 27, 2, 30), "Europe/Berlin") is None
