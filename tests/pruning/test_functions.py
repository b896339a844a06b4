"""The bounds of functions hold what DuckDB computes: no outcome that a row has is missing."""
# ruff: noqa: E501 - tables of cases are one line each

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp

from tests.docs.predicates_page import predicates_page
from tests.statements.cases import statements
from tests.tables import ranges_of, statistics_of
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.language.functions import FUNCTIONS, NAMED
from zskip.language.functions.function import ArgumentBinder, Function
from zskip.language.tree import Call, Scalar
from zskip.stats import Ranges, Statistics

TYPES = {
    "i": (pa.int32(), [-7, -1, 0, 1, 2, 5, 100, 2_000_000_000, -2_000_000_000]),
    "b": (pa.int64(), [-3, 0, 4, 9_007_199_254_740_993, 2**62]),
    "t": (pa.int8(), [-128, -5, 0, 3, 127]),
    "u": (pa.uint8(), [0, 1, 17, 255]),
    "d": (pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("-1.50"), Decimal("0.00"), Decimal("2.50"), Decimal("3.49")]),
    "f": (pa.float32(), [-2.5, -0.5, 0.0, 0.10000000149011612, 1.5, 3e38, float("nan")]),
    "g": (pa.float64(), [-2.5, -0.5, 0.0, 0.1, 2.5, 1e300, float("inf"), float("nan")]),
    "dt": (pa.date32(), [dt.date(2023, 12, 31), dt.date(2024, 1, 31), dt.date(2024, 2, 29), dt.date(1969, 7, 20), dt.date(2021, 1, 1)]),
    "ts": (pa.timestamp("us"), [dt.datetime(2023, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 1, 31, 12, 30), dt.datetime(1960, 2, 29, 1, 2, 3, 4), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 1, 1)]),
    "tz": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 3, 31, 0, 30), dt.datetime(2024, 10, 27, 1, 30), dt.datetime(2024, 10, 27, 0, 30), dt.datetime(2024, 1, 1)]),
    "s": (pa.string(), ["", "a", "ab", "abc", "b", "é", "Kb", "\u212ab", "zz"]),
}  # fmt: skip

