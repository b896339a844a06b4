"""Why: per conjunct, how many units it removes alone, and what in it could not prove anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zskip.expr import Predicate
from zskip.expr.tree import Computable, Opaque, walk
from zskip.pruning.budget import Budget
from zskip.pruning.evaluate import MOST_PROVED, is_cut_short, outcomes
from zskip.pruning.evidence import Evidence
from zskip.pruning.outcomes import Outcomes
from zskip.stats import Statistics

__all__ = ["Reason", "reasons"]


REWRITES: dict[str, str] = {
    "upper() is not": "keep a column that holds the text folded, and compare that",
    "ucase() is not": "keep a column that holds the text folded, and compare that",
    "lower() is not": "keep a column that holds the text folded, and compare that",
    "lcase() is not": "keep a column that holds the text folded, and compare that",
    "the cast is left to the engine": "write the constant in the column's own type, as in DATE '2024-01-31'",
    "does not begin with a literal": "begin the pattern with a literal, or keep a column that holds the part",
    "a part of a string that does not start": "keep a column that holds the part",
    "where clocks change": "compare the column itself with moments that carry an offset",
    "clocks change there": "give the moment an offset, as in TIMESTAMPTZ '2024-10-27 02:30:00+01'",
    "the engine rounds": "write the constant as an exact decimal of the column's scale",
    "of several types": "write all constants in one type",
}
"""What would prune instead, by words of the reason why something could not."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One conjunct: its text, the units that it removes alone (of ``units``), those in which it is proved for every
    row, what in it is opaque and why, the rewrite that would prune where there is one, the units of which DuckDB told
    more than ranges do, and those (of ``removed``) that only other evidence removes."""

    text: str
    units: int
    removed: int
    proved: int
    opaque: tuple[tuple[str, str], ...]
    rewrite: str | None = None
    computed: int = 0
    by_evidence: int = 0


def reasons(predicate: Predicate, statistics: Statistics, evidence: Evidence | None = None) -> list[Reason]:
    """One `Reason` per conjunct, in their order."""
    budget = Budget()
    return [_reason(part, statistics, evidence, budget) for part in predicate.conjuncts]


def _reason(part: Predicate, statistics: Statistics, evidence: Evidence | None, budget: Budget) -> Reason:
    found = outcomes(part, statistics, evidence, budget=budget)
    removed, proved = int(np.count_nonzero(~found.may_match)), int(np.count_nonzero(found.all_match))
    opaque = tuple((node.sql or part.text, node.reason) for node in walk(part.tree) if isinstance(node, Opaque))
    if is_cut_short(part):
        opaque = (*opaque, (part.text, f"more than {MOST_PROVED:,} conditions: the rest is kept"))
    unknown = tuple(
        (path, "no statistics of this column") for path in sorted(part.columns) if _is_unknown(path, statistics)
    )
    hint = next((hint for _, reason in opaque for words, hint in REWRITES.items() if words in reason.lower()), None)
    by_evidence = 0
    if evidence is not None:
        by_evidence = int(np.count_nonzero(outcomes(part, statistics, budget=budget).may_match & ~found.may_match))
    return Reason(
        part.text,
        len(statistics),
        removed,
        proved,
        opaque + unknown,
        hint,
        _computed(part, found, statistics, budget),
        by_evidence,
    )


def _computed(part: Predicate, found: Outcomes, statistics: Statistics, budget: Budget) -> int:
    """The units of which less were known without DuckDB."""
    if not any(isinstance(node, Computable) for node in walk(part.tree)):
        return 0
    by_ranges = outcomes(part, statistics, budget=budget, computing=False)
    narrowed = (
        (by_ranges.can_be_true & ~found.can_be_true)
        | (by_ranges.can_be_false & ~found.can_be_false)
        | (by_ranges.can_be_null & ~found.can_be_null)
    )
    return int(np.count_nonzero(narrowed))


def _is_unknown(path: str, statistics: Statistics) -> bool:
    """Whether no unit has a bound, or knows that it holds no value, for a column."""
    ranges = statistics.columns.get(path)
    if ranges is None:
        return True
    return (
        bool(ranges.lower.null_count == len(ranges) and ranges.has_value.null_count == len(ranges)) and len(ranges) > 0
    )
