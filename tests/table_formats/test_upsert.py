"""Rows of Delta and Iceberg tables replaced by key, beside the formats' own writers: each key has its newest row."""

from __future__ import annotations

import functools
import math
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.io.pyarrow import parquet_files_to_data_files, schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, UUIDType

import zskip
from tests import one_in
from tests.table_formats.logs import Delta, Iceberg, new_catalog
from zskip.errors import (
    CommitConflict,
    InvalidOption,
    MissingDependency,
    SchemaError,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFormat,
)
from zskip.parquet import footers
from zskip.storage.local import LocalStorage
from zskip.table_formats import delta, iceberg


def rows_of(ids: list[int], stamp: int) -> pa.Table:
    """Rows whose other columns tell which change wrote them."""
    day = pa.array([None if one % 5 == 0 else f"d {one % 3}" for one in ids], pa.string())
    return pa.table({"id": ids, "day": day, "stamp": [stamp] * len(ids), "x": [one / 7 for one in ids]})


def by_id(rows: pa.Table) -> dict[int, int]:
    found = dict(zip(rows["id"].to_pylist(), rows["stamp"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "a key has one row"
    wanted = rows_of(list(found), 0)
    assert dict(zip(found, wanted["day"].to_pylist(), strict=True)) == dict(
        zip(rows["id"].to_pylist(), rows["day"].to_pylist(), strict=True)
    )
    return found


FIRST = rows_of([*range(40)], 1), rows_of([*range(40, 80)], 1)
FORMATS: dict[str, Callable[[Path], Any]] = {
    "delta in partitions": lambda folder: Delta(folder, *FIRST, partition_by=["day"]),
    "delta": lambda folder: Delta(folder, *FIRST),
    "iceberg": lambda folder: Iceberg(folder, *FIRST),
    "iceberg 1": lambda folder: Iceberg(folder, *FIRST, version=1),
}


@pytest.mark.parametrize("name", one_in(2, FORMATS))
def test_a_history_beside_the_formats_own_writer(name: str, tmp_path: Path) -> None:
    table, dice = FORMATS[name](tmp_path), random.Random(3)
    known = dict.fromkeys(range(80), 1)
    for stamp, verb in enumerate(["upsert", "delete", "cluster", "upsert", "append", "upsert", "cluster"], 2):
        if verb == "upsert":
            ids = [*dice.sample(sorted(known), 3), 100 * stamp]
            done = table.open().upsert(rows_of(ids, stamp), on="id")
            assert (done.inserted, done.updated) == (1, 3)
            known |= dict.fromkeys(ids, stamp)
        elif verb == "append":
            table.append(rows_of([1000, 1001], stamp))
            known |= dict.fromkeys([1000, 1001], stamp)
        elif verb == "delete":
            table.delete("id = 7")
            known.pop(7, None)
        else:
            table.cluster(by="id", rows_per_file=20)
        assert by_id(table.content()) == known
        assert by_id(table.open().to_arrow()) == known


@pytest.mark.parametrize("name", ["delta", "iceberg 1"])
def test_only_files_with_a_key_are_rewritten(name: str, tmp_path: Path) -> None:
    table = FORMATS[name](tmp_path)
    table.cluster(by="id", rows_per_file=20)
    opened = table.open()
    before = set(opened.plan().scan.relative_paths)
    done = opened.upsert(rows_of([3], 2), on="id")
    after = set(opened.plan().scan.relative_paths)
    assert done.files == len(before - after) == len(after - before) == 1
    assert opened.plan("id = 3").to_arrow()["stamp"].to_pylist() == [2]
    # Of a file that holds nothing else, nothing is left: pyiceberg divided by its rows.
    for stamp in (2, 3):
        table.append(rows_of([500], stamp))
    assert table.open().upsert(rows_of([500], 4), on="id").updated == 1
    assert by_id(table.content())[500] == 4
    assert table.open().count() == 81


# What another writer does while an old and a new key are upserted, and how many are inserted and updated then.
MEANWHILE: list[tuple[Callable[[Any, int, int], object], tuple[int, int]]] = [
    (lambda table, old, new: table.append(rows_of([new, new + 1], 7)), (0, 2)),
    (lambda table, old, new: table.delete(f"id = {old}"), (2, 0)),
    (lambda table, old, new: table.delete(f"id = {old + 1}"), (1, 1)),
    (lambda table, old, new: table.append(rows_of([new + 5], 7)), (1, 1)),
    (lambda table, old, new: table.cluster(by="id", rows_per_file=20), (1, 1)),
]


@pytest.mark.parametrize(("name", "room", "step"), [("delta", delta, "_stats"), ("iceberg", iceberg, "_live_entries")])
def test_what_another_writer_does_meanwhile_is_seen(
    name: str, room: Any, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, function, events = FORMATS[name](tmp_path), getattr(room, step), list[Callable[[], object]]()

    def stalled(*given: Any) -> Any:
        found = function(*given)
        if events:
            events.pop()()
        return found

    monkeypatch.setattr(room, step, stalled)
    known = dict.fromkeys(range(80), 1)
    for number, (event, counts) in enumerate(MEANWHILE):
        opened, old, new = table.open(), 10 * number + 3, 500 + 10 * number
        events.append(functools.partial(event, table, old, new))
        done = opened.upsert(rows_of([old, new], 9), on="id")
        assert (done.inserted, done.updated) == counts
        known |= {old: 9, new: 9}
        if number == 0:
            known[new + 1] = 7
        elif number == 2:
            del known[old + 1]
        elif number == 3:
            known[new + 5] = 7
        assert by_id(table.content()) == by_id(opened.to_arrow()) == known


def test_a_batch_is_made_once(tmp_path: Path) -> None:
    table = Delta(tmp_path, *FIRST)
    for expected in (2, 0):
        assert table.open().upsert(rows_of([1, 2], 5), on="id", batch=("nightly", 7)).updated == expected
    assert DeltaTable(table.path).transaction_version("nightly") == 7
    with pytest.raises(InvalidOption, match="batch="):
        Iceberg(tmp_path, *FIRST).open().upsert(rows_of([1], 5), on="id", batch=("nightly", 7))


REFUSED: dict[str, Callable[[DeltaTable], object]] = {
    "delta.appendOnly": lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}),
    "delta.enableChangeDataFeed": lambda table: table.alter.set_table_properties(
        {"delta.enableChangeDataFeed": "true"}
    ),
    "delta.constraints.few": lambda table: table.alter.add_constraint({"few": "id < 1000"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_asks_more_of_a_writer_is_left_alone(name: str, tmp_path: Path) -> None:
    table = Delta(tmp_path, *FIRST)
    REFUSED[name](DeltaTable(table.path))
    before = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(UnsupportedFormat, match=name):
        table.open().upsert(rows_of([1, 5000], 2), on="id")
    assert sorted(tmp_path.rglob("*.parquet")) == before


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_columns_stay_as_they_are(name: str, tmp_path: Path) -> None:
    table = FORMATS[name](tmp_path)
    for rows in (
        rows_of([1], 2).append_column("more", pa.array([1])),
        rows_of([1], 2).set_column(2, "stamp", pa.array([0.5])),
        rows_of([1], 2).drop_columns("x"),
    ):
        with pytest.raises(SchemaMismatch, match=r"more|stamp|x"):
            table.open().upsert(rows, on="id")
    assert by_id(table.content()) == dict.fromkeys(range(80), 1)


def test_bytes_of_a_fixed_width_as_the_formats_library_returns_them(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([b"ab", b"cd"], pa.binary(2)), "f": pa.array([b"xyz", None], pa.binary(3))})
    table = Iceberg(tmp_path, rows)
    done = table.open().upsert(table.content(), on="id")
    assert (done.inserted, done.updated) == (0, 2)
    before = table.content()
    assert before.sort_by("id").to_pylist() == rows.to_pylist()
    for wrong in (pa.array([b"12"], pa.binary(2)), pa.array([b"1234"], pa.binary(4)), pa.array([b"12"])):
        with pytest.raises(SchemaMismatch, match=r'A value of the column "f" does not fit fixed_size_binary\[3\]'):
            table.open().upsert(pa.table({"id": [b"cd"], "f": wrong}), on="id")
    assert table.content().equals(before)


REQUIRED = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string(), False)])


@pytest.mark.parametrize("made", [Delta, Iceberg])
def test_a_column_that_allows_no_null_takes_rows_without_one(made: Any, tmp_path: Path) -> None:
    """Arrow calls every column of a table made from lists nullable."""
    table = made(tmp_path, pa.table({"id": [1, 2], "name": ["a", "b"]}, schema=REQUIRED))
    with pytest.raises(SchemaMismatch, match='"name" allows no NULL'):
        table.open().upsert(pa.table({"id": [2, 3], "name": ["new", None]}), on="id")
    done = table.open().upsert(pa.table({"id": [2, 3], "name": ["new", "c"]}), on="id")
    assert (done.inserted, done.updated) == (1, 1)
    rows = table.content()
    assert not any(field.nullable for field in table.open().schema)
    assert dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)) == {1: "a", 2: "new", 3: "c"}


