"""Where a table lies: one interface over local folders and object stores.

``storage``: the interface · ``local``, ``remote``: its two kinds · ``opening``: from a URL to a storage · ``upload``,
``filesystem``: object stores as readers and writers of files see them.
"""

from __future__ import annotations

from zskip.storage.opening import open_storage
from zskip.storage.storage import Listing, Storage, abandon

__all__ = ["Listing", "Storage", "abandon", "open_storage"]
