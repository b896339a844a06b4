"""The bench on Spark: both ways are timed, and compared."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import zskip.spark
from tests.tables import build_table
from zskip import bench as benching
from zskip.bench import bench
from zskip.binder import bind
from zskip.errors import ZskipError


@pytest.fixture
def table(tmp_path: Path) -> Any:
    numbers = np.random.default_rng(3).permutation(4000)
    rows = pa.table({"a": numbers // 4, "b": numbers % 50})
    index = build_table(tmp_path / "conn", rows, by="a", files=20)
    return SimpleNamespace(_index=index, uri=index.storage.uri, version=1)


@pytest.mark.usefixtures("spark")
def test_predicates_and_statements_are_timed_both_ways(table: Any) -> None:
    queries = [
        "a = 7",
        "b IN (3, 4) AND a < 100",
        "SELECT count(*) FROM conn",
        f"FROM '{table.uri}' WHERE a < 5",
        'WITH few AS (SELECT b, sum(a) AS "the {sum}" FROM conn WHERE conn.a < 50 GROUP BY b) SELECT * FROM few',
    ]
    report = bench(table, queries, runs=2, spark=True)
    for one in report.timings:
        assert min(one.spark_zskip_seconds or 0, one.spark_plain_seconds or 0) > 0
    assert str(report).count("Spark") == len(queries)


@pytest.mark.slow
def test_ways_that_disagree_are_an_error(table: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benching, "bind", lambda text, *given, **options: bind(f"{text} AND b < 0", *given, **options))
    with pytest.raises(ZskipError, match="gives 0 rows through zskip on Spark, but 4 over all files"):
        bench(table, ["a = 7"], runs=1, spark=True)
    honest = zskip.spark.table
    monkeypatch.setattr(zskip.spark, "table", lambda *given: honest(*given).where("a <> 3"))
    with pytest.raises(ZskipError, match="gives 16 rows through zskip on Spark, but 20 over all files"):
        bench(table, ["SELECT b FROM conn WHERE a < 5"], runs=1, spark=True)
