"""ORDER BY with LIMIT, and LIMIT alone: the same rows as over all files, from fewer of them."""

from __future__ import annotations

import datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import zskip
from tests.statements.cases import counted
from tests.tables import build_table
from zskip.statements import first_rows
from zskip.statements.duckdb.pruned_tables import TableQueries
from zskip.statements.duckdb.statement import rewrite

N = 120


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    start = datetime.datetime(2024, 1, 1)
    random = np.random.default_rng(5)
    floats = [float(i) if i != 57 else float("nan") for i in range(N)]
    rows = {
        "num": range(N),
        "ties": [i // 12 for i in range(N)],
        "holes": [None if i == 61 else i for i in range(N)],
        "real": floats,
        "zero": [-0.0 if i % 2 else 0.0 for i in range(N)],
        "day": [start + datetime.timedelta(days=i) for i in range(N)],
        "name": [f"{'abAB'[i % 4]}{i:03}" for i in range(N)],
        "loose": random.permutation(N),
        "at": [{"pos": N - i} for i in range(N)],
        "at.pos": range(N),
    }
    build_table(folder / "t", pa.table(rows), files=12, row_group_rows=5)
    return folder


ORDERED = counted("first_rows", "ordered")


@pytest.mark.parametrize(("statement", "files"), ORDERED, ids=[statement for statement, _ in ORDERED])
def test_the_first_rows_come_from_few_files(
    lake: Path, statement: str, files: int | None, reader: duckdb.DuckDBPyConnection
) -> None:
    ours, plain = (
        statement.replace("{T}", f"'{lake}/t' t"),
        statement.replace("{T}", f"read_parquet('{lake}/t/*.parquet', can_have_nan = true) t"),
    )
    # Rows as text: a NaN is not equal to itself.
    assert repr(zskip.sql(ours, reader).fetchall()) == repr(reader.sql(plain).fetchall())
    plans = [len(plan) for _, plan in rewrite(ours, reader).plans]
    assert files is None or plans == [files]


def test_a_threshold_that_is_too_high_is_noticed(
    lake: Path, monkeypatch: pytest.MonkeyPatch, reader: duckdb.DuckDBPyConnection
) -> None:
    """The tests above bite: with row counts that are taken for granted, rows are lost."""
    right = first_rows.holding_first_rows
    monkeypatch.setattr(
        "zskip.statements.duckdb.pruned_tables.holding_first_rows",
        lambda survivors, wanted, ask: right(
            survivors, first_rows.FirstRows(wanted.place, 1, wanted.column, wanted.descending), ask
        ),
    )
    found = zskip.sql(f"SELECT num FROM '{lake}/t' t ORDER BY num DESC LIMIT 15", reader).fetchall()
    assert len(found) < 15


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """256 files of eight rows, clustered by num, real and day; loose is anything."""
    folder = tmp_path_factory.mktemp("many")
    rows, random = 2048, np.random.default_rng(6)
    start = datetime.datetime(2024, 1, 1)
    made = {
        "num": range(rows),
        "real": [float("nan") if i == 1500 else float(i) for i in range(rows)],
        "holes": [None if i == 700 else i for i in range(rows)],
        "day": [start + datetime.timedelta(days=i) for i in range(rows)],
        "loose": random.permutation(rows),
    }
    build_table(folder / "t", pa.table(made), files=256, row_group_rows=8)
    return folder


ASKED = counted("first_rows", "asked for their first rows")


@pytest.mark.parametrize(
    ("statement", "queried"),
    [
        ("SELECT num FROM {T} WHERE num % 3 = 1 ORDER BY loose LIMIT 5", False),
        ("SELECT num FROM {T} ORDER BY loose LIMIT 200", False),
        ("SELECT num FROM {T} ORDER BY loose LIMIT 3", True),
        ("SELECT num FROM {T} WHERE loose % 3 = 1 ORDER BY num LIMIT 5", True),
    ],
)
def test_files_are_queried_only_where_the_bounds_promise_a_gain(
    many: Path, statement: str, queried: bool, monkeypatch: pytest.MonkeyPatch, reader: duckdb.DuckDBPyConnection
) -> None:
    asked = []
    right = TableQueries.worst_of_first
    monkeypatch.setattr(TableQueries, "worst_of_first", lambda *given: asked.append(given) or right(*given))
    wanted = reader.sql(statement.replace("{T}", f"read_parquet('{many}/t/*.parquet')")).fetchall()
    assert zskip.sql(statement.replace("{T}", f"'{many}/t'"), reader).fetchall() == wanted
    assert bool(asked) == queried


@pytest.mark.parametrize(("statement", "files"), ASKED, ids=[statement for statement, _ in ASKED])
def test_files_that_begin_best_are_asked_for_their_first_rows(
    many: Path, statement: str, files: int, monkeypatch: pytest.MonkeyPatch, reader: duckdb.DuckDBPyConnection
) -> None:
    monkeypatch.setattr(first_rows, "FILE_SECONDS", 1)  # a slow machine may take its time
    ours, plain = (
        statement.replace("{T}", f"'{many}/t' t"),
        statement.replace("{T}", f"read_parquet('{many}/t/*.parquet', can_have_nan = true) t"),
    )
    assert repr(zskip.sql(ours, reader).fetchall()) == repr(reader.sql(plain).fetchall())
    assert [len(plan) for _, plan in rewrite(ours, reader).plans] == [files]
