"""Iceberg tables: random lives written by pyiceberg, deletes by position and by vector, and what is refused."""

from __future__ import annotations

import itertools
import json
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType
from pyroaring import BitMap

import zskip
from tests.table_formats.logs import require_same
from tests.table_formats.test_delta_lives import made, predicates
from zskip.cli.main import main
from zskip.errors import CorruptFile, TableNotFound, UnsupportedFormat
from zskip.storage import open_storage
from zskip.table_formats.iceberg import IcebergSource

NUMBERS = itertools.count()


STEPS = [
    "append", "append", "append", "delete", "merge", "overwrite",
    "grow", "widen", "rename", "again", "cluster", "restore", "position deletes",
]  # fmt: skip


def live(catalog: Catalog, steps: int, seed: int, partitioned: range, asked: int) -> None:
    """A table that is partitioned by ``id`` in some of its steps."""
    random_ = random.Random(seed)
    table = catalog.create_table("n.t", schema=made(random_, 1, 0).schema)
    grown, wide, name = 0, False, "text"
    for number in range(steps):
        if (number in partitioned) != bool(table.spec().fields):
            with table.update_spec() as update:
                update.add_identity("id") if number in partitioned else update.remove_field("id")
        step = random_.choice(STEPS)
        data = made(random_, random_.randrange(1, 20), 0)
        data = data.rename_columns([name if column == "text" else column for column in data.column_names])
        if step == "append":
            table.append(data)
        elif step == "delete":
            table.delete(f"id < {random_.randrange(30)}")
        elif step == "merge":
            keys = data.column("id").drop_null().unique().to_pylist()
            table.overwrite(data, overwrite_filter=In("id", keys))
        elif step == "cluster" and table.current_snapshot() is not None:
            zskip.cluster(table, by=["id", "price"], files=3)
            table = catalog.load_table("n.t")
        elif step == "restore" and len(older := ancestors(table)) > 1:
            table.manage_snapshots().rollback_to_snapshot(random_.choice(older[1:4])).commit()
        elif step == "position deletes" and not table.spec().fields and (files := current_files(table)):
            file = random_.choice(files)
            gone = random_.sample(range(file.record_count), min(2, file.record_count))
            path = delete_parquet(table, {file.file_path: sorted(gone)})
            commit_deletes(table, path, DataFileContent.POSITION_DELETES, FileFormat.PARQUET, len(gone))
        elif step == "overwrite":
            table.overwrite(data, overwrite_filter=f"id > {random_.randrange(60, 100)}")
        elif step == "grow":
            with table.update_schema() as update:
                update.add_column(f"more{grown}", LongType())
            grown += 1
        elif step == "widen" and not wide:
            with table.update_schema() as update:
                update.update_column("small", LongType())
            wide = True
        elif step == "rename":
            with table.update_schema() as update:
                update.rename_column(name, name := f"text{next(NUMBERS)}")
        elif step == "again" and grown:
            with table.update_schema() as update:
                update.delete_column(f"more{grown - 1}")
            with table.update_schema() as update:
                update.add_column(f"more{grown - 1}", StringType())
        require_same(zskip.open(table), table.scan().to_arrow(), predicates(random_, asked, name))


def current_files(table: Table) -> list[DataFile]:
    """The data files that were written by the table's newest way of partitioning."""
    return [task.file for task in table.scan().plan_files() if task.file.spec_id == table.spec().spec_id]


def ancestors(table: Table) -> list[int]:
    """The ids of the current snapshot and of those before it, the newest first."""
    found, at = [], table.current_snapshot()
    while at is not None:
        found.append(at.snapshot_id)
        at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)
    return found


@pytest.mark.parametrize("seed", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_a_short_life(catalog: Catalog, seed: int) -> None:
    live(catalog, 10, seed, range(0), 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "partitioned"), [(1, range(160)), (2, range(60, 110)), (3, range(0))], ids=["by id", "evolved", "plain"]
)
def test_a_long_life(catalog: Catalog, seed: int, partitioned: range) -> None:
    live(catalog, 160, seed, partitioned, 20)


