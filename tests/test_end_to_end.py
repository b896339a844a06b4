"""The main job on real data: Zeek logs laid out as 100 files, and every answer equal to DuckDB's over the raw rows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.cli.main import main

BY = ["ts", "id.orig_h", "id.resp_h", "id.resp_p"]
PREDICATES = 30


@pytest.fixture(scope="module")
def raw(fixtures: Path) -> pa.Table:
    return pq.read_table(fixtures / "zeek.parquet")


@pytest.fixture(scope="module")
def connection(raw: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as open_connection:
        open_connection.execute("SET TimeZone = 'UTC'")
        open_connection.register("raw", raw)
        yield open_connection


@pytest.fixture(scope="module")
def folder(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that the issue names: 100 files by time, client, server and port."""
    path = tmp_path_factory.mktemp("lake") / "zeek"
    zskip.write(fixtures / "zeek.parquet", path, by=BY, files=100)
    return path


@pytest.fixture(scope="module")
def table(folder: Path) -> zskip.Table:
    return zskip.open(folder)


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"TIMESTAMPTZ '{value.isoformat(sep=' ')}'"


def random_predicate(rows: list[dict[str, Any]], dice: random.Random, depth: int = 2) -> str:
    """A predicate that analysts ask, with values that the data has, or nearly has."""
    if depth and dice.random() < 0.55:
        left, right = (random_predicate(rows, dice, depth - 1) for _ in range(2))
        joined = f"({left}) {dice.choice(['AND', 'AND', 'OR'])} ({right})"
        return f"NOT ({joined})" if dice.random() < 0.15 else joined
    name = dice.choice([*BY, *BY, "id.orig_p", "query", "qtype_name", "rtt", "server_name", "established"])
    column = f'"{name}"'
    values = [literal(dice.choice(rows)[name]) for _ in range(3)]
    low, high = sorted(values[:2])
    shapes = [
        f"{column} = {values[0]}",
        f"{column} = {values[0]}",
        f"{column} {dice.choice(['<', '<=', '>', '>=', '<>'])} {values[0]}",
        f"{column} BETWEEN {low} AND {high}",
        f"{column} IN ({', '.join(values)})",
        f"{column} NOT IN ({', '.join(values)})",
        f"{column} IS {dice.choice(['', 'NOT '])}NULL",
    ]
    if name in ("id.orig_h", "id.resp_h", "query", "server_name"):
        text = str(dice.choice(rows)[name] or "x").replace("'", "''")
        shapes.append(f"{column} LIKE '{text[: dice.randrange(1, 8)]}%'")
    if name == "ts":
        shapes.append(f"date_trunc('minute', ts) = date_trunc('minute', {values[0]})")
        shapes.append(f"ts >= {values[0]} AND ts < {values[0]} + INTERVAL 10 SECONDS")
    return dice.choice(shapes)


@pytest.fixture(scope="module")
def predicates(raw: pa.Table) -> list[str]:
    dice = random.Random(2018)
    rows = raw.take(sorted(dice.sample(range(len(raw)), 500))).to_pylist()
    return [random_predicate(rows, dice) for _ in range(PREDICATES)]


def fingerprint(connection: duckdb.DuckDBPyConnection, source: str, **names: Any) -> tuple[Any, ...]:
    """Count and sum of hashes of the rows: equal for equal multisets of rows, whatever their order."""
    for name, rows in names.items():
        connection.register(name, rows)
    found = connection.execute(f"SELECT count(*), sum(hash(t)::HUGEINT) FROM ({source}) t").fetchall()
    return found[0]


def test_rows_equal_duckdb_over_the_raw_data(
    table: zskip.Table, connection: duckdb.DuckDBPyConnection, predicates: list[str]
) -> None:
    skipped, full = 0, 0
    for predicate in predicates:
        plan = table.plan(predicate)
        ours = fingerprint(connection, "FROM ours", ours=plan.to_arrow())
        assert ours == fingerprint(connection, f"FROM raw WHERE {predicate}"), predicate
        skipped += 100 - len(plan.paths)
        full += not plan.paths or ours[0] == 0
    # The predicates are of every width; that they skip a good part of the files shows that this test is not idle.
    assert skipped > 20 * PREDICATES


def test_a_sampled_host_skips_most_files(folder: Path, raw: pa.Table, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = sorted(set(raw["id.orig_h"].to_pylist()))
    dice = random.Random(7)
    shares = []
    for host in dice.sample(hosts, 10):
        assert main(["plan", str(folder), f"\"id.orig_h\" = '{host}'", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        shares.append(facts["skipped"]["files"]["skipped"] / facts["skipped"]["files"]["total"])
        assert main(["query", str(folder), f"\"id.orig_h\" = '{host}'", "--csv", "--columns", "uid"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) - 1 == raw.filter(pa.compute.field("id.orig_h") == host).num_rows
    assert sorted(shares)[len(shares) // 2] > 0.5


def test_whole_statements(table: zskip.Table, folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
    statement = """
        SELECT d."id.orig_h", count(*) AS n, min(epoch_us(d.ts)) AS first
        FROM {t} d JOIN {t} s ON d."id.orig_h" = s."id.orig_h" AND s.service = 'ssl'
        WHERE d."id.orig_h" = '10.47.1.100' AND d.qtype_name = 'PTR' AND s.ts < TIMESTAMPTZ '2018-03-24 17:20:00+00'
        GROUP BY 1
    """
    ours = zskip.sql(statement.format(t=f"'{folder}'"), connection).fetchall()
    assert ours == connection.execute(statement.format(t="raw")).fetchall()
    assert ours


def test_without_its_index_the_folder_is_ordinary_parquet(
    fixtures: Path, tmp_path: Path, raw: pa.Table, connection: duckdb.DuckDBPyConnection
) -> None:
    path = tmp_path / "zeek"
    zskip.write(raw.slice(0, 20_000), path, by=BY, files=10)
    before = sorted(path.rglob("*.parquet"))
    assert before
    assert not [file for file in before if "_zskip" in file.parts], "a glob of Parquet would read the index as data"
    glob = fingerprint(connection, f"FROM read_parquet('{path}/**/*.parquet')")
    assert glob == fingerprint(connection, "FROM cut", cut=raw.slice(0, 20_000))
    for part in sorted((path / "_zskip").rglob("*"), reverse=True):
        part.rmdir() if part.is_dir() else part.unlink()
    (path / "_zskip").rmdir()
    assert sorted(path.rglob("*.parquet")) == before
    assert len(pd.read_parquet(path)) == len(pl.read_parquet(f"{path}/**/*.parquet")) == 20_000
    assert glob == fingerprint(connection, f"FROM read_parquet('{path}/**/*.parquet')")
    assert fingerprint(connection, "FROM arrow", arrow=pq.read_table(path)) == glob
