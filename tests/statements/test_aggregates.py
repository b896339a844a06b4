"""count, min and max over whole tables and ranges: what DuckDB says, from the index where it can be."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import zskip
from tests.statements.cases import counted
from tests.tables import build_table
from zskip.plan import find_survivors
from zskip.statements.aggregates import Aggregates, rows_of_index
from zskip.statements.duckdb.statement import rewrite
from zskip.statements.duckdb.survivor_reads import Values, with_index_rows

N = 120


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("aggregates")
    start = datetime.datetime(2024, 1, 1)
    rows = {
        "num": range(N),
        "holes": [None if i % 3 == 1 or 50 <= i < 60 else i for i in range(N)],
        "real": [float(i) if i != 57 else float("nan") for i in range(N)],
        "zero": [-0.0 if i % 2 else 0.0 for i in range(N)],
        "dec": pa.array([Decimal(i) / 100 for i in range(N)], pa.decimal128(15, 2)),
        "day": [(start + datetime.timedelta(days=i)).date() for i in range(N)],
        "ts": pa.array([start + datetime.timedelta(hours=i) for i in range(N)], pa.timestamp("us", "UTC")),
        # Then the clocks of Dublin were 25 minutes and 21 seconds behind Greenwich.
        "old": pa.array(
            [start.replace(year=1910) + datetime.timedelta(hours=i) for i in range(N)],
            pa.timestamp("us", "Europe/Dublin"),
        ),
        "name": [f"n{i:03}" for i in range(N)],
        "flag": [i < 60 for i in range(N)],
        "at": [{"pos": N - i} for i in range(N)],
        "at.pos": range(N),
        'q"r': range(N),
        "nothing": pa.nulls(N, pa.int32()),
        "tens": [None if 20 <= i < 30 else f"t{i // 10 if i % 40 else 3}" for i in range(N)],
    }
    build_table(folder / "t", pa.table(rows), files=12, row_group_rows=5)
    return folder


CASES = counted("aggregates", "answered by the index")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[duckdb.DuckDBPyConnection]:
    """Of 0.0 and -0.0, which are equal, DuckDB gives the one that it meets first: several threads meet either."""
    with duckdb.connect(config={"threads": 1}) as con:
        yield con


@pytest.mark.parametrize(("statement", "files"), CASES, ids=[statement for statement, _ in CASES])
def test_aggregates_are_what_duckdb_says(
    lake: Path, statement: str, files: int | None, one_thread: duckdb.DuckDBPyConnection
) -> None:
    ours = statement.replace("{T}", f"'{lake}/t' t")
    plain = one_thread.sql(statement.replace("{T}", f"read_parquet('{lake}/t/*.parquet', can_have_nan = true) t"))
    found = zskip.sql(ours, one_thread)
    assert (found.columns, found.types) == (plain.columns, plain.types)
    assert repr(found.fetchall()) == repr(plain.fetchall())
    plans = [len(plan) for _, plan in rewrite(ours, one_thread).plans]
    assert files is None or plans == [files]


def test_a_folder_of_others_is_counted_by_its_index_while_it_is_as_indexed(
    tmp_path: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    for number in range(4):
        pq.write_table(pa.table({"x": range(10 * number, 10 * number + 10)}), tmp_path / f"{number}.parquet")
    zskip.index(tmp_path)
    statement = f"SELECT count(*), min(x), max(x) FROM '{tmp_path}'"
    assert zskip.sql(statement, reader).fetchall() == [(40, 0, 39)]
    pq.write_table(pa.table({"x": range(500, 507)}), tmp_path / "3.parquet")
    pq.write_table(pa.table({"x": [-1]}), tmp_path / "4.parquet")
    assert zskip.sql(statement, reader).fetchall() == [(38, -1, 506)]


def test_partitions_are_grouped_by_the_index(tmp_path: Path, reader: duckdb.DuckDBPyConnection) -> None:
    days = [datetime.date(2024, 1, 1 + i % 9) for i in range(90)]
    rows = pa.table({"day": days, "host": ["a b", None, "c/d"] * 30, "n": range(90)})
    zskip.write(rows, tmp_path / "t", by="n", partition_by=["day", "host"])
    statement = (
        "SELECT day, host, count(*), min(n), max(n) FROM {} t WHERE day < '2024-01-08' GROUP BY ALL ORDER BY ALL"
    )
    ours = statement.format(f"'{tmp_path}/t'")
    plain = reader.register("rows", rows).sql(statement.format("rows"))
    assert [len(plan) for _, plan in rewrite(ours, reader).plans] == [0]
    assert zskip.sql(ours, reader).fetchall() == plain.fetchall()
    # Many rows of one group are counted faster than made: only their extremes come from the index.
    big = {"day": [day for day in range(3) for _ in range(20_000)], "n": range(60_000)}
    zskip.write(pa.table(big), tmp_path / "big", by="n", partition_by=["day"])
    for function, files in (("count(*)", 3), ("max(n)", 0)):
        ours = f"SELECT day, {function} FROM '{tmp_path}/big' GROUP BY ALL ORDER BY 1"
        assert [len(plan) for _, plan in rewrite(ours, reader).plans] == [files]
        assert zskip.sql(ours, reader).fetchall() == [
            (day, 20_000 if files else 20_000 * (day + 1) - 1) for day in range(3)
        ]


def test_a_billion_rows_are_counted_at_once(tmp_path: Path) -> None:
    """Rows that stand for files are constants: nothing is computed row by row."""
    index = build_table(tmp_path / "t", pa.table({"n": range(8)}), files=2)
    whole = find_survivors(index, None)
    made = rows_of_index(whole, Aggregates(0, True, frozenset(["n"]), frozenset(["n"])))
    assert made is not None
    counts = pa.array([10**9])
    many = replace(made, rows=counts, columns={"n": replace(made.columns["n"], count=pa.array([10**9 - 5]))})
    text = with_index_rows("", many, index.snapshot.schema.arrow, Values(None, takes=True))
    con = duckdb.connect()
    start = time.process_time()
    assert con.sql(f"SELECT count(*), count(n), min(n), max(n) FROM {text}").fetchall() == [(10**9, 10**9 - 5, 0, 7)]
    assert time.process_time() - start < 20


def test_cut_bounds_are_no_extremes(tmp_path: Path, reader: duckdb.DuckDBPyConnection) -> None:
    zskip.write(pa.table({"x": ["a" * 400, "b" * 400], "n": [1, 2]}), tmp_path / "t", by="n")
    found = zskip.sql(f"SELECT min(x), max(x), count(x) FROM '{tmp_path}/t'", reader).fetchall()
    assert found == [("a" * 400, "b" * 400, 2)]


def test_the_greatest_value_of_one_file_is_no_nan_that_it_lacks(
    tmp_path: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    rows = {"n": range(40), "x": [float(i) for i in range(40)], "s": [{"x": float(i)} for i in range(40)]}
    build_table(tmp_path / "t", pa.table(rows), files=4, row_group_rows=5)
    statement = f"SELECT max(x), max(s.x), count(*) FROM '{tmp_path}/t' WHERE n >= 30"
    assert [len(plan) for _, plan in rewrite(statement, reader).plans] == [1]
    assert zskip.sql(statement, reader).fetchall() == [(39.0, 39.0, 10)]
    assert zskip.sql(f"SELECT max(x) FROM '{tmp_path}/t' WHERE n >= 30", reader).fetchall() == [(39.0,)]
    zskip.write(pa.table(rows), tmp_path / "one", by="n", files=1)
    named = f"SELECT max(x), count(filename), max(file_row_number) FROM '{tmp_path}/one'"
    assert zskip.sql(named, reader).fetchall() == [(39.0, 40, 39)]
    assert zskip.sql(f"SELECT max(x), max(file_index) FROM '{tmp_path}/one'", reader).fetchall() == [(39.0, 0)]
    by_file = f"SELECT filename, count(*) FROM '{tmp_path}/t' GROUP BY ALL"
    assert len(rewrite(by_file, reader).plans[0][1]) == 4
    assert len(zskip.sql(by_file, reader).fetchall()) == 4
    # DuckDB failed with an internal error: it late-materializes the first rows.
    first = f"SELECT n, s FROM '{tmp_path}/t' WHERE n >= 30 ORDER BY x DESC LIMIT 2"
    assert zskip.sql(first, reader).fetchall() == [(39, {"x": 39.0}), (38, {"x": 38.0})]


@pytest.mark.parametrize("kind", ["written", "indexed", "Delta", "with a struct"])
def test_one_file_is_not_asked_for_its_greatest_float_by_its_footer(tmp_path: Path, kind: str) -> None:
    """In subqueries, tables made of queries and relations, where the index does not answer."""
    rows = pa.table({"x": [1.0, -1.0, 3.5], "n": [0, 1, 2]})
    path = tmp_path / "t"
    match kind:
        case "indexed":
            path.mkdir()
            pq.write_table(rows, path / "0.parquet")
            zskip.index(path)
        case "Delta":
            write_deltalake(path, rows)
        case "with a struct":
            rows = rows.append_column("s", pa.array([{"x": 1.0}] * 3))
            zskip.write(rows, path, by="x")
        case _:
            zskip.write(rows, path, by="x")
    con = duckdb.connect()
    for condition in (
        "x = (SELECT max(x) FROM {})",
        "x IN (SELECT max(x) FROM {})",
        "x >= ALL (SELECT max(x) FROM {})",
    ):
        for columns in ("n",) if kind in ("Delta", "indexed") else ("n", "n + 0 * file_row_number"):
            statement = f"SELECT {columns} FROM {{}} WHERE {condition}".replace("{}", f"'{path}'")
            assert zskip.sql(statement, con).fetchall() == [(2,)], statement
    con.execute("CREATE TABLE kept AS SELECT * FROM (VALUES (0)) v(z)")
    zskip.sql(f"CREATE OR REPLACE TABLE kept AS SELECT max(x) FROM '{path}'", con)
    assert con.execute("FROM kept").fetchall() == [(3.5,)]
    assert zskip.open(path).plan("n >= 0").to_duckdb(con).max("x").fetchall() == [(3.5,)]


@pytest.mark.parametrize("text", ["infinity", "-infinity", "40000-01-01", "40000-01-01 (BC)"])
def test_dates_that_have_no_text_are_read(tmp_path: Path, text: str, con: duckdb.DuckDBPyConnection) -> None:
    con.execute("SET TimeZone = 'UTC'")
    types = ["DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_S", "TIMESTAMP_MS"]
    types += ["TIMESTAMP_NS"] if "infinity" in text else []
    columns = ", ".join(f"unnest([{type} '{text}', {type} '2024-01-01']) AS {type.lower()}" for type in types)
    rows, path = tmp_path / "0.parquet", tmp_path / "t"
    con.execute(f"COPY (SELECT {columns}, 7 AS n) TO '{rows}'")
    zskip.write(str(rows), path, by="n")
    for type in types:
        for statement in (
            f"SELECT min({type}), max({type}) FROM {{}}",
            f"SELECT count(*) FROM {{}} WHERE {type} <= {type} '2024-06-01'",
        ):
            shown = f"SELECT COLUMNS(*)::VARCHAR FROM ({statement})"
            wanted = con.sql(shown.replace("{}", f"'{rows}'")).fetchall()
            assert zskip.sql(shown.replace("{}", f"'{path}'"), con).fetchall() == wanted, statement


def test_explain_says_what_each_rule_skipped(lake: Path, reader: duckdb.DuckDBPyConnection) -> None:
    ours = f"SELECT count(*) FROM '{lake}/t' t WHERE num BETWEEN 15 AND 84"
    explained = zskip.explain(ours, reader)
    assert "reads 2 files" in explained
    assert '"num" >= 15' in explained
    assert "6 files answered by the index" in explained
    first = zskip.explain(f"SELECT * FROM '{lake}/t' ORDER BY num DESC LIMIT 3", reader)
    assert "first 3 rows by num descending: 11 files skipped" in first
    assert "No table of zskip" in zskip.explain("SELECT 1", reader)


def test_what_the_index_answered_is_asked_of_each_version_and_predicate_anew(
    tmp_path: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    table = zskip.write(pa.table({"x": range(100)}), tmp_path / "t", by="x", files=4)
    statements = {where: f"SELECT count(*), max(x) FROM '{tmp_path}/t' WHERE {where}" for where in ("x >= 0", "x > 24")}

    def found() -> list[tuple[int, int]]:
        return [zskip.sql(text, reader).fetchall()[0] for text in statements.values()]

    assert found() == found() == [(100, 99), (75, 99)]
    table.append(pa.table({"x": [500]}))
    assert found() == found() == [(101, 500), (76, 500)]
    zskip.open(tmp_path / "t").delete("x > 90")
    assert found() == found() == [(91, 90), (66, 90)]
