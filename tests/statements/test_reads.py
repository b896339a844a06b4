"""The reads that replace tables: which columns, files and estimates DuckDB gets."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.statements.cases import counted, statements
from zskip.statements.duckdb.statement import rewrite

FILES, ROWS = 4, 50
_ESTIMATE = re.compile(r'"Estimated Cardinality": "(\d+)"')
# Each file has its own range of "day"; "same" has the same values in all of them; "key" is unique and has gaps.
_DATA = pa.table(
    {
        "day": [number // ROWS for number in range(FILES * ROWS)],
        "same": [number % ROWS for number in range(FILES * ROWS)],
        "key": [number * 7 % 1400 for number in range(FILES * ROWS)],
        "part": ["ab"[number % 2] for number in range(FILES * ROWS)],
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain files that are only indexed, of which one stores a narrower type."""
    return _indexed(tmp_path_factory.mktemp("lake") / "t", narrower=2)


def _indexed(path: Path, narrower: int) -> Path:
    path.mkdir()
    for number in range(FILES):
        rows = _DATA.slice(number * ROWS, ROWS)
        if number == narrower:
            rows = rows.set_column(1, "same", rows.column("same").cast(pa.int16()))
        pq.write_table(rows, path / f"{number}.parquet", row_group_size=10)
    zskip.index(path)
    return path


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("SELECT sum(same) FROM 't'", {"same"}),
        ("SELECT count(*) FROM 't'", {"day"}),
        ("SELECT a.key FROM 't' a SEMI JOIN 't' b USING (day)", {"day", "key"}),
        ("SELECT * FROM 't'", {"day", "same", "key", "part"}),
        ("SELECT * EXCLUDE (key) FROM 't'", {"day", "same", "key", "part"}),
    ],
)
def test_a_read_binds_the_columns_that_the_statement_names(
    tmp_path: Path, statement: str, read: set[str], reader: duckdb.DuckDBPyConnection
) -> None:
    folder = _indexed(tmp_path / "t", narrower=0)  # DuckDB would take its types for those of all files
    text = statement.replace("'t'", f"'{folder}'")
    made = rewrite(text, reader, prune=False)
    bound = made.sql.partition("bound_schema = {")[2].partition("}")[0]
    assert {pair.partition("'")[2].partition("'")[0] for pair in bound.split(", ")} == read
    plain = duckdb.execute(statement.replace("'t'", f"'{folder}/*.parquet'")).fetchall()
    assert sorted(zskip.sql(text).fetchall()) == sorted(plain)


_FIRST = pa.table({"a": [1, 2], "b": ["x", "y"]})


