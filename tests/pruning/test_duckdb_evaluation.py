"""What DuckDB computes for single values: only what is known to be deterministic, and it reaches nothing else."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import cast

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.pruning.fuzz import table_failures
from tests.pruning.oracles import DuckDBOracle
from tests.statements.cases import statements
from tests.tables import ranges_of, statistics_of
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.language.functions import COMPUTED, evaluated_by_duckdb
from zskip.language.tree import Computable, Opaque, Reference, walk
from zskip.pruning import Budget, duckdb_evaluation
from zskip.pruning.duckdb_evaluation import Evaluator
from zskip.stats import Statistics

SCHEMA = Schema(pa.schema({"s": pa.string(), "x": pa.int32(), "b": pa.binary(), "st": pa.struct({"a": pa.string()})}))
WORDS = ["Ab", "b", None]


def evaluated(sql: str, parts: tuple[str, ...] = ("s",)) -> list[int] | None:
    """What DuckDB is asked, and says, of three strings."""
    question = Computable(Opaque(sql, (), ""), (Reference(".".join(parts), pa.string()),), sql, "UTC")
    found = duckdb_evaluation._evaluated_by_duckdb(question, [pa.array(WORDS, pa.string())], Budget(1 << 50))
    return None if found is None else found.tolist()


def single(values: list[object], type: pa.DataType, path: str = "s") -> Statistics:
    """One unit for each value, which is its only one."""
    return statistics_of(**{path: ranges_of(pa.array(values, type))})


def test_it_computes_what_is_known() -> None:
    assert evaluated("upper(\"s\") = 'AB'") == [1, 0, 2]
    assert evaluated('"st"."a" IS NULL', ("st", "a")) == [0, 0, 1]
    assert evaluated('CAST("s" AS INTEGER) = 1') == [-1, -1, 2]


def test_an_overflow_is_seen_behind_a_comparison() -> None:
    """A constant that is moved to the other side would hide it. Without ANSI mode Spark wraps there."""
    schema, highest = Schema(pa.schema({"x": pa.int32()})), single([2**31 - 1], pa.int32(), "x")
    for dialect, ansi in (("spark", False), ("spark", True), ("duckdb", True)):
        found = pruning.outcomes(bind("x + 10 < 0", schema, dialect=dialect, ansi=ansi), highest)
        assert (found.can_fail if ansi else found.can_be_true).all(), dialect


@pytest.mark.parametrize(
    "sql",
    [
        *statements("not_computed", "not asked", "pruning"),
        "#1 = 'a'",
        '"s" = ',
        "(" * 300 + "\"s\" = 'a'" + ")" * 300,
    ],
)
def test_it_is_not_asked_of_anything_else(sql: str) -> None:
    assert evaluated(sql) is None


HOSTILE = [
    "COPY (SELECT 1) TO '{victim}'",
    "\"s\" = 'a'); COPY (SELECT 1) TO '{victim}'; SELECT (1",
    "query('COPY (SELECT 1) TO ''{victim}''') = 1",
    "\"s\" = E'\\'); COPY (SELECT 1) TO ''{victim}''; --'",
    "\"s\" = $$'); COPY (SELECT 1) TO '{victim}'; --$$",
    "upper(\"s\") = 'A'\x00); COPY (SELECT 1) TO '{victim}'; --",
    "ATTACH '{victim}'",
    "SET threads = 4",
]


@pytest.mark.parametrize("sql", HOSTILE)
def test_hostile_text_reaches_nothing(sql: str, tmp_path: Path) -> None:
    """As if a parser before it had taken the text for a harmless expression."""
    victim = tmp_path / "victim"
    assert evaluated(sql.format(victim=victim)) in (None, [0, 0, 2])
    assert not victim.exists()


def test_the_private_database_is_locked_in(tmp_path: Path) -> None:
    """The second wall: what is never asked would fail."""
    con = Evaluator("UTC").con
    for sql in (
        f"COPY (SELECT 1) TO '{tmp_path}/x'",
        f"ATTACH '{tmp_path}/x'",
        f"SELECT * FROM read_text('{tmp_path}/*')",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 4",
        "SET enable_external_access = true",
        "SET TimeZone = 'Europe/Berlin'",
    ):
        with pytest.raises(duckdb.Error):
            con.cursor().execute(sql).fetchall()
    assert not list(tmp_path.iterdir())


def test_every_function_that_may_be_asked_is_deterministic() -> None:
    named = evaluated_by_duckdb()
    assert len(named) == len(set(named))
    assert Evaluator("UTC").functions == set(named)
    known = {name for (name,) in duckdb.sql("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()}
    assert set(named) <= known | {"if", "row"}


def test_a_function_that_duckdb_calls_volatile_is_never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the table of functions held it."""
    monkeypatch.setitem(COMPUTED, "numbers", (*COMPUTED["numbers"], "random", "nextval", "now"))
    assert not {"random", "nextval", "now"} & Evaluator("UTC").functions


