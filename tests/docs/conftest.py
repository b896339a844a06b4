"""The pages' code finds the Spark session of all tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def shared_session(request: pytest.FixtureRequest) -> None:
    """Start the session before a page calls ``getOrCreate()``, so that its settings are those of the other tests."""
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark")
