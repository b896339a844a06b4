"""Structs whose files hold them with other fields, or with their fields in another order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.errors import UnknownColumn

LONG = pa.int64()
INNER = pa.struct([("c", pa.string()), ("d", LONG)])


def rows(numbers: list[int], values: list[Any], *fields: tuple[str, pa.DataType]) -> pa.Table:
    return pa.table({"n": pa.array(numbers), "s": pa.array(values, pa.struct(list(fields)))})


FILES = {
    "as_the_table": rows(
        [0, 1], [{"a": 1, "b": 2, "i": {"c": "x", "d": 5}}, None], ("a", LONG), ("b", LONG), ("i", INNER)
    ),
    "in_another_order": rows([2], [{"b": 1, "a": 2}], ("b", LONG), ("a", LONG)),
    "with_one_field": rows([3, 4, 8], [{"b": 7}, {"b": None}, None], ("b", LONG)),
    "grown_inside": rows([5], [{"i": {"d": 9}}], ("i", pa.struct([("d", LONG)]))),
    "without_it": pa.table({"n": [6, 7]}),
}
WANTED = {
    "s.a = 2": [2],
    "s.a = 1": [0],
    "s.b = 2 OR s.b = 7": [0, 3],
    "s.a IS NULL": [1, 3, 4, 5, 6, 7, 8],
    "s.b IS NULL": [1, 4, 5, 6, 7, 8],
    "s.i IS NOT NULL": [0, 5],
    "s.i.d > 4": [0, 5],
    "s.i.c IS NULL AND s.i.d = 9": [5],
    "s.b IN (2, NULL)": [0],
    "s.b IN (7, nullif(1, 1), 8) AND n < 9": [3],
    "s IS NULL": [1, 6, 7, 8],
    "s.i IS NULL": [1, 2, 3, 4, 6, 7, 8],
}


@pytest.fixture(scope="module", params=["indexed", "in hive folders", "written"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> zskip.Table:
    folder = tmp_path_factory.mktemp("structs") / "lake"
    if request.param == "written":
        first, *more = FILES.values()
        table = zskip.write(first, folder, by="n")
        for some in more:
            table.append(some)
        return table
    for number, (name, some) in enumerate(FILES.items()):
        place = folder / f"day={number}" if request.param == "in hive folders" else folder
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(some, place / f"{number}_{name}.parquet")
    return zskip.index(folder)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_fields_of_structs_are_found_by_name(table: zskip.Table, every: int) -> None:
    for predicate, wanted in list(WANTED.items())[::every]:
        plan = table.plan(predicate)
        assert sorted(plan.to_arrow(["n"])["n"].to_pylist()) == wanted, predicate
        assert plan.count() == len(wanted), predicate
        # A connection of its own: DuckDB's error here would take all of its database with it.
        with duckdb.connect() as con:
            assert sorted(n for (n,) in plan.to_duckdb(con, ["n"]).fetchall()) == wanted, predicate
            selected = zskip.sql(f"SELECT n FROM '{table.uri}' WHERE {predicate} ORDER BY n", con)
            assert [n for (n,) in selected.fetchall()] == wanted, predicate


def test_a_field_is_selected_by_name(table: zskip.Table) -> None:
    found = zskip.sql(f"SELECT n, s.a, s.b, s.i.d FROM '{table.uri}' ORDER BY n", duckdb.connect()).fetchall()
    assert found == [
        (0, 1, 2, 5),
        (1, None, None, None),
        (2, 2, 1, None),
        (3, None, 7, None),
        (4, None, None, None),
        (5, None, None, 9),
        (6, None, None, None),
        (7, None, None, None),
        (8, None, None, None),
    ]


def test_a_field_among_columns_is_pointed_at_its_column(tmp_path: Path) -> None:
    table = zskip.write(FILES["as_the_table"], tmp_path / "t", by="n")
    for read in (table.plan().to_arrow, table.plan().to_duckdb, table.head):
        for name, hint in (
            ("s.i.d", 'Take the whole column "s"'),
            ("S.a", 'Take the whole column "s"'),
            ("x.a", "There are: n, s"),
        ):
            with pytest.raises(UnknownColumn, match=f'There is no column "{name}". {hint}'):
                read(columns=[name])


def test_letter_case_tells_apart_only_columns_that_differ_in_it(tmp_path: Path) -> None:
    """Arrow's readers took no other case than the table's, and DuckDB's and Spark's any."""
    table = zskip.write(FILES["as_the_table"], tmp_path / "t", by="n")
    chosen = table.plan().select("S", "N").to_arrow().column_names
    assert chosen == table.to_duckdb(columns=["S", "N"]).columns == table.head(1, ["S", "N"]).column_names == ["s", "n"]
    (tmp_path / "both").mkdir()
    pq.write_table(pa.table({"Up": [2], "uP": [3]}), tmp_path / "both" / "0.parquet")
    both = zskip.index(tmp_path / "both")
    assert both.to_arrow(["uP"]).to_pydict() == {"uP": [3]}
    with pytest.raises(UnknownColumn, match='There is no column "UP"'):
        both.to_arrow(["UP"])


def test_rows_keep_their_values_when_they_are_appended_and_rewritten(tmp_path: Path) -> None:
    """By place, a and b would change sides: the values fit either way."""
    table = zskip.write(rows([0], [{"b": 2}], ("b", LONG)), tmp_path / "lake", by="n")
    table.append(rows([1], [{"a": 8, "b": 7}], ("a", LONG), ("b", LONG)))
    table.append(rows([2], [{"b": 3}], ("b", LONG)))
    wanted = [{"b": 2, "a": None}, {"b": 7, "a": 8}, {"b": 3, "a": None}]
    assert table.to_arrow().sort_by("n")["s"].to_pylist() == wanted
    table.optimize(full=True)
    assert table.to_arrow().sort_by("n")["s"].to_pylist() == wanted


def test_a_struct_of_the_table_is_read_by_fields(tmp_path: Path) -> None:
    """Where all files have the table's own fields, DuckDB may skip row groups by them, and read only what it needs."""
    table = zskip.write(FILES["as_the_table"], tmp_path / "lake", by="n")
    assert "COALESCE" not in table.plan("s.a > 0").to_duckdb(duckdb.connect()).sql_query()
    table.append(FILES["with_one_field"])
    assert "COALESCE" not in table.plan("s.a > 0").to_duckdb(duckdb.connect()).sql_query()
    table.append(rows([9], [{"z": 1}], ("z", LONG)))
    assert "COALESCE" in table.plan("s.a > 0").to_duckdb(duckdb.connect()).sql_query()


