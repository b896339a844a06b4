"""Vacuum: expired versions and orphans, and nothing that a version still kept has a name for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.sidecar import log
from zskip.sidecar.index import Index
from zskip.sidecar.snapshot import Snapshot
from zskip.sidecar.storage import Storage

__all__ = ["DATA_FILE", "Vacuumed", "vacuum"]

# What zskip itself writes: data files by its own names, parts, and files that were never published.
DATA_FILE = r"(^|/)part-[^/]*\.parquet$"
_OURS = DATA_FILE + r"|^_zskip/(stats|layout)/[^/]+$|(^|/)\.[^/]*\.[0-9a-f]{16}\.tmp$"
_INDEX_ONLY = r"^_zskip/(.*/)?[^/]+$"


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What was removed, or would be: files by path, their bytes, and the versions that can no longer be opened."""

    paths: tuple[str, ...]
    bytes: int
    versions: tuple[int, ...]


def vacuum(storage: Storage, *, older_than: timedelta = timedelta(days=7), dry_run: bool = False) -> Vacuumed:
    """Remove the versions that were replaced longer ago than ``older_than``, and all that no other version names.

    A file that no version names is removed only when it is itself older than that: it may belong to a commit that is
    on its way. In a folder that zskip only indexes, no data file is ever removed. Log entries go first, oldest first,
    then files, so that a crash leaves orphans and no version without its files.

    Raises `TableNotFound`, and `DamagedIndex` where a version that is kept cannot be read: nothing is removed then.
    """
    now = datetime.now(UTC)
    newest = log.load(storage)
    versions = log.versions(storage)
    kept_from = _first_kept(storage, versions, now - older_than)
    expired = tuple(version for version in versions if version < kept_from)
    snapshots = [one for version in versions if version >= kept_from and (one := log.read_entry(storage, version))]
    named = _named(storage, snapshots)
    listing = storage.list("")
    ours = np.asarray(pc.match_substring_regex(listing.path, _OURS))
    if not newest.managed:
        ours &= np.asarray(pc.match_substring_regex(listing.path, _INDEX_ONLY))
    horizon = int((now - older_than).timestamp() * 1e9)
    old = np.asarray(pc.less_equal(listing.modified, horizon))
    orphan = ~np.asarray(pc.is_in(listing.path, value_set=named))
    gone = listing.take(ours & old & orphan)
    if not dry_run:
        for version in expired:
            storage.delete([log.entry_path(version)])
        storage.delete(gone.path.to_pylist())
    return Vacuumed(tuple(gone.path.to_pylist()), pc.sum(gone.size, min_count=0).as_py(), expired)


def _first_kept(storage: Storage, versions: list[int], horizon: datetime) -> int:
    """The oldest version that was still the table at the horizon or later: versions' times only grow."""
    low, high = 0, len(versions) - 1
    while low < high:
        middle = (low + high) // 2
        successor = log.read_entry(storage, versions[middle + 1])
        if successor is not None and successor.time <= horizon:
            low = middle + 1
        else:
            high = middle
    return versions[low]


def _named(storage: Storage, snapshots: list[Snapshot]) -> pa.StringArray:
    """The paths of all data files and parts of some versions; a shard that many share is read once."""
    seen: set[str] = set()
    named: list[pa.StringArray] = []
    for snapshot in snapshots:
        index = Index(storage, snapshot)
        for number, shard in enumerate(snapshot.shards):
            if shard.file_part.path not in seen:
                seen.add(shard.file_part.path)
                named.append(index.shard_paths(number))
            if shard.row_group_part is not None:
                seen.add(shard.row_group_part.path)
        if snapshot.layout is not None and snapshot.layout.part is not None:
            seen.add(snapshot.layout.part.path)
    return pa.concat_arrays([*named, pa.array(sorted(seen), pa.string())])
