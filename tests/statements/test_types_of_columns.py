"""Columns of an indexed folder have the types that DuckDB gives them over the same files, however many are read."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import zskip

VALUES = {
    "JSON": """'{"a": 1}'::JSON""",
    "STRUCT(j JSON)": "{'j': '[1]'::JSON}",
    "JSON[]": "['1'::JSON, NULL]",
    "MAP(VARCHAR, JSON)": "MAP {'a': '1'::JSON}",
    "ENUM": "'a'::ENUM ('a', 'b')",
    "UUID": "uuid()",
    "UUID[]": "[uuid()]",
    "BIT": "'01'::BIT",
    "INTERVAL": "INTERVAL 1 DAY",
    "HUGEINT": "5::HUGEINT",
    "TIMETZ": "'12:00:00+05'::TIMETZ",
    "TIME_NS": "'12:00'::TIME_NS",
    "TIMESTAMP_NS": "'2020-01-01'::TIMESTAMP_NS",
    "TIMESTAMP_S": "'2020-01-01'::TIMESTAMP_S",
    "TIMESTAMPTZ[]": "['2020-01-01'::TIMESTAMPTZ]",
    "DECIMAL(30, 3)": "1.5::DECIMAL(30, 3)",
    "UTINYINT": "1::UTINYINT",
    "INT[2]": "[1, 2]::INT[2]",
    "BLOB": "'a'::BLOB",
}


@pytest.mark.parametrize("name", VALUES)
def test_the_types_are_those_of_the_files_in_duckdb(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    with duckdb.connect() as con:
        for number in range(2):
            file = folder / f"{number}.parquet"
            con.execute(f"COPY (SELECT {number} AS i, {VALUES[name]} AS c) TO '{file}' (FORMAT parquet)")
        zskip.index(folder)
        files = f"read_parquet('{folder}/*.parquet')"
        for query in (
            "FROM {} ORDER BY i",
            "FROM {} WHERE i = 1",
            "FROM {} WHERE i = 7",
            "SELECT c, count(*) FROM {} WHERE i < 1 GROUP BY ALL",
            "SELECT any_value(c) FROM {} WHERE i > 7",
            "SELECT c FROM {} WHERE i = 1 UNION ALL SELECT c FROM {} WHERE i = 7",
        ):
            wanted = con.sql(query.replace("{}", files))
            found = zskip.sql(query.replace("{}", f"'{folder}'"), con)
            assert (found.columns, found.types) == (wanted.columns, wanted.types), query
            assert found.fetchall() == wanted.fetchall(), query
        for where in ("i = 1", "i = 7"):
            read = zskip.open(folder).plan(where).to_duckdb(con)
            assert read.types == con.sql(f"FROM {files}").types
