"""The short form of the torture: each verb fails at a few of its calls. `make torture`: in every way, at every call."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from tests.torture.disk import FAULTS
from tests.torture.lives import STEPS
from tests.torture.rounds import Rig, workshop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the failing disk is preloaded as Linux does it")


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with workshop() as rig:
        yield rig


@pytest.mark.parametrize("step", STEPS)
def test_a_process_killed_at_a_call_leaves_a_committed_state(step: str, rig: Rig) -> None:
    calls = rig.calls(step, "killed")
    assert rig.round(step, "killed", 1 + calls // 2).killed


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "killed"])
def test_a_disk_that_fails_leaves_the_table_as_it_was(fault: str, rig: Rig) -> None:
    steps = list(STEPS)
    first = list(FAULTS).index(fault)
    ended = []
    for number in range(2):
        step = steps[(first + 5 * number) % len(steps)]
        calls = rig.calls(step, fault)
        ended.append(rig.round(step, fault, 1 + calls * (2 * number + 1) // 4))
    if fault != "short write":
        assert any(each.killed or each.error for each in ended), "nothing ever failed"


@pytest.mark.slow
def test_a_process_killed_at_any_instant_leaves_a_committed_state(rig: Rig) -> None:
    dice = np.random.default_rng()
    done: list[int] = []
    longest = 1.0
    while len(done) < 6 or not any(done):
        done.append(rig.instant(int(dice.integers(1 << 32)), float(dice.uniform(0, longest))))
        longest *= 1.0 if any(done) else 1.5  # a busy machine takes seconds for a first turn
        assert longest < 60, "no child got anywhere"
