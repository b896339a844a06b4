"""The short form of the histories. `python -m tests.torture histories --histories 1000`: the long one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.torture import histories
from zskip.writer import upsert

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="whether a process has stopped is read from /proc")


@pytest.mark.parametrize("count", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_no_row_is_lost_doubled_or_old(tmp_path: Path, count: int) -> None:
    done = histories.histories(str(tmp_path), count=count)
    assert done.versions > 5 * count
    assert any("killed" in ended for ended in done.ended)


def forgetful(table: object, wish: histories.Wish) -> int:
    """As `histories.act`, but an upsert does not look at files that came in meanwhile."""
    upsert._Upsert._require_no_added_files = lambda *given: None  # type: ignore[attr-defined]
    return histories.act(table, wish)  # type: ignore[arg-type]


def test_an_upsert_that_overlooks_new_files_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "act", forgetful)
    monkeypatch.setattr(histories, "VERBS", ("upsert",))
    monkeypatch.setattr(histories, "FATES", ("",))
    with pytest.raises(AssertionError, match="is not what"):
        histories.histories(str(tmp_path), count=20, seed=3)
