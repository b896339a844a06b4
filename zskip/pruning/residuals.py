"""Residuals: the conjuncts of a predicate that a unit's statistics do not prove, so that its rows must be filtered."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zskip.language import Predicate, conjunction
from zskip.pruning.budget import Budget
from zskip.pruning.evaluate import outcomes
from zskip.stats import Statistics

_MAX_RESIDUALS = 64
"""Distinct residuals in one plan. An engine runs a scan for each, so the rarest are replaced by the whole predicate."""

_MAX_CONJUNCTS = 256
"""Conjuncts that are proved one by one; more of them are proved as one."""


def residuals(predicate: Predicate, statistics: Statistics) -> tuple[list[Predicate | None], npt.NDArray[np.int64]]:
    """The distinct residuals, and for each unit the index of its residual. A residual is None if every row matches.

    A conjunct is left out for the units in which every row makes it TRUE. There are at most 64 residuals; with more
    than 256 conjuncts, a residual is the whole predicate or None.
    """
    parts = predicate.conjuncts if len(predicate.conjuncts) <= _MAX_CONJUNCTS else (predicate,)
    budget = Budget()
    needed = np.stack([~outcomes(part, statistics, budget=budget).all_match for part in parts], axis=1)
    patterns, numbers, counts = np.unique(needed, axis=0, return_inverse=True, return_counts=True)
    numbers = numbers.reshape(-1).astype(np.int64)
    if len(patterns) > _MAX_RESIDUALS:
        kept = np.sort(np.argsort(-counts, kind="stable")[: _MAX_RESIDUALS - 1])
        renumbered = np.full(len(patterns), len(kept), np.int64)
        renumbered[kept] = np.arange(len(kept))
        numbers = renumbered[numbers]
        patterns = np.concatenate([patterns[kept], np.ones((1, len(parts)), bool)])
    return [
        _conjunction([part for part, wanted in zip(parts, pattern, strict=True) if wanted]) for pattern in patterns
    ], numbers


def _conjunction(parts: list[Predicate]) -> Predicate | None:
    return conjunction(parts) if parts else None
