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
PREDICATES = [
    "ts >= TIMESTAMPTZ '2018-03-24 17:16:00+00' AND ts < TIMESTAMPTZ '2018-03-24 17:16:00+00' + INTERVAL 10 SECONDS",
    "date_trunc('minute', ts) = TIMESTAMPTZ '2018-03-24 17:20:00+00'",
    '"id.orig_h" LIKE \'10.47.2%\' AND "id.resp_p" = 443',
    '"id.resp_p" IN (53, 22, NULL) AND "id.resp_h" > \'10.9\'',
    'NOT ("id.resp_p" > 100 OR query IS NULL)',
    "qtype_name = 'PTR' AND \"id.orig_p\" BETWEEN 30000 AND 40000",
    "(rtt > 0.5 OR server_name LIKE '%.com') AND ts < TIMESTAMPTZ '2018-03-24 17:17:00+00'",
    "established IS NOT TRUE AND \"id.orig_h\" = '10.47.1.100'",
    "\"id.resp_h\" NOT IN ('10.0.0.100', '10.47.1.1') AND \"id.orig_h\" <= '10.128.0.199'",
    "server_name IS NULL AND query = 'nowhere'",
]
"""What analysts ask, of every width."""


@pytest.fixture(scope="module")
def raw(fixtures: Path) -> pa.Table:
    """Every fourth row."""
    rows = pq.read_table(fixtures / "zeek.parquet")
    return rows.take(pa.array(range(0, len(rows), 4)))


@pytest.fixture(scope="module")
def connection(raw: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as open_connection:
        open_connection.execute("SET TimeZone = 'UTC'")
        open_connection.register("raw", raw)
        yield open_connection


@pytest.fixture(scope="module")
def folder(raw: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 files by time, client, server and port."""
    path = tmp_path_factory.mktemp("lake") / "zeek"
    zskip.write(raw, path, by=BY, files=100)
    return path


@pytest.fixture(scope="module")
def table(folder: Path) -> zskip.Table:
    return zskip.open(folder)


def fingerprint(connection: duckdb.DuckDBPyConnection, source: str, **names: Any) -> tuple[Any, ...]:
    """Count and sum of hashes of the rows: equal for equal multisets of rows, whatever their order."""
    for name, rows in names.items():
        connection.register(name, rows)
    found = connection.execute(f"SELECT count(*), sum(hash(t)::HUGEINT) FROM ({source}) t").fetchall()
    return found[0]


def test_rows_equal_duckdb_over_the_raw_data(table: zskip.Table, connection: duckdb.DuckDBPyConnection) -> None:
    skipped = 0
    for predicate in PREDICATES:
        plan = table.plan(predicate)
        ours = fingerprint(connection, "FROM ours", ours=plan.to_arrow())
        assert ours == fingerprint(connection, f"FROM raw WHERE {predicate}"), predicate
        skipped += 100 - len(plan.paths)
    # The predicates are of every width; that they skip a good part of the files shows that this test is not idle.
    assert skipped > 20 * len(PREDICATES)


def test_a_sampled_host_skips_most_files(folder: Path, raw: pa.Table, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = sorted(set(raw["id.orig_h"].to_pylist()))
    dice = random.Random(7)
    shares = []
    for host in dice.sample(hosts, 5):
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
    tmp_path: Path, raw: pa.Table, connection: duckdb.DuckDBPyConnection
) -> None:
    path = tmp_path / "zeek"
    zskip.write(raw.slice(0, 4_000), path, by=BY, files=10)
    before = sorted(path.rglob("*.parquet"))
    assert before
    assert not [file for file in before if "_zskip" in file.parts], "a glob of Parquet would read the index as data"
    glob = fingerprint(connection, f"FROM read_parquet('{path}/**/*.parquet')")
    assert glob == fingerprint(connection, "FROM cut", cut=raw.slice(0, 4_000))
    for part in sorted((path / "_zskip").rglob("*"), reverse=True):
        part.rmdir() if part.is_dir() else part.unlink()
    (path / "_zskip").rmdir()
    assert sorted(path.rglob("*.parquet")) == before
    assert len(pd.read_parquet(path)) == len(pl.read_parquet(f"{path}/**/*.parquet")) == 4_000
    assert glob == fingerprint(connection, f"FROM read_parquet('{path}/**/*.parquet')")
    assert fingerprint(connection, "FROM arrow", arrow=pq.read_table(path)) == glob
