"""Histories: processes that upsert, append, delete and tend one table at once, some killed or stopped on the way.

Each version is held to the one before it, in DuckDB: it has what its writer acknowledged, or, where no writer did,
nothing new or what a writer wanted that was killed. So no row is lost, doubled, or old.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import zskip
from tests.torture.stalls import Outcome, Writer, writers_of
from zskip.errors import CommitConflict

WRITERS, ROUNDS, KEYS = 4, 5, 80
VERBS = ("upsert", "upsert", "upsert", "append", "delete", "optimize", "tend")
FATES = ("", "", "", "killed", "stops")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a writer is to do. ``keys``: of its rows, or the divisor and remainder of those that it deletes · ``stamp``:
    the value of its rows, which no other wish has · ``fate``, ``at``: as in `stalls.Order`"""

    verb: str
    keys: tuple[int, ...]
    stamp: int
    fate: str
    at: int

    @property
    def rows(self) -> pa.Table:
        return pa.table({"id": self.keys, "stamp": [self.stamp] * len(self.keys)})


def histories(folder: str, *, count: int, seed: int = 0) -> Outcome:
    outcome = Outcome()
    with writers_of(WRITERS, None, act) as writers:
        for number in range(seed, seed + count):
            try:
                _history(writers[: 1 + number % WRITERS], f"{folder}/{number}", number, outcome)
            except Exception as error:
                raise AssertionError(f"history {number}: {type(error).__name__}: {error}") from error
            outcome.done["histories"] += 1
    return outcome


def act(table: zskip.Table, wish: Wish) -> int:
    """Do it; the version that it made, 0 if there was nothing to change."""
    match wish.verb:
        case "upsert":
            return table.upsert(wish.rows, on="id").version
        case "append":
            return table.append(wish.rows).version
        case "delete":
            divisor, remainder = wish.keys
            deleted = table.delete(f"id % {divisor} = {remainder}")
            return deleted.version if deleted.rows else 0
        case "optimize":
            table.optimize(full=wish.stamp % 3 == 0)
        case "tend":
            table.tend()
    return 0


def _history(writers: list[Writer], url: str, seed: int, outcome: Outcome) -> None:
    dice = np.random.default_rng(seed)
    begun = Wish("append", tuple(range(0, KEYS, 2)), 0, "", 0).rows
    sketches = {"id": "values"} if seed % 2 else None
    zskip.write(begun, url, by=["stamp"] if seed % 3 else ["id"], rows_per_file=16, sketches=sketches)
    acknowledged: dict[int, Wish] = {}
    uncertain: list[Wish] = []
    for number in range(ROUNDS):
        wishes = [_wish(dice, 1 + number * WRITERS + place) for place in range(len(writers))]
        for writer, wish in zip(writers, wishes, strict=True):
            writer.begin(url, wish)
        for writer, wish in zip(writers, wishes, strict=True):
            if wish.fate == "stops" and writer.has_stopped():
                time.sleep(0.02)
                writer.go_on()
        for writer, wish in zip(writers, wishes, strict=True):
            ended, version = writer.ended()
            outcome.ended[f"{wish.verb} {ended or 'done'}"] += 1
            if not ended and version:
                assert version not in acknowledged, f"version {version} twice: {wish}, {acknowledged[version]}"
                acknowledged[version] = wish
            elif ended and ended != CommitConflict.__name__:
                uncertain.append(wish)
    outcome.done["versions"] += _check(url, begun, acknowledged, uncertain)


def _wish(dice: np.random.Generator, stamp: int) -> Wish:
    verb = str(dice.choice(VERBS))
    keys = tuple(dice.choice(KEYS, int(dice.integers(1, 12)), replace=False).tolist())
    if verb == "append":
        keys = tuple(range(1000 * stamp, 1000 * stamp + len(keys)))
    elif verb == "delete":
        divisor = int(dice.integers(5, 30))
        keys = divisor, int(dice.integers(0, divisor))
    return Wish(verb, keys, stamp, str(dice.choice(FATES)), int(dice.integers(1, 80)))


def _check(url: str, begun: pa.Table, acknowledged: dict[int, Wish], uncertain: list[Wish]) -> int:
    """Hold each version to the one before it; how many there are."""
    newest = zskip.open(url).version
    assert max(acknowledged, default=1) <= newest, "an acknowledged version is gone"
    with duckdb.connect() as con:
        con.execute("CREATE TABLE held AS FROM begun")
        for version in range(2, newest + 1):
            found = zskip.open(url, version=version).to_arrow()
            if (wish := acknowledged.get(version)) is not None:
                _apply(con, wish)
                assert _holds(con, found), f"version {version} is not what {wish} made of the one before"
            elif not _holds(con, found):
                made = next((each for each in uncertain if _would_make(con, each, found)), None)
                assert made is not None, f"version {version} is of no writer: {acknowledged}, {uncertain}"
                uncertain.remove(made)
                _apply(con, made)
    return newest


def _apply(con: duckdb.DuckDBPyConnection, wish: Wish) -> None:
    if wish.verb == "delete":
        con.execute("DELETE FROM held WHERE id % ? = ?", list(wish.keys))
    elif wish.verb in ("upsert", "append"):
        rows = wish.rows
        con.execute("DELETE FROM held WHERE id IN (SELECT id FROM rows)")
        con.execute("INSERT INTO held FROM rows")
        del rows


def _holds(con: duckdb.DuckDBPyConnection, found: pa.Table) -> bool:
    held: list[Any] = con.execute("FROM held ORDER BY ALL").fetchall()
    return held == sorted(zip(*found.select(["id", "stamp"]).to_pydict().values(), strict=True))


def _would_make(con: duckdb.DuckDBPyConnection, wish: Wish, found: pa.Table) -> bool:
    con.execute("BEGIN")
    _apply(con, wish)
    same = _holds(con, found)
    con.execute("ROLLBACK")
    return same
