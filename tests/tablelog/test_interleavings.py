"""The real commits, restores and vacuums keep their promises however their calls of the store interleave."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.tablelog import interleavings
from tests.tablelog.commit_model import RULES
from tests.tablelog.interleavings import (
    FINE,
    SECOND,
    BrokenPromise,
    Memory,
    append,
    begun,
    explore,
    one_clock,
    wander,
)
from zskip import tablelog
from zskip.errors import FilesRemoved
from zskip.tablelog import runs
from zskip.tablelog.snapshot import Snapshot

FIVE = ("append", "append", "rewrite", "restore", "vacuum")
LONG = int(os.environ.get("ZSKIP_WALKS", "2000"))
"""The number of random ways of the long form; 100,000 take some hours."""


@pytest.fixture(autouse=True)
def _one_clock() -> Iterator[None]:
    with one_clock():
        yield


def test_two_writers_and_a_vacuum_in_every_order() -> None:
    assert explore(("append", "append", "vacuum")) > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "verbs",
    [
        ("append", "restore", "vacuum"),
        ("rewrite", "rewrite", "vacuum"),
        ("append", "vacuum", "vacuum"),
        ("append", "upkeep"),
    ],
)
def test_other_verbs_and_a_vacuum_in_every_order(verbs: tuple[str, ...]) -> None:
    assert explore(verbs) > 400


@pytest.mark.slow
@pytest.mark.parametrize("verbs", [("append", "vacuum"), ("restore", "vacuum"), ("append", "append")])
def test_two_at_a_time_in_every_order_of_all_their_calls(verbs: tuple[str, ...]) -> None:
    assert explore(verbs, turns=FINE) > 50


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_five_at_a_time_with_lost_answers_and_interrupts(first: int) -> None:
    for seed in range(first, first + 50):
        wander(FIVE if seed % 2 else (*FIVE[:4], "vacuum", "vacuum"), seed)


@pytest.mark.slow
def test_five_at_a_time_on_many_ways() -> None:
    for seed in range(1000, 1000 + LONG):
        wander(FIVE if seed % 2 else (*FIVE[:4], "vacuum", "vacuum"), seed)


def test_a_request_that_is_refused_beside_an_earlier_one_of_its_own() -> None:
    """The first request arrives late, and a store that is busy with it refuses the second: the rows came twice."""
    storage: Any = Memory()
    storage.objects = dict(begun())
    fates = ["late", "busy"]
    storage.fate = lambda path: fates.pop(0) if fates else "done"

    def arrives(verb: str, argument: object) -> None:
        if verb != "read" and not fates and storage.late:
            storage.arrive(*storage.late.pop())

    storage.turn = arrives
    made = append(storage, "a" * 16)
    index = tablelog.Index(storage, tablelog.load(storage))
    files = index.recorded_paths(np.arange(len(index))).to_pylist()
    assert (made.version, files) == (3, [SECOND, f"part-000001-{'a' * 16}.parquet"])


# --- each rule is needed ---


def _blind_to(expiry: bool) -> Callable[..., None]:
    """The look of a writer that came second, without what it learns from expired versions, or from doomed runs."""
    look = runs.require_not_doomed

    def blind(storage: Any, newest: Snapshot, since: int, paths: list[str]) -> None:
        try:
            look(storage, replace(newest, horizon=1) if expiry else newest, since, paths)
        except FilesRemoved as error:
            if expiry == ("removes" in str(error)) and expiry != ("expired" in str(error)):
                raise

    return blind


def take_out(rule: str, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Take a rule out of the code; returns the verbs that need it."""
    commit, vacuum = (importlib.import_module(f"zskip.tablelog.{name}") for name in ("commit", "vacuum"))
    match rule:
        case "doomed":
            patch.setattr(commit, "require_not_doomed", _blind_to(expiry=False))
            return "append", "vacuum"
        case "expired":
            patch.setattr(commit, "require_not_doomed", _blind_to(expiry=True))
            return "append", "upkeep"
        case "retained":

            def restore(storage: Any, name: str) -> Snapshot:
                older = tablelog.load(storage, 1)
                newest = tablelog.load(storage)
                return tablelog.commit(storage, newest, "restore", restore=replace(older, version=99))

            patch.setitem(interleavings.VERBS, "restore", restore)
            return "restore", "vacuum"
        case "looks again":
            look = vacuum._Named.add

            def once(named: Any, versions: Any) -> None:
                if not named._versions:
                    look(named, versions)

            patch.setattr(vacuum._Named, "add", once)
            return "append", "vacuum"
        case _:
            patch.setattr(commit, "_without", lambda drafts, snapshot, paths: (snapshot.shards, len(set(paths))))
            return "rewrite", "rewrite"


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_a_promise_breaks(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = take_out(rule, monkeypatch)
    with pytest.raises(BrokenPromise):
        explore(verbs)
