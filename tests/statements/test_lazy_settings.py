"""A lazy relation that is read under other settings than those it was planned under raises, and gives no wrong rows."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import zskip
from tests.statements.cases import files_read, over, statements
from tests.tables import sorted_rows
from zskip.plan import kept_survivors
from zskip.statements.duckdb.statement import rewrite
from zskip.statements.joins import JoinedTable

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
HOURS = [START + datetime.timedelta(hours=hour) for hour in range(240)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    rows = pa.table(
        {
            "a": pa.array(range(240), pa.int64()),
            "c": [("s" if number < 120 else "S") + f"{number % 120:03}" for number in range(240)],
            "ts": pa.array(HOURS, pa.timestamp("us", "UTC")),
        }
    )
    for name in ("t", "u"):
        zskip.write(rows, folder / name, by="a", layout="linear", files=12)
    parts = rows.append_column("p", [["s" if number < 120 else "S" for number in range(240)]])
    table = zskip.write(parts, folder / "parts", by="a", layout="linear", partition_by="p", files=12)
    table.append(parts.slice(0, 20).append_column("added", pa.nulls(20, pa.int64())))
    return folder


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


CHANGES = [line.split(" -> ") for line in statements("lazy_settings", "planned under other settings")]
PARAMETERS = {"SELECT * FROM {T} WHERE ts >= ?": ["2024-01-09"], "SELECT * FROM {T} WHERE c = ?": ["s050"]}


@pytest.mark.parametrize(("change", "statement"), CHANGES)
def test_a_relation_planned_under_other_settings_raises(
    lake: Path, con: duckdb.DuckDBPyConnection, change: str, statement: str
) -> None:
    name, params = change.partition(" ")[0], PARAMETERS.get(statement)
    text, plain = over(lake, statement), over(lake, statement, "/*.parquet")
    assert min(files_read(lake, con, statement, params)) < 12
    relation = zskip.sql(text, con, params=params)
    expected = sorted_rows(con.execute(plain, params).fetchall())
    assert sorted_rows(relation.fetchall()) == expected
    con.execute("SET threads = 1; SET errors_as_json = false")
    before = con.execute(f"SELECT current_setting('{name}')").fetchall()[0][0]
    con.execute(f"SET {name} = '{before}'")
    assert sorted_rows(relation.fetchall()) == expected
    con.execute(f"SET {change}")
    with pytest.raises(duckdb.Error, match=f"planned this relation under .*{name} = '.*again after a SET"):
        relation.fetchall()
    again = zskip.sql(text, con, params=params)
    assert sorted_rows(again.fetchall()) == sorted_rows(con.execute(plain, params).fetchall())
    con.execute(f"SET {name} = '{before}'")
    assert sorted_rows(relation.fetchall()) == expected


@pytest.mark.parametrize(
    ("before", "after", "statement"),
    [line.split(" -> ") for line in statements("lazy_settings", "what a query alone fixes")],
)
def test_what_a_query_alone_fixes_is_read_at_once(
    lake: Path, con: duckdb.DuckDBPyConnection, before: str, after: str, statement: str
) -> None:
    """Read later, a relation had the files of one value and the condition of another."""
    con.execute(f"CREATE SCHEMA s; SET {before}")
    relation = zskip.sql(over(lake, statement), con)
    expected = con.execute(over(lake, statement, "/*.parquet")).fetchall()
    con.execute(f"SET {after}")
    assert sorted_rows(relation.fetchall()) == sorted_rows(expected)
    assert 0 < len(expected) < 240


@pytest.mark.parametrize("statement", statements("lazy_settings", "comparisons of numbers"))
def test_a_comparison_of_numbers_means_the_same_under_all_settings(
    lake: Path, con: duckdb.DuckDBPyConnection, statement: str
) -> None:
    relation = zskip.sql(over(lake, statement), con)
    expected = sorted_rows(relation.fetchall())
    con.execute("SET TimeZone = 'Asia/Tokyo'; SET default_collation = 'nocase'; SET integer_division = true")
    assert len(sorted_rows(relation.fetchall())) == len(expected)


def test_a_relation_that_reads_every_file_follows_the_settings(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    relation = zskip.sql(f"SELECT count(*) FROM '{lake}/t' WHERE c LIKE '%050' AND lower(c) = 's050'", con)
    assert relation.fetchall() == [(2,)]
    con.execute("SET default_collation = 'nocase'")
    assert relation.fetchall() == [(2,)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT a, added FROM {parts} WHERE c = 's050'",
        "SELECT a, p FROM {parts} WHERE p = 's' AND a < 30",
        "SELECT p, count(*) FROM {parts} WHERE p = 's' GROUP BY p",
        "SELECT a FROM {parts} WHERE p = 'q'",
    ],
)
def test_a_table_with_partitions_and_a_grown_schema_raises(
    lake: Path, con: duckdb.DuckDBPyConnection, statement: str
) -> None:
    relation = zskip.sql(over(lake, statement), con)
    expected = sorted_rows(relation.fetchall())
    con.execute("SET default_collation = 'nocase'")
    with pytest.raises(duckdb.InvalidInputException, match="planned this relation under default_collation = ''"):
        relation.fetchall()
    con.execute("RESET default_collation")
    assert sorted_rows(relation.fetchall()) == expected


def test_a_table_that_is_read_whole_may_have_pruned_others(
    lake: Path, con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole(table: JoinedTable) -> JoinedTable:
        return replace(table, survivors=kept_survivors(table.survivors.index, None)) if "/u" in table.name else table

    monkeypatch.setattr(JoinedTable, "whole_where_little_is_saved", whole)
    joined = f"'{lake}/t' t JOIN '{lake}/u' u USING (a) JOIN '{lake}/parts' p USING (a)"
    relation = zskip.sql(f"SELECT t.a FROM {joined} WHERE t.a < 220 AND u.ts >= DATE '2024-01-09'", con)
    relation.fetchall()
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    with pytest.raises(duckdb.InvalidInputException, match="planned this relation under TimeZone = 'UTC'"):
        relation.fetchall()


def test_settings_are_asked_for_again_after_a_set_in_an_open_transaction(
    lake: Path, con: duckdb.DuckDBPyConnection
) -> None:
    text = f"SELECT a FROM '{lake}/t' WHERE c = 's050'"
    assert zskip.sql(text, con).fetchall() == [(50,)]
    con.begin()
    con.execute("CREATE TABLE kept AS SELECT 1 AS x")
    con.execute("SET default_collation = 'nocase'")
    in_order = f"SELECT a FROM '{lake}/t' WHERE a < 60 AND c >= 's050' ORDER BY a DESC LIMIT 3"
    for _ in range(2):
        assert sorted(zskip.sql(text, con).fetchall()) == [(50,), (170,)]
        assert zskip.sql(in_order, con).fetchall() == [(59,), (58,), (57,)]
    con.commit()
    assert con.execute("FROM kept").fetchall() == [(1,)]
    con.execute("RESET default_collation")
    assert zskip.sql(text, con).fetchall() == [(50,)]


@pytest.mark.parametrize(
    "clock",
    [
        *("now()", "get_current_timestamp()", "transaction_timestamp()", "current_timestamp", "localtimestamp"),
        "TIMESTAMP '2024-01-01' + age(TIMESTAMP '2024-01-01')",
        *("ago(INTERVAL '0' SECOND)", "today() + get_current_time()", "current_date + current_localtime()"),
    ],
)
def test_what_depends_on_the_clock_is_read_at_once(lake: Path, con: duckdb.DuckDBPyConnection, clock: str) -> None:
    """Read later, a relation had the files of one time and the condition of another."""
    text = f"SELECT epoch_us({clock}) FROM '{lake}/t' WHERE a = 1"
    assert not rewrite(text, con).settled
    relation = zskip.sql(text, con)
    after = time.time_ns() // 1000
    time.sleep(0.002)
    assert relation.fetchall()[0][0] <= after
