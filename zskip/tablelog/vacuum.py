"""Vacuum: remove expired versions, and files that no remaining version refers to."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.receipts import Vacuumed
from zskip.errors import DamagedIndex, TableNotFound
from zskip.storage.storage import Listing, Storage
from zskip.tablelog import log
from zskip.tablelog.freshness import changes
from zskip.tablelog.index import Index
from zskip.tablelog.kept_files import naming_vacuums, require_files
from zskip.tablelog.own_files import DATA_FILE
from zskip.tablelog.segments import segment_paths
from zskip.tablelog.snapshot import ANCESTORS, Snapshot
from zskip.tablelog.vacuum_intent import INTENT_LASTS, declared, intents

__all__ = ["vacuum"]

# The files that zskip writes: data files, parts of the index, Spark's staging, files that were never published.
_STAGING = r"^_zskip/staging-[0-9a-f]+/"
_UNPUBLISHED = r"(^|/)\.[^/]*\.[0-9a-f]{16}\.tmp$"
_OURS = rf"{DATA_FILE}|^_zskip/((stats|layout|sketches)/|log/vacuum-)[^/]+$|{_STAGING}|{_UNPUBLISHED}"
_INTENT = r"^_zskip/log/vacuum-"
_INDEX_ONLY = r"^_(zskip|data)/"
# Folders inside this one that hold tables of their own.
_OTHER_TABLE = r"^(?P<folder>.+/)(?:_zskip|_delta_log|\.hoodie)/"
_LOG = logging.getLogger("zskip")
_AT_ONCE, _ENTRIES_AT_ONCE = 16, 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def vacuum(storage: Storage, *, older_than: timedelta = timedelta(days=7), dry_run: bool = False) -> Vacuumed:
    """Remove the versions that were replaced longer ago than ``older_than``, and files that no other version names.

    A file that no version names is removed only if it is older than ``older_than``, since it may belong to a commit in
    progress, and only if zskip gave it its name. Files of other writers stay, and so do files of other tables inside
    this table's folder. In a folder that zskip only indexes, no data file is removed. Files of other writers that
    `cluster` replaced are removed with the last version that names them, if they have not changed since.

    Log entries are removed before files, the oldest first, so a crash leaves unreferenced files, but no version without
    its files. Only files that `cluster` replaced are removed before the versions that name them: without these versions
    a later vacuum could not recognise them. Before the log is read for the last time, an intent is written to it
    (`vacuum_intent`).

    No version expires while another vacuum is in progress: the other vacuum may be removing files of the newest
    version, whose writer then returns to the previous version.

    Nothing is removed if this raises: `TableNotFound` if files of the newest version are gone and older versions would
    expire, `DamagedIndex` if a remaining version cannot be read, and `FilesRemoved` if that is the newest version and
    its writer has not finished.
    """
    now = datetime.now(UTC)
    try:
        horizon = max(now - older_than, _EPOCH)
    except OverflowError:
        horizon = _EPOCH
    newest, versions = _newest(storage)
    alone = not intents(storage)  # read after the newest version: see above
    kept_from = _first_kept(storage, versions, horizon) if alone else versions[0]
    expired = [version for version in versions if version < kept_from]
    with naming_vacuums(storage, newest):
        named = _named(storage, [version for version in versions if version >= kept_from])
    listing = storage.list("")
    if expired and newest.managed:
        _require_files(storage, newest, listing.path)
    gone = _orphans(listing, named, now, horizon, managed=newest.managed)
    replaced = _replaced(storage, listing, expired, named) if newest.managed else listing.take(np.array([], np.int64))

    def removed(files: Listing) -> Listing:
        if dry_run or not len(files):
            return files
        with declared(storage, _nanoseconds(horizon), kept_from) as require_heeded:
            # Keep files that were committed in the meantime, by a restore or by a writer that was suspended.
            later = _named(storage, log.versions(storage, newest.version + 1))
            files = files.take(~np.asarray(pc.is_in(files.path, value_set=later)))
            require_heeded()
            storage.delete(files.path.to_pylist())
            _remove_empty_staging(storage, files.path)
        return files

    replaced = removed(replaced)
    if not dry_run:
        # A store removes the files of one request in any order; `new_entry` relies on the order of these batches.
        for start in range(0, len(expired), ANCESTORS):
            storage.delete([log.entry_path(version) for version in expired[start : start + ANCESTORS]])
    gone = removed(gone)
    paths = [*replaced.path.to_pylist(), *gone.path.to_pylist()]
    size = sum(pc.sum(files.size, min_count=0).as_py() for files in (replaced, gone))
    return Vacuumed(newest.version, tuple(paths), size, tuple(expired))


def _newest(storage: Storage) -> tuple[Snapshot, list[int]]:
    """The newest version, and the versions up to it; read again if another vacuum removed it in between."""
    while True:
        newest = log.load(storage)
        versions = [version for version in log.versions(storage) if version <= newest.version]
        if versions:
            return newest, versions


def _require_files(storage: Storage, newest: Snapshot, listed: pa.StringArray) -> None:
    try:
        require_files(storage, newest, listed)
    except (DamagedIndex, TableNotFound):
        if log.read_entry(storage, newest.version) is not None:
            raise
        # Another vacuum has removed this version.


def _replaced(storage: Storage, listing: Listing, expired: Sequence[int], named: pa.StringArray) -> Listing:
    """The files of other writers that only expired versions name and that have not changed since they were indexed."""
    found = np.zeros(len(listing), bool)
    for snapshot in _read(storage, expired):
        if not snapshot.managed:
            try:
                differs = changes(Index(storage, snapshot), listing)
            except DamagedIndex as error:
                _LOG.warning("Files that version %d named are kept: %s", snapshot.version, error)
                continue
            others = pa.concat_arrays([differs.added.path, differs.changed.path])
            found |= ~np.asarray(pc.is_in(listing.path, value_set=others))
    return listing.take(found & ~np.asarray(pc.is_in(listing.path, value_set=named)))


def _orphans(listing: Listing, named: pa.StringArray, now: datetime, horizon: datetime, *, managed: bool) -> Listing:
    """Files with zskip's names that are older than the horizon and that no version names, and intents of crashes."""
    ours = _matches(listing.path, _OURS)
    if not managed:
        ours &= _matches(listing.path, _INDEX_ONLY)
    others = pc.struct_field(pc.extract_regex(listing.path, _OTHER_TABLE), "folder").drop_null().unique()
    for folder in others.to_pylist():
        ours &= ~np.asarray(pc.starts_with(listing.path, folder))
    old = np.asarray(pc.less_equal(listing.modified, _nanoseconds(horizon)))
    long_ago = np.asarray(pc.less_equal(listing.modified, _nanoseconds(min(horizon, now - INTENT_LASTS))))
    old &= long_ago | ~_matches(listing.path, _INTENT)
    return listing.take(ours & old & ~np.asarray(pc.is_in(listing.path, value_set=named)))


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1e9)


