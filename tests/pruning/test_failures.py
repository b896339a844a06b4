"""Rows that make the engine raise: a plan never claims that all rows match where one of them may do so."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.pruning.cases import column
from tests.pruning.oracles import RAISED, DuckDBOracle
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.stats import Statistics

FAILURES = {
    "the least integer % -1": ("x  int64  -9223372036854775808 .. 5", -(2**63), "x % -1 < 1"),
    "the least integer // -1": ("x  int32  -2147483648 .. 5", -(2**31), "x // -1 < 1"),
    "a product in one byte": ("x  int8  -127 .. -127", -127, "(-x) * x < 5"),
    "a product of a sum in two bytes": ("x  int16  -32768 .. 256", -32768, "(10 * (x + 3)) % 7 < 9"),
    "a product of a product": ("x  int32  2 .. 50000", 50000, "x * x > 1"),
    "a sum of the greater": ("x  int8  100 .. 127", 127, "(greatest(x, 5) + 1) % 7 < 9"),
    "the negative of a sum": ("x  int8  -128 .. 5", -128, "-(x + 0) > -200"),
    "the absolute value of a difference": ("x  int8  -128 .. 5", -128, "abs(x - 0) >= 0"),
    "a constant before the nanoseconds": (
        "t  timestamp_ns  2020-01-01T00:00:00 .. 2020-01-02T00:00:00",
        1577836800 * 10**9,
        "t > TIMESTAMP '1582-10-15 00:00:00'",
    ),
    "a column cast to nanoseconds": (
        "t  timestamp_s  1582-10-15T23:59:59 .. 1582-10-15T23:59:59",
        -12219292801,
        "t <> CAST('2020-12-31 23:59:59' AS TIMESTAMP_NS)",
    ),
    "a constant cast to nanoseconds": (
        "t  timestamp_s  2020-01-01T00:00:00 .. 2020-01-02T00:00:00",
        1577836800,
        "t > CAST('1582-10-15 00:00:00' AS TIMESTAMP_NS)",
    ),
}

WITH_A_RESULT = {"the least integer % -1", "a product of a sum in two bytes", "a sum of the greater"}
"""Rows for which DuckDB raises before 2.0.1, and has a result since."""


@pytest.mark.parametrize("name", FAILURES)
def test_a_row_that_raises_is_foreseen(name: str) -> None:
    line, value, sql = FAILURES[name]
    box = column("  " + line)
    storage = pa.int64() if pa.types.is_timestamp(box.type) else box.type
    rows = pa.table({box.path: pa.array([value], storage).cast(box.type), "__unit": pa.array([0], pa.int32())})
    oracle = DuckDBOracle()
    oracle.read(rows)
    (yielded,) = oracle.yields([sql])
    assert yielded is not None
    assert yielded.tolist() == [RAISED] or name in WITH_A_RESULT
    bound = bind(sql, Schema(rows.schema.remove(1)))
    outcomes = pruning.outcomes(bound, Statistics(pa.array([1]), {box.path: box.ranges()}))
    assert np.array_equal(outcomes.can_fail, [True])
    assert not outcomes.all_match.any()
