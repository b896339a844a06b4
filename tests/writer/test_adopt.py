"""Files that other programs put into a table's folder are named by every report, and one call takes them in."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.cli.test_cli import facts
from zskip.errors import (
    CommitConflict,
    CorruptFile,
    DamagedIndex,
    ForeignTable,
    SchemaMismatch,
    TableError,
    TableNotFound,
)
from zskip.inspect.audit import doctor
from zskip.storage import Storage
from zskip.tablelog import log, vacuum
from zskip.tablelog.freshness import replaced_after
from zskip.writer import append

WHAT = "2 files that other programs put into the folder are not part of the table: adopt() appends and removes them"


def ids(table: zskip.Table) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


def drop(folder: Path) -> None:
    pq.write_table(pa.table({"id": [100, 101], "more": ["x", "y"]}), folder / "late.parquet")
    (folder / "sub").mkdir()
    pq.write_table(pa.table({"id": [102]}), folder / "sub" / "later.parquet")


def clustered(folder: Path) -> zskip.Table:
    folder.mkdir()
    for number in range(4):
        pq.write_table(pa.table({"id": range(number * 5, number * 5 + 5)}), folder / f"{number}.parquet")
    zskip.cluster(folder, by="id", files=2)
    return zskip.open(folder)


@pytest.fixture
def table(request: pytest.FixtureRequest, tmp_path: Path) -> zskip.Table:
    """Laid out in place, as most tests have it, or as a test names it."""
    how = getattr(request, "param", "clustered")
    if how == "written":
        return zskip.write(pa.table({"id": range(20)}), tmp_path / "t", by="id", files=2)
    opened = clustered(tmp_path / "t")
    if how == "vacuumed":
        opened.vacuum("0 seconds")
    return opened


every_table = pytest.mark.parametrize("table", ["clustered", "vacuumed", "written"], indirect=True)


def test_the_output_of_a_spark_stream_is_not_adopted(table: zskip.Table) -> None:
    """Its log tells which of the files count, and would name removed ones."""
    folder = Path(table.uri)
    drop(folder)
    (folder / "_spark_metadata").mkdir()
    with pytest.raises(ForeignTable, match="Spark streaming query"):
        table.adopt()
    assert (folder / "late.parquet").exists()
    (folder / "_spark_metadata").rmdir()
    assert table.adopt().files == 2


@every_table
def test_every_report_names_dropped_files(table: zskip.Table, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(table.uri)
    quiet = [table.plan("id = 3").explain(), str(doctor(folder)), str(table.verify(random=1)), str(table.tend())]
    assert not [text for text in quiet if "adopt" in text]
    assert table.refresh().dropped == 0
    drop(folder)
    assert WHAT in table.plan("id = 3").explain()
    assert table.plan("id = 3").as_dict()["dropped"] == ["late.parquet", "sub/later.parquet"]
    assert table.refresh().dropped == 2
    assert f"{WHAT}." in doctor(folder).advice
    assert WHAT in str(table.verify(random=1))
    assert WHAT in str(table.tend())
    assert facts(capsys, "info", str(folder))["not_in_the_table"] == WHAT
    assert ids(table) == list(range(20))


@every_table
def test_one_call_takes_them_in(table: zskip.Table, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(table.uri)
    drop(folder)
    done = facts(capsys, "adopt", str(folder))
    assert (done["rows"], done["files"]) == (3, 2)
    table.refresh()
    assert ids(table) == [*range(20), 100, 101, 102]
    assert table.plan("id = 101").to_arrow().column("more").to_pylist() == ["y"]
    assert not (folder / "late.parquet").exists()
    assert table.adopt().files == 0
    assert len(ids(table)) == 23


def test_a_file_that_was_replaced_after_clustering_is_new(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    zskip.cluster(tmp_path, by="id")
    pq.write_table(pa.table({"id": [3, 4, 5], "more": [3, 4, 5]}), tmp_path / "a.parquet")
    table = zskip.open(tmp_path)
    assert table.refresh().dropped == 1
    adopted = table.adopt()
    assert (adopted.rows, adopted.new_columns) == (3, ("more",))
    assert ids(table) == [1, 2, 3, 4, 5]


def interrupt(table: zskip.Table, when: str) -> None:
    """Let an adopt end there: before or after its append, or after the removal of one file."""
    appended, removed = append.append, type(table._storage).delete

    def append_then_stop(*given: Any) -> None:
        if when == "after the append":
            appended(*given)
        raise KeyboardInterrupt

    def remove_one(storage: object, paths: list[str]) -> None:
        removed(storage, paths[:1])
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        if "append" in when:
            patched.setattr(append, "append", append_then_stop)
        else:
            patched.setattr(type(table._storage), "delete", remove_one)
        with pytest.raises(KeyboardInterrupt):
            table.adopt()


@pytest.mark.parametrize("when", ["before the append", "after the append", "while files are removed"])
def test_a_crash_neither_loses_nor_doubles_rows(when: str, table: zskip.Table) -> None:
    folder = Path(table.uri)
    drop(folder)
    interrupt(table, when)
    table.refresh()
    table.adopt()
    assert ids(table) == [*range(20), 100, 101, 102]
    assert not list(folder.glob("**/late*.parquet"))
    assert not list((folder / "_zskip" / "adopt").glob("*"))


def test_an_adopted_file_that_was_touched_is_not_adopted_again(table: zskip.Table) -> None:
    folder = Path(table.uri)
    drop(folder)
    interrupt(table, "after the append")
    os.utime(folder / "late.parquet", ns=(0, 0))
    for _ in range(2):
        with pytest.raises(TableError, match=r"late\.parquet, have the names .* If they were only touched"):
            table.adopt()
    assert [str(file) for file in folder.rglob("late*.parquet")] == [str(folder / "late.parquet")]
    (folder / "late.parquet").unlink()
    assert table.adopt().rows == 0
    assert ids(zskip.open(folder)) == [*range(20), 100, 101, 102]


def test_a_claimed_file_that_changed_is_not_guessed_at(table: zskip.Table) -> None:
    folder = Path(table.uri)
    drop(folder)
    interrupt(table, "before the append")
    os.utime(folder / "late.parquet", ns=(0, 0))  # as of another file of its size
    for change in ((folder / "late.parquet").unlink, (folder / "_zskip" / "adopt" / "00000001.json").unlink):
        with pytest.raises(CommitConflict, match=r"1 of the files .* remove .*adopt/00000001\.json"):
            table.adopt()
        change()
    assert table.adopt().rows == 1


def test_hive_folders_are_read(tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"id": [day]}), tmp_path / f"day={day}" / "a.parquet")
    zskip.cluster(tmp_path, by="id")
    (tmp_path / "day=3").mkdir()
    pq.write_table(pa.table({"id": [3]}), tmp_path / "day=3" / "b.parquet")
    table = zskip.open(tmp_path)
    assert table.adopt().rows == 1
    assert table.plan("day = 3").to_arrow().to_pylist() == [{"id": 3, "day": 3}]


def test_names_of_folders_are_values_of_the_tables_column(tmp_path: Path) -> None:
    first = pa.table({"id": [1], "p": ["5"], "hex": ["5"], "n": [5], "null": ["5"]})
    table = zskip.write(first, tmp_path, by="id", partition_by=["p", "hex", "n", "null"])
    folder = tmp_path / "p=7" / "hex=0x10" / "n=007" / "null=NULL"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [2]}), folder / "b.parquet")
    assert table.adopt().rows == 1
    row = {"id": 2, "p": "7", "hex": "0x10", "n": 7, "null": "NULL"}
    assert table.plan("id = 2").to_arrow().to_pylist() == [row]


def test_a_folder_name_that_is_no_value_of_the_column_is_named(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"id": [1], "p": [5]}), tmp_path, by="id", partition_by="p")
    (tmp_path / "p=x").mkdir()
    pq.write_table(pa.table({"id": [3]}), tmp_path / "p=x" / "b.parquet")
    with pytest.raises(SchemaMismatch, match="A folder name is not a value of its column"):
        table.adopt()


def test_a_file_that_cannot_be_adopted_does_not_stand_in_the_way_of_others(tmp_path: Path) -> None:
    """The claim of the call that failed was in the way of every later call."""
    table = zskip.write(pa.table({"k": [1, 2], "r": ["a", "b"]}), tmp_path / "t", by=["k"])
    bad, good = tmp_path / "t" / "bad.parquet", tmp_path / "t" / "good.parquet"
    bad.write_bytes(b"PAR1junkPAR1")
    with pytest.raises(CorruptFile):
        table.adopt()
    bad.unlink()
    pq.write_table(pa.table({"k": [7], "r": ["z"]}), good)
    assert table.adopt().rows == 1
    assert not good.exists()
    assert table.count() == 3


@pytest.mark.parametrize("fails", ["a file", "the claim"])
def test_files_that_cannot_be_removed_are_named_and_removed_by_the_next_call(
    fails: str, table: zskip.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(table.uri)
    drop(folder)
    delete = type(table._index.storage).delete

    def failing(storage: Storage, paths: Sequence[str]) -> None:
        if any(path.endswith("late.parquet" if fails == "a file" else ".json") for path in paths):
            raise PermissionError(13, "Permission denied")
        delete(storage, paths)

    with monkeypatch.context() as patched:
        patched.setattr(type(table._index.storage), "delete", failing)
        with pytest.raises(TableError, match=r"rows of 2 adopted files are in the table.*called again"):
            table.adopt()
    again = zskip.open(folder)
    assert ids(again) == [*range(20), 100, 101, 102]
    assert again.adopt().rows == 0
    assert not [*folder.glob("*late*"), *(folder / "_zskip/adopt").glob("*")]
    assert ids(zskip.open(folder)) == [*range(20), 100, 101, 102]


@pytest.mark.parametrize("how", ["mode", "copy"])
def test_replaced_files_with_another_status_are_none_of_other_programs(how: str, tmp_path: Path) -> None:
    """The time of a file's last status change differs then, and its rows are in the table already."""
    table, folder = clustered(tmp_path / "t"), tmp_path / "t"
    if how == "copy":
        folder = shutil.copytree(folder, tmp_path / "copy")  # which keeps the times of modification
        table = zskip.open(folder)
    else:
        for file in folder.glob("?.parquet"):
            file.chmod(0o600)
    for _ in range(2):
        assert "adopt" not in table.plan("id = 3").explain()
        assert table.adopt().rows == 0
        assert ids(table) == list(range(20))
        left = table.vacuum("0 seconds").left  # it removes no file that may be another one
        assert left == "files to remove by hand, changed or copied after cluster had replaced them: 4" or not left
    assert len(list(folder.glob("?.parquet"))) == 4


