"""Files that other programs put into the folder of a table that zskip wrote: no version holds their rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import DamagedIndex
from zskip.storage.storage import Listing, Storage
from zskip.tablelog import log
from zskip.tablelog.index import Index
from zskip.tablelog.runs import DATA_FILE
from zskip.tablelog.snapshot import Snapshot

__all__ = ["dropped_files", "dropped_text"]

# Folders that hold tables of their own.
_OTHER_TABLE = r"^(?P<folder>.+/)(?:_zskip|_delta_log|\.hoodie)/"


def dropped_files(storage: Storage, snapshot: Snapshot) -> Listing:
    """The Parquet files of a folder that are neither zskip's own nor files that `cluster` replaced.

    A file that `cluster` replaced and that has changed since is among them. Empty, without a listing, for a folder that
    zskip only indexes: its plans read new files.
    """
    if not snapshot.managed:
        return Listing.of([])
    everything = storage.list("")
    found = everything.visible().parquet()
    found = found.take(~np.asarray(pc.match_substring_regex(found.path, DATA_FILE)))
    for folder in set(pc.extract_regex(everything.path, _OTHER_TABLE).drop_null().field("folder").to_pylist()):
        found = found.take(~np.asarray(pc.starts_with(found.path, folder)))
    for version in reversed(log.versions(storage)) if len(found) else ():
        found = found.take(~_same(found, storage, version))
        if not len(found):
            break
    return found


def _same(found: Listing, storage: Storage, version: int) -> np.ndarray:
    """Whether a version names a file as it is now; only versions before `cluster` name files of other writers."""
    nothing = np.zeros(len(found), bool)
    try:
        snapshot = log.read_entry(storage, version)
        if snapshot is None or snapshot.managed:
            return nothing
        index = Index(storage, snapshot)
        numbers = np.arange(len(index))
        places = pc.index_in(found.path, value_set=index.paths(numbers))
        then = [index.sizes(numbers), index.modified(numbers)]
    except DamagedIndex:  # an old version that cannot be read names nothing that is known
        return nothing
    known = np.asarray(pc.is_valid(places))
    at = pc.fill_null(places, 0).cast(pa.int64()) if known.any() else None
    if at is None:
        return nothing
    sizes, times = (
        np.asarray(pc.fill_null(pc.equal(column.take(at), now), True))
        for column, now in zip(then, (found.size, found.modified), strict=True)
    )
    same: np.ndarray = known & sizes & times
    return same


def dropped_text(count: int) -> str:
    """What the reports say of dropped files.

    >>> dropped_text(2)
    '2 files that other programs put into the folder are not part of the table: adopt() appends and removes them'
    """
    files = (
        "1 file that other programs put into the folder is"
        if count == 1
        else (f"{count:,} files that other programs put into the folder are")
    )
    return f"{files} not part of the table: adopt() appends and removes {'it' if count == 1 else 'them'}"
