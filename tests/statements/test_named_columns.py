"""Stubs with the columns alone that a statement names lead to the rules that stubs of all columns lead to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import zskip
from tests.statements.fuzz import Sides, sides
from tests.statements.random_statements import random_statement
from zskip.errors import SqlSyntaxError
from zskip.statements.duckdb import parsed_statements, pruned_tables, statement
from zskip.statements.duckdb.statement import rewrite
from zskip.statements.duckdb.stubs import make_stubs, named_columns
from zskip.statements.duckdb.table_places import shape, table_places, tokens, without_long_lists


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with sides(tmp_path_factory.mktemp("named")) as made:
        yield made


def _rules(text: str, params: Any, given: Sides, *, named: bool) -> tuple[Any, ...] | None:
    """What each rule is given for a statement; None where nothing can be told, or some column might be unnamed."""
    catalog = statement._catalog(given.own, given.tables, None, "list")
    try:
        found = parsed_statements.statements(given.own, text)
    except SqlSyntaxError:
        return None
    parsed = parsed_statements.parse_tables(found[0], catalog)
    if len(found) != 1 or not parsed.found or not parsed.settled or not parsed.places.only_named:
        return None
    given_params = params if parsed.statement.named_parameters else None
    places = parsed.places if named else replace(parsed.places, only_named=False)
    rules = pruned_tables._rules(replace(parsed, places=places), given.own, given_params, False)
    return sorted(rules.scans), sorted(rules.joins), sorted(map(repr, rules.first)), sorted(map(repr, rules.aggregates))


def _compare(given: Sides, seeds: range) -> int:
    """How many statements had conditions, by both kinds of stubs the same."""
    with_conditions = 0
    for seed in seeds:
        one = random_statement(Random(seed))
        by_named = _rules(one.text, one.params, given, named=True)
        by_all = _rules(one.text, one.params, given, named=False)
        assert by_named == by_all, f"seed {seed}: {one.text}"
        with_conditions += bool(by_all and any(scan.conditions for scan in by_all[0]))
    return with_conditions


def test_named_columns_lead_to_the_same_rules(given: Sides) -> None:
    assert _compare(given, range(7_000_000, 7_000_200)) >= 10


@pytest.mark.slow
def test_named_columns_lead_to_the_same_rules_in_many_statements(given: Sides) -> None:
    assert _compare(given, range(7_000_100, 7_003_000)) > 200


BY_NAME = """
SELECT a FROM t
SELECT c.a, -a * (b * 2) FROM t c WHERE c.b IN (SELECT b FROM u WHERE u.a = c.a)
SELECT count(*), sum(a) AS total FROM t JOIN u USING (k) GROUP BY b HAVING sum(a) > 3 ORDER BY total DESC LIMIT 5
SELECT a FROM t WHERE EXISTS (SELECT * FROM u WHERE u.k = t.k AND u.b < 5)
SELECT count(*) FROM t WHERE a > 3 OR NOT EXISTS (SELECT u.* FROM u, v WHERE u.k = t.k AND v.k = u.k)
SELECT extract(year FROM d), substring(s FROM 1 FOR 2) FROM t WHERE a IS DISTINCT FROM b
WITH e AS (SELECT b FROM t) SELECT b FROM e UNION ALL SELECT x.a FROM t JOIN u ON t.k = u.k
SELECT t, sum(b) FROM (SELECT x.a AS t, b FROM t x JOIN t ON t.k = x.k) y WHERE t = 'x' GROUP BY t
SELECT t FROM u WHERE a IN (SELECT b FROM t)
"""
BY_MORE_THAN_NAMES = """
SELECT x.a FROM (t JOIN u ON t.k = u.k) AS x
SELECT * FROM t
SELECT a, t.* FROM t
SELECT count(COLUMNS(*)) FROM t
SELECT DISTINCT ON (a) * FROM t
SELECT a FROM t UNION (SELECT * FROM u)
FROM t
TABLE t
SELECT a FROM t WHERE EXISTS (SELECT DISTINCT * FROM u OFFSET 3)
SELECT a FROM t WHERE EXISTS (SELECT * FROM u GROUP BY ALL HAVING count(*) > 1)
SELECT a FROM t WHERE EXISTS (SELECT * FROM u EXCEPT SELECT * FROM v)
SELECT a FROM t WHERE EXISTS (SELECT COLUMNS('a') FROM u)
SELECT a FROM t WHERE EXISTS (SELECT 1 FROM (SELECT * FROM u) WHERE b = 1)
SELECT a FROM t WHERE a IN (SELECT * FROM u)
WITH e AS (FROM t) SELECT b FROM e
SELECT a FROM t AS x(a)
SELECT a FROM t count(a, b)
SELECT b FROM t AS last(a, b)
SELECT b FROM t last(a, b)
SELECT b FROM (SELECT a AS c, b AS d FROM t) first(a, b)
SELECT b FROM t JOIN u ON t.a = u.a JOIN v last(a, b) ON t.a = v.a
SELECT a FROM 't' AS 'x' (a, b)
WITH e(a) AS (SELECT b FROM t) SELECT a FROM e
WITH c AS (SELECT a FROM t), e(x) AS MATERIALIZED (SELECT a FROM c) SELECT x FROM e
SELECT #1 FROM t
SELECT a FROM t NATURAL JOIN u
SELECT a FROM t UNION ALL BY NAME SELECT a FROM u
PIVOT t ON a USING sum(b)
DESCRIBE t
SELECT c FROM t c
SELECT a FROM t AS "C" WHERE c IS NULL
SELECT last FROM t AS last
SELECT a FROM 'lake/conn' WHERE conn IS NOT NULL
SELECT (SELECT t FROM u LIMIT 1) FROM t
SELECT a FROM (t JOIN u USING (k)) WHERE u = 1
SELECT a FROM t JOIN u ON t.a = u.a JOIN v ON v = 1
SELECT s FROM (SELECT b AS a FROM t) s
SELECT unnamed_subquery FROM (SELECT b FROM t)
SELECT a FROM t, (SELECT t AS x) y
SELECT a FROM t WHERE EXISTS (SELECT 1 FROM (SELECT 1 FROM u WHERE T IS NULL) v)
SELECT a FROM t JOIN (u JOIN v ON v.k = u.k) ON v IS NULL
WITH e AS (SELECT b FROM t) SELECT e IS NULL FROM e
SELECT c.typeof() FROM t c
SELECT typeof(a) FROM t
"""


@pytest.mark.parametrize("text", BY_NAME.strip().splitlines())
def test_statements_that_reach_columns_by_name(text: str) -> None:
    assert table_places(text).only_named


@pytest.mark.parametrize("text", BY_MORE_THAN_NAMES.strip().splitlines())
def test_statements_that_may_reach_other_columns(text: str) -> None:
    assert not table_places(text).only_named


def test_a_column_is_named_in_any_case_and_wherever_its_name_stands() -> None:
    text = "SELECT q.Ts, \"id\", 1kept, '\u212aelvin' FROM t -- hidden"
    kept = ["ts", "TS", "id", "kept", "kelvin", "hidden", "id.orig_h", "\u00e9"]
    schema = pa.schema([(name, pa.int64()) for name in ("t_s", *kept, "i", "d")])
    assert named_columns(schema, text).names == kept


def test_a_stub_has_the_columns_that_are_named() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.date32())])
    for text, columns in (("SELECT B FROM t WHERE c > b", 2), ("SELECT count(*) FROM t", 1)):
        (stub,) = make_stubs([schema], text, only_named=True)
        assert len(stub.rows.schema) == columns


def test_rows_of_the_index_have_the_columns_that_are_named(tmp_path: Path, given: Sides) -> None:
    rows = pa.table({"a": range(100), "b": range(100), "c": range(100)})
    zskip.write(rows, tmp_path / "t", by="a", files=10)
    for text, others in (
        ("SELECT count(*) FROM '{}' WHERE a < 55", 0),
        ("SELECT count(*) FROM '{}' t(x) WHERE x < 55", 2),
    ):
        made = rewrite(text.format(tmp_path / "t"), given.own)
        assert given.own.execute(made.sql, made.parameters).fetchall() == [(55,)]
        assert made.sql.count("CAST(NULL AS BIGINT)") == others


NUMBERS = ", ".join(map(str, range(-20, 500)))
STRINGS = ", ".join(f"'it''s {number}'" for number in range(500))
WITH_LONG_LISTS = f"""
SELECT a FROM 'x' WHERE a IN ({NUMBERS}) AND b IN (SELECT b FROM 'y')
SELECT a FROM 'x' WHERE s IN ({STRINGS}) OR EXISTS (FROM 'y')
SELECT a IN ({NUMBERS}), '(', ',', (FROM 'x'), ')' FROM 'y' WHERE s IN ( {STRINGS} )
SELECT "({NUMBERS})" FROM 'x' JOIN 'y' USING (a) -- ({NUMBERS}) ' FROM 'z'
SELECT $$it's ({STRINGS}$$ FROM 'x', 'y' WHERE a IN ({NUMBERS})
SELECT E'\\'(', {STRINGS} FROM 'x', 'y'
SELECT /* ' ( */ f({NUMBERS}) FROM 'x', 'y'
"""


@pytest.mark.parametrize("text", WITH_LONG_LISTS.strip().splitlines())
def test_long_lists_move_nothing(text: str) -> None:
    assert len(without_long_lists(text)) == len(text)
    assert {(place.name, place.start) for place in table_places(text).tables} == {
        ("x", text.rfind("'x'")),
        ("y", text.rfind("'y'")),
    }


def test_statements_that_differ_in_numbers_have_one_shape() -> None:
    text = "SELECT a, '{n}', \"{n}\", t{n}.b, #1, $1, 2.{n}, 1e{n} FROM 'lake/{n}' t{n} WHERE c = {n} -- {n}"
    for number in (20, 75):
        one, other = text.replace("{n}", str(number)), text.replace("{n}", "11")
        assert shape(one) == one.replace(f"c = {number}", "c = 11")
        assert table_places(one).tables[0].start == table_places(other).tables[0].start
    found = table_places("FROM range(20) r(x), 't' PIVOT (sum(b) FOR a IN (10, 20))")
    assert [place.name for place in found.tables] == ["t"]


def test_texts_are_no_parts_of_long_lists() -> None:
    commas = "',', " * 50
    text = f"SELECT '(', {commas} (FROM x), {commas} ')'"
    assert [place.name for place in table_places(text).tables] == ["x"]


def test_long_lists_take_no_words() -> None:
    for constants in (NUMBERS, STRINGS):
        assert len(tokens(f"SELECT a FROM t WHERE a IN ({constants}) OR a IN ({constants})")) < 25
