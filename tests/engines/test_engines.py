"""Every way to read a plan gives exactly the rows of a full scan, in the table's own types."""

from __future__ import annotations

import contextlib
import datetime
import datetime as dt
import os
import shutil
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests import ROOT, one_in
from tests.tables import build_table, plan_of, sorted_rows
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.engines import arrow
from zskip.engines.arrow import counts
from zskip.engines.duckdb.duckdb_types import lossless
from zskip.engines.duckdb.native_scan import read_of_files
from zskip.engines.duckdb.relation import planned_scan
from zskip.errors import InvalidOption, SchemaError, SchemaMismatch, TableNotFound, UnknownColumn, UnsupportedSql
from zskip.parquet import footers
from zskip.plan import Plan
from zskip.plan.planner import plan
from zskip.statements.duckdb import sql
from zskip.storage import hive, open_storage
from zskip.storage.remote import ObjectStorage
from zskip.tablelog.commit import TableUpdate, commit
from zskip.tablelog.freshness import listed
from zskip.tablelog.index import Index
from zskip.tablelog.log import load

NAN = float("nan")
MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456)

TYPES: dict[str, pa.Array] = {
    "uint64": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "int8": pa.array([-128, 127, None], pa.int8()),
    "float16": pa.array([1.5, NAN, None], pa.float16()),
    "float32": pa.array([-0.0, NAN, float("-inf")], pa.float32()),
    "decimal32": pa.array([Decimal("1.5"), None, Decimal("-999.9")], pa.decimal32(5, 1)),
    "decimal128": pa.array([Decimal("9" * 38), None, Decimal(-1)], pa.decimal128(38, 0)),
    "decimal256": pa.array([Decimal("9" * 60), None, Decimal("-1")], pa.decimal256(60, 0)),
    "bool": pa.array([True, None, False]),
    "string": pa.array(["", "é😀", None]),
    "large_string": pa.array(["x" * 10_000, None, "y"], pa.large_string()),
    "string_view": pa.array(["a", None, "b"], pa.string_view()),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "binary": pa.array([b"\x00\xff", None, b""]),
    "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "date32": pa.array([0, None, -1], pa.date32()),
    "date64": pa.array([86_400_000, None, 0], pa.date64()),
    "time32": pa.array([1, None, 2], pa.time32("ms")),
    "time64": pa.array([1, None, 2], pa.time64("ns")),
    "timestamp_ms": pa.array(
        [MOMENT.replace(microsecond=0), None, MOMENT.replace(microsecond=1000)], pa.timestamp("ms")
    ),
    "timestamp_ns": pa.array([1, None, 2], pa.timestamp("ns")),
    "zoned": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "Europe/Berlin")),
    "zoned_ns": pa.array([1, None, 2], pa.timestamp("ns", "UTC")),
    "duration": pa.array([1, None, 2], pa.duration("us")),
    "list": pa.array([[1], None, []], pa.list_(pa.int32())),
    "fixed_list": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32())),
    "struct": pa.array(
        [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}], pa.struct({"x": pa.int64(), "y": pa.string()})
    ),
    "wide_in_struct": pa.array([{"x": Decimal("9" * 50)}, None, None], pa.struct({"x": pa.decimal256(60, 0)})),
    "null": pa.nulls(3),
    "null_in_struct": pa.array([{"x": None, "y": 1}, None, {}], pa.struct({"x": pa.null(), "y": pa.int64()})),
    "null_in_list": pa.array([[None], None, []], pa.list_(pa.null())),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None, b"1" * 16], pa.binary(16))),
}


# A table whose columns DuckDB holds without loss is read by DuckDB, any other by Arrow.
BY_DUCKDB = [name for name, values in TYPES.items() if lossless(values.type)]
BY_ARROW = [name for name in TYPES if name not in BY_DUCKDB]


@pytest.mark.parametrize(
    "names",
    [BY_DUCKDB, BY_ARROW, *(pytest.param([name], marks=pytest.mark.slow) for name in TYPES)],
    ids=lambda names: names[0] if names else "none",
)
def test_every_type_comes_back_as_the_table_has_it(tmp_path: Path, names: list[str]) -> None:
    assert names
    rows = pa.table({"i": pa.array([0, 1, 2]), **{name: TYPES[name] for name in names}})
    index = build_table(tmp_path / "t", rows, files=3)
    for where, expected in [("i >= 1", rows.slice(1)), ("i = 1 AND i % 2 = 1", rows.slice(1, 1))]:
        for columns in (rows.column_names, *([name] for name in names)):
            found = plan_of(index, where).to_arrow(columns)
            assert found.schema == rows.select(columns).schema
            assert repr(found.to_pydict()) == repr(expected.select(columns).to_pydict())
    assert sql(f"SELECT count(*) FROM '{tmp_path}/t' WHERE i = 1", duckdb.connect()).fetchall() == [(1,)]


