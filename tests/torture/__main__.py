"""The long form: `python -m tests.torture` fails every verb at every call, and kills and stops writers."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.clouds import STORES, unavailable
from tests.torture.disk import FAULTS
from tests.torture.formats import FORMATS, round_of
from tests.torture.histories import histories
from tests.torture.lives import STEPS
from tests.torture.rounds import Rig, workshop
from tests.torture.stalls import stalls


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("what", nargs="*", help="crashes, stalls, histories, formats (all by default)")
    parser.add_argument("--step", action="append", choices=STEPS, help="one verb (all by default)")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="one way to fail (all by default)")
    parser.add_argument("--every", type=int, default=1, help="fail at each so manieth call only")
    parser.add_argument("--rounds", type=int, default=500, help="of stalls, on a disk and over S3's protocol each")
    parser.add_argument(
        "--histories", type=int, default=1000, help="of upserts beside other writers; over each store a tenth of them"
    )
    parser.add_argument("--tables", type=int, default=100, help="of Delta and of Iceberg, beside their own writers")
    parser.add_argument("--seed", type=int, default=0, help="of stalls, histories and formats")
    chosen = parser.parse_args()
    report = _Report()
    what = chosen.what or ["crashes", "stalls", "histories", "formats"]
    if "crashes" in what:
        with workshop() as rig:
            for step in chosen.step or STEPS:
                for fault in chosen.fault or FAULTS:
                    _sweep(rig, step, fault, chosen.every, report)
    if "stalls" in what:
        _run(stalls, "stalls", None, report, rounds=chosen.rounds, seed=chosen.seed)
        _run(stalls, "stalls", "s3", report, rounds=chosen.rounds, seed=chosen.seed)
    if "histories" in what:
        _run(histories, "histories", None, report, count=chosen.histories, seed=chosen.seed)
        for scheme in STORES:
            _run(histories, "histories", scheme, report, count=chosen.histories // 10, seed=chosen.seed)
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


def _run(run: Callable[..., object], what: str, scheme: str | None, report: _Report, **given: int) -> None:
    """``scheme``: of the store that it runs over, None on a disk."""
    if scheme is None:
        with tempfile.TemporaryDirectory(prefix="zskip-torture-") as folder:
            report.round(
                f"{what} on a disk", lambda: print(f"{what} on a disk: {run(folder, None, **given)}", flush=True)
            )
    elif missing := unavailable(scheme):
        print(f"no {what} over {scheme}://: {missing}", flush=True)
    else:
        with STORES[scheme]() as (url, options):
            report.round(
                f"{what} over {scheme}://",
                lambda: print(f"{what} over {scheme}://: {run(f'{url}/{what}', options, **given)}", flush=True),
            )


if __name__ == "__main__":
    sys.exit(main())
