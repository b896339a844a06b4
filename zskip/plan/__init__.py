"""Planning: which files and row groups a query must read, and the hand-off of these to engines.

``planner``: prunes shards, files and row groups · ``survivors``: the result · ``shares``: how much is skipped ·
``explain``: why · ``plan``: the object for users.
"""

from typing import TYPE_CHECKING

from zskip.core.late_loading import lazy_names

if TYPE_CHECKING:
    from zskip.plan.plan import Plan, PlannedFile
    from zskip.plan.planner import find_survivors, kept_survivors, logged
    from zskip.plan.survivors import Share, Skipped, Survivors

__all__ = ["Plan", "PlannedFile", "Share", "Skipped", "Survivors", "find_survivors", "kept_survivors", "logged"]

# Loaded on first use: all files of a table are known without planning.
_HOMES = {
    "plan": ("Plan", "PlannedFile"),
    "planner": ("find_survivors", "kept_survivors", "logged"),
    "survivors": ("Share", "Skipped", "Survivors"),
}

__getattr__ = lazy_names(__name__, _HOMES)
