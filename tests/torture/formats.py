"""Delta and Iceberg tables laid out again and again beside their own writers, all of them killed, stopped, interrupted.

Each writer notes on disk what it is about to append or delete, and what the format's library has acknowledged. After a
round, the library reads the table: it has every acknowledged row once, no row whose deletion was acknowledged, and
every version that zskip made can be read.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from tests.table_formats.logs import Delta, Iceberg
from tests.torture.lives import PROCESSES

_SECONDS = 30.0
_BATCH = 5


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([(7 * each) % 100 for each in ids], pa.int64())})


class DeltaHome(Delta):
    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.log = self.path / "_delta_log"

    def versions(self) -> Iterator[pa.Table]:
        """The newest version, then all others."""
        for version in range(self.version(), -1, -1):
            yield pa.table(DeltaTable(self.path, version=version).scan())


class IcebergHome(Iceberg):
    def __init__(self, home: Path) -> None:
        self.catalog = SqlCatalog("c", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}")
        self.catalog.create_namespace_if_not_exists("n")
        self.catalog.create_table_if_not_exists("n.t", rows(0, 0).schema)
        self.log = home / "n" / "t" / "metadata"

    def versions(self) -> Iterator[pa.Table]:
        table = self.given()
        for snapshot in reversed(table.snapshots()):
            yield table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()


FORMATS: dict[str, Callable[[Path], DeltaHome | IcebergHome]] = {"delta": DeltaHome, "iceberg": IcebergHome}


def _writer(kind: str, home: Path, number: int) -> None:
    os.environ["XDG_CACHE_HOME"] = str(home / "cache")
    table, notes = FORMATS[kind](home), home / f"notes-{number}"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    choose = random.Random(number)
    with notes.open("a") as file:

        def note(*what: object) -> None:
            file.write(json.dumps(what) + "\n")
            file.flush()

        own: list[int] = []
        for turn in range(1_000):
            first = (number * 1_000 + turn) * _BATCH
            with suppress(Exception):  # conflicts of the library
                if own and choose.random() < 0.3:
                    gone = own.pop(choose.randrange(len(own)))
                    note("deletes", gone)
                    table.delete(f"id = {gone}")
                    note("deleted", gone)
                else:
                    note("appends", first)
                    table.append(rows(first, _BATCH))
                    note("appended", first)
                    own.extend(range(first, first + _BATCH))


def _clusterer(kind: str, home: Path, number: int) -> None:
    os.environ["XDG_CACHE_HOME"] = str(home / "cache")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    table = FORMATS[kind](home)
    while True:
        with suppress(Exception):
            table.cluster(by=["v", "id"], files=3, full=True)


def round_of(kind: str, home: Path, seed: int, enough: int = 12) -> int:
    """One round; the number of versions of the table after it. Raises `AssertionError`.

    ``enough``: it ends after so many acknowledged changes, or half a minute.
    """
    choose = random.Random(seed)
    home.mkdir(parents=True, exist_ok=True)
    table = FORMATS[kind](home)
    table.append(rows(0, _BATCH))
    running: list[tuple[Any, Callable[..., None]]] = []

    def start(role: Callable[..., None]) -> None:
        process = PROCESSES.Process(target=role, args=(kind, home, len(running) + 1), daemon=True)
        process.start()
        running.append((process, role))

    try:
        for role in (_writer, _writer, _clusterer, _clusterer):
            start(role)
        end = time.monotonic() + _SECONDS
        while _acknowledged(home) < enough and time.monotonic() < end:
            time.sleep(choose.uniform(0.1, 1.0))
            process, role = choose.choice([one for one in running if one[0].is_alive()])
            way = choose.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGINT])
            if choose.random() < 0.5:
                # A layout is interrupted as soon as its commit can be seen.
                _wait_for_layout(table.log)
                clusterers = [one for one in running if one[1] is _clusterer and one[0].is_alive()]
                process, role, way = *choose.choice(clusterers), signal.SIGINT
            with suppress(ProcessLookupError):
                os.kill(process.pid, way)
                if way is signal.SIGSTOP:
                    time.sleep(choose.uniform(0, 0.3))
                    os.kill(process.pid, signal.SIGCONT)
            if way is not signal.SIGSTOP:
                start(role)
    finally:
        for process, _ in running:
            process.kill()
            process.join()
    return _check(table, home)


def _wait_for_layout(log: Path) -> None:
    """Wait for the next file of a log that zskip writes, or two seconds."""
    known = set(log.glob("*.json"))
    end = time.monotonic() + 2
    while time.monotonic() < end:
        for path in set(log.glob("*.json")) - known:
            known.add(path)
            with suppress(OSError):
                if b"zskip" in path.read_bytes():
                    return


def _acknowledged(home: Path) -> int:
    return sum(notes.read_text().count('ed"') for notes in home.glob("notes-*"))


def _check(table: DeltaHome | IcebergHome, home: Path) -> int:
    noted: dict[str, set[int]] = {name: set() for name in ("appends", "appended", "deletes", "deleted")}
    for notes in home.glob("notes-*"):
        for line in notes.read_text().splitlines():
            with suppress(ValueError):  # cut by a kill
                what, number = json.loads(line)
                batch = range(number, number + _BATCH) if what.startswith("append") else [number]
                noted[what].update(batch)
    surely = (noted["appended"] | set(range(_BATCH))) - noted["deletes"]
    maybe = (noted["appends"] | set(range(_BATCH))) - noted["deleted"]
    versions = 0
    for number, found in enumerate(table.versions()):
        counted = Counter(found["id"].to_pylist())
        assert max(counted.values(), default=1) == 1, f"rows twice: {counted.most_common(3)}"
        if number == 0:
            assert surely <= counted.keys(), f"lost: {sorted(surely - counted.keys())[:5]}"
            assert counted.keys() <= maybe, f"too many: {sorted(counted.keys() - maybe)[:5]}"
        versions += 1
    return versions
