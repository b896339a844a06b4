"""Patterns and paths that name files of a table with a log are refused: some files hold deleted or replaced rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.statements.cases import statements
from zskip.errors import ForeignTable

STATEMENTS = statements("files_of_tables", "refused")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``clustered/``: a folder whose own files zskip has replaced · ``written/``: a table with deleted rows."""
    folder = tmp_path_factory.mktemp("files")
    for name in ("clustered", "plain"):
        (folder / name).mkdir()
        for number in range(4):
            pq.write_table(pa.table({"a": range(number, 40, 4)}), folder / name / f"{number}.parquet")
    zskip.cluster(str(folder / "clustered"), by="a")
    zskip.write(pa.table({"a": range(40)}), folder / "written", by="a", files=4)
    for name in ("clustered", "written"):
        zskip.open(folder / name).delete("a < 13")
    return folder


def _connection() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE TABLE given (a BIGINT)")
    con.execute("CREATE MACRO of_files(path) AS TABLE FROM read_parquet(path)")
    return con


@pytest.fixture(scope="module")
def reader() -> Iterator[duckdb.DuckDBPyConnection]:
    with _connection() as con:
        yield con


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with _connection() as con:
        yield con


@pytest.mark.parametrize("text", STATEMENTS)
def test_files_of_a_table_are_refused_by_name(text: str, folder: Path, reader: duckdb.DuckDBPyConnection) -> None:
    for table, files in (("clustered", "*.parquet"), ("written", "*.parquet"), ("written", "[0-9p]*.parquet")):
        path = folder / table
        reader.execute(f"SET VARIABLE pattern = '{path}/*.parquet'")
        statement = text.replace("{T}", str(path)).replace("{D}", str(folder)).replace("{F}", files)
        with pytest.raises(ForeignTable, match=str(folder)):
            zskip.sql(statement, reader)


@pytest.mark.parametrize("call", ["read_parquet('{}')", "parquet_scan(['{}/'])", "of_files('{}')"])
def test_a_folder_of_a_table_is_no_source_of_files(call: str, folder: Path, reader: duckdb.DuckDBPyConnection) -> None:
    """DuckDB 2.0 reads all files in a folder, the removed ones too."""
    for path in (folder / "clustered", folder / "written", folder):
        with pytest.raises(ForeignTable, match=str(folder)):
            zskip.sql(f"SELECT count(*) FROM {call.format(path)}", reader)
    assert zskip.sql(f"SELECT count(*) FROM {call.format(folder / 'plain')}", reader).fetchall() == [(40,)]