def test_nan_in_a_file_by_pyarrow_is_not_lost(tmp_path: Path) -> None:
    rows = pa.table({"f": pa.array([1.0, 2.0, NAN, None] * 5), "i": pa.array(range(20))})
    (tmp_path / "t").mkdir()
    pq.write_table(rows, tmp_path / "t" / "x.parquet", row_group_size=8)
    storage = open_storage(str(tmp_path / "t"))
    schema, files = footers.read(storage, ["x.parquet"])
    index = Index(storage, commit(storage, None, TableUpdate("index", add=files, schema=schema, managed=False)))
    con = duckdb.connect()
    con.register("plain", rows)
    for where in ("f > 1.5", "NOT (f <= 1.5)", "f <> 1", "f = 'nan'::DOUBLE", "f IS NOT NULL", "f >= 2"):
        found = plan_of(index, where)
        expected = sorted_rows(con.sql(f"SELECT f, i FROM plain WHERE {where}").fetchall())
        assert expected
        assert sorted_rows(found.to_arrow()) == expected
        assert sorted_rows(found.to_duckdb(con).fetchall()) == expected
        assert sorted_rows(sql(f"SELECT f, i FROM '{tmp_path}/t' WHERE {where}", con).fetchall()) == expected
        assert found.count() == len(expected)


def test_odd_names_of_columns_and_of_the_folder(tmp_path: Path) -> None:
    rows = pa.table([[1, 2], [3, 4], [5, 6], [7, 8]], names=["a.b", "select", 'q"q', "o'o é"])
    folder = tmp_path / "la[k]e*'s ?"
    index = build_table(folder, rows, files=2)
    found = plan_of(index, '"a.b" = 2')
    assert found.to_arrow().equals(rows.slice(1))
    assert found.to_duckdb(duckdb.connect()).fetchall() == [(2, 4, 6, 8)]


def test_names_that_differ_only_in_case_are_read_by_arrow(tmp_path: Path) -> None:
    rows = pa.table([[1, 2, 3], [4, 5, 6], [7, 8, 9]], names=["a", "A", "b"])
    index = build_table(tmp_path / "t", rows, files=3)
    found = plan_of(index, "b = 8")
    assert found.to_arrow().equals(rows.slice(1, 1))
    assert found.to_arrow(["A"]).equals(rows.select(["A"]).slice(1, 1))
    assert found.count() == 1
    with pytest.raises(SchemaError, match='"a" and "A"'):
        found.to_duckdb(duckdb.connect())


def test_files_that_lack_a_column_or_are_narrower(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"i": pa.array([1, 2], pa.int32())}), folder / "old.parquet")
    pq.write_table(pa.table({"s": ["x", None], "i": pa.array([2**40, 3], pa.int64())}), folder / "young.parquet")
    schema = Schema(pa.schema({"i": pa.int64(), "s": pa.string()}))
    storage = open_storage(str(folder))
    _, files = footers.read(storage, ["old.parquet", "young.parquet"], schema)
    index = Index(storage, commit(storage, None, TableUpdate("index", add=files, schema=schema, managed=False)))
    everything = pa.table({"i": pa.array([1, 2, 2**40, 3]), "s": pa.array([None, None, "x", None])})
    for where, kept in [("s IS NULL", [0, 1, 3]), ("i > 1", [1, 2, 3]), ("s = 'x'", [2]), ("i + 0 = 3", [3])]:
        assert plan_of(index, where).to_arrow().equals(everything.take(kept)), where


