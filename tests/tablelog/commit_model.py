"""A model of commits and vacuums at the same time, in which every interleaving of their steps can be searched.

The store holds a log, whose entries are created only if their number is free and are never removed, and the files of
runs. Version 1 holds the run a; version 2 replaced it by b. A process may stop anywhere for ever. So in every state:

1. the files of every version that has not expired are there;
2. the rows of every acknowledged append are in the newest version, unless a later restore left them out;
3. no run was replaced twice, which would double its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

RULES = {
    "doomed": "a writer whose run a later vacuum dooms is refused",
    "expired": "a writer whose base has expired is refused",
    "retained": "a restore that lost the race looks again whether its version has expired",
    "looks again": "a vacuum that lost the race looks again for what is named",
    "live": "a rewrite that lost the race looks again for the files that it replaces",
}


class Entry(NamedTuple):
    """A version. ``add``, ``remove``, ``doomed``: runs · ``horizon``: the oldest version that stays, 0 for any."""

    verb: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    horizon: int = 0
    doomed: tuple[str, ...] = ()


class Process(NamedTuple):
    """A verb under way: the step that is next, and what it remembers."""

    verb: str
    step: str = "begin"
    since: int = 0
    base: int = 0
    runs: tuple[str, ...] = ()


class State(NamedTuple):
    """The log, oldest entry first; the runs whose files are there; the processes."""

    log: tuple[Entry, ...]
    files: frozenset[str]
    processes: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Search:
    """How many states there are, and the first promise that one of them breaks."""

    states: int
    broken: str | None


FIRST = (Entry("write", ("a",)), Entry("write", ("b",), ("a",)))


def search(verbs: tuple[str, ...], without: str | None = None) -> Search:
    """Search all states that some verbs can reach together. ``without``: the rule to leave out."""
    start = State(FIRST, frozenset({"a", "b"}), tuple(map(Process, verbs)))
    seen, pending = {start}, [start]
    while pending:
        state = pending.pop()
        if (broken := _broken(state)) is not None:
            return Search(len(seen), broken)
        for number in range(len(verbs)):
            for after in _steps(state, number, without):
                if after not in seen:
                    seen.add(after)
                    pending.append(after)
    return Search(len(seen), None)


def _steps(state: State, number: int, without: str | None) -> Iterator[State]:
    """The states after the next step of a process."""
    process = state.processes[number]
    if process.step == "end":
        return
    log, files = state.log, state.files
    match process.verb.rstrip("0123456789"):
        case "append" | "rewrite":
            after, log, files = _write(process, log, files, without)
        case "restore":
            after, log = _restore(process, log, without)
        case _:
            after, log, files = _vacuum(process, log, files, without)
    yield State(log, files, (*state.processes[:number], after, *state.processes[number + 1 :]))


Log = tuple[Entry, ...]


def _write(
    process: Process, log: Log, files: frozenset[str], without: str | None
) -> tuple[Process, Log, frozenset[str]]:
    rewrites = process.verb.startswith("rewrite")
    match process.step:
        case "begin":
            if rewrites and "b" not in _live(log, len(log)):
                return process._replace(step="end"), log, files
            return process._replace(step="write", since=len(log), base=len(log)), log, files
        case "write":
            return process._replace(step="create"), log, files | {process.verb}
        case "create" if len(log) == process.base:
            return process._replace(step="end"), (*log, Entry("write", (process.verb,), ("b",) * rewrites)), files
        case "create":
            return process._replace(step="look"), log, files
        case _:
            refused = (
                (process.since < _horizon(log) and without != "expired")
                or (process.verb in _doomed(log, process.since, without) and without != "doomed")
                or (rewrites and "b" not in _live(log, len(log)) and without != "live")
            )
            return process._replace(step="end" if refused else "create", base=len(log)), log, files


def _restore(process: Process, log: Log, without: str | None) -> tuple[Process, Log]:
    if process.step == "create" and len(log) == process.base:
        return process._replace(step="end"), (*log, Entry("restore", tuple(sorted(_live(log, 1)))))
    if process.step == "create":
        return process._replace(step="look"), log
    expired = _horizon(log) > 1 and (process.step == "begin" or without != "retained")
    return process._replace(step="end" if expired else "create", base=len(log)), log


def _vacuum(
    process: Process, log: Log, files: frozenset[str], without: str | None
) -> tuple[Process, Log, frozenset[str]]:
    match process.step:
        case "begin":
            return process._replace(step="list", base=len(log)), log, files
        case "list":
            return process._replace(step="create", runs=tuple(sorted(files - _live(log, process.base)))), log, files
        case "create" if len(log) == process.base:
            made = Entry("vacuum", horizon=process.base, doomed=process.runs)
            return process._replace(step="remove" if process.runs else "end"), (*log, made), files
        case "create":
            again = process._replace(base=len(log)) if without == "looks again" else Process(process.verb)
            return again, log, files
        case _:
            left = process._replace(runs=process.runs[1:], step="remove" if process.runs[1:] else "end")
            return left, log, files - {process.runs[0]}


def _live(log: Log, version: int) -> frozenset[str]:
    """The runs of a version."""
    held: frozenset[str] = frozenset()
    for entry in log[:version]:
        if entry.verb == "restore":
            held = frozenset(entry.add)
        else:
            held = (held - set(entry.remove)) | set(entry.add)
    return held


def _horizon(log: Log) -> int:
    """The oldest version that has not expired."""
    return max(1, *(entry.horizon for entry in log))


def _doomed(log: Log, since: int, without: str | None) -> set[str]:
    """The runs that vacuums after a version doom. ``without``: the entries of expired versions cannot be read."""
    first = max(since, _horizon(log) - 1) if without == "expired" else since
    return {run for entry in log[first:] for run in entry.doomed}


def _broken(state: State) -> str | None:
    """The promise that a state breaks."""
    log = state.log
    for version in range(_horizon(log), len(log) + 1):
        if missing := _live(log, version) - state.files:
            return f"version {version} of {len(log)} lacks {sorted(missing)}"
    for position, entry in enumerate(log):
        for run in entry.add if entry.verb == "write" else ():
            left_out = any(later.verb == "restore" and run not in later.add for later in log[position + 1 :])
            if run.startswith("append") and not left_out and run not in _live(log, len(log)):
                return f"{run} is lost"
    replaced = [run for entry in log for run in entry.remove]
    if len(replaced) > len(set(replaced)) and not any(entry.verb == "restore" for entry in log):
        return f"{replaced} were replaced: rows are there twice"
    return None
