"""The long form: `python -m tests.torture` fails every verb at every call in every way, and kills 500 lives."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np

from tests.torture.disk import FAULTS
from tests.torture.lives import STEPS
from tests.torture.rounds import Rig, workshop


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--step", action="append", choices=STEPS, help="one verb (all by default)")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="one way to fail (all by default)")
    parser.add_argument("--every", type=int, default=1, help="fail at each so manieth call only")
    parser.add_argument("--instants", type=int, default=500, help="how many lives are killed at random instants")
    parser.add_argument("--seed", type=int, default=0, help="of those lives")
    chosen = parser.parse_args()
    started = time.monotonic()
    rounds = wrong = 0

    def ran(what: str, run: Callable[[], object]) -> bool:
        nonlocal rounds, wrong
        rounds += 1
        try:
            run()
        except Exception as error:
            wrong += 1
            print(f"    {what}: {type(error).__name__}: {error}", flush=True)
            return False
        return True

    with workshop() as rig:
        for step in chosen.step or STEPS:
            for fault in chosen.fault or FAULTS:
                _sweep(rig, step, fault, chosen.every, ran)
        dice = np.random.default_rng(chosen.seed)
        for seed in range(chosen.seed, chosen.seed + chosen.instants):
            seconds = float(dice.uniform(0, 1))
            ran(f"life {seed} for {seconds:.4f} s", lambda seed=seed, seconds=seconds: rig.instant(seed, seconds))  # type: ignore[misc]  # defaults bind
        print(f"{chosen.instants} lives were killed at random instants")
    print(f"{rounds:,} rounds in {time.monotonic() - started:.0f} s, {wrong} wrong")
    return int(wrong > 0)


def _sweep(rig: Rig, step: str, fault: str, every: int, ran: Callable[[str, Callable[[], object]], bool]) -> None:
    calls = rig.calls(step, fault)
    well = sum(
        ran(f"{step}, {fault} at call {at}", lambda at=at: rig.round(step, fault, at))  # type: ignore[misc]  # a default binds
        for at in range(1, calls + 1, every)
    )
    print(f"{step}, {fault}: {well} rounds held, over {calls} calls", flush=True)


if __name__ == "__main__":
    sys.exit(main())
