"""Stalls: processes in the middle of a verb that stop (SIGSTOP) for longer than a vacuum's time and go on, are
interrupted, or get an error in place of the store's answer."""

from __future__ import annotations

import collections
import functools
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

import zskip
from tests.torture.lives import PROCESSES
from zskip.errors import CommitConflict, FilesRemoved, UncertainCommit
from zskip.storage.local import LocalStorage

Options = Mapping[str, Any] | None
VACUUM_SECONDS = 0.2
WRITERS, BATCH_ROWS = 2, 5
ROUNDS_A_TABLE = 20
PATIENCE_SECONDS = 120
# At each of these calls, before or after, one of the fates may strike a process: these, or that it is killed.
CALLS = (
    "list",
    "names",
    "read",
    "read_range",
    "put",
    "put_once",
    "put_if_absent",
    "open_writer",
    "make_durable",
    "delete",
    "size_and_modified",
)
FATES = ("stops", "stops", "interrupted", "unanswered")
VERBS = ("append", "append", "append", "append", "delete", "optimize", "vacuum")


@dataclass(frozen=True, slots=True)
class Order:
    """What a writer is to do. ``numbers``: a batch's first id and the one behind its last · ``fate``: what strikes it,
    at call ``at``."""

    verb: str
    numbers: tuple[int, int]
    fate: str
    at: int


@dataclass(slots=True)
class Outcome:
    """What was done, and how the verbs ended of the processes that did it: how often each."""

    done: collections.Counter[str] = field(default_factory=collections.Counter)
    ended: collections.Counter[str] = field(default_factory=collections.Counter)

    def __str__(self) -> str:
        kinds = (
            ", ".join(f"{count:,} {what}" for what, count in sorted(kind.items())) for kind in (self.done, self.ended)
        )
        return "; ".join(kinds)


def stalls(url: str, options: Options, *, rounds: int, seed: int = 0) -> Outcome:
    """Stop writers in so many rounds; after each the newest version holds what was acknowledged, and nothing else."""
    dice = np.random.default_rng(seed)
    outcome = Outcome()
    with writers_of(WRITERS, options, _act) as writers:
        for number in range(rounds):
            if number % ROUNDS_A_TABLE == 0:
                place, ids = f"{url}/{number}", set(range(20))
                zskip.write(_rows(0, 20), place, by=["id"], storage_options=options)
            try:
                ids = _round(writers, place, options, ids, 1000 * (number + 1), dice, outcome)
            except Exception as error:
                raise AssertionError(f"seed {seed}, round {number}: {type(error).__name__}: {error}") from error
            outcome.done["rounds"] += 1
    return outcome


def _round(
    writers: list[Writer],
    url: str,
    options: Options,
    ids: set[int],
    first: int,
    dice: np.random.Generator,
    outcome: Outcome,
) -> set[int]:
    """One round; the ids that the table holds after it."""
    orders = []
    for number, writer in enumerate(writers):
        verb = str(dice.choice(VERBS))
        start = first + 100 * number if verb != "delete" else int(dice.choice(sorted(ids)))
        orders.append(Order(verb, (start, start + BATCH_ROWS), str(dice.choice(FATES)), int(dice.integers(1, 60))))
        writer.begin(url, orders[-1])
    outcome.done["stops"] += sum([writer.has_stopped() for writer in writers])
    for number in range(int(dice.integers(0, 4))):
        start = first + 500 + 100 * number
        try:
            zskip.open(url, storage_options=options).append(_rows(start, start + BATCH_ROWS))
        except FilesRemoved:  # the store's clock counts seconds: to a vacuum that stands still these files are old
            outcome.ended["append beside a vacuum FilesRemoved"] += 1
        else:
            ids |= set(range(start, start + BATCH_ROWS))
    time.sleep(1.1 * VACUUM_SECONDS)
    zskip.open(url, storage_options=options).vacuum(timedelta(seconds=VACUUM_SECONDS))
    for number in dice.permutation(len(writers)):
        writers[number].go_on()
    uncertain: set[int] = set()
    for writer, order in zip(writers, orders, strict=True):
        ended = writer.ended()[0]
        outcome.ended[f"{order.verb} {ended or 'done'}"] += 1
        batch = set(range(*order.numbers))
        if ended in (UncertainCommit.__name__, KeyboardInterrupt.__name__):
            uncertain |= batch
        elif not ended and order.verb == "append":
            ids |= batch
        elif not ended and order.verb == "delete":
            ids -= batch
    table = zskip.open(url, storage_options=options)
    found = set(table.to_arrow(["id"]).column("id").to_pylist())
    assert found - uncertain == ids - uncertain, f"lost: {sorted(ids - found)}, back: {sorted(found - ids)}; {orders}"
    assert table._index.snapshot.totals.rows == len(found), "the index counts other rows"
    versions = [entry.version for entry in table.history()]
    assert versions == list(range(table.version, table.version - len(versions), -1)), f"a stray entry: {versions}"
    return found


