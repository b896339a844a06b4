"""What a query need not read: statistics are judged level by level, and the survivors handed to engines.

``planner``: shard → file → row group · ``survivors``, ``shares``: what is left, and how much is skipped · ``explain``:
why · ``plan``: what a user holds · ``listed_changes``: folders that may have changed.
"""

from zskip.plan.listed_changes import listed
from zskip.plan.plan import Plan, PlannedFile
from zskip.plan.planner import plan, survey
from zskip.plan.shares import Share, Skipped
from zskip.plan.survivors import Changes, Survivors

__all__ = ["Changes", "Plan", "PlannedFile", "Share", "Skipped", "Survivors", "listed", "plan", "survey"]
