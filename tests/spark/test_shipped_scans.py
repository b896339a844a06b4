"""``format("zskip")`` sends its tasks the files that the driver planned, and no second plan. No JVM is needed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip

pytest.importorskip("pyspark")
from zskip.spark.data_source import Pushed, batches  # it needs pyspark
from zskip.spark.hive_values import HiveRule
from zskip.spark.inferred_types import Inference
from zskip.spark.spark_session import Semantics
from zskip.spark.spark_types import spark_schema

INFERENCE = Inference(HiveRule(infers=True, clock="timestamp", has_time=True), int96=True, clocks=True, texts=False)


def test_tasks_read_the_files_that_the_driver_planned(tmp_path: Path) -> None:
    """A file that others replace, or add, between driver and tasks is not planned on again."""
    for number in range(3):
        pq.write_table(pa.table({"x": [2 * number, 2 * number + 1]}), tmp_path / f"{number}.parquet")
    table = zskip.index(tmp_path)
    types = spark_schema(table.schema)
    pushed = Pushed(table.uri, table.version, {}, Semantics("UTC", True), INFERENCE, types, [("`x` >= ?", [2])])
    sent = [pickle.dumps(scan) for scan in pushed.scans()]
    pq.write_table(pa.table({"x": [20, 30, 40]}), tmp_path / "1.parquet")
    os.rename(tmp_path / "0.parquet", tmp_path / "new.parquet")
    found = [row for task in sent for batch in batches(pickle.loads(task), pushed) for row in batch["x"].to_pylist()]
    assert sorted(found) == [4, 5, 20, 30, 40]


def test_a_plan_without_survivors_is_one_empty_task(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"x": [1, 2]}), tmp_path / "t", by="x")
    types = spark_schema(table.schema)
    pushed = Pushed(table.uri, table.version, {}, Semantics("UTC", True), INFERENCE, types, [("`x` > ?", [5])])
    assert [len(scan) for scan in pushed.scans()] == [0]
    assert list(batches(pushed.scans()[0], pushed)) == []
