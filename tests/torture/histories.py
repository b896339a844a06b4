"""Histories: processes that upsert, append, delete, tend and read one table at once, some killed or stopped on the way.

Each version is held to the one before it, in DuckDB: it has what its writer acknowledged, or, where no writer did,
nothing new or what a writer wanted that was killed. So no row is lost, doubled, or old, and what a reader saw of a
version is what that holds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

import zskip
from tests.torture.stalls import Options, Outcome, Writer, writers_of
from zskip.errors import CommitConflict

WRITERS, ROUNDS, KEYS = 4, 5, 80
VERBS = ("upsert", "upsert", "upsert", "append", "delete", "optimize", "tend", "read", "read")
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


Rows = list[tuple[int, int]]


def histories(url: str, options: Options, *, count: int, seed: int = 0) -> Outcome:
    outcome = Outcome()
    with writers_of(WRITERS, options, act) as writers:
        for number in range(seed, seed + count):
            try:
                _history(writers[: 1 + number % WRITERS], f"{url}/{number}", options, number, outcome)
            except Exception as error:
                raise AssertionError(f"history {number}: {type(error).__name__}: {error}") from error
            outcome.done["histories"] += 1
    return outcome


def act(table: zskip.Table, wish: Wish) -> tuple[int, Rows | None]:
    """Do it; the version that it made, 0 if there was nothing to change; of a reader, the version and its rows."""
    if wish.verb == "read":
        return table.version, _sorted(table.to_arrow())
    return _changed(table, wish), None


def _changed(table: zskip.Table, wish: Wish) -> int:
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


def _history(writers: list[Writer], url: str, options: Options, seed: int, outcome: Outcome) -> None:
    dice = np.random.default_rng(seed)
    begun = Wish("append", tuple(range(0, KEYS, 2)), 0, "", 0).rows
    sketches = {"id": "values"} if seed % 2 else None
    by = ["stamp"] if seed % 3 else ["id"]
    zskip.write(begun, url, by=by, rows_per_file=16, sketches=sketches, storage_options=options)
    acknowledged: dict[int, Wish] = {}
    uncertain: list[Wish] = []
    seen: list[tuple[int, Rows]] = []
    for number in range(ROUNDS):
        wishes = [_wish(dice, 1 + number * WRITERS + place) for place in range(len(writers))]
        for writer, wish in zip(writers, wishes, strict=True):
            writer.begin(url, wish)
        for writer, wish in zip(writers, wishes, strict=True):
            if wish.fate == "stops" and writer.has_stopped():
                time.sleep(0.02)
                writer.go_on()
        for writer, wish in zip(writers, wishes, strict=True):
            ended, answer = writer.ended()
            outcome.ended[f"{wish.verb} {ended or 'done'}"] += 1
            version, found = answer if not ended else (0, None)
            if found is not None:
                seen.append((version, found))
            elif version:
                assert version not in acknowledged, f"version {version} twice: {wish}, {acknowledged[version]}"
                acknowledged[version] = wish
            elif ended and ended != CommitConflict.__name__:
                uncertain.append(wish)
    outcome.done["versions"] += _check(url, options, begun, acknowledged, uncertain, seen)


def _wish(dice: np.random.Generator, stamp: int) -> Wish:
    verb = str(dice.choice(VERBS))
    keys = tuple(dice.choice(KEYS, int(dice.integers(1, 12)), replace=False).tolist())
    if verb == "append":
        keys = tuple(range(1000 * stamp, 1000 * stamp + len(keys)))
    elif verb == "delete":
        divisor = int(dice.integers(5, 30))
        keys = divisor, int(dice.integers(0, divisor))
    return Wish(verb, keys, stamp, str(dice.choice(FATES)), int(dice.integers(1, 80)))


def _check(
    url: str,
    options: Options,
    begun: pa.Table,
    acknowledged: dict[int, Wish],
    uncertain: list[Wish],
    seen: list[tuple[int, Rows]],
) -> int:
    """Hold each version to the one before it; how many there are."""
    table = zskip.open(url, storage_options=options)
    newest = table.version
    assert max(acknowledged, default=1) <= newest, "an acknowledged version is gone"
    assert [entry.version for entry in table.history()] == [*range(newest, 0, -1)], "a stray entry"
    states = {1: _sorted(begun)}
    with duckdb.connect() as con:
        con.execute("CREATE TABLE held AS FROM begun")
        for version in range(2, newest + 1):
            held = zskip.open(url, version=version, storage_options=options)
            states[version] = found = _sorted(held.to_arrow())
            assert held._index.snapshot.totals.rows == len(found), f"the index of version {version} counts other rows"
            if (wish := acknowledged.get(version)) is not None:
                _apply(con, wish)
                assert _holds(con, found), f"version {version} is not what {wish} made of the one before"
            elif not _holds(con, found):
                made = next((each for each in uncertain if _would_make(con, each, found)), None)
                assert made is not None, f"version {version} is of no writer: {acknowledged}, {uncertain}"
                uncertain.remove(made)
                _apply(con, made)
    for version, found in seen:
        assert found == states[version], f"a reader saw of version {version} what was never committed"
    verified = table.verify(random=1)
    assert verified.clean, str(verified)
    return newest


def _sorted(rows: pa.Table) -> Rows:
    return sorted(zip(*rows.select(["id", "stamp"]).to_pydict().values(), strict=True))


def _apply(con: duckdb.DuckDBPyConnection, wish: Wish) -> None:
    if wish.verb == "delete":
        con.execute("DELETE FROM held WHERE id % ? = ?", list(wish.keys))
    elif wish.verb in ("upsert", "append"):
        rows = wish.rows
        con.execute("DELETE FROM held WHERE id IN (SELECT id FROM rows)")
        con.execute("INSERT INTO held FROM rows")
        del rows


def _holds(con: duckdb.DuckDBPyConnection, found: Rows) -> bool:
    held: Rows = con.execute("FROM held ORDER BY ALL").fetchall()
    return held == found


def _would_make(con: duckdb.DuckDBPyConnection, wish: Wish, found: Rows) -> bool:
    con.execute("BEGIN")
    _apply(con, wish)
    same = _holds(con, found)
    con.execute("ROLLBACK")
    return same
