"""Write rows from any source as data files in layout order, with their statistics.

| step                        | modules                                                                                |
| --------------------------- | -------------------------------------------------------------------------------------- |
| reading rows                | `open_source`, `paths`, `row_source`, `spool`, `storable`, `evolution`                 |
| sending them to files       | `row_sample`, `routing`, `look_ups`, `scatter`, `compact_rows`, `transit_types`        |
| encoding one file           | `encode`                                                                               |
| the whole write             | `write`                                                                                |
| changes to a table          | `append`, `delete`, on this machine or on a cluster (`backend`)                        |
| sketches of files           | `sketching`                                                                            |
| also for the advisor        | `workload_input`, `write_estimate`                                                     |

Loaded on first use: opening a table and planning on it need none of this.
"""

from typing import TYPE_CHECKING

from zskip.core.late_loading import lazy_names

if TYPE_CHECKING:
    from zskip.writer import adopt, append, delete, open_source, refresh_joins, upsert
    from zskip.writer.backend import backend_of
    from zskip.writer.compaction.cluster import cluster, cluster_folder, cluster_table
    from zskip.writer.compaction.compact import optimize
    from zskip.writer.compaction.tend import tend
    from zskip.writer.evolution import common_type
    from zskip.writer.options import WriteOptions, resources_of, timedelta_of
    from zskip.writer.routing import Routing
    from zskip.writer.row_sample import RowSample
    from zskip.writer.sketching import complete_sketches, drop_sketches
    from zskip.writer.star import Join, given_joins
    from zskip.writer.storable import storable_schema
    from zskip.writer.workload_input import file_of, queries_of
    from zskip.writer.write import Written, write_files

__all__ = [
    "Join",
    "Routing",
    "RowSample",
    "WriteOptions",
    "Written",
    "adopt",
    "append",
    "backend_of",
    "cluster",
    "cluster_folder",
    "cluster_table",
    "common_type",
    "complete_sketches",
    "delete",
    "drop_sketches",
    "file_of",
    "given_joins",
    "open_source",
    "optimize",
    "queries_of",
    "refresh_joins",
    "resources_of",
    "storable_schema",
    "tend",
    "timedelta_of",
    "upsert",
    "write_files",
]

_HOMES = {
    "adopt": ("adopt",),
    "append": ("append",),
    "backend": ("backend_of",),
    "compaction.cluster": ("cluster", "cluster_folder", "cluster_table"),
    "compaction.compact": ("optimize",),
    "compaction.tend": ("tend",),
    "delete": ("delete",),
    "evolution": ("common_type",),
    "open_source": ("open_source",),
    "options": ("resources_of", "timedelta_of", "WriteOptions"),
    "refresh_joins": ("refresh_joins",),
    "routing": ("Routing",),
    "row_sample": ("RowSample",),
    "sketching": ("complete_sketches", "drop_sketches"),
    "star": ("given_joins", "Join"),
    "storable": ("storable_schema",),
    "upsert": ("upsert",),
    "workload_input": ("file_of", "queries_of"),
    "write": ("write_files", "Written"),
}

__getattr__ = lazy_names(__name__, _HOMES)
