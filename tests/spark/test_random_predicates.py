"""Random predicates on hostile rows: what the self-pruning table gives is what a full scan gives, ANSI on and off."""

from __future__ import annotations

import os
import random
import uuid

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.spark.hostile import hostile
from tests.tables import build_table
from zskip import spark as zs
from zskip.spark import catalyst, file_index
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
# ZSKIP_PREDICATES=750 asks 3,000 in all.
_PREDICATES = int(os.environ.get("ZSKIP_PREDICATES", "250"))
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


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_random_predicates(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, ansi: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner's survivors of each filter are compared with the files that hold a matching row, in one full scan."""
    dice = random.Random(f"{ansi}{zone}")
    rows = hostile(800, seed=dice.randrange(1000))
    index = build_table(tmp_path_factory.mktemp(f"r{uuid.uuid4().hex[:6]}") / "t", rows, files=25)
    table = zs.table(spark, Table(index.storage, index.snapshot))
    plain = spark.read.parquet(f"{index.storage.uri}/*.parquet")
    jvm = file_index._Jvm(spark)
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        wanted: dict[str, tuple[str, set[str]]] = {}
        while len(wanted) < _PREDICATES:
            where = predicate(dice)
            try:
                optimized = table.where(where)._jdf.queryExecution().optimizedPlan()
            except Exception:
                continue  # Spark itself refuses it.
            conditions = _conditions(optimized)
            if conditions is None:
                continue
            read = catalyst.predicate(conditions, index.snapshot.schema, jvm.semantics())
            survivors = {path.rpartition("/")[2] for path in Table(index.storage, index.snapshot).plan(read).paths}
            wanted[f"c{len(wanted)}"] = (where, survivors)
        kept = plain.groupBy(f.col("_metadata.file_name").alias("file")).agg(
            *[f.count_if(f.expr(where)).alias(name) for name, (where, _) in wanted.items()]
        )
        pruned = 0
        for row in kept.collect():
            for name, (where, survivors) in wanted.items():
                assert not row[name] or row.file in survivors, (where, row.file)
                pruned += row.file not in survivors
        assert pruned > _PREDICATES
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def _conditions(plan: object) -> list[object] | None:
    """The filters right above the scan of an optimized plan; None where it has become something else."""
    name = plan.getClass().getSimpleName()  # type: ignore[attr-defined]
    if name == "Filter":
        return [plan.condition()]  # type: ignore[attr-defined]
    return [] if name == "LogicalRelation" else None
