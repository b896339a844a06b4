"""The cache folder of side-cars: made anew where it was damaged, not synced, and emptied of what no one uses."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import zskip
from zskip.errors import DamagedIndex, TableError
from zskip.storage import open_storage
from zskip.storage.local import LocalStorage
from zskip.table_formats import log_index
from zskip.table_formats.delta import DeltaSource

DAY = 86_400


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    for first in (0, 100):
        write_deltalake(path, pa.table({"a": range(first, first + 100)}), mode="append")
    assert ids(path) == [105]
    return path


def ids(path: Path) -> list[int]:
    found: list[int] = zskip.open(path).plan("a = 105").to_arrow().column("a").to_pylist()
    return found


def files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Every file below a folder, with its time and size."""
    statuses = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (status.st_mtime_ns, status.st_size) for path, status in statuses.items()}


DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "removed": Path.unlink,
}


def harm(cache_folder: Path, pattern: str, damage: str) -> None:
    for path in cache_folder.rglob(pattern):
        DAMAGES[damage](path)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("pattern", ["*.stats", "*.json"])
@pytest.mark.usefixtures("parts_in_files")
def test_what_a_crash_damages_is_made_anew(table: Path, cache_folder: Path, damage: str, pattern: str) -> None:
    harm(cache_folder, pattern, damage)
    assert ids(table) == [105]


@pytest.mark.usefixtures("parts_in_files")
def test_a_part_that_is_damaged_after_the_opening_names_what_helps(table: Path, cache_folder: Path) -> None:
    opened = zskip.open(table)
    harm(cache_folder, "*.stats", "emptied")
    with pytest.raises(DamagedIndex, match="Open the table again"):
        opened.plan("a = 105")
    assert ids(table) == [105]


def test_an_unchanged_opening_writes_nothing(table: Path, cache_folder: Path) -> None:
    before = files(cache_folder)
    assert before
    assert ids(table) == [105]
    assert files(cache_folder) == before


def test_a_cache_is_not_synced_and_an_attached_side_car_is(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    write_deltalake(table, pa.table({"a": [105]}), mode="append")
    assert ids(table) == [105, 105]
    assert synced == []
    zskip.attach(table)
    assert synced


def test_a_storage_says_in_another_process_whether_it_is_durable(tmp_path: Path) -> None:
    import pickle

    for durable in (True, False):
        assert pickle.loads(pickle.dumps(LocalStorage(tmp_path, durable=durable))).durable is durable


def test_a_cache_folder_that_cannot_be_written_is_named(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(TableError, match="XDG_CACHE_HOME"):
        zskip.open(table)


def test_what_no_one_opened_for_a_month_is_removed(table: Path, cache_folder: Path, tmp_path: Path) -> None:
    (unused,) = (cache_folder / "zskip" / "sources").iterdir()
    a_while_ago = time.time() - 40 * DAY
    os.utime(unused, (a_while_ago, a_while_ago))
    assert ids(table) == [105]  # an opening is a use
    others = [tmp_path / "other", tmp_path / "third"]
    for path in others:
        write_deltalake(path, pa.table({"a": [105]}))
    assert ids(others[0]) == [105]
    assert unused.is_dir()
    os.utime(unused, (a_while_ago, a_while_ago))
    assert ids(others[1]) == [105]
    assert not unused.exists()
    assert ids(table) == [105]


def test_replaced_versions_leave_the_cache(table: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_index, "_VERSIONS_PER_VACUUM", 2)
    monkeypatch.setattr(log_index, "_REPLACED", timedelta(0))
    for number in range(6):
        write_deltalake(table, pa.table({"a": [1000 + number]}), mode="append")
        assert ids(table) == [105]
    entries = [path for path in cache_folder.rglob("0*.json") if path.stat().st_size > 64]  # the rest are tombstones
    assert len(entries) < 5
    assert zskip.open(table).count() == 206


def test_a_delta_table_that_takes_anothers_place_while_that_is_opened_is_read_anew(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"a": [1, 2]}))

    class Replaced(DeltaSource):
        def table(self) -> DeltaTable:
            found = super().table()
            shutil.rmtree(tmp_path / "t")
            write_deltalake(tmp_path / "t", pa.table({"a": [3, 4]}))
            return found

    storage = open_storage(tmp_path / "t")
    state = Replaced(storage).read().state
    assert not DeltaSource(storage).is_current(state)
    assert DeltaSource(storage).changes(state) is None
    content = DeltaSource(storage).read()
    assert DeltaSource(storage).is_current(content.state)


@pytest.mark.parametrize("refusal", [PermissionError(errno.EACCES, "refused"), OSError(errno.EROFS, "read-only")])
def test_a_reader_that_may_not_write_keeps_an_index_of_its_own(
    table: Path, refusal: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    zskip.attach(table)
    write_deltalake(table, pa.table({"a": [105]}), mode="append")

    def refused(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(storage: LocalStorage, *given: Any) -> Any:
            if storage.uri == str(table):
                raise refusal
            return method(storage, *given)

        return call

    before = files(table)
    for name in ("put", "put_once", "put_if_absent", "delete"):
        monkeypatch.setattr(LocalStorage, name, refused(getattr(LocalStorage, name)))
    assert ids(table) == [105, 105]
    assert zskip.sql(f"SELECT count(*) FROM '{table}'").fetchall() == [(201,)]
    opened = zskip.open(table)
    write_deltalake(table, pa.table({"a": [105]}), mode="append")
    opened.refresh()
    assert opened.plan("a = 105").count() == 3
    monkeypatch.undo()
    assert {path for path in files(table) if "_zskip" in path.parts} == {
        path for path in before if "_zskip" in path.parts
    }
    assert ids(table) == [105] * 3
