"""`zskip.spark.table`: Spark's planner asks for the files, and the rows are those of a full scan."""

from __future__ import annotations

import gc
import shutil
import threading
import warnings
from collections import Counter
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import zskip
import zskip.spark
from tests.spark.files import answered, matching, scanned
from tests.tables import build_table, hostile, sorted_rows
from tests.test_small_tables import NONE, SCHEMA, small_tables
from zskip import spark as zs
from zskip.binder import bind
from zskip.errors import FilesRemoved
from zskip.plan.planner import plan
from zskip.spark import catalyst, jvm
from zskip.spark.spark_session import setting
from zskip.table import Table
from zskip.tablelog import shards
from zskip.tablelog.index import Index

FILES = 20


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_table(tmp_path_factory.mktemp("pruning") / "t", hostile(), files=FILES)


@pytest.fixture
def table(spark: SparkSession, index: Index) -> DataFrame:
    return zs.register(spark, "pruned", Table(index.storage, index.snapshot))


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The same rows in one file, which is opened more quickly than twenty."""
    path = tmp_path_factory.mktemp("plain") / "plain.parquet"
    pq.write_table(hostile(), path)
    rows = spark.read.parquet(str(path))
    rows.createOrReplaceTempView("plain")
    return rows


PRUNED = [
    "i = -500",
    "i IN (-900, 17, 800)",
    "NOT (i > -990) OR i BETWEEN 100 AND 110",
    "code = 'k000123' OR few = 3 AND i > 980",
    "day = DATE '1970-01-05'",
    "ts >= TIMESTAMP '2018-10-28 21:00:00' AND ts < TIMESTAMP '2018-10-28 22:00:00'",
    "local < TIMESTAMP_NTZ '2018-10-27 21:00:00'",
    "m = 1.50",
    "st.a > 1990",
    "st.DEEP = '3' AND st.A < 40",
    "bin = X'0000ff'",
    "i IS NULL AND few = 0",
]


def test_rows_are_those_of_a_full_scan_and_files_those_of_the_plan(
    table: DataFrame, plain: DataFrame, index: Index
) -> None:
    for where, wanted in zip(PRUNED, matching(plain, PRUNED), strict=True):
        found = table.where(where)
        assert sorted_rows(found.toArrow()) == wanted, where
        survivors = plan(index, bind(where, index.snapshot.schema, dialect="spark"))
        assert scanned(found) <= len(survivors) < FILES, where


def test_sql_views_joins_and_subqueries_prune(spark: SparkSession, table: DataFrame) -> None:
    queries = {
        "SELECT count(*) FROM pruned WHERE few = 1": 6,
        "SELECT a.code, b.i FROM pruned a JOIN pruned b ON a.i = b.i WHERE a.i < -980": 6,
        "SELECT code FROM pruned WHERE i IN (SELECT i FROM pruned WHERE i < -990) AND few = 0": 8,
        "SELECT x.few, count(*) FROM (SELECT * FROM pruned WHERE i > 900) x GROUP BY x.few": 5,
        "WITH w AS (SELECT * FROM pruned WHERE few = 2) SELECT max(i) FROM w WHERE i > 0": 7,
        "SELECT i FROM pruned WHERE few = 0 UNION ALL SELECT i FROM pruned WHERE few = 3": 15,
    }
    for query, most in queries.items():
        found = spark.sql(query)
        rows = found.toArrow()
        assert sorted_rows(rows) == answered(query, rows.schema, pruned=hostile()), query
        assert scanned(found) <= most, query


def test_nothing_is_skipped_where_the_text_would_mislead(table: DataFrame, plain: DataFrame) -> None:
    """Each filter prints as one that would prune more than is right."""
    conditions = [
        "try_add(edge, 1) IS NULL",
        "try_multiply(edge, 2) IS NULL",
        "s COLLATE UTF8_LCASE = 'zz'",
        "try_cast(code AS INT) IS NULL AND few = 1",
    ]
    for where, wanted in zip(conditions, matching(plain, conditions), strict=True):
        assert sorted_rows(table.where(where).toArrow()) == wanted, where


def test_a_users_function_with_the_name_of_sparks_own_does_not_prune(
    spark: SparkSession, table: DataFrame, plain: DataFrame
) -> None:
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType

    named = f.udf(lambda _: 3, IntegerType())
    named._name = "abs"
    assert table.where(named("i") == 3).count() == plain.where(named("i") == 3).count() > 0


@pytest.mark.parametrize(
    "zone", ["America/St_Johns", *(pytest.param(zone, marks=pytest.mark.slow) for zone in ("UTC", "GMT-03:30"))]
)
def test_any_session_zone(spark: SparkSession, table: DataFrame, plain: DataFrame, zone: str) -> None:
    conditions = [
        "ts = TIMESTAMP '2018-10-28 02:30:00.000007'",
        "ts BETWEEN TIMESTAMP '2018-10-28 02:10:00' AND TIMESTAMP '2018-10-28 02:50:00'",
        "ts < TIMESTAMP '2018-10-27 22:00:00Z'",
        "CAST(ts AS DATE) = DATE '2018-10-28'",
        "date_trunc('HOUR', ts) = TIMESTAMP '2018-10-28 03:00:00'",
        "hour(ts) = 2",
        "local < TIMESTAMP_NTZ '2018-10-27 21:00:00'",
        "ts > local",
    ]
    with setting(spark, {"spark.sql.session.timeZone": zone}):
        each = [table.where(where).selectExpr(f"{number} AS place", "*") for number, where in enumerate(conditions)]
        found = reduce(DataFrame.unionAll, each).toArrow()
        for number, (where, wanted) in enumerate(zip(conditions, matching(plain, conditions), strict=True)):
            rows = found.filter(pc.equal(found["place"], number)).drop_columns(["place"])
            assert sorted_rows(rows) == wanted, (zone, where)


def test_the_hour_that_comes_twice(spark: SparkSession, tmp_path: Path) -> None:
    """Both instants print as the same local time: a literal made of the later one must not prune like the earlier."""
    import datetime as dt

    start = dt.datetime(2018, 10, 28, 0, 0, tzinfo=dt.UTC)
    moments = [start + dt.timedelta(minutes=10 * n) for n in range(24)]
    built = build_table(tmp_path / "t", pa.table({"ts": pa.array(moments, pa.timestamp("us", "UTC"))}), files=24)
    rows = zs.table(spark, Table(built.storage, built.snapshot))
    with setting(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        conditions = [f"ts = timestamp_micros({int(moment.timestamp()) * 1_000_000})" for moment in moments]
        found = [rows.where(where).selectExpr(f"{number} AS place") for number, where in enumerate(conditions)]
        assert sorted(row.place for row in reduce(DataFrame.unionAll, found).collect()) == list(range(24))


def test_a_changed_ansi_mode_is_noticed(spark: SparkSession, table: DataFrame, plain: DataFrame) -> None:
    """A filter keeps the mode that it was made in, whatever the session is set to later."""
    with setting(spark, {"spark.sql.ansi.enabled": "false"}):
        made = [rows.where("edge + 1 < 0 OR few = 9").select("edge") for rows in (table, plain)]
    found, wanted = (sorted_rows(rows.toArrow()) for rows in made)
    assert found == wanted
    assert any("2147483647" in row for row in found)


def test_threads_sessions_caches_and_garbage(
    spark: SparkSession, table: DataFrame, plain: DataFrame, index: Index
) -> None:
    wanted = Counter(hostile()["few"].to_pylist())
    found: dict[int, int] = {}

    def count(few: int) -> None:
        found[few] = table.where(f"few = {few}").count()

    threads = [threading.Thread(target=count, args=(few,)) for few in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == wanted
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    rows = zs.table(other, Table(index.storage, index.snapshot))
    assert (
        rows.where("ts < TIMESTAMP '2018-10-28 07:00:00'").count()
        == plain.where("ts < TIMESTAMP '2018-10-27 22:00:00'").count()
    )
    cached = table.where("few = 1").cache()
    assert cached.count() == table.where("few = 1").count() == wanted[1]
    cached.unpersist()
    made = zs.table(spark, Table(index.storage, index.snapshot)).where("few = 2")
    gc.collect()
    spark._jvm.System.gc()
    assert made.count() == wanted[2]


def test_size_and_equality_are_truthful(spark: SparkSession, table: DataFrame, index: Index) -> None:
    plain = spark.read.parquet(f"{index.storage.uri}/*.parquet")
    size = table._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert int(str(size)) == int(str(plain._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    again = zs.table(spark, Table(index.storage, index.snapshot))
    assert table.where("i > 3").sameSemantics(again.where("i > 3"))
    assert set(table.inputFiles()) == set(plain.inputFiles())


def test_an_exception_in_planning_reads_everything_and_warns(
    spark: SparkSession, table: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(catalyst, "predicate", fails)
    monkeypatch.setattr(jvm, "_WARNED", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert table.where("few = 1").count() == table.where("few = 2").count() == 500
    assert [str(one.message) for one in caught if "planted" in str(one.message)] == [
        "zskip could not plan a Spark filter and reads every file: ValueError: planted"
    ]


def test_intervals_are_filtered_without_a_word(
    spark: SparkSession, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """They have no bounds, of which Arrow compared two, and each filter warned that it could not be planned."""
    spark.range(10).selectExpr("make_dt_interval(id) AS d", "make_ym_interval(id) AS y").write.parquet(f"{tmp_path}/t")
    zskip.index(tmp_path / "t")
    rows = zskip.spark.table(spark, tmp_path / "t").where("d > INTERVAL 3 DAYS AND y <> INTERVAL 5 YEARS")
    assert rows.count() == 5
    assert [str(each.message) for each in recwarn if "zskip" in str(each.message)] == []


def test_other_internals_fall_back_to_all_files(
    spark: SparkSession, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_MANIFEST_READERS", ("org.apache.spark.NoSuchIndex",))
    with pytest.warns(RuntimeWarning, match=r"no org\.apache\.spark\.NoSuchIndex"):
        rows = zs.table(spark, Table(index.storage, index.snapshot))
    assert rows.where("few = 1").count() == 500


@pytest.mark.parametrize("root", ["t", "o=1/t"])
def test_hive_partitions_are_real_ones(spark: SparkSession, tmp_path: Path, root: str) -> None:
    import zskip

    rows = pa.table({"p": [1, 1, 2, None] * 50, "q": ["a/b", "c d"] * 100, "x": list(range(200))})
    made = zskip.write(rows, tmp_path / root, by=["x"], partition_by=["p", "q"], files=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = zs.table(spark, made)
    assert found.columns == ["p", "q", "x"]
    assert sorted_rows(found.toArrow()) == sorted_rows(rows)
    conditions = ["p = 2", "q = 'a/b' AND x < 20", "p IS NULL", "p + 1 = 2 OR x = 7"]
    for where, wanted in zip(conditions, matching(spark.createDataFrame(rows), conditions), strict=True):
        assert sorted_rows(found.where(where).toArrow()) == wanted, where
    if root == "t":
        assert "PartitionFilters: [isnotnull(p" in found.where("p = 2")._jdf.queryExecution().toString()


def test_a_folder_that_changes_is_listed_anew(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"x": list(range(100))})
    built = build_table(tmp_path / "t", rows, files=4, managed=False)
    found = zs.table(spark, Table(built.storage, built.snapshot))
    assert found.where("x = 5").count() == 1
    pq.write_table(pa.table({"x": [5, 500]}), tmp_path / "t" / "part-00003.parquet")
    shutil.copy(tmp_path / "t" / "part-00000.parquet", tmp_path / "t" / "new.parquet")
    assert found.where("x = 5").count() == 3
    assert found.where("x = 500").count() == 1
    assert found.count() == 75 + 2 + 25


def test_read_and_sql(spark: SparkSession, plain: DataFrame, index: Index) -> None:
    path = index.storage.uri
    found = zs.read(spark, path, where="few = 1 AND i < -400", columns=["code"])
    assert found.columns == ["code"]
    assert len(found.inputFiles()) < FILES
    assert sorted_rows(found.toArrow()) == sorted_rows(plain.where("few = 1 AND i < -400").select("code").toArrow())
    answered = zs.sql(
        spark, f"SELECT count(*) AS n, '{{}}' AS braces FROM '{path}' a JOIN '{path}' b USING (i) WHERE a.i = 5"
    )
    wanted = spark.sql("SELECT count(*) AS n, '{}' AS braces FROM plain a JOIN plain b USING (i) WHERE a.i = 5")
    assert answered.collect() == wanted.collect()
    assert zs.sql(spark, "SELECT 1 AS one").collect()[0].one == 1


_FLOATS = {"zero": [-0.0] * 20 + [5.0], "minus": [0.0] * 20 + [-5.0], "nan": [1.0] * 20 + [float("nan")]}


@pytest.mark.parametrize("by", ["zskip", "pyarrow"])
def test_rows_of_floats_that_plain_parquet_loses(spark: SparkSession, tmp_path: Path, by: str) -> None:
    """Spark's reader looks for -0.0 by its bits, and trusts a maximum that leaves NaN out."""
    rows = pa.concat_tables(pa.table({"d": pa.array(values * 3)}) for values in _FLOATS.values())
    if by == "zskip":
        zskip.write(rows, tmp_path / "t", by="d", files=3)
    else:
        (tmp_path / "t").mkdir()
        for name, values in _FLOATS.items():
            pq.write_table(pa.table({"d": pa.array(values * 3)}), tmp_path / "t" / f"{name}.parquet")
        zskip.index(tmp_path / "t")
    conditions = ["d = 0.0D", "d <= -0.0D", "d IN (0.0D, 7.0D)", "d > 2", "d = double('NaN')"]
    wanted = [len(each) for each in matching(spark.createDataFrame(rows), conditions)]
    assert min(wanted) > 0
    for reader in (zs.table(spark, tmp_path / "t").where, partial(zs.read, spark, tmp_path / "t")):
        each = [reader(where).selectExpr(f"{number} AS place") for number, where in enumerate(conditions)]
        counts = Counter(row.place for row in reduce(DataFrame.unionAll, each).collect())
        assert [counts[number] for number in range(len(conditions))] == wanted


