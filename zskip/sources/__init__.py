"""Tables of other formats, planned in place: a zskip index that follows a Delta or Iceberg log.

``source``: what a format must say of itself · ``delta`` and ``iceberg``: the two · ``log_index``: the side-car that
keeps up with a log · ``locate``: which of them lies at an address.
"""

from zskip.sources.locate import attach, index_of, is_table_object, open_index, own_snapshot, source_of
from zskip.sources.source import Source

__all__ = ["Source", "attach", "index_of", "is_table_object", "open_index", "own_snapshot", "source_of"]
