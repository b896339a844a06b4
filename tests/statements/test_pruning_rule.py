"""Which statements over few files are explained, so that files can be skipped, and that their rows are DuckDB's."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.statements.cases import statements
from zskip.statements.duckdb import pruning_rule
from zskip.storage.local import LocalStorage

FILES, ROWS = 4, 50
_LEAST_SAVED, _LEAST_READ, _MOST_RANGES = pruning_rule.LEAST_SAVED, pruning_rule.LEAST_READ, pruning_rule.MOST_RANGES
# Each file has its own range of "day"; "same" has the same values in all of them.
_DATA = pa.table(
    {
        "day": [number // ROWS for number in range(FILES * ROWS)],
        "same": [number % ROWS for number in range(FILES * ROWS)],
    }
)


@pytest.fixture(autouse=True)
def the_rule_is_kept(monkeypatch: pytest.MonkeyPatch, every_statement_is_explained: None) -> None:
    monkeypatch.setattr(pruning_rule, "MOST_RANGES", _MOST_RANGES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _indexed(tmp_path_factory.mktemp("lake") / "t", _DATA)


def _indexed(path: Path, rows: pa.Table, row_group_size: int = 10) -> Path:
    path.mkdir()
    for number in range(FILES):
        pq.write_table(rows.slice(number * ROWS, ROWS), path / f"{number}.parquet", row_group_size=row_group_size)
    zskip.index(path)
    return path


@pytest.mark.parametrize(("rows_a_file", "again"), [(10, False), (200_000, True)])
def test_a_statement_that_saves_little_is_explained_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_a_file: int, again: bool
) -> None:
    monkeypatch.setattr(pruning_rule, "LEAST_SAVED", _LEAST_SAVED)
    zskip.write(pa.table({"x": range(4 * rows_a_file)}), tmp_path / "t", by="x", files=4)
    con, text = _connection(), f"SELECT count(DISTINCT x) FROM '{tmp_path / 't'}' WHERE x % 1000 = 3 AND x // 8 < 1"
    assert [_is_explained(text, con) for _ in range(3)] == [True, again, again]
    assert "3 files skipped" in zskip.explain(text, con)


@functools.cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One for all tests: it logs its queries, and has a table, a view and a macro of its own."""
    con = duckdb.connect()
    con.execute("CREATE TABLE mine AS SELECT range AS day, 'm' || range AS label FROM range(3)")
    con.execute("CREATE VIEW view_of_mine AS FROM mine")
    con.execute("CREATE MACRO is_early(x) AS x < 1")
    con.execute("CALL enable_logging('QueryLog')")
    return con


def _is_explained(text: str, con: duckdb.DuckDBPyConnection) -> bool:
    con.execute("CALL truncate_duckdb_logs()")
    zskip.sql(text, con).fetchall()
    ((count,),) = con.execute("SELECT count(*) FROM duckdb_logs WHERE message LIKE 'EXPLAIN%'").fetchall()
    return bool(count)


@pytest.mark.parametrize(
    ("statement", "explained"),
    [
        (statement, section == "explained")
        for section in ("explained", "not explained")
        for statement in statements("pruning_rule", section)
    ],
)
def test_a_statement_over_few_files_is_explained_where_that_may_gain(
    folder: Path, statement: str, explained: bool
) -> None:
    con, text = _connection(), statement.replace("{}", f"'{folder}'")
    assert _is_explained(text, con) == explained
    expected = con.sql(statement.replace("{}", f"'{folder}/*.parquet'")).fetchall()
    assert sorted(zskip.sql(text, con).fetchall()) == sorted(expected)
    con.execute("CALL truncate_duckdb_logs()")
    assert zskip.explain(text, con)
    ((asked,),) = con.execute("SELECT count(*) FROM duckdb_logs WHERE message LIKE 'EXPLAIN%'").fetchall()
    assert asked, "a user who asks gets the reasons"


@pytest.mark.parametrize(
    ("statement", "explained"),
    [
        ("SELECT sum(same) FROM {} WHERE day % 3 = 2", False),
        ("SELECT day, count(*) FROM {} WHERE day % 3 = 2 GROUP BY day ORDER BY 2 DESC LIMIT 1", False),
        ("SELECT count(*) FROM {} WHERE day % 3 = 2 ORDER BY ALL", False),
        ("SELECT same FROM {} WHERE day % 3 = 2 ORDER BY day LIMIT 3", True),
        ("SELECT count(*) FROM {} JOIN mine USING (day) WHERE day % 3 = 2", True),
        ("SELECT same FROM {} WHERE day % 3 = 2 QUALIFY row_number() OVER (ORDER BY day) = 1", True),
    ],
)
def test_filters_over_little_are_not_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, statement: str, explained: bool
) -> None:
    monkeypatch.setattr(pruning_rule, "LEAST_READ", _LEAST_READ)
    con = _connection()
    assert _is_explained(statement.replace("{}", f"'{folder}'"), con) == explained


@pytest.mark.slow
def test_long_footers_are_not_read_to_skip_files(tmp_path: Path) -> None:
    wide = _DATA
    for number in range(300):
        wide = wide.append_column(f"c{number}", wide["same"])
    for rows, name, explained in ((_DATA, "narrow", False), (wide, "wide", True)):
        path = _indexed(tmp_path / name, rows)
        assert _is_explained(f"SELECT * FROM '{path}' WHERE day = 2", _connection()) == explained


