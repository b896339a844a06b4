"""Why: per conjunct, how many units it removes alone, and what in it could not prove anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zskip.interpret.walk import outcomes
from zskip.predicate import Predicate
from zskip.predicate.tree import Opaque, walk
from zskip.stats import Statistics

__all__ = ["Reason", "reasons"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One conjunct: its text, the units that it removes alone (of ``units``), those in which it is proved for every
    row, what in it is opaque and why, and the rewrite that would prune where there is one."""

    text: str
    units: int
    removed: int
    proved: int
    opaque: tuple[tuple[str, str], ...]
    rewrite: str | None = None


def reasons(predicate: Predicate, statistics: Statistics) -> list[Reason]:
    """One `Reason` per conjunct, in their order."""
    return [_reason(part, statistics) for part in predicate.conjuncts]


def _reason(part: Predicate, statistics: Statistics) -> Reason:
    found = outcomes(part, statistics)
    removed, proved = int(np.count_nonzero(~found.may_match)), int(np.count_nonzero(found.all_match))
    opaque = tuple((node.sql, node.reason) for node in walk(part.tree) if isinstance(node, Opaque))
    return Reason(part.text, len(statistics), removed, proved, opaque)