def test_old_dates_of_the_legacy_calendar_are_left_to_spark(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "day": [date(1560, 2, 20), date(2026, 1, 1)]})
    write_deltalake(tmp_path / "t", rows)
    (file,) = (tmp_path / "t").glob("*.parquet")
    log = tmp_path / "t/_delta_log/00000000000000000000.json"
    size = file.stat().st_size
    pq.write_table(rows.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}), file)
    log.write_text(log.read_text().replace(f'"size":{size}', f'"size":{file.stat().st_size}'))
    for change in (
        lambda: zskip.open(tmp_path / "t").upsert(rows.slice(1), on="id"),
        lambda: zskip.cluster(tmp_path / "t", by="id"),
    ):
        with pytest.raises(SchemaError, match="legacy calendar"):
            change()
    assert zskip.open(tmp_path / "t").upsert(rows.slice(1).set_column(0, "id", pa.array([3])), on="id").inserted == 1


@pytest.mark.parametrize(
    ("days", "is_read"),
    [
        ([date(1560, 2, 20), date(2026, 1, 1)], True),
        ([date(1900, 12, 31), None], True),
        ([date(1901, 1, 1), date(2026, 1, 1)], False),
        ([datetime(1901, 1, 1), datetime(2026, 1, 1)], False),
        ([datetime(1900, 12, 31, 23, 59, 59, 999_999), None], True),
        ([None, None], False),
        ([[date(2026, 1, 1)], []], True),
        ([{"a": date(2026, 1, 1)}, {"a": None}], False),
        ([{"a": date(1560, 2, 20)}, {"a": None}], True),
    ],
)
def test_footers_are_read_only_of_files_that_may_have_old_dates(
    days: list[object], is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()
    monkeypatch.setattr(footers, "files_of", lambda storage, listed, _: read.extend(listed.path.to_pylist()) or [])
    type = pa.date32() if days == [None, None] else None
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2], "day": pa.array(days, type)}))
    zskip.cluster(tmp_path / "t", by="id")
    assert bool(read) is is_read