@pytest.mark.parametrize(
    ("bound", "condition", "most"), [("FEW_FILES", "day = 2", FILES + 1), ("MOST_RANGES", "same % 9 = 7", FILES)]
)
def test_more_files_are_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, bound: str, condition: str, most: int
) -> None:
    for files, explained in ((most, False), (most - 1, True)):
        monkeypatch.setattr(pruning_rule, bound, files)
        assert _is_explained(f"SELECT sum(same) FROM '{folder}' WHERE {condition}", _connection()) == explained
        pruning_rule._GAINLESS.clear()


RANGES: list[tuple[list[tuple[Any, Any]], bool]] = [
    ([(0, 1000), (1, 999), (0, 998), (2, 1000)], False),
    ([(0, 1000), (1, 999), (0, 50_000), (2, 1000)], True),  # most values lie in one file
    ([(0.5, 1e3), (0.25, 1e3), (0.5, 1e3), (0.5, 990.0)], False),
    ([(0.5, 1e3), (0.25, 1e3), (0.5, 1e9), (0.5, 1e3)], True),
    ([(0.5, 1e3), (0.25, 1e3), (0.5, float("inf")), (0.5, 1e3)], True),
    ([("a", "zz"), ("aa", "zy"), ("ab", "zz"), ("a", "zx")], False),
    ([("a", "zz"), ("aa", "zy"), ("ab", "zz"), ("m", "zx")], True),
    ([(7, 7)] * 4, False),
]


def test_ranges_of_many_files_that_have_most_values_in_common_are_not_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning_rule, "FEW_FILES", 0)
    columns = {
        f"x{number}": [end for pair in ends for end in [*pair, *[pair[0]] * (ROWS - 2)]]
        for number, (ends, _) in enumerate(RANGES)
    }
    path = _indexed(tmp_path / "t", pa.table(columns))
    for name, (_, explained) in zip(columns, RANGES, strict=True):
        text = f"SELECT {name} FROM '{path}' WHERE concat({name}, '') = 'm'"
        assert _is_explained(text, _connection()) == explained, name


def test_null_in_some_files_alone_tells_them_apart(tmp_path: Path) -> None:
    same = _DATA["same"].to_pylist()
    for name, first, explained in (("some", None, True), ("none", 0, False)):
        path = _indexed(tmp_path / name, pa.table({"same": [first, *same[1:]]}))
        assert _is_explained(f"SELECT * FROM '{path}' WHERE same % 2 IS NULL", _connection()) == explained


def test_durations_have_ranges(tmp_path: Path) -> None:
    durations = {name: _DATA[name].cast(pa.duration("us")) for name in ("day", "same")}
    path = _indexed(tmp_path / "t", pa.table(durations))
    for name, explained in (("day", True), ("same", False)):
        assert _is_explained(f"SELECT * FROM '{path}' WHERE {name} % 2 = 1", _connection()) == explained
        assert zskip.sql(f"SELECT count(*) FROM '{path}' WHERE {name} IS NULL", _connection()).fetchall() == [(0,)]


def test_a_table_without_a_file_has_nothing_to_skip(folder: Path, tmp_path: Path) -> None:
    zskip.write(_DATA.slice(0, 0), tmp_path / "t", by="day")
    assert zskip.sql(f"SELECT * FROM '{tmp_path}/t' WHERE day % 3 = 2", _connection()).fetchall() == []


@pytest.mark.parametrize("column", ["same", "day"], ids=["read whole", "explained"])
def test_a_folder_that_is_named_twice_is_listed_once(
    folder: Path, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing, listings = LocalStorage.list, []

    def counted(storage: LocalStorage, *given: Any, **named: Any) -> Any:
        listings.append(given)
        return listing(storage, *given, **named)

    def listings_of(tables: str) -> int:
        listings.clear()
        zskip.sql(f"SELECT count(a.{column}) FROM {tables} WHERE a.{column} >= a.{column}").fetchall()
        return len(listings)

    monkeypatch.setattr(LocalStorage, "list", counted)
    assert listings_of(f"'{folder}' a") == listings_of(f"'{folder}' a JOIN '{folder}' b USING ({column})") == 1


_STATEMENTS = """
import sys, zskip

path, rules = sys.argv[1], "zskip.statements.duckdb.pruned_tables"
for number in range(100):
    assert zskip.sql(f"SELECT x FROM '{path}' WHERE x = {number}").fetchall() == [(number,)]
    if rules in sys.modules:
        break
print(number)
"""


@pytest.mark.parametrize(("options", "earliest", "latest"), [({}, 20, 60), ({"sketches": {"x": "values"}}, 0, 0)])
def test_the_rules_are_loaded_once_statements_have_taken_as_long(
    tmp_path: Path, options: dict[str, Any], earliest: int, latest: int
) -> None:
    zskip.write(pa.table({"x": range(600)}), tmp_path / "t", by="x", files=60, **options)
    command = [sys.executable, "-c", _STATEMENTS, str(tmp_path / "t")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert earliest <= int(done.stdout) <= latest