# --- deletes, which pyiceberg reads and does not write ---


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _VectorManifest(_DeleteManifest):
    @property
    def version(self) -> Any:
        return 3

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(3)
        return AvroOutputFile(self._output_file, schema, "manifest_entry", schema, self._meta)


class _Deletes(_FastAppendFiles):
    delete_files: list[DataFile]
    replaces: bool

    def _existing_manifests(self) -> list[ManifestFile]:
        path = f"{self._transaction._table.location()}/metadata/deletes-{next(NUMBERS)}.avro"
        metadata = self._transaction.table_metadata
        kind = _VectorManifest if self.delete_files[0].file_format == FileFormat.PUFFIN else _DeleteManifest
        writer = kind(metadata.spec(), metadata.schema(), self._io.new_output(path), self._snapshot_id, "deflate")
        with writer:
            for file in self.delete_files:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file
                    )
                )
        older = super()._existing_manifests()
        kept = [one for one in older if not self.replaces or one.content == ManifestContent.DATA]
        return [*kept, writer.to_manifest_file()]


def commit_deletes(table: Table, path: str, content: DataFileContent, format: FileFormat, count: int) -> None:
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=format,
        partition=Record(),
        record_count=count,
        file_size_in_bytes=Path(path.removeprefix("file://")).stat().st_size,
        equality_ids=[1] if content == DataFileContent.EQUALITY_DELETES else None,
    )
    commit_delete_files(table, [file])


def commit_delete_files(table: Table, files: list[DataFile], replaces: bool = False) -> None:
    """``replaces``: in place of all earlier deletes."""
    for file in files:
        file.spec_id = table.spec().spec_id
    with table.transaction() as transaction:
        producer: Any = _Deletes(Operation.APPEND, transaction, table.io)
        producer.delete_files, producer.replaces = files, replaces
        producer.commit()


def delete_parquet(table: Table, deleted: dict[str, list[int]]) -> str:
    path = f"{table.location()}/data/deletes-{next(NUMBERS)}.parquet"
    pairs = [(file, row) for file, numbers in sorted(deleted.items()) for row in numbers]
    columns = {
        "file_path": pa.array([file for file, _ in pairs], pa.string()),
        "pos": pa.array([row for _, row in pairs], pa.int64()),
    }
    pq.write_table(pa.table(columns), path.removeprefix("file://"))
    return path


def puffin(table: Table, vectors: dict[str, list[int]]) -> list[DataFile]:
    """A Puffin file with a deletion vector for each data file, after the format's specification, and its entries."""
    address = f"{table.location()}/data/vector-{next(NUMBERS)}.puffin"
    data, blobs, places = b"PFA1", [], []
    for file, deleted in vectors.items():
        bitmap = struct.pack("<i", 1681511377) + struct.pack("<qi", 1, 0) + BitMap(deleted).serialize()
        blob = struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [2147483645],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(data),
                "length": len(blob),
                "properties": {"referenced-data-file": file, "cardinality": str(len(deleted))},
            }
        )
        places.append((file, len(data), len(blob), len(deleted)))
        data += blob
    footer = json.dumps({"blobs": blobs}).encode()
    data += b"PFA1" + footer + struct.pack("<i", len(footer)) + b"\0\0\0\0" + b"PFA1"
    Path(address.removeprefix("file://")).write_bytes(data)
    return [
        DataFile.from_args(
            _table_format_version=3,
            content=DataFileContent.POSITION_DELETES,
            file_path=address,
            file_format=FileFormat.PUFFIN,
            partition=Record(),
            record_count=count,
            file_size_in_bytes=len(data),
            referenced_data_file=file,
            content_offset=start,
            content_size_in_bytes=size,
        )
        for file, start, size, count in places
    ]


def table_of_two_files(catalog: Catalog) -> tuple[Table, list[str]]:
    table = catalog.create_table("n.t", schema=pa.schema({"id": pa.int64(), "text": pa.string()}))
    for first in (0, 100):
        ids = list(range(first, first + 100))
        table.append(pa.table({"id": ids, "text": [None if n % 10 else "x" for n in ids]}))
    return table, sorted(task.file.file_path for task in table.scan().plan_files())


