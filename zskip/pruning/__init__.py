"""What a predicate can be in each unit: one evaluation for all units at once.

``outcomes``: the three values · ``spans``: ranges of columns and terms · ``steps``: everything that is said of one
term, decided on the set of its values · ``trying``: ranges of few values, tried one by one · ``computing``: what
DuckDB says of single values · ``walk``: the one tree walk · ``residuals``: what is left of a predicate where parts of
it are proved · ``evidence``: what is known beyond ranges · ``reasons``: what removed how much, and what could not.
"""

from __future__ import annotations

from zskip.pruning.budget import Budget
from zskip.pruning.evaluate import outcomes
from zskip.pruning.evidence import Evidence
from zskip.pruning.outcomes import Outcomes
from zskip.pruning.reasons import Reason, reasons
from zskip.pruning.residuals import residuals

__all__ = ["Budget", "Evidence", "Outcomes", "Reason", "outcomes", "reasons", "residuals"]
