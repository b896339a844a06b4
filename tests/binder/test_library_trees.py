"""Expressions of libraries become trees without SQL; their outcomes and their SQL are the library's own answers."""

from __future__ import annotations

import datetime as dt
import operator
from decimal import Decimal
from functools import reduce
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from zskip import pruning
from zskip.binder import bind
from zskip.binder.bind_condition import bind_expression, provable_part
from zskip.core.schema import Schema
from zskip.errors import UnknownParameter, UnsupportedSql
from zskip.language.tree import In
from zskip.stats.collect import row_groups

NAN = float("nan")
DAY, MOMENT = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30, 0, 17)
ROWS = pa.table(
    {
        "i": pa.array([1, -5, 7, None, 127], pa.int32()),
        "t": pa.array([1, 2, None, 127, -128], pa.int8()),
        "f": pa.array([1.5, NAN, -0.0, None, 0.0], pa.float64()),
        "g": pa.array([0.1, NAN, float("inf"), None, 2.5], pa.float32()),
        "s": pa.array(["a", "it's", "", None, "ab%"], pa.string()),
        "e": pa.DictionaryArray.from_arrays(
            pa.array([0, 1, 2, None, 1], pa.int8()), pa.array(["z", "it's", ""]), ordered=True
        ),
        "b": pa.array([True, False, None, True, False], pa.bool_()),
        "d": pa.array([DAY, dt.date(1, 1, 1), None, dt.date(9999, 12, 31), DAY], pa.date32()),
        "m": pa.array([MOMENT, None, dt.datetime(1969, 1, 1), MOMENT, dt.datetime(2030, 1, 1)], pa.timestamp("us")),
        "z": pa.array([MOMENT, None, dt.datetime(1969, 1, 1), MOMENT, MOMENT], pa.timestamp("us", "UTC")),
        "c": pa.array([Decimal("1.50"), None, Decimal("-7.00"), Decimal("0.01"), Decimal("1.50")], pa.decimal128(9, 2)),
        "o": pa.array([dt.time(12), dt.time.max, None, dt.time(0), dt.time(12)], pa.time64("us")),
        "r": pa.array([{"x": 1}, {"x": None}, {"x": 5}, {"x": 7}, {"x": 1}], pa.struct([("x", pa.int64())])),
    }
)
CONSTANTS: dict[str, list[Any]] = {
    "i": [1, -5, 8], "t": [2, -128], "f": [1.5, 0.0, -0.0], "g": [2.5], "s": ["a", "it's", ""],
    "e": ["it's", ""], "b": [True, False], "d": [DAY], "m": [MOMENT],
    "z": [MOMENT.replace(tzinfo=dt.UTC)], "c": [Decimal("1.50")], "o": [dt.time(12), dt.time.max],
}  # fmt: skip


def of(library: str) -> list[tuple[str, Any]]:
    """Expressions over the rows, each with its text."""
    column = {"pyarrow": pc.field, "polars": pl.col}[library]

    def among(x: Any, values: list[Any]) -> Any:
        return x.isin(values) if library == "pyarrow" else x.is_in(values)

    found: list[Any] = []
    for name, constants in CONSTANTS.items():
        if library == "polars" and name == "o":
            continue  # polars prints no time
        x = column(name)
        for value in constants:
            found += [among(x, constants), ~among(x, [*constants, None])]
            found += [x == value, x != value, ~(x == value) | x.is_null()]
            found += [x < value, x >= value, value < x, ~(x > value) & (x <= value)] if name != "b" else [x, ~x]
        found += [x.is_null(), ~x.is_null()]
    f, i, s = column("f"), column("i"), column("s")
    found += [
        f.is_nan(),
        ~f.is_nan(),
        f < column("f") if library == "polars" else i == i,
        (i > 0) | (s == "a"),
        among(i, []),
        ~among(i, []),
        among(i, [None]),
        ~among(i, [None]),
    ]
    found += [among(i, [1, 7, 300]) & (f > 0), among(column("t"), [1, 2, 127])]
    if library == "pyarrow":
        found += [pc.starts_with(s, "a"), ~pc.ends_with(s, "%"), pc.match_substring(s, "'"), among(s, ["a", None])]
        found += [pc.field("r", "x") > 1, pc.if_else(i > 0, s == "a", f.is_nan()), pc.scalar(True) & (i > 0)]
        found += [among(f, [0.0, 1.5]), among(f, [-0.0]), among(i, [1, None]), among(column("g"), [0.1, 2.5, 1e300])]
    else:
        found += [s.str.starts_with("a"), ~s.str.ends_with("%"), s.str.contains("'", literal=True), i.is_between(-5, 7)]
        found += [
            column("r").struct.field("x") > 1,
            f.is_not_nan() & i.is_between(1, 7, closed="none"),
            pl.lit(True) & (i > 0),
            f.is_in([NAN, -0.0, None]),
            ~f.is_in([NAN]),
            column("g").is_in(pl.Series([0.1, 2.5], dtype=pl.Float32).implode()),
            column("d") >= pl.date(2024, 2, 29),
            pl.date(2024, 2, 29) < column("d"),
            column("d").is_between(pl.date(1, 1, 1), pl.date(2024, 2, 29)),
            column("d") == pl.datetime(1, 1, 1, 12).cast(pl.Date),
            column("d") == pl.lit(MOMENT, pl.Datetime("ms")).cast(pl.Date),
            column("m") > pl.datetime(1969, 1, 1),
            column("m") == pl.datetime(2024, 2, 29, 12, 30, 0, 17),
        ]
    return [(str(each), each) for each in found]


