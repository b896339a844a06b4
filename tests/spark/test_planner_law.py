"""The laws against Spark: each outcome that it shows for a row is in the `Outcomes` of its unit, with sketches too."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.pruning.cases import load
from tests.pruning.grammar import Grammar
from tests.pruning.oracles import NAMES, NULL, breaches, described
from tests.pruning.units import random_file_statistics, random_units
from tests.tablelog.sketches.test_laws import LookUps, Shape, breaking, committed, random_table
from zskip import pruning
from zskip.binder import bind
from zskip.errors import SqlError
from zskip.spark.spark_session import setting
from zskip.stats import FileStatistics

KINDS = ("i8", "i16", "i32", "i64", "f32", "f64", "n5_2", "n15_1", "n18_3", "n38_2", "b", "s", "x", "d", "tus", "zus")
ZONES = ("UTC", "America/Sao_Paulo", "Europe/Berlin", "Australia/Lord_Howe")
# Fewer in ANSI mode, in which many predicates raise, and that costs more than an answer.
TABLES = {True: 16, False: 32}
PARTS = 16
MORE = int(os.environ.get("ZSKIP_SPARK_FUZZ", "1"))
PREDICATES = 40
LOOSENESS = (0.0, None, None)
CASES = [case for case in load() if case.settings.get("dialect") == "spark"]


@contextmanager
def session(spark: SparkSession, **settings: object) -> Iterator[None]:
    """Settings of ``spark.sql``, set back afterwards. Without code generation, which costs more than these few rows."""
    names = {"ansi": "ansi.enabled", "zone": "session.timeZone"}
    wanted = {names[name]: str(value).lower() if name == "ansi" else str(value) for name, value in settings.items()}
    wanted |= {"codegen.wholeStage": "false", "codegen.factoryMode": "NO_CODEGEN"}
    with setting(spark, {f"spark.sql.{name}": value for name, value in wanted.items()}):
        yield


def yields(frame: DataFrame, predicates: Sequence[str]) -> list[np.ndarray | None]:
    """Each predicate's outcome per row; None where Spark refuses it, or raises for any row."""
    spelled = [f"CAST(coalesce(CAST(({sql}) AS INT), {NULL}) AS INT) AS p{n}" for n, sql in enumerate(predicates)]
    asked = [expression for expression in spelled if _resolves(frame, expression)]
    answers = dict(_answers(frame, asked))
    return [answers.get(expression) for expression in spelled]


def _resolves(frame: DataFrame, expression: str) -> bool:
    try:
        frame.selectExpr(expression)
    except PySparkException:
        return False
    return True


