"""Pruning: the outcomes that a predicate can have in each unit, evaluated for all units at once.

``evaluate``: compiles a bound tree to a proof, and evaluates it over the ranges of its terms, or over evidence alone ·
``outcomes``: sets of TRUE, FALSE and NULL · ``constant_comparison``: a term against constants · ``evidence``: what is
known beyond ranges · ``duckdb_evaluation``: expressions in units of few values, within a budget · ``reasons``: what
each conjunct removes, and what proves nothing
"""

from __future__ import annotations

from zskip.pruning.duckdb_evaluation import Budget
from zskip.pruning.evaluate import candidates, outcomes
from zskip.pruning.evidence import Evidence
from zskip.pruning.outcomes import Outcomes
from zskip.pruning.reasons import Reason, reasons

__all__ = ["Budget", "Evidence", "Outcomes", "Reason", "candidates", "outcomes", "reasons"]
