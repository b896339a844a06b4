"""All 22 queries of TPC-H give the same rows through self-pruning tables as through plain Parquet."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from tests.spark.files import scanned
from tests.spark.tpch import LAYOUTS, QUERIES
from zskip import spark as zs

_SCALE = "0.1"
_FILES = {"lineitem": 20, "orders": 8, "partsupp": 2, "customer": 2, "part": 2}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Each table's plain folder beside its clustered one; `{name}_plain` and `{name}_pruned` are views."""
    folder = tmp_path_factory.mktemp("tpch")
    generator = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run([generator, "parquet", "-s", _SCALE, "--output-dir", folder / "made"], check=True)
    for name, by in LAYOUTS.items():
        rows = spark.read.parquet(str(folder / "made" / f"{name}.parquet"))
        rows.createOrReplaceTempView(f"{name}_plain")
        table = zs.write(rows, folder / name, by=by, files=_FILES.get(name, 1))
        zs.register(spark, f"{name}_pruned", table)
    yield {name: folder / name for name in LAYOUTS}
    for name in LAYOUTS:
        spark.catalog.dropTempView(f"{name}_plain")
        spark.catalog.dropTempView(f"{name}_pruned")


def over(spark: SparkSession, kind: str) -> None:
    for name in LAYOUTS:
        spark.table(f"{name}_{kind}").createOrReplaceTempView(name)


@pytest.mark.slow
def test_all_queries_give_the_same_rows(spark: SparkSession, tables: dict[str, Path]) -> None:
    found: dict[str, dict[int, tuple[list[Row], int, float]]] = {"plain": {}, "pruned": {}}
    for kind, answers in found.items():
        over(spark, kind)
        for number, query in QUERIES.items():
            began = time.perf_counter()
            rows = spark.sql(query)
            answers[number] = rows.collect(), scanned(rows), time.perf_counter() - began
    print("\nquery  rows  files plain  pruned  s plain  pruned")
    for number in QUERIES:
        (rows, plain, slow), (same, pruned, quick) = (answers[number] for answers in found.values())
        print(f"{number:>5} {len(rows):>5} {plain:>12} {pruned:>7} {slow:>8.2f} {quick:>7.2f}")
        assert same == rows, number
    assert sum(bool(rows) for rows, _, _ in found["plain"].values()) >= 20
    # A year, and a month, of lineitem's seven years; Q14 reads both files of part as well.
    assert found["pruned"][6][1] <= 6
    assert found["pruned"][14][1] <= 8
