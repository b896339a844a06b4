"""Storage: one interface to local folders and object stores.

``storage``: the interface · ``local``, ``remote``: its implementations · ``opening``: from a URL to a storage ·
``upload``, ``filesystem``: files of object stores for writers and readers · ``foreign_folders``: other formats.
"""

from __future__ import annotations

from zskip.storage.opening import open_storage
from zskip.storage.storage import Listing, Storage, abandon

__all__ = ["Listing", "Storage", "abandon", "open_storage"]