def test_values_of_hive_folders(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    texts = {"day=2024-01-31/host=a%2Fb": 1, "day=2024-02-01/host=01": 2, "day=__HIVE_DEFAULT_PARTITION__/host=c d": 3}
    for text, value in texts.items():
        (folder / text).mkdir(parents=True)
        pq.write_table(pa.table({"i": [value]}), folder / text / "x.parquet")
    schema = pa.schema({"i": pa.int64(), "day": pa.date32(), "host": pa.string()})
    paths = sorted(str(path) for path in folder.rglob("*.parquet"))
    read = read_of_files(paths, schema, partition_by=["day", "host"])
    found = duckdb.connect().execute(f"FROM {read.sql} WHERE host <> 'x'", dict(read.parameters)).fetchall()
    assert sorted(found) == [
        (1, datetime.date(2024, 1, 31), "a/b"),
        (2, datetime.date(2024, 2, 1), "01"),
        (3, None, "c d"),
    ]


@pytest.mark.parametrize(
    ("folders", "by_duckdb"),
    [
        (["p=1/q=x", "p=-2/q=y%20z", "p=__HIVE_DEFAULT_PARTITION__/q="], True),
        (["p=1/q=x", "p=2"], False),
        (["p=1/q=x", "q=y/p=2"], False),
        (["p=1/q=x", "p=2/q=y/r=3"], False),
        (["p=1/q=x", "p=2/q=y=z"], False),
        (["p=1/q=x", "p=2/q=y?z"], False),
        (["p=1/q=x", "p=0x10/q=y"], False),
        (["p=1/q=x", "p=null/q=y"], False),
        (["%70=1/q=x"], False),
    ],
)
def test_duckdb_reads_plain_names_of_folders_itself(folders: list[str], by_duckdb: bool, tmp_path: Path) -> None:
    for number, folder in enumerate(folders):
        (tmp_path / folder).mkdir(parents=True)
        # The folder's value counts, not the file's.
        rows = pa.table({"q": ["of the file"] * 3, "id": [number, number + 10, number + 20]})
        pq.write_table(rows, tmp_path / folder / "0.parquet")
    schema = pa.schema({"p": pa.int64(), "id": pa.int64(), "q": pa.string()})
    paths = sorted(map(str, tmp_path.rglob("*.parquet")))
    read = read_of_files(paths, schema, partition_by=["p", "q"], held={"id": "id", "p": None, "q": None})
    found = sorted(duckdb.sql(f"FROM {read.sql}", params=dict(read.parameters)).fetchall(), key=lambda row: row[1])
    assert ("hive_types" in read.sql) is by_duckdb
    values = [hive.values_of(f"{each}/") for each in folders]
    texts = {text: None if text == "null" else int(text, 0) for each in values if (text := each["p"]) is not None}
    wanted = [(texts.get(each["p"] or ""), number, each.get("q")) for number, each in enumerate(values)]
    assert found[: len(folders)] == wanted


def test_columns_of_folders_stay_in_the_order_of_the_table(tmp_path: Path) -> None:
    """DuckDB would append them in the order of their names."""
    rows = pa.table({"id": [1, 2, 3], "zz": [1, 1, 2], "aa": ["x", "y", "y"]})
    written, plain = tmp_path / "t", tmp_path / "plain"
    zskip.write(rows, written, by="id", partition_by=["zz", "aa"])
    shutil.copytree(written, plain, ignore=shutil.ignore_patterns("_zskip"))
    zskip.index(plain)

    def require_order(path: Path) -> None:
        assert zskip.sql(f"FROM '{path}' ORDER BY id").fetchall() == [(1, 1, "x"), (2, 1, "y"), (3, 2, "y")]
        assert zskip.open(path).to_arrow().schema.names == rows.schema.names

    require_order(written)
    require_order(plain)
    zskip.cluster(plain, by="id")
    require_order(plain)


# Names of hive folders in forms other than those that zskip writes.
FOLDER_NAMES = [
    ["1", "-0", "0x10", "0b11", " 1"],
    ["1", "NULL", "__HIVE_DEFAULT_PARTITION__"],
    ["+7", "8"],
    ["007", "7"],
    ["1_000", "9"],
    ["9223372036854775807", "-9223372036854775808"],
    ["9223372036854775808", "1"],
    ["2024-1-1", "2024-01-02", "null"],
    [" 2024-02-29", "24-01-01", "2024-01-01 (BC)", "-2024-01-01", "epoch"],
    ["2024-02-30", "2024-02-28"],
    ["2024-01-31", "infinity", "-infinity"],
    ["2024-01-31 10:00:00", "2024-1-1 1:2:3", "2024-01-01 24:00:00", "2024-01-01T10:00:00.1234567"],
    ["2024-01-31 10:00:00Z", "2024-01-31 10:00:00+02", "2024-01-31 10:00:00 UTC"],
    ["2024-01-31", "2024-01-31 10:00:00"],
    ["2024-01-31 10%3A00%3A00"],
    ["%31", "2"],
    ["NULL", "null", "__HIVE_DEFAULT_PARTITION__"],
    ["1.5", "1e3", "true", "10:00:00"],
]


@pytest.mark.parametrize("names", one_in(6, FOLDER_NAMES), ids=lambda names: names[0])
def test_names_of_folders_mean_what_they_mean_to_duckdb(names: list[str], tmp_path: Path) -> None:
    require_the_same_folders(tmp_path, names)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_names_of_folders_mean_what_they_mean_to_duckdb(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    known = [name for group in FOLDER_NAMES for name in group]
    for number in range(5):
        names = list(random.choice(known, random.integers(1, 4), replace=False))
        for _ in range(random.integers(0, 3)):  # a character more, less, or another one
            place = random.integers(len(names))
            at = random.integers(len(names[place]) + 1)
            changed = str(random.choice([*" 0123456789:-+.TZxX_%e", ""]))
            names[place] = names[place][:at] + changed + names[place][at + random.integers(2) :]
        (tmp_path / str(number)).mkdir()
        require_the_same_folders(tmp_path / str(number), list(map(str, dict.fromkeys(names))))


def partitions(folder: Path, *names: str) -> None:
    """A folder of Parquet of two rows for each of these values of ``p``."""
    for number, name in enumerate(names):
        (folder / f"p={name}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [number, number + 100]}), folder / f"p={name}" / "0.parquet")


def require_the_same_folders(root: Path, names: list[str]) -> None:
    """Every way to read an indexed folder, and a copy of it, gives what DuckDB's own read of its files gives."""
    folder = root / "t"
    partitions(folder, *names)
    files = f"read_parquet('{folder}/*/*.parquet', hive_partitioning = true)"
    all_rows = "SELECT id, typeof(p), p::VARCHAR FROM {} ORDER BY id"
    try:
        wanted = duckdb.sql(all_rows.format(files)).fetchall()
    except duckdb.InvalidInputException:
        with pytest.raises(SchemaMismatch, match="is not UTF-8 after decoding"):
            zskip.index(folder)
        return
    words = sum(name.lower() == "null" for name in names)
    zskip.index(folder)
    assert zskip.sql(all_rows.format(f"'{folder}'")).fetchall() == wanted
    with duckdb.connect() as con:
        con.register("loaded", zskip.open(folder).to_arrow())
        assert con.sql(all_rows.format("loaded")).fetchall() == wanted
    for _, kind, value in wanted:
        where = "p IS NULL" if value is None else f"p = CAST({native_literal(value)} AS {kind})"
        matching = duckdb.sql(f"SELECT id FROM {files} WHERE {where} ORDER BY id").fetchall()
        plan = zskip.open(folder).plan(where)
        # To Spark the word NULL is a text: its file is kept.
        assert len(matching) <= len(plan.paths) * 2 <= len(matching) + 2 * words
        assert sorted(plan.to_arrow().column("id").to_pylist()) == [id for (id,) in matching]
        assert zskip.sql(f"SELECT id FROM '{folder}' WHERE {where} ORDER BY id").fetchall() == matching
    zskip.write(folder, root / "copy", by="id")
    assert zskip.sql(all_rows.format(f"'{root / 'copy'}'")).fetchall() == wanted
    with contextlib.suppress(SchemaMismatch):  # for two names of one value
        zskip.cluster(folder, by="id")
    assert zskip.sql(all_rows.format(f"'{folder}'")).fetchall() == wanted


@pytest.mark.parametrize("name", one_in(2, ["2024-1-1", "0x10", "%31", " 1", "-0"]))
def test_folders_whose_names_would_change_their_type_keep_them(name: str, tmp_path: Path) -> None:
    """Also where a later write makes new files in them, and with new folders beside them."""
    kinds = {"2024-1-1": [name, "2024-01-02"], "%31": [name, "2"]}.get(name, [name, "7"])
    partitions(tmp_path, *kinds)
    value = zskip.index(tmp_path).plan("id = 0").to_arrow()["p"]
    zskip.cluster(tmp_path, by="id")
    table = zskip.open(tmp_path)
    for start in range(10, 40, 10):
        table.append(pa.table({"id": range(start, start + 10), "p": pa.repeat(value[0], 10)}))
    table.optimize(full=True)
    assert table.count() == 34
    assert {Path(path).parent.name for path in table.plan().paths} == {f"p={each}" for each in kinds}
    assert table.plan("id = 15").to_arrow()["p"] == value
    table.overwrite(pa.table({"id": [1], "p": value}))
    assert [Path(path).parent.name for path in table.plan().paths] == [f"p={name}"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        *((pair, f'"p=({"|".join(pair)})" and .* stand for one value') for pair in (("1", " 1"), ("%31", "1"))),
        (("2024-1-1", "2024-01-01"), '"p=2024-0?1-0?1" and .* stand for one value'),
        (("NULL", "7"), 'The folder "p=NULL" is NULL to DuckDB, and a text to Spark'),
    ],
)
def test_folders_whose_names_may_mean_another_value_are_not_laid_out(
    names: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    partitions(tmp_path, *names)
    with pytest.raises(SchemaMismatch, match=message):
        zskip.cluster(tmp_path, by="id")
    assert len(list(tmp_path.rglob("*.parquet"))) == len(names)


def test_times_are_laid_out_under_the_names_that_spark_gives_them(tmp_path: Path) -> None:
    partitions(tmp_path, "2024-01-31 10:00:00", "2024-01-31 10:00:00.5")
    zskip.cluster(tmp_path, by="id")
    folders = {Path(path).parent.name for path in zskip.open(tmp_path).plan().paths}
    assert {each.replace("%3A", ":") for each in folders} == {"p=2024-01-31 10:00:00", "p=2024-01-31 10:00:00.5"}


def native_literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def test_a_table_in_an_object_store_is_read_by_ranges() -> None:
    storage = open_storage("memory://engines-test")
    rows = pa.table({"a": range(1000), "s": [f"x{i}" for i in range(1000)]})
    for number in range(4):
        sink = pa.BufferOutputStream()
        pq.write_table(rows.slice(number * 250, 250), sink, row_group_size=50)
        storage.put(f"p {number}.parquet", sink.getvalue().to_pybytes())
    schema, files = footers.read(storage, [f"p {number}.parquet" for number in range(4)])
    commit(storage, None, TableUpdate("index", add=files, schema=schema, managed=True))
    index = Index(storage, load(storage))
    con = duckdb.connect()
    found = plan_of(index, "a = 777")
    assert len(found) == 1
    assert found.to_arrow().equals(rows.slice(777, 1))
    assert found.to_duckdb(con).fetchall() == [(777, "x777")]
    assert sql("SELECT s FROM 'memory://engines-test' WHERE a IN (3, 777)", con).fetchall() == [("x3",), ("x777",)]


def test_a_store_that_loses_the_connection_is_named_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"id": range(1000), "text": ["a"] * 1000})
    table = zskip.write(rows, "memory://lost-connection/t", by=["id"], rows_per_file=100)
    read = ObjectStorage.read_range

    def lost(storage: ObjectStorage, path: str, start: int, length: int) -> bytes:
        if "_zskip" not in path:
            raise ConnectionResetError("the connection was lost")
        return read(storage, path, start, length)

    monkeypatch.setattr(ObjectStorage, "read_range", lost)
    where, whole = "text <> 'b' AND id <> 77", f"SELECT max(id) FROM '{table.uri}' WHERE text <> 'b'"
    for act in (
        table.plan(where).count,
        table.plan(where).to_arrow,
        lambda: table.delete("id = 77"),
        lambda: sql(whole),
    ):
        with pytest.raises(
            OSError, match="from memory://lost-connection/t: ConnectionResetError: the connection"
        ) as error:
            act()
        assert "Traceback" not in str(error.value)


def test_a_value_that_reads_like_a_traceback_is_no_failure_of_the_store(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "line": ["Traceback (most recent call last):\nKeyError: 'a'"]})
    table = zskip.write(rows, tmp_path / "t", by="id")
    with pytest.raises(duckdb.ConversionException, match="Could not convert string"):
        table.plan("CAST(line AS INTEGER) > id").to_arrow()


