"""Another writer comes at any call that `cluster` makes to a store, a catalog or a library of the format.

Whatever it does, and whenever: the table has the rows of the other writer alone, for the library and for zskip, since a
layout changes no row; an error is one of zskip; and after one, no file is left that the table does not name.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFileContent, FileFormat

import zskip
from tests import one_in
from tests.table_formats.logs import Delta, Iceberg, rows
from tests.table_formats.test_iceberg import commit_deletes, delete_parquet
from zskip.errors import CommitConflict, TableNotFound, UncertainCommit, UnknownColumn, ZskipError
from zskip.storage.local import LocalStorage

BEFORE = pa.table({"a": range(40), "b": range(40, 80)})
AFTER = pa.table({"a": range(100, 130), "b": range(30)})
OTHER = pa.table({"c": ["x", "y"]})

HOOKS: list[tuple[Any, str]] = [
    *((LocalStorage, name) for name in ("exists", "list", "names", "read", "read_range", "size_and_modified")),
    *((LocalStorage, name) for name in ("open_writer", "put_if_absent", "make_durable")),
    (DeltaTable, "create_write_transaction"),
    (SqlCatalog, "commit_table"),
    *((PyArrowFileIO, name) for name in ("new_input", "new_output")),
]


@dataclass
class Calls:
    """Notes calls. ``event`` happens once, before a call of this name and number; what it calls itself is not noted."""

    at: tuple[str, int] = ("", 0)
    event: Callable[[], object] = lambda: None
    names: list[str] = field(default_factory=list)
    busy: bool = False

    def hook(self, patch: pytest.MonkeyPatch) -> None:
        for room, name in HOOKS:
            patch.setattr(room, name, self._counted(getattr(room, name), name))

    def _counted(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if not self.busy:
                self.names.append(name)
                if (name, self.names.count(name)) == self.at:
                    self.busy = True
                    self.event()
                    self.busy = False
            return real(*given, **named)

        return call


def removed(folder: Path) -> None:
    """Remove a folder into which another thread may still write."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