PREDICATES = """
i + 1 > 5 | i - 5 <= -4 | i * 2 = 10 | i * -3 < 6 | -i >= 1 | abs(i) < 3 | i % 3 = 1 | i % 3 < 0 | i // 2 = -3 | i / 2 = 0.5 | i + b > 3 | t + 1 = 1
u + 1 > 17 | t * t > 20 | i + 1.5 = 2.5 | d * 2 = 5 | d + 1 > 3.5 | d * d >= 6.25 | d - 0.5 <= 2 | d / 2 > 1.2 | f + 1.5 > 3 | f * 2 <= 3 | g + 1e0 > 1
g * g > 6 | g - g = 0 | 1 / g > 1 | floor(g) = 2 | ceil(g) = 3 | round(g) = 2 | round(g) = 3 | trunc(g) = -2 | floor(d) = 2 | round(d, 1) = 2.5 | ceil(d) = 4
sqrt(g) > 1 | ln(g) < 0 | exp(g) > 1 | power(i, 2) = 4 | sign(g) = 1 | sign(d) < 0 | least(i, 2) = 2 | greatest(i, 3) = 3 | least(g, 1) < 0 | greatest(g, 1) = 1
year(dt) = 2024 | month(dt) = 2 | day(dt) > 30 | quarter(dt) = 4 | week(dt) = 53 | dayofweek(dt) = 0 | isodow(dt) = 7 | dayofyear(dt) = 60 | year(ts) < 1970
hour(ts) = 12 | minute(ts) = 59 | second(ts) = 59 | extract(month FROM ts) = 2 | date_part('year', ts) = 2023 | date_trunc('month', ts) = TIMESTAMP '2024-01-01'
date_trunc('month', dt) = DATE '2024-01-01' | date_trunc('week', ts) >= '2024-01-29' | date_trunc('hour', ts) < '2024-01-01' | date_trunc('year', tz) = '2024-01-01'
CAST(ts AS DATE) = '2023-12-31' | ts::DATE < DATE '2000-01-01' | CAST(dt AS TIMESTAMP) > TIMESTAMP '2024-01-31' | last_day(dt) = '2024-01-31' | dt + 1 = '2024-01-01'
dt - 30 > '2024-01-01' | dt + INTERVAL 1 MONTH = TIMESTAMP '2024-02-29' | ts + INTERVAL 1 DAY > '2024-01-01' | ts - INTERVAL '2 hours' < '1960-02-29' | dt - INTERVAL 1 YEAR < DATE '2023-02-28'
date_diff('day', dt, DATE '2024-01-01') = 1 | datediff('week', dt, DATE '2024-02-04') = 0 | datediff('week', ts, TIMESTAMP '2024-01-05 00:00:00') = -1 | datediff('week', dt, DATE '2024-01-01') = 1 | date_diff('month', ts, TIMESTAMP '2024-02-01 00:00:00') > 0 | epoch(ts) > 1704067200 | epoch_ms(ts) < 0 | epoch_ms(ts) = 0 | dt - DATE '2024-01-01' = 30
CAST(i AS BIGINT) = 5 | CAST(g AS INTEGER) = 2 | TRY_CAST(b AS INTEGER) = 4 | TRY_CAST(i AS TINYINT) IS NULL | CAST(i AS DOUBLE) / 3 > 1 | CAST(d AS INTEGER) = 3 | CAST(f AS DOUBLE) > 0.1
left(s, 1) = 'a' | substr(s, 1, 2) >= 'ab' | 'x' || s = 'xab' | concat('x', s) = 'x' | concat('x', s) < 'xb' | starts_with(s, 'ab') | s ^@ 'a' | prefix(s, 'a') | s ILIKE 'kb%' | s ILIKE 'A%'
regexp_matches(s, '^ab?c') | s SIMILAR TO 'ab.*' | s GLOB 'a*' | s LIKE '_b' | s LIKE 'a_c' | s NOT LIKE 'ab%' | upper(s) = 'AB' | length(s) = 2 | s[1:1] = 'a'
i = t | i < b | t <= u | i = g | i = d | d < g | f = g | f < d | b = f | dt = ts | dt < ts | ts <> dt | tz > ts | i < i | g = g | i + 1 = b - 1 | dt = CAST(ts AS DATE)
i IS DISTINCT FROM 5 | i IS NOT DISTINCT FROM NULL | i IS NOT DISTINCT FROM t | (i, t) = (1, 3) | (i, t) IN ((1, 3), (5, 0)) | NOT ((i, s) = (1, 'a')) | (i, s) <> (1, NULL)
CASE WHEN i > 1 THEN 'a' WHEN i < 0 THEN 'b' END = 'a' | CASE i WHEN 1 THEN t ELSE 3 END = 3 | COALESCE(i, 0) = 0 | COALESCE(g, 0) <= 0.1 | NULLIF(i, 5) = 5 | IF(i > 0, TRUE, NULL)
COALESCE(i > 0, FALSE) | NULLIF(i, 5) IS NULL | COALESCE(dt, '2024-01-01') = '2024-01-01' | isnan(g) | NOT isnan(f) | (i > 3) IS NULL | (i > 3) IS NOT TRUE | i IN [1, NULL] | NOT (i IN [1, NULL])
f IN (0.1, 7::FLOAT) | f NOT IN (1.5, 'nan'::FLOAT) | i IN (2000000000, 1::FLOAT) | i NOT IN (2000000001, 1::FLOAT) | g IN (0.1, 7::FLOAT) | i BETWEEN t AND 5 | i IN (1, t) | g BETWEEN 0 AND i | year(dt) IN (2023, 1969) | year(dt) = 2024 AND month(dt) = 2 | year(dt) <> 2024 OR month(dt) > 1 | random() > 2 | i + random() > 5
""".replace("\n", " | ").strip(" |").split(" | ")  # fmt: skip


def tables(draw: random.Random, units: int) -> tuple[pa.Table, Statistics]:
    """Rows with NULLs, in units, and what their exact ranges are."""
    columns: dict[str, list[object]] = {name: [] for name in TYPES}
    numbers: list[int] = []
    parts: dict[str, list[list[object]]] = {name: [] for name in TYPES}
    for unit in range(units):
        rows = draw.randint(1, 4)
        numbers += [unit] * rows
        for name, (_, values) in TYPES.items():
            pool = draw.sample(values, draw.randint(1, 2)) + ([None] if draw.random() < 0.3 else [])
            drawn = [draw.choice(pool) for _ in range(rows)]
            columns[name] += drawn
            parts[name].append(drawn)
    ranges = {}
    for name, (type, _) in TYPES.items():
        plain = [[v for v in unit if v is not None and v == v] for unit in parts[name]]
        flags = [
            [bool(unit) for unit in plain],
            [None in unit for unit in parts[name]],
            [any(v is not None and v != v for v in unit) for unit in parts[name]],
        ]
        lower, upper = ([end(unit, default=None) for unit in plain] for end in (min, max))
        ranges[name] = Ranges(pa.array(lower, type), pa.array(upper, type), *(pa.array(f, pa.bool_()) for f in flags))
    table = pa.table(
        {"unit": pa.array(numbers, pa.int64())} | {n: pa.array(v, TYPES[n][0]) for n, v in columns.items()}
    )
    return table, Statistics(pa.array([len(unit) for unit in parts["i"]]), ranges)


SCHEMA = Schema(pa.schema({name: type for name, (type, _) in TYPES.items()}))