@pytest.mark.parametrize(
    ("sql", "computable"),
    [
        ("upper(s) = 'A'", True),
        ("s = 'A'", False),  # ranges say everything
        ("upper(s) = st.a", True),
        ("upper(st.a) = 'A'", True),
        ("md5(b) = '00'", False),  # a UUID, perhaps
        ("upper(s) = '" + "A" * 5000 + "'", False),
    ],
)
def test_what_is_computable(sql: str, computable: bool) -> None:
    bound = bind(sql, SCHEMA)
    assert any(isinstance(node, Computable) for node in walk(bound.tree)) == computable
    other = bind(sql, SCHEMA, dialect="trino")
    assert not any(isinstance(node, Computable) for node in walk(other.tree))


def test_a_field_of_a_struct_is_computed_but_not_the_struct() -> None:
    statistics = single(["x", "y"], pa.string(), "st.a")
    found = pruning.outcomes(bind("upper(st.a) = 'X'", SCHEMA), statistics)
    assert found.may_match.tolist() == [True, False]
    found = pruning.outcomes(bind("struct_extract(st, 'a') = 'X'", SCHEMA), statistics)
    assert found.may_match.all()


def test_a_bound_that_is_cut_inside_a_character_is_no_value() -> None:
    cut = pa.array([b"\xc3"], pa.binary()).view(pa.string())
    statistics = statistics_of(s=ranges_of(cut))
    assert pruning.outcomes(bind("length(s) = 5", SCHEMA), statistics).may_match.all()


def test_threads_get_the_answers_of_their_own_questions() -> None:
    def ask(number: int) -> list[bool]:
        bound = bind(f"length(s) = {number % 4}", SCHEMA, timezone=("UTC", "Asia/Kathmandu")[number % 2])
        return pruning.outcomes(bound, single(["", "a", "bb", "ccc"], pa.string())).may_match.tolist()

    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(ask, range(32))):
            assert found == [size == number % 4 for size in range(4)]


def test_many_values_are_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    right = duckdb_evaluation._evaluated_by_duckdb

    def counted(question: Computable, values: list[pa.Array], budget: Budget) -> np.ndarray | None:
        asked.append(len(values[0]))
        return right(question, values, budget)

    monkeypatch.setattr(duckdb_evaluation, "_evaluated_by_duckdb", counted)
    random = Random(1)
    words = [random.choice(["de", "fr", "Nl"]) for _ in range(10_000)]
    found = pruning.outcomes(bind("upper(s) = 'NL'", SCHEMA), single(words, pa.string()))
    assert found.may_match.tolist() == [word == "Nl" for word in words]
    assert asked == [3]


