"""`spark.read.format("zskip")`, and tables of Spark's catalog that are made of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import zskip
from tests.spark.hostile import hostile
from tests.tables import sorted_rows
from zskip import spark as zs


def test_the_data_source_reads_and_pushes_filters(spark: SparkSession, tmp_path: Path) -> None:
    rows = hostile()
    table = zskip.write(rows, tmp_path / "t", by=["i"], files=8)
    zs.register_source(spark)
    found = spark.read.format("zskip").load(str(tmp_path / "t"))
    plain = zs.table(spark, table)
    assert found.schema == plain.schema
    for where in (
        "i < -900",
        "d > 50",
        "s LIKE 'a%' AND few IN (1, 2)",
        "ts IS NULL",
        "i <=> 5",
        "day > DATE '1970-01-03'",
    ):
        assert sorted_rows(found.where(where).toArrow()) == sorted_rows(plain.where(where).toArrow()), where


@pytest.mark.parametrize("clause", ["LOCATION '{path}'", "OPTIONS (path '{path}', version '1')"])
def test_create_table(spark: SparkSession, tmp_path: Path, clause: str) -> None:
    rows = hostile(400)
    table = zskip.write(rows, tmp_path / "t", by=["i"], files=4)
    zs.register_source(spark)
    spark.sql(f"CREATE TABLE made USING zskip {clause.format(path=tmp_path / 't')}")
    try:
        for where in ("true", "i < -150 AND few = 0", "`we ird``x` = 5"):
            found, wanted = (one.where(where).toArrow() for one in (spark.table("made"), zs.table(spark, table)))
            assert sorted_rows(found) == sorted_rows(wanted), where
        assert 0 < spark.sql("SELECT count(*) AS n FROM made WHERE i IS NOT NULL").first().n < 400
        table.append(rows.slice(0, 10).append_column("new", pa.array(range(10))))
        assert spark.table("made").count() == (400 if "version" in clause else 410)
        assert "new" not in spark.table("made").columns
    finally:
        spark.sql("DROP TABLE made")
    assert zskip.open(tmp_path / "t").version == 2
    assert len(list((tmp_path / "t").glob("*.parquet"))) >= 4


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
