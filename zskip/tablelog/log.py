"""The log: one entry per commit, created only if absent; the highest version is the current table.

``_zskip/log/latest`` is only a hint: it names a committed version, and the log is listed from there on, so opening a
table costs the same after ten commits and after a hundred thousand. With an old hint the listing is longer; without a
hint the whole log is listed. Lost entries in between do not matter: each entry is self-contained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from zskip.errors import DamagedIndex, TableError, TableNotFound
from zskip.storage.storage import Storage
from zskip.tablelog.snapshot import Snapshot, from_bytes

__all__ = [
    "GO_BACK",
    "HINT",
    "LOG",
    "entry_path",
    "hinted",
    "history",
    "latest_version",
    "load",
    "read_entry",
    "versions",
    "write_hint",
]

LOG = "_zskip/log"
HINT = f"{LOG}/latest"
GO_BACK = "zskip index --repair --go-back, or zskip.repair(path, go_back=True)."
_ENTRY = re.compile(r"00[0-9]{18}\.json")
_LARGEST_ENTRY = 1 << 28
_LARGEST_VERSION = 10**18
_LARGEST_CACHED, _MOST_CACHED = 1 << 16, 64


def entry_path(version: int) -> str:
    """The path of a version's log entry.

    >>> entry_path(7)
    '_zskip/log/00000000000000000007.json'
    """
    return f"{LOG}/{version:020d}.json"


_CACHE: dict[str, tuple[bytes, Snapshot]] = {}


def _snapshot(data: bytes, name: str) -> Snapshot:
    """The snapshot of an entry; cached by its bytes, since opening a table reads its newest entry each time."""
    cached = _CACHE.get(name)
    if cached is not None and cached[0] == data:
        return cached[1]
    snapshot = from_bytes(data, name)
    if len(_CACHE) >= _MOST_CACHED:
        _CACHE.clear()
    _CACHE[name] = data, snapshot
    return snapshot


def read_entry(storage: Storage, version: int) -> Snapshot | None:
    """A version's snapshot; None if it has no entry. Raises `DamagedIndex` and `UnsupportedFormat`."""
    path = entry_path(version)
    try:
        data = storage.read_range(path, 0, _LARGEST_ENTRY + 1)
    except FileNotFoundError:
        return None
    snapshot = (
        _snapshot(data, storage.uri_of(path))
        if len(data) <= _LARGEST_CACHED
        else from_bytes(data, storage.uri_of(path))
    )
    if snapshot.version != version:
        raise DamagedIndex(f"The log entry {storage.uri_of(path)} says that it is version {snapshot.version}.")
    return snapshot


def versions(storage: Storage, since: int = 0) -> list[int]:
    """The versions in the log from ``since`` on, ascending, by listing the log from there."""
    names = storage.names(LOG, after=entry_path(since - 1).rpartition("/")[2] if since > 0 else "")
    return sorted(int(name[:20]) for name in names if _ENTRY.fullmatch(name))


def latest_version(storage: Storage) -> int:
    """The newest version; 0 if there is no table. Raises `DamagedIndex` if the entry that the hint names is gone."""
    hint = hinted(storage)
    found = versions(storage, hint or 0)
    if hint is not None and not found:
        ends = max(versions(storage), default=0)
        raise DamagedIndex(
            f"The log of {storage.uri} once held version {hint}, and now ends at {ends}: an entry is missing. Put back "
            f"{entry_path(hint)}, or go on from version {ends}, without what came after it: {GO_BACK}"
        )
    return found[-1] if found else 0


def hinted(storage: Storage) -> int | None:
    """The version that the hint names; None without a hint."""
    try:
        text = storage.read_range(HINT, 0, 32)
    except OSError:  # without the hint the whole log is listed, which raises the store's error if it persists
        return None
    digits = text.strip()
    return int(digits) if digits.isdigit() and 0 < int(digits) < _LARGEST_VERSION else None


def load(storage: Storage, version: int | None = None, as_of: datetime | None = None) -> Snapshot:
    """The newest snapshot, the one of a version, or the newest that is not later than ``as_of`` (naive means UTC).

    Raises `TableNotFound`, `DamagedIndex` and `UnsupportedFormat`.
    """
    if as_of is not None:
        version = _version_as_of(storage, as_of if as_of.tzinfo else as_of.replace(tzinfo=UTC))
    found = version if version is not None else latest_version(storage)
    snapshot = read_entry(storage, found) if 0 < found < _LARGEST_VERSION else None
    while snapshot is None and version is None and found < (later := latest_version(storage)):
        # Others committed and a vacuum removed this version before it was read.
        found, snapshot = later, read_entry(storage, later)
    if snapshot is None:
        raise TableNotFound(_not_found(storage, version))
    return snapshot


def _not_found(storage: Storage, version: int | None) -> str:
    kept = versions(storage)
    if not kept:
        return f"There is no zskip table at {storage.uri}. Make one with zskip.write or zskip.index."
    return f"The table at {storage.uri} has no version {version}; its log holds {kept[0]} to {kept[-1]}."


def _version_as_of(storage: Storage, moment: datetime) -> int:
    kept = versions(storage)
    low, high = 0, len(kept)
    while low < high:
        middle = (low + high) // 2
        entry = read_entry(storage, kept[middle])
        if entry is None or entry.time <= moment:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        raise TableNotFound(f"The table at {storage.uri} holds no version as old as {moment.isoformat()}.")
    return kept[low - 1]


def history(storage: Storage, limit: int | None = None) -> Iterator[Snapshot]:
    """The snapshots in the log, newest first. ``limit``: the number of entries to read."""
    kept = versions(storage)
    for version in reversed(kept if limit is None else kept[max(len(kept) - limit, 0) :]):
        snapshot = read_entry(storage, version)
        if snapshot is not None:
            yield snapshot


def write_hint(storage: Storage, version: int) -> None:
    """Write the hint, unless it names a later version. A commit does not depend on it: store errors are ignored.

    Some stores let an object be replaced about once a second; after faster commits the hint lags behind.
    """
    with suppress(OSError, TableError):
        if (hinted(storage) or 0) < version:
            storage.put_once(HINT, b"%d\n" % version)
