"""What Catalyst evaluates for units that hold few values: it skips what no range decides, and nothing wrongly."""

from __future__ import annotations

import datetime as dt
import logging
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

import zskip
from tests.pruning.grammar import Grammar
from tests.pruning.oracles import described
from tests.pruning.units import Field, random_file_statistics, random_units
from tests.spark.test_planner_law import KINDS, plain, session, yields
from tests.spark.test_random_predicates import optimized
from tests.tables import build_table
from zskip import pruning
from zskip import spark as zs
from zskip.plan import find_survivors
from zskip.spark import catalyst
from zskip.spark.jvm import Jvm
from zskip.table import Table

FILES = 10


def of_single_values() -> pa.Table:
    """Ten files that hold one value of each column, and two in which some rows or all are NULL."""
    days = [dt.date(1970, 1, 31) + dt.timedelta(days=396 * n) for n in range(FILES)]
    texts = [f"{day} 0{n}:0{n}:0{n}.00{n}" for n, day in enumerate(days)]
    rows = [
        {"s": {"a": 9 - n, "b": texts[n]}, "day": days[n], "name": ["Ä", "ß", "x y"][n % 3] + str(n), "n": 100 * n}
        for n in range(FILES)
    ]
    null: dict[str, Any] = {"s": {"a": None, "b": None}, "day": None, "name": None, "n": None}
    schema = pa.schema(
        [
            ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
            ("day", pa.date32()),
            ("name", pa.string()),
            ("n", pa.int64()),
        ]
    )
    files = [each for row in [*rows, null] for each in (row, row)] + [rows[0], null]
    return pa.Table.from_pylist(files, schema).append_column("x", pa.array(range(2 * FILES + 4)))


# Each expression, and the files that may hold a match. The last file holds a value of each column, and NULL.
CASES = {
    "upper(name) = 'Ä3'": {3},
    "lower(concat('AAA', name)) = 'aaaä0'": {0, 11},
    "concat(name, CAST(s.a AS STRING)) = 'ß18'": {1},
    "CAST(s.a AS STRING) = '1'": {8},
    "CAST(s.a AS STRING) >= '8'": {0, 1, 11},
    "to_date(s.b) = DATE '1972-04-02'": {2},
    "date_format(day, 'yyyy-MM') = '1972-04'": {2},
    "year(TIMESTAMP(s.b)) = 1970": {0, 11},
    "second(TIMESTAMP(s.b)) = 5": {5},
    "date_trunc('MONTH', CAST(s.b AS DATE)) = '1972-04-01'": {2},
    "from_unixtime(n) = '1970-01-01 00:05:00'": {3},
    "date_from_unix_date(s.a) = DATE '1970-01-05'": {5},
    "s.b LIKE '%7.007' OR s.b RLIKE '8$'": {7, 8},
    "length(trim(concat('  ', name, ' '))) = 4": {2, 5, 8},
    "coalesce(to_date(s.b), day) = '1973-05-03'": {3},
    "CAST(s.a AS STRING) IS NULL": {10, 11},
    "NOT contains(s.b, '7.007')": {0, 1, 2, 3, 4, 5, 6, 8, 9, 11},
    "try_add(s.a, 1) = 3": {7},
    "regexp_extract(s.b, '([0-9]+)-0(.)', 2) = '7'": {5},
    "get(array(1, 2, 3), s.a) IN (1, 2)": {8, 9},
    "soundex(name) <> soundex(s.b) AND n * n = 250000": {5},
    "upper(name) = 'Ä3' OR n > 400": {3, *range(5, FILES)},
    # Each run gives something else, or it runs code of others.
    "rand(0) * s.a > 100": {*range(FILES), 11},
    "upper(concat(name, uuid())) = 'X'": set(range(FILES + 2)),
    "java_method('java.lang.String', 'valueOf', s.a) = '77'": set(range(FILES + 2)),
    "name COLLATE UTF8_LCASE = 'ä3'": set(range(FILES + 2)),
}


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    index = build_table(tmp_path_factory.mktemp("single") / "t", of_single_values(), files=FILES + 2)
    return Table(index.storage, index.snapshot)


def kept(table: Table, rows: DataFrame, jvm: Jvm, *filters: str) -> list[set[int]]:
    conditions = optimized([(where, rows.where(where)) for where in filters])
    files = []
    for number in range(len(filters)):
        found, _ = catalyst.predicate(conditions[number], table._index.snapshot.schema, jvm)
        files.append({int(path[-13:-8]) for path in find_survivors(table._index, found).scan.relative_paths})
    return files


