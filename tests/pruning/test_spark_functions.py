"""Spark's casts and date functions of texts: what docs/spark.md says of them."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.stats import Ranges, Statistics

DAY = dt.date(2018, 2, 27)
VALUES = {
    "s": pa.array(["2018-02-27"]),
    "d": pa.array([DAY]),
    "ts": pa.array([dt.datetime(2018, 2, 27, 10, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
    "n": pa.array([1_519_689_600]),
}
SCHEMA = Schema(pa.schema({name: value.type for name, value in VALUES.items()}))
NO = pa.array([False])
UNITS = Statistics(
    pa.array([1]), {name: Ranges(value, value, pa.array([True]), NO, NO) for name, value in VALUES.items()}
)


def may_match(sql: str) -> bool:
    return bool(pruning.outcomes(bind(sql, SCHEMA, dialect="spark"), UNITS).may_match[0])


@pytest.mark.parametrize("constant", ["to_date('{}')", "DATE('{}')", "CAST('{}' AS DATE)", "DATE '{}'"])
def test_constants_are_folded(constant: str) -> None:
    assert may_match(f"d = {constant.format('2018-02-27')}")
    assert not may_match(f"d = {constant.format('2018-02-28')}")
    assert not may_match(f"ts >= {constant.format('2018-02-28')}")


@pytest.mark.parametrize(
    "sql",
    [
        "to_date(s) = DATE '2019-01-01'",
        "DATE(s) = DATE '2019-01-01'",
        "CAST(s AS DATE) = DATE '2019-01-01'",
        "CAST(s AS TIMESTAMP) > TIMESTAMP '2019-01-01 00:00:00Z'",
        "year(TIMESTAMP(s)) = 2019",
        "from_unixtime(n) = '2019-01-01 00:00:00'",
        "date_from_unix_date(n) = DATE '2019-01-01'",
        "CAST(ts AS STRING) = '2019-01-01'",
        "regexp_extract(s, '(\\\\d+)', 1) = '2019'",
        "CAST(s AS INT) = 7",
    ],
)
def test_functions_of_texts_skip_nothing(sql: str) -> None:
    assert may_match(sql)


@pytest.mark.parametrize("sql", ["to_date(ts) = DATE '2019-01-01'", "year(ts) = 2019", "CAST(ts AS DATE) < d"])
def test_functions_of_moments_skip(sql: str) -> None:
    assert not may_match(sql)
