"""How long something takes, as the median of some runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

__all__ = ["median"]


def median(run: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """Seconds of the run in the middle, and what the last one gave."""
    seconds, given = [], None
    for _ in range(runs):
        start = time.perf_counter()
        given = run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), given
