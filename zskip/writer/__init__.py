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

from zskip.core.lazy_names import lazy_names

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
    "adopt": "adopt",
    "append": "append",
    "backend_of": "backend",
    "cluster": "compaction.cluster",
    "cluster_folder": "compaction.cluster",
    "cluster_table": "compaction.cluster",
    "common_type": "evolution",
    "complete_sketches": "sketching",
    "delete": "delete",
    "drop_sketches": "sketching",
    "file_of": "workload_input",
    "given_joins": "star",
    "Join": "star",
    "open_source": "open_source",
    "optimize": "compaction.compact",
    "queries_of": "workload_input",
    "refresh_joins": "refresh_joins",
    "resources_of": "options",
    "Routing": "routing",
    "RowSample": "row_sample",
    "storable_schema": "storable",
    "tend": "compaction.tend",
    "timedelta_of": "options",
    "upsert": "upsert",
    "write_files": "write",
    "WriteOptions": "options",
    "Written": "write",
}

__getattr__ = lazy_names(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()})
