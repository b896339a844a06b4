"""Statements that read the names of columns, hide tables behind CTEs, or make keys that no table has: as in DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import zskip
from tests.statements.cases import statements
from tests.statements.fuzz import Sides, difference, sides
from tests.statements.random_statements import Statement

NAMES = statements("names_and_keys", "names")
KEYS = statements("names_and_keys", "keys")
CTES = statements("names_and_keys", "common table expressions")
# Their columns have a name of t0 in a spelling that a stub may have.
FOREIGN = [
    'CREATE TABLE cased AS SELECT range::INTEGER AS "KEy", range::INTEGER + 20 AS b FROM range(40)',
    'CREATE VIEW cased_view AS SELECT b - 20 AS "KEy", b FROM cased',
    "CREATE VIEW rolled_view AS SELECT key FROM cased GROUP BY ROLLUP (key)",
    "CREATE MACRO rolled(name) AS TABLE SELECT key FROM query_table(name) GROUP BY ROLLUP (key)",
]

# Each ends in a table "made".
STORED = statements("names_and_keys", "stored")


@pytest.mark.parametrize("text", STORED)
def test_a_statement_stores_what_it_stores_in_duckdb(text: str, given: Sides) -> None:
    stored = []
    for con, run in ((given.plain, given.plain.execute), (given.own, partial(_run, given))):
        run(text)
        made = con.sql("FROM made")
        stored.append((made.columns, made.types, sorted(map(repr, made.fetchall()))))
        con.execute("DROP TABLE made")
    assert stored[0] == stored[1]


def _run(given: Sides, text: str) -> None:
    zskip.sql(text, given.own, tables=given.tables)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with sides(tmp_path_factory.mktemp("names")) as made:
        for con in (made.own, made.plain):
            for statement in FOREIGN:
                con.execute(statement)
        yield made


@pytest.mark.parametrize("text", [*NAMES, *KEYS, *CTES])
def test_a_statement_gives_what_duckdb_gives(text: str, given: Sides) -> None:
    kind, failure = difference(given, Statement(text, None, ordered=False))
    assert failure is None
    assert kind in ("answers", "empty answers")


@pytest.mark.parametrize("name", ['"id"', 'a"b', '"', 'a".b', "it's", "a.b", '"x"."y"'])
def test_bounds_of_a_column_belong_to_it_whatever_its_name(name: str, tmp_path: Path) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    rows = pa.table({"id": range(1000), "g": [number // 100 for number in range(1000)], name: range(50_000, 51_000)})
    zskip.write(rows, tmp_path / "t", by="g", files=10)
    statement = (
        f"SELECT count(*), sum(a.id), max(b.{quoted}) FROM {{0}} a JOIN {{0}} b ON a.g = b.g "
        "WHERE a.id < 700 AND b.id < 5"
    )
    with duckdb.connect() as con:
        expected = con.sql(statement.format("rows")).fetchall()
        assert zskip.sql(statement.format(f"'{tmp_path}/t'"), con).fetchall() == expected
