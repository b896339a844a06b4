"""Random predicates over random tables, held against DuckDB: every outcome that a row has is in its unit's `Outcomes`.

A long run from the shell:  python -m tests.pruning.fuzz --cases 1000000 --seed 1
A table that failed, once more:  python -m tests.pruning.fuzz --table 1000004
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from zoneinfo import ZoneInfo

import numpy as np

from tests.pruning.grammar import Grammar
from tests.pruning.oracles import TRUE, DuckDBOracle, breaches, described
from tests.pruning.units import Units, random_file_statistics, random_units
from zskip import language as expr
from zskip import pruning
from zskip.binder import bind
from zskip.errors import SqlError
from zskip.pruning import Outcomes
from zskip.stats import FileStatistics, Statistics

ZONES = ("UTC", "America/Sao_Paulo", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "America/New_York")
NOW = datetime(2020, 2, 29, 23, 30, tzinfo=UTC)
PREDICATES_PER_TABLE = 60
LOOSENESS = (0.0, None, None)
"""Each table has these statistics, one after another: exact ones, and two of a random looseness."""
SIZES = (0, 1, 1, 2, 3, 4, 6, 12)


@dataclass
class Tally:
    """What a run has seen. A case is a predicate over one table, held against several random statistics of it."""

    cases: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shown = ", ".join(f"{count:,} {name}" for name, count in self.cases.most_common())
        return f"{shown}; {len(self.failures)} failures"


def run(cases: int, seed: int, *, stop_after: int = 10, seconds: float = math.inf, aloud: bool = False) -> Tally:
    """Fuzz some cases. The same seed gives the same cases; the run stops early after some failures, or some time."""
    tally, number, until = Tally(), 0, time.monotonic() + seconds
    oracles: dict[str, DuckDBOracle] = {}
    while tally.cases["cases"] < cases and len(tally.failures) < stop_after and time.monotonic() < until:
        number += 1
        table_seed = seed * 1_000_003 + number
        for failure in table_failures(table_seed, oracles, tally.cases):
            tally.failures.append(failure)
            if aloud:
                print(failure, end="\n\n", flush=True)
    return tally


def table_failures(table_seed: int, oracles: dict[str, DuckDBOracle], cases: Counter[str]) -> Iterator[str]:
    """What breaks the law in the table of one seed; ``oracles`` by time zone, filled as they are needed."""
    random = Random(table_seed)
    zone = random.choice(ZONES) if random.random() < 0.5 else "UTC"
    if zone not in oracles:
        oracles[zone] = DuckDBOracle(zone)
    for failure in check_table(random, oracles[zone], zone, cases):
        yield f"--table {table_seed}, zone {zone}\n{failure}"


def check_table(random: Random, oracle: DuckDBOracle, zone: str, cases: Counter[str]) -> Iterator[str]:
    """One random table and its predicates; yields what breaks the law, ready to read."""
    table = random_units(random, sizes=SIZES)
    if not table.unit:
        return
    oracle.read(table.rows)
    # All statistics in one: the units of each, one after another.
    statistics = FileStatistics.concat(
        [random_file_statistics(random, table, looseness) for looseness in LOOSENESS]
    ).statistics()
    unit = np.asarray(table.unit)
    owner = np.concatenate([unit + table.count * number for number in range(len(LOOSENESS))])
    grammar = Grammar(random, table)
    depths = (0, 0, 1, 1, 2, 3)
    predicates = [grammar.predicate(random.choice(depths)) for _ in range(PREDICATES_PER_TABLE)]
    asked: list[Residual] = []
    for sql, yielded in zip(predicates, oracle.yields([at_now(sql, zone) for sql in predicates]), strict=True):
        cases["cases"] += 1
        raises = yielded is not None and bool((yielded < 0).any())
        try:
            bound = bind(sql, table.schema, timezone=zone, now=NOW)
            outcomes = pruning.outcomes(bound, statistics)
        except SqlError as error:
            if yielded is None:
                cases["refused by both"] += 1
            else:
                cases["refused by the planner alone"] += 1
                if not raises:
                    yield f"{sql}\n  DuckDB answers, the planner refuses: {error}"
            continue
        except Exception as error:  # whatever it is, a predicate must not crash the planner
            yield f"{sql}\n  the planner crashes: {error!r}"
            continue
        if yielded is None:
            cases["refused by DuckDB alone"] += 1
            continue
        cases["units"] += len(outcomes)
        cases["units skipped"] += int((~outcomes.may_match).sum())
        cases["units that match wholly"] += int(outcomes.all_match.sum())
        breach = next(breaches(outcomes, np.tile(yielded, len(LOOSENESS)), owner), None)
        if breach is not None:
            row = table.rows.slice(breach.row % len(unit), 1).to_pylist()[0]
            yield f"{sql}\n  {breach}: {row}\n{described(statistics, breach.unit)}"
        elif raises:
            cases["raised for a row"] += 1
        elif random.random() < 0.2:
            cases["residuals"] += 1
            asked += residuals(bound, outcomes, yielded, owner)
    yield from residual_failures(asked, table, statistics, owner, oracle)


def at_now(sql: str, zone: str) -> str:
    """For an engine whose clock cannot be set: the instant is written into the text."""
    today = NOW.astimezone(ZoneInfo(zone)).date()
    return sql.replace("now()", f"TIMESTAMPTZ '{NOW.isoformat(' ')}'").replace("current_date", f"DATE '{today}'")


@dataclass(frozen=True)
class Residual:
    """``text`` must keep just the TRUE ones of some rows. None: it keeps them all."""

    sql: str
    text: str | None
    rows: np.ndarray
    true: np.ndarray


def residuals(bound: expr.Predicate, outcomes: Outcomes, yielded: np.ndarray, owner: np.ndarray) -> Iterator[Residual]:
    """What the kept units are filtered by, and which rows that concerns (numbered through all statistics)."""
    true = np.tile(yielded == TRUE, len(LOOSENESS))
    for units, text in ((outcomes.all_match, None), (outcomes.may_match & ~outcomes.all_match, bound.sql("duckdb"))):
        rows = np.flatnonzero((units & outcomes.may_match)[owner])
        if len(rows):
            yield Residual(bound.text, text, rows, true[rows])


def residual_failures(
    asked: list[Residual], table: Units, statistics: Statistics, owner: np.ndarray, oracle: DuckDBOracle
) -> Iterator[str]:
    """Rows of kept units, filtered by their unit's residual, are the rows of the full filter."""
    texts = list(dict.fromkeys(each.text for each in asked if each.text is not None))
    answers = dict(zip(texts, oracle.yields(texts), strict=True))
    count = len(table.unit)
    for each in asked:
        answer = np.full(count, TRUE) if each.text is None else answers[each.text]
        if answer is None:
            yield f"{each.sql}\n  DuckDB refuses the residual {each.text}"
            continue
        wrong = each.rows[(answer[each.rows % count] == TRUE) != each.true]
        if len(wrong):
            row = table.rows.slice(int(wrong[0]) % count, 1).to_pylist()[0]
            shown = described(statistics, int(owner[wrong[0]]))
            yield f"{each.sql}\n  the residual {each.text} keeps other rows: {row}\n{shown}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--cases", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--stop-after", type=int, default=10, metavar="FAILURES")
    options.add_argument("--minutes", type=float, default=math.inf)
    options.add_argument("--table", type=int, help="the seed of one table: show its failures alone")
    given = options.parse_args()
    started = time.perf_counter()
    if given.table is not None:
        tally = Tally()
        tally.failures += table_failures(given.table, {}, tally.cases)
        print("\n\n".join(tally.failures))
    else:
        tally = run(given.cases, given.seed, stop_after=given.stop_after, seconds=given.minutes * 60, aloud=True)
    print(f"{tally} in {time.perf_counter() - started:.0f} s")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
