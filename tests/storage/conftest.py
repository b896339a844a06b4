"""Servers of the clouds' protocols, one of each for all tests of stores."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.clouds import STORES, Place, unavailable


@pytest.fixture(scope="session")
def started() -> Iterator[Callable[[str], Place]]:
    """Servers by the scheme that they speak, with conditional puts, each started when it is first asked for."""
    with ExitStack() as running:

        @functools.cache
        def start(scheme: str) -> Place:
            if missing := unavailable(scheme):
                pytest.skip(missing)
            return running.enter_context(STORES[scheme]())

        yield start
