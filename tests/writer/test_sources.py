"""The same rows through every kind of source give the same table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.errors import SchemaError, UnsafePath

BY = ["ts", "id.orig_h", "id.resp_h", "id.resp_p"]
COLUMNS = ["ts", "uid", "id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p", "proto", "query"]


@pytest.fixture(scope="module")
def rows(fixtures: Path) -> pa.Table:
    return pq.read_table(fixtures / "zeek.parquet", columns=COLUMNS).slice(0, 600).combine_chunks()


@pytest.fixture(scope="module")
def expected(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> zskip.Table:
    return zskip.write(rows, tmp_path_factory.mktemp("expected") / "t", by=BY, files=6)


@pytest.fixture(scope="module")
def sorted_rows(rows: pa.Table) -> list[dict[str, Any]]:
    return in_order(rows)


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    plain = table.select(COLUMNS).to_pylist()
    return sorted(plain, key=repr)


def as_csv(rows: pa.Table, folder: Path) -> str:
    pyarrow.csv.write_csv(rows, folder / "rows.csv")
    return str(folder / "rows.csv")


def as_json(rows: pa.Table, folder: Path) -> str:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("source", rows)
        connection.execute(f"COPY source TO '{folder}/rows.json'")
    return str(folder / "rows.json")


def as_glob(rows: pa.Table, folder: Path) -> str:
    for number in range(3):
        pq.write_table(rows.slice(number * 200, 200), folder / f"{number}.parquet")
    return str(folder / "*.parquet")


def as_relation(rows: pa.Table, folder: Path) -> Any:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection.from_arrow(rows)


SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "pandas": lambda rows, folder: rows.to_pandas(),
    "polars": lambda rows, folder: pl.from_arrow(rows),
    "a DuckDB relation": as_relation,
    "a reader": lambda rows, folder: rows.to_reader(250),
    "a dataset": lambda rows, folder: pyarrow.dataset.dataset(rows),
    "a record batch": lambda rows, folder: rows.to_batches()[0],
    "a Parquet glob": as_glob,
    "a folder of Parquet": lambda rows, folder: str(Path(as_glob(rows, folder)).parent),
    "CSV": as_csv,
    "JSON": as_json,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_same_table(
    kind: str, rows: pa.Table, sorted_rows: list[dict[str, Any]], expected: zskip.Table, tmp_path: Path
) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    table = zskip.write(SOURCES[kind](rows, folder), tmp_path / "t", by=BY, files=6)
    ours = table.to_arrow()
    # CSV and JSON name no types, and pandas no microseconds: the values must still be the same.
    fields = [pa.field(name, rows.schema.field(name).type) for name in COLUMNS]
    assert in_order(ours.select(COLUMNS).cast(pa.schema(fields))) == sorted_rows
    assert table._index.snapshot.totals.rows == 600
    host = "\"id.orig_h\" = '10.47.1.100'"
    assert table.plan(host).count() == expected.plan(host).count() > 0
    assert abs(len(table.plan(host)) - len(expected.plan(host))) <= 1


def test_parquet_files_may_lack_a_text_column_that_others_dictionary_encode(tmp_path: Path) -> None:
    keys = pa.table({"k": range(3_000)})
    texts = pa.array(["tcp", "udp", None] * 1_000)
    variants = {
        "absent": keys,
        "text": keys.append_column("t", texts),
        "null": keys.append_column("t", pa.nulls(3_000)),
        "arrow_dictionary": keys.append_column("t", texts.dictionary_encode()),
        "other_text": keys.append_column("u", texts),
    }
    paths = [str(tmp_path / f"{name}.parquet") for name in variants]
    for path, rows in zip(paths, variants.values(), strict=True):
        pq.write_table(rows, path)
    schema = pa.schema({"k": pa.int64(), "t": pa.string(), "u": pa.string()})
    plain = [rows.cast(pa.schema([schema.field(name) for name in rows.column_names])) for rows in variants.values()]
    expected = pa.concat_tables(plain, promote_options="default")

    def counts(table: pa.Table) -> list[dict[str, Any]]:
        counted = table.group_by(["t", "u"]).aggregate([("k", "sum"), ("k", "count")])
        return sorted(counted.to_pylist(), key=repr)

    written = zskip.write(paths, tmp_path / "lake", by=["k"], files=6)
    assert counts(written.plan("TRUE").to_arrow()) == counts(expected)

    appended = zskip.write(paths[1:], tmp_path / "appended", by=["k"], files=6)
    appended.append(paths[:1])
    assert counts(appended.plan("TRUE").to_arrow()) == counts(expected)
    appended.append(paths[:2])
    assert counts(appended.plan("TRUE").to_arrow()) == counts(pa.concat_tables([expected, expected.slice(0, 6_000)]))


def test_a_relations_booleans_stay_booleans_where_duckdb_exports_bytes(tmp_path: Path) -> None:
    with duckdb.connect() as con:
        con.execute("SET arrow_lossless_conversion = true")
        nested = "[i < 3, NULL] AS l, {'x': i > 7} AS s, MAP {i > 2: i > 4} AS m"
        rows = con.sql(f"SELECT i, i < 5 AS b, {nested} FROM range(10) t(i)")
        table = zskip.write(rows, tmp_path, by="i")
        found = zskip.sql(f"FROM '{tmp_path}' ORDER BY i")
        assert found.fetchall() == rows.fetchall()
        assert found.types == rows.types
        assert table.plan("b AND NOT s.x").count() == 5
        table.append(rows)
        table.upsert(rows.filter("i = 3").project("i, NOT b AS b, l, s, m"), on="i")
        assert table.plan("b").count() == 8
        pairs = zskip.write(con.sql("SELECT [true, NULL]::BOOLEAN[2] AS a, 1 AS i"), tmp_path / "pairs", by="i")
        assert pairs.schema.field("a").type == pa.list_(pa.bool_(), 2)
        for value in ("7::HUGEINT", "7::UHUGEINT", "[7::HUGEINT]", "{'x': MAP {1: 7::HUGEINT}}", "sum(7)"):
            with pytest.raises(SchemaError, match=r"\"h\" holds a U?HUGEINT .* cast it to DECIMAL\(38, 0\)"):
                zskip.write(con.sql(f"SELECT 1 AS i, {value} AS h"), tmp_path / "huge", by="i")
        con.execute("SET arrow_lossless_conversion = false")
        huge = zskip.write(con.sql("SELECT 1 AS i, sum(7) AS h, [7::HUGEINT] AS l"), tmp_path / "huge", by="i")
        assert huge.plan("h = 7").to_arrow().to_pylist() == [{"i": 1, "h": 7, "l": [7]}]


def test_a_relations_values_are_those_that_duckdb_copies_to_parquet(tmp_path: Path) -> None:
    """Arrow would get times with a zone as the clocks of their zones, and the stored bytes of BIT and BIGNUM."""
    times = """
        SELECT n, ('12:30:00+0' || n)::TIMETZ AS "a time", NULL::TIMETZ AS none, '101'::BIT AS bits, 7::BIGNUM AS big
        FROM range(1, 4) x(n)"""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'America/New_York'")
        con.execute(f"COPY ({times}) TO '{tmp_path}/times.parquet'")
        found = [
            zskip.write(source, tmp_path / f"t{number}", by="n").to_arrow().sort_by("n").to_pylist()
            for number, source in enumerate([con.sql(times), tmp_path / "times.parquet"])
        ]
        assert found[0] == found[1]
        assert [str(row["a time"]) for row in found[0]] == ["11:30:00", "10:30:00", "09:30:00"]
        assert (found[0][0]["bits"], found[0][0]["big"]) == ("101", "7")
        with pytest.raises(duckdb.ConversionException, match="out of range"):
            zskip.write(con.sql(f"SELECT {2**128 - 1}::UHUGEINT AS u"), tmp_path / "u", by="u")
        for value in ("['12:00:00+01'::TIMETZ]", "{'a': ['1'::BIT]}", "MAP {'a': 7::BIGNUM}", "[7::UHUGEINT]"):
            with pytest.raises(SchemaError, match=r'"l" of type .* would lose what its values of type .* are'):
                zskip.write(con.sql(f"SELECT 1 AS n, {value} AS l"), tmp_path / "l", by="n")
        zskip.write(con.sql("SELECT 1 AS n, {'BIT': ['a']} AS l"), tmp_path / "l", by="n")


def test_a_variant_is_refused_and_not_written_as_its_parts(tmp_path: Path) -> None:
    folder, table = tmp_path / "folder", tmp_path / "t"
    folder.mkdir()
    zskip.write(pa.table({"n": [1]}), table, by="n")
    with duckdb.connect() as con:
        rows = con.sql("SELECT n, {'a': n}::VARIANT AS v FROM range(9) x(n)")
        for path in (folder / "0.parquet", table / "other.parquet"):
            rows.write_parquet(str(path))
        for write in (
            lambda: zskip.write(rows, tmp_path / "new", by="n"),
            lambda: zskip.write(con.sql("SELECT 1 AS n, [{'x': 5::VARIANT}] AS v"), tmp_path / "new", by="n"),
            lambda: zskip.write(folder, tmp_path / "new", by="n"),
            lambda: zskip.open(table).append(folder / "0.parquet"),
            lambda: zskip.open(table).adopt(),
            lambda: zskip.cluster(folder, by="n"),
        ):
            with pytest.raises(SchemaError, match="is a VARIANT, which cannot be written: cast it"):
                write()
        assert zskip.sql(f"FROM '{folder}'", con).types == rows.types
        assert zskip.open(table).count() == 1


def test_a_struct_may_have_the_fields_of_a_variant(tmp_path: Path) -> None:
    rows = pa.table({"n": [1], "v": pa.array([{"metadata": b"a", "value": b"b"}])})
    pq.write_table(rows, tmp_path / "0.parquet")
    assert zskip.write(tmp_path / "0.parquet", tmp_path / "t", by="n").to_arrow().equals(rows)


def test_a_folder_that_is_only_indexed_is_read_as_it_lies_there_now(tmp_path: Path) -> None:
    """Files that came after the index were left out, and one that had gone was an error."""
    raw = tmp_path / "raw"
    raw.mkdir()
    for number in range(2):
        pq.write_table(pa.table({"id": range(10 * number, 10 * number + 10)}), raw / f"{number}.parquet")
    zskip.index(raw)
    pq.write_table(pa.table({"id": range(20, 25)}), raw / "2.parquet")
    (raw / "0.parquet").unlink()
    table = zskip.write(raw, tmp_path / "t", by="id")
    assert table.upsert(raw, on="id").updated == table.append(str(raw)).rows == 15
    assert sorted(table.to_arrow()["id"].to_pylist()) == sorted([*range(10, 25)] * 2)


@pytest.mark.parametrize(
    ("levels", "columns"),
    [
        ({"id": [5, 6, 7]}, {"id": [5, 6, 7]}),  # pandas keeps equidistant numbers as a range
        ({"id": [5, 6, 9]}, {"id": [5, 6, 9]}),
        ({"id": [5, 6, 7], "day": [1, 2, 3]}, {"id": [5, 6, 7], "day": [1, 2, 3]}),
        ({None: [5, 6, 9]}, {}),
        ({"v": [5, 6, 9]}, {}),  # the column of this name is kept
    ],
)
def test_the_named_index_of_a_frame_is_a_column(
    tmp_path: Path, levels: dict[str | None, list[int]], columns: dict[str, list[int]]
) -> None:
    frame = pd.DataFrame({"v": [1, 2, 3]}, index=pd.MultiIndex.from_arrays([*levels.values()], names=[*levels]))
    if len(levels) == 1:
        frame.index = frame.index.get_level_values(0)
    for table in (zskip.write(frame, tmp_path / "t", by="v"), zskip.open(tmp_path / "t")):
        assert table.to_arrow().sort_by("v").to_pydict() == {**columns, "v": [1, 2, 3]}
        table.delete("true")
        table.append(frame)


def test_a_link_to_a_folder_is_not_left_out(tmp_path: Path) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"a": [1, 2]}), tmp_path / name / "0.parquet")
    (tmp_path / "own" / "linked").symlink_to(tmp_path / "other")
    with pytest.raises(UnsafePath, match=r'linked" is a link to a folder. Remove it, or give the paths of the files'):
        zskip.write(tmp_path / "own", tmp_path / "t", by="a")
    files = [str(file) for file in (tmp_path / "own").glob("**/*.parquet")] + [f"{tmp_path}/own/linked/0.parquet"]
    assert zskip.write(files, tmp_path / "t", by="a").to_arrow().num_rows == 4


def test_a_pattern_with_a_link_to_the_folder_above_ends(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "own" / "0.parquet")
    for name in ("loop", "loop-2"):
        (tmp_path / "own" / name).symlink_to(tmp_path / "own")
    assert zskip.write(f"{tmp_path}/own/*/*/*.parquet", tmp_path / "t", by="a").to_arrow().num_rows == 8


def test_a_table_without_a_file_is_a_source_without_rows(tmp_path: Path) -> None:
    none, one = tmp_path / "none", tmp_path / "one"
    zskip.write(pa.table({"id": pa.array([], pa.int64()), "more": pa.array([], pa.string())}), none, by="id")
    zskip.write(pa.table({"id": [1]}), one, by="id")
    made = zskip.write(str(none), tmp_path / "copy", by="id")
    assert (made.count(), made.schema.names) == (0, ["id", "more"])
    assert zskip.write([str(none), str(one)], tmp_path / "both", by="id").count() == 1
    table = zskip.open(one)
    table.append(str(none))
    assert table.count() == 1
