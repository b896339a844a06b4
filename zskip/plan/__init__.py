"""Planning: which files and row groups a query must read, and the hand-off of these to engines.

``planner``: prunes shards, files and row groups · ``survivors``: the result · ``shares``: how much is skipped ·
``explain``: why · ``plan``: the object for users.
"""

from zskip.plan.plan import Plan, PlannedFile
from zskip.plan.planner import find_survivors, kept_survivors, logged, plan
from zskip.plan.survivors import Share, Skipped, Survivors

__all__ = ["Plan", "PlannedFile", "Share", "Skipped", "Survivors", "find_survivors", "kept_survivors", "logged", "plan"]
