"""Folders of Delta, Iceberg and Hudi are refused: by name alone their files bring deleted rows back to life."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake

import zskip
from tests import one_in
from zskip.errors import ForeignTable, InvalidOption
from zskip.storage import Storage, open_storage
from zskip.storage.local import LocalStorage

ROWS = pa.table({"id": [1, 2, 3]})
LOGS = {
    "Delta table": "_delta_log/00000000000000000000.json",
    "Iceberg table": "metadata/00000-1b.metadata.json",
    "Hudi table": ".hoodie/hoodie.properties",
    "Spark streaming query": "_spark_metadata/0",
}


@pytest.fixture(params=["disk", "memory"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "lake" if request.param == "disk" else f"memory://{tmp_path.name}/lake")


def put(storage: Storage, *paths: str) -> None:
    file = io.BytesIO()
    pq.write_table(ROWS, file)
    for path in paths:
        storage.put(path, file.getvalue() if path.endswith(".parquet") else b"{}")


def test_tables_of_other_formats_are_neither_indexed_nor_written_into(lake: Storage) -> None:
    for kind, inner in product(LOGS, ["", "day=1/", "data/a/b/"]):
        root = f"{kind} {len(inner)}"
        put(lake, f"{root}/t/{LOGS[kind]}", f"{root}/t/{inner}1.parquet")
        before = lake.list("").path
        for folder in ("", "t", f"t/{inner}".rstrip("/")):
            with pytest.raises(ForeignTable, match=rf"t is .*{kind}.*zskip\.(open|write)"):
                zskip.index(f"{lake.uri}/{root}/{folder}".rstrip("/"))
        for folder in ("t", "t/day=1"):
            with pytest.raises(ForeignTable, match=kind):
                zskip.write(ROWS, f"{lake.uri}/{root}/{folder}", by="id")
        assert lake.list("").path == before


@pytest.mark.parametrize("kind", LOGS)
def test_files_of_tables_of_other_formats_are_no_sources(kind: str, lake: Storage, tmp_path: Path) -> None:
    put(lake, f"t/{LOGS[kind]}", "t/day=1/1.parquet", "other/2.parquet")
    at = lake.uri
    sources: list[Any] = [
        at,
        f"{at}/t/day=1",
        f"{at}/t/day=1/1.parquet",
        f"{at}/t/*/*.parquet",
        f"{at}/**/*.parquet",
        [f"{at}/other/2.parquet", f"{at}/t/day=1/1.parquet"],
    ]
    for source in sources:
        with pytest.raises(ForeignTable, match=kind):
            zskip.write(source, tmp_path / "out", by="id")
    assert not (tmp_path / "out").exists()
    assert zskip.write(f"{at}/other", tmp_path / "out", by="id")._index.snapshot.totals.rows == 3


def test_an_indexed_folder_that_becomes_a_table_of_another_format_is_not_refreshed(lake: Storage) -> None:
    put(lake, "t/1.parquet")
    table = zskip.index(f"{lake.uri}/t")
    put(lake, f"t/{LOGS['Delta table']}", "t/2.parquet")
    with pytest.raises(ForeignTable, match="Delta table"):
        table.refresh()


@pytest.mark.parametrize(("kind", "folder"), one_in(2, LOGS, ["", "day=1/sub/"]))
def test_a_table_of_another_format_that_is_written_into_an_indexed_folder_is_noticed(
    kind: str, folder: str, lake: Storage
) -> None:
    put(lake, "0.parquet", "day=1/1.parquet")
    table = zskip.index(lake.uri)
    put(lake, f"other/{LOGS[kind]}", "day=2/1.parquet", "_zskip_like/a.parquet", ".hidden/b.parquet")
    assert (table.count(), table.plan("id = 1").count()) == (9, 3)  # a log without new files beside it
    put(lake, f"{folder}{LOGS[kind]}", f"{folder}new/2.parquet")
    for read in (table.to_arrow, table.count, table.refresh):
        with pytest.raises(ForeignTable, match=kind):
            read()


def test_a_log_without_new_files_beside_it_keeps_a_folder_from_being_laid_out(lake: Storage) -> None:
    """Files that the log does not name would be rows of the table for good."""
    put(lake, "day=1/1.parquet", "2.parquet")
    zskip.index(lake.uri)
    put(lake, f"day=1/{LOGS['Spark streaming query']}")
    for dry_run in (True, False):
        with pytest.raises(ForeignTable, match="day=1 is the output of a Spark streaming query"):
            zskip.cluster(lake.uri, by="id", dry_run=dry_run)
    assert zskip.open(lake.uri).version == 1


def test_a_folder_called_metadata_is_no_iceberg_table(lake: Storage) -> None:
    put(lake, "t/metadata/notes.json", "t/metadata/1.parquet", "t/2.parquet")
    assert zskip.index(f"{lake.uri}/t")._index.snapshot.totals.files == 2


def test_partitions_of_hudi_are_not_indexed(lake: Storage) -> None:
    put(lake, "t/day=1/.hoodie_partition_metadata", "t/day=1/1.parquet", "u/.hoodie_partition_metadata", "u/2.parquet")
    for folder in ("t", "t/day=1", "u"):
        with pytest.raises(ForeignTable, match="Hudi table"):
            zskip.index(f"{lake.uri}/{folder}")


@pytest.mark.parametrize("log", ["_delta_log", ".hoodie", "_spark_metadata"])
def test_a_log_without_entries_is_a_log(log: str, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "1.parquet")
    (tmp_path / log).mkdir()
    with pytest.raises(ForeignTable, match=r"Delta|Hudi|Spark"):
        zskip.index(tmp_path)
    with pytest.raises(ForeignTable, match=r"Delta|Hudi|Spark"):
        zskip.write(ROWS, tmp_path / "inside", by="id")


def test_links_into_a_table_of_another_format_are_followed(tmp_path: Path) -> None:
    """The folders above the link were looked at, and not those above its target."""
    partition = tmp_path / "t" / "day=1"
    partition.mkdir(parents=True)
    (tmp_path / "t" / "_delta_log").mkdir()
    pq.write_table(ROWS, partition / "1.parquet")
    (tmp_path / "link").symlink_to(partition)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "1.parquet").symlink_to(partition / "1.parquet")
    with pytest.raises(ForeignTable, match="Delta table"):
        zskip.index(tmp_path / "link")
    for source in ("link", "link/*.parquet", "plain", "plain/1.parquet"):
        with pytest.raises(ForeignTable, match="Delta table"):
            zskip.write(str(tmp_path / source), tmp_path / "out", by="id")


# --- files of zskip's own tables, named by a glob, a partition or a folder above, are refused like other formats' ---


WAYS: list[Callable[[Path], object]] = [
    lambda lake: zskip.index(lake),
    lambda lake: zskip.index(lake / "t" / "p=1"),
    lambda lake: zskip.write(str(lake), lake.parent / "new", by=["id"]),
    lambda lake: zskip.write(f"{lake}/t/*/*.parquet", lake.parent / "new", by=["id"]),
    lambda lake: zskip.write(str(lake / "t" / "p=1"), lake.parent / "new", by=["id"]),
]


@pytest.fixture
def tables_of_zskip(tmp_path: Path) -> Path:
    rows = pa.table({"id": range(100), "p": [number % 2 for number in range(100)]})
    table = zskip.write(rows, tmp_path / "lake" / "t", by=["id"], files=4, partition_by=["p"])
    table.delete("id < 51")
    return tmp_path / "lake"


def test_deleted_rows_do_not_come_back_by_the_names_of_files(tables_of_zskip: Path) -> None:
    for way in WAYS:
        with pytest.raises(ForeignTable, match="is a table of zskip"):
            way(tables_of_zskip)
    assert not (tables_of_zskip.parent / "new").exists()


def test_a_log_that_may_not_be_read_is_a_log(tables_of_zskip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner may keep the log for himself, and the files open."""

    def names(self: LocalStorage, folder: str, **options: Any) -> list[str]:
        if "_zskip" in folder and (Path(self.uri) / folder).exists():
            raise PermissionError(13, "Permission denied", folder)
        return found(self, folder, **options)

    found = LocalStorage.names
    monkeypatch.setattr(LocalStorage, "names", names)
    for way in WAYS:
        with pytest.raises(PermissionError):
            way(tables_of_zskip)


