"""The side-car index: the table's folder, its log of snapshots, and the shards of statistics beside the data.

``storage``, ``opening``: where a table lies · ``parts``, ``shards``, ``snapshot``: what is kept · ``log``: which
version is the table · ``commit``: how it changes · ``index``: what a plan reads · ``indexing``, ``freshness``: folders
of others · ``repair``: what was lost · ``vacuum``: what no version needs any more.
"""

from zskip.sidecar.commit import commit, layout_assignment
from zskip.sidecar.freshness import Changes, be_there, changes
from zskip.sidecar.index import CACHE_BYTES, FileUnits, Index, RowGroupUnits
from zskip.sidecar.indexing import index_files, refresh
from zskip.sidecar.log import history, latest_version, load, versions
from zskip.sidecar.opening import open_storage
from zskip.sidecar.repair import Repaired, repair
from zskip.sidecar.snapshot import LayoutRecord, Shard, Snapshot, Totals
from zskip.sidecar.storage import Listing, Storage, abandon
from zskip.sidecar.vacuum import Vacuumed, vacuum

__all__ = [
    "CACHE_BYTES",
    "Changes",
    "FileUnits",
    "Index",
    "LayoutRecord",
    "Listing",
    "Repaired",
    "RowGroupUnits",
    "Shard",
    "Snapshot",
    "Storage",
    "Totals",
    "Vacuumed",
    "abandon",
    "be_there",
    "changes",
    "commit",
    "history",
    "index_files",
    "latest_version",
    "layout_assignment",
    "load",
    "open_storage",
    "refresh",
    "repair",
    "vacuum",
    "versions",
]