ITEM = pa.struct([("x", pa.int64())])
NULL_LISTS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "a list": (pa.list_(ITEM), [[{"x": 1}], None]),
    "in a list": (pa.list_(pa.list_(ITEM)), [[[]], [None]]),
    "in a struct": (pa.struct([("in", pa.list_(ITEM))]), [{"in": []}, {"in": None}]),
    "in a map": (pa.map_(pa.string(), pa.list_(ITEM)), [[("a", [])], [("b", None)]]),
}


@pytest.mark.parametrize("name", NULL_LISTS)
def test_a_null_list_of_structs_does_not_become_empty(name: str, tmp_path: Path) -> None:
    """pyiceberg would write it so, in rows of the batch and in those beside them. The file is another writer's."""
    type, values = NULL_LISTS[name]
    rows = pa.table({"id": [1, 2], "items": pa.array(values, type)})
    catalog = new_catalog(tmp_path)
    table = catalog.create_table("n.t", rows.schema)
    file = tmp_path / "n/t/data/a.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(rows.cast(schema_to_pyarrow(table.schema())), file)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        (entry,) = parquet_files_to_data_files(table.io, table.metadata, iter([str(file)]))
        snapshot.append_data_file(entry)
    for batch in (rows.slice(0, 1), rows.slice(1)):
        with pytest.raises(UnsupportedFormat, match='"items"'):
            zskip.open(catalog.load_table("n.t")).upsert(batch, on="id")
    with pytest.raises(UnsupportedFormat, match='"items"'):
        zskip.cluster(catalog.load_table("n.t"), by="id")
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_an_upsert_that_others_always_overtake_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Delta(tmp_path, *FIRST)
    stats = delta._stats
    numbers = iter(range(5000, 6000))

    def overtaken(*given: Any) -> Any:
        table.append(rows_of([next(numbers)], 3))
        return stats(*given)

    monkeypatch.setattr(delta, "_stats", overtaken)
    monkeypatch.setattr(delta, "COMMIT_ATTEMPTS", 3)
    monkeypatch.setattr("zskip.writer.upsert._ATTEMPTS", 2)
    with pytest.raises(CommitConflict, match="other writers came first"):
        table.open().upsert(rows_of([1], 2), on="id")
    assert len(list(table.path.glob("*.parquet"))) == len(DeltaTable(table.path).file_uris()) == 2 + 2 * 3


