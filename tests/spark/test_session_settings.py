"""The session's case sensitivity, ANSI mode and time zone count, whichever way a table is read."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import zskip
from tests import ROOT, one_in
from tests.spark.files import files_read
from tests.tables import sorted_rows
from zskip import spark as zs
from zskip.errors import InvalidOption, ZskipError
from zskip.language import clocks
from zskip.spark.spark_session import MEANING_SETTINGS, setting


def _by_format(spark: SparkSession, path: Path, where: str) -> DataFrame:
    zs.register_source(spark)
    return spark.read.format("zskip").load(str(path)).where(where)


WAYS: dict[str, Callable[[SparkSession, Path, str], DataFrame]] = {
    "table": lambda spark, path, where: zs.table(spark, path).where(where),
    "read": lambda spark, path, where: zs.read(spark, path, where),
    "sql": lambda spark, path, where: zs.sql(spark, f"SELECT * FROM '{path}' WHERE {where}"),
    "format": _by_format,
}

# The other two hand the condition to the same code.
LISTED = [way if way in ("table", "read") else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]


@pytest.mark.parametrize("way", LISTED)
def test_the_case_of_names(spark: SparkSession, tmp_path: Path, way: str) -> None:
    zskip.write(pa.table({"a": list(range(100))}), tmp_path / "t", by=["a"], files=10)
    with setting(spark, {"spark.sql.caseSensitive": "true"}):
        assert WAYS[way](spark, tmp_path / "t", "a = 3").count() == 1
        with pytest.raises((PySparkException, ZskipError)):
            WAYS[way](spark, tmp_path / "t", "A = 3").collect()
    found = WAYS[way](spark, tmp_path / "t", "A = 3")
    assert way == "format" or files_read(found) == 1
    assert [tuple(row) for row in found.collect()] == [(3,)]


@pytest.mark.parametrize("way", LISTED)
def test_the_time_zone_of_literals_and_of_days(spark: SparkSession, tmp_path: Path, way: str) -> None:
    moments = [dt.datetime(2018, 10, 27, 12, tzinfo=dt.UTC) + dt.timedelta(minutes=30 * n) for n in range(96)]
    rows = pa.table({"n": list(range(96)), "ts": pa.array(moments, pa.timestamp("us", "UTC"))})
    zskip.write(rows, tmp_path / "t", by=["ts"], files=24)
    counts = set()
    for zone in ("UTC", "America/St_Johns", "+05:30"):
        with setting(spark, {"spark.sql.session.timeZone": zone}):
            plain = spark.createDataFrame(rows.cast(pa.schema([("n", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])))
            conditions = (
                "ts < TIMESTAMP '2018-10-28 02:30:00'",
                "CAST(ts AS DATE) = DATE '2018-10-28'",
                "hour(ts) = 2",
            )
            answers = plain.selectExpr("n", *conditions).collect()
            for at, where in enumerate(conditions, start=1):
                wanted = sorted(row.n for row in answers if row[at])
                found = sorted(row.n for row in WAYS[way](spark, tmp_path / "t", where).collect())
                assert found == wanted, (zone, where)
                counts.add((where, tuple(wanted)))
    assert len(counts) >= 3 * 3, "the zone makes no difference"


def test_local_times_are_those_of_the_sessions_jvm(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files were skipped by the clocks of the operating system, and with them rows that match."""
    monkeypatch.setattr(clocks, "duckdb_clocks", lambda zone, year: ((*clocks.seconds_of(year), 32_400),))
    begins = (
        dt.datetime(1900, 1, 1),
        dt.datetime(1947, 7, 2, 10),
        dt.datetime(2024, 6, 30, 22),
        dt.datetime(2024, 8, 1),
    )
    moments = [begin + dt.timedelta(minutes=n) for begin in begins for n in range(-120, 120)]
    rows = pa.table({"ts": pa.array(moments, pa.timestamp("us", "UTC"))})
    table = zskip.write(rows, tmp_path / "t", by=["ts"], files=24)
    wheres = [
        f"ts BETWEEN TIMESTAMP '{begin}' AND TIMESTAMP '{begin}' + INTERVAL '20' MINUTE"
        for begin in ("1900-01-01 00:30:00", "1947-07-02 12:00:00", "2024-07-01 00:00:00", "2024-08-01 02:00:00")
    ]
    with setting(spark, {"spark.sql.session.timeZone": "Europe/Stockholm"}):
        counts = [f"count_if({where})" for where in wheres]
        wanted = list(spark.read.parquet(str(tmp_path / "t")).selectExpr(*counts).first() or ())
        for where, count in zip(wheres, wanted, strict=True):
            assert WAYS["table"](spark, tmp_path / "t", where).count() == count > 0
            assert WAYS["read"](spark, tmp_path / "t", where).count() == count
            assert files_read(WAYS["read"](spark, tmp_path / "t", where)) <= 3
        assert zs.delete(spark, tmp_path / "t", wheres[2]).rows == wanted[2]
        assert table.delete(wheres[3], dialect="spark", session=spark).rows == wanted[3]
        assert spark.read.parquet(*table.plan().paths).selectExpr(*counts).first() == (*wanted[:2], 0, 0)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_floats_beside_integers_and_texts(spark: SparkSession, tmp_path: Path, ansi: str) -> None:
    """Without ANSI mode Spark compares them as FLOAT, with it as DOUBLE: matching files were skipped."""
    floats = [16777216.0, 33554432.0, 16777218.0, 0.1, 5.0]
    rows = pa.table(
        {"f": pa.array(floats, pa.float32()), "i": pa.array([16777217, 33554433, 16777217, 0, 5], pa.int32())}
    )
    zskip.write(rows, tmp_path / "t", by=["f"], files=5)
    wheres = (
        *("f = 16777217", "f IN (33554433, 5)", "f = '16777217'", "f = '0.1'", "f = 0.1", "f BETWEEN 5 AND 16777217"),
        *("f + 1 = 16777217", "f - i = 0", "f > i", "coalesce(f, 0) = 16777217", "NOT (i <=> try_cast('१२' AS INT))"),
    )
    with setting(spark, {"spark.sql.ansi.enabled": ansi}):
        counts = [f"count_if({where})" for where in wheres]
        wanted = spark.createDataFrame(rows).selectExpr(*counts).first() or ()
        for where, count in zip(wheres, wanted, strict=True):
            assert zs.read(spark, tmp_path / "t", where).count() == count, where


