"""What a predicate is proved to give, for tests that compare two ways to prove it."""

from __future__ import annotations

from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.pruning import Budget, Outcomes, evaluate
from zskip.stats import Statistics


def asked(sql: str, schema: Schema, statistics: Statistics) -> Outcomes:
    """The outcomes by a proof that is made anew, and not remembered from another way."""
    evaluate._proofs.clear()
    return pruning.outcomes(bind(sql, schema), statistics, budget=Budget(60))


def masks(found: Outcomes) -> list[list[bool]]:
    """By unit, whether TRUE, FALSE and NULL may come out."""
    return [found.can_be_true.tolist(), found.can_be_false.tolist(), found.can_be_null.tolist()]
