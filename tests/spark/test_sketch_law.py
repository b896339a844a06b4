"""The law of sketches against Spark: none of the units that they skip holds a match."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.spark.test_planner_law import KINDS, plain, session, yields
from tests.tablelog.sketches.laws import LookUps, Shape, breaking, committed, random_table

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