def test_a_folder_of_others_is_listed_and_what_is_new_is_read(tmp_path: Path) -> None:
    index = build_table(tmp_path / "t", pa.table({"a": range(40)}), files=4, managed=False)
    folder = tmp_path / "t"
    pq.write_table(pa.table({"a": [7, 700]}), folder / "new.parquet")
    pq.write_table(pa.table({"a": [7, 800]}), folder / "part-00003.parquet")
    os.utime(folder / "part-00003.parquet", ns=(1, 1))
    (folder / "part-00001.parquet").unlink()
    found = plan(index, bind("a = 7 OR a = 15", index.snapshot.schema), changes=listed(index))
    assert [Path(path).name for path in found.paths] == ["part-00000.parquet", "new.parquet", "part-00003.parquet"]
    assert found.to_arrow().column("a").to_pylist() == [7, 7, 7]
    assert found.count() == 3
    assert found.files[1].rows is None
    assert "1 file new since the index was made, read in full: new.parquet" in found.explain()
    assert found.as_dict()["changes"] == {
        "new": ["new.parquet"],
        "changed": ["part-00003.parquet"],
        "gone": ["part-00001.parquet"],
    }
    assert found.explain("part-00001.parquet").splitlines()[0].endswith("skipped")
    assert sql(f"SELECT count(*) FROM '{folder}' WHERE a = 7", duckdb.connect()).fetchall() == [(3,)]
    assert listed(build_table(tmp_path / "own", pa.table({"a": [1]}), files=1)) is None


