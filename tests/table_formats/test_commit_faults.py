"""Faults at the request that commits a layout of a Delta or Iceberg table: every live version has all its files.

| the request | Delta and Iceberg say |
| --- | --- |
| is refused, since another writer came first | the layout is committed on top, or `CommitConflict` |
| fails before it begins | nothing, since it is tried again; `UncertainCommit` where a request may still arrive |
| is done, and its answer is an error or lost | nothing: the log names the run |
| arrives after its error | `UncertainCommit` |
| is interrupted, before or after it is done | the interrupt |
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

import zskip
from tests.clouds import Place
from tests.table_formats.logs import Delta, Iceberg
from zskip.errors import UncertainCommit
from zskip.storage.local import LocalStorage

ROWS = pa.table({"a": range(40), "b": range(40, 80)})
Call = Callable[[], object]


class Fault:
    """``before``, ``after``: what the call raises before or after it is done · ``late``: the call is done after its
    error, when the caller has returned · ``said``: what the caller gets."""

    def __init__(
        self,
        before: BaseException | None = None,
        after: BaseException | None = None,
        *,
        late: bool = False,
        said: type[BaseException] | None = None,
    ) -> None:
        self.before, self.after, self.late, self.said = before, after, late, said
        self.pending: list[Call] = []
        self.calls = 0

    def __call__(self, call: Call) -> object:
        self.calls += 1
        if self.calls > 1:
            return call()
        if self.late:
            self.pending.append(call)
        if self.before is not None:
            raise self.before
        done = call()
        if self.after is not None:
            raise self.after
        return done


def delta_faults(local: bool) -> dict[str, Fault]:
    """Of a store, those alone that its requests can have otherwise than those of a disk."""
    found = {
        "an answer of 500 although done": Fault(after=OSError("500 Internal Server Error")),
        "a conflict although done": Fault(after=CommitFailedError("version 4 already exists")),
    }
    if local:  # has no request on its way, so that the commit is tried again
        return found | {
            "fails before": Fault(OSError("the network is down")),
            "refused for another reason": Fault(DeltaError("the schema is wrong")),
            "deltalake fails after it is done": Fault(after=DeltaError("a hook failed")),
            "another class of error after it is done": Fault(after=RuntimeError("a bug")),
            "interrupted before": Fault(KeyboardInterrupt(), said=KeyboardInterrupt),
            "interrupted after": Fault(after=KeyboardInterrupt(), said=KeyboardInterrupt),
        }
    return found | {
        "fails before": Fault(OSError("the network is down"), said=UncertainCommit),
        "refused for another reason": Fault(DeltaError("the schema is wrong"), said=UncertainCommit),
        "interrupted after": Fault(after=KeyboardInterrupt(), said=KeyboardInterrupt),
        "arrives late": Fault(OSError("timed out"), late=True, said=UncertainCommit),
    }


def act(fault: Fault, call: Call) -> str:
    """Run a call whose request fails; the message of its error."""
    if fault.said is None:
        call()
        return ""
    with pytest.raises(fault.said) as caught:
        call()
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


@pytest.mark.parametrize("local", [True, False], ids=["local", "gs"])
def test_a_delta_table_keeps_its_files(
    local: bool, started: Callable[[str], Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layouts follow each other, so that each is made of a table of which one failed."""
    root, options = (str(tmp_path), {}) if local else started("gs")
    url = f"{root}/faults"
    theirs = {name: value for name, value in options.items() if isinstance(value, str)} | {"allow_http": "true"}
    for _ in range(2):
        write_deltalake(url, ROWS, mode="append", storage_options=theirs)
    write = DeltaTable.create_write_transaction
    for name, fault in delta_faults(local).items():
        before = DeltaTable(url, storage_options=theirs).version()
        with monkeypatch.context() as patched:
            patched.setattr(
                DeltaTable,
                "create_write_transaction",
                lambda table, *given, fault=fault, **named: fault(lambda: write(table, *given, **named)),
            )
            message = act(
                fault,
                lambda: zskip.cluster(url, by=["a", "b"], files=4, full=True, storage_options=options),
            )
        if fault.said is UncertainCommit:
            assert f"No file was removed. It was made if _delta_log/{before + 1:020}.json" in message, name
        assert_delta_holds(url, before, theirs)
        for late in fault.pending:
            late()
            assert_delta_holds(url, before, theirs)


