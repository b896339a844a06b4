"""Constants of every type select the same rows as in DuckDB, however its plan prints them."""

from __future__ import annotations

import itertools
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

import zskip
from tests.statements.cases import statements

TYPES = [
    "VARCHAR", "BLOB", "INTERVAL", "DOUBLE", "FLOAT", "DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS",
    "TIMESTAMP_NS", "TIMESTAMPTZ", "TIME", "TIMETZ", "TINYINT", "UBIGINT", "BIGINT", "HUGEINT",
    "DECIMAL(38,10)", "DECIMAL(4,1)", "BOOLEAN", "UUID", "STRUCT(a INT, b VARCHAR)", "INT[]", "VARCHAR[]",
    "MAP(VARCHAR, INT)", "JSON",
]  # fmt: skip
PATTERNS = statements("printed_constants", "patterns")
FUNCTIONS = ["regexp_full_match", "regexp_matches"]
EXPRESSIONS = [
    ".*b", "a.*", "(ab|cd).*", "^a", "b$", "é.*", "[^a].*", "(?i)AB", "a\\\\.*", ".", "", "[\\x{e9}€]", "it''s",
]  # fmt: skip


def _compared(folder: Path, con: duckdb.DuckDBPyConnection, type: str) -> list[str]:
    """The conditions on a table of some constants, one in each file, for which zskip and DuckDB select other rows."""
    path = str(folder / "t")
    values = statements("printed_constants", type)
    con.execute(f"CREATE OR REPLACE TABLE plain (i BIGINT, a {type})")
    for number, value in enumerate([*values, "NULL"]):
        con.execute(f"INSERT INTO plain VALUES ({number}, {value})")
        (folder / "t").mkdir(exist_ok=True)
        con.execute(f"COPY (FROM plain WHERE i = {number}) TO '{path}/{number}.parquet' (FORMAT parquet)")
    zskip.index(path)
    # What a type loses in Parquet, such as the offset of TIMETZ, is no matter of constants.
    con.execute(f"CREATE OR REPLACE TABLE plain AS FROM read_parquet('{path}/*.parquet')")
    conditions = [f"a {op} {one}" for one in values for op in ("=", ">=")]
    conditions += [f"a IN ({one}, {other})" for one, other in itertools.pairwise(values)]
    if type == "VARCHAR":
        conditions += [f"a {pattern}" for pattern in PATTERNS]
        conditions += [f"{name}(a, '{text}')" for name in FUNCTIONS for text in EXPRESSIONS]
    differing = []
    for condition in conditions:
        query = f"SELECT i FROM TABLE_ WHERE {condition} ORDER BY i"
        wanted = con.sql(query.replace("TABLE_", "plain")).fetchall()
        found = zskip.sql(query.replace("TABLE_", f"'{path}'"), con).fetchall()
        if wanted != found:
            differing.append(f"{condition}: {found} for {wanted}")
    assert pq.ParquetFile(f"{path}/0.parquet").metadata.num_rows == 1
    return differing


@pytest.mark.parametrize("type", [one if one == "BLOB" else pytest.param(one, marks=pytest.mark.slow) for one in TYPES])
def test_constants_select_the_rows_that_they_select_in_duckdb(type: str, tmp_path: Path) -> None:
    with duckdb.connect() as con:
        assert _compared(tmp_path, con, type) == []


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kolkata", "America/St_Johns"])
def test_constants_with_a_zone_under_another_zone_of_the_session(zone: str, tmp_path: Path) -> None:
    with duckdb.connect() as con:
        con.execute(f"SET TimeZone = '{zone}'")
        assert _compared(tmp_path, con, "TIMESTAMPTZ") == []
