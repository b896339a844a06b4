"""All 22 queries of TPC-H give the same rows through self-pruning tables as through plain Parquet."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.files import files_read
from tests.spark.tpch import LAYOUTS, QUERIES
from zskip import spark as zs

_SCALE = "0.01"


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Each table's plain folder beside its clustered one; `{name}_plain` and `{name}_pruned` are views."""
    folder = tmp_path_factory.mktemp("tpch")
    generator = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run([generator, "parquet", "-s", _SCALE, "--output-dir", folder / "made"], check=True)
    for name, by in LAYOUTS.items():
        rows = spark.read.parquet(str(folder / "made" / f"{name}.parquet"))
        rows.createOrReplaceTempView(f"{name}_plain")
        table = zs.write(rows, folder / name, by=by, files=20 if name in ("lineitem", "orders") else 2)
        zs.register(spark, f"{name}_pruned", table)
    yield {name: folder / name for name in LAYOUTS}
    for name in LAYOUTS:
        spark.catalog.dropTempView(f"{name}_plain")
        spark.catalog.dropTempView(f"{name}_pruned")


def over(spark: SparkSession, kind: str) -> None:
    for name in LAYOUTS:
        spark.table(f"{name}_{kind}").createOrReplaceTempView(name)


def test_all_queries_give_the_same_rows(spark: SparkSession, tables: dict[str, Path]) -> None:
    over(spark, "plain")
    wanted = {number: spark.sql(query).collect() for number, query in QUERIES.items()}
    over(spark, "pruned")
    read = {}
    for number, query in QUERIES.items():
        rows = spark.sql(query)
        assert rows.collect() == wanted[number], number
        if number in (6, 14):
            read[number] = files_read(rows)
    assert sum(map(bool, wanted.values())) >= 18
    # A year, and a month, of lineitem's seven years; Q14 reads both files of part as well.
    assert read[6] <= 12, read
    assert read[14] <= 10, read
