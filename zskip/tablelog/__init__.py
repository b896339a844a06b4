"""The table log: the log of snapshots in a table's folder, and the shards of statistics.

``parts``, ``shards``, ``snapshot``: the stored form · ``log``: the versions of a table · ``commit``: makes a version
(with ``shard_changes``) · ``index``: reads statistics for a plan · ``indexing``, ``freshness``, ``table_folders``:
files of other writers · ``segments``, ``sketch_evidence``: sketches · ``repair``: rebuilds lost parts · ``vacuum``:
removes files that no version needs · ``runs``: what a commit and a vacuum at the same time know of each other ·
``query_log``: what a table was asked.
"""

from zskip.tablelog.commit import commit
from zskip.tablelog.dimensions import Dimension
from zskip.tablelog.freshness import Changes, changes, dropped_files, dropped_text, listed
from zskip.tablelog.index import CACHE_BYTES, SOURCE_FORMATS, FileUnits, Index, RowGroupUnits
from zskip.tablelog.indexing import index_files, refresh
from zskip.tablelog.log import history, is_expired, latest_version, load, newest, versions
from zskip.tablelog.query_log import QueryLog
from zskip.tablelog.repair import repair
from zskip.tablelog.runs import naming_vacuums
from zskip.tablelog.sketch_evidence import sketches_of
from zskip.tablelog.snapshot import LayoutRecord, SegmentRecord, Shard, SketchRecord, Snapshot, Totals, with_segments
from zskip.tablelog.vacuum import require_files, vacuum

__all__ = [
    "CACHE_BYTES",
    "SOURCE_FORMATS",
    "Changes",
    "Dimension",
    "FileUnits",
    "Index",
    "LayoutRecord",
    "QueryLog",
    "RowGroupUnits",
    "SegmentRecord",
    "Shard",
    "SketchRecord",
    "Snapshot",
    "Totals",
    "changes",
    "commit",
    "dropped_files",
    "dropped_text",
    "history",
    "index_files",
    "is_expired",
    "latest_version",
    "listed",
    "load",
    "naming_vacuums",
    "newest",
    "refresh",
    "repair",
    "require_files",
    "sketches_of",
    "vacuum",
    "versions",
    "with_segments",
]
