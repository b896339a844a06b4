"""The table log: the log of snapshots in a table's folder, and the shards of statistics.

``parts``, ``shards``, ``snapshot``: the stored form · ``log``: the versions of a table · ``commit``: makes a version
(with ``shard_changes``) · ``index``: reads statistics for a plan · ``indexing``, ``freshness``, ``table_folders``:
files of other writers · ``segments``, ``sketch_evidence``: sketches · ``repair``: rebuilds lost parts · ``vacuum``:
removes files that no version needs · ``runs``: what a commit and a vacuum at the same time know of each other ·
``query_log``: what a table was asked.

Loaded on first use: opening a table and planning on it need neither commits nor footers. ``commit``, ``repair`` and
``vacuum`` are modules.
"""

from typing import TYPE_CHECKING

from zskip.core.late_loading import lazy_names

if TYPE_CHECKING:
    from zskip.tablelog import commit, repair, vacuum
    from zskip.tablelog.dimensions import Dimension
    from zskip.tablelog.freshness import Changes, changes, dropped_files, dropped_text, listed
    from zskip.tablelog.index import CACHE_BYTES, SOURCE_FORMATS, FileUnits, Index, RowGroupUnits
    from zskip.tablelog.indexing import index_files, refresh
    from zskip.tablelog.log import history, is_expired, latest_version, load, newest, versions
    from zskip.tablelog.query_log import QueryLog
    from zskip.tablelog.runs import naming_vacuums
    from zskip.tablelog.sketch_evidence import sketches_of
    from zskip.tablelog.snapshot import (
        LayoutRecord,
        SegmentRecord,
        Shard,
        SketchRecord,
        Snapshot,
        Totals,
        with_segments,
    )
    from zskip.tablelog.vacuum import require_files

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

_HOMES = {
    "commit": ("commit",),
    "dimensions": ("Dimension",),
    "freshness": ("Changes", "changes", "dropped_files", "dropped_text", "listed"),
    "index": ("CACHE_BYTES", "FileUnits", "Index", "RowGroupUnits", "SOURCE_FORMATS"),
    "indexing": ("index_files", "refresh"),
    "log": ("history", "is_expired", "latest_version", "load", "newest", "versions"),
    "query_log": ("QueryLog",),
    "repair": ("repair",),
    "runs": ("naming_vacuums",),
    "sketch_evidence": ("sketches_of",),
    "snapshot": ("LayoutRecord", "SegmentRecord", "Shard", "SketchRecord", "Snapshot", "Totals", "with_segments"),
    "vacuum": ("require_files", "vacuum"),
}

__getattr__ = lazy_names(__name__, _HOMES)
