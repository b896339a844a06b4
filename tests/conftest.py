"""What every test may use: the real data that is committed under fixtures/."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests import FIXTURES

# A deadline would make a test of how busy the machine is.
settings.register_profile("zskip", deadline=None)
settings.load_profile("zskip")


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of committed data: zeek.parquet, zeek_dns.parquet, flights.parquet."""
    return FIXTURES
