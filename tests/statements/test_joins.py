"""Joins: tables are pruned by the keys of other tables, and only where no row is needed that has no partner."""

from __future__ import annotations

import datetime
import re
from collections.abc import Hashable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.statements.cases import counted, files_read, over
from tests.tables import build_table, sorted_rows
from zskip.statements import joins
from zskip.statements.duckdb import pruned_tables
from zskip.statements.duckdb.statement import rewrite
from zskip.statements.duckdb.stubs import engine_plan, make_stubs, printed_columns
from zskip.statements.plan_tree import Node

N = 160
DAY = datetime.date(2024, 1, 1)


def _rows(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)

    def nullable(values: Sequence[object]) -> list[object]:
        return [None if missing else value for value, missing in zip(values, random.random(N) < 0.1, strict=True)]

    days = [DAY + datetime.timedelta(days=int(day)) for day in np.sort(random.integers(0, 60, N))]
    return pa.table(
        {
            "key": pa.array(nullable(np.sort(random.integers(0, 60, N)).tolist()), pa.int64()),
            "val": pa.array(nullable(random.integers(0, 60, N).tolist()), pa.int32()),
            "txt": pa.array(nullable([f"s{value:02}" for value in random.integers(0, 40, N)])),
            "day": pa.array(nullable(days)),
        }
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joins")
    for number in range(3):
        build_table(folder / str(number), _rows(number), files=16, row_group_rows=10)
    build_table(
        folder / "dim",
        pa.table(
            {"key": [5, 6, 7, 50, None], "small": pa.array([5, 6, 7, 50, None], pa.int16()), "name": list("ppqrp")}
        ),
        files=1,
    )
    return folder


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are asked for whatever they cost, and however long that takes."""
    monkeypatch.setattr(joins, "_QUERY_SECONDS", -1000.0)
    monkeypatch.setattr(joins, "FILE_SECONDS", 10.0)
    monkeypatch.setattr(pruned_tables, "_KNOWN", {})


def same_rows(lake: Path, con: duckdb.DuckDBPyConnection, statement: str) -> bool:
    found = zskip.sql(over(lake, statement), con).fetchall()
    return sorted_rows(found) == sorted_rows(con.sql(over(lake, statement, "/*.parquet")).fetchall())


# What is read of each table, in the order of the text, where the keys of the small one are 5 and 6.
PRUNED = counted("joins", "pruned by the keys of joins")


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("statement", "files"), PRUNED, ids=[statement for statement, _ in PRUNED])
def test_a_table_is_pruned_by_the_keys_of_its_joins(
    lake: Path, reader: duckdb.DuckDBPyConnection, statement: str, files: list[int]
) -> None:
    assert same_rows(lake, reader, statement)
    assert files_read(lake, reader, statement) == files


DAYS = [datetime.datetime(2024, 1, 1) + datetime.timedelta(days=number) for number in range(64)]
TYPES = {
    "int8": (pa.array(range(64), pa.int8()), True),
    "uint64": (pa.array(range(2**64 - 64, 2**64), pa.uint64()), True),
    "date": (pa.array(DAYS, pa.date32()), True),
    "seconds": (pa.array(DAYS, pa.timestamp("s")), True),
    "nanoseconds": (pa.array(DAYS, pa.timestamp("ns")), True),
    "zoned": (pa.array(DAYS, pa.timestamp("us", "Asia/Tokyo")), True),
    "decimal": (pa.array([Decimal(number) / 8 for number in range(64)], pa.decimal128(9, 3)), True),
    "text": (pa.array([f"ä{number:02}" for number in range(64)]), True),
    "dictionary": (pa.array([f"t{number:02}" for number in range(64)]).dictionary_encode(), True),
    # Equal values that are not the same, and orders of which an index knows nothing.
    "real": (pa.array([float(number) for number in range(63)] + [float("nan")]), False),
    "flag": (pa.array([number < 32 for number in range(64)]), False),
    "bytes": (pa.array([bytes([number]) for number in range(64)]), False),
}


@pytest.mark.usefixtures("always")
def test_keys_of_every_type_find_their_rows(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    con.execute("SET TimeZone = 'America/New_York'")
    keys = pa.table({type: values for type, (values, _) in TYPES.items()})
    build_table(tmp_path / "0", keys.append_column("num", [range(64)]), files=16)
    build_table(tmp_path / "dim", keys.append_column("name", [[f"n{number:02}" for number in range(64)]]), files=1)
    for type, (_, pruned) in TYPES.items():
        key = f't."{type}"'
        statement = (
            f"SELECT num, {key} FROM {{0}} t JOIN {{dim}} s ON {key} = s.\"{type}\" WHERE name IN ('n07', 'n61')"
        )
        found = zskip.sql(over(tmp_path, statement), con).fetchall()
        plain = con.sql(over(tmp_path, statement, "/*.parquet")).fetchall()
        assert sorted(map(repr, found)) == sorted(map(repr, plain)), type
        assert len(found) >= 2
        assert files_read(tmp_path, con, statement) == [2 if pruned else 16, 1], type


@pytest.mark.usefixtures("always")
def test_keys_of_partitions_and_of_a_schema_that_grew(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    rows = {"day": [number // 8 for number in range(64)], "num": range(64)}
    table = zskip.write(pa.table(rows), tmp_path / "0", by="num", partition_by=["day"])
    table.append(pa.table({"day": [3, 9], "num": [70, 71], "more": [7, 8]}))
    zskip.write(pa.table({"key": [3, 8, 11], "name": ["a", "b", "c"]}), tmp_path / "dim", by="key")
    for column, condition, files in (("day", "name < 'c'", 2), ("more", "name < 'c'", 1), ("num", "name = 'c'", 1)):
        statement = f"SELECT t.* FROM {{0}} t JOIN {{dim}} s ON t.{column} = s.key WHERE {condition} ORDER BY num"
        plain = f"SELECT t.* FROM rows t JOIN dim s ON t.{column} = s.key WHERE {condition} ORDER BY num"
        read = con.register("rows", table.plan().to_arrow()).register(
            "dim", zskip.open(tmp_path / "dim").plan().to_arrow()
        )
        assert zskip.sql(over(tmp_path, statement), con).fetchall() == read.sql(plain).fetchall()
        assert files_read(tmp_path, con, statement)[0] == files


ONE_KEY = "SELECT count(*) AS n FROM {0} t JOIN {dim} s ON t.key = s.key WHERE s.name = 'q'"


def test_keys_are_asked_for_only_where_that_pays(
    lake: Path, con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []
    ask = pruned_tables.TableQueries.keys

    def recorded(
        queries: pruned_tables.TableQueries, table: joins.JoinedTable, key: str, seconds: float
    ) -> tuple[pa.Array, Hashable] | None:
        asked.append(key)
        return ask(queries, table, key, seconds)

    monkeypatch.setattr(pruned_tables.TableQueries, "keys", recorded)
    assert files_read(lake, con, ONE_KEY) == [16, 1]
    assert not asked
    # Sixteen files whose reading takes a second each; but not by a column of which every file holds all values.
    monkeypatch.setattr(joins, "FILE_SECONDS", 1.0)
    assert files_read(lake, con, ONE_KEY) == [1, 1]
    assert files_read(lake, con, ONE_KEY.replace("t.key", "t.val")) == [16, 1]
    assert asked == ["key"]
    # The same keys are known from then on; other conditions have others.
    monkeypatch.setattr(pruned_tables.TableQueries, "_run", None)
    assert files_read(lake, con, ONE_KEY) == [1, 1]
    with pytest.raises(TypeError):
        files_read(lake, con, ONE_KEY.replace("'q'", "'r'"))


def test_explain_says_why_keys_do_not_prune(
    lake: Path, con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def reasons(statement: str) -> list[str]:
        return re.findall(r"keys .* are not looked up: .*", zskip.explain(over(lake, statement), con))

    def keys(column: str, why: str, table: str = "dim") -> list[str]:
        return [f"keys {column} of '{lake / table}' are not looked up: {why}"]

    assert reasons(ONE_KEY) == keys("key", "the files are read in the time of a query for them")
    monkeypatch.setattr(joins, "FILE_SECONDS", 1.0)
    monkeypatch.setattr(pruned_tables, "_KNOWN", {})
    assert reasons(ONE_KEY) == []
    assert reasons(ONE_KEY.replace("WHERE", "--")) == [], "no condition selects among them"
    assert reasons(ONE_KEY.replace("t.key", "t.val")) == keys(
        "key", "reading them is expected to take longer than it saves"
    )
    monkeypatch.setattr(pruned_tables, "_KNOWN", {})
    monkeypatch.setattr(pruned_tables, "_MOST_KEYS", 0)
    assert reasons(ONE_KEY) == keys("key", "they are more than 0")
    lake = tmp_path
    zskip.write(pa.table({"key": range(160), "val": [*range(10)] * 16}), lake / "0", by="key", files=16)
    (lake / "dim").mkdir()
    pq.write_table(pa.table({"key": [5, 6], "name": ["p", "q"]}), lake / "dim" / "a.parquet")
    zskip.index(lake / "dim")
    assert reasons(ONE_KEY) == keys("key", "they do not compare exactly with key, or may change meanwhile")
    zskip.write(pa.table({"key": [5, 6], "name": ["p", "q"]}), lake / "dim2", by="key")
    no_sketch = "every file may hold any val, which has no sketch of its values"
    assert reasons(ONE_KEY.replace("t.key", "t.val").replace("{dim}", "{dim2}")) == keys("key", no_sketch, "dim2")


@pytest.mark.usefixtures("always")
def test_known_keys_are_those_of_the_same_files(lake: Path, con: duckdb.DuckDBPyConnection) -> None:
    """Bounds of another table leave out files of the one that is asked: its keys are fewer then."""
    alone = "FROM {2} w WHERE w.key IN (SELECT key FROM {0} t WHERE t.val < 50)"
    bounded = "FROM {1} u JOIN {0} t ON u.key = t.key JOIN {2} w ON w.key = t.key WHERE u.key < 9 AND t.val < 50"
    for statement in (bounded, alone, bounded):
        assert same_rows(lake, con, f"SELECT w.txt {statement}")


def test_joins_of_many_tables_read_those_whole_of_which_little_is_saved(
    lake: Path, con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB expects as many rows of them then as it does over all files, and joins in the same order."""
    joins_of_three = "SELECT * FROM {0} t JOIN {1} u USING (key) JOIN {2} v USING (key) WHERE t.val < 9 AND t.key < 20"
    assert files_read(lake, con, joins_of_three)[0] < 16
    monkeypatch.setattr(joins, "_MANY_ROWS", 10)
    assert files_read(lake, con, joins_of_three) == [16, 16, 16]
    assert files_read(lake, con, joins_of_three.replace("JOIN {2} v USING (key)", ""))[0] < 16
    assert "join in a worse order" in zskip.explain(over(lake, joins_of_three), con)
    assert same_rows(lake, con, joins_of_three)
    # Not where the index answers for rows, or promises some: that holds for the files that the conditions leave.
    for asked in ("SELECT count(*) FROM {0} WHERE key < 20", "SELECT key FROM {0} WHERE key < 20 ORDER BY key LIMIT 1"):
        assert same_rows(lake, con, f"SELECT {', '.join(f'({asked})' for _ in range(3))}")


@pytest.mark.usefixtures("always")
def test_more_than_a_hundred_thousand_keys_prune_by_a_sketch_where_their_files_lie_together(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """As the keys of the orders of some months in the lines that were shipped after them: no range tells them apart."""
    keys = np.random.default_rng(1).permutation(250_000)
    day = np.arange(len(keys)) // 2_500
    zskip.write(pa.table({"key": keys, "day": day}), tmp_path / "orders", by="day", files=5)
    lines = pa.table({"key": keys[::10], "shipped": day[::10] + 1, "price": keys[::10] % 7})
    table = zskip.write(lines, tmp_path / "lines", by="shipped", files=50)
    statement = (
        f"SELECT count(*), sum(price) FROM '{tmp_path}/orders' o JOIN '{tmp_path}/lines' l USING (key) "
        "WHERE day BETWEEN 10 AND 58"
    )
    assert [len(plan) for _, plan in rewrite(statement, con).plans] == [3, 50]
    table.add_sketches({"key": "values"})
    assert [len(plan) for _, plan in rewrite(statement, con).plans] == [3, 25]
    expected = con.sql(statement.replace("orders'", "orders/*.parquet'").replace("lines'", "lines/*.parquet'"))
    assert zskip.sql(statement, con).fetchall() == expected.fetchall()


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("own", [False, True])
def test_a_query_for_keys_that_fails_or_takes_too_long_changes_nothing(
    lake: Path, con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    if own:
        con.begin()
    monkeypatch.setattr(pruned_tables, "identifier", lambda name: f'"{name} is no column"')
    assert same_rows(lake, con, ONE_KEY)
    assert files_read(lake, con, ONE_KEY) == [16, 1]
    monkeypatch.undo()
    monkeypatch.setattr(joins, "_QUERY_SECONDS", -1000.0)
    monkeypatch.setattr(pruned_tables, "_KNOWN", {})
    slow = "SELECT count(*) AS n FROM {0} t JOIN {1} u ON t.key = u.key WHERE u.val < 9"
    monkeypatch.setattr(pruned_tables, "_MOST_KEYS", 3)
    assert files_read(lake, con, slow) == [16, 12]
    assert same_rows(lake, con, slow)
    if own:
        con.commit()


@pytest.mark.usefixtures("always")
def test_a_folder_that_may_change_is_not_asked(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Its keys may be others when the statement runs."""
    for name, managed in (("0", True), ("dim", False)):
        build_table(
            tmp_path / name,
            pa.table({"key": range(32), "name": [f"n{i:02}" for i in range(32)]}),
            files=8,
            managed=managed,
        )
    statement = "SELECT count(*) AS n FROM {0} t JOIN {dim} s ON t.key = s.key WHERE s.name = 'n05'"
    assert files_read(tmp_path, con, statement) == [8, 1]
    assert files_read(tmp_path, con, statement.replace("s.name", "t.name")) == [1, 1]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("condition", ["random() < 2", "s.key > nextval('numbers')"])
def test_keys_are_not_taken_from_rows_that_are_others_each_time(
    lake: Path, con: duckdb.DuckDBPyConnection, condition: str
) -> None:
    con.execute("CREATE SEQUENCE numbers")
    statement = f"SELECT * FROM {{0}} t JOIN {{dim}} s USING (key) WHERE name < 'q' AND {condition}"
    (keys,) = _keys_of(lake, con, statement)
    assert sorted(keys.values.to_pylist()) == [5, 6]


def _keys_of(lake: Path, con: duckdb.DuckDBPyConnection, statement: str) -> list[joins.KeySet]:
    """The keys by which a statement's first table is pruned."""
    found: list[joins.KeySet] = []
    prune = joins.prune_by_keys

    def recorded(tables: Sequence[joins.JoinedTable], joined: Sequence[joins.JoinKeys], ask: joins.Ask) -> None:
        prune(tables, joined, ask)
        found.extend(tables[0].keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zskip.statements.duckdb.pruned_tables.prune_by_keys", recorded)
        rewrite(over(lake, statement), con)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("_LEFT_NOT_NEEDED", {"INNER", "SEMI", "LEFT", "ANTI", "RIGHT"}),
        ("_KEEPS_RIGHT", joins._KEEPS_RIGHT | {"LEFT"}),
        ("_ROW_BY_ROW", joins._ROW_BY_ROW | {"TOP_N", "WINDOW"}),
    ],
)
def test_a_wrong_table_of_joins_loses_rows(
    lake: Path, reader: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, name: str, wrong: set[str]
) -> None:
    """The tests above bite."""
    monkeypatch.setattr(joins, name, wrong)
    statements = [statement for statement, _ in PRUNED]
    assert not all(same_rows(lake, reader, statement) for statement in statements)


@pytest.fixture(scope="module")
def lettered(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Tables whose keys have one name, of one letter: it has two spellings."""
    folder = tmp_path_factory.mktemp("lettered")
    tables = {
        "a": {"k": range(1000), "v": range(1000)},
        "b": {"k": range(0, 1000, 3), "w": range(333, -1, -1)},
        "c": {"k": range(0, 1000, 3), "w": range(334)},
    }
    for name, rows in tables.items():
        zskip.write(pa.table(rows), folder / name, by="k", files=50)
    return [folder / name for name in tables]


@pytest.mark.parametrize(("statement", "files"), counted("joins", "names of one letter"))
@pytest.mark.parametrize("other", [1, 2])
def test_names_of_one_letter(
    statement: str, files: int | None, other: int, lettered: list[Path], reader: duckdb.DuckDBPyConnection
) -> None:
    read = _read_as_duckdb_does(statement, [lettered[0], lettered[other]], reader)
    assert files is None or read[0] <= files


@pytest.mark.parametrize("statement", [statement for statement, _ in counted("joins", "three names of one letter")])
def test_three_names_of_one_letter(statement: str, lettered: list[Path], reader: duckdb.DuckDBPyConnection) -> None:
    """They have too few spellings to be told apart."""
    _read_as_duckdb_does(statement, lettered, reader)


def _read_as_duckdb_does(statement: str, tables: list[Path], con: duckdb.DuckDBPyConnection) -> list[int]:
    """How many files a statement over some tables reads of each, in textual order; it gives what DuckDB gives."""
    text = statement.format(*(f"'{table}'" for table in tables))
    plain = statement.format(*(f"'{table}/*.parquet'" for table in tables))
    assert zskip.sql(text, con).fetchall() == con.sql(plain).fetchall()
    return [len(plan) for _, plan in rewrite(text, con).plans]


def test_a_table_that_a_plan_scans_twice_has_no_keys(con: duckdb.DuckDBPyConnection) -> None:
    """DuckDB 2.0 scans each subquery and CTE once, and other releases may not: one of the scans may need all rows."""
    text = "SELECT (SELECT count(*) FROM a JOIN b ON a.key = b.id), (SELECT sum(key) FROM c)"
    schemas = [pa.schema({"key": pa.int64()}), pa.schema({"id": pa.int64()}), pa.schema({"key": pa.int64()})]
    made = make_stubs(schemas, text)
    names = {"a": made[0], "b": made[1], "c": made[2]}
    over_stubs = re.sub(r"FROM (\w)|JOIN (\w)", lambda at: at[0][:5] + names[at[0][5:]].sql + f" {at[0][5:]}", text)
    root = engine_plan(con, over_stubs, made)
    assert root is not None
    columns = printed_columns(root, made, text)
    assert {(join.place, join.source) for join in joins.join_keys(root, columns)} == {(0, 1), (1, 0)}

    def scanned_twice(node: Node) -> Node:
        return replace(node, place=0 if node.place == 2 else node.place, children=(*map(scanned_twice, node.children),))

    assert joins.join_keys(scanned_twice(root), columns) == []