def outcomes_by_unit(con: duckdb.DuckDBPyConnection, sql: str, units: int) -> list[set[bool | None] | None]:
    """What the rows of each unit yield; None for a unit in which the engine refuses to evaluate a row."""
    try:
        pairs = con.execute(f"SELECT DISTINCT unit, ({sql}) FROM rows").fetchall()
    except duckdb.Error:
        alone = [f"SELECT ({sql}) FROM rows WHERE unit = {unit}" for unit in range(units)]
        return [outcomes_or_none(con, each) for each in alone]
    return [{outcome for of, outcome in pairs if of == unit} for unit in range(units)]


def outcomes_or_none(con: duckdb.DuckDBPyConnection, statement: str) -> set[bool | None] | None:
    try:
        return {outcome for (outcome,) in con.execute(statement).fetchall()}
    except duckdb.Error:
        return None


@pytest.mark.parametrize("zone", ["UTC", pytest.param("Europe/Berlin", marks=pytest.mark.slow)])
def test_no_outcome_of_duckdb_is_missing(zone: str) -> None:
    con = duckdb.connect()
    con.execute(f"SET TimeZone='{zone}'")
    rows, statistics = tables(random.Random(7), 30)
    con.register("rows", rows)
    bound = {sql: bind(sql, SCHEMA, timezone=zone) for sql in PREDICATES}
    for sql, each in bound.items():
        found = pruning.outcomes(each, statistics)
        assert "random" not in sql or found.may_match.all()
        for unit, real in enumerate(outcomes_by_unit(con, sql, len(statistics))):
            if real is None:
                assert not found.all_match[unit], (sql, unit)
                continue
            for outcome, claimed in ((True, found.can_be_true), (False, found.can_be_false), (None, found.can_be_null)):
                assert outcome not in real or claimed[unit], (sql, outcome, unit, each.tree)


def double(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    argument = binding.scalar(node.expressions[0])
    return Call("double", (argument,), pa.int64())


def test_a_function_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """To bind, to prove and to print a new function, its entry is all there is to write."""
    entry = Function(
        "double",
        "double(x)",
        "integers",
        "rises",
        lambda spans, call: replace(spans[0], type=call.type, lower=spans[0].lower * 2, upper=spans[0].upper * 2),
        named={"double": double},
    )
    before = bind("double(x) > 20", Schema(pa.schema({"x": pa.int64()})))
    monkeypatch.setitem(FUNCTIONS, entry.name, entry)
    monkeypatch.setitem(NAMED, "double", double)
    statistics = statistics_of(x=ranges_of(pa.array([1, 9]), pa.array([5, 12])))
    bound = bind("double(x) > 20", Schema(pa.schema({"x": pa.int64()})))
    assert pruning.outcomes(before, statistics).may_match.tolist() == [True, True]
    assert pruning.outcomes(bound, statistics).may_match.tolist() == [False, True]
    assert "| `double(x)` | integers | duckdb spark | rises |" in predicates_page()


def test_two_foreign_parts_over_one_column_are_walked_once() -> None:
    bound = bind("hash(s) = 1 OR jaccard(s, 'b') > 2", SCHEMA)
    _, statistics = tables(random.Random(1), 3)
    assert pruning.outcomes(bound, statistics).may_match.all()


# --- spark's casts and date functions of texts: what docs/spark.md says of them ---


DAY = dt.date(2018, 2, 27)
VALUES = {
    "s": pa.array(["2018-02-27"]),
    "d": pa.array([DAY]),
    "ts": pa.array([dt.datetime(2018, 2, 27, 10, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
    "n": pa.array([1_519_689_600]),
}
STRINGS_SCHEMA = Schema(pa.schema({name: value.type for name, value in VALUES.items()}))
UNITS = statistics_of(**{name: ranges_of(value) for name, value in VALUES.items()})


def may_match(sql: str) -> bool:
    return bool(pruning.outcomes(bind(sql, STRINGS_SCHEMA, dialect="spark"), UNITS).may_match[0])


@pytest.mark.parametrize("constant", ["to_date('{}')", "DATE('{}')", "CAST('{}' AS DATE)", "DATE '{}'"])
def test_constants_are_folded(constant: str) -> None:
    assert may_match(f"d = {constant.format('2018-02-27')}")
    assert not may_match(f"d = {constant.format('2018-02-28')}")
    assert not may_match(f"ts >= {constant.format('2018-02-28')}")


@pytest.mark.parametrize("sql", statements("functions", "of texts", "pruning"))
def test_functions_of_texts_skip_nothing(sql: str) -> None:
    assert may_match(sql)


@pytest.mark.parametrize("sql", ["to_date(ts) = DATE '2019-01-01'", "year(ts) = 2019", "CAST(ts AS DATE) < d"])
def test_functions_of_moments_skip(sql: str) -> None:
    assert not may_match(sql)
