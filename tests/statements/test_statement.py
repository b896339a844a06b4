"""Whole statements: over zskip tables they mean what they mean over plain Parquet, and they read less."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import zskip
from tests.statements.cases import counted, files_read, over, statements
from tests.tables import build_table, sorted_rows
from zskip.errors import InvalidOption, SqlSyntaxError, TableNotFound, UnknownParameter, UnsupportedSql
from zskip.statements.duckdb import sql, stubs
from zskip.statements.duckdb.statement import rewrite

N = 240


def _rows(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)

    def nullable(values: list[object]) -> list[object]:
        return [None if missing else value for value, missing in zip(values, random.random(N) < 0.15, strict=True)]

    return pa.table(
        {
            "a": pa.array(np.sort(random.integers(0, 30, N)), pa.int64()),
            "b": pa.array(nullable(random.integers(0, 12, N).tolist()), pa.int64()),
            "c": pa.array(nullable([f"s{value}" for value in random.integers(0, 9, N)])),
            "d": pa.array([datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=i) for i in range(N)]),
        }
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    for seed, name in enumerate(["t", "u"]):
        build_table(folder / name, _rows(seed), files=12, row_group_rows=10)
    return folder


def plainly(lake: Path, statement: str) -> str:
    """The same over every file; a table without an alias is known by its folder's name."""
    named = re.sub(r"\{(\w)\}(?! (AS|[xyzw])\b)", lambda name: f"{name[0]} AS {name[1].lower()}", statement)
    return over(lake, named, "/*.parquet")


PRUNED = counted("pruned", "pruned by what binds each table")


@pytest.mark.parametrize(("statement", "files"), PRUNED, ids=[statement for statement, _ in PRUNED])
def test_each_table_is_pruned_by_what_binds_it(
    lake: Path, reader: duckdb.DuckDBPyConnection, statement: str, files: list[int]
) -> None:
    assert files_read(lake, reader, statement) == files
    found = sql(over(lake, statement), reader)
    expected = reader.sql(plainly(lake, statement))
    assert found.columns == expected.columns
    assert found.types == expected.types
    assert sorted_rows(found.fetchall()) == sorted_rows(expected.fetchall())


@pytest.mark.parametrize(
    ("statement", "params"),
    [
        ("SELECT ? AS one, count(*) FROM {T} WHERE a = ? AND b < ?", ["?", 5, 9]),
        ("SELECT $2 AS one, count(*) FROM {T} WHERE a = $1 AND b < $3", [5, "?", 9]),
        ("SELECT $o AS one, count(*) FROM {T} WHERE a = $a AND b < $b", {"o": "$a", "a": 5, "b": 9}),
    ],
)
def test_parameters_reach_both_the_proof_and_the_statement(
    lake: Path, reader: duckdb.DuckDBPyConnection, statement: str, params: Any
) -> None:
    assert files_read(lake, reader, statement, params) == [1]
    found = sql(over(lake, statement), reader, params=params).fetchall()
    assert found == reader.execute(plainly(lake, statement), params).fetchall()


def test_a_parameter_without_a_value_is_named(lake: Path, reader: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UnknownParameter, match=r"\$low"):
        sql(over(lake, "FROM {T} WHERE a > $low"), reader, params={"high": 1})


@pytest.mark.parametrize(
    ("statement", "params", "named"),
    [
        ("FROM {T} WHERE a > ?", [1, 2], "number 2"),
        ("FROM {T} WHERE a > ? AND a < ?", [1], r"\$2"),
        ("FROM {T} WHERE a > $low", {"low": 1, "high": 2}, r"\$high"),
        ("FROM {T}", [1], "number 1"),
        ("SELECT 1", {"low": 1}, r"\$low"),
    ],
)
def test_too_few_or_too_many_parameters_are_named(
    lake: Path, reader: duckdb.DuckDBPyConnection, statement: str, params: Any, named: str
) -> None:
    with pytest.raises(UnknownParameter, match=named):
        sql(over(lake, statement), reader, params=params)


def test_names_of_parameters_differ_in_case(lake: Path, reader: duckdb.DuckDBPyConnection) -> None:
    counted = "SELECT count(*) FROM {T} WHERE a = "
    found = sql(over(lake, counted + "$Low"), reader, params={"low": 5}).fetchall()
    assert found == reader.execute(plainly(lake, counted + "5")).fetchall()