def test_files_of_one_value_are_skipped_by_any_expression(spark: SparkSession, table: Table) -> None:
    found = kept(table, zs.table(spark, table), Jvm(spark), *CASES)
    assert dict(zip(CASES, found, strict=True)) == CASES


def test_units_whose_value_raises_are_kept(spark: SparkSession, table: Table) -> None:
    with session(spark, ansi=True):
        jvm = Jvm(spark)
        filters = (
            "CAST(substr(s.b, 22) AS INT) = 3",
            "CAST(concat(substr(s.b, 23), if(s.a = 2, 'x', '')) AS INT) = 3",
        )
        assert kept(table, zs.table(spark, table), jvm, *filters) == [{3}, {3, 7}]
    with session(spark, ansi=False):
        assert kept(table, zs.table(spark, table), jvm, "CAST(concat(substr(s.b, 23), 'x') AS INT) = 3") == [set()]


@pytest.mark.parametrize("connector", [False, True])
def test_errors_of_values_are_not_logged(
    spark: SparkSession, tmp_path: Path, connector: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each error that reaches PySpark is logged by it, with Java's stack."""
    logged: list[logging.LogRecord] = []
    monkeypatch.setattr(PySparkLogger.getLogger("SQLQueryContextLogger"), "handle", logged.append)
    rows = pa.table({"n": range(0, 4096, 2)})
    zskip.write(rows, tmp_path / "t", by="n", files=4)
    with session(spark, ansi=True):
        stored, pruned = spark.read.parquet(str(tmp_path / "t")), zs.table(spark, tmp_path / "t", connector=connector)
        where = "10 DIV (n % 2 - 1) - n = -210"  # an error for odd numbers, which lie between the bounds of each file
        assert pruned.where(where).collect() == stored.where(where).collect() == [(200,)]
        assert not logged
        with pytest.raises(PySparkException, match="ARITHMETIC_OVERFLOW"):
            pruned.where("n + 9223372036854775000 > 0").collect()
        assert len(logged) == 1  # that of the query itself


def test_the_rest_is_not_evaluated_after_an_error(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalyst, "_TOGETHER", 2)
    with session(spark, ansi=True):
        rows = zs.table(spark, table)
        # The texts of files are evaluated in their order. That of file 4 raises an error.
        where = "CAST(if(s.b LIKE '%04:04:04%', 'x', substr(s.b, 23)) AS INT) = 1"
        assert kept(table, rows, Jvm(spark), where) == [{1, 4, *range(6, FILES + 2)}]


def test_no_more_values_are_evaluated_than_the_limits(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, jvm = zs.table(spark, table), Jvm(spark)
    monkeypatch.setattr(catalyst, "_MOST_VALUES", 3)
    assert kept(table, rows, jvm, "upper(name) = 'nobody'") == [{*range(3, FILES), 11}]


# Functions without a rule of zskip's, of columns and expressions of each family.
FUNCTIONS: dict[str, list[str]] = {
    "string": [
        "initcap({0}) = {1}", "upper({0}) < {1}", "reverse({0}) >= {1}", "length({0}) % 2 = 1", "md5({0}) < '8'",
        "soundex({0}) = soundex({1})", "levenshtein({0}, {1}) < 3", "locate({1}, {0}) > 0", "{0} RLIKE '^[a-z]+'",
        "regexp_replace({0}, '[aeiou]', '') = {1}", "try_cast({0} AS INT) IS NULL", "to_date({0}) IS NULL",
        "CAST({0} AS DOUBLE) > 1", "repeat({0}, 2) > {1}", "lpad({0}, 5, 'x') > {1}", "ascii({0}) BETWEEN 48 AND 90",
        "translate({0}, 'abc', 'xyz') LIKE '%x%'", "split({0}, ' ')[0] = {1}", "hash({0}) > 0",
        "crc32({0}) > 2000000000",
    ],
    "number": [
        "CAST({0} AS STRING) LIKE '%1%'", "bin(CAST({0} AS INT)) LIKE '1%'", "hash({0}) % 3 = 0", "cbrt({0}) > 1",
        "round({0}, 1) = {1}", "bround({0}) < {1}", "sqrt(abs({0})) > 2", "factorial(CAST({0} AS INT)) > 5",
        "conv(CAST({0} AS STRING), 10, 2) > '1'", "greatest({0}, {1}) = {1}", "format_number({0}, 2) < '5'",
        "timestamp_seconds({0}) > TIMESTAMP '2000-01-01 00:00:00'", "pmod({0}, 7) = 3", "CAST({0} AS INT) = {1}",
    ],
    "date": [
        "date_format({0}, 'EEE') = 'Mon'", "add_months({0}, 1) > {1}", "months_between({0}, {1}) > 3",
        "next_day({0}, 'MO') = {1}", "last_day({0}) = {1}", "weekofyear({0}) = 1", "CAST({0} AS TIMESTAMP) > '1999'",
        "unix_timestamp({0}) % 2 = 0", "CAST({0} AS STRING) > '2'",
    ],
    "zoned": [
        "date_format({0}, 'HH') < '05'", "from_utc_timestamp({0}, 'Asia/Tokyo') > {1}", "hour({0}) = 2",
        "CAST({0} AS STRING) LIKE '%1'", "CAST({0} AS DATE) = CAST({1} AS DATE)", "unix_millis({0}) % 2 = 0",
        "CAST({0} AS DOUBLE) > 0",
    ],
    "timestamp": ["CAST({0} AS STRING) LIKE '%1'", "date_format({0}, 'HH') < '05'", "CAST({0} AS TIMESTAMP) > {1}"],
    "binary": ["hex({0}) > '5'", "CAST({0} AS STRING) > 'a'", "length({0}) = 2", "base64({0}) < 'x'"],
    "boolean": ["CAST({0} AS INT) + 1 > 1", "CAST({0} AS STRING) = 'true'", "bool({0}) <=> {1}"],
}  # fmt: skip
TABLES, PREDICATES = int(os.environ.get("ZSKIP_SPARK_FUZZ", "1")), 20


def _quoted(field: Field) -> str:
    return ".".join(f"`{part}`" for part in field.parts)


def random_condition(random: Random, grammar: Grammar) -> str:
    field = grammar.field(["integer", "float", "decimal", *FUNCTIONS])
    assert field is not None
    family = field.kind.family if field.kind.family in FUNCTIONS else "number"
    other = random.choice([field, grammar.field([field.kind.family])])
    sides = [_quoted(field), random.choice([_quoted(other or field), grammar.constant(field.kind, field)])]
    found = random.choice(FUNCTIONS[family]).format(*sides)
    match random.randrange(6):
        case 0:
            return f"NOT ({found})"
        case 1:
            return f"({found}) {random.choice(('AND', 'OR'))} ({grammar.predicate(1)})"
    return found


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 24))])
def test_the_verdict_of_catalyst_is_that_of_sparks_own_rows(spark: SparkSession, tmp_path: Path, part: int) -> None:
    """A unit is skipped only if Spark finds no match among its rows, and wholly matched only if all of them match."""
    tally, failures = Counter[str](), list[str]()
    for number in range(part * TABLES, (part + 1) * TABLES):
        random, ansi = Random(40_000 + number), number % 2 == 0
        zone = ("Europe/Berlin", "America/New_York", "UTC", "GMT-03:30")[number // 2 % 4]
        units = random_units(random, kinds=KINDS, sizes=(1, 1, 1, 2))
        pq.write_table(plain(units.rows), tmp_path / f"{number}.parquet")
        statistics = random_file_statistics(random, units, 0.0).statistics()
        unit = np.asarray(units.unit)
        grammar = Grammar(random, units, spark=True)
        asked = [random_condition(random, grammar) for _ in range(PREDICATES)]
        with session(spark, ansi=ansi, zone=zone):
            jvm, stored = Jvm(spark), spark.read.parquet(str(tmp_path / f"{number}.parquet"))
            answers = yields(spark.createDataFrame(stored.toArrow(), stored.schema), asked)
            known = [(where, yielded) for where, yielded in zip(asked, answers, strict=True) if yielded is not None]
            for place, conditions in optimized([(where, stored.where(where)) for where, _ in known]).items():
                where, yielded = known[place]
                found, is_equivalent = catalyst.predicate(conditions, units.schema, jvm)
                if found is None:
                    tally["unknown"] += 1
                    continue
                outcomes = pruning.outcomes(found, statistics)
                matched = np.bincount(unit, yielded == 1, units.count) > 0
                whole = np.bincount(unit, yielded != 1, units.count) == 0
                wrong = np.flatnonzero((matched & ~outcomes.may_match) | (is_equivalent & outcomes.all_match & ~whole))
                tally["cases"] += 1
                tally["units without a match"] += int((~matched).sum())
                tally["skipped"] += int((~outcomes.may_match).sum())
                for one in wrong[:1]:
                    rows = units.rows.filter(pa.array(unit == one)).to_pylist()
                    failures.append(f"{where}\n  {zone} ansi {ansi}: unit {one}: {rows}\n{described(statistics, one)}")
    print(dict(tally))  # shown with -s
    assert not failures, "\n\n".join(failures[:10])
    assert tally["cases"] > PREDICATES * TABLES / 4
    assert tally["skipped"] > tally["units without a match"] * 0.5
