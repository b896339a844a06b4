"""Storage: one interface to local folders and object stores.

``storage``: the interface · ``local``, ``remote``: its implementations · ``opening``: opens the storage at a URL ·
``filesystem``: reads objects as files · ``staged``: the files of a change · ``secrets``: in URLs.
"""

from __future__ import annotations

from zskip.storage.opening import open_storage, options_for
from zskip.storage.staged import Staged
from zskip.storage.storage import Listing, Storage, abandon

__all__ = ["Listing", "Staged", "Storage", "abandon", "open_storage", "options_for"]