def test_batches_stream(tmp_path: Path) -> None:
    index = build_table(tmp_path / "t", pa.table({"a": np.arange(300_000)}), files=3, row_group_rows=50_000)
    sizes = [batch.num_rows for batch in plan_of(index, "a >= 1000").to_batches()]
    assert len(sizes) > 2
    assert sum(sizes) == 299_000


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    moments = pa.array([MOMENT, MOMENT.replace(year=2000)], pa.timestamp("us", "UTC"))
    index = build_table(tmp_path / "t", pa.table({"a": [1, 2], "ts": moments}), files=1)
    with pytest.raises(UnknownColumn, match="There is no column"):
        plan_of(index, "a = 1").to_arrow(["b"])
    unsaid = plan_of(index, "soundex(CAST(a AS STRING)) = 'x'", dialect="spark")
    with pytest.raises(UnsupportedSql, match="spark"):
        unsaid.to_arrow()
    con = duckdb.connect()
    con.execute("SET TimeZone = 'Europe/Berlin'")
    zoned = plan_of(index, "ts > '2024-02-29 12:00:00' AND a % 2 = 1")
    with pytest.raises(InvalidOption, match="Europe/Berlin"):
        zoned.to_duckdb(con)
    assert zoned.count() == 1
    assert plan_of(index, "a >= 0 AND a + 1 < 9").to_duckdb(con).columns == ["a", "ts"]
    there = plan_of(index, "ts > '2024-02-29 12:00:00' AND a % 2 = 1", timezone="Europe/Berlin")
    assert there.to_duckdb(con).aggregate("count(*)").fetchall() == [(1,)]