def test_copies_without_their_times_are_not_adopted(tmp_path: Path) -> None:
    """Their rows would be in the table twice."""
    clustered(tmp_path / "t")
    folder = shutil.copytree(tmp_path / "t", tmp_path / "copy", copy_function=shutil.copyfile)
    table = zskip.open(folder)
    drop(folder)
    for _ in range(2):
        with pytest.raises(TableError, match=r"4 files, such as 0\.parquet, .* If the folder is a copy, remove them"):
            table.adopt()
        table.vacuum("0 seconds")  # which forgets the version that named them
    assert ids(table) == list(range(20))
    for file in folder.glob("?.parquet"):
        file.unlink()
    assert table.adopt().rows == 3


def test_nothing_is_adopted_beside_an_old_version_that_cannot_be_read(tmp_path: Path) -> None:
    """It may name the files that cluster replaced: their rows would be in the table twice."""
    table = clustered(tmp_path / "t")
    drop(tmp_path / "t")
    entry = tmp_path / "t" / log.entry_path(1)
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-9])
    assert table.refresh().dropped == 6  # reports go on
    for _ in range(2):
        with pytest.raises(DamagedIndex, match=rf"which of 6 files .*{re.escape(entry.name)} .* append\(path\)\.$"):
            table.adopt()
        assert "versions that cannot be read, and may name" in str(table.vacuum("0 seconds"))
    assert ids(table) == list(range(20))
    entry.write_bytes(whole)
    assert table.adopt().rows == 3
    assert ids(table) == [*range(20), 100, 101, 102]