def test_rows_deleted_by_position_stay_deleted(catalog: Catalog) -> None:
    table, files = table_of_two_files(catalog)
    path = delete_parquet(table, {files[0]: [0, 5, 99], files[1]: [10]})
    commit_deletes(table, path, DataFileContent.POSITION_DELETES, FileFormat.PARQUET, 4)
    theirs = table.scan().to_arrow()
    assert len(theirs) == 196
    require_same(zskip.open(table), theirs, ["id < 7", "id >= 0", "text IS NOT NULL", "id = 199", "text IS NULL"])
    table.append(pa.table({"id": [500], "text": ["y"]}))
    require_same(zskip.open(table), table.scan().to_arrow(), ["id >= 100", "id = 500"])


@pytest.mark.parametrize(
    ("count", "length"),
    [(3, 10_000), pytest.param(20, 1 << 20, marks=pytest.mark.slow)],
    ids=["one small file a row", "long rows"],
)
def test_few_rows_of_many_bytes_are_read_under_their_new_name(catalog: Catalog, count: int, length: int) -> None:
    data = pa.table({"id": range(count), "text": [random.Random(row).randbytes(length) for row in range(count)]})
    table = catalog.create_table("n.t", schema=data.schema)
    for row in range(count) if count < 10 else [slice(None)]:
        table.append(data.slice(row, 1) if isinstance(row, int) else data)
    with table.update_schema() as update:
        update.rename_column("text", "bytes")
        for number in range(40):
            update.add_column(f"more{number}", LongType())
    require_same(zskip.open(table), table.scan().to_arrow(), ["id = 2", "id > 0 AND more7 IS NULL"])


def test_a_puffin_file_may_hold_vectors_that_were_replaced(catalog: Catalog) -> None:
    """It was refused as damaged."""
    table, files = table_of_two_files(catalog)
    older, kept = puffin(table, {files[0]: [3, 9], files[1]: [7]})
    commit_delete_files(table, [older, kept])
    held = zskip.open(table)
    require_same(held, table.scan().to_arrow(), ["id < 60", "id > 100", "text = 'x'"])
    first = pq.read_table(files[0].removeprefix("file://"))["id"][0].as_py()
    commit_delete_files(table, [*puffin(table, {files[0]: [3, 4, 5]}), kept], replaces=True)
    held.refresh()
    for ours in (held, zskip.open(table)):
        found = sorted(set(range(200)) - set(ours.to_arrow()["id"].to_pylist()))
        assert found == sorted([*(first + row for row in (3, 4, 5)), 100 - first + 7])
    commit_delete_files(table, [kept], replaces=True)
    held.refresh()
    assert held.count() == 199


DAMAGES: dict[str, Callable[[bytearray, DataFile], None]] = {
    "checksum": lambda data, _: data.__setitem__(-1, data[-1] ^ 1),
    "row number": lambda data, _: data.__setitem__(-6, data[-6] ^ 1),
    "magic": lambda data, _: data.__setitem__(4, 0),
    "size": lambda data, _: data.__setitem__(3, data[3] ^ 1),
    "cardinality": lambda _, entry: entry.__setitem__(4, 3),
    "offset": lambda _, entry: entry.__setitem__(18, 6),
    "negative offset": lambda _, entry: entry.__setitem__(18, -5),
    "offset beyond the file": lambda _, entry: entry.__setitem__(18, 10**6),
    "no offset": lambda _, entry: entry.__setitem__(18, None),
    "length": lambda _, entry: entry.__setitem__(19, entry[19] - 3),
    "huge length": lambda _, entry: entry.__setitem__(19, 1 << 40),
    "negative length": lambda _, entry: entry.__setitem__(19, -1),
}


