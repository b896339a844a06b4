"""Stubs with the columns alone that a statement names lead to the rules that stubs of all columns lead to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import zskip
from tests.statements.cases import statements
from tests.statements.fuzz import Sides, sides
from tests.statements.random_statements import random_statement
from zskip.errors import SqlSyntaxError
from zskip.statements.duckdb import parsed_statements, pruned_tables, statement
from zskip.statements.duckdb.statement import rewrite
from zskip.statements.duckdb.stubs import make_stubs, named_columns
from zskip.statements.duckdb.table_places import shape, table_places, tokens, without_long_lists

CON = duckdb.connect()


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
    assert _compare(given, range(7_000_000, 7_000_100)) >= 5


@pytest.mark.slow
def test_named_columns_lead_to_the_same_rules_in_many_statements(given: Sides) -> None:
    assert _compare(given, range(7_000_100, 7_003_000)) > 200


BY_NAME = statements("named_columns", "by name")
BY_MORE_THAN_NAMES = statements("named_columns", "by more than names")


@pytest.mark.parametrize("text", BY_NAME)
def test_statements_that_reach_columns_by_name(text: str) -> None:
    assert table_places(text, CON).only_named


@pytest.mark.parametrize("text", BY_MORE_THAN_NAMES)
def test_statements_that_may_reach_other_columns(text: str) -> None:
    assert not table_places(text, CON).only_named


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
    assert {(place.name, place.start) for place in table_places(text, CON).tables} == {
        ("x", text.rfind("'x'")),
        ("y", text.rfind("'y'")),
    }


def test_statements_that_differ_in_numbers_have_one_shape() -> None:
    compared = "c = {n} AND d BETWEEN DATE '{n}-{n}-{n}' AND '{n}' AND c <> 1.{n} AND '{n}'"
    of_shape = "c = 11 AND d BETWEEN DATE '11-11-11' AND '11' AND c <> 1.11 AND '11'"
    text = f"""
        SELECT a, '{{n}}', "{{n}}", t{{n}}.b, #1, $1, 1e{{n}}, 'c = ''{{n}}'' = {{n}}'
        FROM 'lake/{{n}}' t{{n}}, '{{n}}' WHERE {compared} IN ('{{n}}', 'x{{n}}') -- c = '{{n}}'"""
    for number in (20, 75):
        one, other = text.replace("{n}", str(number)), text.replace("{n}", "11")
        assert shape(one) == text.replace(compared, of_shape).replace("{n}", str(number))
        assert table_places(one, CON).tables[0].start == table_places(other, CON).tables[0].start
    found = table_places("FROM range(20) r(x), 't' PIVOT (sum(b) FOR a IN (10, 20))", CON)
    assert [place.name for place in found.tables] == ["t"]


@pytest.mark.parametrize("text", statements("named_columns", "after a keyword"))
def test_a_table_after_a_keyword_has_a_place(text: str) -> None:
    (place,) = table_places(text, CON).tables
    assert (place.name, text[: place.end][-3:]) == ("x", "'x'")


def test_texts_are_no_parts_of_long_lists() -> None:
    commas = "',', " * 50
    text = f"SELECT '(', {commas} (FROM x), {commas} ')'"
    assert [place.name for place in table_places(text, CON).tables] == ["x"]


def test_long_lists_take_no_words() -> None:
    for constants in (NUMBERS, STRINGS):
        assert len(tokens(f"SELECT a FROM t WHERE a IN ({constants}) OR a IN ({constants})")) < 25