COSTLY = [
    "regexp_matches('" + "a" * 1900 + "' || s, '(.*a){0,900}b')",
    "regexp_matches(s, '(.*a){0,99}(b{0,99}){0,99}')",
    "regexp_matches(s, '((a{3}){4}){5,}b{200}c{200}')",
    "regexp_matches(s, '" + "\\pL" * 100 + "')",
    "regexp_matches(s, s || '{0,900}')",  # a pattern that is no constant
    "regexp_replace(s, 'a.*b|a', 'x', 'g') = ''",  # may multiply the length of a text
    "length(replace(s || s || s, 'a', s || s || s)) > 5",
    "nfc_normalize(s) = ''",
    "bin(s) = ''",
    "s::BLOB::VARCHAR = ''",
]


class Watched:
    """A connection that calls a function before it is given rows to evaluate."""

    def __init__(self, con: duckdb.DuckDBPyConnection, before: Callable[[], object]) -> None:
        self.con, self.before = con, before

    def register(self, name: str, rows: object) -> None:
        self.before()
        self.con.register(name, rows)

    def __getattr__(self, name: str) -> object:
        return getattr(self.con, name)


def test_what_could_take_long_is_not_begun_and_what_is_usual_is_tried() -> None:
    asked: list[str] = []
    evaluator = Evaluator("UTC")
    evaluator.con = cast("duckdb.DuckDBPyConnection", Watched(evaluator.con, lambda: asked.append("asked")))
    rows = pa.table({"s": ["a" * 2000]})
    for sql in COSTLY:
        assert evaluator.answer(sql, {("s",): rows["s"].chunk(0)}, rows, Budget()) is None, sql
    assert not asked
    for sql in (
        "regexp_matches(s, '^[0-9]{1,3}(\\.[0-9]{1,3}){3}$')",
        "regexp_extract(s, '(\\d+)-(\\w+)', 1) = 'x'",
        "upper(trim(split_part(s, '-', 1))) LIKE '%X%'",
        "md5(lower(s)) = ''",
        "strptime(s, '%Y-%m-%d') > TIMESTAMP '2020-01-01'",
    ):
        expression = evaluator._allowed_expression(sql, [("s",)])
        assert expression is not None, sql
        parts = list(duckdb_evaluation._expressions(expression))
        assert Budget().take(1000, duckdb_evaluation._work_of_row(parts, len(sql), 60)) >= 5


def test_a_budget_that_is_spent_keeps() -> None:
    words = [f"w{number}" for number in range(500)]
    bound = bind("md5(s || 'x') = 'no word has this digest'", SCHEMA)
    assert pruning.outcomes(bound, single(words, pa.string()), budget=Budget(0)).may_match.all()
    assert not pruning.outcomes(bound, single(words, pa.string()), budget=Budget(1 << 50)).may_match.any()


def test_what_a_budget_does_not_reach_is_kept() -> None:
    """The first rows are tried, and the others are not."""
    words = [f"w{number}" for number in range(500)]
    bound = bind("reverse(s) = 'no word'", SCHEMA)
    found = pruning.outcomes(bound, single(words, pa.string()), budget=Budget(1 << 20))
    assert 0 < int(found.may_match.sum()) < 500
    assert not pruning.outcomes(bound, single(words, pa.string()), budget=Budget(1 << 50)).may_match.any()


def test_long_strings_are_kept() -> None:
    long = "a" * 5000
    found = pruning.outcomes(bind("upper(s) = 'B'", SCHEMA), single([long, "a", "b"], pa.string()))
    assert found.may_match.tolist() == [True, False, True]


def test_evaluations_do_not_wait_for_one_another() -> None:
    """One that is under way holds nothing that another one needs."""
    entered, done = threading.Event(), threading.Event()
    slow, fast = Evaluator("UTC"), Evaluator("UTC")

    def wait() -> None:
        entered.set()
        assert done.wait(60)

    slow.con = cast("duckdb.DuckDBPyConnection", Watched(slow.con, wait))
    rows = pa.table({"s": ["a"]})
    columns = {("s",): rows["s"].chunk(0)}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(slow.answer, "upper(s) = 'A'", columns, rows, Budget(1 << 50))
        assert entered.wait(60)
        assert fast.answer("upper(s) = 'A'", columns, rows, Budget(1 << 50)) is not None
        found = pruning.outcomes(bind("lower(s) = 'q'", SCHEMA), single(["x", "y"], pa.string()))
        assert not found.may_match.any()
        done.set()
        assert first.result(60) is not None