def _answers(frame: DataFrame, asked: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Of those that raise for no row. A failure costs more than all the answers: it says itself whose it is."""
    while asked:
        try:
            answer = frame.selectExpr(*asked).toArrow()
        except PySparkException as error:
            if len(asked) == 1:
                return
            places = [context.fragment() for context in error.getQueryContext() or ()]
            suspects = {each for each in asked if any(place and place in each for place in places)}
            if len(suspects) != 1:
                half = suspects if 0 < len(suspects) < len(asked) else set(asked[: len(asked) // 2])
                yield from _answers(frame, [each for each in asked if each in half])
                suspects = half
            asked = [each for each in asked if each not in suspects]
        else:
            yield from zip(asked, map(np.asarray, answer.columns), strict=True)
            return


def plain(rows: pa.Table) -> pa.Table:
    """Decimals in the one width that Spark's reader takes."""
    return rows.cast(pa.schema([pa.field(field.name, _wide(field.type)) for field in rows.schema]))


def _wide(type: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(type):
        return pa.decimal128(type.precision, type.scale)
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_wide(field.type)) for field in type])
    return type


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
@pytest.mark.parametrize(
    "ansi", [pytest.param(True, id="ansi"), pytest.param(False, id="lenient", marks=pytest.mark.slow)]
)
def test_every_outcome_that_spark_shows_is_foreseen(spark: SparkSession, tmp_path: Path, ansi: bool, part: int) -> None:
    tally: Counter[str] = Counter()
    failures: list[str] = []
    seed = int(os.environ.get("ZSKIP_SPARK_SEED", "9000"))
    count = TABLES[ansi] * MORE
    for number in range(part * count // PARTS, (part + 1) * count // PARTS):
        zone = ZONES[number % len(ZONES)]
        random = Random(seed + number * 2 + ansi)
        table = random_units(random, kinds=KINDS, sizes=(1, 1, 2, 3, 4, 6, 12))
        path = tmp_path / f"{number}.parquet"
        pq.write_table(plain(table.rows), path)
        statistics = FileStatistics.concat(
            [random_file_statistics(random, table, looseness) for looseness in LOOSENESS]
        ).statistics()
        unit = np.asarray(table.unit)
        owner = np.concatenate([unit + table.count * variant for variant in range(len(LOOSENESS))])
        grammar = Grammar(random, table, spark=True)
        predicates = [grammar.predicate(random.choice((0, 0, 1, 2))) for _ in range(PREDICATES)]
        with session(spark, ansi=ansi, zone=zone):
            frame = spark.createDataFrame(spark.read.parquet(str(path)).coalesce(1).toArrow())
            answers = yields(frame, predicates)
        for sql, yielded in zip(predicates, answers, strict=True):
            tally["cases"] += 1
            try:
                bound = bind(sql, table.schema, dialect="spark", timezone=zone, ansi=ansi)
            except SqlError:
                tally["refused"] += 1
                continue
            outcomes = pruning.outcomes(bound, statistics)
            if yielded is None:
                tally["raised by Spark"] += 1
                continue
            tally["skipped"] += int((~outcomes.may_match).sum())
            for breach in list(breaches(outcomes, np.tile(yielded, len(LOOSENESS)), owner))[:1]:
                row = table.rows.slice(breach.row % len(unit), 1).to_pylist()[0]
                failures.append(f"{sql}\n  {zone}: {breach}: {row}\n{described(statistics, breach.unit)}")
    print(dict(tally))  # shown with -s
    assert not failures, "\n\n".join(failures[:10])
    assert tally["cases"] - tally["raised by Spark"] > tally["cases"] / 2
    assert tally["skipped"] > tally["cases"]


@pytest.mark.slow
def test_spark_confirms_every_answer_of_the_fixtures(spark: SparkSession, tmp_path: Path) -> None:
    wrong = []
    for case in CASES:
        rows = case.rows(1500)
        path = tmp_path / f"{case.file}-{case.line}.parquet"
        pq.write_table(rows.append_column("__unit", pa.array(np.zeros(len(rows)), pa.int32())), path)
        with session(spark, ansi=case.settings.get("ansi", True)):
            (yielded,) = yields(spark.read.parquet(str(path)), [case.sql])
        found = frozenset() if yielded is None else frozenset(NAMES[int(v)].lower() for v in np.unique(yielded))
        if yielded is None or not found <= case.outcomes or (found != case.outcomes and not case.loose):
            wrong.append(f"{case}: expected {sorted(case.outcomes)}, Spark shows {sorted(found)}")
    assert not wrong, "\n".join(wrong)


# --- the law of sketches against Spark: none of the units that they skip holds a match ---

LOOK_UPS, SKETCH_PARTS = 40, 60
TEXTS = ("s", "s", "s", "s")


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, SKETCH_PARTS))])
def test_sketches_exclude_no_outcome_that_spark_shows(spark: SparkSession, tmp_path: Path, part: int) -> None:
    tally, failures = Counter[str](), list[str]()
    for number in range(part * MORE, (part + 1) * MORE):
        random, ansi = Random(70_000 + number), number % 2 == 1
        table = random_table(random, KINDS + TEXTS, odd=False)
        look_ups = LookUps(random, table, spark=True)
        predicates = [look_ups.asked() for _ in range(LOOK_UPS)]
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
    assert tally["cases"] > LOOK_UPS * MORE / 2
    assert tally["asked of the sketches first"] > 0
