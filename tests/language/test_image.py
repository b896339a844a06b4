"""The image of a function contains every value that DuckDB returns for it, and leaves out others."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from zskip.language.functions import in_image
from zskip.language.tree import Call, Reference

UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "decade")
MOMENTS = (
    "SELECT TIMESTAMP '0001-01-01' + INTERVAL (n * 37111) HOUR + INTERVAL (n * 7919337) MICROSECOND AS x "
    "FROM range(2300) r(n)"
)
INFINITE = "SELECT unnest(['infinity', '-infinity', '290000-01-01', '1969-12-31 23:59:59.9']::TIMESTAMP[]) AS x"


def call(function: str, type: pa.DataType, *options: object) -> Call:
    return Call(function, (Reference("x", type),), type, options)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("rows", [MOMENTS, INFINITE])
def test_a_beginning_of_a_unit_is_in_the_image(unit: str, rows: str) -> None:
    term = call("truncate", pa.timestamp("us"), unit, None)
    with duckdb.connect() as con:
        found = con.sql(f"SELECT x, date_trunc('{unit}', x) FROM ({rows})").to_arrow_table()
    assert all(in_image(term, value) for value in found.column(1))
    if rows is MOMENTS and unit != "decade":
        others = [value for value, begins in zip(*found.columns, strict=True) if value != begins]
        assert others
        assert not any(in_image(term, value) for value in others)


def test_a_last_day_is_in_the_image() -> None:
    term = call("last_day", pa.date32(), None)
    with duckdb.connect() as con:
        found = con.sql(f"SELECT x::DATE, last_day(x) FROM ({MOMENTS} UNION ALL {INFINITE})").to_arrow_table()
    assert all(in_image(term, value) for value in found.column(1))
    assert not in_image(term, pa.scalar(18_300, pa.date32()))


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_prefix_is_in_the_image(count: int) -> None:
    term = call("prefix", pa.string(), count)
    texts = ["", "a", "äö", "a\u0308bc", "𝄞𝄞𝄞", "👩‍👩‍👧", "abcdef"]
    with duckdb.connect() as con:
        found = con.sql(f"SELECT left(x, {count}) FROM (SELECT unnest(?) AS x)", params=[texts]).to_arrow_table()
    assert all(in_image(term, value) for value in found.column(0))
    assert not in_image(term, pa.scalar("x" * (count + 1)))


def test_values_of_unrestricted_terms_are_in_the_image() -> None:
    assert in_image(Reference("x", pa.int64()), pa.scalar(5))
    assert in_image(call("abs", pa.int64()), pa.scalar(-5))
    zoned = pa.timestamp("us", "UTC")
    assert in_image(call("truncate", zoned, "day", "Europe/Berlin"), pa.scalar(5, zoned))
    assert not in_image(call("truncate", zoned, "day", "UTC"), pa.scalar(5, zoned))