def test_a_wrong_answer_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzz bites on what is computed: answers that are turned round break the law."""
    right = duckdb_evaluation._evaluated_by_duckdb

    def turned(question: Computable, values: list[pa.Array], budget: Budget) -> np.ndarray | None:
        found = right(question, values, budget)
        return None if found is None else np.where(found < 2, 1 - np.abs(found), found)

    monkeypatch.setattr(duckdb_evaluation, "_evaluated_by_duckdb", turned)
    oracles: dict[str, DuckDBOracle] = {}
    assert any(failure for seed in range(8) for failure in table_failures(seed, oracles, Counter()))


PAIRS = Schema(pa.schema({"a": pa.string(), "b": pa.string(), "x": pa.int32(), "f": pa.float64()}))


def pairs(null: bool = False) -> Statistics:
    """Three units: x-y with 3, x or y with 1 to 4, and strings of which nothing but an order is known."""
    return statistics_of(
        a=ranges_of(pa.array(["x", "x", "x"]), pa.array(["x", "x", "z"]), null=null),
        b=ranges_of(pa.array(["y", "x", "y"]), null=null),
        x=ranges_of(pa.array([3, 1, 1], pa.int32()), pa.array([3, 4, 1], pa.int32()), null=null),
        f=ranges_of(pa.array([0.0, -1.0, 0.0]), pa.array([0.0, -1.0, 1.0]), null=null),
    )


@pytest.mark.parametrize(
    ("sql", "may", "every"),
    [
        ("a || '-' || b = 'x-y'", [True, False, True], [True, False, False]),
        ("length(a) > x", [False, False, True], [False, False, False]),
        ("a || x::VARCHAR IN ('x4', 'x9')", [False, True, True], [False, False, False]),
        ("length(a || b) = x - 1", [True, True, True], [True, False, False]),
        ("CASE WHEN upper(a) = 'X' THEN x ELSE 0 END > 2", [True, True, False], [True, False, False]),
        ("CASE WHEN upper(a) = 'Y' THEN x ELSE 0 END >= 1", [False, False, True], [False, False, False]),
        ("coalesce(nullif(upper(a), 'X'), b) = 'y'", [True, False, True], [True, False, False]),
        ("gcd(x, length(b)) + bit_count(x) = 3", [True, True, False], [True, False, False]),
        ("a || (1 / f)::VARCHAR = 'x-inf'", [True, False, True], [False, False, False]),  # f is 0.0, or -0.0
    ],
)
def test_several_columns_of_few_values_are_tried_together(sql: str, may: list[bool], every: list[bool]) -> None:
    found = pruning.outcomes(bind(sql, PAIRS), pairs())
    assert (found.may_match.tolist(), found.all_match.tolist()) == (may, every)


def test_null_is_among_the_combinations() -> None:
    bound = bind("coalesce(upper(a), '-') || coalesce(b, '+') IN ('-+', '-y')", PAIRS)
    assert pruning.outcomes(bound, pairs(null=True)).may_match.tolist() == [True, True, True]
    assert pruning.outcomes(bound, pairs()).may_match.tolist() == [False, False, True]


def test_names_that_differ_in_case_alone_are_not_computed() -> None:
    """DuckDB would take the one for the other."""
    schema = Schema(pa.schema({"a": pa.string(), "A": pa.string()}))
    bound = bind('upper(a) = upper("A")', schema, case_sensitive=True)
    assert bound.columns == {"a", "A"}
    assert not any(isinstance(node, Computable) for node in walk(bound.tree))


def test_duckdb_is_not_asked_what_spark_gives() -> None:
    bound = bind("upper(s) = 'STRASSE'", SCHEMA, dialect="spark")
    found = pruning.outcomes(bound, single(["straße", "street", None], pa.string()))
    assert found.may_match.all()
    assert not found.all_match.any()