def test_plain_parquet_does_lose_them(spark: SparkSession, tmp_path: Path) -> None:
    """Or else the test above would show nothing."""
    rows = pa.table({"d": pa.array(_FLOATS["zero"] + _FLOATS["nan"])})
    pq.write_table(rows, tmp_path / "plain.parquet")
    plain = spark.read.parquet(str(tmp_path / "plain.parquet"))
    pq.write_table(pa.table({"d": pa.array(_FLOATS["zero"])}), tmp_path / "zero.parquet")
    assert plain.where("d > 6").count() == 0
    assert spark.read.parquet(str(tmp_path / "zero.parquet")).where("d = 0.0D").count() == 0


# The statistics of a small table are in its log entry; those of a large one are files, which a vacuum removes too.
@pytest.mark.parametrize("inline_bytes", [1 << 20, 0], ids=["statistics in the entry", "statistics in a file"])
def test_a_frame_whose_version_a_vacuum_removed_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline_bytes: int
) -> None:
    monkeypatch.setattr(shards, "INLINE_BYTES", inline_bytes)
    rows = pa.table({"id": range(40), "x0": range(40)})
    written = zskip.write(rows, tmp_path / "t", by="id", files=4)
    assert any((tmp_path / "t/_zskip").glob("stats/*")) == (inline_bytes == 0)
    old = zs.table(spark, tmp_path / "t")
    written.overwrite(rows)
    written.vacuum("0 seconds")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PySparkException, match=r"Make it anew: zskip\.spark\.table\(spark") as raised:
            old.where("x0 = 3").count()
    assert "repair" not in str(raised.value)
    assert zs.table(spark, tmp_path / "t").where("x0 = 3").count() == 1