def test_a_statement_that_reads_the_clock_runs_at_once(tmp_path: Path, con: duckdb.DuckDBPyConnection) -> None:
    """Its files are chosen by the clock that it then compares with: later reads must not need other files."""
    moments = [datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=0.2 * step) for step in range(-40, 40)]
    build_table(tmp_path / "t", pa.table({"ts": pa.array(moments, pa.timestamp("us", "UTC"))}), files=80)
    statement = f"SELECT count(*) AS n, now() < '2000-01-01' FROM '{tmp_path}/t' WHERE ts < now() - INTERVAL 1 SECOND"
    ((_, plan),) = rewrite(statement, con).plans
    assert len(plan) < 60
    found = sql(statement, con)
    first = found.fetchall()
    assert found.columns == con.sql(statement.replace("/t'", "/t/*.parquet'")).columns
    time.sleep(0.5)
    assert found.fetchall() == first
    assert 25 < first[0][0] < 60


def test_statements_of_other_kinds_run_too(lake: Path, con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    sql(over(lake, "CREATE TABLE kept AS SELECT * FROM {T} WHERE a = 5"), con)
    expected = con.sql(plainly(lake, "FROM {T} WHERE a = 5")).fetchall()
    assert con.sql("FROM kept").fetchall() == expected
    sql(over(lake, f"COPY (SELECT * FROM {{T}} WHERE a = 5) TO '{tmp_path}/out.parquet'"), con)
    assert con.sql(f"FROM '{tmp_path}/out.parquet'").fetchall() == expected
    explained = sql(over(lake, "EXPLAIN SELECT * FROM {T} WHERE a = 5"), con).fetchall()
    assert "READ_PARQUET" in explained[0][1]


def test_the_connection_is_left_as_it_was(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    before = con.sql("FROM duckdb_settings()").fetchall()
    sql(over(lake, "SELECT count(*) FROM {T} WHERE a = 5"), con).fetchall()
    assert con.sql("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]
    assert con.sql("SELECT count(*) FROM duckdb_views() WHERE NOT internal").fetchall() == [(0,)]
    assert con.sql("SELECT count(*) FROM duckdb_variables()").fetchall() == [(0,)]
    assert con.sql("FROM duckdb_settings()").fetchall() == before


def test_named_tables_and_other_tables_stand_side_by_side(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE hosts AS SELECT 5 AS a UNION ALL SELECT 7")
    found = sql("SELECT count(*) FROM conn JOIN hosts USING (a) WHERE conn.a = 5", con, tables={"conn": f"{lake}/t"})
    assert found.fetchall() == con.sql(plainly(lake, "SELECT count(*) FROM {T} WHERE a = 5")).fetchall()
    plain = f"SELECT count(*) FROM '{lake}/t/part-00000.parquet'"
    assert sql(plain, con).fetchall() == con.sql(plain).fetchall()


def test_a_statement_that_does_not_parse_is_underlined(lake: Path, reader: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(SqlSyntaxError, match=r"\^"):
        sql(over(lake, "SELECT * FROM {T} WHERE a = = 5"), reader)
    with pytest.raises(duckdb.Error):
        sql(over(lake, "SELECT nothing FROM {T}"), reader)


def test_a_new_version_is_seen(tmp_path: Path, reader: duckdb.DuckDBPyConnection) -> None:
    import shutil

    build_table(tmp_path / "t", _rows(1).slice(0, 100))
    statement = f"SELECT count(*) FROM '{tmp_path}/t'"
    assert sql(statement, reader).fetchall() == [(100,)]
    shutil.rmtree(tmp_path / "t")
    build_table(tmp_path / "t", _rows(1).slice(0, 40))
    assert sql(statement, reader).fetchall() == [(40,)]


def test_a_cte_stands_before_a_table_of_its_name(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    statement = "WITH conn AS (SELECT * FROM conn WHERE a = 5) SELECT count(*) FROM conn"
    expected = con.sql(plainly(lake, "SELECT count(*) FROM {T} WHERE a = 5")).fetchall()
    assert sql(statement, con, tables={"conn": f"{lake}/t"}).fetchall() == expected
    assert sql("WITH conn AS (SELECT 7 AS a) FROM conn", con, tables={"conn": f"{lake}/t"}).fetchall() == [(7,)]
    named = f'WITH "{lake}/t" AS (SELECT 7 AS a) FROM "{lake}/t"'
    assert sql(named, con).fetchall() == [(7,)]


@pytest.mark.parametrize(
    ("setting", "condition"),
    [
        ("SET default_collation = 'nocase'", "c = 'S5'"),
        ("SET default_collation = 'nocase'", "c BETWEEN 'S5' AND 'S6'"),
        ("SET integer_division = true", "a / 4 = 4"),
        ("CREATE MACRO abs(x) AS 100", "abs(a) = 100"),
        ('CREATE MACRO "~~"(x, y) AS true', "c LIKE 'q%'"),
        ('CREATE MACRO "+"(x, y) AS 100', "a + 1 = 100"),
        ("CREATE MACRO greatest(x, y) AS 3", "greatest(a, 100) = 3"),
    ],
)
def test_a_condition_means_what_it_means_to_the_connection(
    lake: Path, con: duckdb.DuckDBPyConnection, setting: str, condition: str
) -> None:
    con.execute(setting)
    statement = f"SELECT count(*) FROM {{T}} WHERE {condition}"
    assert sql(over(lake, statement), con).fetchall() == con.sql(plainly(lake, statement)).fetchall()
    assert files_read(lake, con, "FROM {T} WHERE a = 5") == [1], "what it does not touch is proved as ever"


def test_a_plan_refuses_a_connection_to_which_it_means_something_else(
    lake: Path, con: duckdb.DuckDBPyConnection
) -> None:
    table = zskip.open(lake / "t")
    text, arithmetic = table.plan("c = 'S5'"), table.plan("a / 2 = 7 AND b > 3")
    con.execute("SET default_collation = 'nocase'")
    with pytest.raises(InvalidOption, match="default_collation = 'nocase'"):
        text.to_duckdb(con)
    con.execute("RESET default_collation; SET integer_division = true")
    assert text.to_duckdb(con).fetchall() == []  # no text's meaning depends on it
    with pytest.raises(InvalidOption, match="RESET integer_division"):
        arithmetic.to_duckdb(con)


def test_what_takes_no_parameters_runs_or_is_refused_with_a_reason(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    pivot = "PIVOT (SELECT a, b FROM {T} WHERE a < 3) ON a USING count(*) GROUP BY b"
    expected = sorted_rows(con.sql(plainly(lake, pivot)).fetchall())
    assert sorted_rows(sql(over(lake, pivot), con).fetchall()) == expected
    for kind in ("VIEW v", "MACRO m() AS TABLE"):
        with pytest.raises(UnsupportedSql, match=r"files that this table has now(.|\n)*\^\^"):
            sql(over(lake, f"CREATE {kind} {'' if 'TABLE' in kind else 'AS'} SELECT * FROM {{T}}"), con)
    con.execute("CREATE TABLE kept AS SELECT 5 AS a, 0 AS n")
    sql(over(lake, "MERGE INTO kept USING {T} t ON t.a = kept.a AND t.b IS NULL WHEN MATCHED THEN DELETE"), con)


def test_a_zone_that_only_duckdb_knows_proves_nothing(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    con.execute("SET TimeZone = 'AET'")
    statement = "SELECT count(*) FROM {T} WHERE a = 5 AND d < current_date AND now() > '2020-01-01'::TIMESTAMPTZ"
    assert sql(over(lake, statement), con).fetchall() == con.sql(plainly(lake, statement)).fetchall()
    assert files_read(lake, con, "FROM {T} WHERE d::TIMESTAMPTZ < '2020-01-01'::TIMESTAMPTZ") == [12]
    assert files_read(lake, con, "FROM {T} WHERE a = 5 AND d::TIMESTAMPTZ < '2030-01-01'") == [1], "no zone in a number"


def test_a_pruned_relation_can_be_read_further(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    pruned = sql(over(lake, "SELECT * FROM {T} WHERE a = 5"), con)
    plain = con.sql(plainly(lake, "SELECT * FROM {T} WHERE a = 5"))
    assert pruned.count("*").fetchall() == plain.count("*").fetchall()
    pruned.create_view("seen")
    assert con.sql("SELECT count(*), sum(a) FROM seen").fetchall() == plain.aggregate("count(*), sum(a)").fetchall()
    assert sorted(pruned.union(plain).distinct().fetchall()) == sorted(plain.distinct().fetchall())


def test_relations_are_combined(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    few = sql(over(lake, "SELECT a FROM {T} WHERE a < 3"), con)
    others = [
        sql(over(lake, "SELECT a FROM {T} WHERE a = $1"), con, params=[17]),
        zskip.open(lake / "t").plan("a = 17").to_duckdb(con).select("a"),
        con.sql("SELECT 17 AS a"),
        con.sql("SELECT ? AS a", params=[17]),
    ]
    for other in others:
        assert sorted(few.union(other).fetchall()) == sorted(few.fetchall() + other.fetchall())
    named = [sql(over(lake, f"SELECT a FROM {{T}} WHERE a = ${name}"), con, params={name: 7}) for name in "xy"]
    assert named[0].union(named[1]).fetchall() == 2 * named[0].fetchall()


@pytest.mark.parametrize("order", ["a", "s.a"])
def test_a_column_called_like_a_field_or_a_difference(
    order: str, tmp_path: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    """Above a window, a plan prints the names of columns without quotes."""
    rows = pa.table(
        {
            "a": range(240),
            "b": [number % 7 for number in range(240)],
            "a-b": [number * 37 % 240 for number in range(240)],
            "s": [{"a": 300 - number} for number in range(240)],
            "s.a": [number * 11 % 240 for number in range(240)],
        }
    )
    zskip.write(rows, tmp_path / "t", by=[order], files=24)
    for test in ('"s.a" = 4', '"s.a" IN (1, 77) OR b = 9', 'a < 50 AND "s.a" < 100', '"a-b" < 3', "q.s.a > 250"):
        query = f"SELECT count(*), sum(a) FROM (SELECT *, row_number() OVER (ORDER BY a) AS n FROM {{}}) q WHERE {test}"
        found = sql(query.format(f"'{tmp_path / 't'}'"), reader).fetchall()
        assert found == reader.sql(query.format("rows")).fetchall(), test


def test_a_table_without_a_file_has_its_columns(tmp_path: Path, reader: duckdb.DuckDBPyConnection) -> None:
    zskip.write(_rows(1).slice(0, 0), tmp_path / "t", by="a")
    found = sql(f"SELECT * FROM '{tmp_path}/t' WHERE a = 5", reader)
    assert found.columns == ["a", "b", "c", "d"]
    assert found.fetchall() == []


@pytest.mark.parametrize("name", ["conn.parquet", "who?", "events.json"])
def test_a_folder_may_be_called_like_a_file_or_a_pattern(
    tmp_path: Path, reader: duckdb.DuckDBPyConnection, name: str
) -> None:
    zskip.write(_rows(1), tmp_path / name, by="a", files=6)
    statement = f"SELECT count(*) FROM '{tmp_path / name}' AS t WHERE t.a = 5"
    ((_, plan),) = rewrite(statement, reader).plans
    assert 0 < len(plan) < 6
    assert sql(statement, reader).fetchall() == [(plan.count(),)]


def test_a_path_without_a_table_is_named(reader: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match="nothing/here"):
        zskip.sql("SELECT * FROM 'nothing/here'", reader)
    with pytest.raises(TableNotFound, match="nothing/there"):
        zskip.sql("SELECT * FROM logs", reader, tables={"logs": "nothing/there"})
    with pytest.raises(duckdb.CatalogException, match="no_such_table"):
        zskip.sql("SELECT * FROM no_such_table", reader)


@pytest.mark.parametrize("statement", ["SUMMARIZE {}", "SELECT * FROM (SUMMARIZE {})", "DESCRIBE {}"])
def test_statements_about_a_table(lake: Path, reader: duckdb.DuckDBPyConnection, statement: str) -> None:
    path = next(folder.parent for folder in sorted(lake.rglob("_zskip")))
    columns = zskip.open(path).schema.names
    for name in (f"'{path}'", "named"):
        found = zskip.sql(statement.format(name), reader, tables={"named": zskip.open(path)}).fetchall()
        assert [row[0] for row in found] == columns


@pytest.mark.parametrize("statement", statements("statement", "where no table can stand"))
def test_a_table_where_none_can_stand_is_said_to_be_there(
    lake: Path, reader: duckdb.DuckDBPyConnection, statement: str
) -> None:
    with pytest.raises(UnsupportedSql, match=r"COPY \(FROM '.*Table\.append(.|\n)*\^\^\^"):
        sql(over(lake, statement), reader)


def test_the_plan_of_a_view_is_refused_like_the_view(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UnsupportedSql, match="A view or macro"):
        sql(over(lake, "EXPLAIN CREATE VIEW v AS SELECT * FROM {T}"), con)


def test_a_text_of_many_statements_runs(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    statement = (
        "CREATE TABLE low AS SELECT a FROM {T} WHERE a < 3; SELECT count(*) FROM {T} JOIN low USING (a) WHERE a < ?"
    )
    found = sql(over(lake, statement), con, params=[2]).fetchall()
    assert con.sql("SELECT max(a) FROM low").fetchall() == [(2,)]
    assert found == con.sql(plainly(lake, "SELECT count(*) FROM {T} x JOIN low USING (a) WHERE a < 2")).fetchall()


@pytest.mark.parametrize("first", ["FROM o", "FROM {T}", "FROM {T} WHERE a < 9", "FROM {T} q JOIN o ON q.a = o.i"])
def test_the_error_of_an_earlier_statement_stops_the_text(
    lake: Path, con: duckdb.DuckDBPyConnection, first: str
) -> None:
    con.execute("CREATE TABLE o AS FROM range(10) r(i)")
    stop = "SELECT CASE WHEN count(*) > 5 THEN error('too many') END " + first
    with pytest.raises(duckdb.InvalidInputException, match="too many"):
        sql(over(lake, f"{stop}; DELETE FROM o WHERE i IN (SELECT a FROM {{T}})"), con)
    assert con.sql("SELECT count(*) FROM o").fetchall() == [(10,)]


@pytest.mark.parametrize("statement", statements("statement", "with a result"))
def test_the_result_of_a_text_is_that_of_the_last_statement_with_rows(lake: Path, statement: str) -> None:
    results = []
    for run, files in ((sql, ""), (lambda text, con: con.sql(text), "/*.parquet")):
        with duckdb.connect() as con:
            con.execute("CREATE TABLE o AS FROM range(10) r(i)")
            relation = run(over(lake, statement, files), con)
            results.append(
                (relation.columns, sorted_rows(relation.fetchall()), con.sql("FROM o ORDER BY i").fetchall())
            )
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE TEMP TABLE p AS SELECT a FROM {T} WHERE a = 5 WITH NO DATA", None),
        ("INSERT INTO o SELECT count(*) FROM {T} GROUP BY filename", None),
        ("SELECT nosuch FROM {T} q", '"nosuch" not found'),
        ("SELECT nosuch FROM {T} q JOIN o ON o.i = q.a", '"nosuch" not found'),
        ("SELECT a FROM {T} q, read_csv('nosuch.csv')", "No files found"),
        ("SELECT * FROM (PIVOT (SELECT a FROM {T} q JOIN {T} p USING (b)) ON a USING max(a))", "Ambiguous reference"),
    ],
)
def test_planning_does_not_abort_an_open_transaction(
    lake: Path, con: duckdb.DuckDBPyConnection, statement: str, error: str | None
) -> None:
    results = []
    for run, files in ((sql, ""), (lambda text, con: con.sql(text), "/*.parquet")):
        con.execute("CREATE OR REPLACE TABLE o AS FROM range(10) r(i)").fetchall()
        con.begin()
        con.execute("INSERT INTO o VALUES (77)").fetchall()
        with pytest.raises(duckdb.Error, match=error) if error else nullcontext():
            run(over(lake, statement, files), con)
        con.commit()
        results.append(con.sql("SELECT count(*), min(i), max(i) FROM o").fetchall())
        con.execute("DROP TABLE IF EXISTS p").fetchall()
    assert results[0] == results[1]
    assert error is not None or results[0][0][2] == 77


@pytest.mark.parametrize(
    "statement",
    ["SELECT count(*) FROM {T} q WHERE a = 5", "CREATE TABLE p AS SELECT a FROM {T}", "SELECT now(), a FROM {T}"],
)
@pytest.mark.parametrize("run", [sql, zskip.explain])
def test_unread_rows_of_the_connection_are_kept(
    lake: Path, con: duckdb.DuckDBPyConnection, statement: str, run: Callable[..., object]
) -> None:
    con.execute("FROM range(100000)").fetchmany(5)
    with pytest.raises(duckdb.ResourceInUseException):
        run(over(lake, statement), con)
    assert len(con.fetchall()) == 99_995
    run(over(lake, statement), con)


def test_double_quotes_name_a_table_of_the_connection_before_a_folder(
    lake: Path, con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lake)
    assert sql('SELECT count(*) FROM "t"', con).fetchall() == [(N,)]
    con.execute("CREATE TEMP VIEW t AS SELECT 7 AS a")
    assert sql('SELECT count(*) FROM "t"', con).fetchall() == [(1,)]
    assert sql("SELECT count(*) FROM 't'", con).fetchall() == [(N,)], "a path is a path"
    assert sql("SELECT count(*) FROM \"t\" x, 't' y", con).fetchall() == [(N,)]
    con.execute('CREATE TABLE "./t" AS SELECT 7 AS a FROM range(3)')
    assert sql("SELECT count(*) FROM \"./t\" x, './t' y", con).fetchall() == [(3 * N,)]


@pytest.mark.parametrize(
    ("select", "where", "pointed"),
    [("nosuch", "a = 1", "nosuch"), ("count(*)", "a = 1 AND nosuch2 = 2", "nosuch2"), ("sqrrt(a)", "a = 1", "sqrrt")],
)
def test_duckdbs_errors_point_at_what_was_written(
    select: str, where: str, pointed: str, tmp_path: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    build_table(tmp_path / "t", pa.table({"a": range(40)}), files=4)
    statement = f"SELECT {select}\nFROM '{tmp_path}/t'\nWHERE {where}"
    with pytest.raises(duckdb.Error) as raised:
        sql(statement, reader)
    message = str(raised.value)
    assert "read_parquet" not in message
    *_, line, carets = message.splitlines()
    assert line.strip() in statement.splitlines()
    assert line[carets.index("^") : len(carets)] == pointed
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("statement", statements("statement", "in error when read"))
def test_errors_of_a_later_run_show_what_was_written(
    lake: Path, reader: duckdb.DuckDBPyConnection, statement: str
) -> None:
    relation = sql(over(lake, statement), reader)
    with pytest.raises(duckdb.ConversionException) as raised:
        relation.fetchall()
    *_, line, carets = str(raised.value).splitlines()
    assert line.partition(": ")[2].strip() in statement
    assert line[carets.index("^") : len(carets)] == "::INT"


def test_a_statement_that_gains_nothing_is_not_explained_again_until_a_table_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = zskip.write(pa.table({"x": range(100), "y": [5] * 100}), tmp_path / "t", by="x", files=4)
    con, explained = duckdb.connect(), []
    assert stubs._is_readable()
    inner = stubs._explained
    monkeypatch.setattr(stubs, "_explained", lambda *given: explained.append(given[1]) or inner(*given))
    statements = {"y = 5": 100, "x < 20": 20}

    def found() -> int:
        for where, rows in statements.items():
            assert len(zskip.sql(f"SELECT * FROM '{tmp_path}/t' t WHERE {where}", con).fetchall()) == rows
        return len(explained)

    assert (found(), found()) == (2, 3)
    text = f"SELECT * FROM '{tmp_path}/t' t WHERE y = 5"
    assert zskip.explain(text) == zskip.explain(text)
    assert 'conditions "y" = 5: 0 files skipped' in zskip.explain(text)
    explained.clear()
    explained.extend([text] * 3)
    table.append(pa.table({"x": [500], "y": [6]}))
    # Now there is a file to leave out, each time.
    assert (found(), found()) == (5, 7)
    gainless = f"SELECT * FROM '{tmp_path}/t' t WHERE x = ?"
    assert [len(zskip.sql(gainless, con, params=[x]).fetchall()) for x in (7, 1000, 8)] == [1, 0, 1]
    assert len(explained) == 10


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE p AS PIVOT {T} ON k USING count(a); FROM p",
        "CREATE TABLE p AS SELECT * FROM (PIVOT (SELECT a, k FROM {T} WHERE a < 9) ON k USING count(a)); FROM p",
        "COPY (PIVOT (SELECT a, k FROM {T} WHERE a < 9) ON k USING count(a)) TO '{F}'; FROM '{F}'",
        "PREPARE q AS PIVOT (SELECT a, k FROM {T}) ON k IN (1, 2) USING count(a); EXECUTE q",
        "EXPLAIN PIVOT (SELECT a, k FROM {T} WHERE a < 9) ON k USING count(a); SELECT 1",
    ],
)
@pytest.mark.parametrize("transaction", [False, True])
def test_a_pivot_that_cannot_be_explained_runs_over_all_files(
    statement: str, transaction: bool, tmp_path: Path, con: duckdb.DuckDBPyConnection
) -> None:
    build_table(tmp_path / "t", pa.table({"a": range(40), "k": [number % 5 for number in range(40)]}), files=4)
    found = []
    for table, run in ((f"'{tmp_path}/t'", sql), (f"'{tmp_path}/t/*.parquet'", lambda text, con: con.sql(text))):
        con.begin() if transaction else None
        relation = run(statement.format(T=table, F=tmp_path / "p.parquet"), con)
        found.append((sorted_rows(relation.fetchall()), relation.columns))
        con.rollback() if transaction else con.execute("DROP TABLE IF EXISTS p")
        con.execute("DEALLOCATE q") if "PREPARE" in statement else None
    assert found[0] == found[1]