@pytest.mark.parametrize("way", LISTED)
def test_errors_raise_only_in_ansi_mode(spark: SparkSession, tmp_path: Path, way: str) -> None:
    rows = pa.table({"i": pa.array([2**31 - 1, 5, -(2**31), None], pa.int32()), "s": ["1", "x", "3", "4"]})
    zskip.write(rows, tmp_path / "t", by=["i"], files=4)
    for where, wanted in (("i + 1 < 0", 2), ("CAST(s AS INT) >= 3", 2), ("CAST(s AS INT) IS NULL", 1)):
        with setting(spark, {"spark.sql.ansi.enabled": "false"}):
            found = WAYS[way](spark, tmp_path / "t", where)
            assert found.count() == spark.createDataFrame(rows).where(where).count() == wanted, where
    with setting(spark, {"spark.sql.ansi.enabled": "true"}), pytest.raises(PySparkException):
        sorted_rows(WAYS[way](spark, tmp_path / "t", "CAST(s AS INT) IS NULL OR i + 1 < 0").toArrow())


OTHER_MEANINGS = {
    "spark.sql.ansi.doubleQuotedIdentifiers": ("true", 's = "b"'),
    "spark.sql.parser.escapedStringLiterals": ("true", r"s = '\\b'"),
    "spark.sql.variable.substitute": ("true", "s = '${spark.sql.session.timeZone}'"),
    "spark.sql.timestampType": ("TIMESTAMP_NTZ", "ts < TIMESTAMP '2020-01-01 01:00:00'"),
    "spark.sql.decimalOperations.allowPrecisionLoss": ("false", "d * d > 1.5"),
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": ("true", "d / 3 > 0.5"),
    "spark.sql.legacy.literal.pickMinimumPrecision": ("false", "d + 1.50 > 3"),
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": ("true", "d > 1.5e0"),
    "spark.sql.legacy.consecutiveStringLiterals.enabled": ("true", "s = 'a' 'b'"),
    "spark.sql.legacy.interval.enabled": ("true", "ts < TIMESTAMP '2020-01-01 03:00:00' - INTERVAL '1' HOUR"),
    "spark.sql.legacy.fromDayTimeString.enabled": (
        "true",
        "ts < TIMESTAMP '2020-01-02 03:00:00' - INTERVAL '1 01:30:00' DAY TO SECOND",
    ),
    "spark.sql.legacy.timeParserPolicy": ("LEGACY", "to_date('2020-1-1', 'yyyy-MM-dd') <= ts"),
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": ("true", "ts > '2020-01-01 01:00:00'"),
}
"""By setting: a value with which Spark may read a condition otherwise, and such a condition."""


@pytest.mark.parametrize("key", one_in(3, MEANING_SETTINGS))
def test_a_setting_that_changes_what_a_text_means(spark: SparkSession, tmp_path: Path, key: str) -> None:
    value, where = OTHER_MEANINGS[key]
    moments = [dt.datetime(2020, 1, 1, hour, tzinfo=dt.UTC) for hour in range(4)]
    texts = ["a", "b", r"\b", str(spark.conf.get("spark.sql.session.timeZone"))]
    numbers = pa.array([Decimal(n) for n in range(1, 5)], pa.decimal128(20, 2))
    rows = pa.table({"s": texts, "b": texts, "d": numbers, "ts": pa.array(moments, pa.timestamp("us", "UTC"))})
    zskip.write(rows, tmp_path / "t", by=["s"], files=4)
    zskip.write(rows, tmp_path / "deleted", by=["s"], files=4)
    with setting(spark, {key: value}):
        wanted = sorted_rows(spark.createDataFrame(rows).where(where).toArrow())
        assert sorted_rows(zs.table(spark, tmp_path / "t").where(where).toArrow()) == wanted
        with pytest.raises(InvalidOption, match=key):
            zs.read(spark, tmp_path / "t", where)
        with pytest.raises(InvalidOption, match=key):
            zs.delete(spark, tmp_path / "deleted", where)
        assert zs.read(spark, tmp_path / "t", "length(s) = 1").count() == 2


# Names of settings that may touch what an expression means.
DOUBTFUL = re.compile(
    r"\.(ansi|parser|legacy|analyzer|collation|decimalOperations|timestampType|caseSensitive|variable|session)\b"
)


def test_every_setting_of_spark_has_been_looked_at(spark: SparkSession) -> None:
    """Of a new one: see what it does, add it to `MEANING_SETTINGS` if a condition changes by it, and to the file."""
    jvm = spark._jvm
    assert jvm is not None
    companion = getattr(jvm.org.apache.spark.sql.internal, "SQLConf$")
    entries = getattr(companion, "MODULE$").getConfigEntries().iterator()
    names = set()
    while entries.hasNext():
        names.add(str(entries.next().key()))
    known = set((ROOT / "fixtures" / "settings" / "spark.txt").read_text(encoding="utf-8").split())
    assert sorted(name for name in names - known if DOUBTFUL.search(name)) == []
    assert set(MEANING_SETTINGS) <= names
