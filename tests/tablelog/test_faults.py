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

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import zskip
from tests.clouds import STORES, unavailable
from zskip import tablelog
from zskip.errors import UncertainCommit
from zskip.storage import Storage, open_storage

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
    """A storage whose ``at``-th call fails. ``lasting``: so do all reads after it, as where the store is gone."""

    def __init__(self, inner: Storage, fault: str, at: int, lasting: bool = False) -> None:
        self.inner, self.fault, self.at, self.lasting = inner, fault, at, lasting
        self.calls = 0
        self.late: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.inner, name)
        if name not in (*WRITES, *READS):
            return real

        def call(*given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.lasting and self.at and self.calls > self.at and name in READS:
                raise ConnectionResetError("the store is gone")
            if self.calls != self.at:
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


VERBS: dict[str, tuple[Callable[[zskip.Table], object], set[int]]] = {
    "append": (lambda table: table.append(rows(100)), {*range(30), *range(100, 110)}),
    "delete": (lambda table: table.delete("id < 15"), {*range(15, 30)}),
    "overwrite": (lambda table: table.overwrite(rows(500)), {*range(500, 510)}),
    "optimize": (lambda table: table.optimize(full=True), {*range(30)}),
    "restore": (lambda table: table.restore(1), {*range(10)}),
    "vacuum": (lambda table: table.vacuum("0 days"), {*range(30)}),
}


def begun(url: str, options: Any) -> zskip.Table:
    table = zskip.write(rows(0), url, by=["id"], storage_options=options)
    table.append(rows(10))
    table.append(rows(20))
    return table


def check(url: str, options: Any, verb: str, fault: str, at: int, lasting: bool = False) -> bool:
    """One round; False if the verb makes fewer calls."""
    table = begun(url, options)
    faulty: Any = Faulty(table._storage, fault, at, lasting)
    table._storage = faulty
    error: BaseException | None = None
    try:
        VERBS[verb][0](table)
    except (Exception, KeyboardInterrupt) as raised:
        error = raised
    for arrive in faulty.late:
        arrive()
    before, after = set(range(30)), VERBS[verb][1]
    what = f"{verb}, {fault} at call {at}: {error!r}"
    opened = zskip.open(url, storage_options=options)
    storage = open_storage(url, options)
    for version in range(opened.snapshot.horizon, opened.version + 1):
        tablelog.require_files(storage, tablelog.load(storage, version))
    found = set(opened.to_arrow().column("id").to_pylist())
    if error is None:
        assert found == after, what
    elif isinstance(error, UncertainCommit | KeyboardInterrupt):
        assert found in (before, after), what
    else:
        assert found == before, what
    opened.append(rows(900))
    assert set(zskip.open(url, storage_options=options).to_arrow().column("id").to_pylist()) == found | set(
        range(900, 910)
    ), what
    return bool(faulty.calls >= at)


def sweep(place: Callable[[], tuple[str, Any]], verb: str, fault: str, every: int, lasting: bool = False) -> int:
    at, rounds = 1, 0
    while check(*place(), verb, fault, at, lasting):
        at, rounds = at + every, rounds + 1
    return rounds


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: real(min(seconds, 0.001)))


@pytest.fixture
def disk(tmp_path: Path) -> Callable[[], tuple[str, Any]]:
    numbers = iter(range(100_000))
    return lambda: (str(tmp_path / str(next(numbers))), None)


@pytest.fixture(scope="module")
def s3() -> Iterator[Callable[[], tuple[str, Any]]]:
    if missing := unavailable("s3"):
        pytest.skip(missing)
    numbers = iter(range(100_000))
    with STORES["s3"]() as (url, options):
        yield lambda: (f"{url}/{next(numbers)}", options)


@pytest.mark.parametrize("fault", FAULTS)
def test_an_append_fails_at_every_call(fault: str, disk: Callable[[], tuple[str, Any]]) -> None:
    assert sweep(disk, "append", fault, 1) > 5


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_fails_at_every_call_on_a_disk(verb: str, fault: str, disk: Callable[[], tuple[str, Any]]) -> None:
    assert sweep(disk, verb, fault, 1) > 5


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", ["append", "delete", "vacuum"])
def test_a_verb_fails_at_every_call_over_a_store(verb: str, fault: str, s3: Callable[[], tuple[str, Any]]) -> None:
    assert sweep(s3, verb, fault, 1) > 5


def test_a_lost_answer_of_a_store_that_is_gone_keeps_the_files(s3: Callable[[], tuple[str, Any]]) -> None:
    """The entry is created and answered by an error, and so is every question whether it is there."""
    assert sweep(s3, "append", "unanswered", 1, lasting=True) > 5