@pytest.mark.parametrize("predicate", ["a % 1000 = 7 AND a < 3000 OR a = 6100", "b = 3 AND a >= 4000 -- a remark"])
def test_row_groups_of_one_file_are_handed_over_as_its_rows(predicate: str, tmp_path: Path) -> None:
    rows = pa.table({"a": range(10_000), "b": [number % 7 for number in range(10_000)]})
    index = build_table(tmp_path / "t", rows, files=1, row_group_rows=1_000)
    plan = plan_of(index, predicate)
    assert plan.files[0].row_groups is not None
    con = duckdb.connect()
    con.register("everything", rows)
    expected = con.sql(f"SELECT * FROM everything WHERE ({predicate}\n) ORDER BY a").fetchall()
    assert "file_row_number" in planned_scan(plan.scan, con, None).sql
    assert plan.to_duckdb(con).order("a").fetchall() == expected
    # DuckDB failed with an internal error: it late-materializes the first rows.
    assert plan.to_duckdb(con).order("a").limit(3).fetchall() == expected[:3]
    assert plan.to_arrow().num_rows == plan.count() == len(expected) > 0


@pytest.mark.parametrize(("value", "kind"), [("7", pa.int64()), ("x", pa.string()), ("2020-02-29", pa.date32())])
def test_a_file_beside_hive_folders_has_null_in_their_column(value: str, kind: pa.DataType, tmp_path: Path) -> None:
    for number, folder in enumerate(["", f"a=1/k={value}", "a=1"]):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": [number]}), tmp_path / folder / "x.parquet")
    table = zskip.index(tmp_path)
    assert table.schema.field("k").type == kind
    con = duckdb.connect()
    for where, expected in [("k IS NULL", [0, 2]), (f"k = '{value}'", [1]), ("a IS NULL", [0]), ("n < 9", [0, 1, 2])]:
        plan = table.plan(where)
        assert sorted(plan.to_arrow()["n"].to_pylist()) == expected
        assert sorted(plan.to_duckdb(con, ["n"]).fetchall()) == [(n,) for n in expected]
        assert plan.count() == len(expected)
    rows = table.to_arrow().sort_by("n")
    assert rows["k"].is_null().to_pylist() == [True, False, True]


def test_row_groups_of_one_file_below_hive_folders(tmp_path: Path) -> None:
    rows = pa.table({"day": [number // 5_000 for number in range(10_000)], "a": range(10_000)})
    table = zskip.write(rows, tmp_path / "t", by="a", files=2, row_group_rows=1_000, partition_by="day")
    plan = table.plan("day = 1 AND a % 1000 = 7 AND a < 7000")
    assert plan.files[0].row_groups is not None
    con = duckdb.connect()
    assert "file_row_number" in planned_scan(plan.scan, con, None).sql
    assert plan.to_duckdb(con).order("a").fetchall() == [(1, 5_007), (1, 6_007)]
    assert plan.to_arrow()["a"].to_pylist() == [5_007, 6_007]
    assert plan.count() == 2


def test_a_predicate_may_name_columns_that_do_not_matter_to_it(tmp_path: Path) -> None:
    """``b = NULL`` is never TRUE; where Arrow reads the rows, DuckDB must find the column all the same."""
    rows = pa.table({"a": [1, 2], "b": [3, 4], "wide": pa.array([Decimal(1), Decimal(2)], pa.decimal256(60, 0))})
    table = zskip.write(rows, tmp_path / "t", by="a")
    assert table.plan("b = NULL OR NOT a < 2").to_arrow().column("b").to_pylist() == [4]
    assert table.plan("b = NULL OR NOT a < 2").to_arrow(["a"]).column("a").to_pylist() == [2]


@pytest.mark.parametrize("name", ["filename", "file_row_number", "file_index"])
def test_columns_may_have_the_names_that_duckdb_gives_to_files(name: str, tmp_path: Path) -> None:
    """A partition's value stands in the file's path, and not in the column that is called so."""
    rows = pa.table({"a": range(6), name: ["x"] * 6, "day": ["0", "1", "2"] * 2})
    table = zskip.write(rows, tmp_path / "t", by="a", files=3, partition_by="day")
    assert sorted_rows(table.to_arrow()) == sorted_rows(rows)
    assert table.plan("day = '1' AND a > 2").to_arrow().to_pylist() == [{"a": 4, name: "x", "day": "1"}]
    assert counts(table.plan("a > 2").scan).tolist() == [1, 1, 1]
    with duckdb.connect() as con:
        found = sql(f"SELECT a, day FROM t WHERE day = '1' AND {name} = 'x' AND a > 2", con, tables={"t": table})
        assert found.fetchall() == [(4, "1")]


def test_long_rows_come_in_small_batches(tmp_path: Path) -> None:
    texts = [chr(97 + number % 26) * 1_000_000 for number in range(36)]
    texts = [text + str(number) for number, text in enumerate(texts)]
    rows = pa.table({"id": list(range(36)), "text": texts})
    table = zskip.write(rows, str(tmp_path / "t"), by=["id"], files=2, row_group_rows=3, compression="none")
    batches = list(table.plan("id % 4 <> 1").to_batches())
    assert sum(batch.num_rows for batch in batches) == 27
    assert max(batch.num_rows for batch in batches) <= 3


NULL_IN_FIELD = ["r.i IN (5, NULL)", "r.i NOT IN (7, NULL)", "r.i IN (NULL, NULL)", "r.i IN (5, 7, NULL) AND r.i < 6"]


def test_a_field_is_looked_for_in_a_list_with_null(tmp_path: Path) -> None:
    """DuckDB raised an internal error, and answered nothing any more in this process."""
    values = [{"i": -(2**31)}, {"i": 5}, None, {"i": None}, {"i": 6}]
    rows = pa.table({"r": pa.array(values, pa.struct([("i", pa.int32())])), "n": range(5)})
    table = zskip.write(rows, tmp_path / "t", by=["r.i"])
    for where in [*NULL_IN_FIELD, "r.i IN (-2147483648, NULL) OR r.i = 5", "n > 1 AND r.i IN (5, NULL)"]:
        with duckdb.connect() as con:
            (expected,) = con.execute(f"SELECT count(*) FROM rows WHERE {where}").fetchall()[0]
            assert table.plan(where).to_duckdb(con).count("*").fetchall() == [(expected,)]
        assert table.plan(where).count() == table.plan(where).to_arrow().num_rows == expected
    assert table.delete(NULL_IN_FIELD[0]).rows == 1


def test_an_internal_error_of_duckdb_ends_no_other_plan(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"n": range(100)}), tmp_path / "t", by=["n"])
    values = pa.array([{"i": -(2**31)}, {"i": 5}, None], pa.struct([("i", pa.int32())]))
    nested = zskip.write(pa.table({"r": values}), tmp_path / "nested", by=["r.i"])
    (path,) = nested.plan().paths
    broken = arrow.connection(table.plan("n > 3").scan)
    schema = {"key": ["r"], "value": [{"name": "r", "type": 'STRUCT("i" INTEGER)', "default_value": None}]}
    with contextlib.suppress(duckdb.Error):
        # Not every release of DuckDB fails here.
        query = "SELECT count(*) FROM read_parquet($f, schema = $s) WHERE r.i IN (5, NULL)"
        broken.execute(query, {"f": [path], "s": schema}).fetchall()
    assert table.plan("n % 7 = 3").count() == 14
    assert table.plan("n % 7 = 3").to_arrow().num_rows == 14


def test_what_is_no_context_of_datafusion_is_refused(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"x": [1, 2]}), tmp_path / "t", by=["x"], files=1)
    with pytest.raises(InvalidOption, match=r"not DuckDBPyConnection: .*SessionContext\(\)"):
        table.to_datafusion(duckdb.connect(), "t")  # type: ignore[arg-type]