@pytest.mark.parametrize(
    "statement",
    [
        "FROM read_parquet($${}/*.parquet$$)",
        "FROM read_parquet('~/{}')",
        "FROM '~/{}/*.parquet'",
        "CALL read_parquet('{}')",
        "PREPARE q AS FROM read_parquet($1); EXECUTE q('{}')",
        "COPY given FROM '{}' (FORMAT parquet)",
    ],
)
def test_spellings_of_a_folder_are_read_as_duckdb_reads_them(
    statement: str, folder: Path, reader: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/")
    for name in ("written",) if "*" in statement else ("written", "."):
        path = str(folder / name)
        with pytest.raises(ForeignTable):
            zskip.sql(statement.format(path.lstrip("/") if "~" in statement else path), reader)


@pytest.mark.parametrize(
    ("setting", "statement"),
    [
        ("file_search_path", "FROM '*.parquet'"),
        ("file_search_path", "FROM read_parquet('part-*')"),
        ("home_directory", "FROM '~/*.parquet'"),
        ("home_directory", "FROM read_parquet('~')"),
    ],
)
def test_settings_that_say_where_files_are_looked_for(
    setting: str, statement: str, folder: Path, con: duckdb.DuckDBPyConnection
) -> None:
    con.execute(f"SET {setting} = '{folder / 'written'}'")
    with pytest.raises(ForeignTable, match="written"):
        zskip.sql(statement, con)


def test_a_file_is_not_written_into_a_table_below_the_home_that_the_connection_has(
    folder: Path, con: duckdb.DuckDBPyConnection
) -> None:
    con.execute(f"SET home_directory = '{folder}'")
    with pytest.raises(ForeignTable, match="Write the file to another folder"):
        zskip.sql("COPY (SELECT 1 AS a) TO '~/written/new.parquet'", con)
    with pytest.raises(ForeignTable, match="Write the file to another folder"):
        zskip.sql("COPY (SELECT 1 AS a) TO $1", con, params=[f"{folder}/written/new.parquet"])


@pytest.mark.parametrize("argument", ["[?]", "? || '/*.parquet'", "?"])
def test_a_folder_in_a_parameter_is_refused(argument: str, folder: Path, reader: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(ForeignTable):
        zskip.sql(f"FROM read_parquet({argument})", reader, params=[str(folder / "written")])
    rows = zskip.sql("FROM read_parquet([?])", reader, params=[f"{folder}/plain/0.parquet"])
    assert len(rows.fetchall()) == 10


@pytest.mark.parametrize("table", ["clustered", "written"])
def test_a_pattern_as_a_parameter_or_a_source_is_refused(
    table: str, folder: Path, reader: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    pattern = str(folder / table / "*.parquet")
    with pytest.raises(ForeignTable):
        zskip.sql("FROM read_parquet(?)", reader, params=[pattern])
    with pytest.raises(ForeignTable):
        zskip.sql("FROM read_parquet($files)", reader, params={"files": [pattern]})
    with pytest.raises(ForeignTable):
        zskip.write(pattern, tmp_path / "t", by="a")


def test_links_to_the_files_of_a_table_are_refused(
    folder: Path, reader: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    for file in (folder / "written").glob("*.parquet"):
        (links / file.name.removeprefix("part-")).symlink_to(file)
    with pytest.raises(ForeignTable):
        zskip.sql(f"FROM '{links}/*.parquet'", reader)
    with pytest.raises(ForeignTable):
        zskip.write(links, tmp_path / "t", by="a")
    (tmp_path / "whole").symlink_to(folder / "written")
    with pytest.raises(ForeignTable):
        zskip.sql(f"FROM '{tmp_path}/*/part-*.parquet'", reader)


def test_links_to_other_files_are_read(folder: Path, reader: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Even to a file that lies in a table's folder, and is none of its own."""
    other = folder / "written" / "other.parquet"
    pq.write_table(pa.table({"a": range(7)}), other)
    (tmp_path / "0.parquet").symlink_to(folder / "plain" / "0.parquet")
    (tmp_path / "other.parquet").symlink_to(other)
    try:
        assert len(zskip.sql(f"FROM '{tmp_path}/*.parquet'", reader).fetchall()) == 17
    finally:
        other.unlink()


def test_files_of_no_table_and_folders_that_are_only_indexed_are_read(
    folder: Path, reader: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    assert len(zskip.sql(f"FROM '{folder}/plain/*.parquet'", reader).fetchall()) == 40
    assert len(zskip.sql("FROM read_parquet(?)", reader, params=[f"{folder}/plain/0.parquet"]).fetchall()) == 10
    pq.write_table(pa.table({"a": range(7)}), tmp_path / "0.parquet")
    zskip.index(tmp_path)
    zskip.sql(f"COPY (SELECT 8 AS a) TO '{tmp_path}/1.parquet'", reader)
    zskip.sql(f"COPY (FROM glob('{folder}/*/*.parquet')) TO '{tmp_path}/names.csv'", reader)
    assert len(zskip.sql(f"FROM query('FROM read_parquet(''{tmp_path}/0.parquet'')')", reader).fetchall()) == 7
    (tmp_path / "1.parquet").unlink()
    assert len(zskip.sql(f"FROM '{tmp_path}/*.parquet'", reader).fetchall()) == 7