def kept(library: str, expression: Any) -> list[bool]:
    """Whether the library keeps each of the rows."""
    numbered = ROWS.append_column("n", pa.array(range(len(ROWS))))
    if library == "pyarrow":
        rows = numbered.filter(expression)["n"].to_pylist()
    else:
        rows = pl.from_arrow(numbered).filter(expression)["n"].to_list()  # type: ignore[union-attr]
    return [number in rows for number in range(len(ROWS))]


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_outcomes_and_sql_are_the_answers_of_the_library(library: str) -> None:
    schema = Schema(ROWS.schema)
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.register("rows", ROWS)
    units = row_groups(ROWS, np.arange(len(ROWS) + 1), schema)
    refused: list[str] = []
    for text, expression in of(library):
        try:
            bound = bind_expression(expression, schema)
        except UnsupportedSql:  # polars does not tell the type in which it compares
            refused.append(text)
            continue
        answers = kept(library, expression)
        found = pruning.outcomes(bound, units.statistics(sorted(bound.columns)))
        assert not (np.array(answers) & ~found.may_match).any(), text
        assert not (~np.array(answers) & found.all_match).any(), text
        own = con.sql(f"SELECT coalesce({bound.sql()}, false) FROM rows").fetchall()
        assert [answer for (answer,) in own] == answers, (text, bound.sql())
    assert len(refused) <= (0 if library == "pyarrow" else 22), refused


def test_midnight_at_the_end_of_a_day_is_not_that_at_its_start() -> None:
    """24:00, a time of DuckDB and Arrow, is 00:00 to Python."""
    midnight, schema = pa.scalar(86_400_000_000).cast(pa.time64("us")), Schema(ROWS.schema)
    with pytest.raises(UnsupportedSql):
        bind_expression(pc.field("o") < midnight, schema)
    with pytest.raises(UnknownParameter, match="24:00"):
        bind("o < $x", schema, params={"x": midnight})
    assert bind("o < TIME '24:00:00'", schema).sql("duckdb") == "\"o\" < TIME '24:00:00'"
    assert bind("o < TIME '24:00:00'", schema).sql("spark") is None


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_a_hundred_thousand_values_are_one_array(library: str) -> None:
    values = list(range(100_000))
    expression = pc.field("i").isin(values) if library == "pyarrow" else pl.col("i").is_in(values)
    nodes = bind_expression(expression, Schema(ROWS.schema)).tree
    found = [each for each in getattr(nodes, "parts", [nodes]) if isinstance(each, In)]
    assert [len(each.values) for each in found] == [100_000]


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ((pl.col("i") == 1) & ((pl.col("s") == "a") | (pl.col("i") % 2 == 1)), r': \[\(\[\(col\("i"\)\) % '),
        (pl.col("t").is_in([1], nulls_equal=True), r': col\("t"\).is_in'),
        (pl.col("g").is_in([0.1]), r': col\("g"\).is_in'),  # its values are FLOAT, those of the list are DOUBLE
        (~pl.col("s").eq_missing("a"), r': \[\(col\("s"\)\) ==v \("a"\)\]\.'),
        (reduce(operator.add, [pl.col("i")] * 200) > 1, r"\(col\("),
        (reduce(operator.or_, [pl.col("i") == number for number in range(1000)]), r"\(col\("),
    ],
)
def test_the_part_of_a_polars_expression_that_is_not_read_is_named(expression: pl.Expr, part: str) -> None:
    with pytest.raises(UnsupportedSql, match=f"{part}.*zskip.polars.scan"):
        bind_expression(expression, Schema(ROWS.schema))


@pytest.mark.parametrize(("terms", "read"), [(12, True), (40, False)])
def test_pyarrow_is_not_asked_for_the_message_of_a_deep_expression(terms: int, read: bool) -> None:
    """It takes twice as long for each further term, days for forty."""
    expression = reduce(operator.or_, [pc.field("i") == number for number in range(terms)])
    schema = Schema(ROWS.schema)
    assert (provable_part(expression, schema) is not None) == read
    if not read:
        with pytest.raises(UnsupportedSql, match="as is_in"):
            bind_expression(expression, schema)


def test_a_condition_for_a_person_is_short_sql() -> None:
    schema = Schema(ROWS.schema)
    bound = bind_expression((pc.field("i") > 5) & (pc.field("s") == "it's") & ~pc.field("r", "x").is_null(), schema)
    assert bound.text == """("i" > 5) AND ("s" = 'it''s') AND (NOT ("r"."x" IS NULL))"""
    assert bound.conjuncts[0].text == '"i" > 5'


@pytest.mark.parametrize(
    "type", [pa.duration("us"), pa.uuid(), pa.large_list(pa.int8()), pa.struct([("d", pa.duration("s"))])]
)
def test_a_column_that_substrait_lacks_is_in_the_way_of_no_other(type: pa.DataType) -> None:
    schema = Schema(pa.schema([("before", type), ("x", pa.int64())]))
    assert bind_expression(pc.field("x") > 5, schema).text == '"x" > 5'
    with pytest.raises(UnsupportedSql):
        bind_expression(pc.field("before") == pc.field("before"), schema)
