"""The verbs of a table's life: append, delete, optimize, restore, vacuum; each held to the rows that must be there."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.errors import CommitConflict, CorruptFile, InvalidOption, SchemaMismatch, SqlSyntaxError, TableNotFound
from zskip.writer import append, delete


def rows_of(count: int, seed: int) -> pa.Table:
    dice = np.random.default_rng(seed)
    return pa.table(
        {
            "id": pa.array(np.arange(count) + seed * 1_000_000),
            "a": pa.array(dice.integers(0, 1000, count), pa.int32()),
            "b": pa.array(dice.random(count)),
        }
    )


def ids(table: pa.Table) -> list[int]:
    found: list[int] = sorted(table.column("id").to_pylist())
    return found


@pytest.fixture
def table(tmp_path: Path) -> zskip.Table:
    return zskip.write(rows_of(2_000, 1), tmp_path / "t", by=["a", "b"], files=8)


def test_append_touches_nothing_that_is_there(table: zskip.Table) -> None:
    before = set(table.plan().paths)
    done = table.append(rows_of(500, 2))
    assert (done.rows, done.new_columns) == (500, ())
    assert before < set(table.plan().paths)
    assert ids(table.to_arrow()) == ids(pa.concat_tables([rows_of(2_000, 1), rows_of(500, 2)]))


def test_a_batch_is_appended_once(table: zskip.Table) -> None:
    assert table.append(rows_of(10, 2), batch=("job", 7)).rows == 10
    assert table.append(rows_of(10, 2), batch=("job", 7)).rows == 0
    assert table.append(rows_of(10, 3), batch=("job", 8)).rows == 10
    assert table._index.snapshot.totals.rows == 2_020


def test_an_added_column_is_named_and_null_in_older_files(table: zskip.Table) -> None:
    """A misspelt column becomes a new one."""
    more = rows_of(100, 2).append_column("c", pa.array([5] * 100, pa.int64()))
    assert table.append(more).new_columns == ("c",)
    assert table.plan("c IS NOT NULL").to_arrow().num_rows == 100
    assert table.plan("c IS NULL").to_arrow().num_rows == 2_000
    assert table.plan("c = 5").skipped.files.part == 8
    assert table.append(rows_of(5, 3)).new_columns == ()
    assert table.delete("c = 5").rows == 100, "and none for which the predicate is NULL"
    version = table.version
    with pytest.raises(SchemaMismatch, match="a"):
        table.append(pa.table({"id": [1], "a": ["text"], "b": [0.5]}))
    with pytest.raises(SchemaMismatch, match='share no column: the table has "id", "a", "b", "c", the rows have "x"'):
        table.append(pa.table({"x": [1]}))
    assert zskip.open(table.uri).version == version


def test_decimals_are_not_widened_to_more_digits_than_duckdb_has(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"v": pa.array([1], pa.decimal128(37, 3))}), tmp_path / "t", by="v")
    with pytest.raises(SchemaMismatch, match=r"decimal128\(20, 5\) in the rows: neither can take"):
        table.append(pa.table({"v": pa.array([1], pa.decimal128(20, 5))}))
    table.append(pa.table({"v": pa.array([1], pa.decimal128(38, 4))}))
    assert table.schema.field("v").type == pa.decimal128(38, 4)


def test_clustering_columns_can_be_widened(tmp_path: Path) -> None:
    types = {
        "i": (pa.int16(), pa.int32()),
        "n": (pa.int64(), pa.decimal128(21, 2)),
        "f": (pa.float32(), pa.float64()),
        "d": (pa.decimal128(5, 1), pa.decimal128(20, 1)),
    }
    narrow = {name: pa.array([1, 2, 3] * 100, old) for name, (old, _) in types.items()}
    table = zskip.write(pa.table(narrow), tmp_path / "t", by=[*types], files=3)
    done = table.append(pa.table({**{name: pa.array([70_000], new) for name, (_, new) in types.items()}, "b": ["x"]}))
    assert done.new_columns == ("b",)
    assert done.widened == tuple(f"{name}: {old} → {new}" for name, (old, new) in types.items())
    for name, (_, new) in types.items():
        assert table.schema.field(name).type == new
        assert table.plan(f"{name} = 70000").to_arrow().to_pylist() == [dict.fromkeys(types, 70_000) | {"b": "x"}]
    assert table.delete("b IS NULL AND n = 1").rows == 100
    table.optimize(full=True)
    for name in types:
        assert table.plan(f"{name} > 65535").count() == 1
    assert table.plan("b IS NULL").count() == 200


@pytest.mark.parametrize("verb", ["append", "upsert"])
def test_receipts_name_new_and_widened_fields(verb: str, tmp_path: Path) -> None:
    def row(a: pa.DataType, *fields: pa.Field) -> pa.Table:
        return pa.table({"a": pa.array([1], a), "p": pa.array([{"x": 1}], pa.struct([("x", pa.int32()), *fields]))})

    table = zskip.write(row(pa.int32()), tmp_path / "t", by="a")
    change = table.append if verb == "append" else partial(table.upsert, on="a")
    for rows, new, widened in (
        (row(pa.int64(), ("y", pa.int8())), ("p.y",), ("a: int32 → int64",)),
        (row(pa.int8(), ("y", pa.int16()), ("s.z", pa.int8())), ('p."s.z"',), ("p.y: int8 → int16",)),
        (row(pa.int64()), (), ()),
    ):
        done = change(rows)
        assert (done.new_columns, done.widened) == (new, widened)
        assert f"new_columns={new!r}, widened={widened!r}" in repr(done)


def test_texts_are_taken_into_columns_of_uuids_and_json(tmp_path: Path) -> None:
    """DuckDB's relations give both as texts."""
    keys = [uuid.UUID(int=number) for number in range(4)]
    first = pa.table(
        {"k": pa.array([key.bytes for key in keys[:2]], pa.uuid()), "j": pa.array(['{"a": 1}'] * 2, pa.json_())}
    )
    table = zskip.write(first, tmp_path / "t", by="k", files=2)
    more = [uuid.UUID(int=number << 123 | 0xFF) for number in range(24, 32)]  # their bytes are no text
    table.append([{"k": str(key), "j": "[7]"} for key in more])
    assert table.plan(f"k = '{more[3]}'").count() == 1
    table.delete("j = '[7]'")
    con = duckdb.connect()
    table.append(con.sql(f"SELECT '{keys[2]}'::UUID AS k, '[2]'::JSON AS j"))
    table.append(zskip.sql(f"FROM '{tmp_path}/t' WHERE k = '{keys[2]}'", con))
    table.append([{"k": str(keys[3]), "j": None}])
    table.upsert(con.sql(f"SELECT '{keys[0]}'::UUID AS k, '[0]'::JSON AS j"), on="k")
    assert table.schema == first.schema
    assert [str(type) for type in zskip.sql(f"FROM '{tmp_path}/t'").types] == ["UUID", "JSON"]
    found = sorted(zskip.sql(f"FROM '{tmp_path}/t'").fetchall(), key=str)
    assert found == [(keys[0], "[0]"), (keys[1], '{"a": 1}'), (keys[2], "[2]"), (keys[2], "[2]"), (keys[3], None)]
    assert table.plan(f"k = '{keys[2]}'").count() == 2
    for row, column in (({"k": "x", "j": None}, "k"), ({"k": None, "j": "{"}, "j")):
        with pytest.raises(SchemaMismatch, match=f'A value of the column "{column}" does not fit'):
            table.append([row])
    assert table.count() == 5


