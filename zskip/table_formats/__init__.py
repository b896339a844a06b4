"""Delta and Iceberg tables, planned in place by a zskip index that follows their logs.

``own_tables``: the first look at an address, for a table of zskip · ``source``: the interface of a format · ``delta``,
``iceberg``: its implementations · ``log_index``: brings the side-car up to date with a log · ``locate``: finds the
table of another format at an address, and its side-car.

Loaded on first use: opening a table of zskip needs no other format.
"""

from typing import TYPE_CHECKING

from zskip.core.late_loading import lazy_names

if TYPE_CHECKING:
    from zskip.table_formats.locate import attach, index_of, is_table_object, open_index, source_of
    from zskip.table_formats.own_tables import own_snapshot
    from zskip.table_formats.source import Source

__all__ = ["Source", "attach", "index_of", "is_table_object", "open_index", "own_snapshot", "source_of"]

_HOMES = {
    "locate": ("attach", "index_of", "is_table_object", "open_index", "source_of"),
    "own_tables": ("own_snapshot",),
    "source": ("Source",),
}

__getattr__ = lazy_names(__name__, _HOMES)
