"""What is left of a predicate where parts of it are proved."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zskip.expr import Predicate, conjunction
from zskip.pruning.budget import Budget
from zskip.pruning.evaluate import outcomes
from zskip.stats import Statistics

__all__ = ["residuals"]

_MOST = 64
"""Different residuals in one plan: an engine runs one scan for each, so rarer ones give way to the whole predicate."""

_MOST_PARTS = 256
"""Conjuncts that are proved one by one."""


def residuals(predicate: Predicate, statistics: Statistics) -> tuple[list[Predicate | None], npt.NDArray[np.int64]]:
    """The predicates that units still need, and for each unit the number of its own: None where every row matches.

    A conjunct is left out for the units in which every row makes it TRUE. At most 64 different ones are given; of
    more than 256 conjuncts it is all or nothing.
    """
    parts = predicate.conjuncts if len(predicate.conjuncts) <= _MOST_PARTS else (predicate,)
    budget = Budget()
    needed = np.stack([~outcomes(part, statistics, budget=budget).all_match for part in parts], axis=1)
    patterns, numbers, counts = np.unique(needed, axis=0, return_inverse=True, return_counts=True)
    numbers = numbers.reshape(-1).astype(np.int64)
    if len(patterns) > _MOST:
        kept = np.sort(np.argsort(-counts, kind="stable")[: _MOST - 1])
        renumbered = np.full(len(patterns), len(kept), np.int64)
        renumbered[kept] = np.arange(len(kept))
        numbers = renumbered[numbers]
        patterns = np.concatenate([patterns[kept], np.ones((1, len(parts)), bool)])
    return [
        _left([part for part, wanted in zip(parts, pattern, strict=True) if wanted]) for pattern in patterns
    ], numbers


def _left(parts: list[Predicate]) -> Predicate | None:
    return conjunction(parts) if parts else None
