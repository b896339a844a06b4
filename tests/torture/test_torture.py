"""The short form of the torture: each verb fails at a few of its calls. `make torture`: in every way, at every call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests import one_in
from tests.clouds import STORES, Place
from tests.torture import histories
from tests.torture.disk import FAULTS
from tests.torture.formats import FORMATS, round_of
from tests.torture.lives import STEPS
from tests.torture.rounds import Rig, workshop
from tests.torture.stalls import stalls
from zskip.writer import upsert

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the failing disk is preloaded as Linux does it")


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with workshop() as rig:
        yield rig


# The disk fails in every way, in one step each, and a process is killed in each of the other steps.
DISK = list(zip(STEPS, [name for name in FAULTS if name != "killed"], strict=False))
KILLED = [step for step in STEPS if step not in dict(DISK)]
# The rest of a short write is written by the next call, and what one read did not give another one may.
SURVIVED = {"short write", "unreadable for a moment"}


@pytest.mark.parametrize("step", one_in(3, KILLED))
def test_a_process_killed_at_a_call_leaves_a_committed_state(step: str, rig: Rig) -> None:
    calls = rig.calls(step, "killed")
    assert rig.round(step, "killed", 1 + calls // 2).killed


@pytest.mark.parametrize("step", one_in(2, dict(DISK)))
def test_a_disk_that_fails_leaves_the_table_as_it_was(step: str, rig: Rig) -> None:
    fault = dict(DISK)[step]
    calls = rig.calls(step, fault)
    ended = rig.round(step, fault, 1 + calls // 4)
    assert ended.killed or ended.error or fault in SURVIVED, "nothing failed"


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_read_that_fails_is_asked_again_or_named(step: str, rig: Rig) -> None:
    calls = 1 + np.arange(rig.calls(step, "unreadable for a moment"))
    for at in np.random.default_rng().permutation(calls)[:12].tolist():
        rig.round(step, "unreadable for a moment", at)


# --- the short form of the torture of Delta and Iceberg tables; `python -m tests.torture formats` is the long one ---


@pytest.mark.parametrize("kind", FORMATS)
def test_no_acknowledged_row_is_lost(kind: str, tmp_path: Path) -> None:
    assert round_of(kind, tmp_path / "table", seed=1, enough=4) > 2


# --- the short form of the stalls. `python -m tests.torture stalls --rounds 500`: the long one ---


def test_writers_that_stop_and_go_on_lose_nothing(tmp_path: Path) -> None:
    assert stalls(str(tmp_path), None, rounds=3).done["stops"]


@pytest.mark.slow
def test_writers_that_stop_and_go_on_lose_nothing_over_a_store(started: Callable[[str], Place]) -> None:
    url, options = started("s3")
    assert stalls(f"{url}/stalls", options, rounds=3).done["stops"]


# --- the short form of the histories. `python -m tests.torture histories --histories 1000`: the long one ---


@pytest.mark.parametrize("count", [1, pytest.param(60, marks=pytest.mark.slow)])
def test_no_row_is_lost_doubled_or_old(tmp_path: Path, count: int) -> None:
    """By four writers, and as readers see it; the long form also by fewer."""
    outcome = histories.histories(str(tmp_path), None, count=count, seed=7)
    assert outcome.done["versions"] > 5 * count
    assert any("killed" in ended for ended in outcome.ended)
    assert outcome.ended["read done"]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", STORES)
def test_no_row_is_lost_doubled_or_old_over_a_store(scheme: str, started: Callable[[str], Place]) -> None:
    url, options = started(scheme)
    assert histories.histories(f"{url}/histories", options, count=4).done["versions"] > 20


def forgetful(table: object, wish: histories.Wish) -> object:
    """As `histories.act`, but an upsert does not look at files that came in meanwhile."""
    upsert._Upsert._require_no_added_files = lambda *given: None  # type: ignore[attr-defined]
    return histories.act(table, wish)  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_upsert_that_overlooks_new_files_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "act", forgetful)
    monkeypatch.setattr(histories, "VERBS", ("upsert",))
    monkeypatch.setattr(histories, "FATES", ("",))
    with pytest.raises(AssertionError, match="is not what"):
        histories.histories(str(tmp_path), None, count=20, seed=3)
