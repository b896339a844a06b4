"""Several runs of one thing in a few characters, so that a doubtful figure is seen to be one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

__all__ = ["spread"]

_DOUBTFUL = 1.5


def spread(found: Sequence[float], unit: str = "", digits: int = 3) -> str:
    """The median of some runs, and the least and the greatest; a mark where the half in the middle lies far apart.

    >>> spread([0.151, 0.148, 0.162], " s")
    '0.151 s (0.148 to 0.162)'
    >>> spread([1, 1, 4, 9, 9], " ms")
    '4 ms (1 to 9, noisy)'
    """
    middle = f"{statistics.median(found):.{digits}g}{unit}"
    if len(found) < 2:
        return middle
    low, _, high = statistics.quantiles(found, n=4, method="inclusive")
    mark = ", noisy" if high > low * _DOUBTFUL else ""
    return f"{middle} ({min(found):.{digits}g} to {max(found):.{digits}g}{mark})"