def _matches(paths: pa.StringArray, pattern: str) -> np.ndarray:
    return np.array(pc.match_substring_regex(paths, pattern), bool)


def _remove_empty_staging(storage: Storage, removed: pa.StringArray) -> None:
    """Remove staging folders that are empty now; object stores have no folders."""
    staged = removed.filter(pc.match_substring_regex(removed, _STAGING)).to_pylist()
    for name in sorted({"/".join(path.split("/")[:2]) for path in staged}):
        storage.remove_empty(name)


def _read(storage: Storage, versions: Sequence[int]) -> Iterator[Snapshot]:
    """The snapshots of some versions, with a limited number in memory at once."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(versions), _ENTRIES_AT_ONCE):
            some = versions[start : start + _ENTRIES_AT_ONCE]
            for snapshot in pool.map(lambda version: log.read_entry(storage, version), some):
                if snapshot is not None:
                    yield snapshot


def _first_kept(storage: Storage, versions: list[int], horizon: datetime) -> int:
    """The oldest version that was still the newest at the horizon or later. The times of versions increase."""
    low, high = 0, len(versions) - 1
    while low < high:
        middle = (low + high) // 2
        successor = log.read_entry(storage, versions[middle + 1])
        if successor is not None and successor.time <= horizon:
            low = middle + 1
        else:
            high = middle
    return versions[low]


def _named(storage: Storage, versions: Sequence[int]) -> pa.StringArray:
    """The paths of all data files and parts of some versions; a shard shared by several is read once."""
    seen: set[str] = set()
    named: list[pa.StringArray] = []
    for snapshot in _read(storage, versions):
        fresh = [number for number, shard in enumerate(snapshot.shards) if shard.file_part.path not in seen]
        try:
            index = Index(storage, snapshot) if fresh else None
            named += [index.shard_paths(number) for number in fresh if index is not None]
        except DamagedIndex:
            if log.read_entry(storage, snapshot.version) is not None:
                raise
            continue  # another vacuum has removed this version
        seen.update(part.path for part in snapshot.parts)
        seen.update(segment_paths(snapshot.sketches))
    return pa.concat_arrays([*named, pa.array(sorted(seen), pa.string())])
