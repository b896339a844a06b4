"""The law of laws against Spark: every outcome that Spark shows for a row is in the `Outcomes` of its unit."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from zskip import interpret, predicate
from zskip.errors import SqlError

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "planner")]

from cases import load  # noqa: E402
from grammar import Grammar  # noqa: E402
from oracles import NAMES, NULL, breaches, described  # noqa: E402
from units import random_statistics, random_units  # noqa: E402

KINDS = ("i8", "i16", "i32", "i64", "f32", "f64", "n5_2", "n15_1", "n18_3", "n38_2", "b", "s", "x", "d", "tus", "zus")
ZONES = ("UTC", "America/Sao_Paulo", "Europe/Berlin", "Australia/Lord_Howe")
TABLES, PREDICATES = 8, 25
CASES = [case for case in load() if case.settings.get("dialect") == "spark"]


def yields(frame: DataFrame, predicates: Sequence[str]) -> list[np.ndarray | None]:
    """Each predicate's outcome per row; None where Spark refuses it, or raises for any row."""
    asked = [f"CAST(coalesce(CAST(({sql}) AS INT), {NULL}) AS INT) AS p{n}" for n, sql in enumerate(predicates)]
    try:
        answer = frame.selectExpr("__unit", *asked).toArrow()
    except PySparkException:
        if len(predicates) == 1:
            return [None]
        middle = len(predicates) // 2
        return [*yields(frame, predicates[:middle]), *yields(frame, predicates[middle:])]
    return [np.asarray(answer.column(f"p{n}")) for n in range(len(predicates))]


def plain(rows: pa.Table) -> pa.Table:
    """Decimals in the one width that Spark's reader takes."""
    return rows.cast(pa.schema([pa.field(field.name, _wide(field.type)) for field in rows.schema]))


def _wide(type: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(type):
        return pa.decimal128(type.precision, type.scale)
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_wide(field.type)) for field in type])
    return type


@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "lenient"])
def test_every_outcome_that_spark_shows_is_foreseen(spark: SparkSession, tmp_path: Path, ansi: bool) -> None:
    tally: Counter[str] = Counter()
    failures: list[str] = []
    try:
        spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
        for number in range(TABLES):
            zone = ZONES[number % len(ZONES)]
            spark.conf.set("spark.sql.session.timeZone", zone)
            random = Random(9000 + number * 2 + ansi)
            table = random_units(random, kinds=KINDS)
            if not table.unit:
                continue
            path = tmp_path / f"{number}.parquet"
            pq.write_table(plain(table.rows), path)
            frame = spark.read.parquet(str(path)).coalesce(1)
            variants = [random_statistics(random, table, looseness) for looseness in (0.0, None)]
            grammar = Grammar(random, table, spark=True)
            predicates = [grammar.predicate(random.choice((0, 0, 1, 2))) for _ in range(PREDICATES)]
            for sql, yielded in zip(predicates, yields(frame, predicates), strict=True):
                tally["cases"] += 1
                try:
                    bound = predicate.bind(sql, table.schema, dialect="spark", timezone=zone, ansi=ansi)
                except SqlError:
                    tally["refused"] += 1
                    continue
                outcomes = [interpret.outcomes(bound, statistics) for statistics in variants]
                if yielded is None:
                    tally["raised by Spark"] += 1
                    continue
                for found, statistics in zip(outcomes, variants, strict=True):
                    tally["skipped"] += int((~found.may_match).sum())
                    for breach in list(breaches(found, yielded, np.asarray(table.unit)))[:1]:
                        row = table.rows.slice(breach.row, 1).to_pylist()[0]
                        failures.append(f"{sql}\n  {breach}: {row}\n{described(statistics, breach.unit)}")
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert not failures, "\n\n".join(failures[:10])
    assert tally["cases"] - tally["raised by Spark"] > tally["cases"] / 2
    assert tally["skipped"] > tally["cases"]


def test_spark_confirms_every_answer_of_the_fixtures(spark: SparkSession, tmp_path: Path) -> None:
    wrong = []
    try:
        for case in CASES:
            spark.conf.set("spark.sql.ansi.enabled", str(case.settings.get("ansi", True)).lower())
            rows = case.rows(1500)
            path = tmp_path / f"{case.file}-{case.line}.parquet"
            pq.write_table(rows.append_column("__unit", pa.array(np.zeros(len(rows)), pa.int32())), path)
            (yielded,) = yields(spark.read.parquet(str(path)), [case.sql])
            found = frozenset() if yielded is None else frozenset(NAMES[int(v)].lower() for v in np.unique(yielded))
            if yielded is None or not found <= case.outcomes or (found != case.outcomes and not case.loose):
                wrong.append(f"{case}: expected {sorted(case.outcomes)}, Spark shows {sorted(found)}")
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
    assert not wrong, "\n".join(wrong)
