"""The short form of the races. `make torture`: eight writers with 25 commits each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clouds import STORES, unavailable
from tests.torture.races import race


def test_racing_writers_make_a_serial_history(tmp_path: Path) -> None:
    raced = race(str(tmp_path / "table"), None, writers=3, commits=2)
    assert raced.seen


@pytest.mark.slow
@pytest.mark.parametrize("scheme", STORES)
def test_racing_writers_make_a_serial_history_over_a_store(scheme: str) -> None:
    if missing := unavailable(scheme):
        pytest.skip(missing)
    with STORES[scheme]() as (url, options):
        assert race(f"{url}/table", options, writers=3, commits=3).seen
