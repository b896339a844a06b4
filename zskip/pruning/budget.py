"""`Budget`: the processor time that one plan may spend on enumeration."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 0.1


class Budget:
    """Seconds of processor time that are left for enumeration. Units that are not evaluated in time are kept.

    Time counts inside a ``with`` block, on its thread. It is processor time, so pruning does not depend on other load.

    >>> Budget(0).is_spent
    True
    """

    __slots__ = ("_left", "_started")

    def __init__(self, seconds: float = SECONDS) -> None:
        self._left = seconds
        self._started: float | None = None

    def __enter__(self) -> None:
        self._started = time.thread_time()

    def __exit__(self, *_: object) -> None:
        if self._started is not None:
            self._left -= time.thread_time() - self._started
        self._started = None

    @property
    def is_spent(self) -> bool:
        """Whether no time is left."""
        running = 0.0 if self._started is None else time.thread_time() - self._started
        return running >= self._left

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Does not count the time of the block, for work that is done once per process and not in every plan."""
        before = time.thread_time()
        try:
            yield
        finally:
            self._left += time.thread_time() - before
