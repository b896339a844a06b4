"""Texts that are absurdly long: an answer or an error of zskip's own, in bounded time and memory."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

import zskip
from zskip import pruning
from zskip.binder import bind
from zskip.binder.workload_sql import named_tables, table_query
from zskip.core.schema import Schema
from zskip.errors import SqlError
from zskip.language.tree import Opaque
from zskip.pruning import evaluate
from zskip.stats import Ranges, Statistics

SCHEMA = Schema(pa.schema({"n": pa.int32(), "w": pa.string(), "f": pa.float64(), "c": pa.decimal128(20, 2)}))
DIGITS = "9" * 5000
NOTHING = Statistics(pa.array([1]), {})


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize(
    "sql",
    [
        f"n = {DIGITS}",
        f"n = -{DIGITS}",
        f"n + 1 = {DIGITS}",
        f"c = {DIGITS}.{DIGITS}",
        f"f < 1e{DIGITS}",
        f"n IN ({DIGITS}, 1)",
        f"n IN ({', '.join([DIGITS] * 60)})",
        f"n BETWEEN 1 AND {DIGITS}",
        f"n = CAST('{DIGITS}' AS BIGINT)",
        f"c = CAST(n AS DECIMAL({DIGITS}))",
        f"substr(w, {DIGITS}) = 'x'",
        f"round(f, {DIGITS}) = 2",
        f"n = 0x{DIGITS}",
    ],
)
def test_numbers_of_any_length_are_kept_or_refused(sql: str, dialect: str) -> None:
    try:
        bound = bind(sql, SCHEMA, dialect=dialect)
    except SqlError:
        return
    assert pruning.outcomes(bound, NOTHING).may_match.all()


def test_a_parameter_of_any_number_is_missed() -> None:
    with pytest.raises(SqlError):
        bind(f"n = ${DIGITS}", SCHEMA, params=[1])


def test_a_name_of_many_dots_is_looked_for_quickly() -> None:
    """The nearest name was searched for in quadratic time: 14 seconds."""
    started = time.process_time()
    with pytest.raises(SqlError, match="There is no column"):
        bind("q" + ".b" * 4_000 + " = 1", SCHEMA)
    assert time.process_time() - started < 5


def test_a_list_of_many_expressions_is_kept() -> None:
    bound = bind(f"n IN ({', '.join(f'n + {i}' for i in range(1_200))})", SCHEMA)
    assert isinstance(bound.tree, Opaque)
    assert "more than 1,000 expressions" in bound.tree.reason.text
    few = bind(f"n IN ({', '.join(f'n + {i}' for i in range(20))})", SCHEMA)
    assert not isinstance(few.tree, Opaque)


def test_a_condition_of_many_words_is_kept() -> None:
    bound = bind(f"greatest({', '.join(['n + n'] * 2_400)}) = 1 AND w > 'c'", SCHEMA)
    assert isinstance(bound.conjuncts[0].tree, Opaque)
    assert "more than 5,000 words" in bound.conjuncts[0].tree.reason.text
    assert bound.columns == {"n", "w"}
    assert not pruning.outcomes(bound, single(n=3)).may_match.any()


@pytest.mark.parametrize("link", [" OR ", pytest.param(" AND ", marks=pytest.mark.slow)])
def test_of_many_conditions_those_past_a_thousand_are_kept(link: str) -> None:
    sums = link.join(f"n + {i} <> {i - 3}" for i in range(1_100))
    bound = bind(f"w = 'a' AND ({sums}{link}f = 5{link}abs(n) > 2) AND w < 'b'", SCHEMA)
    assert bound.columns == {"n", "w", "f"}
    assert '"f" = 5' in bound.sql()
    assert not pruning.outcomes(bound, single(n=3)).may_match.any()  # an OR has no proof, w = 'a' has
    hidden = bind(f"{sums}{link}abs(n) > 2", SCHEMA)
    assert "more than 1,000 conditions" in str([each.opaque for each in pruning.reasons(hidden, single(n=3))])
    assert pruning.outcomes(hidden, single(n=3)).may_match.all()
    assert not pruning.outcomes(hidden, single(n=3)).all_match.any()
    for wrong, error in [("nobody + 1 = 2", "There is no column"), ("sum(n) = 2", "aggregate"), ("n +", "not parse")]:
        with pytest.raises(SqlError, match=error):
            bind(f"{sums}{link}{wrong}", SCHEMA)


@pytest.mark.parametrize("sql", ["CASE {} END = 3", "CASE {} END", "CASE n {} END = 3", "coalesce({}, 0) = 3"])
def test_a_choice_among_many_is_kept(sql: str) -> None:
    """It was called too deep, after more than a second."""
    when = {"CASE {} END": "WHEN n = {i} THEN w = 'x{i}'", "CASE n {} END = 3": "WHEN {i} THEN {i}"}
    each = "nullif(n, {i})" if "coalesce" in sql else when.get(sql, "WHEN n = {i} THEN {i}")
    text = (", " if "coalesce" in sql else " ").join(each.format(i=i) for i in range(500))
    bound = bind(sql.format(text), SCHEMA)
    assert pruning.outcomes(bound, NOTHING).may_match.all()
    assert "a choice among more than 180" in str([each.opaque for each in pruning.reasons(bound, NOTHING)])


def single(**values: int) -> Statistics:
    """One file whose columns hold one value each; of `w`, "b"."""
    exact, no = pa.array([True]), pa.array([False])
    ends = {"w": pa.array(["b"]), **{name: pa.array([value], pa.int32()) for name, value in values.items()}}
    return Statistics(pa.array([1]), {name: Ranges(each, each, exact, no, no) for name, each in ends.items()})


def test_a_proof_is_forgotten_with_its_predicate() -> None:
    bound = bind(f"n IN ({', '.join(map(str, range(100_000)))})", SCHEMA)  # too long a text to be remembered
    pruning.outcomes(bound, NOTHING)
    only = evaluate._proofs[bound]
    proof, predicate = weakref.ref(only.cuts), weakref.ref(bound)
    del only
    assert proof() is not None
    del bound
    gc.collect()
    assert predicate() is None
    assert proof() is None


@pytest.mark.parametrize("subscripts", ["[1]", "[1:2]", "[(1)]", "[w[1][1]]"])
def test_many_subscripts_are_refused(subscripts: str) -> None:
    """Nine thousand characters kept the parser busy for half a minute."""
    with pytest.raises(SqlError, match="nests too deep"):
        bind("w" + subscripts * 900 + " = 'a'", SCHEMA)


@pytest.mark.parametrize("type", ["MAP<INT,", "ARRAY<", "STRUCT<x: ", "ARRAY<STRUCT<x: MAP<INT, "])
@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_types_within_types_are_refused(type: str, dialect: str) -> None:
    """The parser was busy for minutes with MAP<INT, MAP<INT, … in Spark's dialect."""
    for closing in ("INT" + ">" * 400 * type.count("<"), ""):
        with pytest.raises(SqlError, match="nests too deep"):
            bind(f"CAST(n AS {type * 400}{closing}) IS NULL", SCHEMA, dialect=dialect)