def test_a_plan_whose_files_a_vacuum_removed_makes_no_frame(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": range(40)})
    written = zskip.write(rows, tmp_path / "t", by="id", files=4)
    old, kept = zskip.open(tmp_path / "t").plan("id < 15"), zskip.open(tmp_path / "t").plan("id > 33")
    written.delete("id < 5")
    written.vacuum("0 seconds")
    with pytest.raises(FilesRemoved, match=r"1 of the 2 files that the query needs are gone.*plan anew"):
        old.to_spark(spark)
    assert kept.to_spark(spark).count() == 6


@pytest.mark.parametrize("connector", [False, True])
def test_a_frame_whose_version_has_expired_reads_files_that_are_kept(
    spark: SparkSession, tmp_path: Path, connector: bool
) -> None:
    rows = pa.table({"id": range(40)})
    written = zskip.write(rows, tmp_path / "t", by="id", files=4)
    old = zs.table(spark, tmp_path / "t", connector=connector)
    written.delete("id < 5")
    written.vacuum("0 seconds")
    assert old.where("id = 33").collect() == [(33,)]
    with pytest.raises(PySparkException, match="1 of the 1 files that the query needs are gone"):
        old.where("id = 3").collect()


# --- a plan without survivors gives Spark an empty DataFrame with the table's columns ---


@pytest.mark.spark
def test_no_survivors_give_all_columns(spark: Any, tmp_path: Path) -> None:
    for kind, path in small_tables(tmp_path).items():
        table = zskip.open(path)
        for found in (
            table.plan(NONE).to_spark(spark),
            zskip.spark.read(spark, path, where=NONE),
            zskip.spark.table(spark, path).where(NONE),
        ):
            types = {field.name: field.dataType.simpleString() for field in found.schema}
            assert sorted(types) == sorted(SCHEMA.names), kind
            assert (types["i"], types["t"], types["m"]) == ("int", "timestamp", "decimal(9,2)")
            assert found.collect() == []
