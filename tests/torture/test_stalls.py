"""The short form of the stalls. `python -m tests.torture stalls --rounds 500`: the long one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clouds import STORES, unavailable
from tests.torture.stalls import stalls

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="whether a process has stopped is read from /proc")


def test_writers_that_stop_and_go_on_lose_nothing(tmp_path: Path) -> None:
    assert stalls(str(tmp_path), None, rounds=5).stopped


def test_writers_that_stop_and_go_on_lose_nothing_over_a_store() -> None:
    if missing := unavailable("s3"):
        pytest.skip(missing)
    with STORES["s3"]() as (url, options):
        assert stalls(url, options, rounds=3).stopped