def test_texts_in_lists_are_taken_into_lists_of_uuids_and_json(tmp_path: Path) -> None:
    key = uuid.UUID(int=31 << 123)
    keys = pa.ListArray.from_arrays([0, 1, 1], pa.array([key.bytes], pa.uuid()))
    texts = pa.ListArray.from_arrays([0, 1, 1], pa.array(["1"], pa.json_()))
    table = zskip.write(pa.table({"id": [1, 2], "k": keys, "j": texts}), tmp_path / "t", by="id")
    table.append(duckdb.sql(f"SELECT 3 AS id, ['{key}'::UUID, NULL] AS k, ['[3]'::JSON] AS j"))
    table.append([{"id": 4, "k": None, "j": ['{"a": 4}']}])
    assert table.plan("id >= 3").to_arrow().to_pylist() == [
        {"id": 3, "k": [key, None], "j": ["[3]"]},
        {"id": 4, "k": None, "j": ['{"a": 4}']},
    ]
    for column, text in (("k", "x"), ("j", "nope")):
        with pytest.raises(SchemaMismatch, match=f'A value of the column "{column}" does not fit'):
            table.append([{"id": 5, column: [text]}])


def test_uuids_and_json_are_stored_inside_other_types(tmp_path: Path) -> None:
    forms = ["{'a': V, 'b': 1}", "[{'a': V}]", "MAP {'m': V}", "MAP {'m': [V], 'n': NULL}"]
    values = [f"'{uuid.UUID(int=31 << 123)}'::UUID", "'[3]'::JSON"]
    columns = [form.replace("V", value) for form in forms for value in values]
    inside = ", ".join(f"CASE WHEN range < 6 THEN {column} END AS c{at}" for at, column in enumerate(columns))
    con = duckdb.connect()
    con.execute(f"CREATE TABLE r AS SELECT range::INT AS id, {inside} FROM range(7)")
    con.execute(f"COPY r TO '{tmp_path}/r.parquet'").fetchall()
    zskip.write(tmp_path / "r.parquet", tmp_path / "t", by="id", files=2)
    table = zskip.open(tmp_path / "t")
    table.append(con.sql("SELECT * REPLACE (id + 10 AS id) FROM r WHERE id > 4"))
    table.upsert(con.sql("FROM r WHERE id < 3"), on="id")
    table.upsert(con.sql("FROM r LIMIT 0"), on="id")
    con.execute("INSERT INTO r SELECT * REPLACE (id + 10 AS id) FROM r WHERE id > 4")
    rows = con.sql("FROM r ORDER BY id").fetchall()
    relation = zskip.sql(f"FROM '{tmp_path}/t' ORDER BY id", con)
    assert relation.fetchall() == rows
    assert relation.types == con.sql("FROM r").types
    assert table.verify(engines=("duckdb", "arrow")).clean
    table.optimize(full=True)
    assert sorted(table.plan("id > 4").to_arrow()["id"].to_pylist()) == [5, 6, 15, 16]


