"""Vacuum: expire old versions, and remove the files that no other version names.

    1 2 3 4 5 6           4 to 6 stay: they were replaced later than the horizon, or are the table
    1 2 3 4 5 6 [7]       a version like 6, whose entry says that 4 is the oldest that stays, and which runs go
    † † † 4 5 6 [7]       only then tombstones take the entries' places, and the files go

So a vacuum is a commit. If another one came first, it looks again at what that one names; a writer that comes later
sees what is gone (`runs`). A vacuum that dies on the way leaves the rest to the next.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Container, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.receipts import Vacuumed
from zskip.errors import CommitConflict, DamagedIndex, TableNotFound, UnsupportedFormat
from zskip.storage.storage import Listing, Storage
from zskip.tablelog import log
from zskip.tablelog.freshness import (
    files_of_others,
    is_in,
    outside_other_tables,
    remember_replaced,
    replaced_after,
    unchanged,
)
from zskip.tablelog.index import Index
from zskip.tablelog.parts import InlinePart, Part
from zskip.tablelog.runs import DATA_FILE, abandoned, naming_vacuums
from zskip.tablelog.segments import segment_paths
from zskip.tablelog.snapshot import Snapshot

# The files that zskip writes: data files, parts of the index, Spark's staging, files that were never published.
_STAGING = r"^_zskip/staging-[0-9a-f]+/"
_UNPUBLISHED = r"(^|/)\.[^/]*\.[0-9a-f]{16}\.tmp$"
_OURS = rf"{DATA_FILE}|^_zskip/((stats|layout|sketches)/|log/vacuum-)[^/]+$|{_STAGING}|{_UNPUBLISHED}"
_INDEX_ONLY = r"^_(zskip|data)/"
_TOMBSTONE_BYTES = 64
_LOG = logging.getLogger("zskip")
_ATTEMPTS = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def vacuum(storage: Storage, *, older_than: timedelta = timedelta(days=7), dry_run: bool = False) -> Vacuumed:
    """Expire the versions that were replaced longer ago than ``older_than``; remove files that no other version names.

    A file that no version names is removed only if it and all that were written with it are older than ``older_than``,
    since they may belong to a commit in progress, and only if zskip gave it its name. Files of other writers stay, and
    so do files of other tables inside this table's folder. In a folder that zskip only indexes, no data file is
    removed. Files of other writers that `cluster` replaced are removed with the last version that names them, if they
    have not changed since.

    If there is anything to remove, a new version is committed first. Files that `cluster` replaced are removed before
    the entries of the versions that name them: without these a later vacuum could not recognise them.

    Nothing is removed if this raises `TableNotFound` because files of the newest version are gone and older versions
    would expire, `DamagedIndex` because a remaining version cannot be read, `UnsupportedFormat` because one was written
    by a newer zskip, `CommitConflict` (`FilesRemoved` if another vacuum came first) or `UncertainCommit`.
    """
    try:
        horizon = max(datetime.now(UTC) - older_than, _EPOCH)
    except OverflowError:
        horizon = _EPOCH
    newest = log.load(storage)
    listing = storage.list("")
    versions = [*_entries(listing, newest.horizon, newest.version), newest.version]
    kept_from = _first_kept(storage, versions, horizon)
    if versions[0] < kept_from and newest.managed:
        with naming_vacuums(storage, newest):
            require_files(storage, newest, listing)
    named = _Named(storage)
    for attempt in range(_ATTEMPTS):
        kept_from = max(kept_from, newest.horizon)
        entries = _entries(listing, 0, kept_from)
        named.add(range(kept_from, newest.version + 1))
        paths = named.paths
        replaced, stay, unread = _replaced(storage, listing, entries if newest.managed else {}, paths)
        expired = {version: path for version, path in entries.items() if not {version, version - 1} & unread}
        ours = _unnamed(listing, paths, managed=newest.managed)
        old, runs = abandoned(ours, int(horizon.timestamp() * 1e9))
        orphans = ours.take(old)
        older = is_in(listing.path, paths) & ~is_in(listing.path, named.of(newest))
        waiting = len(ours) - len(orphans) + int(older.sum())
        removed = [*replaced.path.to_pylist(), *orphans.path.to_pylist()]
        gone = tuple(version for version in expired if version >= newest.horizon)
        if dry_run or not (removed or expired):
            break
        made = newest.followed_by(
            operation="vacuum",
            # Those of a folder or another format's table say to which state of it the index belongs.
            details={"files": len(removed), "versions": len(gone)} if newest.managed else newest.details,
            horizon=kept_from,
            doomed=runs,
        )
        remember_replaced(storage, made.commit_id, stay)
        if log.create(storage, made, newest):
            log.write_hint(storage, made.version)
            storage.delete(replaced.path.to_pylist())
            log.expire(storage, list(expired.values()))
            storage.delete(orphans.path.to_pylist())
            _remove_empty_staging(storage, orphans.path)
            newest = made
            break
        time.sleep(random.random() * min(0.001 * 2**attempt, 0.2))
        newest = log.load(storage)
    else:
        raise CommitConflict(f"{storage.uri}: other writers came first {_ATTEMPTS} times. Try again.")
    size = sum(pc.sum(files.size, min_count=0).as_py() for files in (replaced, orphans))
    ago = str(older_than).removesuffix(", 0:00:00")
    left = [f"files that were replaced or written less than {ago} ago (older_than): {waiting:,}"] if waiting else []
    if len(stay):
        left.append(f"files to remove by hand, changed or copied after cluster had replaced them: {len(stay):,}")
    if unread:
        left.append(f"versions that cannot be read, and may name files that cluster replaced: {sorted(unread)}")
    return Vacuumed(newest.version, tuple(removed), size, gone, "; ".join(left) or None)


def require_files(storage: Storage, snapshot: Snapshot, listing: Listing | None = None) -> None:
    """Raise `TableNotFound` if a file of a snapshot is gone, or one of other programs has changed since it was indexed,
    and `DamagedIndex` if its statistics are gone.

    ``listing``: all files in the storage, listed after the snapshot was read; None: list them here.
    """
    index = Index(storage, snapshot)
    names = [index.shard_paths(shard) for shard in range(len(snapshot.shards))]
    known = pa.concat_arrays([*names, pa.array([part.path for part in snapshot.parts], pa.string())])
    listing = storage.list("") if listing is None else listing
    gone = known.filter(~is_in(known, listing.path))
    if len(gone):
        shown = ", ".join(gone.slice(0, 3).to_pylist()) + (", …" if len(gone) > 3 else "")
        raise TableNotFound(
            f"Version {snapshot.version} of {storage.uri} needs {len(gone):,} of {len(known):,} files that are gone: "
            f"{shown}. Put them back, or choose a later version."
        )
    others = files_of_others(index)
    changed = others.path.filter(~unchanged(storage, others, listing, by="time"))
    if len(changed):
        raise TableNotFound(
            f"Version {snapshot.version} of {storage.uri} is of files of which {len(changed):,} have changed since, "
            f"such as {changed[0]}. Put them back, or choose a later version."
        )


# --- which versions ---


def _first_kept(storage: Storage, versions: list[int], horizon: datetime) -> int:
    """The oldest version that was still the newest at the horizon or later. The times of versions increase."""
    low = log.until(storage, versions[1:], horizon)
    # A vacuum leaves the table as it was: what it follows has not been replaced by it.
    while low and _is_vacuum(log.read_entry(storage, versions[low])):
        low -= 1
    return versions[low]


def _is_vacuum(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and snapshot.operation == "vacuum"


def _entries(listing: Listing, first: int, end: int) -> dict[int, str]:
    """The paths of the listed entries of versions from ``first`` to below ``end``, without tombstones, oldest first."""
    prefix = f"{log.LOG}/"
    inside = np.asarray(pc.starts_with(listing.path, prefix)) & (np.asarray(listing.size) > _TOMBSTONE_BYTES)
    found = listing.take(inside).path.to_pylist()
    numbers = {log.version_of(path): path for path in found if log.ENTRY.fullmatch(path[len(prefix) :])}
    return {version: numbers[version] for version in sorted(numbers) if first <= version < end}


# --- which files ---


class _Named:
    """The ``paths`` of all data files and parts of some versions; a shard shared by several is read once."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._versions: set[int] = set()
        self._parts: set[str] = set()
        self._files: dict[Any, pa.StringArray] = {}  # by the part that names them

    def add(self, versions: Sequence[int]) -> None:
        """Add the versions that are not expired. Raises `DamagedIndex`, and `UnsupportedFormat` for newer entries."""
        fresh = [version for version in versions if version not in self._versions]
        self._versions.update(fresh)
        for snapshot in log.entries(self.storage, fresh):
            if snapshot.unknown:
                raise UnsupportedFormat(
                    f"Version {snapshot.version} of {self.storage.uri} was written by a newer zskip, and may name "
                    "files that this one does not know. Vacuum with that one."
                )
            try:
                self._read(snapshot)
            except DamagedIndex:
                newest = log.load(self.storage)
                if newest.horizon > snapshot.version:
                    continue  # another vacuum came first, and has expired this version
                # The version of a repair names the files of the parts that it made again.
                self._read(snapshot, self._made_again(snapshot.version, newest.version))
            self._parts.update(_parts(snapshot))

    def _read(self, snapshot: Snapshot, again: Container[Any] = ()) -> None:
        index = Index(self.storage, snapshot)
        for number, shard in enumerate(snapshot.shards):
            key = _key(shard.file_part)
            if key not in self._files and key not in again:
                self._files[key] = index.shard_paths(number)

    def _made_again(self, damaged: int, newest: int) -> set[str]:
        """The paths of the parts that repairs after a version have made again."""
        later = log.entries(self.storage, range(damaged + 1, newest + 1))
        return {path for each in later if each.operation == "repair" for path in each.details.get("parts", ())}

    @property
    def paths(self) -> pa.StringArray:
        return pa.concat_arrays([*self._files.values(), pa.array(sorted(self._parts), pa.string())])

    def of(self, snapshot: Snapshot) -> pa.StringArray:
        """The paths of one of the versions."""
        files = [self._files[key] for key in (_key(shard.file_part) for shard in snapshot.shards) if key in self._files]
        return pa.concat_arrays([*files, pa.array(sorted(_parts(snapshot)), pa.string())])


