"""Pruning: the outcomes that a predicate can have in each unit, evaluated for all units at once.

``evaluate``: compiles a bound tree to a proof, and evaluates it · ``outcomes``: sets of TRUE, FALSE and NULL ·
``term_spans``: the ranges of columns and of functions of them · ``constant_comparison``: a term against constants ·
``column_comparison``: against another term · ``evidence``: what is known beyond ranges · ``candidates``: the units that
evidence alone leaves · ``enumeration``: evaluation of each value of a small range, within a ``budget`` ·
``duckdb_evaluation``: expressions without a rule, for single values · ``residuals``: the conjuncts
that are not proved · ``reasons``: what each conjunct removes, and what proves nothing
"""

from __future__ import annotations

from zskip.pruning.budget import Budget
from zskip.pruning.candidates import candidates
from zskip.pruning.evaluate import outcomes
from zskip.pruning.evidence import Evidence
from zskip.pruning.outcomes import Outcomes
from zskip.pruning.reasons import Reason, reasons
from zskip.pruning.residuals import residuals

__all__ = ["Budget", "Evidence", "Outcomes", "Reason", "candidates", "outcomes", "reasons", "residuals"]