@pytest.mark.parametrize(("partition_by", "limit"), one_in(2, [None, ["day"]], [None, "200 kB"]))
def test_an_upsert_begins_again_where_others_compacted_and_vacuumed(
    partition_by: list[str] | None, limit: str | None, tmp_path: Path
) -> None:
    """It said that planned files are gone."""
    made = Delta(tmp_path, *FIRST, partition_by=partition_by)
    new = rows_of([*range(70, 2000)], 2)

    def rows() -> Iterator[pa.RecordBatch]:
        yield from new.slice(0, 5).to_batches()
        DeltaTable(made.path).optimize.compact()
        DeltaTable(made.path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        yield from new.slice(5).to_batches(max_chunksize=100)

    given = pa.RecordBatchReader.from_batches(new.schema, rows())
    done = made.open().upsert(given, on="id", **({} if limit is None else {"memory_limit": limit}))
    assert (done.inserted, done.updated) == (1920, 10)
    assert by_id(made.content()) == {**dict.fromkeys(range(70), 1), **dict.fromkeys(range(70, 2000), 2)}


PARTITIONS: dict[str, tuple[Any, Any, list[Any], type[Exception], str]] = {
    "without pyiceberg-core": (
        LongType(),
        BucketTransform(4),
        [1, 2, 3],
        MissingDependency,
        r"bucket\[4\]\(k\).*pip install",
    ),
    "a UUID": (UUIDType(), IdentityTransform(), [bytes(16)] * 3, UnsupportedFormat, r"identity\(k\)"),
    "NaN": (DoubleType(), IdentityTransform(), [1.0, 2.0, math.nan], UnsupportedFormat, '"k".*lose or double'),
    "zeros": (DoubleType(), IdentityTransform(), [0.0, -0.0, 1.0], UnsupportedFormat, '"k".*lose or double'),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_partitions_that_pyiceberg_cannot_write_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raised raw errors for some of them, and doubled the rows of 0.0 and -0.0 in one batch."""
    type, transform, keys, error, message = PARTITIONS[name]
    monkeypatch.setitem(sys.modules, "pyiceberg_core", None)  # an import of it fails
    schema = IcebergSchema(NestedField(1, "id", LongType(), required=False), NestedField(2, "k", type, required=False))
    spec = PartitionSpec(PartitionField(2, 1000, transform, "part"))
    catalog = new_catalog(tmp_path)
    rows = pa.table({"id": [1, 2, 3], "k": keys}).cast(schema_to_pyarrow(schema, include_field_ids=False))
    table = catalog.create_table("n.t", schema, partition_spec=spec)
    with pytest.raises(error, match=message):
        zskip.open(table).upsert(rows, on="id")
    assert zskip.open(catalog.load_table("n.t")).count() == 0
    assert not list(tmp_path.rglob("*.parquet"))


def test_an_iceberg_table_keeps_its_partitions_by_binary(tmp_path: Path) -> None:
    rows = pa.table({"id": [*range(20)], "k": [None if one % 5 == 0 else bytes([one % 3, 255]) for one in range(20)]})
    catalog = new_catalog(tmp_path)
    table = catalog.create_table("n.t", rows.schema)
    with table.update_spec() as update:
        update.add_identity("k")
    table.append(rows)
    zskip.cluster(catalog.load_table("n.t"), by="id")
    done = zskip.open(catalog.load_table("n.t")).upsert(pa.table({"id": [19, 20], "k": [b"\xff", b"\xfe"]}), on="id")
    assert (done.updated, done.inserted) == (1, 1)
    found = zskip.open(catalog.load_table("n.t"))
    assert sorted(found.plan("k = '\\x01\\xff'::BLOB").to_arrow()["id"].to_pylist()) == [1, 4, 7, 13, 16]
    assert sorted(catalog.load_table("n.t").scan().to_arrow()["id"].to_pylist()) == [*range(21)]
    assert {file.file.partition[0] for file in catalog.load_table("n.t").scan().plan_files()} >= {
        b"\xff",
        b"\xfe",
        None,
    }


@pytest.mark.parametrize("on", ["id", "k"])
def test_partitions_by_binary_are_refused_before_a_value_becomes_the_name_of_a_folder(on: str, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": [1], "k": [b"a"]}), partition_by=["k"])
    with pytest.raises(UnsupportedFormat, match='"k", a binary'):
        zskip.open(tmp_path / "t").upsert(pa.table({"id": [1], "k": [b"\xff"]}), on=on)


def test_a_conflict_says_that_only_the_columns_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Delta(tmp_path, *FIRST)
    stats = delta._stats

    def overtaken(*given: Any) -> Any:
        if "more" not in DeltaTable(table.path).schema().to_json():
            DeltaTable(table.path).alter.add_columns([Field("more", PrimitiveType("long"))])
        return stats(*given)

    monkeypatch.setattr(delta, "_stats", overtaken)
    with pytest.raises(CommitConflict, match="Another writer changed the columns of the table"):
        zskip.cluster(table.path, by="id")


@pytest.mark.parametrize("verb", ["cluster", "upsert"])
def test_a_table_that_is_removed_meanwhile_stays_removed(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Delta(tmp_path, *FIRST)
    opened, open_writer = table.open(), LocalStorage.open_writer

    def removed(storage: LocalStorage, path: str) -> Any:
        if path.endswith(".parquet"):
            shutil.rmtree(table.path, ignore_errors=True)
        return open_writer(storage, path)

    monkeypatch.setattr(LocalStorage, "open_writer", removed)
    with pytest.raises((CommitConflict, TableNotFound)):
        opened.upsert(rows_of([1], 2), on="id") if verb == "upsert" else zskip.cluster(table.path, by="id")
    assert not table.path.exists()
