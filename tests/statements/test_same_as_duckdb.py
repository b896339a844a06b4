"""Statements that once gave other rows, types or names than DuckDB over the plain files, and random ones."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.statements.cases import counted, files_read, over, statements
from tests.statements.fuzz import Sides, difference, run, sides
from tests.statements.random_statements import Statement, random_statement
from tests.tables import build_table, sorted_rows
from zskip.errors import UnsupportedSql
from zskip.statements.duckdb import stubs
from zskip.statements.duckdb.statement import rewrite

N = 90


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    start = datetime.datetime(2024, 1, 1)
    t = {
        "a": range(N),
        "b": [(i * 7) % N for i in range(N)],
        "k": [i % 10 for i in range(N)],
        "name": [f"S{i:03}" for i in range(N)],
        "ts": [start + datetime.timedelta(hours=6 * i) for i in range(N)],
        "s": [{"a": (i * 7) % N, "c": str(i)} for i in range(N)],
        "l": [[{"a": (i * 7) % N}] for i in range(N)],
    }
    u = {"a": [(i * 11) % N for i in range(N)], "k": [i % 10 for i in range(N)], "c": range(N)}
    build_table(folder / "t", pa.table(t), files=9, row_group_rows=5)
    build_table(folder / "u", pa.table(u), files=9, row_group_rows=5)
    return folder


def same(
    lake: Path,
    statement: str,
    con: duckdb.DuckDBPyConnection,
    params: Any = None,
    plain: duckdb.DuckDBPyConnection | None = None,
) -> None:
    """The statement through zskip is what DuckDB says of it over all files: rows, types and names."""
    expected = (plain or con).sql(over(lake, statement, "/*.parquet"), params=params)
    wanted = expected.columns, expected.types, sorted_rows(expected.fetchall())
    found = zskip.sql(over(lake, statement), con, params=params)
    assert (found.columns, found.types, sorted_rows(found.fetchall())) == wanted


@pytest.mark.parametrize("statement", statements("same_as_duckdb", "alone"))
def test_a_statement_is_what_duckdb_says_it_is(lake: Path, statement: str, reader: duckdb.DuckDBPyConnection) -> None:
    same(lake, statement, reader)


@pytest.mark.parametrize("statement", statements("same_as_duckdb", "after others of a text"))
def test_earlier_statements_of_a_text_decide_what_later_ones_mean(
    lake: Path, statement: str, con: duckdb.DuckDBPyConnection
) -> None:
    with duckdb.connect() as plain:
        same(lake, statement, con, plain=plain)


def test_another_dialects_functions_do_not_prune(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    statement = over(lake, "SELECT count(*) FROM {T} t WHERE a + 0 = 5 AND abs(b) >= 0")
    called = over(lake, "SELECT count(*) FROM {T} t WHERE abs(a) = 5")
    for mode, files in (("spark", 9), ("none", 1)):
        con.execute(f"SET dialect_compatibility_mode = '{mode}'")
        assert [len(plan) for _, plan in rewrite(called, con).plans] == [files]
        assert [zskip.sql(text, con).fetchall() for text in (statement, called)] == [[(1,)], [(1,)]]


def test_a_column_without_a_name_is_named_after_what_the_user_wrote(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    tables = {"t": f"{lake}/t", "u": f"{lake}/u"}
    con.execute("CREATE TABLE own AS SELECT 5 AS a")
    for statement, name in {
        "SELECT (SELECT max(k) FROM u), a FROM t WHERE a = $1": "(SELECT max(k) FROM u)",
        "SELECT (SELECT max(k) FROM u), a FROM t JOIN own USING (a)": "(SELECT max(k) FROM u)",
        "SELECT EXISTS (FROM u WHERE u.a = 7), a FROM t WHERE a = 5": "EXISTS(SELECT * FROM u WHERE (u.a = 7))",
    }.items():
        found = zskip.sql(statement, con, params=[5] if "$1" in statement else None, tables=tables)
        assert found.columns == [name, "a"]
        assert [row[1] for row in found.fetchall()] == [5]


def test_a_stored_column_is_named_after_what_the_user_wrote(
    lake: Path, con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    tables = {"t": f"{lake}/t", "u": f"{lake}/u"}
    query = "SELECT (SELECT max(k) FROM u), a FROM t WHERE a IN (5, 7) ORDER BY a DESC"
    zskip.sql(f"CREATE OR REPLACE TABLE made AS {query};", con, tables=tables)
    zskip.sql("CREATE TABLE other AS (SELECT a, (SELECT 1) FROM t WHERE a = $1)", con, tables=tables, params=[5])
    zskip.sql(f"COPY ({query}) TO '{tmp_path}/made.csv' (HEADER)", con, tables=tables)
    for stored in ("made", f"'{tmp_path}/made.csv'"):
        found = con.sql(f"FROM {stored}")
        assert (found.columns, found.fetchall()) == (["(SELECT max(k) FROM u)", "a"], [(9, 7), (9, 5)])
    assert con.sql("FROM other").columns == ["a", "(SELECT 1)"]


def test_names_of_a_set_operation_are_read_at_scans_alone_where_a_cte_is_on_both_sides() -> None:
    rows = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    texts = {
        "SELECT a FROM t UNION ALL SELECT b FROM u": {"zskip_0_0": "a", "zskip_0_1": "b", "A": "a", "B": "b"},
        "WITH e AS MATERIALIZED (FROM t) SELECT a FROM e UNION ALL SELECT b FROM e": {
            "zskip_0_0": "a",
            "zskip_0_1": "b",
        },
    }
    for text, printed in texts.items():
        made = stubs.make_stubs((rows, rows), text)
        over = text.replace("FROM t", f"FROM {made[0].sql}").replace("FROM u", f"FROM {made[1].sql}")
        with duckdb.connect() as con:
            root = stubs.engine_plan(con, over, made)
        assert root is not None
        assert stubs.printed_columns(root, made, text)[0].printed == printed


def test_what_only_an_alias_shows_does_not_prune(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    assert files_read(lake, con, "SELECT * FROM (SELECT b AS a, k FROM {T} t) WHERE abs(a) = 5") == [9]
    assert files_read(lake, con, "SELECT * FROM (SELECT * FROM {T} t) WHERE abs(a) = 5") == [1]


def test_a_place_that_is_scanned_twice_keeps_what_either_scan_needs(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    twice = "WITH e AS NOT MATERIALIZED (SELECT a, k FROM {T} t) SELECT x.a FROM e x, e y WHERE x.a = 5"
    assert files_read(lake, con, twice) == [9]
    assert files_read(lake, con, f"{twice} AND y.a = 60") == [2]


def test_a_default_stays_a_default(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    zskip.sql("CREATE TABLE log (a BIGINT, ts TIMESTAMPTZ DEFAULT now())", con)
    ((default,),) = con.sql("SELECT column_default FROM duckdb_columns() WHERE column_name = 'ts'").fetchall()
    assert "now()" in default
    zskip.sql(over(lake, "INSERT INTO log BY NAME SELECT a FROM {T} t WHERE a = 5"), con)
    assert con.sql("SELECT a, ts IS NOT NULL FROM log").fetchall() == [(5, True)]


def test_statements_are_prepared_and_executed(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    zskip.sql(over(lake, "PREPARE q AS SELECT a FROM {T} t WHERE a = $1"), con)
    assert zskip.sql("EXECUTE q(5)", con).fetchall() == [(5,)]


@pytest.mark.parametrize("prefix", ["EXPLAIN", "EXPLAIN ANALYZE", "EXPLAIN (FORMAT JSON)", "EXPLAIN (ANALYZE)"])
def test_explain_explains_the_pruned_statement(lake: Path, con: duckdb.DuckDBPyConnection, prefix: str) -> None:
    statement = over(lake, f"{prefix} SELECT b FROM {{T}} t WHERE a = 5")
    assert [len(plan) for _, plan in rewrite(statement, con).plans] == [1]
    assert "READ_PARQUET" in zskip.sql(statement, con).fetchall()[0][1].replace(" ", "_")


def test_duckdbs_own_columns_of_a_file(lake: Path, reader: duckdb.DuckDBPyConnection) -> None:
    same(lake, "SELECT a, filename FROM {T} t WHERE a = 5", reader)
    same(lake, "SELECT a, file_row_number, parse_filename(filename) FROM {T} t WHERE a IN (5, 70)", reader)
    same(lake, "SELECT a, file_index FROM {T} t WHERE a = 70", reader)


@pytest.mark.parametrize(("statement", "files"), counted("same_as_duckdb", "beside DuckDB's own columns"))
def test_conditions_prune_beside_duckdbs_own_columns(
    lake: Path, reader: duckdb.DuckDBPyConnection, statement: str, files: list[int]
) -> None:
    same(lake, statement, reader)
    assert files_read(lake, reader, statement) == files


def test_binary_columns_are_read_in_the_connections_setting(tmp_path: Path, con: duckdb.DuckDBPyConnection) -> None:
    values = [rb"\x41", b"A", *(bytes([66 + i]) for i in range(24)), *(str(i).encode() for i in range(10, 24))]
    build_table(tmp_path / "t", pa.table({"x": pa.array(values, pa.binary())}), by="x", files=8)
    (tmp_path / "u").mkdir()
    pq.write_table(pa.table({"x": pa.array(values, pa.binary())}), tmp_path / "u" / "foreign.parquet")
    zskip.index(tmp_path / "u")
    for setting in ("false", "true"):
        con.execute(f"SET binary_as_string = {setting}")
        same(tmp_path, r"SELECT * FROM {T} t WHERE x = '\x41'", con)
        same(tmp_path, "SELECT * FROM {T} t WHERE x > '3' AND x < 'B'", con)
        same(tmp_path, "SELECT x FROM {U} u", con)


def test_parameters_of_every_style(lake: Path, reader: duckdb.DuckDBPyConnection) -> None:
    for statement, params in (
        ("SELECT a, ? FROM {T} t WHERE a = ?", ["x", 5]),
        ("SELECT a, $2 FROM {T} t JOIN {U} u USING (a) WHERE a = $1", [5, "x"]),
        ("SELECT a, ?2 FROM {T} t JOIN {U} u USING (a) WHERE a = ?1 OR a = ?1 + 1", [5, "x"]),
        ("SELECT a, ?, ?1, ? FROM {T} t WHERE a = $1 OR a = ?", [5, 7, 9]),
        ("SELECT a FROM {T} t WHERE a between ?and?or a=?::INT", [5, 7, 9]),
        ("SELECT a, $Said FROM {T} t WHERE a = $N OR name = $said", {"said": "S007", "n": 5}),
        ("SELECT a, $said FROM {T} t WHERE a = $n OR name = $said", {"said": "S007", "n": 5}),
        ("SELECT a, $2 FROM {T} t JOIN {U} u USING (a) WHERE a = $1", {"1": 5, "2": "x"}),
        ("SELECT a, ?2 FROM {T} t JOIN {U} u USING (a) WHERE a = ?1", {2: "x", 1: 5}),
    ):
        same(lake, statement, reader, params)


def test_a_transaction_of_the_users_stays_open(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    con.begin()
    con.execute("CREATE TABLE mine AS SELECT 5 AS a")
    found = zskip.sql(over(lake, "SELECT b FROM {T} t JOIN mine USING (a) WHERE t.ts < now()"), con)
    assert found.fetchall() == [(35,)]
    con.rollback()
    with pytest.raises(duckdb.CatalogException):
        con.sql("FROM mine")


def test_a_statement_that_fails_leaves_no_transaction_behind(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.ConversionException):
        zskip.sql(over(lake, "SELECT name::INTEGER FROM {T} t WHERE a = 5 AND ts < now()"), con)
    assert zskip.sql(over(lake, "SELECT a FROM {T} t WHERE a = 5 AND ts < now()"), con).fetchall() == [(5,)]


def test_a_table_of_the_connection_is_read_once(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE keys AS SELECT 5 AS a")
    found = zskip.sql(over(lake, "SELECT t.a FROM {T} t JOIN keys USING (a)"), con)
    con.execute("INSERT INTO keys VALUES (60)")
    assert found.fetchall() == [(5,)]


def test_columns_named_like_types_words_and_stubs(tmp_path: Path, con: duckdb.DuckDBPyConnection) -> None:
    n = 40
    rows = {
        "date": [datetime.date(2024, 1, 1) + datetime.timedelta(days=i) for i in range(n)],
        "lower": [f"x{i:02}" for i in range(n)],
        "zskip_0_0": range(n),
        "zskip_0_1": [n - i for i in range(n)],
        "My col": range(n),
        "é": range(n),
        "1": range(n),
        'q"q': range(n),
        "select": range(n),
    }
    build_table(tmp_path / "t", pa.table(rows), files=8)
    conditions = {
        "date = '2024-01-05'": 1,
        "date_trunc('week', date) = '2024-01-08'": 2,
        "CAST(date AS TIMESTAMP) = TIMESTAMP '2024-01-05 00:00:00'": 1,
        "lower(lower) = 'x05' AND lower < 'x1'": 2,
        "zskip_0_0 = 7": 1,
        "zskip_0_1 = 7": 1,
        '"my col" = 7': 1,
        '"é" = 7': 1,
        '"1" = 7': 1,
        '"q""q" = 7': 1,
        '"select" % 9 = 40': 0,
    }
    for condition, files in conditions.items():
        statement = f"SELECT * FROM {{T}} t WHERE {condition}"
        same(tmp_path, statement, con)
        assert files_read(tmp_path, con, statement) <= [max(files, 1)], condition


def test_an_unknown_form_of_plans_prunes_nothing_and_is_logged_once(
    lake: Path, con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    printed = stubs.json.loads
    monkeypatch.setattr(stubs.json, "loads", lambda text: printed(text.replace("Filters", "Predicates")))
    stubs._probe.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "zskip"):
            assert files_read(lake, con, "SELECT * FROM {T} t WHERE a = 5") == [9]
            same(lake, "SELECT * FROM {T} t WHERE a = 5", con)
        assert [record.message for record in caplog.records if "unknown to zskip" in record.message]
        assert len(caplog.records) == 1
    finally:
        stubs._probe.cache_clear()


def test_a_table_whose_columns_changed_is_read_by_its_schema(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": pa.array(range(40), pa.int16())}), tmp_path / "t", by="a", files=4)
    assert table._index.snapshot.uniform
    table.append(pa.table({"a": pa.array([70_000], pa.int32()), "b": ["new"]}))
    found = zskip.sql(f"SELECT * FROM '{tmp_path}/t' WHERE a >= 39 ORDER BY a", duckdb.connect())
    assert [str(type) for type in found.types] == ["INTEGER", "VARCHAR"]
    assert found.fetchall() == [(39, None), (70_000, "new")]


def test_partitioned_and_foreign_folders(tmp_path: Path, con: duckdb.DuckDBPyConnection) -> None:
    rows = pa.table({"day": [i // 10 for i in range(40)], "a": range(40)})
    zskip.write(rows, tmp_path / "t", by="a", partition_by=["day"])
    found = zskip.sql(f"SELECT day, sum(a) FROM '{tmp_path}/t' WHERE day = 2 AND a < 25 GROUP BY day", con)
    assert found.fetchall() == [(2, 110)]
    for number in range(4):
        (tmp_path / "u").mkdir(exist_ok=True)
        pq.write_table(rows.slice(10 * number, 10), tmp_path / "u" / f"{number}.parquet")
    zskip.index(tmp_path / "u")
    same(tmp_path, "SELECT u.day, sum(a) FROM {U} u WHERE day = 2 AND abs(a) < 25 GROUP BY day", con)


def test_views_and_macros_are_refused_where_they_would_keep_the_files_of_today(
    lake: Path, con: duckdb.DuckDBPyConnection
) -> None:
    with pytest.raises(UnsupportedSql, match="files that this table has now"):
        zskip.sql(over(lake, "CREATE OR REPLACE TEMP VIEW v AS FROM {T} t"), con)


@pytest.mark.parametrize("partitions", [[], ["part"]])
def test_fields_of_structs_are_read_beside_floats_from_one_file(tmp_path: Path, partitions: list[str]) -> None:
    rows = {
        "a": range(40),
        "s": [{"x": i, "y": str(i)} for i in range(40)],
        "f": [float("nan") if i == 33 else i / 2 for i in range(40)],
        "part": [i // 20 for i in range(40)],
    }
    zskip.write(pa.table(rows), tmp_path / "t", by="a", rows_per_file=10, partition_by=partitions)
    listed = f"SELECT f, part FROM '{tmp_path}/t' WHERE a < 10 AND s.x IN (1, 4, NULL) ORDER BY f"
    # A fresh connection for each: this once ended the database.
    with duckdb.connect() as con:
        assert zskip.sql(listed, con).fetchall() == [(0.5, 0), (2.0, 0)]
        read = rewrite(listed, con)
        ((_, shown),) = con.execute(f"EXPLAIN {read.sql}", read.parameters).fetchall()
        assert "s.x" in shown  # that field alone
    with duckdb.connect() as con:
        assert zskip.sql(f"SELECT max(f), max(s.x) FROM '{tmp_path}/t' WHERE a < 10 AND part = 0", con).fetchall() == [
            (4.5, 9)
        ]


# --- statements that read the names of columns, hide tables behind CTEs, or make keys that no table has ---


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


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with sides(tmp_path_factory.mktemp("sides")) as made:
        for con in (made.own, made.plain):
            for statement in FOREIGN:
                con.execute(statement)
        yield made


# Each ends in a table "made".
STORED = statements("names_and_keys", "stored")


@pytest.mark.parametrize("text", STORED)
def test_a_statement_stores_what_it_stores_in_duckdb(text: str, given: Sides) -> None:
    stored = []
    for con, execute in ((given.plain, given.plain.execute), (given.own, partial(_run, given))):
        execute(text)
        made = con.sql("FROM made")
        stored.append((made.columns, made.types, sorted(map(repr, made.fetchall()))))
        con.execute("DROP TABLE made")
    assert stored[0] == stored[1]


def _run(given: Sides, text: str) -> None:
    zskip.sql(text, given.own, tables=given.tables)


@pytest.mark.parametrize("text", [*NAMES, *KEYS, *CTES])
def test_a_statement_gives_what_duckdb_gives(text: str, given: Sides) -> None:
    kind, failure = difference(given, Statement(text, None, ordered=False))
    assert failure is None
    assert kind in ("answers", "empty answers")


def test_bounds_of_a_column_belong_to_it_whatever_its_name(tmp_path: Path, reader: duckdb.DuckDBPyConnection) -> None:
    names = ['"id"', 'a"b', '"', 'a".b', "it's", "a.b", '"x"."y"']
    rows = pa.table({"id": range(1000), "g": [number // 100 for number in range(1000)]})
    for number, name in enumerate(names, 50):
        rows = rows.append_column(name, [range(number * 1000, number * 1000 + 1000)])
    zskip.write(rows, tmp_path / "t", by="g", files=10)
    for name in names:
        quoted = '"' + name.replace('"', '""') + '"'
        statement = (
            f"SELECT count(*), sum(a.id), max(b.{quoted}) FROM {{0}} a JOIN {{0}} b ON a.g = b.g "
            "WHERE a.id < 700 AND b.id < 5"
        )
        expected = reader.sql(statement.format("rows")).fetchall()
        assert zskip.sql(statement.format(f"'{tmp_path}/t'"), reader).fetchall() == expected, name


# --- random statements of every kind give the rows, types and names that DuckDB gives over the same rows ---


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_random_statements_are_what_duckdb_says_they_are(given: Sides, seed: int) -> None:
    cases = 25 if seed == 0 else 2_000
    counts, failures = run(given, cases, seed)
    assert not failures, "\n\n".join(failures)
    # The run is worth something only where most statements give rows.
    assert counts["answers"] > cases / 3


@pytest.mark.parametrize("seed", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_columns_that_cannot_be_told_apart(given: Sides, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where each name is a letter, and no spelling of it is left."""
    run(given, 1, seed)  # DuckDB's plans are probed with spellings
    monkeypatch.setattr(stubs, "_MOST_SPELLINGS", 0)
    stubs._stubs.cache_clear()
    assert difference(given, random_statement(Random(5_001_903))) == ("answers", None)
    _, failures = run(given, 15 if seed == 4 else 2_000, seed)
    assert not failures, "\n\n".join(failures)