def test_a_list_of_replaced_files_that_is_damaged_is_not_believed(tmp_path: Path) -> None:
    table = clustered(tmp_path / "t")
    set_times(tmp_path / "t", ["0.parquet"])
    table.vacuum("0 seconds")
    (listed,) = (tmp_path / "t" / "_zskip" / "replaced").iterdir()
    whole = listed.read_bytes()
    for place in range(0, len(whole), 5):
        listed.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedIndex, match=re.escape(listed.name)):
            table.adopt()


def test_files_that_came_after_a_layout_are_no_files_that_it_replaced(tmp_path: Path) -> None:
    """A version that only indexes the folder, as it is after restore(1), may name them; a vacuum removed them."""
    table = clustered(tmp_path / "t")
    table.restore(1)
    pq.write_table(pa.table({"id": [800]}), tmp_path / "t" / "new.parquet")
    table.refresh()
    table.restore(2)
    assert table.refresh().dropped == 1
    table.vacuum("0 seconds")
    assert [file.name for file in (tmp_path / "t").glob("*.parquet")] == ["new.parquet"]
    assert table.adopt().rows == 1
    assert ids(table) == [*range(20), 800]


def test_a_version_of_files_that_have_changed_is_not_restored(tmp_path: Path) -> None:
    """Other rows than those of the version would come back."""
    table = clustered(tmp_path / "t")
    pq.write_table(pa.table({"id": range(100, 200)}), tmp_path / "t" / "1.parquet")
    with pytest.raises(TableNotFound, match=r"of which 1 have changed since, such as 1\.parquet"):
        table.restore(1)
    assert ids(table) == list(range(20))


