"""What a predicate can be in each unit: one evaluation for all units at once.

``outcomes``: the three values · ``spans``, ``term_spans``: ranges of columns and of the functions around them ·
``constant_comparison``: a column or function of it against constants · ``column_comparison``: against another column
· ``row_values``: rows of constants · ``evaluate``: a bound tree becomes a proof, which is evaluated for all units ·
``evidence``: what is known beyond ranges · ``candidates``: the units that it leaves · ``enumeration``: ranges of few
values, tried one by one within a ``budget`` · ``duckdb_evaluation``: what DuckDB computes for single values, where
``evaluation_cost`` bounds it · ``residuals``: what is left of a predicate where parts of it are proved · ``reasons``:
what removed how much, and what could not.
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
