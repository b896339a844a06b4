"""What a query need not read: statistics are judged level by level, and the survivors stand as a plain value.

``survey``: shard → file → row group · ``planned``: the values · ``explain``: why.
"""

from zskip.plan.planned import Changes, Plan, PlannedFile, Share, Skipped
from zskip.plan.survey import plan

__all__ = ["Changes", "Plan", "PlannedFile", "Share", "Skipped", "plan"]
