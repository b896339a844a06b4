"""Tables of other formats, planned where they lie: a Delta or Iceberg log followed into an index of zskip's own.

``source``: what a format must say of itself · ``delta`` and ``iceberg``: the two · ``follow``: the side-car that keeps
up with a log · ``opening``: which of them lies at an address.
"""

from zskip.sources.opening import attach, open_index

__all__ = ["attach", "open_index"]
