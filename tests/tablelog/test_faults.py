"""A fault at every call of the store: every live version has its files, and what was acknowledged is there.

| fault | the request | what the caller sees |
| --- | --- | --- |
| refused | is not done | an error of the system |
| lost | is not done | an error of the connection |
| unanswered | is done | an error of the connection |
| late | is done after the verb has ended | a time-out |
| other | is done | an error of another class |
| interrupted | is not done | KeyboardInterrupt |
| interrupted after | is done | KeyboardInterrupt |
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import zskip
from tests import one_in
from tests.clouds import Place
from zskip.cli.main import main
from zskip.errors import TableNotFound, UncertainCommit, ZskipError
from zskip.inspect.audit import doctor
from zskip.storage import Storage, open_storage
from zskip.storage.local import LocalStorage
from zskip.tablelog import indexing, log, vacuum
from zskip.writer.append import create
from zskip.writer.compaction.cluster import cluster_folder
from zskip.writer.options import WriteOptions
from zskip.writer.row_source import of_table

FAULTS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "refused": (lambda: PermissionError(13, "refused"), "no"),
    "lost": (lambda: ConnectionResetError("the connection was lost"), "no"),
    "unanswered": (lambda: OSError("500 after it was done"), "yes"),
    "late": (lambda: TimeoutError("no answer came"), "later"),
    "other": (lambda: RuntimeError("of another class"), "yes"),
    "interrupted": (KeyboardInterrupt, "no"),
    "interrupted after": (KeyboardInterrupt, "yes"),
}
WRITES = ("put", "put_once", "put_if_absent", "open_writer", "make_durable", "delete", "move")
READS = ("list", "names", "read", "read_range", "size_and_modified", "exists")


class Faulty:
    """A storage whose ``at``-th call fails, of those that are ``counted``.

    ``lasting``: so do all reads after it, as where the store is gone.
    """

    def __init__(self, inner: Storage, fault: str, at: int, lasting: bool, counted: tuple[str, ...]) -> None:
        self.inner, self.fault, self.at, self.lasting, self.counted = inner, fault, at, lasting, counted
        self.calls = 0
        self.late: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.inner, name)
        if name not in (*WRITES, *READS):
            return real

        def call(*given: Any, **named: Any) -> Any:
            if self.lasting and self.calls >= self.at and name in READS:
                raise ConnectionResetError("the store is gone")
            self.calls += name in self.counted
            if self.calls != self.at or name not in self.counted:
                return real(*given, **named)
            error, done = FAULTS[self.fault]
            if done == "yes" and name != "open_writer":
                real(*given, **named)
            if done == "later" and name == "put_if_absent":
                self.late.append(lambda: real(*given, **named))
            raise error()

        return call


def rows(first: int) -> pa.Table:
    return pa.table({"id": list(range(first, first + 10))})


@dataclass(frozen=True, slots=True)
class Verb:
    """``begin`` makes the table, or the folder, with the ids ``before`` · ``act``: on a faulty storage ·
    ``after``: the ids after it."""

    act: Callable[[Any], object]
    after: set[int]
    begin: Callable[[str, Any], object]
    before: frozenset[int] = frozenset(range(30))


def begun(url: str, options: Any) -> None:
    if options is not None:
        return written(url, options)
    shutil.copytree(kept(), url)  # a sweep begins at the same table many times
    return None


def written(url: str, options: Any) -> None:
    table = zskip.write(rows(0), url, by=["id"], storage_options=options)
    table.append(rows(10))
    table.append(rows(20))


@functools.cache
def kept() -> str:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    written(f"{folder.name}/t", None)
    return f"{folder.name}/t"


def folder(url: str, options: Any) -> None:
    for number in range(3):
        with open_storage(url, options).open_writer(f"{number}.parquet") as file:
            pq.write_table(rows(10 * number), file)


def indexed(url: str, options: Any) -> zskip.Table:
    folder(url, options)
    return zskip.index(url, storage_options=options)


def verb(act: Callable[[zskip.Table], object], after: set[int], begin: Callable[[str, Any], object] = begun) -> Verb:
    """A verb of a table."""

    def act_on(storage: Any) -> object:
        table = zskip.Table(storage.inner, log.load(storage.inner))
        table._storage = table._index.storage = table._index.parts = storage
        return act(table)

    return Verb(act_on, after, begin)


ALL = {*range(30)}
VERBS = {
    "append": verb(lambda table: table.append(rows(100)), ALL | {*range(100, 110)}),
    "upsert": verb(lambda table: table.upsert(rows(25), on="id"), ALL | {*range(30, 35)}),
    "delete": verb(lambda table: table.delete("id < 15"), {*range(15, 30)}),
    "overwrite": verb(lambda table: table.overwrite(rows(500)), {*range(500, 510)}),
    "optimize": verb(lambda table: table.optimize(full=True), ALL),
    "restore": verb(lambda table: table.restore(1), {*range(10)}),
    "vacuum": verb(lambda table: table.vacuum("0 days"), ALL),
    "sketch": verb(lambda table: table.add_sketches({"id": "values"}), ALL),
    "index": Verb(indexing.index_files, ALL, folder),
    "cluster": Verb(lambda storage: cluster_folder(storage, WriteOptions(by=("id",), files=2)), ALL, indexed),
    "write": Verb(
        lambda storage: create(storage, None, of_table(rows(0)), WriteOptions(by=("id",))),
        {*range(10)},
        lambda url, options: None,
        frozenset(),
    ),
}


def ids(url: str, options: Any) -> set[int]:
    """The ids of the table, or of the files of a folder that is none."""
    try:
        found = zskip.open(url, storage_options=options).to_arrow()
    except TableNotFound:
        storage = open_storage(url, options)
        paths = storage.list("", hidden=False).parquet().path.to_pylist()
        files = [pq.read_table(pa.BufferReader(storage.read(path))) for path in paths if "part-" not in path]
        found = pa.concat_tables(files or [rows(0).slice(0, 0)])
    return set(found.column("id").to_pylist())


def check(url: str, options: Any, name: str, fault: str, at: int, lasting: bool, counted: tuple[str, ...]) -> bool:
    """One round; False if the verb makes fewer calls."""
    verb = VERBS[name]
    verb.begin(url, options)
    storage = open_storage(url, options)
    faulty = Faulty(storage, fault, at, lasting, counted)
    error: BaseException | None = None
    try:
        verb.act(faulty)
    except (Exception, KeyboardInterrupt) as raised:
        error = raised
    for arrive in faulty.late:
        arrive()
    what = f"{name}, {fault} at call {at}: {error!r}"
    found = ids(url, options)
    if error is None:
        assert found == verb.after, what
    elif isinstance(error, UncertainCommit | KeyboardInterrupt):
        assert found in (verb.before, verb.after), what
    else:
        assert found == verb.before, what
    newest = log.newest(storage)
    if newest is None:
        return bool(faulty.calls >= at)
    for version in range(newest.horizon, newest.version + 1):
        vacuum.require_files(storage, log.load(storage, version))
    if newest.managed:
        table = zskip.open(url, storage_options=options)
        table.append(rows(900))
        table.vacuum("0 days")
        assert ids(url, options) == found | {*range(900, 910)}, what
    return bool(faulty.calls >= at)


def sweep(
    place: Callable[[], tuple[str, Any]],
    name: str,
    fault: str,
    lasting: bool = False,
    counted: tuple[str, ...] = (*WRITES, *READS),
) -> int:
    at = 1
    while check(*place(), name, fault, at, lasting, counted):
        at += 1
    return at


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: real(min(seconds, 0.001)))


@pytest.fixture
def disk(tmp_path: Path) -> Callable[[], tuple[str, Any]]:
    numbers = iter(range(100_000))
    return lambda: (str(tmp_path / str(next(numbers))), None)


@pytest.fixture
def s3(started: Callable[[str], Place], tmp_path: Path) -> Callable[[], tuple[str, Any]]:
    url, options = started("s3")
    numbers = iter(range(100_000))
    return lambda: (f"{url}/{tmp_path.name}/{next(numbers)}", options)


@pytest.mark.parametrize(
    ("fault", "lasting"),
    [("lost", False), ("unanswered", False), ("late", False), ("interrupted after", False), ("unanswered", True)],
)
def test_an_append_fails_at_every_write(fault: str, lasting: bool, disk: Callable[[], tuple[str, Any]]) -> None:
    """Lasting: the entry is created and answered by an error, and so is every question whether it is there."""
    assert sweep(disk, "append", fault, lasting, WRITES) > 5


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("lasting", [False, True])
def test_a_verb_fails_at_every_call_on_a_disk(
    name: str, fault: str, lasting: bool, disk: Callable[[], tuple[str, Any]]
) -> None:
    assert sweep(disk, name, fault, lasting) > 5


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["append", "delete", "vacuum", "cluster"])
def test_a_verb_fails_at_every_call_over_a_store(name: str, fault: str, s3: Callable[[], tuple[str, Any]]) -> None:
    assert sweep(s3, name, fault) > 5


@pytest.mark.slow
def test_a_lost_answer_of_a_bucket_that_is_gone_keeps_the_files(s3: Callable[[], tuple[str, Any]]) -> None:
    assert sweep(s3, "append", "unanswered", lasting=True) > 5


READING: dict[str, Callable[[str], object]] = {
    "open": lambda url: zskip.open(url).version,
    "rows": lambda url: sorted(zskip.open(url).plan("id = 5 OR id > 17").to_arrow()["id"].to_pylist()),
    "count": lambda url: zskip.open(url).plan("id > 12").count(),
    "sql": lambda url: sorted(zskip.sql(f"SELECT id FROM '{url}' WHERE id IN (5, 25)").fetchall()),
    "answered by the index": lambda url: zskip.sql(f"SELECT count(*), max(id) FROM '{url}'").fetchall(),
    "verify": lambda url: [check.wrong for check in zskip.open(url).verify().checks if check.wrong],
    "refresh": lambda url: (zskip.open(url).refresh(), zskip.open(url).count())[1],
    "doctor": lambda url: (found := doctor(url), found.files, found.unreadable)[1:],
    "info": lambda url: printed("info", url),
}


def printed(*command: str) -> str:
    """What a command prints as JSON, without the folder's address. Raises `ZskipError` if it fails."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as error:
        if main([*command, "--json"]):
            raise ZskipError(error.getvalue())
    return out.getvalue().replace(command[-1], "")


