"""Columns of an indexed folder have the types that DuckDB gives them over the same files, however many are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.statements.cases import statements
from tests.tables import require_as_in_duckdb

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
    "INTERVAL[]": "[INTERVAL 1 DAY, NULL]",
    "MAP(VARCHAR, STRUCT(i INTERVAL))": "MAP {'a': {'i': INTERVAL 1 MONTH}}",
    "HUGEINT": "5::HUGEINT",
    "TIMETZ": "'12:00:00+05'::TIMETZ",
    "TIMETZ[]": "['12:00:00+05'::TIMETZ]",
    "TIME_NS": "'12:00'::TIME_NS",
    "TIMESTAMP_NS": "'2020-01-01'::TIMESTAMP_NS",
    "TIMESTAMP_S": "'2020-01-01'::TIMESTAMP_S",
    "TIMESTAMPTZ[]": "['2020-01-01'::TIMESTAMPTZ]",
    "DECIMAL(30, 3)": "1.5::DECIMAL(30, 3)",
    "UTINYINT": "1::UTINYINT",
    "INT[2]": "[1, 2]::INT[2]",
    "BLOB": "'a'::BLOB",
    "GEOMETRY": "'POINT (1 2)'::GEOMETRY",
    "STRUCT(g GEOMETRY)": "{'g': 'POINT (1 2)'::GEOMETRY}",
    "VARIANT": "5::VARIANT",
    "VARIANT of an object": "{'a': 5, 'b': ['x']}::VARIANT",
}


# Folders with nested columns and with types that only DuckDB has are read in other ways than others.
NESTED = [name for name in VALUES if name.startswith(("STRUCT", "MAP")) or name.endswith("]")]
ONLY_DUCKDBS = ["GEOMETRY", "VARIANT", "VARIANT of an object"]
FLAT = [name for name in VALUES if name not in [*NESTED, *ONLY_DUCKDBS]]


@pytest.mark.parametrize(
    "names",
    [FLAT, NESTED, ONLY_DUCKDBS, *(pytest.param([name], marks=pytest.mark.slow) for name in VALUES)],
    ids=lambda names: names[0],
)
def test_the_types_are_those_of_the_files_in_duckdb(
    names: list[str], tmp_path: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    columns = ", ".join(f"{VALUES[name]} AS c{number}" for number, name in enumerate(names))
    for number in range(2):
        reader.execute(f"COPY (SELECT {number} AS i, {columns}) TO '{tmp_path}/{number}.parquet'")
    table = zskip.index(tmp_path)
    require_as_in_duckdb(
        tmp_path,
        "FROM {} ORDER BY i",
        "FROM {} WHERE i = 1",
        "FROM {} WHERE i = 7",
        "SELECT COLUMNS('c.*'), count(*) FROM {} WHERE i < 1 GROUP BY ALL",
        "SELECT any_value(COLUMNS('c.*')) FROM {} WHERE i > 7",
        "SELECT COLUMNS('c.*') FROM {} WHERE i = 1 UNION ALL SELECT COLUMNS('c.*') FROM {} WHERE i = 7",
        *(f"SELECT c{number} FROM {{}} WHERE i = 1" for number in range(len(names))),
        con=reader,
    )
    for where in ("i = 1", "i = 7"):
        assert (
            table.plan(where).to_duckdb(reader).types == reader.sql(f"FROM read_parquet('{tmp_path}/*.parquet')").types
        )


@pytest.mark.parametrize(
    "value",
    [
        "{'i': INTERVAL (range) DAY, 'j': '[1]'::JSON}",
        "[{'i': CASE WHEN range > 1 THEN INTERVAL 3 MONTH END, 't': '12:00:00+05'::TIMETZ}]",
        "MAP {'12:00:00'::TIME: INTERVAL '1 month 2 days 3.004 seconds'}",
        "'12:00:00+05'::TIMETZ",
    ],
)
def test_values_that_arrow_lacks_are_the_same_by_way_of_arrow(
    value: str, tmp_path: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    reader.execute(f"COPY (SELECT range AS i, {value} AS c, '{{}}'::JSON AS j FROM range(4)) TO '{tmp_path}/1.parquet'")
    table = zskip.index(tmp_path)
    own = reader.sql(f"FROM '{tmp_path}/1.parquet' WHERE i > 0").to_arrow_table()  # noqa: F841
    wanted = reader.sql("SELECT i, c::VARCHAR FROM own").fetchall()
    for found in (table.plan("i > 0").to_arrow(), table.dataset().to_table().slice(1)):  # noqa: B007
        assert reader.sql("SELECT i, c::VARCHAR FROM found").fetchall() == wanted


def test_lists_that_were_views_in_memory_are_lists(tmp_path: Path) -> None:
    inner = pa.struct([("x", pa.large_list_view(pa.int32()))])
    rows = {
        "i": [1, 2, 3],
        "v": pa.array([["a"], None, []], pa.list_view(pa.string())),
        "s": pa.array([{"x": [1]}, None, {"x": None}], inner),
        "t": pa.array([["b"], None, []], pa.large_list(pa.string_view())),
    }
    pq.write_table(pa.table(rows), tmp_path / "1.parquet")
    zskip.index(tmp_path)
    for _ in range(2):
        relation = zskip.sql(f"FROM '{tmp_path}' ORDER BY i")
        assert [str(type) for type in relation.types] == ["BIGINT", "VARCHAR[]", "STRUCT(x INTEGER[])", "VARCHAR[]"]
        assert relation.fetchall() == [
            (1, ["a"], {"x": [1]}, ["b"]),
            (2, None, None, None),
            (3, [], {"x": None}, []),
        ]
        assert zskip.open(tmp_path).plan("s.x IS NOT NULL").to_arrow()["v"].to_pylist() == [["a"]]
        zskip.cluster(tmp_path, by="i")


SELECTED = statements("types_of_columns", "conditions on types that only DuckDB has")


@pytest.fixture(scope="module")
def geometries(tmp_path_factory: pytest.TempPathFactory, reader: duckdb.DuckDBPyConnection) -> Path:
    """An indexed folder of three files with columns whose types only DuckDB has."""
    folder = tmp_path_factory.mktemp("geometries")
    for number, value in enumerate(["'s' || i", "CASE WHEN i % 2 = 0 THEN 'n' END", "'t' || i"]):
        point = "NULL" if number == 2 else "'POINT (' || i || ' 1)'"
        rows = f"SELECT i, ({value})::VARIANT AS v, ({point})::GEOMETRY AS g FROM range(10) r(n), LATERAL "
        rows += f"(SELECT n + {10 * number} AS i)"
        reader.execute(f"COPY ({rows}) TO '{folder}/{number}.parquet'")
    zskip.index(folder)
    return folder


def test_a_column_of_nothing_is_null_of_any_type(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"i": [number], "c": pa.nulls(1)}), tmp_path / f"{number}.parquet")
    zskip.index(tmp_path)
    require_as_in_duckdb(
        tmp_path,
        "SELECT c, typeof(c) FROM {} WHERE i = 1",
        "SELECT coalesce(c, 'a') FROM {}",
        "FROM {} WHERE c LIKE 'a%'",
    )
    assert zskip.open(tmp_path).plan("c LIKE 'a%'").count() == 0


@pytest.mark.parametrize("condition", SELECTED)
def test_conditions_on_types_that_only_duckdb_has(
    condition: str, geometries: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    require_as_in_duckdb(geometries, f"SELECT i FROM {{}} WHERE {condition} ORDER BY i", con=reader)


def test_a_variant_as_arrow_has_the_parts_that_the_files_hold(tmp_path: Path) -> None:
    duckdb.sql(f"COPY (SELECT i, i::VARIANT AS v FROM range(5) r(i)) TO '{tmp_path}/0.parquet'")
    found = zskip.index(tmp_path).plan("i = 3").to_arrow()
    assert found.to_pylist() == pq.read_table(tmp_path / "0.parquet").slice(3, 1).to_pylist()


def test_a_condition_on_a_variant_names_the_ways_that_read_it(
    geometries: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    plan = zskip.open(geometries).plan("v::VARCHAR = 's3'")
    assert [row[0] for row in plan.to_duckdb(reader).fetchall()] == [3]
    for read in (plan.count, plan.to_arrow, lambda: plan.to_arrow(["i"])):
        with pytest.raises(zskip.errors.SchemaMismatch, match=r'VARIANT "v": read it by zskip\.sql or to_duckdb'):
            read()


@pytest.mark.parametrize(
    ("setting", "value"),
    [("binary_as_string = true", "'ab'::BLOB"), ("enable_geoparquet_conversion = false", "'POINT (1 2)'::GEOMETRY")],
)
def test_settings_give_bytes_other_types(
    setting: str, value: str, tmp_path: Path, con: duckdb.DuckDBPyConnection
) -> None:
    con.execute(f"COPY (SELECT 1 AS i, {value} AS b, {{'b': 'cd'::BLOB, 'n': 7}} AS s) TO '{tmp_path}/0.parquet'")
    zskip.index(tmp_path)
    queries = ("FROM {}", "FROM {} WHERE i = 2", "SELECT s.b, s.n FROM {} WHERE s.n > 3 AND s.b < 'd'")
    require_as_in_duckdb(tmp_path, *queries, con=con)
    con.execute(f"SET {setting}")
    require_as_in_duckdb(tmp_path, *queries, con=con)


WITHIN: dict[str, tuple[Callable[[Any], Any], Callable[[pa.DataType], pa.DataType]]] = {
    "column": (lambda value: value, lambda type: type),
    "struct": (lambda value: {"x": value, "n": 1}, lambda type: pa.struct({"x": type, "n": pa.int64()})),
    "list of structs": (lambda value: [{"x": value}], lambda type: pa.list_(pa.struct({"x": type}))),
    "map": (lambda value: [("k", value)], lambda type: pa.map_(pa.string(), type)),
}


@pytest.mark.parametrize("places", [["column"], ["struct", "list of structs", "map"]], ids=lambda names: names[0])
@pytest.mark.parametrize(
    ("first", "type"), [("a", pa.string()), (None, pa.string()), (None, pa.null()), (b"\xfe", pa.binary())]
)
def test_bytes_in_one_file_and_texts_or_nothing_in_another(
    first: Any, type: pa.DataType, places: list[str], tmp_path: Path, reader: duckdb.DuckDBPyConnection
) -> None:
    """The types of the first file were those of all, at any depth: x'FF' of the second came out as the text \\xFF."""
    others: list[Any] = ["b", "c"] if type == pa.binary() else [b"b", b"\xff"]
    files = [{"k": pa.array([0])}, {"k": pa.array([1, 2])}]
    for place in places:
        rows, typed = WITHIN[place]
        files[0][place] = pa.array([rows(first)], typed(type))
        files[1][place] = pa.array([*map(rows, others)], typed(pa.array(others).type))
    for number, columns in enumerate(files):
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    zskip.index(tmp_path)
    statements = ["SELECT * EXCLUDE k FROM {} ORDER BY k"]
    statements += [f'SELECT "{place}" FROM {{}} WHERE k = 2' for place in places]
    if places == ["column"]:
        statements.append('SELECT "column" FROM {} WHERE "column" < \'zz\' ORDER BY k')
    require_as_in_duckdb(tmp_path, *statements, con=reader)