def assert_delta_holds(path: Any, since: int, options: dict[str, str] | None = None) -> None:
    """Every version of a Delta table since that one can be read, and has the rows twice."""
    newest = DeltaTable(path, storage_options=options)
    for version in range(since, newest.version() + 1):
        found = pa.table(DeltaTable(path, version=version, storage_options=options).scan())
        assert sorted(found["a"].to_pylist()) == sorted(ROWS["a"].to_pylist() * 2)
        assert pc.sum(found["b"]).as_py() == pc.sum(ROWS["b"]).as_py() * 2


def test_a_look_at_the_files_that_fails_after_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Delta(tmp_path, ROWS, ROWS).path
    look = LocalStorage.size_and_modified
    log = path / "_delta_log" / "00000000000000000002.json"

    def unavailable(storage: LocalStorage, paths: Any) -> Any:
        if log.exists():
            raise OSError("503 Slow Down")
        return look(storage, paths)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "size_and_modified", unavailable)
        with pytest.raises(UncertainCommit, match="Version 2 was made"):
            zskip.cluster(path, by=["a", "b"], files=4)
    assert_delta_holds(path, 1)


def test_an_append_while_a_commit_is_undone_leaves_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry of a commit whose files are gone was removed, although another version was on top of it."""
    path = Delta(tmp_path, ROWS, ROWS).path
    write = DeltaTable.create_write_transaction

    def with_files_removed(table: DeltaTable, adds: list[Any], *given: Any, **named: Any) -> None:
        write(table, adds, *given, **named)
        for file in path.glob("part-00000?-*.parquet"):
            file.unlink()
        write_deltalake(path, ROWS, mode="append")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", with_files_removed)
        with pytest.raises(UncertainCommit, match="others have committed after it"):
            zskip.cluster(path, by=["a", "b"], files=4)
    DeltaTable(path).restore(1)
    assert pa.table(DeltaTable(path).scan()).num_rows == 80


# --- Iceberg ---

UNKNOWN = CommitStateUnknownException("502 Bad Gateway")
CONFLICT = CommitFailedException("ConcurrentModificationException")
ICEBERG_FAULTS: dict[str, Callable[[], Fault]] = {
    "fails before": lambda: Fault(OSError("the network is down"), said=UncertainCommit),
    "an answer of 502 although done": lambda: Fault(after=UNKNOWN),
    "another class of error after it is done": lambda: Fault(after=KeyError("metadata")),
    "a conflict": lambda: Fault(CONFLICT),
    "arrives late": lambda: Fault(UNKNOWN, late=True, said=UncertainCommit),
    "interrupted before": lambda: Fault(KeyboardInterrupt(), said=KeyboardInterrupt),
    "interrupted after": lambda: Fault(after=KeyboardInterrupt(), said=KeyboardInterrupt),
}


def test_an_iceberg_table_keeps_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, commit = Iceberg(tmp_path, ROWS, ROWS), SqlCatalog.commit_table
    for name, made in ICEBERG_FAULTS.items():
        fault, before = made(), len(table.given().snapshots())
        with monkeypatch.context() as patched:
            patched.setattr(SqlCatalog, "commit_table", lambda *given, fault=fault: fault(lambda: commit(*given)))
            message = act(fault, lambda: table.cluster(by=["a", "b"], files=2, full=True))
        if fault.said is UncertainCommit:
            assert "No file was removed. Load the table n.t again" in message, name
        assert_iceberg_holds(table, before)
        for late in fault.pending:
            late()
            assert_iceberg_holds(table, before)


def assert_iceberg_holds(table: Iceberg, since: int) -> None:
    now = table.given()
    for snapshot in now.snapshots()[since - 1 :]:
        found = now.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        assert sorted(found["a"].to_pylist()) == sorted(ROWS["a"].to_pylist() * 2)
