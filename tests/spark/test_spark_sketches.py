"""Sketches of tables that Spark writes: the same as this machine's, through appends, deletes and optimize."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import zskip
from tests.spark.test_planner_law import KINDS, plain, session, yields
from tests.tablelog.sketches.test_laws import LookUps, Shape, breaking, committed, random_table
from zskip import spark as zs
from zskip.spark.executor_footers import on_executors

NAMES = [f"{number * 2654435761 % 2**32:08x}" for number in range(1200)]


def rows(spark: SparkSession, first: int, last: int) -> object:
    numbers = list(range(first, last))
    table = pa.table({"n": numbers, "part": [number % 2 for number in numbers], "uid": NAMES[first:last]})
    return spark.createDataFrame(table)


def found(table: zskip.Table, n: int) -> tuple[int, list[int]]:
    plan = table.plan(f"uid = '{NAMES[n]}'")
    return len(plan), plan.to_arrow(["n"])["n"].to_pylist()


def test_spark_makes_sketches_and_keeps_them_up(spark: SparkSession, tmp_path: Path) -> None:
    sketches = {"uid": ["values", "substrings"], "part": "values"}
    table = zs.write(rows(spark, 0, 1000), tmp_path / "t", by="n", files=5, partition_by="part", sketches=sketches)
    assert found(table, 77) == (1, [77])
    assert len(table.plan(f"uid LIKE '%{NAMES[500][1:7]}%'")) <= 2
    alone = zskip.write(table.to_arrow(), tmp_path / "alone", by="n", files=5, partition_by="part", sketches=sketches)
    assert table._index.snapshot.sketches[0].segments[0].entries == 1000
    assert alone._index.snapshot.sketches[0].segments[0].entries == 1000
    table.append(rows(spark, 1000, 1200), session=spark)
    assert found(table, 1100) == (1, [1100])
    table.delete(f"uid = '{NAMES[77]}'", session=spark)
    assert found(table, 77) == (0, [])
    assert found(table, 79) == (1, [79])
    table.optimize(session=spark)
    assert [len(each.segments) for each in table._index.snapshot.sketches] == [1, 1, 1]
    assert found(table, 1199) == (1, [1199])
    table.drop_sketches("uid")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zskip.spark.spark_backend.on_executors", asked := Mock(side_effect=on_executors))
        table.add_sketches({"uid": "values"}, session=spark)
    assert asked.call_count == 1
    assert found(table, 1199) == (1, [1199])
    read = zs.table(spark, str(tmp_path / "t")).where(f"uid = '{NAMES[500]}'")
    assert [row.n for row in read.collect()] == [500]


# --- the law of sketches against Spark: none of the units that they skip holds a match ---


TABLES, PREDICATES, PARTS = int(os.environ.get("ZSKIP_SPARK_FUZZ", "1")), 40, 60
TEXTS = ("s", "s", "s", "s")


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_sketches_exclude_no_outcome_that_spark_shows(spark: SparkSession, tmp_path: Path, part: int) -> None:
    tally, failures = Counter[str](), list[str]()
    for number in range(part * TABLES, (part + 1) * TABLES):
        random, ansi = Random(70_000 + number), number % 2 == 1
        table = random_table(random, KINDS + TEXTS, odd=False)
        look_ups = LookUps(random, table, spark=True)
        predicates = [look_ups.asked() for _ in range(PREDICATES)]
        pq.write_table(plain(table.rows), tmp_path / f"{number}.parquet")
        with session(spark, ansi=ansi, zone="UTC"):
            frame = spark.createDataFrame(spark.read.parquet(str(tmp_path / f"{number}.parquet")).toArrow())
            answers = yields(frame, predicates)
        (tmp_path / str(number)).mkdir()
        index = committed(tmp_path / str(number), random, table, Shape.drawn(random))
        breaking_it = breaking(index, table, predicates, answers, tally, dialect="spark", timezone="UTC", ansi=ansi)
        failures += [f"{number}: {failure}" for failure in breaking_it]
    print(dict(tally))  # shown with -s
    assert not failures, "\n\n".join(failures[:10])
    assert tally["cases"] > PREDICATES * TABLES / 2
    assert tally["asked of the sketches first"] > 0
