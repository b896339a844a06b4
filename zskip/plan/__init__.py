"""Planning: which files and row groups a query must read, and the hand-off of these to engines.

``planner``: shard → file → row group · ``survivors``, ``shares``: what is left, and how much is skipped · ``explain``:
why · ``plan``: what a user holds.
"""

from zskip.plan.plan import Plan, PlannedFile
from zskip.plan.planner import find_survivors, kept_survivors, plan
from zskip.plan.shares import Share, Skipped
from zskip.plan.survivors import Survivors

__all__ = ["Plan", "PlannedFile", "Share", "Skipped", "Survivors", "find_survivors", "kept_survivors", "plan"]