def test_arrays_of_duckdb_are_taken_into_the_lists_that_it_copies_them_to(tmp_path: Path) -> None:
    con = duckdb.connect()
    arrays = "[id, NULL]::INT[2] AS a, ['a', 'b']::VARCHAR[2] AS b, [[1, 2]]::INT[2][] AS c"
    con.execute(f"CREATE TABLE r AS SELECT id, {arrays} FROM range(3) t(id)")
    con.execute(f"COPY r TO '{tmp_path}/r.parquet'").fetchall()
    table = zskip.write(tmp_path / "r.parquet", tmp_path / "t", by="id")
    table.append(con.sql("SELECT * REPLACE (id + 3 AS id) FROM r"))
    table.upsert(con.sql("FROM r"), on="id")
    texts = "SELECT a::VARCHAR, b::VARCHAR, c::VARCHAR FROM"
    found = zskip.sql(f"{texts} '{tmp_path}/t' ORDER BY id", con).fetchall()
    assert found == con.sql(f"{texts} r").fetchall() * 2


def test_lists_of_a_fixed_size_may_require_their_items(tmp_path: Path) -> None:
    item = pa.field("item", pa.float32(), nullable=False)
    required, nullable = pa.list_(item, 2), pa.list_(pa.float32(), 2)
    for before, after in ((required, nullable), (nullable, required)):
        rows = pa.table({"id": [1], "v": pa.array([[1, 2]], before)})
        table = zskip.write(rows, tmp_path / "t", by="id", mode="overwrite")
        table.append(pa.table({"id": [2], "v": pa.array([[3, 4]], after)}))
        assert sorted(table.to_arrow()["v"].to_pylist()) == [[1, 2], [3, 4]]
    table.append(pa.table({"id": [3], "v": pa.array([[5, 6]], pa.large_list(pa.float32()))}))
    assert table.plan("id = 3").to_arrow()["v"].to_pylist() == [[5, 6]]
    longer = [[3, 4, 5]]
    for type, words in ((pa.list_(pa.float32(), 3), "neither can take"), (pa.list_(pa.float32()), "does not fit")):
        with pytest.raises(SchemaMismatch, match=words):
            table.append(pa.table({"id": [4], "v": pa.array(longer, type)}))
    assert table.count() == 3


@pytest.mark.parametrize("storage", [pa.large_string(), pa.string_view()])
def test_json_is_json_however_arrow_stores_it(storage: pa.DataType, tmp_path: Path) -> None:
    def rows(storage: pa.DataType) -> pa.Table:
        texts = pa.array(["[1]", None]).cast(storage)
        return pa.table({"id": [1, 2], "j": pa.ExtensionArray.from_storage(pa.json_(storage), texts)})

    for first, second in ((storage, pa.string()), (pa.string(), storage)):
        table = zskip.write(rows(first), tmp_path / "t", by="id", mode="overwrite")
        table.append(rows(second))
        assert table.plan("j = '[1]'").to_arrow()["id"].to_pylist() == [1, 1]


