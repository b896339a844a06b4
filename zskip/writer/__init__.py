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
"""

from zskip.writer.evolution import common_type, evolved
from zskip.writer.open_source import open_source
from zskip.writer.options import WriteOptions
from zskip.writer.routing import Routing
from zskip.writer.row_source import RowSource
from zskip.writer.storable import storable_rows, storable_schema
from zskip.writer.write import Written, write_files

__all__ = [
    "Routing",
    "RowSource",
    "WriteOptions",
    "Written",
    "common_type",
    "evolved",
    "open_source",
    "storable_rows",
    "storable_schema",
    "write_files",
]
