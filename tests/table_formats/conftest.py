"""Every test of this folder has a cache folder of its own; on request, a catalog of Iceberg and a bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from tests.clouds import Place
from tests.table_formats.logs import new_catalog


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def bucket(started: Callable[[str], Place]) -> Place:
    """The address of one that a server of S3's protocol has, and the options that lead to it."""
    return started("s3")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return new_catalog(tmp_path)