def test_times_of_a_finer_unit_widen_their_column(tmp_path: Path) -> None:
    first, second = dt.time(1), dt.time(2, 30, 0, 1)
    table = zskip.write(pa.table({"id": [1], "v": pa.array([first], pa.time32("ms"))}), tmp_path / "t", by="v")
    table.append(pa.table({"id": [2], "v": pa.array([second], pa.time64("us"))}))
    for _ in range(2):
        assert zskip.sql(f"FROM '{tmp_path}/t' WHERE v > TIME '02:30:00'").fetchall() == [(2, second)]
        assert table.plan("v = TIME '01:00:00'").to_arrow().to_pylist() == [{"id": 1, "v": first}]
        table.optimize(full=True)
    with pytest.raises(SchemaMismatch, match="another meaning in SQL"):
        table.append(pa.table({"id": [3], "v": pa.array([1], pa.time64("ns"))}))


def test_rows_of_a_type_whose_values_the_column_holds_are_taken(tmp_path: Path) -> None:
    types: list[tuple[pa.DataType, pa.DataType, list[Any]]] = [
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin"), [1, 2]),
        (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC"), [1, 2]),
        (pa.binary(), pa.binary(2), [b"ab", b"cd"]),
        (pa.time64("us"), pa.time32("ms"), [dt.time(1), dt.time(2, 30)]),
        (pa.list_(pa.binary()), pa.list_(pa.binary(2)), [[b"ab"], [b"cd", None]]),
        (pa.struct({"x": pa.binary()}), pa.struct({"x": pa.binary(2)}), [{"x": b"ab"}, None]),
    ]

    def rows(ids: list[int], of: list[int], given: int) -> pa.Table:
        """Columns of the first or the second types, with the values at these places."""
        arrays = {f"v{at}": pa.array([one[2][n] for n in of], one[given]) for at, one in enumerate(types)}
        return pa.table({"id": ids, **arrays})

    table = zskip.write(rows([1], [0], 0), tmp_path / "t", by="id")
    table.append(rows([2], [1], 1))
    table.upsert(rows([2, 3], [1, 0], 1), on="id")
    expected = rows([1, 2, 3], [0, 1, 0], 0)
    assert table.schema == expected.schema
    assert table.to_arrow().sort_by("id").equals(expected)


def test_delete_drops_whole_files_unread_and_rewrites_the_rest(table: zskip.Table) -> None:
    done = table.delete("a < ?", params=[500])
    left = rows_of(2_000, 1).filter(pc.field("a") >= 500)
    assert done.rows == 2_000 - len(left)
    assert done.files_dropped > 0
    assert ids(table.to_arrow()) == ids(left)
    version = table.version
    assert table.delete("a < $most", params={"most": 500}).rows == 0
    assert table.version == version


def test_delete_does_not_take_lost_rows_for_deleted_ones(tmp_path: Path) -> None:
    table = zskip.write(rows_of(400, 3), tmp_path / "t", by=["a"], rows_per_file=100)
    path = Path(table.plan().paths[1])
    whole = pq.read_table(path)
    first = whole["id"][0].as_py()
    pq.write_table(whole.slice(0, 40), path)
    before = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(CorruptFile, match="1 match and 39 do not"):
        table.delete(f"id = {first}")
    assert (zskip.open(tmp_path / "t").version, sorted(tmp_path.rglob("*.parquet"))) == (1, before)
    pq.write_table(whole, path)
    assert table.delete(f"id = {first}").rows == 1
    assert table.delete("random() < 0.5 AND a >= 0").rows > 50


def test_delete_leaves_files_alone_in_which_no_row_matches(table: zskip.Table) -> None:
    """Ranges say "maybe" of nearly every file; the rows say yes of one."""
    assert len(table.plan("id = 1000700")) > 5
    before = set(table.plan().paths)
    done = table.delete("id = 1000700")
    assert (done.rows, done.files_rewritten, done.files_dropped) == (1, 1, 0)
    assert len(before - set(table.plan().paths)) == 1
    version = table.version
    assert table.delete("id = 1000700").rows == 0
    assert table.version == version
    assert len(table.to_arrow()) == 1_999


def test_a_delete_takes_the_rows_that_others_add_meanwhile(table: zskip.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after their version, so it must be as if it had begun after it; what cannot match is not looked at."""
    real, late = delete.commit, zskip.open(table.uri)
    begun: list[int] = []

    def delayed(*args: object, **options: object) -> object:
        begun.append(1)
        if len(begun) <= 2:
            late.append(rows_of(300, 1 + len(begun)))
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(delete, "commit", delayed)
    done = table.delete("a < 500")
    everything = pa.concat_tables([rows_of(2_000, 1), rows_of(300, 2), rows_of(300, 3)])
    left = everything.filter(pc.field("a") >= 500)
    assert done.rows == len(everything) - len(left)
    assert (len(begun), done.version) == (3, 4)
    assert ids(table.to_arrow()) == ids(left)
    begun.clear()
    assert table.delete("a = 7000").rows == 0
    assert not begun


def test_overwrite_keeps_what_is_not_given_anew(table: zskip.Table) -> None:
    assert table.overwrite(rows_of(1000, 2)).files == len(table.plan().paths) == 8
    assert table.overwrite(rows_of(1000, 3), files=5).files == 5
    assert table.overwrite(rows_of(1000, 3), rows_per_file=500).files == 2
    table.overwrite(rows_of(1000, 4), by="id", partition_by=())
    assert table._index.snapshot.layout is not None
    assert table._index.snapshot.layout.columns == ("id",)
    assert ids(table.to_arrow()) == ids(rows_of(1000, 4))
    with pytest.raises(InvalidOption, match="rows_per_file"):
        table.overwrite(rows_of(10, 5), row_per_file=3)


@pytest.mark.parametrize(
    "other",
    [
        {"source": pa.table({"id": ["text"], "a": [1], "b": [0.5]})},
        {"source": pa.table({"a": [1], "c": [2]}), "by": "a"},
        {"source": rows_of(100, 3).set_column(1, "a", pa.array(["x"] * 100)), "partition_by": "a", "by": "b"},
    ],
    ids=["type", "columns", "partitions"],
)
def test_an_append_to_a_table_that_was_overwritten_meanwhile_mixes_nothing(
    other: dict[str, object], table: zskip.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files were written for other columns: they are taken in where they fit, and refused where they do not."""
    real, late = append.commit, zskip.open(table.uri)

    def delayed(*args: object, **options: object) -> object:
        monkeypatch.setattr(append, "commit", real)
        late.overwrite(**other)
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(append, "commit", delayed)
    kept = 0
    try:
        kept = table.append(rows_of(500, 2)).rows
    except (CommitConflict, SchemaMismatch):
        assert {path.name for path in Path(table.uri).rglob("*.parquet")} >= {
            Path(path).name for path in late.plan().paths
        }
    newest = zskip.open(table.uri)
    found = newest.to_arrow()
    assert found.num_rows == late._index.snapshot.totals.rows + kept
    assert newest.verify(["a IS NOT NULL"]).clean


def test_versions_that_cannot_be_opened_say_why(table: zskip.Table) -> None:
    first = table.history()[0].time
    table.append(rows_of(100, 2))
    assert zskip.open(table.uri, as_of=first).version == 1
    assert zskip.open(table.uri, as_of=first.isoformat()).version == 1
    assert zskip.open(table.uri, as_of="9999-12-31").version == 2
    for wrong in ({"as_of": first - timedelta(microseconds=1)}, {"version": 0}, {"version": -1}, {"version": 3}):
        with pytest.raises(TableNotFound):
            zskip.open(table.uri, **wrong)  # type: ignore[arg-type]
    for nonsense in ({"as_of": "yesterday"}, {"version": 1, "as_of": first}):
        with pytest.raises(InvalidOption):
            zskip.open(table.uri, **nonsense)  # type: ignore[arg-type]
    assert [len(table.history(limit)) for limit in (0, 1, 2, 9)] == [0, 1, 2, 2]
    with pytest.raises(InvalidOption):
        table.history(-1)


def test_restore_names_the_files_that_are_gone_and_appends_go_on_after_it(table: zskip.Table) -> None:
    table.append(rows_of(100, 2))
    appended = sorted(set(zskip.open(table.uri).plan().scan.relative_paths))
    table.restore(1)
    table.append(rows_of(50, 3))
    assert ids(table.to_arrow()) == ids(pa.concat_tables([rows_of(2_000, 1), rows_of(50, 3)]))
    lost = next(path for path in appended if path not in table.plan().scan.relative_paths)
    (Path(table.uri) / lost).unlink()
    with pytest.raises(TableNotFound, match=lost):
        table.restore(2)
    table.vacuum("0 days")
    with pytest.raises(TableNotFound, match="holds 4 to 5"):
        table.restore(1)
    assert ids(table.to_arrow()) == ids(pa.concat_tables([rows_of(2_000, 1), rows_of(50, 3)]))


def test_spans_of_time_that_make_no_sense_are_refused(table: zskip.Table) -> None:
    for span in ("", "7", "days", "-1 days", "1e3 days", "9999999999999 weeks", 7, timedelta(-1)):
        with pytest.raises(InvalidOption):
            table.vacuum(span)  # type: ignore[arg-type]


def test_statistics_from_elsewhere_are_planned_on(tmp_path: Path) -> None:
    """No file exists, nothing is listed, and what is not given is unknown."""
    known = pa.table(
        {
            "path": ["a.parquet", "b.parquet", "c.parquet"],
            "row_count": [10, 10, 10],
            "size": [100, 100, 100],
            "x.lower": pa.array([0, 100, None], pa.int64()),
            "x.upper": pa.array([50, 200, None], pa.int64()),
            "x.null_count": [0, 0, 0],
        }
    )
    schema = pa.schema([("x", pa.int64()), ("y", pa.string())])
    table = zskip.index(tmp_path / "t", statistics=known, schema=schema)
    names = [Path(path).name for path in table.plan("x = 7").paths]
    assert names == ["a.parquet", "c.parquet"]
    assert [Path(path).name for path in table.plan("x > 60").paths] == ["b.parquet", "c.parquet"]
    assert len(table.plan("y = 'anything'")) == 3
    assert len(table.plan("x IS NULL")) == 0


def test_commits_are_logged_and_clustering_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "zskip"):
        table = zskip.write(pa.table({"<x>": range(100)}), tmp_path / "t", by="<x>", files=4)
        table.delete('"<x>" < 10')
    messages = [record.getMessage().removeprefix(f"{table.uri} is ") for record in caplog.records]
    assert messages == ["version 1 now, by write: 4 files", "version 2 now, by delete: 4 files"]
    found = table.clustering()
    assert "4" in str(found).splitlines()[1].split()
    assert "&lt;x&gt;" in found._repr_html_()


def test_a_table_gives_its_rows_as_a_plan_does(tmp_path: Path) -> None:
    rows = pa.table({"a": [3, 1, 2], "b": ["x", "y", "z"]})
    table = zskip.write(rows, tmp_path / "t", by="a", files=3)
    assert table.to_pandas().a.tolist() == table.to_polars(["a"])["a"].to_list() == [1, 2, 3]
    assert table.to_duckdb(columns=["b"]).order("b").fetchall() == [("x",), ("y",), ("z",)]
    plan = table.plan("a > 1")
    assert [file.rows for file in plan] == [1, 1]
    assert len(plan) == len(list(plan)) == 2
    assert "reads 2 of 3 files, 2 of 3 rows" in repr(plan)


_ODD = 2**53 + 1  # no float64


@pytest.mark.parametrize(
    ("values", "type", "dtype"),
    [
        ([_ODD, None, -_ODD], pa.int64(), "Int64"),
        ([-(2**63), None, 2**63 - 1], pa.int64(), "Int64"),
        ([2**64 - 1, None, 0], pa.uint64(), "UInt64"),
        ([2**53, None, 2**60 + 2**10, -(2**63), 0], pa.int64(), "float64"),  # as Arrow has them: all are exact
        ([1, None], pa.int32(), "float64"),
        ([None, None], pa.int64(), "float64"),
        ([_ODD, 1], pa.int64(), "int64"),
        ([[_ODD, None], None], pa.list_(pa.int64()), "object"),
        ([{"x": [_ODD]}, {"x": [None]}, None], pa.struct({"x": pa.list_(pa.int64())}), "object"),
        ([[(1, _ODD), (2, None)]], pa.map_(pa.int64(), pa.int64()), "object"),
    ],
)
def test_pandas_has_the_integers_beside_null(tmp_path: Path, values: list[Any], type: pa.DataType, dtype: str) -> None:
    rows = pa.table({"k": range(len(values)), "n": pa.array(values, type)})
    zskip.write(rows, tmp_path / "t", by="k", files=1)
    frame = zskip.read(tmp_path / "t", into="pandas")
    assert frame["n"].dtype == dtype
    found = pa.Array.from_pandas(frame["n"], type=type)
    assert found.to_pylist() == values


def test_python_values_and_lazy_frames_are_sources(tmp_path: Path) -> None:
    lazy = polars.LazyFrame({"a": [0, 1, 2], "b": ["w", "x", None]}).filter(polars.col("a") > 0)
    for source in ({"a": [1, 2], "b": ["x", None]}, [{"a": 1, "b": "x"}, {"a": 2}], lazy):
        table = zskip.write(source, tmp_path / "t", by="a", mode="overwrite")
        assert table.to_arrow().to_pydict() == {"a": [1, 2], "b": ["x", None]}


@pytest.mark.parametrize(
    ("rows", "partition_by"),
    [
        (pa.table({"k": [5], "o": [1.0]}), ()),
        (pa.table({"k": [5], "o": [1.0]}), ("r",)),
        ([{"k": 5, "o": 1.0}], ()),
        ([{"k": 5, "r": None, "o": 1.0}], ("r",)),
    ],
)
def test_an_append_without_a_clustering_column_has_null_there(
    rows: object, partition_by: tuple[str, ...], tmp_path: Path
) -> None:
    first = pa.table({"k": [1, 2, 3, 4], "r": list("abcd"), "o": [1.0, 2.0, 3.0, 4.0]})
    table = zskip.write(
        first, tmp_path / "t", by=["r" if not partition_by else "k"], partition_by=partition_by, files=2
    )
    table.append(rows)
    assert table.plan("r IS NULL").to_arrow().to_pylist() == [{"k": 5, "r": None, "o": 1.0}]


def test_clustering_has_the_names_that_it_is_given(tmp_path: Path) -> None:
    rows = pa.table({"ID": range(8), "a b": range(8)})
    table = zskip.write(rows, tmp_path / "t", by=["ID", "a b"], files=4)
    assert list(table.clustering()) == ["ID", "a b"]
    assert list(table.clustering(["id", '"a b"'])) == ["id", '"a b"']
    assert table.clustering(["id"])["id"] == table.clustering(["ID"])["ID"]


def test_receipts_show_few_elements(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": range(40)}), tmp_path / "t", by="a", files=20)
    table.overwrite(pa.table({"a": [1]}))
    removed = table.vacuum("0 seconds")
    assert len(removed.paths) > 20
    assert repr(removed).count(".parquet") <= 3
    assert f"… {len(removed.paths) - 3} more)" in repr(removed)


NUMBERS = {
    "u8": pa.array([0, 1, 3, 255, None, 200], pa.uint8()),
    "u32": pa.array([0, 1, 3, 2**32 - 1, None, 5], pa.uint32()),
    "u64": pa.array([0, 1, 3, 2**64 - 1, None, 2**53 + 1], pa.uint64()),
    "i": pa.array([-3, 0, 3, 2**53 + 1, None, -(2**63)], pa.int64()),
    "small": pa.array([-3, 0, 3, 127, None, -128], pa.int8()),
    "dec": pa.array([Decimal("-1.5"), Decimal(0), Decimal(3), Decimal("99999999.99"), None, Decimal("2.5")]),
    "r": pa.array([1.5, math.nan, 3, -0.0, None, math.inf], pa.float32()),
    "f": pa.array([1.5, math.nan, 3, -0.0, None, 0.1], pa.float64()),
    "tm": pa.array([dt.time(4), dt.time(5), dt.time(5, 0, 0, 1), None, dt.time(0), dt.time(23)], pa.time64("us")),
}


def test_filters_by_lists_without_a_value(tmp_path: Path) -> None:
    """Arrow raised ArrowTypeError for a column of strings."""
    zskip.write(pa.table({"s": ["a", None, "b"], "d": pa.array([None, 1, 2], pa.date32())}), tmp_path / "t", by="d")
    for values, found in (([], 0), ((), 0), ([None], 1), ([None, None], 1)):
        for name in ("s", "d"):
            assert len(zskip.read(tmp_path / "t", filters=[(name, "in", values)])) == found
            assert len(zskip.read(tmp_path / "t", filters=[(name, "not in", values)])) == 3 - found


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_filters_of_numbers_mean_what_they_mean_to_pyarrow(every: int, tmp_path: Path) -> None:
    """Those for which Arrow casts the column, too, as for 5.5 beside integers."""
    zskip.write(pa.table({"id": range(6), **NUMBERS}), tmp_path / "t", by="id", files=6)
    cases: list[tuple[str, Any, str]] = []
    for name in NUMBERS:
        numbers = [-300, -3, 0, 1, 2, 3, 255, 300, 70_000, 2.5, -1.5, 0.0, 3.0, 1e6]
        numbers += [0.1, 1e-46] if name in ("r", "f") else []
        numbers += [math.nan, math.inf] if name == "f" else []
        values = [dt.time(5, 0, 0, 1), dt.time(5)] if name == "tm" else numbers
        cases += [(name, v, op) for v in values if not (name == "dec" and isinstance(v, float)) for op in COMPARISONS]
    # All comparisons are tried, as 13 does not divide their number; and all of a time, whose filters go another way.
    for name, value, op in cases[:-6:every] + cases[-6:]:
        # Arrow compares some of them as decimals only: it lacks a cast.
        exact = name in ("u64", "i", "dec")
        column = NUMBERS[name].cast(pa.decimal128(30, 2)) if exact else NUMBERS[name]
        matches = COMPARISONS[op](column, Decimal(value) if exact else value)
        found = zskip.read(tmp_path / "t", filters=[(name, op, value)])["id"]
        assert sorted(found.to_pylist()) == pa.array(range(6)).filter(matches).to_pylist(), (name, op, value)


COMPARISONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def test_filters_as_pandas_and_pyarrow_take_them(tmp_path: Path) -> None:
    rows = pa.table({"a": range(8), "b": [1, None] * 4, "c": [True, False, False, None] * 2})
    table = zskip.write(rows, tmp_path / "t", by="a", files=4)
    for filters in (
        [("a", "=", 3)],
        [("a", ">", 1), ("b", "in", [1, 2])],
        [[("a", "==", 3)], [("b", "!=", 1)]],
        [("c", "in", [np.int64(-1)])],
        [("c", "not in", [0.0])],
        [("c", "not in", pa.array([2, None], pa.int8()))],
    ):
        pq.write_table(rows, tmp_path / "rows.parquet")
        expected = pq.read_table(tmp_path / "rows.parquet", filters=filters)
        assert zskip.read(tmp_path / "t", filters=filters).sort_by("a").equals(expected)
        assert zskip.open(tmp_path / "t").plan(filters=filters).to_arrow().sort_by("a").equals(expected)
    assert len(table.plan([("a", "=", 3)])) == 1
    with pytest.raises(InvalidOption, match="is no list of filters"):
        table.plan([[("a", "=", 3)], []])
    with pytest.raises(InvalidOption, match="is no list of filters"):
        table.plan([("a", "~", 3)])
    with pytest.raises(InvalidOption, match="give one of them"):
        zskip.read(tmp_path / "t", where="a = 1", filters=[("a", "=", 1)])


def test_a_predicate_may_end_like_a_statement(tmp_path: Path) -> None:
    """Engines put its text into a WHERE, where a semicolon would end the statement."""
    table = zskip.write(pa.table({"a": range(10)}), tmp_path / "t", by="a")
    assert table.plan("a < 4 ; ").count() == 4
    assert table.plan("a < 4;").to_duckdb().fetchall() == [(0,), (1,), (2,), (3,)]
    assert table.delete("a = 3;").rows == 1
    with pytest.raises(SqlSyntaxError, match="more than one statement"):
        table.plan("a < 4; SELECT 1")


# --- what a person sees who prints an object: what it is, on a line, and not all that it holds ---


def test_objects_say_what_they_are(tmp_path: Path) -> None:
    rows = pa.table({"a": list(range(1000)), "b": [n % 97 for n in range(1000)]})
    table = zskip.write(rows, tmp_path / "lake", by=["a", "b"], files=4)
    plan = table.plan("a < 300 AND b = 5")
    assert repr(plan.predicate) == "<Predicate: a < 300 AND b = 5>"
    assert "4 files" in repr(table._index)
    assert repr(table._index.snapshot).startswith("<Snapshot 1: write at ")
    assert str(plan.skipped).startswith("files 3 of 4 (75 %), row groups ")
    for shown in (
        table,
        plan,
        plan.files,
        plan.files[0],
        table._index,
        table._index.snapshot,
        table._index.snapshot.layout,
    ):
        assert len(repr(shown)) < 600
        assert " at 0x" not in repr(shown)
    longest = table.plan(" OR ".join(f"a = {n}" for n in range(200)))
    assert len(repr(longest.predicate)) < 300


def test_a_notebook_shows_tables_plans_advice_and_receipts(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a<b": range(100)}), tmp_path / "t", by="a<b", files=4)
    plan = table.plan('"a<b" < 10')
    assert "<td>100</td>" in table._repr_html_()
    assert "a&lt;b int64" in table._repr_html_()
    assert "3 of 4" in plan._repr_html_()
    assert "a&lt;b" in plan._repr_html_()
    assert "<pre>" in table.advise(['"a<b" = 5'])._repr_html_()
    assert "<tr><th>files_dropped</th><td>0</td></tr>" in table.delete('"a<b" = 5')._repr_html_()
    assert "values of a&lt;b" in table.add_sketches({'"a<b"': "values"})._repr_html_()
    assert "<td>write</td><td>4</td><td>100</td>" in table.history()._repr_html_()
    assert "<pre>sketches  nothing was due\n" in table.tend()._repr_html_()
