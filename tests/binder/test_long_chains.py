"""Long chains of one comparison are read apart from the parser: they mean what they meant, wherever they stand."""

from __future__ import annotations

import random
import sys
import time

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from zskip import expr, pruning
from zskip.binder import bind, bind_cache, chains, computable
from zskip.binder.sql_text import LongChain, Source
from zskip.errors import SqlError
from zskip.expr.tree import In, Not
from zskip.schema import Schema
from zskip.stats import Ranges, Statistics

TYPES = {
    "i": pa.int64(),
    "t": pa.int8(),
    "u": pa.uint64(),
    "f": pa.float64(),
    "c": pa.decimal128(9, 2),
    "s": pa.string(),
    "d": pa.date32(),
    "b": pa.bool_(),
    "Mixed Case": pa.int32(),
    "map": pa.int32(),
}
SCHEMA = Schema(pa.schema(TYPES))


def chain(form: str, link: str, count: int = 3) -> str:
    """A form again and again: `{n}` a number, `{s}` a text and `{d}` a date in it."""
    days = (f"DATE '2020-01-{number % 28 + 1:02}'" for number in range(count))
    return link.join(form.format(n=n * 7 - 7, s=f"'k{n}'", d=day) for n, day in enumerate(days))


I = chain("i = {n}", " OR ")  # noqa: E741
NOT_I = chain("i <> {n}", " AND ")
LEGS = chain("(i = {n} AND s = {s})", " OR ")
ROWS = "(i, s) IN (" + chain("({n}, {s})", ", ") + ")"

TAKEN = [
    I, NOT_I, LEGS, ROWS,
    chain("t = {n}", " OR "), chain("u != {n}", " AND "), chain("s = {s}", "\nor\n"), chain("d = {d}", " OR "),
    chain("I = {n}", " OR "), chain('"Mixed Case" = {n}', " OR "), chain("(s = {s})", " OR "),
    chain("i = {n} AND d = {d}", " OR "), chain("(i={n} AND i=7)", " OR "),
    "(i, d, s) IN (" + chain("({n}, {d}, {s})", " , ") + ")",
    f"f > 3 AND ({I})", f"f > 3 OR {I}", f"f > 3 AND {NOT_I} AND b", f"NOT ({I})", f"NOT {ROWS}", f"NOT ({LEGS}) AND b",
    f"({I}) AND ({NOT_I})", f"{I} OR f > 3 AND {ROWS}", f"{NOT_I} -- ({I[:9]}\n AND b", f"s = '({I})' OR ({NOT_I})",
]  # fmt: skip
"""Chains that are bound as arrays."""

LEFT = [
    f"NOT {I}", f"NOT {NOT_I}", f"NOT {LEGS}", f"f > 3 AND {I}", f"{I} AND f > 3", f"f > 3 AND {LEGS}",
    f"f BETWEEN 1 AND {NOT_I}", f"({I}) = TRUE", f"({I}) IS NULL", f"b IN ({I}, TRUE)", f"b = ({I})", f"b = {I}",
    f"coalesce({I}, TRUE)", f"CASE WHEN {I} THEN b ELSE {NOT_I} END", f"{I} + 5 > 3", f"{I}.5", f"{I}e3", f"i + {I}",
    f"{ROWS} = TRUE", f"NOT {ROWS} IS NULL", chain("f = {n}", " OR "), chain("c = {n}", " OR "),
    chain("s = {n}", " OR "),
    chain("i = {s}", " OR "), chain("d = {s}", " OR "), chain("map = {n}", " OR "), chain("x.i = {n}", " OR "),
    chain("nothing = {n}", " OR "), chain("(i = {n} AND t = 1{n})", " OR "), f"{I} OR t = 5", f"{NOT_I} AND t <> 5",
    f"{LEGS} OR (i = 5 AND s = NULL)", f"(i, s) IN ({chain('({n}, {s})', ', ')}, (NULL, 'x'))",
    f"(s, i) IN ({chain('({n}, {s})', ', ')})", f"d = DATE '2020-02-30' OR {chain('d = {d}', ' OR ')}",
    f"s = 'it''s' OR {chain('s = {s}', ' OR ')}", f"{chain('s = {s}', ' OR ')} OR s = 'it''s'", f"s = '{I}'",
    f"b /* {I} */", f"{NOT_I} -- {I}\n AND b",
    f"{I} OR {I} OR", f"({I}", f"{NOT_I} AND", f"{I} XOR b", f"{I} OR i = 99999999999999999999",
]  # fmt: skip
"""What must not be taken for one, or not whole; each means what it means term by term."""


@pytest.fixture
def short_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "SHORTEST", 0)
    monkeypatch.setattr(chains, "FEWEST", 2)


def bound(sql: str, dialect: str = "duckdb") -> expr.Predicate | str:
    bind_cache._kept.clear()
    try:
        return bind(sql, SCHEMA, dialect=dialect)
    except SqlError as error:
        return f"{type(error).__name__}: {error}"