def test_a_damaged_deletion_vector_is_named(catalog: Catalog) -> None:
    """Other rows than the deleted ones were left out."""
    table, files = table_of_two_files(catalog)
    for damage in DAMAGES.values():
        (entry,) = puffin(table, {files[0]: [1, 2, 3, 50]})
        place = Path(entry.file_path.removeprefix("file://"))
        whole, start, size = place.read_bytes(), entry[18], entry[19]
        blob = bytearray(whole[start : start + size])
        damage(blob, entry)
        place.write_bytes(whole[:start] + blob + whole[start + size :])
        commit_delete_files(table, [entry], replaces=True)
        for address in (table, table.metadata_location.removeprefix("file://")):
            with pytest.raises(CorruptFile, match=rf"{place.name}.*Restore it"):
                zskip.open(address)


def test_two_deletion_vectors_of_one_file_are_refused(catalog: Catalog) -> None:
    table, files = table_of_two_files(catalog)
    commit_delete_files(table, [*puffin(table, {files[0]: [1]}), *puffin(table, {files[0]: [2]})])
    with pytest.raises(CorruptFile, match="two deletion vectors"):
        zskip.open(table)


def test_equality_deletes_are_refused_by_name(catalog: Catalog) -> None:
    table, _ = table_of_two_files(catalog)
    path = delete_parquet(table, {"x": [1]})
    commit_deletes(table, path, DataFileContent.EQUALITY_DELETES, FileFormat.PARQUET, 1)
    with pytest.raises(UnsupportedFormat, match="equality deletes"):
        zskip.open(table)


def test_files_without_field_ids_are_refused_by_name(catalog: Catalog, tmp_path: Path) -> None:
    table, _ = table_of_two_files(catalog)
    path = tmp_path / "n" / "t" / "data" / "foreign.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int64()), "text": ["z"]}), path)
    table.add_files([f"file://{path}"])
    with pytest.raises(UnsupportedFormat, match="field ids"):
        zskip.open(table)