def test_a_new_file_that_the_index_cannot_hold_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    table = zskip.index(tmp_path)
    pq.write_table(pa.table({"x": [2**40]}), tmp_path / "b.parquet")
    for read in (Plan.to_arrow, Plan.to_pandas, Plan.count):
        with pytest.raises(SchemaMismatch, match=r'"x" is int64 in .*b\.parquet, and int32 in the index.*refresh\(\)'):
            read(table.plan("x > 0"))
    table.refresh()
    assert zskip.open(tmp_path).plan("x > 1").count() == 1


def test_an_error_in_a_late_row_is_that_of_duckdb(tmp_path: Path) -> None:
    with duckdb.connect() as con:
        rows = "SELECT i, CASE WHEN i < 400_000 THEN '1' ELSE 'one' END AS s FROM range(400_001) r(i)"
        con.execute(f"COPY ({rows}) TO '{tmp_path}/0.parquet' (FORMAT parquet)")
    zskip.index(tmp_path)
    plan = zskip.open(tmp_path).plan("s::INT > 0")
    for read in (plan.to_arrow, plan.to_pandas, plan.count, lambda: plan.to_duckdb().fetchall()):
        with pytest.raises(duckdb.ConversionException, match="Could not convert string 'one' to INT32") as raised:
            read()
        assert "schema" not in str(raised.value)
        assert not getattr(raised.value, "__notes__", None)


# --- settings of DuckDB: each has been looked at for whether it changes what a condition means ---


def test_every_setting_of_duckdb_has_been_looked_at() -> None:
    """See what a new one does: add it to `READ_BY_FUNCTIONS` if it changes a predicate's meaning, and to the file."""
    found = {name for (name,) in duckdb.sql("SELECT name FROM duckdb_settings()").fetchall()}
    known = set((ROOT / "fixtures" / "settings" / "duckdb.txt").read_text(encoding="utf-8").split())
    assert sorted(found - known) == []


