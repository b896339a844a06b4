"""Statements over folders of unlike files give DuckDB's rows and types, however the files are read."""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import pytest

import zskip
from tests.statements.mixed_folders import SCHEMA, random_statement, write_folder

_STATEMENTS = 12


@pytest.mark.parametrize("seed", range(12))
def test_statements_over_mixed_folders(tmp_path: Path, seed: int) -> None:
    _compare(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 520, 20))
def test_many_statements_over_mixed_folders(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 20):
        _compare(tmp_path, seed)


def _compare(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    con, oracle = duckdb.connect(), duckdb.connect()
    for each in (con, oracle):
        each.execute("SET TimeZone = 'America/New_York'")
    paths = {}
    for name in ("t", "u"):
        paths[name] = str(tmp_path / f"{name}{seed}")
        rows = write_folder(Path(paths[name]), random)
        table = zskip.index(paths[name])
        assert table.schema.names[: len(SCHEMA)] == SCHEMA.names
        oracle.register("rows", rows)
        extra = [f"CAST(NULL AS BIGINT) AS {name}" for name in table.schema.names[len(SCHEMA) :]]
        oracle.execute(f"CREATE TABLE {name} AS SELECT {', '.join(['*', *extra])} FROM rows")
    for _ in range(_STATEMENTS):
        text = random_statement(random)
        expected, found = oracle.sql(text), zskip.sql(text, con, tables=paths)
        what = f"seed {seed}: {text}"
        assert found.columns == expected.columns, what
        assert found.types == expected.types, what
        assert sorted(map(repr, found.fetchall())) == sorted(map(repr, expected.fetchall())), what