def _rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": range(start, stop)})


# --- the processes ---


@contextmanager
def writers_of(count: int, options: Options, act: Callable[[zskip.Table, Any], object]) -> Iterator[list[Writer]]:
    """Processes that do as they are told. ``act``: what an order means; its answer is sent back."""
    writers = [Writer(options, act) for _ in range(count)]
    try:
        yield writers
    finally:
        for writer in writers:
            writer.process.kill()
            writer.process.join()


class Writer:
    """A process that does as it is told, and stops itself, or is killed, on the way."""

    def __init__(self, options: Options, act: Callable[[zskip.Table, Any], object]) -> None:
        self._given = options, act
        self._start()

    def _start(self) -> None:
        self._line, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=_serve, args=(theirs, *self._given), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, url: str, order: Any) -> None:
        """``order``: with its fate, and the number of the call at which that strikes, as in `Order`."""
        self._line.send((url, order))

    def has_stopped(self) -> bool:
        """Wait until the process has stopped, or is done; which of them."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if self._line.poll(0.002):
                return False
            with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
                if file.read().rpartition(")")[2].split()[0] == "T":
                    return True
        raise AssertionError(f"a writer neither stopped nor ended in {PATIENCE_SECONDS} s")

    def go_on(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGCONT)

    def ended(self) -> tuple[str, Any]:
        """The name of the error that the verb ended with, and its text; where it was acknowledged "" and the answer.

        A process that was killed begins anew."""
        assert self._line.poll(PATIENCE_SECONDS), f"a writer did not end in {PATIENCE_SECONDS} s"
        try:
            name, answer = self._line.recv()
        except EOFError:
            self.process.join()
            self._start()
            return "killed", None
        assert name != "Unexpected", answer
        return str(name), answer


_calls = itertools.count(1)  # one number for each call, whichever thread makes it: a fate strikes once
_order: Any = Order("append", (0, 0), "stops", 0)


def _serve(line: Any, options: Options, act: Callable[[zskip.Table, Any], object]) -> None:
    global _calls, _order
    kinds: list[Any] = [LocalStorage]
    if options is not None:
        from zskip.storage.remote import ObjectStorage

        kinds.append(ObjectStorage)
    for kind in kinds:
        for name in CALLS:
            setattr(kind, name, _stricken(getattr(kind, name)))
    while True:
        url, _order = line.recv()
        _calls = itertools.count(1)
        try:
            line.send(("", act(zskip.open(url, storage_options=options), _order)))
        except (KeyboardInterrupt, OSError, CommitConflict) as error:
            line.send((type(error).__name__, str(error)))
        except Exception as error:
            line.send(("Unexpected", f"{_order}: {type(error).__name__}: {error}"))


def _act(table: zskip.Table, order: Order) -> None:
    start, stop = order.numbers
    match order.verb:
        case "append":
            table.append(_rows(start, stop))
        case "delete":
            table.delete(f"id >= {start} AND id < {stop}")
        case "optimize":
            table.optimize()
        case "vacuum":
            table.vacuum(timedelta(seconds=VACUUM_SECONDS))


def _stricken(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, before which or after which its fate strikes the process, where that is its turn."""

    @functools.wraps(call)
    def stricken(*given: Any, **named: Any) -> Any:
        _strike()
        answer = call(*given, **named)
        _strike()
        return answer

    return stricken


def _strike() -> None:
    if next(_calls) == _order.at:
        if _order.fate == "interrupted":
            raise KeyboardInterrupt
        if _order.fate == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if _order.fate == "unanswered":
            raise ConnectionResetError("the connection was lost")
        if _order.fate == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