def test_a_renamed_nested_field_is_refused_by_name(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", schema=pa.schema({"s": pa.struct({"x": pa.int64()})}))
    with table.update_schema() as update:
        update.rename_column("s.x", "y")
    with pytest.raises(UnsupportedFormat, match="renamed the nested field"):
        zskip.open(table)


SPECIAL_NAMES = ["user-agent", "x.y", "a b", "9x", "größe"]


@pytest.mark.parametrize("deep", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nested_names_are_those_of_the_table_whatever_the_files_have(catalog: Catalog, deep: bool) -> None:
    """Iceberg's writers replace some characters in files. Such fields were NULL, and `cluster` wrote them so."""
    fields = {name: place for place, name in enumerate(SPECIAL_NAMES, 2)}
    data = pa.table(
        {
            "id": range(40),
            "s": [{"a": n, **{name: n % most for name, most in fields.items()}} for n in range(40)],
            "l": [[fields]] * 40,
        }
    )
    table = catalog.create_table("n.t", schema=data.schema)
    for first in range(0, 40, 20):
        table.append(data.slice(first, 20))
    place = table.location().removeprefix("file://")
    if deep:
        zskip.attach(place, deep=True)

    def require_values() -> None:
        opened = zskip.open(place)
        assert opened.to_arrow().sort_by("id").to_pylist() == data.to_pylist()
        for name, most in fields.items():
            assert opened.plan(f's."{name}" = 1').count() == len(range(1, 40, most)), name
        some = " AND ".join(f's."{name}" = 1' for name in fields)
        assert zskip.sql(f"SELECT id FROM '{place}' WHERE {some}").fetchall() == [(1,)]

    require_values()
    source, state = IcebergSource.newest_in(open_storage(place)), dict(zskip.open(place)._index.snapshot.details)
    assert source is not None
    assert source.is_current(state)
    assert not source.is_current({**state, "form": 0}), "an index without the names"
    zskip.cluster(catalog.load_table("n.t"), by=["id"], files=3)
    require_values()
    assert catalog.load_table("n.t").scan().to_arrow().sort_by("id").to_pylist() == data.to_pylist()


@pytest.mark.parametrize("deep", [False, True])
def test_nested_names_of_a_writer_that_keeps_them_are_found_by_the_raw_name(catalog: Catalog, deep: bool) -> None:
    """A file under the table's field ids, whose writer replaced no special character, beside one whose writer did."""
    values = [dict.fromkeys(SPECIAL_NAMES, n) for n in range(40)]
    rows_ = pa.table({"s": [{**some, "l": [some]} if n % 5 else None for n, some in enumerate(values)]})
    table = catalog.create_table("n.t", rows_.schema)
    table.append(rows_.slice(0, 20))
    (first,) = current_files(table)
    raw = schema_to_pyarrow(table.schema())
    path = first.file_path.replace(".parquet", "-raw.parquet")
    pq.write_table(rows_.slice(20).cast(raw), path.removeprefix("file://"))
    table.add_files([path], check_duplicate_files=False)
    opened = zskip.open(table, deep=deep)
    found = [row["s"] for row in opened.to_arrow().to_pylist()]
    assert sorted(map(str, found)) == sorted(map(str, rows_["s"].to_pylist()))
    for name in SPECIAL_NAMES:
        assert opened.plan(f's."{name}" = 33').count() == 1
        assert opened.plan(f's."{name}" IS NULL').count() == 8


def test_the_history_has_the_snapshots(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    table, files = table_of_two_files(catalog)
    assert [(one.files, one.rows, one.operation) for one in zskip.open(table).history()] == [
        (2, 200, "append"),
        (1, 100, "append"),
    ]
    opened = zskip.open(table.location())
    path = delete_parquet(table, {files[0]: [0, 5]})
    commit_deletes(table, path, DataFileContent.POSITION_DELETES, FileFormat.PARQUET, 2)
    found = opened.history()  # the newest, as of a table of zskip
    theirs = table.refresh().snapshots()[::-1]
    assert [one.version for one in found] == [one.snapshot_id for one in theirs]
    assert [round(one.time.timestamp() * 1000) for one in found] == [one.timestamp_ms for one in theirs]
    assert found[1].details["added-records"] == "100"
    assert opened.history(1) == found[:1]
    assert [one.details.get("refs") for one in found] == ["main", None, None]
    table.manage_snapshots().create_branch(theirs[1].snapshot_id, "audit").commit()
    assert [one.details.get("refs") for one in zskip.open(table).history()] == ["main", "audit", None]
    assert main(["history", table.location().removeprefix("file://")]) == 0
    printed = capsys.readouterr().out
    assert all(str(one.version) in printed for one in found)
    assert "added records" in " ".join(printed.split())
    totals = {"total-data-files": "2", "total-records": "200", "total-files-size": "9", "total-delete-files": "1"}
    summary = Summary(Operation.DELETE, **totals)
    table.metadata.snapshots[-1] = table.metadata.snapshots[-1].model_copy(update={"summary": summary})
    newest = zskip.open(table, version=theirs[0].snapshot_id).history()[0]
    assert (newest.operation, newest.files, newest.rows, newest.bytes) == ("delete", 2, None, None)
    assert [one.snapshot_id for one in table.snapshots()] == [one.version for one in found[::-1]]  # as they were


def test_snapshots_and_tags_are_versions_and_a_tag_of_digits_is_no_snapshot(catalog: Catalog) -> None:
    table, _ = table_of_two_files(catalog)
    first, second = (each.snapshot_id for each in table.history())
    tags = table.manage_snapshots().create_tag(first, "before").create_tag(second, str(first))
    tags.create_tag(second, "7").commit()
    assert zskip.open(table, version="before").plan().count() == 100
    assert zskip.open(table).version == second
    assert zskip.open(table, version=str(first)).plan().count() == 200
    assert zskip.open(table, version=first).plan().count() == 100
    assert zskip.open(table, version="7").plan().count() == 200
    for opened in (table, table.metadata_location):
        with pytest.raises(TableNotFound, match="7"):
            zskip.open(opened, version=7)
    assert zskip.open(table.metadata_location, version=first).plan().count() == 100


@pytest.mark.parametrize(
    ("added", "named"),
    [
        ({"name": "q", "type": "binary", "initial-default": "6162"}, "q"),
        ({"name": "q", "type": "fixed[2]", "initial-default": "00ff"}, "q"),
        (
            {
                "name": "s",
                "type": {
                    "type": "struct",
                    "fields": [{"id": 10, "name": "z", "required": False, "type": "int", "initial-default": 4}],
                },
            },
            "z",
        ),
    ],
    ids=["binary", "fixed", "nested"],
)
def test_defaults_that_are_not_read_are_refused(
    catalog: Catalog, tmp_path: Path, added: dict[str, Any], named: str
) -> None:
    table, _ = table_of_two_files(catalog)
    place = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    schema = {**metadata["schemas"][0], "schema-id": 1}
    schema["fields"] = [*schema["fields"], {"id": 9, "required": False, **added}]
    metadata |= {"format-version": 3, "next-row-id": 0, "current-schema-id": 1, "last-column-id": 10}
    metadata["schemas"].append(schema)
    later = place.with_name("00009-later.metadata.json")
    later.write_text(json.dumps(metadata))
    with pytest.raises(UnsupportedFormat, match=f'default for "{named}"'):
        zskip.open(later)


def test_a_snapshot_has_the_columns_that_it_had(catalog: Catalog) -> None:
    rows = pa.table({"rid": pa.array(range(40), pa.int64()), "a": pa.array(range(40), pa.int64())})
    table = catalog.create_table("n.then", schema=rows.schema)
    table.append(rows)
    then = table.current_snapshot()
    assert then is not None
    with table.update_schema() as change:
        change.delete_column("a")
    with table.update_schema() as change:
        change.add_column("a", StringType())
    opened = zskip.open(table, version=then.snapshot_id)
    assert opened.plan("a = 7").to_arrow()["rid"].to_pylist() == [7]
    assert opened.plan("a = 7").count() == 1
    assert zskip.open(table).plan("a IS NULL").count() == 40


@pytest.mark.parametrize("attached", [False, True])
def test_a_table_whose_old_snapshots_have_expired_is_read_anew(catalog: Catalog, attached: bool) -> None:
    """Its maintenance removes the manifests that the index was made from; the table was not found from then on."""
    table = catalog.create_table("n.t", pa.schema([("a", pa.int64())]))
    for number in range(3):
        table.append(pa.table({"a": [number]}))
    assert (zskip.attach if attached else zskip.open)(table).count() == 3
    before = {manifest.manifest_path for manifest in table.current_snapshot().manifests(table.io)}  # type: ignore[union-attr]
    table.delete("a = 1")
    table.overwrite(pa.table({"a": [5, 6]}))
    now = {manifest.manifest_path for manifest in table.current_snapshot().manifests(table.io)}  # type: ignore[union-attr]
    old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != table.current_snapshot().snapshot_id]  # type: ignore[union-attr]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert before - now
    for path in before - now:
        table.io.delete(path)
    assert sorted(zskip.open(catalog.load_table("n.t")).to_arrow()["a"].to_pylist()) == [5, 6]


def test_statements_after_the_columns_changed(catalog: Catalog) -> None:
    """The files of older columns have names of the table, too, and DuckDB alone would read by these."""
    rows = pa.table({"a": range(10), "b": range(100, 110), "n": range(10)})
    table = catalog.create_table("n.t", schema=rows.schema)
    table.append(rows)
    changes: list[Callable[[Any], object]] = [
        lambda columns: columns.rename_column("a", "b").rename_column("b", "a"),
        lambda columns: columns.move_first("b"),
        lambda columns: columns.delete_column("a").add_column("a", LongType()),
        lambda columns: columns.delete_column("b"),
    ]
    for change in changes:
        with table.update_schema(allow_incompatible_changes=True) as columns:
            change(columns)
        whole, tables = table.scan().to_arrow(), {"t": zskip.open(catalog.load_table("n.t"))}
        for statement in ("SELECT * FROM t", "SELECT a, n FROM t", "SELECT sum(a), count(*) FROM t WHERE a >= 5"):
            found, oracle = zskip.sql(statement, duckdb.connect(), tables=tables), duckdb.connect()
            oracle.register("t", whole)
            assert sorted(map(str, found.fetchall())) == sorted(map(str, oracle.sql(statement).fetchall()))
            assert found.columns == oracle.sql(statement).columns
        table.append(whole)
