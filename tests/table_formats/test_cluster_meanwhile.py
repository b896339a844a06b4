"""Tables that are deleted, made anew or vacuumed at any step of `cluster`: an error of zskip, and nothing changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import DataFileContent, FileFormat

import zskip
from tests.table_formats.asking import rows
from tests.table_formats.test_iceberg import commit_deletes, delete_parquet
from zskip.errors import CommitConflict, TableError
from zskip.table_formats import delta_commit, iceberg_commit
from zskip.writer.compaction import cluster as clustering

BEFORE = pa.table({"a": range(40), "b": range(40, 80)})
AFTER = pa.table({"a": range(100, 130), "b": range(30)})
OTHER = pa.table({"c": ["x", "y"]})


EARLY = [pytest.param(step, marks=pytest.mark.slow) for step in range(4)]
"""Steps before the last one at which another writer may come."""


def stall(monkeypatch: pytest.MonkeyPatch, room: Any, name: str, event: Callable[[], object], first: bool) -> list[int]:
    """Let something happen once, before or after a function is called."""
    function, happened = getattr(room, name), list[int]()

    def stalled(*given: Any, **options: Any) -> Any:
        found = None if first else function(*given, **options)
        if not happened:
            happened.append(1)
            event()
        return function(*given, **options) if first else found

    monkeypatch.setattr(room, name, stalled)
    return happened


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# --- Delta ---


def delta(path: Path, data: pa.Table = BEFORE, commits: int = 3) -> None:
    for _ in range(commits):
        write_deltalake(path, data, mode="append")


def deleted(path: Path) -> None:
    shutil.rmtree(path)


def made_anew(path: Path) -> None:
    shutil.rmtree(path)
    delta(path, AFTER)


def made_anew_with_other_columns(path: Path) -> None:
    shutil.rmtree(path)
    delta(path, OTHER)


def made_anew_with_more_commits(path: Path) -> None:
    shutil.rmtree(path)
    delta(path, AFTER, 5)


def compacted_and_vacuumed(path: Path) -> None:
    table = DeltaTable(path)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


STEPS = [
    (clustering, "_sets", True),
    (clustering, "_sets", False),
    (clustering, "write_files", True),
    (clustering, "write_files", False),
    (delta_commit, "_stats", False),
]


@pytest.mark.parametrize(
    "event", [deleted, made_anew, made_anew_with_other_columns, made_anew_with_more_commits, compacted_and_vacuumed]
)
@pytest.mark.parametrize("step", [*EARLY, 4])
def test_a_delta_table_that_another_replaces(
    step: int, event: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, left = tmp_path / "t", list[Path]()
    delta(path)
    room, name, first = STEPS[step]

    def meanwhile() -> None:
        event(path)
        left.extend(files(path))

    assert stall(monkeypatch, room, name, meanwhile, first) == []
    with pytest.raises(CommitConflict, match=rf"(?s){path} .*Nothing was changed here"):
        zskip.cluster(path, by=["a", "b"], files=4)
    assert files(path) == sorted(left)
    if event is deleted:
        with pytest.raises(TableError):
            zskip.open(path)
        return
    theirs = pa.table(DeltaTable(path).scan())
    assert rows(zskip.open(path).to_arrow()) == rows(theirs)
    assert len(theirs) in (len(AFTER) * 3, len(AFTER) * 5, len(OTHER) * 3, len(BEFORE) * 3)


@pytest.mark.parametrize("event", [deleted, made_anew, made_anew_with_other_columns])
def test_a_delta_table_that_is_replaced_after_the_commit(
    event: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    delta(path)
    stall(monkeypatch, clustering, "_record", lambda: event(path), True)
    if event is deleted:
        with pytest.raises(TableError, match="no Delta table"):
            zskip.cluster(path, by=["a", "b"], files=4)
        return
    assert zskip.cluster(path, by=["a", "b"], files=4).version == 3
    assert rows(zskip.open(path).to_arrow()) == rows(pa.table(DeltaTable(path).scan()))
    assert zskip.open(path)._index.snapshot.layout is None


def test_a_vacuum_that_takes_the_new_files_is_a_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit named files that were gone."""
    path = tmp_path / "t"
    delta(path)
    before = rows(pa.table(DeltaTable(path).scan()))

    def vacuumed() -> None:
        DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    def vacuumed_by_an_older_list() -> None:
        for file in path.glob("part-00000?-*.parquet"):
            file.unlink()

    steps: list[tuple[str, Callable[[], None], bool]] = [
        ("_stats", vacuumed, False),
        ("_require_kept", vacuumed_by_an_older_list, True),
    ]
    for name, event, first in steps:
        with monkeypatch.context() as patched:
            stall(patched, delta_commit, name, event, first)
            with pytest.raises(CommitConflict, match=r"was removed, as by a vacuum.*Nothing was changed here"):
                zskip.cluster(path, by=["a", "b"], files=4)
        assert {entry["operation"] for entry in DeltaTable(path).history()} <= {
            "WRITE",
            "VACUUM START",
            "VACUUM END",
            "RESTORE",
        }
        assert rows(pa.table(DeltaTable(path).scan())) == before
        assert rows(zskip.open(path).to_arrow()) == before