def test_types_here_and_there_are_read() -> None:
    casts = " OR ".join(f"CAST(w AS MAP<INT, ARRAY<ARRAY<INT>>>) IS NULL AND n < {i}" for i in range(200))
    assert bind(casts, SCHEMA).columns == {"n", "w"}


@pytest.mark.parametrize("call", ["DATE(", "STRUCT(", "CHAR (", "abs(DATE(", "INT[", "DATE[(", "ENUM("])
@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_calls_named_as_types_in_one_another_are_refused(call: str, dialect: str) -> None:
    """The parser's time doubled with each: DATE(DATE(… of 150 characters did not end."""
    brackets = {"(": ")", "[": "]"}
    closing = "".join(brackets.get(each, "") for each in reversed(call))
    with pytest.raises(SqlError, match="nests too deep"):
        bind(f"{call * 30}1{closing * 30} = n", SCHEMA, dialect=dialect)
    with pytest.raises(SqlError, match="nests too deep"):
        bind(f"{call * 8}{'n + ' * 4_000}1{closing * 8} = n", SCHEMA, dialect=dialect)
    with suppress(SqlError):
        bind(f"{call * 4}w{closing * 4} = n", SCHEMA, dialect=dialect)


def test_calls_named_as_types_are_read() -> None:
    bound = bind(" OR ".join(f"DATE(TIMESTAMP(w)) = DATE '2020-01-01' + {i}" for i in range(300)), SCHEMA)
    assert bound.columns == {"w"}