@pytest.mark.parametrize(
    ("first", "then", "statement", "bound"),
    [
        (_FIRST, _FIRST, "SELECT * FROM {} WHERE a > 1", False),
        (_FIRST, _FIRST.set_column(0, "a", pa.array([1, 2], pa.int8())), "SELECT * FROM {} WHERE a > 1", False),
        (_FIRST, _FIRST.select(["b", "a"]), "SELECT * FROM {} WHERE a > 1", False),
        (_FIRST.select(["a"]), _FIRST, "SELECT a FROM {} WHERE a > 1", False),
        (_FIRST.set_column(0, "a", pa.array([1, 2], pa.int8())), _FIRST, "SELECT a + 2**40 FROM {}", True),
        (_FIRST.select(["b", "a"]), _FIRST, "SELECT a FROM {}", False),
        (_FIRST.append_column("s", pa.array([{"f": 1}] * 2)), _FIRST, "SELECT a FROM {}", True),
        (_FIRST.append_column("c", pa.array([b"1"] * 2)), _FIRST, "SELECT a FROM {}", True),
    ],
)
def test_a_read_binds_no_columns_that_the_first_file_has(
    first: pa.Table, then: pa.Table, statement: str, bound: bool, tmp_path: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    for number, rows in enumerate((first, then)):
        pq.write_table(rows, tmp_path / f"{number}.parquet")
    zskip.index(tmp_path)
    text = statement.format(f"'{tmp_path}'")
    assert ("bound_schema" in rewrite(text, reader, prune=False).sql) is bound
    glob = f"read_parquet('{tmp_path}/*.parquet', union_by_name = true)"
    rows = zskip.sql(text)
    whole = duckdb.sql(statement.format(glob))
    assert (rows.columns, rows.types) == (whole.columns, whole.types)
    assert sorted(map(repr, rows.fetchall())) == sorted(map(repr, whole.fetchall()))


def test_a_file_that_is_replaced_keeps_the_types_of_the_table(
    tmp_path: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    text = f"SELECT a FROM '{tmp_path}'"
    pq.write_table(_FIRST, tmp_path / "0.parquet")
    zskip.index(tmp_path)
    assert zskip.sql(text, reader).types == ["BIGINT"]
    pq.write_table(_FIRST.set_column(0, "a", pa.array([3, 4], pa.int16())), tmp_path / "0.parquet")
    again = zskip.sql(text, reader)
    assert (again.types, again.fetchall()) == (["BIGINT"], [(3,), (4,)])


def test_a_column_that_the_table_lacks_is_none_of_the_first_files(tmp_path: Path) -> None:
    """The table was written before the other program added a column to its first file."""
    for number in range(3):
        pq.write_table(_FIRST, tmp_path / f"{number}.parquet")
    zskip.index(tmp_path)
    pq.write_table(_FIRST.append_column("late", pa.array([1, 2])), tmp_path / "0.parquet")
    assert zskip.sql(f"SELECT a FROM '{tmp_path}' WHERE a = 2").fetchall() == [(2,)] * 3
    with pytest.raises(duckdb.BinderException, match="late"):
        zskip.sql(f"SELECT late FROM '{tmp_path}'").fetchall()


def test_a_statement_that_names_only_partition_columns_reads_rows(
    tmp_path: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    zskip.write(_DATA, tmp_path / "t", by="day", partition_by="part", files=2)
    for statement, rows in (
        ("SELECT count(part) FROM {}", [(FILES * ROWS,)]),
        ("SELECT DISTINCT part FROM {} ORDER BY part", [("a",), ("b",)]),
        ("SELECT part, count(*) FROM {} GROUP BY part ORDER BY part", [("a", 100), ("b", 100)]),
    ):
        made = rewrite(statement.format(f"'{tmp_path / 't'}'"), reader, prune=False)
        assert duckdb.execute(made.sql, made.parameters).fetchall() == rows


@pytest.mark.parametrize("condition", ["true", "a.same = 7", "b.part = 'a'", "a.day + b.day = 3"])
def test_a_join_is_planned_as_over_a_glob_of_the_same_files(
    folder: Path, condition: str, reader: duckdb.DuckDBPyConnection
) -> None:
    """The key has gaps: by its bounds, DuckDB would expect a seventh of the rows, and choose another order."""
    text = f"SELECT count(*) FROM {{t}} a JOIN {{t}} b USING (key) JOIN {{t}} c ON b.same = c.day WHERE {condition}"
    made = rewrite(text.replace("{t}", f"'{folder}'"), reader)
    estimates = [
        _ESTIMATE.findall(str(reader.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters).fetchall()))
        for statement, parameters in ((made.sql, made.parameters), (text.replace("{t}", f"'{folder}/*.parquet'"), None))
    ]
    assert estimates[0] == estimates[1] != []


@pytest.mark.parametrize(
    ("rows", "first"),
    [([50, 50, 50], 0), ([1, 50, 60], 1), ([0, 50, 60], 1), ([900] + [50] * 9, 1), ([27, 123], 1), ([0, 0], 0)],
)
def test_a_join_reads_a_file_of_typical_size_first(
    tmp_path: Path, rows: list[int], first: int, reader: duckdb.DuckDBPyConnection
) -> None:
    for number, count in enumerate(rows):
        pq.write_table(pa.table({"key": pa.array(range(count), pa.int64())}), tmp_path / f"{number}.parquet")
    zskip.index(tmp_path)
    made = rewrite(f"SELECT count(*) FROM '{tmp_path}' a JOIN '{tmp_path}' b USING (key)", reader, prune=False)
    assert isinstance(made.parameters, list)
    assert [Path(files[0]).stem for files in made.parameters] == [str(first)] * 2


@pytest.mark.parametrize(("statement", "files"), counted("reads", "without a row that is needed"))
def test_a_table_of_which_no_row_is_needed_is_not_read(
    folder: Path, statement: str, files: list[int], reader: duckdb.DuckDBPyConnection
) -> None:
    text = statement.replace("{t}", f"'{folder}'")
    assert [len(plan) for _, plan in rewrite(text, reader).plans] == files
    if not statement.startswith("EXPLAIN"):
        expected = reader.sql(statement.replace("{t}", f"'{folder}/*.parquet'"))
        found = zskip.sql(text, reader)
        assert (found.columns, found.types) == (expected.columns, expected.types)
        assert sorted(found.fetchall()) == sorted(expected.fetchall())


def test_the_row_groups_of_few_files_are_left_to_duckdb(folder: Path) -> None:
    """`explain` counts them; the statement itself reads the file, in which DuckDB finds no row group."""
    text = f"SELECT key FROM '{folder}' WHERE day = 1 AND key = 3"
    assert "row groups 20 of 20" in zskip.explain(text)
    assert zskip.sql(text).fetchall() == []


@pytest.mark.parametrize("statement", statements("reads", "with places of rows"))
def test_rows_keep_their_places_where_a_statement_asks_for_them(statement: str, tmp_path: Path) -> None:
    """Files hold other columns, and the first one far fewer rows than the others: elsewhere they are read apart."""
    one, two = pa.struct({"u": pa.int64()}), pa.struct({"u": pa.int64(), "v": pa.int64()})
    parts = {
        "a": [
            {"id": [0], "n": [1], "s": pa.array([{"u": 1}], one)},
            {"id": [100, 101, 102], "s": pa.array([{"u": 2, "v": 3}] * 3, two)},
            {"id": [200, 201, 202], "n": [1, 2, 3]},
        ],
        "b": [{"id": [first, first + 1, first + 2]} for first in (0, 100, 200)],
    }
    for name, files in parts.items():
        (tmp_path / name).mkdir()
        for number, columns in enumerate(files):
            pq.write_table(pa.table(columns), tmp_path / name / f"{number}.parquet")
        zskip.index(tmp_path / name)
        statement = statement.replace(f"'{name}'", f"{{{name}}}")
    found = zskip.sql(statement.format(**{name: f"'{tmp_path / name}'" for name in parts}))
    plain = {name: f"read_parquet('{tmp_path / name}/*.parquet', union_by_name = true)" for name in parts}
    wanted = duckdb.sql(statement.format(**plain))
    if "file_index" in statement:
        assert sorted(found.fetchall()) == sorted(wanted.fetchall())
    else:
        assert found.fetchall() == wanted.fetchall()
