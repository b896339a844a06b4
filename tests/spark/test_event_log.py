"""The scans of a real event log of Spark become a workload: plans by it are those by the queries that ran."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import zskip
import zskip.spark
from zskip.binder.workload_sql import table_query

pytestmark = pytest.mark.spark

COUNT = 400
ROWS = pa.table(
    {
        "a": range(COUNT),
        "b": [f"x, {number})" for number in range(COUNT)],
        "d": [dt.date(2020, 1, 1) + dt.timedelta(number) for number in range(COUNT)],
        "t": pa.array(
            [dt.datetime(2020, 1, 1) + dt.timedelta(hours=n) for n in range(COUNT)], pa.timestamp("us", "UTC")
        ),
        "m": pa.array([Decimal(number) / 100 for number in range(COUNT)], pa.decimal128(12, 2)),
        "s": [{"x": number} for number in range(COUNT)],
    }
)
QUERIES = [
    "a = 5",
    "b = 'x, 7)'",
    "d >= DATE '2020-02-01' AND d < DATE '2020-03-01'",
    "t < TIMESTAMP '2020-01-02 03:04:05.5'",
    "m > 3.5 OR a <= 7",
    "a IN (1, 2, 399) OR b LIKE 'x, 5%'",
    "NOT (a < 30)",
    "s.x = 7",
]


@contextmanager
def logged(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Spark's own writer of event logs, on the session that is there."""
    context = spark.sparkContext._jsc.sc()
    jvm = spark._jvm
    assert jvm is not None
    nothing = jvm.scala.Option.empty()
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    folder.mkdir()
    address = jvm.java.net.URI(folder.as_uri())
    writer = jvm.org.apache.spark.scheduler.EventLoggingListener("app-1", nothing, address, context.conf(), hadoop)
    writer.start()
    context.addSparkListener(writer)
    try:
        yield
    finally:
        context.listenerBus().waitUntilEmpty()
        context.removeSparkListener(writer)
        writer.stop()


def test_scans_plan_as_the_queries_that_ran(spark: SparkSession, tmp_path: Path) -> None:
    table = zskip.write(ROWS, tmp_path / "conn", by=["a"], files=20)
    (tmp_path / "other").mkdir()
    pq.write_table(ROWS, tmp_path / "other" / "0.parquet")
    with logged(spark, tmp_path / "log"):
        plain = spark.read.parquet(str(tmp_path / "conn"))
        pruned = zskip.spark.table(spark, str(tmp_path / "conn"))
        for frame in (plain, pruned):
            for query in QUERIES:
                frame.where(query).select("a", "b").collect()
        plain.select("a").collect()
        spark.read.parquet(str(tmp_path / "other")).where("a = 3").collect()
    found = table.logged_queries(spark_event_log=tmp_path / "log")
    assert len(found.queries) == 2 * len(QUERIES)
    assert found.left_out == {"has no condition on its columns": 1, "reads other tables": 1}
    for text, query in zip(found.queries, 2 * QUERIES, strict=True):
        read = table_query(text, table._index.snapshot.schema)
        assert read is not None
        assert table.plan(read.condition).paths == table.plan(query).paths, query
        assert {"a", "b"} <= (read.columns or set())
        assert "m" not in (read.columns or ()) or "m" in query
    assert table.advise(found.queries).groups
