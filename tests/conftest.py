"""What every test may use: the real data that is committed under fixtures/; and which tests need Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests import FIXTURES, ROOT

# A deadline would make a test of how busy the machine is.
settings.register_profile("zskip", deadline=None)
settings.load_profile("zskip")

SPARK = ROOT / "tests" / "spark"

# Spark's machines live for minutes: compiled lightly, they take a quarter less of the processor.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in tests/spark needs Spark. What needs Spark runs in one worker, in one Java machine."""
    for item in items:
        if item.path.is_relative_to(SPARK):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of committed data: zeek.parquet, zeek_dns.parquet, flights.parquet."""
    return FIXTURES
