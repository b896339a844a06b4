"""The short form of the torture of Delta and Iceberg tables; `python -m tests.torture formats` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.formats import FORMATS, round_of


@pytest.mark.parametrize("kind", FORMATS)
def test_no_acknowledged_row_is_lost(kind: str, tmp_path: Path) -> None:
    assert round_of(kind, tmp_path / "table", seed=1) > 2
