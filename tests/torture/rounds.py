"""One round: a copy of a table, a step that fails at one call, and what must hold afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import numpy as np

import zskip
from tests import ROOT
from tests.torture.disk import FAULTS, Fault, How, compiled
from tests.torture.lives import NEXT, STEPS, Rows, Step, contents, joined
from zskip.errors import DamagedIndex, FilesRemoved, TableNotFound
from zskip.storage import open_storage
from zskip.tablelog import log
from zskip.tablelog.index import Index


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step ended: whole, killed, or with an error. ``calls``: that counted, where the process lived."""

    calls: int | None
    killed: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class _Template:
    folder: Path
    states: dict[int, list[str]]


class Rig:
    """A workshop in a folder: the failing disk, the process that it is preloaded into, and tables to start from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._templates: dict[str, _Template] = {}
        self._rounds = 0
        # As long as one connection is open, those that reading opens need not start the database again.
        self._database = duckdb.connect(":memory:zskip")
        environment = {
            **os.environ,
            "LD_PRELOAD": str(compiled(folder)),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.server"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.communicate()
        self._database.close()

    def calls(self, step: str, fault: str) -> int:
        """At how many calls a step can fail in this way."""
        place = self._copied(self._template(step))
        ended = self._taken(step, place / "table", fault, 0)
        shutil.rmtree(place)
        assert ended.calls is not None
        assert ended.error is None, f"nothing failed, and yet: {ended.error}"
        return ended.calls

    def round(self, step: str, fault: str, at: int) -> Ended:
        """Take a step that fails at the ``at``-th call, and hold the table to what was promised."""
        template = self._template(step)
        place = self._copied(template)
        before = _files(place)
        ended = self._taken(step, place / "table", fault, at)
        _judge(STEPS[step], template.states, place / "table", FAULTS[fault], ended, before)
        shutil.rmtree(place)
        return ended

    def _copied(self, template: _Template) -> Path:
        self._rounds += 1
        place = self._folder / f"round-{self._rounds}"
        place.mkdir()
        if template.folder.exists():
            shutil.copytree(template.folder, place / "table")
        return place

    def _taken(self, step: str, folder: Path, fault: str, at: int) -> Ended:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([step, str(folder), fault, at]) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        assert answer.get("killed") in (None, signal.SIGKILL), f"the step ended by signal {answer['killed']}"
        return Ended(answer.get("calls"), "killed" in answer, answer.get("error"))

    def _template(self, step: str) -> _Template:
        if step not in self._templates:
            folder = self._folder / f"template-{step.replace(' ', '-')}"
            states = STEPS[step].prepare(folder)
            self._templates[step] = _Template(folder, {version: contents(rows) for version, rows in states.items()})
        return self._templates[step]


@contextmanager
def workshop() -> Iterator[Rig]:
    """A rig in a folder of its own: in memory where there is such a disk, since nothing here outlives the test."""
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="zskip-torture-", dir=memory if memory.is_dir() else None) as folder,
        Rig(Path(folder)) as rig,
    ):
        yield rig


def _judge(
    step: Step, states: dict[int, list[str]], folder: Path, fault: Fault, ended: Ended, before: set[str]
) -> None:
    newest = max(states, default=0)
    was, wanted = states.get(newest), contents(step.after)
    assert ended.killed <= fault.kills, "killed by something else"
    found = _read(folder)
    if ended.killed:
        assert found in (was, wanted), "the rows are neither those before nor those after"
    elif ended.error is None:
        assert found == wanted, "the step ended well, and the rows are not those after it"
    elif ended.error.startswith("UncertainCommit"):
        assert found in (was, wanted), f"the rows are neither those before nor those after: {ended.error}"
        assert fault.how is How.FAIL_ON, f"the disk works again, and the commit is uncertain: {ended.error}"
    else:
        assert str(folder.parent) in ended.error, f"the error names no path: {ended.error}"
        assert found == was, f"the step failed, and the rows are not those before it: {ended.error}"
        if not fault.lasts and not step.commits_before:
            left = sorted(_files(folder.parent) - before)
            assert not left, f"the step failed, and left {len(left)} files such as {left[0]}: {ended.error}"
    _be_committed(folder, states, newest)
    if found != wanted:
        step.act(folder)
        assert _read(folder) == wanted, "the step was taken again, and the rows are not those after it"
    _be_workable(folder, step.after)


def _be_workable(folder: Path, rows: Rows) -> None:
    """Whatever happened: the next commit succeeds, the proofs hold, and vacuum leaves the table and nothing else."""
    table = zskip.open(folder)
    if table._index.snapshot.managed:
        table.append(NEXT)
        rows = joined(rows, NEXT)
    else:
        table.refresh()
    wanted = contents(rows)
    assert _read(folder) == wanted, "the next commit does not hold its rows and those before"
    verified = table.verify(random=1, sample=3)
    assert verified.clean, str(verified)
    table.vacuum("0 days")
    assert not table.vacuum("0 days").paths, "a second vacuum found something"
    assert _read(folder) == wanted, "vacuum took rows"
    assert _files(folder) == _named(folder), f"not the table's: {sorted(_files(folder) ^ _named(folder))}"


def _read(folder: Path) -> list[str] | None:
    """The rows of the table; None where there is none, or one that must be repaired."""
    try:
        table = zskip.open(folder)
        return contents(table.to_arrow())
    except (TableNotFound, DamagedIndex):
        return None


def _be_committed(folder: Path, states: dict[int, list[str]], newest: int) -> None:
    """Every version that the log still holds can be read, and is what it was."""
    if not (folder / "_zskip").exists() or not states:
        return
    for entry in log.history(open_storage(folder)):
        if entry.version <= newest:
            with suppress(FilesRemoved):  # a vacuum that was killed had begun to remove the files that cluster replaced
                rows = contents(zskip.open(folder, version=entry.version).to_arrow())
                assert rows == states[entry.version], f"version {entry.version} is not what it was"


def _files(folder: Path) -> set[str]:
    """All files below a folder but the hint, and the entries of the log, which stay."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    names = {path: path.partition(f"{log.LOG}/")[2] for path in found}
    return {path for path in found if not path.endswith(log.HINT) and not log.ENTRY.fullmatch(names[path])}


def _named(folder: Path) -> set[str]:
    """The files that the newest version is made of."""
    storage = open_storage(folder)
    snapshot = log.load(storage)
    index = Index(storage, snapshot)
    return {*index.paths(np.arange(len(index))).to_pylist(), *(part.path for part in snapshot.parts)}
