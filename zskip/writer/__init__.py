"""The writer: rows from anywhere become data files in layout order, with their statistics.

| what                        | where                                                                                  |
| --------------------------- | -------------------------------------------------------------------------------------- |
| reading rows                | `open_source`, `paths`, `row_source`, `spool`, `storable`, `evolution`                 |
| cutting and scattering them | `row_sample`, `routing`, `file_groups`, `scatter`, `narrow`, `transit_types`           |
| encoding one file           | `encode`                                                                               |
| all of that                 | `write`                                                                                |
| what changes a table        | `append`, `delete`, by the `backend` of this machine or of a cluster                   |
| sketches of files           | `sketching`                                                                            |
| for the advisor, too        | `workload_input`, `write_estimate`                                                     |
"""

from zskip.writer.evolution import evolved, widened
from zskip.writer.file_groups import Bundles, least_rows, place, width
from zskip.writer.open_source import open_source
from zskip.writer.options import WriteOptions, bytes_of
from zskip.writer.routing import Routing
from zskip.writer.row_source import RowSource
from zskip.writer.storable import storable_rows, storable_schema
from zskip.writer.write import Written, write_files

__all__ = [
    "Bundles",
    "Routing",
    "RowSource",
    "WriteOptions",
    "Written",
    "bytes_of",
    "evolved",
    "least_rows",
    "open_source",
    "place",
    "storable_rows",
    "storable_schema",
    "widened",
    "width",
    "write_files",
]