# --- Iceberg ---


def dropped(catalog: Catalog, folder: Path) -> None:
    catalog.drop_table("n.t")


def dropped_with_its_files(catalog: Catalog, folder: Path) -> None:
    catalog.drop_table("n.t")
    shutil.rmtree(folder)


def made_anew_by_name(catalog: Catalog, folder: Path) -> None:
    catalog.drop_table("n.t")
    catalog.create_table("n.t", AFTER.schema).append(AFTER)


def made_anew_after_its_files(catalog: Catalog, folder: Path) -> None:
    catalog.drop_table("n.t")
    shutil.rmtree(folder)
    catalog.create_table("n.t", OTHER.schema).append(OTHER)


def overwritten(catalog: Catalog, folder: Path) -> None:
    catalog.load_table("n.t").overwrite(AFTER)


def rows_deleted(catalog: Catalog, folder: Path) -> None:
    table = catalog.load_table("n.t")
    file = next(iter(table.scan().plan_files())).file
    path = delete_parquet(table, {file.file_path: [0, 1]})
    commit_deletes(table, path, DataFileContent.POSITION_DELETES, FileFormat.PARQUET, 2)


ICEBERG_STEPS = [
    (clustering, "_sets", True),
    (clustering, "write_files", True),
    (clustering, "write_files", False),
    (iceberg_commit, "_live_entries", False),
    (iceberg_commit, "_write_data_files", False),
]


@pytest.mark.parametrize(
    "event", [dropped, dropped_with_its_files, made_anew_by_name, made_anew_after_its_files, overwritten, rows_deleted]
)
@pytest.mark.parametrize("step", [*EARLY, 4])
def test_an_iceberg_table_that_another_replaces(
    step: int, event: Callable[[Catalog, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = load_catalog("c", type="in-memory", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", BEFORE.schema)
    for _ in range(3):
        table.append(BEFORE)
    folder, left = tmp_path / "n" / "t", list[Path]()

    def meanwhile() -> None:
        event(catalog, folder)
        left.extend(folder.rglob("*.parquet"))

    room, name, first = ICEBERG_STEPS[step]
    stall(monkeypatch, room, name, meanwhile, first)
    with pytest.raises(CommitConflict, match=rf"(?s){folder} .*Nothing was changed here"):
        zskip.cluster(table, by=["a", "b"], files=2)
    assert set(folder.rglob("*.parquet")) <= set(left)
    if catalog.table_exists("n.t"):
        now = catalog.load_table("n.t")
        theirs = now.scan().to_arrow()
        assert len(theirs) in (len(AFTER), len(OTHER), len(BEFORE) * 3 - 2)
        assert rows(zskip.open(now).to_arrow()) == rows(theirs)


def test_an_iceberg_table_that_is_replaced_after_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = load_catalog("c", type="in-memory", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", BEFORE.schema)
    table.append(BEFORE)
    stall(monkeypatch, clustering, "_record", lambda: made_anew_by_name(catalog, tmp_path / "n" / "t"), True)
    zskip.cluster(table, by=["a", "b"], files=2)
    now = catalog.load_table("n.t")
    assert rows(zskip.open(now).to_arrow()) == rows(AFTER)


def test_the_layout_is_recorded_on_the_newest_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record took the state of an older log along, whose commits were then read again."""
    catalog = load_catalog("c", type="in-memory", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", BEFORE.schema)
    table.append(BEFORE)

    def another_follows() -> None:
        now = catalog.load_table("n.t")
        now.append(AFTER)
        assert zskip.open(now).count() == len(BEFORE) + len(AFTER)

    stall(monkeypatch, clustering, "commit", another_follows, True)
    zskip.cluster(table, by=["a", "b"], files=2)
    now = catalog.load_table("n.t")
    now.delete("a >= 100")
    assert rows(zskip.open(now).to_arrow()) == rows(now.scan().to_arrow())
    assert zskip.cluster(catalog.load_table("n.t")).files_rewritten <= 1


def test_an_append_meanwhile_is_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = load_catalog("c", type="in-memory", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", BEFORE.schema)
    table.append(BEFORE)
    stall(monkeypatch, iceberg_commit, "_write_data_files", lambda: catalog.load_table("n.t").append(AFTER), False)
    assert zskip.cluster(table, by=["a", "b"], files=2).files_written == 2
    now = catalog.load_table("n.t")
    assert len(list(now.scan().plan_files())) == 3
    assert table.metadata_location == now.metadata_location
    assert rows(zskip.open(now).to_arrow()) == rows(now.scan().to_arrow()) == rows(pa.concat_tables([BEFORE, AFTER]))
    assert zskip.cluster(now).files_rewritten == 1
