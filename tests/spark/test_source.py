"""`spark.read.format("zskip")`, and tables of Spark's catalog that are made of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import zskip
from tests.spark.files import matching
from tests.tables import hostile, sorted_rows
from zskip import spark as zs
from zskip.spark import data_source


def test_the_data_source_reads(spark: SparkSession, tmp_path: Path) -> None:
    rows = hostile()
    table = zskip.write(rows, tmp_path / "t", by=["i"], files=4)
    zs.register_source(spark)
    found = spark.read.format("zskip").load(str(tmp_path / "t"))
    plain = zs.table(spark, table)
    assert found.schema == plain.schema
    conditions = [
        "i < -900",
        "d > 50",
        "s LIKE 'a%' AND few IN (1, 2)",
        "ts IS NULL",
        "i <=> 5",
        "day > DATE '1970-01-03'",
    ]
    for where, wanted in zip(conditions, matching(plain, conditions), strict=True):
        assert sorted_rows(found.where(where).toArrow()) == wanted, where


def test_create_table(spark: SparkSession, tmp_path: Path) -> None:
    rows = hostile(400)
    table = zskip.write(rows, tmp_path / "t", by=["i"], files=4)
    zs.register_source(spark)
    spark.sql(f"CREATE TABLE made USING zskip LOCATION '{tmp_path / 't'}'")
    spark.sql(f"CREATE TABLE first USING zskip OPTIONS (path '{tmp_path / 't'}', version '1')")
    try:
        conditions = ["true", "i < -150 AND few = 0", "`we ird``x` = 5"]
        for where, wanted in zip(conditions, matching(zs.table(spark, table), conditions), strict=True):
            assert sorted_rows(spark.table("made").where(where).toArrow()) == wanted, where
        table.append(rows.slice(0, 10).append_column("new", pa.array(range(10))))
        counts = spark.sql("SELECT (SELECT count(*) FROM made), (SELECT count(*) FROM first)").collect()
        assert counts == [(410, 400)]
        assert "new" not in spark.table("made").columns + spark.table("first").columns
    finally:
        spark.sql("DROP TABLE made")
        spark.sql("DROP TABLE first")
    assert zskip.open(tmp_path / "t").version == 2
    assert len(list((tmp_path / "t").glob("*.parquet"))) >= 4


def test_a_frame_is_filtered_twice_in_one_query_and_then_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    """Spark has one list of files for all scans of a source that takes filters: half of the rows were missing."""
    zskip.write(pa.table({"id": range(100)}), tmp_path / "t", by="id", files=4)
    zs.register_source(spark)
    found = spark.read.format("zskip").load(str(tmp_path / "t"))
    assert found.where("id < 50").unionAll(found.where("id >= 50")).count() == 100
    assert found.count() == 100


def test_a_column_that_was_widened_after_create_table_is_named(spark: SparkSession, tmp_path: Path) -> None:
    table = zskip.write(pa.table({"x": range(4), "f": pa.array(range(4), pa.float32())}), tmp_path / "t", by=["x"])
    zs.register_source(spark)
    spark.sql(f"CREATE TABLE widened USING zskip LOCATION '{tmp_path / 't'}'")
    try:
        table.append(pa.table({"x": [4], "f": [0.1]}))
        with pytest.raises(PySparkException, match='"f" is double in the table, and float in Spark\'s catalog'):
            spark.sql("SELECT x FROM widened WHERE f = float(0.1)").collect()
    finally:
        spark.sql("DROP TABLE widened")


def test_a_temporary_view(spark: SparkSession, tmp_path: Path) -> None:
    zskip.write(pa.table({"x": [1, 2, 3]}), tmp_path / "t", by=["x"])
    zs.register_source(spark)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW some USING zskip OPTIONS (path '{tmp_path / 't'}')")
    assert spark.sql("SELECT sum(x) AS s FROM some").first().s == 6
    spark.catalog.dropTempView("some")


def test_a_source_without_a_path_says_what_it_needs(spark: SparkSession) -> None:
    zs.register_source(spark)
    with pytest.raises(PySparkException, match="needs a path"):
        spark.read.format("zskip").load()
    spark.sql("CREATE TABLE columns_of_its_own (x INT) USING zskip")
    try:
        with pytest.raises(PySparkException, match="without a list of columns"):
            spark.table("columns_of_its_own").collect()
    finally:
        spark.sql("DROP TABLE columns_of_its_own")


@pytest.mark.parametrize(
    "partition_by", [pytest.param((), marks=pytest.mark.slow), ("few",)], ids=["flat", "hive folders"]
)
def test_it_appends_and_overwrites_by_the_tables_layout(
    spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    rows = hostile(400)
    zskip.write(
        rows.slice(0, 200), tmp_path / "t", by=["i"], files=4, partition_by=partition_by, sketches={"s": "values"}
    )
    table = zskip.open(tmp_path / "t")
    zs.register_source(spark)
    more = zs.table(spark, zskip.write(rows.slice(200), tmp_path / "more", by=["i"], files=3))
    more.repartition(2).write.format("zskip").mode("append").save(str(tmp_path / "t"))
    table.refresh()
    assert (table.version, table.history()[0].operation) == (2, "append")
    assert sorted_rows(table.to_arrow()) == sorted_rows(rows)
    assert table.verify("i < -100", random=3).clean
    assert table.optimize(full=True).files_after
    more.select("*", (more.i * 2).alias("twice")).write.format("zskip").mode("overwrite").save(str(tmp_path / "t"))
    table.refresh()
    assert table.history()[0].operation == "overwrite"
    assert sorted_rows(table.to_arrow().drop_columns("twice")) == sorted_rows(rows.slice(200))
    assert table.verify("i < -100", random=3).clean


def test_a_write_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = zskip.write(pa.table({"x": range(100), "y": range(100)}), tmp_path / "t", by=["x"], files=2)
    before = {path for path in (tmp_path / "t").rglob("*") if path.is_file()}
    zs.register_source(spark)
    rows = spark.range(10, numPartitions=2).selectExpr("IF(id = 9, raise_error('stopped here'), id) AS x")
    with pytest.raises(PySparkException, match="stopped here"):
        rows.write.format("zskip").mode("append").save(str(tmp_path / "t"))
    for mode, frame, why in (
        ("append", spark.range(3).selectExpr("'a' AS x"), "neither can take"),
        ("overwrite", spark.range(3).selectExpr("id AS y"), "laid out by .x."),
        ("overwrite", spark.range(3).selectExpr("'a' AS x"), "neither can take"),
    ):
        with pytest.raises(PySparkException, match=why):
            frame.write.format("zskip").mode(mode).save(str(tmp_path / "t"))
    with pytest.raises(PySparkException, match="leave out the option version"):
        spark.range(3).write.format("zskip").option("version", 1).mode("append").save(str(tmp_path / "t"))
    table.vacuum("0 days")  # of the files of tasks that Spark cancelled
    after = {path for path in (tmp_path / "t").rglob("*") if path.is_file()}
    assert {path for path in after - before if path.parent.parent.name != "log"} == set()  # the vacuum's own entry
    assert zskip.open(tmp_path / "t").count() == 100


def test_abort_removes_the_files_of_tasks_that_had_ended(tmp_path: Path) -> None:
    rows = pa.table({"x": range(100)})
    zskip.write(rows, tmp_path / "t", by=["x"], files=2)
    before = set((tmp_path / "t").glob("*.parquet"))
    job = data_source._write_job(str(tmp_path / "t"), {}, rows.schema, overwrite=False)
    parts = [job.write(rows.to_batches()) for _ in range(2)]
    assert len(set((tmp_path / "t").glob("*.parquet"))) > len(before)
    job.abort(parts)
    assert set((tmp_path / "t").glob("*.parquet")) == before


def test_abort_after_a_commit_that_may_have_been_made_keeps_the_files(tmp_path: Path) -> None:
    rows = pa.table({"x": range(100)})
    zskip.write(rows, tmp_path / "t", by=["x"], files=2)
    writer = data_source._writer_class()(data_source._write_job(str(tmp_path / "t"), {}, rows.schema, overwrite=False))
    messages = [writer.write(iter(rows.to_batches())) for _ in range(2)]
    writer.commit(messages)
    writer.abort(messages)  # as Spark does where the commit was made, but raised
    assert zskip.open(tmp_path / "t").to_arrow().num_rows == 300


@pytest.mark.parametrize("overwrite", [False, True])
def test_tasks_sketch_what_they_write(tmp_path: Path, overwrite: bool) -> None:
    """The segments of the tasks were dropped, and no look-up skipped what they had written."""
    rows = pa.table({"x": range(100), "key": [f"{n * 7919 % 100:03}" for n in range(100)]})
    zskip.write(rows, tmp_path / "t", by=["x"], files=2, sketches={"key": "values"})
    job = data_source._write_job(str(tmp_path / "t"), {}, rows.schema, overwrite=overwrite)
    job.commit([job.write(rows.slice(start, 25).to_batches()) for start in (0, 25, 50, 75)])
    table = zskip.open(tmp_path / "t")
    assert len(table.plan("key = '042'")) == (1 if overwrite else 2)
    assert table.plan("key = '042'").count() == (1 if overwrite else 2)
    assert table.count() == (100 if overwrite else 200)
    table.vacuum("0 days")
    assert table.plan("key = '042'").count() == (1 if overwrite else 2)


def test_other_threads_and_sessions_register_it_too(spark: SparkSession, tmp_path: Path) -> None:
    zskip.write(pa.table({"id": range(9)}), tmp_path / "t", by="id", files=2)
    zs.register_source(spark)

    def used(session: SparkSession) -> int:
        zs.register_source(session)
        session.range(10, 14).write.format("zskip").mode("append").save(str(tmp_path / "t"))
        return session.read.format("zskip").load(str(tmp_path / "t")).count()

    try:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(used, spark).result() == 13
            assert pool.submit(used, spark.newSession()).result() == 17
        assert used(spark.newSession()) == 21
    finally:
        zs.register_source(spark)