def test_a_refresh_refuses_a_table_that_was_written_into_the_folder(tmp_path: Path) -> None:
    rows = pa.table({"id": range(100)})
    pq.write_table(rows, tmp_path / "plain.parquet")
    indexed = zskip.index(tmp_path)
    zskip.write(rows, tmp_path / "_made" / "t", by=["id"], files=4).delete("id < 51")
    shutil.move(tmp_path / "_made" / "t", tmp_path / "t")
    for verb in (indexed.refresh, indexed.to_arrow, indexed.count, lambda: zskip.sql(f"FROM '{tmp_path}'")):
        with pytest.raises(ForeignTable, match="t is a table of zskip"):
            verb()


@pytest.mark.parametrize("place", ["t", "a/b/t", "day=1", "_hidden/t"])
def test_no_table_is_made_in_a_folder_that_is_indexed(place: str, lake: Storage) -> None:
    """It made the index unreadable; where `cluster` made it, a vacuum took its rows from the index."""
    put(lake, "plain.parquet", f"{place}/x.parquet")
    indexed = zskip.index(lake.uri)
    options: dict[str, Any] = {"mode": "append", "by": "id"}
    if place.startswith("_"):
        assert zskip.write(ROWS, f"{lake.uri}/{place}", **options).count() == 3
    else:
        for make in (lambda path: zskip.write(ROWS, path, **options), lambda path: zskip.cluster(path, by="id")):
            with pytest.raises(InvalidOption, match=f"{place} lies in .*lake, whose files are indexed"):
                make(f"{lake.uri}/{place}")
    assert indexed.refresh().dropped == 0
    assert indexed.count() == (3 if place.startswith("_") else 6)


def test_an_index_of_files_is_not_taken_for_that_of_a_log(tmp_path: Path) -> None:
    """attach raised KeyError."""
    pq.write_table(pa.table({"id": range(10)}), tmp_path / "a.parquet")
    zskip.index(tmp_path)
    convert_to_deltalake(tmp_path)
    with pytest.raises(ForeignTable, match="is a table of Delta now"):
        zskip.attach(tmp_path)
    assert zskip.open(tmp_path).count() == 10


def test_a_table_as_a_source_gives_its_live_rows(tables_of_zskip: Path) -> None:
    assert zskip.write(str(tables_of_zskip / "t"), tables_of_zskip.parent / "new", by=["id"]).count() == 49


def test_a_folder_of_others_may_hold_files_beside_a_table(tables_of_zskip: Path, tmp_path: Path) -> None:
    zskip.write(pa.table({"id": [1, 2]}), tmp_path / "raw" / "copy", by=["id"])
    for path in (tmp_path / "raw" / "copy").glob("*.parquet"):
        path.rename(tmp_path / "raw" / path.name)  # no table's any more
    assert zskip.index(tmp_path / "raw").count() == 2
