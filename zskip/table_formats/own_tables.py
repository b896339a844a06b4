"""The table at an address: first one of zskip's own, for which no other format is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from zskip.errors import DamagedIndex, TableNotFound
from zskip.storage import Storage, open_storage
from zskip.tablelog.index import SOURCE_FORMATS
from zskip.tablelog.log import load, newest
from zskip.tablelog.snapshot import Snapshot

METADATA_ENDINGS = (".metadata.json", ".metadata.json.gz")
"""The ends of the names of Iceberg's metadata files."""


def own_snapshot(
    table: Any,
    version: int | str | None = None,
    as_of: datetime | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Storage, Snapshot] | None:
    """The storage and snapshot of the zskip table at an address; None for other formats, and if it is unreadable.

    It is called first: opening a zskip table need not look for the logs of other formats.
    """
    if not isinstance(table, str | os.PathLike) or not (version is None or type(version) is int):
        return None
    if os.fspath(table).endswith(METADATA_ENDINGS):
        return None
    storage = open_storage(table, storage_options)
    try:
        # `load` would list the whole folder for its error, and most tables of other formats have no side-car in it.
        snapshot = newest(storage) if version is None and as_of is None else load(storage, version, as_of)
    except (TableNotFound, DamagedIndex):  # the side-car of another format is rebuilt; otherwise raised again later
        return None
    return None if snapshot is None or snapshot.details.get("source") in SOURCE_FORMATS else (storage, snapshot)