ERRNOS = {"failed": errno.EIO, "forbidden": errno.EACCES, "absent": errno.ENOENT}


def delta(url: str, _: Any) -> None:
    for first in (0, 10, 20):
        write_deltalake(url, rows(first), mode="append")


@pytest.mark.parametrize(("step", "begin"), one_in(2, READING, [begun, indexed, delta]))
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some calls", "each fault"])
def test_a_step_that_reads_fails_at_every_call(
    step: str, every: bool, begin: Callable[[str, Any], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the same result without what could not be read, or an error: of zskip, or the system's own.

    The first calls of all steps are those that open the table: each step begins at another call, with another fault.
    """
    begin(str(tmp_path / "t"), None)
    expected = READING[step](str(tmp_path / "t"))
    calls, fails_at, error = 0, -1, OSError()

    def failing(name: str) -> Callable[..., Any]:
        real = getattr(LocalStorage, name)

        def call(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == fails_at:
                raise error
            return real(*given, **named)

        return call

    for name in READS:
        monkeypatch.setattr(LocalStorage, name, failing(name))
    faults, first = list(ERRNOS), list(READING).index(step)
    fails_at = 0 if every else first % 3 - 2
    while calls >= fails_at:
        fails_at += 1 if every else 3
        for fault in faults if every else [faults[(first + fails_at) % len(faults)]]:
            url = shutil.copytree(tmp_path / "t", tmp_path / f"{fault} {fails_at}")  # of which nothing is cached
            calls, error = 0, OSError(ERRNOS[fault], os.strerror(ERRNOS[fault]))
            what = f"{step}, {fault} at call {fails_at}"
            with contextlib.suppress(ZskipError, type(error)):
                assert READING[step](str(url)) == expected, what
    assert fails_at > 2