def _parts(snapshot: Snapshot) -> set[str]:
    return {part.path for part in snapshot.parts} | segment_paths(snapshot.sketches)


def _key(part: Part | InlinePart) -> Any:
    """What a part has that no part of other files has."""
    return part.path if isinstance(part, Part) else tuple(part.column("path").to_pylist())


def _replaced(
    storage: Storage, listing: Listing, expired: dict[int, str], named: pa.StringArray
) -> tuple[Listing, Listing, set[int]]:
    """The files of other writers that `cluster` replaced, and that only expired versions name: those that have not
    changed since they were indexed, and others of the same size, as the last of these versions recorded them. And the
    versions that cannot be read."""
    found = np.zeros(len(listing), bool)
    others: dict[str, tuple[str, int | None, int | None, str | None]] = {}
    unread: set[int] = set()
    for version in reversed(expired):
        try:
            then = replaced_after(storage, version)
        except DamagedIndex as error:
            _LOG.warning("Version %d, and files that it may name, are kept: %s", version, error)
            unread.add(version)
            continue
        then = then.take(~is_in(then.path, named))
        same = unchanged(storage, then, listing, by="status")
        found |= is_in(listing.path, then.path.filter(same))
        for row in then.take(~same & unchanged(storage, then, listing, by="size")).rows():
            others.setdefault(row[0], row)
    replaced = listing.take(found)
    for path in replaced.path.to_pylist():
        others.pop(path, None)
    return replaced, Listing.of(others.values()), unread


def _unnamed(listing: Listing, named: pa.StringArray, *, managed: bool) -> Listing:
    """Files with zskip's names that no version names."""
    ours = _matches(listing.path, _OURS)
    if not managed:
        ours &= _matches(listing.path, _INDEX_ONLY)
    ours &= ~is_in(listing.path, named)
    return outside_other_tables(listing.take(ours), listing.path)


def _matches(paths: pa.StringArray, pattern: str) -> np.ndarray:
    return np.array(pc.match_substring_regex(paths, pattern), bool)


def _remove_empty_staging(storage: Storage, removed: pa.StringArray) -> None:
    """Remove staging folders that are empty now; object stores have no folders."""
    staged = removed.filter(pc.match_substring_regex(removed, _STAGING)).to_pylist()
    for name in sorted({"/".join(path.split("/")[:2]) for path in staged}):
        storage.remove_empty(name)
