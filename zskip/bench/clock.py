"""Measure the median duration of a function."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

__all__ = ["median"]


def median(run: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """The median duration in seconds, and the last result."""
    seconds, result = [], None
    for _ in range(runs):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result