def test_what_breaks_the_parser_does_not_parse() -> None:
    with pytest.raises(SqlError, match="does not parse"):
        bind("MAP(MAP(1)) = n", SCHEMA, dialect="spark")


@pytest.mark.parametrize("size", ["w", "DECIMAL(1)"])
def test_a_type_of_no_number_as_its_size_is_kept(size: str) -> None:
    bound = bind(f"n::DECIMAL({size}) = 1", SCHEMA)
    assert pruning.outcomes(bound, single(n=3)).may_match.all()


def test_many_methods_in_a_row_are_refused() -> None:
    """The parser's time grew with the square of them: minutes for 12,000."""
    with pytest.raises(SqlError, match="nests too deep"):
        bind("w" + ".upper()" * 3_000 + " = 'a'", SCHEMA)
    bind("w" + ".upper()" * 50 + " = 'a'", SCHEMA)
    bind(" OR ".join(["w.upper().lower() = 'a'"] * 300), SCHEMA)


def test_a_few_subscripts_here_and_there_are_read() -> None:
    bind(" OR ".join(["w[1][1][1] = 'a' AND n IN ([1][1], [2][1])"] * 300), SCHEMA)


@pytest.mark.parametrize("sql", ["w = '\ud800'", "\udcff = 1", '"\ud800" = 1', "n = 1 -- \udfff"])
def test_half_of_a_surrogate_pair_is_no_text(sql: str) -> None:
    with pytest.raises(SqlError, match=r"\\ud"):
        bind(sql, SCHEMA)


LONG = "a" * 100_000


