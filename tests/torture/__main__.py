"""The long form: `python -m tests.torture` fails every verb at every call, kills lives, races and stops writers."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.clouds import STORES, unavailable
from tests.torture.disk import FAULTS
from tests.torture.formats import FORMATS, round_of
from tests.torture.histories import histories
from tests.torture.lives import STEPS
from tests.torture.races import race
from tests.torture.rounds import Rig, workshop
from tests.torture.stalls import stalls


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("what", nargs="*", help="crashes, instants, races, stalls, histories, formats (all by default)")
    parser.add_argument("--step", action="append", choices=STEPS, help="one verb (all by default)")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="one way to fail (all by default)")
    parser.add_argument("--every", type=int, default=1, help="fail at each so manieth call only")
    parser.add_argument("--lives", type=int, default=500, help="how many lives are killed at random instants")
    parser.add_argument("--writers", type=int, default=8, help="of a race")
    parser.add_argument("--commits", type=int, default=25, help="of each writer of a race")
    parser.add_argument("--rounds", type=int, default=500, help="of stalls, on a disk and over S3's protocol each")
    parser.add_argument("--histories", type=int, default=1000, help="of upserts beside other writers")
    parser.add_argument("--tables", type=int, default=100, help="of Delta and of Iceberg, beside their own writers")
    parser.add_argument("--seed", type=int, default=0, help="of lives and races")
    chosen = parser.parse_args()
    report = _Report()
    what = chosen.what or ["crashes", "instants", "races", "stalls", "histories", "formats"]
    if "crashes" in what or "instants" in what:
        with workshop() as rig:
            if "crashes" in what:
                for step in chosen.step or STEPS:
                    for fault in chosen.fault or FAULTS:
                        _sweep(rig, step, fault, chosen.every, report)
            if "instants" in what:
                _kill(rig, chosen.lives, chosen.seed, report)
    if "races" in what:
        report.round("race on a disk", lambda: _race_on_a_disk(chosen.writers, chosen.commits, chosen.seed))
        for scheme in STORES:
            _race_over(scheme, chosen.writers, chosen.commits, chosen.seed, report)
    if "stalls" in what:
        report.round("stalls on a disk", lambda: _stalls_on_a_disk(chosen.rounds, chosen.seed))
        _stalls_over("s3", chosen.rounds, chosen.seed, report)
    if "histories" in what:
        report.round("histories", lambda: _histories(chosen.histories, chosen.seed))
    if "formats" in what:
        for kind in FORMATS:
            _formats(kind, chosen.tables, chosen.seed, report)
    print(report)
    return int(report.wrong > 0)


def _formats(kind: str, tables: int, seed: int, report: _Report) -> None:
    versions = 0
    for number in range(seed, seed + tables):
        with tempfile.TemporaryDirectory() as folder:

            def run(folder: str = folder, number: int = number) -> None:
                nonlocal versions
                versions += round_of(kind, Path(folder) / "table", number)

            report.round(f"{kind}, seed {number}", run)
    print(f"{kind}: {tables} tables, {versions:,} versions", flush=True)


class _Report:
    """How many rounds there were, and how many of them went wrong."""

    def __init__(self) -> None:
        self.rounds = self.wrong = 0
        self._started = time.monotonic()

    def round(self, what: str, run: Callable[[], object]) -> bool:
        """Run one; whether all held. What did not is printed at once."""
        self.rounds += 1
        try:
            run()
        except Exception as error:
            self.wrong += 1
            print(f"    {what}: {type(error).__name__}: {error}", flush=True)
            return False
        return True

    def __str__(self) -> str:
        return f"{self.rounds:,} rounds in {time.monotonic() - self._started:.0f} s, {self.wrong} wrong"


def _sweep(rig: Rig, step: str, fault: str, every: int, report: _Report) -> None:
    calls = rig.calls(step, fault)
    places = range(1, calls + 1, every)
    held = sum(
        report.round(f"{step}, {fault} at call {at}", lambda at=at: rig.round(step, fault, at))  # type: ignore[misc]  # a default binds
        for at in places
    )
    print(f"{step}, {fault}: {held} of {len(places)} rounds held, over {calls} calls", flush=True)


def _kill(rig: Rig, lives: int, first: int, report: _Report) -> None:
    dice = np.random.default_rng(first)
    turns: list[int] = []
    for seed in range(first, first + lives):
        seconds = float(dice.uniform(0, 1))
        report.round(
            f"life {seed} for {seconds:.4f} s",
            lambda seed=seed, seconds=seconds: turns.append(rig.instant(seed, seconds)),  # type: ignore[misc]
        )
    print(f"{lives} lives were killed at random instants, after {sum(turns)} turns in all", flush=True)


def _race_on_a_disk(writers: int, commits: int, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="zskip-torture-") as folder:
        print(f"on a disk: {race(f'{folder}/table', None, writers=writers, commits=commits, seed=seed)}", flush=True)


def _race_over(scheme: str, writers: int, commits: int, seed: int, report: _Report) -> None:
    if missing := unavailable(scheme):
        print(f"no race over {scheme}://: {missing}", flush=True)
        return
    with STORES[scheme]() as (url, options):
        report.round(
            f"race over {scheme}://",
            lambda: print(
                f"over {scheme}://: {race(f'{url}/table', options, writers=writers, commits=commits, seed=seed)}",
                flush=True,
            ),
        )


def _stalls_on_a_disk(rounds: int, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="zskip-torture-") as folder:
        print(f"on a disk: {stalls(folder, None, rounds=rounds, seed=seed)}", flush=True)


def _histories(count: int, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="zskip-torture-") as folder:
        print(histories(folder, count=count, seed=seed), flush=True)


def _stalls_over(scheme: str, rounds: int, seed: int, report: _Report) -> None:
    if missing := unavailable(scheme):
        print(f"no stalls over {scheme}://: {missing}", flush=True)
        return
    with STORES[scheme]() as (url, options):
        report.round(
            f"stalls over {scheme}://",
            lambda: print(f"over {scheme}://: {stalls(url, options, rounds=rounds, seed=seed)}", flush=True),
        )


if __name__ == "__main__":
    sys.exit(main())
