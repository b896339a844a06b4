"""Predicates that are bound again: always what binding each anew would give."""

from __future__ import annotations

import datetime as dt
import gc
import os
import pickle
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from zskip import language as expr
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.errors import SqlError
from zskip.language.tree import Call, Literal, Reference, walk

FIELDS = {"x": pa.int32(), "f": pa.float64(), "s": pa.string(), "d": pa.date32(), "z": pa.timestamp("us", "UTC")}
SCHEMA = Schema(pa.schema(FIELDS))


def described(found: expr.Predicate) -> list[str]:
    return [found.text, found.sql(), *(re.sub("0x[0-9a-f]+", "", repr(node)) for node in walk(found.tree))]


def test_the_same_text_is_bound_once() -> None:
    first = bind("x = 5 AND s LIKE 'a%'", SCHEMA)
    assert bind("x = 5 AND s LIKE 'a%'", SCHEMA) is first


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"timezone": "UTC"}, {"timezone": "Europe/Berlin"}),
        ({"dialect": "duckdb"}, {"dialect": "spark"}),
        ({"dialect": "spark", "ansi": True}, {"dialect": "spark", "ansi": False}),
        ({"case_sensitive": True}, {"case_sensitive": False}),
    ],
)
def test_settings_are_part_of_what_is_known(one: dict[str, object], other: dict[str, object]) -> None:
    assert bind("z > '2020-01-01'", SCHEMA, **one) is not bind("z > '2020-01-01'", SCHEMA, **other)  # type: ignore[arg-type]


def test_parameters_that_python_holds_for_equal_are_told_apart() -> None:
    values = [1, 1.0, True, "1", Decimal("1"), Decimal("1.0"), 0.0, -0.0, None, b"1", dt.date(2020, 1, 1), "2020-01-01"]
    values += [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC), np.int8(1), np.float32(1)]
    texts = [bind("s = ?", SCHEMA, params=[value]).sql() for value in values]
    assert texts == [bind("s = $a", SCHEMA, params={"a": value}).sql() for value in values]
    assert len(set(texts)) == len(values) - 2  # numpy's are those of Python


def test_names_of_parameters_are_told_apart() -> None:
    sql = "x > $a AND x < $b"
    one = bind(sql, SCHEMA, params={"a": 1, "b": 2})
    other = bind(sql, SCHEMA, params={"b": 1, "a": 2})
    assert one.sql() != other.sql()


@pytest.mark.parametrize("sql", ["z < now()", "d = current_date", "z < CURRENT_TIMESTAMP", "d = today()"])
def test_the_clock_is_read_each_time(sql: str) -> None:
    early, late = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (2020, 2021))
    frozen = [bind(sql, SCHEMA, now=now).sql() for now in (early, late, early)]
    assert frozen[0] == frozen[2] != frozen[1]
    assert "20" in bind(sql, SCHEMA).sql()


def test_another_schema_is_another_predicate() -> None:
    """Of equal fields too; and of one that stands where a forgotten one stood."""
    for _ in range(300):
        type = random.choice([pa.int32(), pa.string(), pa.date32()])
        schema = Schema(pa.schema({"x": type}))
        found = bind("x = '5'", schema) if type != pa.date32() else bind("x IS NULL", schema)
        assert found.schema is schema
        del schema, found
        gc.collect(0)


def test_what_fails_fails_again() -> None:
    for _ in range(2):
        with pytest.raises(SqlError):
            bind("nobody = 5", SCHEMA)
        with pytest.raises(SqlError):
            bind("x = ?", SCHEMA, params=[])
        with pytest.raises(SqlError):
            bind("x = ?", SCHEMA, params=[object()])


def test_only_so_many_are_kept() -> None:
    first = bind("x = -1", SCHEMA)
    for number in range(300):
        bind(f"x = {number}", SCHEMA)
    assert bind("x = -1", SCHEMA) is not first
    long = "s = '" + "a" * 200_000 + "'"
    assert bind(long, SCHEMA) is not bind(long, SCHEMA)


def test_threads_share_what_is_known() -> None:
    def ask(number: int) -> bool:
        return bind("x = ?", SCHEMA, params=[number % 7]).sql() == f'"x" = {number % 7}'

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(400)))


def test_a_term_is_hashed_anew_in_another_process() -> None:
    sent = "import sys, pickle; from zskip.language.tree import Call\n"
    sent += "term = pickle.load(sys.stdin.buffer)\n"
    sent += "assert hash(term) == hash(Call(term.function, term.arguments, term.type, term.options))"
    term = Call("add", (Reference("x", pa.int32()), Literal(pa.scalar(1))), pa.int64())
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    subprocess.run([sys.executable, "-c", sent], input=pickle.dumps(term), check=True, env=environment)