WRITES = ("put", "put_once", "put_if_absent", "delete")


def interrupted_vacuum(table: zskip.Table, writes: int) -> bool:
    """Vacuum until so many writes of the storage are done. Returns whether that was before the end."""
    left = iter(range(writes))

    def counted(write: Callable[..., object]) -> Callable[..., object]:
        def counting(*given: object, **options: object) -> object:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return write(*given, **options)

        return counting

    storage = type(table._storage)
    with pytest.MonkeyPatch.context() as patched:
        for name in WRITES:
            patched.setattr(storage, name, counted(getattr(storage, name)))
        try:
            table.vacuum("0 seconds")
        except KeyboardInterrupt:
            return True
    return False


def set_times(folder: Path, names: Sequence[str]) -> None:
    for file in (folder / name for name in names):
        if file.exists():
            os.utime(file, (1, 1))


def test_a_vacuum_that_dies_at_any_place_forgets_no_replaced_file(tmp_path: Path) -> None:
    """One that died before its commit left its list, which the next one of the same version kept."""
    for writes in itertools.count():
        folder = tmp_path / str(writes)
        table = clustered(folder)
        set_times(folder, ["0.parquet"])
        died = interrupted_vacuum(table, writes)
        set_times(folder, ["1.parquet", "2.parquet", "3.parquet"])
        zskip.open(folder).vacuum("0 seconds")
        left = len(list(folder.glob("?.parquet")))
        with pytest.raises(TableError, match=rf"{left} files, such as 0\.parquet, have the names and sizes"):
            zskip.open(folder).adopt()
        assert ids(zskip.open(folder)) == list(range(20))
        if not died:
            break
    assert left == 1
    assert writes > 4


def test_a_vacuum_beside_another_keeps_its_own_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one, which dies before its commit, listed the folder when fewer files had changed."""
    folder = tmp_path / "t"
    table = clustered(folder)
    set_times(folder, ["0.parquet"])
    create = log.create

    def dies(*given: object) -> bool:
        raise KeyboardInterrupt

    def after_another(*given: Any) -> bool:
        monkeypatch.setattr(log, "create", dies)
        with pytest.MonkeyPatch.context() as patched:
            nothing = np.array([], np.int64)
            patched.setattr(vacuum, "_replaced", lambda _, listing, *more: (listing.take(nothing), one_file, set()))
            with pytest.raises(KeyboardInterrupt):
                zskip.open(folder).vacuum("0 seconds")
        return create(*given)

    one_file = replaced_after(table._storage, 1).take(np.array([0]))
    set_times(folder, ["1.parquet", "2.parquet", "3.parquet"])
    monkeypatch.setattr(log, "create", after_another)
    table.vacuum("0 seconds")
    monkeypatch.undo()
    with pytest.raises(TableError, match=r"4 files, such as 0\.parquet"):
        zskip.open(folder).adopt()
