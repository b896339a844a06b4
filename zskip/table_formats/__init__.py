"""Delta and Iceberg tables, planned in place by a zskip index that follows their logs.

``source``: the interface of a format · ``delta``, ``iceberg``: its implementations · ``log_index``: brings the
side-car up to date with a log · ``locate``: finds the table at an address and its side-car.
"""

from zskip.table_formats.locate import attach, index_of, is_table_object, open_index, own_snapshot, source_of
from zskip.table_formats.source import Source

__all__ = ["Source", "attach", "index_of", "is_table_object", "open_index", "own_snapshot", "source_of"]