def test_another_dialect_of_duckdb_is_refused(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": [1, 2, 3]}), tmp_path / "t", by=["a"], files=3)
    with duckdb.connect() as con:
        assert table.plan("a / 2 > 1").to_duckdb(con).fetchall() == [(3,)]
        con.execute("SET dialect_compatibility_mode = 'spark'")
        with pytest.raises(InvalidOption, match="dialect_compatibility_mode"):
            table.plan("a / 2 > 1").to_duckdb(con)


def test_another_calendar_is_refused_where_times_have_a_zone(tmp_path: Path) -> None:
    moments = [dt.datetime(2018, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=n) for n in range(90)]
    rows = {
        "ts": pa.array(moments, pa.timestamp("us", "UTC")),
        "l": pa.array([moment.replace(tzinfo=None) for moment in moments], pa.timestamp("us")),
    }
    table = zskip.write(pa.table(rows), tmp_path / "t", by=["ts"], files=9)
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'; SET Calendar = 'buddhist'")
        for where in ("ts >= '2018-02-01'", "ts::DATE >= '2018-02-01'", "ts = l"):
            with pytest.raises(InvalidOption, match="Calendar"):
                table.plan(where).to_duckdb(con)
        assert len(table.plan("l >= '2018-02-01'").to_duckdb(con).fetchall()) == 59


@pytest.mark.parametrize("kind", ["table", "folder"])
def test_a_file_in_whose_place_there_is_a_folder_is_gone(kind: str, tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": range(40)}), tmp_path / "t", by="a", files=4)
    if kind == "folder":
        shutil.rmtree(tmp_path / "t" / "_zskip")
        table = zskip.index(tmp_path / "t")
    plan = table.plan("a < 5")
    (path,) = plan.paths
    Path(path).unlink()
    Path(path).mkdir()
    for read in (plan.to_arrow, plan.to_duckdb, lambda: list(plan.to_batches())):
        with pytest.raises(TableNotFound, match="1 of the 1 file that were planned"):
            read()


def test_a_database_that_an_error_of_duckdb_has_ended_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"x": range(10)})
    found = plan_of(build_table(tmp_path / "t", rows, by="x"), "x < 3")
    before, quiet = arrow._database(os.getpid(), False), arrow._quiet
    failures = [duckdb.FatalException("database has been invalidated because of a previous fatal error")]

    def fails_once(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        if failures:
            raise failures.pop()
        return quiet(con)

    monkeypatch.setattr(arrow, "_quiet", fails_once)
    assert found.to_arrow() == rows.slice(0, 3)
    assert arrow._database(os.getpid(), False) is not before


@pytest.mark.parametrize("column", ["ts", "event.ts"])
def test_parts_of_nanoseconds_are_computed_of_each_row(tmp_path: Path, column: str) -> None:
    """DuckDB 2.0 decides these conditions by bounds in microseconds, and `delete` would remove every row."""
    times = pa.array([dt.datetime(2018 + number % 4, 3, 1) for number in range(40)], pa.timestamp("ns"))
    rows = pa.table({"x": range(40), "ts": times, "event": pa.StructArray.from_arrays([times], ["ts"])})
    table, con = zskip.write(rows, tmp_path / "t", by="x", files=4), duckdb.connect()
    for condition, expected in (
        (f"extract(year FROM {column}) = 2020", 10),
        (f"NOT (EXTRACT('isoyear' FROM {column}) = 2020)", 30),
        (f"date_part('decade', {column}) > 201 AND x < 20", 10),
        (f"datepart('year', {column}) > 2020 OR x = 5", 11),
    ):
        plan = table.plan(condition)
        assert plan.count() == plan.to_arrow().num_rows == len(plan.to_duckdb(con).fetchall()) == expected, condition
        assert table.delete(condition, dry_run=True).rows == expected, condition


@pytest.mark.parametrize(
    "condition",
    [
        "date_trunc('hour', d) <> TIMESTAMP '2020-01-02'",
        "ns::TIME_NS <= '01:00:00'::TIME_NS",
        "extract(year FROM us::TIMESTAMP_NS) <> 2020",
        "TRY_CAST(late AS TIMESTAMP_NS) IS DISTINCT FROM NULL",
    ],
)
def test_a_delete_computes_its_condition_of_each_row(tmp_path: Path, condition: str) -> None:
    """DuckDB 2.0 decides these by what its optimizer derives, wrongly: every row would go."""
    rows = pa.table(
        {
            "d": pa.array([dt.date(2020, 1, day) for day in (1, 2, 3)]),
            "ns": pa.array([0, 7200 * 10**9, 3 * 86400 * 10**9 + 1], pa.timestamp("ns")),
            "us": pa.array([dt.datetime(year, 1, 1) for year in (2019, 2020, 2021)], pa.timestamp("us")),
            "late": pa.array([0, 253402300799 * 10**6, 10**15], pa.timestamp("us")),  # the last year is none of ns
        }
    )
    table = zskip.write(rows, tmp_path / "t", by="us", files=1)
    assert table.delete(condition, dry_run=True).rows == 2
    assert table.delete(condition).rows == 2
    assert table.to_arrow().equals(rows.slice(1, 1))
