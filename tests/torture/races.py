"""Races: processes that change one table at once, while others read it; held to the serial history of what they did."""

from __future__ import annotations

import collections
import queue
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import zskip
from tests.torture.lives import PROCESSES, contents, joined, rows_of
from zskip.errors import CommitConflict
from zskip.tablelog import log

Options = Mapping[str, Any] | None
BEGUN = rows_of(0, 1000)
READERS = 2
PATIENCE_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Done:
    """A commit, as its writer knows it; version 0 where there was nothing to do.

    ``numbers``: the first id that it added and the one behind the last, or divisor and remainder of those that it
    deleted · ``rows``: how many those were.
    """

    version: int
    verb: str
    numbers: tuple[int, int] = (0, 0)
    rows: int = 0


@dataclass(slots=True)
class Work:
    """What one writer did, and what that cost: entries lost to others, conflicts it was told of, seconds by verb."""

    done: list[Done] = field(default_factory=list)
    lost: int = 0
    conflicts: collections.Counter[str] = field(default_factory=collections.Counter)
    seconds: collections.Counter[str] = field(default_factory=collections.Counter)


@dataclass(frozen=True, slots=True)
class Raced:
    """What a race came to."""

    commits: int
    seconds: float
    seen: int
    works: tuple[Work, ...]

    def __str__(self) -> str:
        lost = sum(work.lost for work in self.works)
        conflicts = sum((work.conflicts for work in self.works), collections.Counter())
        seconds = sum((work.seconds for work in self.works), collections.Counter())
        verbs = collections.Counter(done.verb for work in self.works for done in work.done)
        told = ", ".join(
            f"{verbs[verb]} of {verb} ({conflicts[verb]} refused, {spent / max(verbs[verb], 1):.2f} s each)"
            for verb, spent in sorted(seconds.items())
        )
        return (
            f"{self.commits} commits by {len(self.works)} writers in {self.seconds:.1f} s: {told}; "
            f"{lost} entries were lost to others; readers saw {self.seen} states, each a committed one"
        )


def race(url: str, options: Options, *, writers: int, commits: int, seed: int = 0) -> Raced:
    """Race so many writers with so many commits each, and readers, over a new table; then check every version."""
    zskip.write(BEGUN, url, by=["host", "port"], files=4, row_group_rows=100, storage_options=options)
    answers, over = PROCESSES.Queue(), PROCESSES.Event()
    started = time.monotonic()
    pool = [
        *(PROCESSES.Process(target=_write, args=(url, options, n, commits, seed, answers)) for n in range(writers)),
        *(PROCESSES.Process(target=_read, args=(url, options, over, answers)) for _ in range(READERS)),
    ]
    for process in pool:
        process.start()
    try:
        works = [_answer(answers, pool) for _ in range(writers)]
        seconds = time.monotonic() - started
        over.set()
        seen = [state for _ in range(READERS) for state in _answer(answers, pool)]
    finally:
        for process in pool:
            process.join(10)
            process.kill()
    _be_serial(url, options, [done for work in works for done in work.done], writers * commits, seen)
    return Raced(writers * commits, seconds, len(seen), tuple(works))


def _answer(answers: Any, pool: list[Any]) -> Any:
    try:
        found = answers.get(timeout=PATIENCE_SECONDS)
    except queue.Empty:
        raise AssertionError(f"no writer or reader was done in {PATIENCE_SECONDS} s") from None
    assert not isinstance(found, str), found
    return found


def _be_serial(url: str, options: Options, done: list[Done], commits: int, seen: list[tuple[int, list[int]]]) -> None:
    """Every commit is in the history once, and every version is what the one before and its commit make."""
    assert sorted(each.version for each in done) == list(range(2, commits + 2)), "a commit was lost, or made twice"
    ids = set(range(len(BEGUN)))
    states = {1: sorted(ids)}
    for each in sorted(done, key=lambda each: each.version):
        one, other = each.numbers
        change = set()
        if each.verb == "append":
            change = set(range(one, other))
            assert not change & ids
            ids |= change
        elif each.verb == "delete":
            change = {id for id in ids if id % one == other}
            ids -= change
        assert each.rows == len(change), f"{each} should have been {len(change)} rows"
        states[each.version] = sorted(ids)
    for version, known in seen:
        assert known == states[version], f"a reader saw of version {version} what was never committed"
    for version, known in states.items():
        table = zskip.open(url, version=version, storage_options=options)
        assert sorted(table.to_arrow(["id"]).column("id").to_pylist()) == known, f"version {version} is another one"
        assert table._index.snapshot.totals.rows == len(known)
    whole = joined(*(rows_of(id, id + 1) for id in states[commits + 1]))
    assert contents(zskip.open(url, storage_options=options).to_arrow()) == contents(whole)
    assert [entry.version for entry in table.history()] == list(range(commits + 1, 0, -1))
    verified = zskip.open(url, storage_options=options).verify(random=3)
    assert verified.clean, str(verified)


def _write(url: str, options: Options, writer: int, commits: int, seed: int, answers: Any) -> None:
    try:
        answers.put(_written(url, options, writer, commits, np.random.default_rng([seed, writer])))
    except BaseException as error:
        answers.put(f"writer {writer}: {type(error).__name__}: {error}")
        raise


def _written(url: str, options: Options, writer: int, commits: int, dice: np.random.Generator) -> Work:
    work = Work()
    real = log.create

    def counted(*args: Any) -> bool:
        made = real(*args)
        work.lost += not made
        return made

    log.create = counted
    while len(work.done) < commits:
        table = zskip.open(url, storage_options=options)
        verb = str(dice.choice(["append", "append", "append", "delete", "optimize"]))
        started = time.monotonic()
        try:
            done = _turn(table, verb, 100_000 * (writer + 1) + 100 * len(work.done), dice)
        except CommitConflict:
            work.conflicts[verb] += 1
            continue
        finally:
            work.seconds[verb] += time.monotonic() - started
        if done.version:
            work.done.append(done)
    return work


def _turn(table: zskip.Table, verb: str, first: int, dice: np.random.Generator) -> Done:
    if verb == "append":
        stop = first + int(dice.integers(1, 50))
        added = table.append(rows_of(first, stop))
        return Done(added.version, verb, (first, stop), added.rows)
    if verb == "delete":
        divisor = int(dice.integers(7, 30))
        remainder = int(dice.integers(divisor))
        gone = table.delete(f"id % {divisor} = {remainder}")
        return Done(gone.version if gone.rows else 0, verb, (divisor, remainder), gone.rows)
    merged = table.optimize()
    return Done(merged.version if merged.files_rewritten else 0, verb)


def _read(url: str, options: Options, over: Any, answers: Any) -> None:
    seen = []
    try:
        while not over.is_set():
            table = zskip.open(url, storage_options=options)
            seen.append((table.version, sorted(table.to_arrow(["id"]).column("id").to_pylist())))
        answers.put(seen)
    except BaseException as error:
        answers.put(f"reader: {type(error).__name__}: {error}")
        raise
