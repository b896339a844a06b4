"""Runs the real commit, restore and vacuum over a store in memory that hands control to a scheduler at its calls.

Each process is a thread, of which one runs at a time, from one call of the store to the next. What it does depends only
on what the store answered, so a state is the store's content and the answers that each process has seen: states that
were searched before are not searched again. In every state, wherever the processes may stop for ever:

1. the files of every version that has not expired are there;
2. the rows of every acknowledged append are in the newest version, unless a later restore left them out;
3. no file was replaced twice, which would double its rows.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from zskip.core.schema import Schema
from zskip.errors import CommitConflict, FilesRemoved, TableNotFound, UncertainCommit
from zskip.stats import DataFiles, FileStatistics
from zskip.storage import Listing, Storage
from zskip.tablelog import commit, log, runs
from zskip.tablelog import vacuum as tablelog_vacuum
from zskip.tablelog.index import Index
from zskip.tablelog.snapshot import Snapshot, from_bytes

SCHEMA = Schema(pa.schema({"a": pa.int64()}))


def data_file(storage: Storage, path: str) -> DataFiles:
    """One data file of four rows, which is put into the store."""
    storage.put(path, b"rows")
    one = FileStatistics(pa.array([4]), {})
    size, modified = pa.array([4]), pa.array([1])
    return DataFiles(pa.array([path]), size, modified, pa.nulls(1, pa.string()), one, one, np.array([0, 1]))


OLD = timedelta(days=-1)
"""The ``older_than`` of vacuums: everything is old."""

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class BrokenPromise(AssertionError):
    """A state that must not be."""


class _Stop(BaseException):
    """Ends a process where it stands, without any further effect on the store."""


class Memory:
    """A store in memory. ``turn`` is called before each call with its verb and first argument."""

    def __init__(self) -> None:
        self.uri = self.identity = "memory"
        self.local = Path("/nowhere")  # no requests at the same time, whose order would be left to chance
        self.objects: dict[str, bytes] = {}
        self.turn: Callable[[str, Any], None] = lambda verb, argument: None
        self.seen: Callable[[object], None] = lambda answer: None
        self.fate: Callable[[str], str] = lambda path: "done"
        self.late: list[tuple[str, bytes]] = []
        self.changes = 0

    def uri_of(self, path: str) -> str:
        return f"memory/{path}"

    def _answer(self, answer: Any) -> Any:
        self.seen(answer)
        return answer

    def exists(self, path: str) -> bool:
        return any(name.startswith(f"{path}/") for name in self.objects)  # no turn: a log's folder stays

    def names(self, folder: str, *, after: str = "") -> Sequence[str]:
        self.turn("names", folder)
        inside = [path[len(folder) + 1 :] for path in sorted(self.objects) if path.startswith(f"{folder}/")]
        return self._answer([name for name in inside if name > after])

    def list(self, prefix: str = "", *, hidden: bool = True) -> Listing:
        self.turn("list", prefix)
        paths = self._answer(sorted(path for path in self.objects if path.startswith(prefix)))
        return Listing.of((path, len(self.objects[path]), 1, None) for path in paths)

    def read(self, path: str) -> bytes:
        return self.read_range(path, 0, 1 << 60)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        self.turn("read", path)
        found = self._answer(self.objects.get(path))
        if found is None:
            raise FileNotFoundError(path)
        return found[start : start + length] if start >= 0 else found[start:][:length]

    def put(self, path: str, data: bytes) -> None:
        self.turn("put", path)
        self._write(path, data)

    def put_once(self, path: str, data: bytes) -> None:
        self.turn("put_once", path)
        self._write(path, data)

    def _write(self, path: str, data: bytes) -> None:
        self.objects[path] = data
        self.changes += 1

    def arrive(self, path: str, data: bytes) -> bool:
        """A request to create an object reaches the store; whether it does create it."""
        self.changes += 1
        return self.objects.setdefault(path, data) is data

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.turn("put_if_absent", path)
        fate = self.fate(path)
        if fate == "late":
            self.late.append((path, data))
        made = fate in ("done", "lost") and self.arrive(path, data)
        if fate in ("done", "busy"):
            return bool(self._answer(made))
        raise self._answer({"lost": OSError, "late": TimeoutError, "refused": RuntimeError}[fate](path))

    def make_durable(self, paths: Sequence[str]) -> None:
        return None

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.turn("delete", path)
            self.objects.pop(path, None)
            self.changes += 1

    def remove_empty(self, folder: str) -> None:
        return None


# --- the processes ---


def append(storage: Storage, name: str) -> Snapshot:
    base = log.load(storage)
    return commit.commit(
        storage, base, commit.TableUpdate("append", add=data_file(storage, f"part-000001-{name}.parquet"))
    )


def rewrite(storage: Storage, name: str) -> Snapshot:
    base = log.load(storage)
    files = data_file(storage, f"part-000001-{name}.parquet")
    return commit.commit(storage, base, commit.TableUpdate("optimize", add=files, remove=[SECOND]))


def restore(storage: Storage, name: str) -> Snapshot:
    older = log.load(storage, 1)
    return commit.commit(storage, log.load(storage), commit.TableUpdate("restore", restore=older))


def vacuum(storage: Storage, name: str) -> None:
    tablelog_vacuum.vacuum(storage, older_than=OLD)


def upkeep(storage: Storage, name: str) -> Snapshot:
    vacuum(storage, name)
    made = append(storage, name)
    vacuum(storage, name)
    return made


VERBS: dict[str, Callable[[Storage, str], Snapshot | None]] = {
    "append": append,
    "rewrite": rewrite,
    "restore": restore,
    "vacuum": vacuum,
    "upkeep": upkeep,
}
FIRST, SECOND = (f"part-00000{n}-{n:016x}.parquet" for n in (1, 2))
REFUSALS = (CommitConflict, TableNotFound, UncertainCommit)


@functools.cache
def begun() -> Mapping[str, bytes]:
    """A table of two versions: the second replaced the first's only file."""
    storage: Any = Memory()
    first = commit.commit(storage, None, commit.TableUpdate("write", add=data_file(storage, FIRST), schema=SCHEMA))
    commit.commit(storage, first, commit.TableUpdate("overwrite", add=data_file(storage, SECOND), remove=[FIRST]))
    return MappingProxyType(storage.objects)