class DeltaLake(Delta):
    """A Delta table of three commits."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, BEFORE, BEFORE, BEFORE)

    def anew(self, data: pa.Table, commits: int = 3) -> None:
        removed(self.path)
        for _ in range(commits):
            self.append(data)

    def vacuum(self) -> None:
        DeltaTable(self.path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    def lay_out(self) -> object:
        return self.cluster(by=["a", "b"], files=4, full=True)

    def is_there(self) -> bool:
        return DeltaTable.is_deltatable(str(self.path))

    def named(self) -> set[Path]:
        """The files that any version of the table names."""
        every = (DeltaTable(self.path, version=version).file_uris() for version in range(self.version() + 1))
        return {Path(uri) for uris in every for uri in uris}


def compacted_and_vacuumed(table: DeltaLake) -> None:
    DeltaTable(table.path).optimize.compact()
    table.vacuum()


class IcebergLake(Iceberg):
    """An Iceberg table of three snapshots in a catalog."""

    def __init__(self, home: Path) -> None:
        catalog = SqlCatalog("c", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}")
        catalog.create_namespace("n")
        super().__init__(home, BEFORE, BEFORE, BEFORE, catalog=catalog)
        self.opened_before = self.given()

    def anew(self, data: pa.Table, *, remove: bool) -> None:
        self.drop(remove=remove)
        self.create(data)

    def drop(self, *, remove: bool) -> None:
        self.catalog.drop_table("n.t")
        if remove:
            removed(self.path)

    def delete_rows(self) -> None:
        table = self.given()
        path = delete_parquet(table, {next(iter(self.files())): [0, 1]})
        commit_deletes(table, path, DataFileContent.POSITION_DELETES, FileFormat.PARQUET, 2)

    def follow(self) -> None:
        """Append, and bring the index up to date."""
        self.append(AFTER)
        self.open()

    def lay_out(self) -> object:
        return zskip.cluster(self.opened_before, by=["a", "b"], files=2, full=True)

    def is_there(self) -> bool:
        return bool(self.catalog.table_exists("n.t"))

    def named(self) -> set[Path]:
        named = self.given().inspect.all_files()["file_path"].to_pylist()
        return {Path(each.removeprefix("file://")) for each in named}


Event = Callable[[Any], object]
DELTA: dict[str, Event] = {
    "deleted": lambda table: removed(table.path),
    "made anew": lambda table: table.anew(AFTER),
    "made anew with other columns": lambda table: table.anew(OTHER),
    "made anew with more commits": lambda table: table.anew(AFTER, 5),
    "compacted and vacuumed": compacted_and_vacuumed,
    "vacuumed": lambda table: table.vacuum(),
    "appended": lambda table: table.append(AFTER),
    "rows deleted": lambda table: table.delete("a < 10"),
}
ICEBERG: dict[str, Event] = {
    "dropped": lambda table: table.drop(remove=False),
    "dropped with its files": lambda table: table.drop(remove=True),
    "made anew by name": lambda table: table.anew(AFTER, remove=False),
    "made anew after its files": lambda table: table.anew(OTHER, remove=True),
    "overwritten": lambda table: table.given().overwrite(AFTER),
    "rows deleted": lambda table: table.delete_rows(),
    "appended": lambda table: table.follow(),
}
LAKES: dict[str, tuple[Any, Event]] = {
    **{f"Delta {name}": (DeltaLake, event) for name, event in DELTA.items()},
    **{f"Iceberg {name}": (IcebergLake, event) for name, event in ICEBERG.items()},
}


@functools.cache
def calls_of(kind: Any) -> list[tuple[str, int]]:
    """The calls that a layout makes which nobody disturbs, each with its number among those of its name."""
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        table, calls = kind(Path(home)), Calls()
        calls.hook(patch)
        table.lay_out()
    return [(name, calls.names[: place + 1].count(name)) for place, name in enumerate(calls.names)]


def disturbed(kind: Any, event: Event, home: Path, at: tuple[str, int]) -> str:
    """One round; what became of the layout. Raises `AssertionError`."""
    home.mkdir()
    table = kind(home)
    begun, alone = set(table.path.rglob("*.parquet")), list[pa.Table | None]()

    def meanwhile() -> None:
        event(table)
        alone.append(table.content() if table.is_there() else None)

    calls, error = Calls(at, meanwhile), None
    with pytest.MonkeyPatch.context() as patch:
        calls.hook(patch)
        try:
            table.lay_out()
        except ZskipError as raised:
            error = raised
    if not alone:
        return "undisturbed"
    what = f"at {at}: {error!r}"
    if alone[0] is None:
        assert not table.is_there(), what
        return repr(error)
    assert rows(table.content()) == rows(alone[0]), what
    assert rows(table.open().to_arrow()) == rows(alone[0]), what
    if error is not None:
        assert isinstance(error, CommitConflict | TableNotFound | UncertainCommit | UnknownColumn), what
        assert set(table.path.rglob("*.parquet")) <= table.named() | begun, what
    return repr(error)


@pytest.mark.parametrize("lake", one_in(2, LAKES))
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some calls", "every call"])
def test_a_table_that_another_changes_meanwhile(lake: str, every: bool, tmp_path: Path) -> None:
    kind, event = LAKES[lake]
    calls = calls_of(kind)
    commit = next(call for call in calls if call[0] in ("create_write_transaction", "commit_table"))
    # With the last of these calls, the index follows the log after the commit.
    others = [("read", 1), ("exists", 2), calls[len(calls) // 2], calls[-1]]
    others = [at for at in others if at in calls and at != commit]
    places = calls if every else [commit, others[list(LAKES).index(lake) // 2 % len(others)]]
    ended = [disturbed(kind, event, tmp_path / "-".join(map(str, at)), at) for at in places]
    assert "undisturbed" not in ended or every
    if event in (DELTA["appended"], ICEBERG["appended"]):
        assert set(ended) <= {"None", "undisturbed"}, "an append is no conflict"


def test_new_files_that_a_vacuum_removes_right_before_the_commit(tmp_path: Path) -> None:
    """It had listed them before, so that no version of its own comes in between: the commit is undone."""

    def removed(table: DeltaLake) -> None:
        for file in table.path.glob("part-00000?-*.parquet"):
            file.unlink()

    ended = disturbed(DeltaLake, removed, tmp_path / "t", ("create_write_transaction", 1))
    assert "was removed, as by a vacuum" in ended
    assert DeltaTable(tmp_path / "t" / "t").history(1)[0]["operation"] == "RESTORE"
