"""The short form of the races. `make torture`: eight writers with 25 commits each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.races import race, s3


def test_racing_writers_make_a_serial_history(tmp_path: Path) -> None:
    raced = race(str(tmp_path / "table"), None, writers=3, commits=6)
    assert raced.seen


def test_racing_writers_make_a_serial_history_over_s3() -> None:
    pytest.importorskip("moto.server")
    with s3() as (url, options):
        assert race(f"{url}/table", options, writers=3, commits=3).seen