def _locked() -> threading.Lock:
    """A lock for one thread to wait for until another one releases it; quicker than a semaphore."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass
class _Process:
    """One verb under way. ``answers``: a digest of all that the store has answered it."""

    verb: str
    name: str
    run: Callable[[Storage, str], Snapshot | None]
    go: threading.Lock = field(default_factory=_locked)
    waiting: tuple[str, Any] | None = None
    answers: Any = field(default_factory=hashlib.sha256)
    tokens: int = 0
    ended: bool = False
    made: Snapshot | None = None
    error: BaseException | None = None
    raising: BaseException | None = None


class _Execution:
    """Some processes over one store, of which `step` lets one go on to its next turn."""

    def __init__(self, verbs: Sequence[str], objects: Mapping[str, bytes], turns: frozenset[str]) -> None:
        self.storage = Memory()
        self.storage.objects = dict(objects)
        self.turns, self.stopped = turns, False
        self.back = _locked()
        self.processes = [_Process(verb, f"{number + 3:016x}", VERBS[verb]) for number, verb in enumerate(verbs)]
        self.current: dict[int, _Process] = {}
        self.restored: set[int] = set()  # the versions that a restore made, even if they have expired since
        self.storage.turn, self.storage.seen = self._turn, self._seen
        for process in self.processes:
            threading.Thread(target=self._run, args=(process,), daemon=True).start()
            self.back.acquire()  # until its first turn

    def _run(self, process: _Process) -> None:
        self.current[threading.get_ident()] = process
        _TOKENS[threading.get_ident()] = process
        try:
            process.made = process.run(self.storage, process.name)  # type: ignore[arg-type]  # of a Storage, what is asked
        except BaseException as error:
            process.error = error
        process.ended = True
        del _TOKENS[threading.get_ident()], self.current[threading.get_ident()]
        self.back.release()

    def _wait(self, process: _Process) -> None:
        self.back.release()
        process.go.acquire()
        if self.stopped:
            raise _Stop
        if process.raising is not None:
            error, process.raising = process.raising, None
            raise error

    def _turn(self, verb: str, argument: Any) -> None:
        process = self.current.get(threading.get_ident())
        if process is None:
            return  # a thread that a process started and waits for
        if self.stopped:
            raise _Stop
        # Files of one's own, which nobody else names, are written in one turn, and removed in one.
        together = self.turns is COARSE and process.waiting is not None and verb == process.waiting[0] != "names"
        # The hint is no authority: whether it is written sooner or later makes no difference.
        if verb in self.turns and not together and argument != log.HINT:
            process.waiting = (verb, argument)
            self._wait(process)

    def _seen(self, answer: object) -> None:
        process = self.current.get(threading.get_ident())
        if process is not None:
            process.answers.update(repr(answer).encode())

    def step(self, number: int) -> None:
        self.processes[number].go.release()
        self.back.acquire()

    def able(self) -> list[int]:
        return [number for number, process in enumerate(self.processes) if not process.ended]

    def key(self) -> bytes:
        digest = hashlib.sha256()
        for path, data in sorted(self.storage.objects.items()):
            if path != log.HINT:
                digest.update(path.encode() + hashlib.sha256(data).digest())
        for process in self.processes:
            digest.update(process.answers.digest() + repr((process.ended, process.waiting)).encode())
        return digest.digest()

    def close(self) -> None:
        self.stopped = True
        for number in self.able():
            self.step(number)

    # --- the promises ---

    def check(self) -> None:
        """Raise `BrokenPromise` if one of them does not hold in this state."""
        objects = self.storage.objects
        entries: dict[int, bytes] = {}
        for path, data in objects.items():
            name = path.removeprefix(f"{log.LOG}/")
            if name != path and log.ENTRY.fullmatch(name) and len(data) > 64:
                entries[log.version_of(path)] = data
        newest = _parsed(entries[max(entries)])
        for version in range(newest.horizon, newest.version + 1):
            if version not in entries:
                raise BrokenPromise(f"version {version} of {newest.version} has no entry")
            if missing := [path for path in _files(objects, entries[version]) if path not in objects]:
                raise BrokenPromise(f"version {version} of {newest.version} lacks {missing}")
        now = set(_files(objects, entries[newest.version]))
        self.restored |= {version for version, each in entries.items() if _parsed(each).operation == "restore"}
        for process in self.processes:
            if isinstance(process.error, Exception) and not isinstance(process.error, REFUSALS):
                raise BrokenPromise(f"{process.verb}: {process.error!r}") from process.error
            if process.verb in ("append", "upkeep") and process.made is not None:
                left_out = max(self.restored, default=0) > process.made.version
                if f"part-000001-{process.name}.parquet" not in now and not left_out:
                    raise BrokenPromise(f"the rows of {process.name} are lost")
        rewrites = [process for process in self.processes if process.verb == "rewrite" and process.made is not None]
        if len(rewrites) > 1 and not self.restored:
            raise BrokenPromise("one file was replaced twice")


@functools.lru_cache(10_000)
def _parsed(entry: bytes) -> Snapshot:
    return from_bytes(entry, "an entry")


_FILES: dict[bytes, list[str]] = {}


def _files(objects: dict[str, bytes], entry: bytes) -> list[str]:
    """The parts and the data files of a version; the latter only if its parts are there, or were."""
    if entry not in _FILES:
        snapshot = _parsed(entry)
        parts = [part.path for part in snapshot.parts]
        if not all(part in objects for part in parts):
            return parts
        storage: Any = Memory()
        storage.objects = objects
        index = Index(storage, snapshot)
        _FILES[entry] = parts + [
            path for shard in range(len(snapshot.shards)) for path in index.shard_paths(shard).to_pylist()
        ]
    return _FILES[entry]


# --- all interleavings, and random ones ---

COARSE = frozenset({"names", "list", "put", "put_if_absent", "delete"})
FINE = COARSE | {"read", "put_once"}


def explore(verbs: Sequence[str], *, turns: frozenset[str] = COARSE) -> int:
    """Check every state that these processes can reach together; returns how many there are."""
    objects = begun()
    seen: set[bytes] = set()
    pending: list[list[int]] = [[]]
    while pending:
        path = pending.pop()
        execution = _Execution(verbs, objects, turns)
        try:
            for number in path:
                execution.step(number)
            while (key := execution.key()) not in seen:
                seen.add(key)
                execution.check()
                able = execution.able()
                if not able:
                    break
                pending += [[*path, number] for number in able[1:]]
                path = [*path, able[0]]
                execution.step(able[0])
        except BrokenPromise as error:
            raise BrokenPromise(f"{error}; the order of {list(verbs)}: {path}") from error
        finally:
            execution.close()
    return len(seen)


FATES = ("done",) * 8 + ("lost", "late", "refused", "busy")
"""What a request to create an object comes to. ``busy``: S3 refuses one while another for that object is under way."""


def wander(verbs: Sequence[str], seed: int, *, turns: frozenset[str] = FINE) -> None:
    """Check the states along one random way, on which answers are lost, and processes are interrupted or killed."""
    dice = np.random.default_rng(seed)
    execution = _Execution(verbs, begun(), turns)
    storage, checked = execution.storage, (0, 0)
    storage.fate = lambda path: str(dice.choice(FATES))
    killed: set[int] = set()
    try:
        while able := [number for number in execution.able() if number not in killed]:
            number = int(dice.choice(able))
            match dice.integers(60):
                case 0:
                    killed.add(number)
                    continue
                case 1:
                    execution.processes[number].raising = KeyboardInterrupt()
                case 2 if storage.late:
                    storage.arrive(*storage.late.pop())
            execution.step(number)
            if (state := (storage.changes, len(execution.able()))) != checked:
                checked = state
                execution.check()
        for late in storage.late:
            storage.arrive(*late)
        execution.check()
    except BrokenPromise as error:
        raise BrokenPromise(f"{error}; seed {seed} of {list(verbs)}") from error
    finally:
        execution.close()


# --- what is left to chance elsewhere ---

_TOKENS: dict[int, _Process] = {}
_OUTSIDE = itertools.count(1 << 40)


class _Clock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return MOMENT


def _token(size: int) -> str:
    """Digits that depend on the process and on how many it has asked for."""
    process = _TOKENS.get(threading.get_ident())
    if process is None:
        return f"{next(_OUTSIDE):0{2 * size}x}"
    process.tokens += 1
    return hashlib.sha256(f"{process.name} {process.tokens}".encode()).hexdigest()[: 2 * size]


@contextmanager
def one_clock() -> Iterator[None]:
    """Let no state depend on a clock, or on chance."""
    import secrets
    import time

    with pytest.MonkeyPatch.context() as patch:
        for module in ("snapshot", "commit", "vacuum"):
            patch.setattr(importlib.import_module(f"zskip.tablelog.{module}"), "datetime", _Clock)
        patch.setattr(importlib.import_module("zskip.tablelog.shards"), "INLINE_BYTES", 0)  # parts that can be lost
        patch.setattr(secrets, "token_hex", _token)
        patch.setattr(time, "sleep", lambda seconds: None)
        yield


# --- the real commits, restores and vacuums keep their promises however their calls of the store interleave ---


FIVE = ("append", "append", "rewrite", "restore", "vacuum")
LONG = int(os.environ.get("ZSKIP_WALKS", "2000"))
"""The number of random ways of the long form; 100,000 take some hours."""


@pytest.fixture(autouse=True)
def _one_clock() -> Iterator[None]:
    with one_clock():
        yield


@pytest.mark.parametrize("verbs", [("append", "vacuum"), ("restore", "vacuum"), ("rewrite", "rewrite")])
def test_two_at_a_time_in_every_order(verbs: tuple[str, ...]) -> None:
    """Those by which `test_without_a_rule_a_promise_breaks` finds each rule."""
    assert explore(verbs) > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verbs", "turns", "least"),
    [
        (("append", "append", "vacuum"), COARSE, 400),
        (("append", "restore", "vacuum"), COARSE, 400),
        (("rewrite", "rewrite", "vacuum"), COARSE, 400),
        (("append", "vacuum", "vacuum"), COARSE, 400),
        (("append", "upkeep"), COARSE, 400),
        (("append", "vacuum"), FINE, 50),
        (("restore", "vacuum"), FINE, 50),
        (("append", "append"), FINE, 50),
    ],
)
def test_more_verbs_and_all_their_calls_in_every_order(
    verbs: tuple[str, ...], turns: frozenset[str], least: int
) -> None:
    assert explore(verbs, turns=turns) > least


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(1000, 1000 + LONG), marks=pytest.mark.slow)])
def test_five_at_a_time_with_lost_answers_and_interrupts(seeds: range) -> None:
    for seed in seeds:
        wander(FIVE if seed % 2 else (*FIVE[:4], "vacuum", "vacuum"), seed)


def test_a_request_that_is_refused_beside_an_earlier_one_of_its_own() -> None:
    """The first request arrives late, and a store that is busy with it refuses the second: the rows came twice."""
    storage: Any = Memory()
    storage.objects = dict(begun())
    fates = ["late", "busy"]
    storage.fate = lambda path: fates.pop(0) if fates else "done"

    def arrives(verb: str, argument: object) -> None:
        if verb != "read" and not fates and storage.late:
            storage.arrive(*storage.late.pop())

    storage.turn = arrives
    made = append(storage, "a" * 16)
    index = Index(storage, log.load(storage))
    files = index.recorded_paths(np.arange(len(index))).to_pylist()
    assert (made.version, files) == (3, [SECOND, f"part-000001-{'a' * 16}.parquet"])


# --- each rule is needed ---


RULES = {
    "doomed": "a writer whose run a later vacuum dooms is refused",
    "expired": "a writer whose base has expired is refused",
    "retained": "a restore that lost the race looks again whether its version has expired",
    "looks again": "a vacuum that lost the race looks again for what is named",
    "live": "a rewrite that lost the race looks again for the files that it replaces",
}


def _blind_to(expiry: bool) -> Callable[..., None]:
    """The look of a writer that came second, without what it learns from expired versions, or from doomed runs."""
    look = runs.require_not_doomed

    def blind(storage: Any, newest: Snapshot, since: int, paths: list[str]) -> None:
        try:
            look(storage, replace(newest, horizon=1) if expiry else newest, since, paths)
        except FilesRemoved as error:
            if expiry == ("removes" in str(error)) and expiry != ("expired" in str(error)):
                raise

    return blind


def take_out(rule: str, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Take a rule out of the code; returns the verbs that need it."""
    commit, vacuum = (importlib.import_module(f"zskip.tablelog.{name}") for name in ("commit", "vacuum"))
    match rule:
        case "doomed":
            patch.setattr(commit, "require_not_doomed", _blind_to(expiry=False))
            return "append", "vacuum"
        case "expired":
            patch.setattr(commit, "require_not_doomed", _blind_to(expiry=True))
            return "append", "upkeep"
        case "retained":

            def restore(storage: Any, name: str) -> Snapshot:
                older = log.load(storage, 1)
                newest = log.load(storage)
                return commit.commit(storage, newest, commit.TableUpdate("restore", restore=replace(older, version=99)))

            patch.setitem(VERBS, "restore", restore)
            return "restore", "vacuum"
        case "looks again":
            look = vacuum._Named.add

            def once(named: Any, versions: Any) -> None:
                if not named._versions:
                    look(named, versions)

            patch.setattr(vacuum._Named, "add", once)
            return "append", "vacuum"
        case _:
            patch.setattr(commit, "_without", lambda drafts, snapshot, paths: (snapshot.shards, len(set(paths))))
            return "rewrite", "rewrite"


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_a_promise_breaks(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = take_out(rule, monkeypatch)
    with pytest.raises(BrokenPromise):
        explore(verbs)
