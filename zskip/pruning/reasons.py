"""The reasons of a plan: for each conjunct, how many units it removes alone, and which of its parts prove nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from zskip.language import Predicate
from zskip.language.tree import Cause, Computable, Opaque, Why, walk
from zskip.pruning.duckdb_evaluation import Budget
from zskip.pruning.evaluate import outcomes
from zskip.pruning.evidence import Evidence
from zskip.pruning.outcomes import Outcomes
from zskip.stats import Statistics

_NO_STATISTICS = Why("no statistics of this column", Cause.NO_STATISTICS)


REWRITES: dict[Cause, str] = {
    Cause.CASE_FOLDED: "a sketch of its substrings; or keep a column that holds the text folded, and compare that",
    Cause.ENGINE_CASTS: "write the constant in the column's own type, as in 5 or DATE '2024-01-31'",
    Cause.NO_LITERAL_BEGINNING: "begin the pattern with a literal, or keep a column that holds the part",
    Cause.MIDDLE_OF_TEXT: "keep a column that holds the part",
    Cause.CLOCKS_CHANGE: "compare the column itself with moments that carry an offset",
    Cause.AMBIGUOUS_MOMENT: "give the moment an offset, as in TIMESTAMPTZ '2024-10-27 02:30:00+01'",
    Cause.ENGINE_ROUNDS: "write the constant as an exact decimal of the column's scale",
    Cause.SEVERAL_TYPES: "write all constants in one type",
}
"""For each cause that keeps something from pruning, what would prune instead."""


class Obstacle(NamedTuple):
    """A part of a predicate that proves nothing: its text, or the path of a column, and why."""

    sql: str
    why: Why


@dataclass(frozen=True, slots=True)
class Reason:
    """One conjunct. ``removed``: the units that it removes alone, of ``units`` · ``proved``: those in which every row
    makes it TRUE · ``opaque``: its parts that prove nothing · ``rewrite``: what would prune instead, if known ·
    ``computed``: the units that DuckDB's evaluation narrowed · ``by_evidence``: those, of ``removed``, that only
    evidence beyond ranges removes
    """

    text: str
    units: int
    removed: int
    proved: int
    opaque: tuple[Obstacle, ...]
    rewrite: str | None = None
    computed: int = 0
    by_evidence: int = 0


def reasons(predicate: Predicate, statistics: Statistics, evidence: Evidence | None = None) -> list[Reason]:
    """One `Reason` for each conjunct, in their order."""
    budget = Budget()
    return [_reason(part, statistics, evidence, budget) for part in predicate.conjuncts]


def _reason(part: Predicate, statistics: Statistics, evidence: Evidence | None, budget: Budget) -> Reason:
    found = outcomes(part, statistics, evidence, budget=budget)
    removed, proved = int(np.count_nonzero(~found.may_match)), int(np.count_nonzero(found.all_match))
    without = found if evidence is None else outcomes(part, statistics, budget=budget)
    by_evidence = int(np.count_nonzero(without.may_match & ~found.may_match))
    # Evidence can prune by an opaque part only through the condition that the part implies.
    nodes = [node for node in walk(part.tree) if isinstance(node, Opaque)]
    unused = [node for node in nodes if not by_evidence or node.implies is None]
    opaque = tuple(Obstacle(node.sql or part.text, node.reason) for node in unused)
    unknown = tuple(Obstacle(path, _NO_STATISTICS) for path in sorted(part.columns) if _is_unknown(path, statistics))
    hint = next((REWRITES[each.why.cause] for each in opaque if each.why.cause in REWRITES), None)
    return Reason(
        part.text,
        len(statistics),
        removed,
        proved,
        opaque + unknown,
        hint,
        _computed(part, without, statistics, budget),
        by_evidence,
    )


def _computed(part: Predicate, found: Outcomes, statistics: Statistics, budget: Budget) -> int:
    """The number of units whose outcomes DuckDB's evaluation narrowed."""
    if not any(isinstance(node, Computable) for node in walk(part.tree)):
        return 0
    by_ranges = outcomes(part, statistics, budget=budget, use_duckdb=False)
    possible = zip(by_ranges.masks[:3], found.masks[:3], strict=True)
    return int(np.count_nonzero(np.any([before & ~after for before, after in possible], axis=0)))


def _is_unknown(path: str, statistics: Statistics) -> bool:
    """Whether nothing is known of a column in any unit: neither its bounds nor whether it holds values."""
    ranges = statistics.columns.get(path)
    if ranges is None:
        return True
    return (
        bool(ranges.lower.null_count == len(ranges) and ranges.has_value.null_count == len(ranges)) and len(ranges) > 0
    )