@pytest.mark.parametrize(
    "sql",
    [
        f"w ILIKE '{LONG}%'",
        f"w IN ({', '.join(repr(LONG + str(i)) for i in range(12))})",
        f"coalesce(w, '{LONG}') = 'b'",
        f"least(w, '{LONG}') = 'b'",
        f"greatest({', '.join(f'n + {i}' for i in range(2_000))}) = 1",
    ],
)
def test_long_texts_and_calls_over_many_files_take_little_memory(sql: str) -> None:
    """Each was held once for every file: 2 to 10 GB, and an error of pyarrow's."""
    files = 4_000
    some, whole = pa.array(["a", "b"] * (files // 2)), pa.array([1, 2] * (files // 2), pa.int32())
    exact, no = pa.array([True] * files), pa.array([False] * files)
    units = Statistics(
        pa.array([1] * files), {"w": Ranges(some, some, exact, no, no), "n": Ranges(whole, whole, exact, no, no)}
    )
    before = pa.total_allocated_bytes()
    bound = bind(sql, SCHEMA)
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, pa.total_allocated_bytes() - before)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        pruning.outcomes(bound, units)
    finally:
        done.set()
        watching.join()
    assert peak < 200 * 2**20


@pytest.mark.parametrize(
    "sql",
    [
        "w ILIKE '{}%'".format("a" * 1_000_000),
        "w LIKE '{}b'".format("a%" * 500_000),
        "regexp_matches(w, '{}')".format("a" * 1_000_000),
        "regexp_matches(w, '{}')".format("(a)" * 300_000),
        "w GLOB '{}'".format("a*" * 500_000),
    ],
)
def test_of_a_long_pattern_nothing_is_proved(sql: str) -> None:
    """A regular expression of a million characters kept `bind` busy for minutes, an ILIKE took 238 MB."""
    started = time.process_time()
    bound = bind(sql, SCHEMA)
    assert time.process_time() - started < 5
    assert pruning.outcomes(bound, NOTHING).may_match.all()
    assert pruning.reasons(bound, NOTHING)[0].opaque[0].why.text


# --- sQL that nests or chains absurdly deep: an answer or an error of zskip's own, and never a broken stack ---


Result = TypeVar("Result")

DEEP_SCHEMA = Schema(pa.schema([("a", pa.int64()), ("s", pa.string())]))

DEEP = {
    "parentheses": lambda n: "(" * n + "a = 1" + ")" * n,
    "NOTs": lambda n: "NOT " * n + "a = 1",
    "CASEs": lambda n: "CASE WHEN " * n + "a = 1" + " THEN true END" * n,
    "functions": lambda n: "abs(" * n + "a" + ")" * n + " = 1",
    "lists": lambda n: "[" * n + "1" + "]" * n + " = s",
    "signs": lambda n: "- " * n + "a = 1",
    "sums": lambda n: "a + " * n + "a = 1",
    "casts": lambda n: "a" + "::INT" * n + " = 1",
    "tests": lambda n: "a IS NOT " * n + "NULL",
    "structs": lambda n: "a::" + "STRUCT(x " * n + "INT" + ")" * n + " IS NULL",
    "unclosed": lambda n: "(" * n,
}


@pytest.mark.parametrize("shape", ["parentheses", "NOTs", "CASEs", "functions", "signs", "sums", "casts"])
def test_many_levels_are_read_and_more_refused(shape: str) -> None:
    limit = sys.getrecursionlimit()
    assert bind(DEEP[shape](180), DEEP_SCHEMA).columns == {"a"}
    if shape != "casts":  # of the same type in a row, they are one
        with pytest.raises(SqlError, match="more than 200 levels"):
            bind(DEEP[shape](1_000), DEEP_SCHEMA)
    assert sys.getrecursionlimit() == limit


def at_frame(frame: int, work: Callable[[], Result]) -> Result:
    """The result of ``work``, called with so many more frames on the stack."""
    return work() if frame == 0 else at_frame(frame - 1, work)


@pytest.mark.parametrize("shape", DEEP)
def test_a_caller_deep_in_its_own_stack_gets_an_answer_or_an_error_of_ours(shape: str) -> None:
    statistics = Statistics(pa.array([1]), {})
    for frame in range(0, 850, 50):
        with suppress(SqlError):
            predicate = at_frame(frame, lambda: bind(DEEP[shape](150), DEEP_SCHEMA))
            found = at_frame(frame, lambda predicate=predicate: pruning.outcomes(predicate, statistics))
            assert found.may_match.tolist() == [True]


@pytest.mark.parametrize("shape", DEEP)
def test_any_more_is_read_or_refused(shape: str) -> None:
    for levels in (1_000, 12_000):
        with suppress(SqlError):
            assert bind(DEEP[shape](levels), DEEP_SCHEMA).columns <= {"a", "s"}


def test_a_statement_and_a_workload_are_read_or_refused(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": range(10)}), tmp_path / "t", by=["a"], files=2)
    query = table_query(f"SELECT * FROM t WHERE {DEEP['functions'](180)}", DEEP_SCHEMA)
    assert query.condition.count("ABS(") == 180
    deep = f"SELECT * FROM t WHERE {DEEP['functions'](12_000)}"
    with pytest.raises(SqlError, match="nests too deep"):
        table_query(deep, DEEP_SCHEMA)
    with pytest.raises(SqlError, match="nests too deep"):
        named_tables(deep)
    with pytest.raises(SqlError, match="expression depth"):  # DuckDB reads whole statements itself
        zskip.sql(deep, tables={"t": table})


def test_a_long_sum_is_planned_and_explained(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": range(100)}), tmp_path / "t", by=["a"], files=4)
    found = table.plan(DEEP["sums"](180).replace("= 1", "= 181"))
    assert found.to_arrow().to_pydict() == {"a": [1]}
    assert "181" in str(found.explain())