def test_a_field_of_what_is_computed_is_no_column(tmp_path: Path) -> None:
    """The table has a column of the field's name."""
    table = zskip.write(rows([1, 2, 3], [None, {"n": 5}, {"n": 6}], ("n", LONG)), tmp_path / "lake", by="n", files=3)
    con = duckdb.connect()
    con.register("t", table.to_arrow())
    for sql in (
        "struct_pack(n := 5).n = 5",
        "{'n': 5}.n = 5",
        "(s).n = 5",
        "coalesce(s, {'n': 5}).n = 5",
        "list_first([s]).n IS NULL",
    ):
        wanted = con.sql(f"SELECT n FROM t WHERE {sql} ORDER BY n").fetchall()
        assert wanted
        assert table.plan(sql).to_duckdb(con, ["n"]).order("n").fetchall() == wanted


def test_a_list_with_null_leaves_the_connection_alive(tmp_path: Path) -> None:
    """Where files are read by schema=, DuckDB 2.0 failed on it, and refused every later statement."""
    first = pa.table({"d": ["x", "y"], "s": pa.array([{"a": 3}, {"a": 7}])})
    zskip.write(first, tmp_path / "lake", by="s.a", partition_by=["d"])
    con = duckdb.connect()
    found = zskip.sql(f"SELECT count(*) FROM '{tmp_path / 'lake'}' q WHERE q.s.a IN (3, 8, NULL)", con).fetchall()
    assert found == [(1,)]
    assert con.sql("SELECT 1").fetchall() == [(1,)]


def test_structs_with_required_fields_may_be_null(tmp_path: Path) -> None:
    """As Spark writes options of Scala's case classes."""
    inner = pa.struct([pa.field("a", LONG, nullable=False), pa.field("t", pa.string(), nullable=False)])
    type = pa.struct([pa.field("i", inner), pa.field("l", pa.list_(pa.field("element", inner, nullable=False)))])
    values = [{"i": {"a": 1, "t": "x"}, "l": [{"a": 2, "t": "y"}]}, {"i": None, "l": None}, None]
    stored = pa.table({"id": [1, 2, 3], "s": pa.array(values, type)})
    (tmp_path / "lake").mkdir()
    pq.write_table(stored, tmp_path / "lake" / "1.parquet")
    table = zskip.index(tmp_path / "lake")
    for where, ids in (("s.i.a IS NULL", [2, 3]), ("s.i.t = 'x'", [1]), ("id > 2", [3])):
        found = table.plan(where).to_arrow()
        assert found.schema == stored.schema
        assert found.to_pylist() == [row for row in stored.to_pylist() if row["id"] in ids]
    zskip.cluster(tmp_path / "lake", by="id", files=1)
    table = zskip.open(tmp_path / "lake")
    table.append(stored)
    table.upsert(stored.slice(1), on="id")
    assert sorted(table.to_arrow().to_pylist(), key=str) == sorted(
        [*stored.to_pylist(), stored.to_pylist()[0]], key=str
    )
    assert table.verify(engines=("duckdb", "arrow")).clean
