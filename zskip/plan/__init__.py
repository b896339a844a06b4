"""What a query need not read: statistics are judged level by level, and the survivors stand as a plain value.

``survey``: shard → file → row group · ``planned``, ``shares``: the values · ``explain``: why · ``freshness``: folders
that may have changed.
"""

from zskip.plan.listed_changes import listed
from zskip.plan.plan import Changes, Plan, PlannedFile
from zskip.plan.planner import plan
from zskip.plan.shares import Share, Skipped

__all__ = ["Changes", "Plan", "PlannedFile", "Share", "Skipped", "listed", "plan"]
