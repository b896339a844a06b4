"""The log: one entry a commit, created only if absent; the highest version is the table.

``_zskip/log/latest`` is a hint and no authority: it names a version that was committed, from where the next ones are
looked for. A hint that is behind costs a few look-ups, one that is missing a listing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import pyarrow.compute as pc

from zskip.errors import DamagedIndex, TableError, TableNotFound
from zskip.sidecar.snapshot import Snapshot, from_bytes
from zskip.sidecar.storage import Storage

__all__ = ["HINT", "LOG", "entry_path", "history", "latest_version", "load", "read_entry", "versions"]

LOG = "_zskip/log"
HINT = f"{LOG}/latest"
_LARGEST_ENTRY = 1 << 28
_LARGEST_VERSION = 10**18


def entry_path(version: int) -> str:
    """The path of a version's log entry.

    >>> entry_path(7)
    '_zskip/log/00000000000000000007.json'
    """
    return f"{LOG}/{version:020d}.json"


def read_entry(storage: Storage, version: int) -> Snapshot | None:
    """A version's snapshot, None where there is no such entry. Raises `DamagedIndex` and `UnsupportedFormat`."""
    path = entry_path(version)
    try:
        data = storage.read_range(path, 0, _LARGEST_ENTRY + 1)
    except FileNotFoundError:
        return None
    snapshot = from_bytes(data, storage.uri_of(path))
    if snapshot.version != version:
        raise DamagedIndex(f"The log entry {storage.uri_of(path)} says that it is version {snapshot.version}.")
    return snapshot


def versions(storage: Storage) -> list[int]:
    """All versions that the log still holds, oldest first, by listing it."""
    names = storage.list(LOG).path
    numbered = pc.match_substring_regex(names, rf"^{re.escape(LOG)}/[0-9]{{20}}\.json$")
    return sorted(int(name[-25:-5]) for name in names.filter(numbered).to_pylist())


def latest_version(storage: Storage) -> int:
    """The newest version; 0 where there is no table. Raises `DamagedIndex` where a committed entry is gone."""
    hint = _hint(storage)
    if hint is not None and storage.exists(entry_path(hint)):
        return _newest_after(storage, hint)
    newest = max(versions(storage), default=0)
    if hint is not None and newest < hint:
        raise DamagedIndex(
            f"The log of {storage.uri} once held version {hint}, and now ends at {newest}: an entry is missing. "
            f"Restore {entry_path(hint)}, or delete {HINT} to go on from version {newest}."
        )
    return newest


def _hint(storage: Storage) -> int | None:
    try:
        text = storage.read_range(HINT, 0, 32)
    except OSError:  # no authority: without it the log is listed, and what ails the store is said then
        return None
    digits = text.strip()
    return int(digits) if digits.isdigit() and 0 < int(digits) < _LARGEST_VERSION else None


def _newest_after(storage: Storage, known: int) -> int:
    """The end of the unbroken run of entries from ``known`` on, by steps that double and then halve."""
    step = 1
    while storage.exists(entry_path(known + step)):
        known, step = known + step, step * 2
    while step > 1:
        step //= 2
        if storage.exists(entry_path(known + step)):
            known += step
    return known


def load(storage: Storage, version: int | None = None, as_of: datetime | None = None) -> Snapshot:
    """The newest snapshot, the one of a version, or the newest that is not later than ``as_of`` (naive means UTC).

    Raises `TableNotFound`, `DamagedIndex` and `UnsupportedFormat`.
    """
    if as_of is not None:
        version = _version_as_of(storage, as_of if as_of.tzinfo else as_of.replace(tzinfo=UTC))
    found = version if version is not None else latest_version(storage)
    snapshot = read_entry(storage, found) if 0 < found < _LARGEST_VERSION else None
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
    """The snapshots that the log still holds, newest first."""
    for version in reversed(versions(storage)[-limit if limit else None :]):
        snapshot = read_entry(storage, version)
        if snapshot is not None:
            yield snapshot


def write_hint(storage: Storage, version: int) -> None:
    """Leave the hint. It is no part of the commit, so a store that refuses it is no error."""
    with suppress(OSError, TableError):
        storage.put(HINT, b"%d\n" % version)
