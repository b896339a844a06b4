"""The writer: rows from anywhere become data files in layout order, with their statistics.

``opening``, ``sources``, ``paths``, ``storable``, ``evolution``: rows and their types · ``sample``, ``routing``:
which file a row goes to · ``bundles``: which small files become one · ``scatter``, ``spool``: rows on their way,
within the memory limit · ``encode``, ``hive``: one file · ``write``: all of that · ``changes``, ``deleting``,
``optimizing``: what a table goes through · ``workload``, ``pace``: for the advisor, too.
"""

from zskip.writer.evolution import evolved, widened
from zskip.writer.file_groups import Bundles, least_rows, place, width
from zskip.writer.open_source import open_source
from zskip.writer.options import WriteOptions, bytes_of
from zskip.writer.routing import Routing
from zskip.writer.sources import Source
from zskip.writer.storable import storable_rows, storable_schema
from zskip.writer.write import Written, write_files

__all__ = [
    "Bundles",
    "Routing",
    "Source",
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
