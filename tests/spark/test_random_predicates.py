"""Random predicates on hostile rows: what the self-pruning table gives is what a full scan gives, ANSI on and off."""

from __future__ import annotations

import os
import random
import uuid
from functools import reduce
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.tables import build_table, hostile
from zskip import spark as zs
from zskip.spark import catalyst
from zskip.spark.jvm import Jvm
from zskip.table import Table

_CONSTANTS = {
    "i": ["-1000", "-3", "0", "17", "999", "2147483647", "5.5", "NULL", "3000000000"],
    "big": ["-4611686018427387904", "0L", "4611686018427", "9223372036854775807", "1e18"],
    "edge": ["2147483647", "-2147483648", "0", "100"],
    "d": ["0.0", "-0.0D", "1.5", "double('NaN')", "double('Infinity')", "-1e300", "5e-324D", "100", "NULL"],
    "f": ["float(1.5)", "float('NaN')", "1.1", "200"],
    "m": ["1.50", "0", "-0.17", "10.005", "NULL"],
    "s": ["''", "'a'", "'A'", "'it\\'s'", "'\\n'", "'😀'", "'a\\\\\\\\b'", "'zz'", "NULL"],
    "code": ["'k000123'", "'k0'", "'k001999'", "''"],
    "bin": ["X''", "X'0000FF'", "X'FFFFFF'"],
    "day": ["DATE '1970-01-05'", "DATE '1969-12-31'", "DATE '9999-12-31'", "'1970-02-01'", "DATE '0001-01-01'"],
    "ts": [
        "TIMESTAMP '2018-10-28 02:30:00'",
        "TIMESTAMP '2018-10-28 01:00:00.000007'",
        "DATE '2018-10-28'",
        "timestamp_micros(1540690200000007)",
    ],
    "local": ["TIMESTAMP_NTZ '2018-10-28 02:30:00'", "TIMESTAMP_NTZ '2018-10-27 23:59:00.000007'"],
    "yes": ["true", "false", "NULL"],
    "st.a": ["5", "1990", "-20"],
    "st.Deep": ["'3'", "'6'"],
    "`we ird``x`": ["3", "99", "-1"],
    "few": ["0", "3", "4"],
}
# For each of two modes and two zones: 3,000 in the long form.
_PREDICATES = int(os.environ.get("ZSKIP_PREDICATES", "750"))
_AT_ONCE = 75
_NUMBERS = ["i", "edge", "d", "m", "few", "st.a"]


def leaf(dice: random.Random) -> str:
    column = dice.choice(list(_CONSTANTS))
    constant = dice.choice(_CONSTANTS[column])
    some = ", ".join(dice.choices(_CONSTANTS[column], k=dice.randint(1, 14)))
    kind = dice.randrange(12)
    if kind < 4:
        return f"{column} {dice.choice(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {constant}"
    if kind == 4:
        return f"{column} {dice.choice(['IN', 'NOT IN'])} ({some})"
    if kind == 5:
        return f"{column} IS {dice.choice(['', 'NOT '])}NULL"
    if kind == 6:
        return f"{column} BETWEEN {constant} AND {dice.choice(_CONSTANTS[column])}"
    if kind == 7:
        text = dice.choice(["s", "code", "st.Deep"])
        return (
            f"{text} {dice.choice(['', 'NOT '])}LIKE {dice.choice(['k0001%', 'a%', '%b', 'a_b', '%', 'A%%', 'k%9'])!r}"
        )
    if kind == 8:
        number = dice.choice(_NUMBERS)
        change = dice.choice(
            ["try_add({}, 1)", "try_multiply({}, 2)", "-try_add({}, 0)", "abs({})", "try_subtract({}, 7)"]
        )
        return f"{change.format(number if number != 'edge' else 'CAST(edge AS BIGINT)')} {dice.choice('<>=')} 10"
    if kind == 9:
        return dice.choice(
            [
                "year(day) = 1970",
                "CAST(ts AS DATE) = DATE '2018-10-28'",
                "date_trunc('HOUR', ts) > TIMESTAMP '2018-10-28 03:00:00'",
                "substr(code, 1, 5) = 'k0012'",
                "upper(s) = 'A'",
                "coalesce(i, 0) = 0",
                "floor(m) < -1",
                "nullif(few, 2) IS NULL",
                "if(i > 0, d, m) > 3",
                "isnan(d)",
                "CAST(code AS STRING) || 'x' > 'k0015'",
                "try_cast(s AS INT) IS NULL",
                "month(local) = 10",
                "s RLIKE '^a'",
                "length(code) = 7 AND few = 1",
            ]
        )
    if kind == 10:
        return f"({column} < {constant}) {dice.choice(['=', '<=>', '<>'])} ({leaf(dice)})"
    return f"{dice.choice(_NUMBERS)} {dice.choice('<>=')} {dice.choice(_NUMBERS)}"


