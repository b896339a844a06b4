"""Folder columns of someone else's Parquet have the types on Spark that Spark itself gives them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
import zskip.spark as zs
from zskip.spark.spark_session import setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

INT, LONG = 2**31 - 1, 2**31


def partitioned(folder: Path, values: list[str], files: int = 1) -> Path:
    """A hive folder with ten rows a file, ``n`` in the names."""
    for place, value in enumerate(values):
        (folder / f"n={value}").mkdir(parents=True, exist_ok=True)
        for file in range(files):
            rows = pa.table({"x": list(range(10 * place, 10 * place + 10))})
            pq.write_table(rows, folder / f"n={value}" / f"{file}.parquet")
    return folder


def rows_of(found: DataFrame, where: str) -> list[tuple[object, ...]]:
    return sorted(map(tuple, found.where(where).select("n", "x").collect()), key=str)


@pytest.mark.parametrize(
    "values",
    [
        ["1", "2", "-3", "__HIVE_DEFAULT_PARTITION__"],
        pytest.param([str(INT), str(-LONG)], marks=pytest.mark.slow),
        pytest.param(["1", str(LONG)], marks=pytest.mark.slow),
        ["1", str(-LONG - 1)],
        ["2024-01-31", "2024-02-29"],
        ["1", "b"],
    ],
)
def test_types_are_those_of_plain_spark(spark: SparkSession, tmp_path: Path, values: list[str]) -> None:
    folder = partitioned(tmp_path / "t", values)
    plain = spark.read.parquet(str(folder))
    table = zskip.index(folder)
    before = table.schema
    zs.register_source(spark)
    for found in (
        zs.table(spark, folder),
        zs.table(spark, table),
        zs.read(spark, folder),
        zs.read(spark, folder, where="x >= 0"),
        zs.sql(spark, f"SELECT * FROM '{folder}'"),
        spark.read.format("zskip").load(str(folder)),
    ):
        assert dict(found.dtypes) == dict(plain.dtypes)
        assert rows_of(found, "x >= 0") == rows_of(plain, "x >= 0")
    assert table.schema == zskip.open(folder).schema == before


def test_predicates_are_pruned_and_overflow_as_in_plain_spark(spark: SparkSession, tmp_path: Path) -> None:
    folder = partitioned(tmp_path / "t", ["1", "2", "-3", str(INT), "__HIVE_DEFAULT_PARTITION__"], files=2)
    plain = spark.read.parquet(str(folder))
    zskip.index(folder)
    found = zs.table(spark, folder)
    assert len(zs.read(spark, folder, where="n = 2").inputFiles()) == 2
    assert len(zs.read(spark, folder, where="n * 2 IN (2, 4) AND x < 15").inputFiles()) == 4
    with setting(spark, {"spark.sql.ansi.enabled": "false"}):
        for where in (
            f"n + {INT} < 0",
            "n + 1 < 0",
            "n * 2 = -2",
            "n - 5 > 0",
            "-n > 1",
            "n = 2147483648L",
            "n IS NULL",
        ):
            wanted = rows_of(plain, where)
            assert rows_of(found, where) == wanted, where
            assert rows_of(zs.read(spark, folder, where=where), "true") == wanted, where


def test_a_new_folder_widens_the_column(spark: SparkSession, tmp_path: Path) -> None:
    folder = partitioned(tmp_path / "t", ["1", "2"])
    zskip.index(folder)
    assert dict(zs.table(spark, folder).dtypes)["n"] == "int"
    partitioned(folder, ["7"])
    assert dict(zs.table(spark, folder).dtypes)["n"] == "int"
    partitioned(folder, [str(LONG)])
    plain = spark.read.parquet(str(folder))
    for found in (zs.table(spark, folder), zs.read(spark, folder, where="n > 1")):
        assert dict(found.dtypes) == dict(plain.dtypes)
        assert rows_of(found, "n > 1") == rows_of(plain, "n > 1")