def units() -> Statistics:
    draw = np.random.default_rng(5)
    numbers = np.sort(draw.integers(-9, 20, (2, 200)), axis=0)
    texts = np.sort(draw.choice(["", "k0", "k1", "k2", "z"], (2, 200)), axis=0)
    nulls = pa.array(draw.random(200) < 0.3)
    yes = pa.array(np.ones(200, bool))

    def column(type: pa.DataType) -> Ranges:
        if pa.types.is_string(type):
            low, high = (pa.array(each.tolist()) for each in texts)
        elif pa.types.is_boolean(type):
            low, high = pa.array(numbers[0] > 0), pa.array(numbers[1] > 0)
        elif pa.types.is_date(type):
            low, high = ((pa.array(each + 18262).cast(pa.int32())).cast(type) for each in numbers)
        elif pa.types.is_decimal(type):
            low, high = (pa.array(each).cast(pa.decimal128(19, 0)).cast(type) for each in numbers)
        else:
            low, high = (pa.array(np.maximum(each, 0) if type == pa.uint64() else each).cast(type) for each in numbers)
        return Ranges(low, high, yes, nulls, pa.array(np.zeros(200, bool)))

    return Statistics(pa.array(np.full(200, 10)), {name: column(type) for name, type in TYPES.items()})


def answers(given: expr.Predicate | str) -> list[list[bool]] | str:
    if isinstance(given, str):
        return given
    found = pruning.outcomes(given, units())
    return [each.tolist() for each in (found.can_be_true, found.can_be_false, found.can_be_null)]


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("sql", TAKEN + LEFT)
def test_a_chain_says_what_its_terms_say(
    sql: str, dialect: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computable, "_LONGEST", 0)  # of what is shorter than any chain, DuckDB may be asked
    plain = bound(sql, dialect)
    request.getfixturevalue("short_ones_too")
    found = bound(sql, dialect)
    assert answers(found) == answers(plain)
    if isinstance(found, expr.Predicate):
        assert isinstance(plain, expr.Predicate)
        assert (found.text, found.columns) == (plain.text, plain.columns)


@pytest.mark.parametrize("sql", TAKEN)
def test_chains_are_taken(sql: str, short_ones_too: None, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Source] = []
    right = chains.stand_for_chains

    def seen(tokens: object, source: Source) -> bool:
        kept.append(source)
        return right(tokens, source)  # type: ignore[arg-type]

    monkeypatch.setattr(sys.modules["zskip.binder.bind"], "stand_for_chains", seen)
    bound(sql)
    assert any(isinstance(each, LongChain) for each in kept[-1].lists.values())


def rows(count: int = 400) -> pa.Table:
    draw = random.Random(3)
    day = np.datetime64("2020-01-01")
    values = {
        "i": [draw.choice([None, -7, 0, 7, 5, 99]) for _ in range(count)],
        "t": [draw.choice([None, -7, 0, 7, 5]) for _ in range(count)],
        "u": [draw.choice([None, 0, 7, 5]) for _ in range(count)],
        "f": [draw.choice([None, 0.0, 7.0, 5.5]) for _ in range(count)],
        "c": [None] * count,
        "s": [draw.choice([None, "k0", "k1", "k2", "x"]) for _ in range(count)],
        "d": [draw.choice([None, *(day + np.arange(5)).tolist()]) for _ in range(count)],
        "b": [draw.choice([None, True, False]) for _ in range(count)],
        "Mixed Case": [draw.choice([None, -7, 0, 7, 5]) for _ in range(count)],
        "map": [None] * count,
    }
    return pa.table({name: pa.array(values[name], type) for name, type in TYPES.items()})


@pytest.mark.parametrize("sql", TAKEN)
def test_the_engine_reads_in_a_chain_what_it_reads_in_its_terms(sql: str, short_ones_too: None) -> None:
    found = bound(sql)
    assert isinstance(found, expr.Predicate)
    table = rows()
    with duckdb.connect() as con:
        con.register("rows", table)
        both = con.sql(f"SELECT ({sql}\n), ({found.sql()}\n) FROM rows").fetchall()
    assert len({left for left, _ in both}) > 1
    assert [left for left, _ in both] == [right for _, right in both]


def test_a_hundred_thousand_terms_are_one_list() -> None:
    ored = bound(chain("i = {n}", " OR ", 100_000))
    anded = bound(chain("i <> {n}", " AND ", 100_000))
    assert isinstance(ored, expr.Predicate)
    assert isinstance(anded, expr.Predicate)
    assert isinstance(ored.tree, In)
    assert len(ored.tree.values) == 100_000
    assert isinstance(anded.tree, Not)
    assert len(anded.conjuncts) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "i = 1 AND " * 30_000 + "i = 1",
        chain("i = {n} OR t > {n}", " OR ", 20_000),
        chain("(i = {n} AND s = {s}", " OR ", 20_000) + ")" * 20_000,
        "(i, s) IN (" + chain("({n}, {s})", ", ", 20_000) + ", (5, f))",
        chain("i = {n}", " OR ", 199) + " OR " + chain(chain("i = {n}", " OR ", 199) + " OR t = {n}", " OR ", 100),
        "s = '" + "i = 1 OR " * 50_000 + "'",
    ],
    ids=["one leg", "broken at once", "never closed", "a row that is no constant", "each too short", "in a text"],
)
def test_the_search_reads_nothing_twice(sql: str) -> None:
    began = time.process_time()
    chains.chained(Source(sql, sql), "duckdb", lambda name: None)
    assert time.process_time() - began < 1