def predicate(dice: random.Random, depth: int = 0) -> str:
    choice = dice.randrange(8) if depth < 3 else 0
    if choice < 4:
        return leaf(dice)
    if choice == 4:
        return f"NOT ({predicate(dice, depth + 1)})"
    operator = dice.choice(["AND", "OR"])
    return f"({predicate(dice, depth + 1)}) {operator} ({predicate(dice, depth + 1)})"


@pytest.mark.parametrize("ansi", ["true", pytest.param("false", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("zone", "count"),
    [
        ("UTC", 20),
        pytest.param("UTC", _PREDICATES, marks=pytest.mark.slow),
        pytest.param("Europe/Berlin", _PREDICATES, marks=pytest.mark.slow),
        pytest.param("America/New_York", _PREDICATES, marks=pytest.mark.slow),
    ],
)
def test_random_predicates(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, ansi: str, zone: str, count: int
) -> None:
    """The planner's survivors of each filter are compared with the files that hold a matching row, by a full scan.

    Of every 25 filters one is run through the self-pruning table, too: it must count as many rows as the full scan.
    """
    dice = random.Random(f"{ansi}{zone}{count}")
    folder = tmp_path_factory.mktemp(f"r{uuid.uuid4().hex[:6]}") / "t"
    # pyarrow writes bounds beside NaN, so this must not pass for a table that zskip wrote
    index = build_table(folder, hostile(800, seed=dice.randrange(1000)), files=25, managed=False)
    opened = Table(index.storage, index.snapshot)
    table = zs.table(spark, opened)
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.conf.set("spark.sql.session.timeZone", zone)
    everything = spark.read.parquet(f"{index.storage.uri}/*.parquet").selectExpr("*", "_metadata.file_name AS file")
    everything = everything.coalesce(1).cache()
    jvm = Jvm(spark)
    checked = pruned = read = 0
    try:
        while checked < count:
            filters = analysed(table, dice, min(_AT_ONCE, count - checked))
            texts = [f"coalesce({where}, false) AS c{number}" for number, (where, _) in enumerate(filters)]
            matches = everything.selectExpr("file", *texts).toArrow()
            file = np.asarray(matches["file"])
            for number, conditions in optimized(filters).items():
                where = filters[number][0]
                wanted, _ = catalyst.predicate(conditions, index.snapshot.schema, jvm)
                survivors = {path.rpartition("/")[2] for path in opened.plan(wanted).paths}
                holding = set(file[np.asarray(matches[f"c{number}"])])
                assert holding <= survivors, (where, sorted(holding - survivors))
                checked += 1
                pruned += 25 - len(survivors)
            some = list(range(0, len(filters), 25))
            counts = [filters[number][1].agg(f.count("*").alias("n"), f.lit(number).alias("c")) for number in some]
            for row in reduce(DataFrame.unionAll, counts).collect():
                assert row.n == pc.sum(matches[f"c{row.c}"]).as_py(), filters[row.c][0]
                read += 1
        assert pruned > count
        assert read >= count / 25
    finally:
        everything.unpersist()
        spark.conf.set("spark.sql.ansi.enabled", "true")
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def analysed(table: DataFrame, dice: random.Random, count: int) -> list[tuple[str, DataFrame]]:
    """Random filters that Spark takes, and the table behind each."""
    found: list[tuple[str, DataFrame]] = []
    while len(found) < count:
        where = predicate(dice)
        try:
            found.append((where, table.where(where)))
        except PySparkException:
            continue
    return found


def optimized(filters: list[tuple[str, DataFrame]]) -> dict[int, list[Any]]:
    """What Catalyst makes of each filter, by number, as the conditions right above its scan. All in one plan: that is
    quicker. A filter that can never be TRUE takes its scan out of the plan, and is left out."""
    tagged = [rows.select(f.lit(number).alias("tag"), "*") for number, (_, rows) in enumerate(filters)]
    found = {}
    waiting = [reduce(DataFrame.unionAll, tagged)._jdf.queryExecution().optimizedPlan()]
    while waiting:
        node = waiting.pop()
        if node.getClass().getSimpleName() != "Project":
            waiting += [node.children().apply(number) for number in range(node.children().size())]
            continue
        below = node.child()
        conditions = []
        if below.getClass().getSimpleName() == "Filter":
            conditions, below = [below.condition()], below.child()
        assert below.getClass().getSimpleName() == "LogicalRelation", below.toString()
        found[int(node.projectList().apply(0).child().value())] = conditions
    return found
