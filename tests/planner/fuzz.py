"""Random predicates over random tables, held against DuckDB: every outcome that a row has is in its unit's `Outcomes`.

A long run from the shell:  python tests/planner/fuzz.py --cases 1000000 --seed 1
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import numpy as np
from grammar import Grammar
from oracles import TRUE, DuckDBOracle, breaches, described
from units import Units, random_statistics, random_units

from zskip import interpret, predicate
from zskip.errors import SqlError

ZONES = ("UTC", "America/Sao_Paulo", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "America/New_York")
PREDICATES_PER_TABLE = 25
STATISTICS_PER_TABLE = 3


@dataclass
class Tally:
    """What a run has seen. A case is a predicate over one table; each is held against several random statistics."""

    cases: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shown = ", ".join(f"{count:,} {name}" for name, count in self.cases.most_common())
        return f"{shown}; {len(self.failures)} failures"


def run(cases: int, seed: int, *, stop_after: int = 10, seconds: float = math.inf, aloud: bool = False) -> Tally:
    """Fuzz some cases. The same seed gives the same cases; the run stops early after some failures, or some time."""
    tally, number, until = Tally(), 0, time.monotonic() + seconds
    oracles = {zone: DuckDBOracle(zone) for zone in ZONES}
    while tally.cases["cases"] < cases and len(tally.failures) < stop_after and time.monotonic() < until:
        number += 1
        table_seed = seed * 1_000_003 + number
        random = Random(table_seed)
        zone = random.choice(ZONES) if number % 2 else "UTC"
        for failure in check_table(random, oracles[zone], zone, tally.cases):
            tally.failures.append(f"table seed {table_seed}, zone {zone}\n{failure}")
            if aloud:
                print(tally.failures[-1], end="\n\n", flush=True)
    return tally


def check_table(random: Random, oracle: DuckDBOracle, zone: str, cases: Counter[str]) -> Iterator[str]:
    """One random table and its predicates; yields what breaks the law, ready to read."""
    table = random_units(random)
    if not table.unit:
        return
    oracle.read(table.rows)
    variants = [random_statistics(random, table, looseness) for looseness in (0.0, None, None)[:STATISTICS_PER_TABLE]]
    grammar = Grammar(random, table)
    depths = (0, 0, 1, 1, 2, 3)
    predicates = [grammar.predicate(random.choice(depths)) for _ in range(PREDICATES_PER_TABLE)]
    unit = np.asarray(table.unit)
    for sql, yielded in zip(predicates, oracle.yields(predicates), strict=True):
        cases["cases"] += 1
        try:
            bound = predicate.bind(sql, table.schema, timezone=zone)
        except SqlError as error:
            if yielded is None:
                cases["refused by both"] += 1
            else:
                cases["refused by the planner alone"] += 1
                if not (yielded < 0).any():
                    yield f"{sql}\n  DuckDB answers, the planner refuses: {error}"
            continue
        except Exception as error:
            yield f"{sql}\n  the planner crashes: {error!r}"
            continue
        for statistics in variants:
            try:
                outcomes = interpret.outcomes(bound, statistics)
            except Exception as error:
                yield f"{sql}\n  the planner crashes: {error!r}"
                break
            if yielded is None:
                continue
            cases["units"] += table.count
            cases["units skipped"] += int((~outcomes.may_match).sum())
            cases["units that match wholly"] += int(outcomes.all_match.sum())
            breach = next(breaches(outcomes, yielded, unit), None)
            if breach is not None:
                row = table.rows.slice(breach.row, 1).to_pylist()[0]
                yield f"{sql}\n  {breach}: {row}\n{described(statistics, breach.unit)}"
                break
        else:
            if yielded is not None and random.random() < 0.2 and not (yielded < 0).any():
                cases["residuals"] += 1
                yield from check_residuals(sql, bound, table, variants[-1], yielded, oracle)


def check_residuals(
    sql: str, bound: predicate.Predicate, table: Units, statistics: object, yielded: np.ndarray, oracle: DuckDBOracle
) -> Iterator[str]:
    """Rows of kept units, filtered by their unit's residual, are the rows of the full filter."""
    may_match = interpret.outcomes(bound, statistics).may_match
    residuals, needs = interpret.residuals(bound, statistics)
    unit = np.asarray(table.unit)
    for number, residual in enumerate(residuals):
        rows = (may_match & (needs == number))[unit]
        if not rows.any():
            continue
        text = None if residual is None else residual.sql("duckdb")
        kept = np.ones(len(unit), bool)
        if residual is not None:
            if text is None:
                continue
            answer = oracle.yields([text])[0]
            if answer is None:
                yield f"{sql}\n  DuckDB refuses the residual {text}"
                return
            kept = answer == TRUE
        wrong = np.flatnonzero(rows & (kept != (yielded == TRUE)))
        if len(wrong):
            at = int(wrong[0])
            row = table.rows.slice(at, 1).to_pylist()[0]
            yield f"{sql}\n  residual {text} keeps other rows: {row}\n{described(statistics, int(unit[at]))}"
            return


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--cases", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--stop-after", type=int, default=10, metavar="FAILURES")
    options.add_argument("--minutes", type=float, default=math.inf)
    given = options.parse_args()
    started = time.perf_counter()
    tally = run(given.cases, given.seed, stop_after=given.stop_after, seconds=given.minutes * 60, aloud=True)
    print(f"{tally} in {time.perf_counter() - started:.0f} s")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
