"""The log: one entry per version, created only if absent; the highest version is the current table.

    _zskip/log/00000000000000000/00000000000000000007.json     version 7
    _zskip/log/00000000000000005/00000000000000005432.json     version 5432: a thousand entries share a folder
    _zskip/log/latest                                          a hint: a version as a decimal number

A number is never used twice: the entry of an expired version is replaced by a tombstone, which holds no more than the
id of its commit. ``latest`` is only a hint: it names a committed version, and the log is listed from there on, so
opening a table costs the same after ten commits and after a hundred thousand. With an old hint the listing is longer;
without a hint the whole log is listed. Lost entries in between do not matter: each entry is self-contained.

Entries of format 1 lie in the folder ``log`` itself. So does the one entry that follows the last of them: a zskip that
knows only format 1 finds it, and refuses the table.
"""

from __future__ import annotations

import errno
import re
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache

from zskip.errors import DamagedIndex, TableNotFound, UncertainCommit, UnsupportedStore, amount, nearest
from zskip.storage.staged import Staged
from zskip.storage.storage import Storage
from zskip.tablelog.snapshot import FORMAT, Snapshot, from_bytes, to_bytes

LOG = "_zskip/log"
HINT = f"{LOG}/latest"
GO_BACK = "zskip index --repair --go-back, or zskip.repair(path, go_back=True)."
_IN_A_FOLDER = 1000
ENTRY = re.compile(r"(?:(?P<folder>00\d{15})/(?P=folder)\d{3}|00\d{18})\.json")
_TOMBSTONE = re.compile(rb'\{"zskip":\d{1,9},"expired":"([0-9a-f]{32})"\}')
_COMMIT_ID = re.compile(rb'"commit_id":"([0-9a-f]{32})"')
_HEAD_BYTES = 512
_LARGEST_ENTRY = 1 << 28
_LARGEST_VERSION = 10**18
_LARGEST_CACHED, _MOST_CACHED = 1 << 16, 64
_AT_ONCE, _ENTRIES_AT_ONCE = 16, 256
_ASKS = 5
# Errors after which a disk has written nothing. After a network error the entry may still arrive.
_REFUSED = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE),
}


def entry_path(version: int, *, flat: bool = False) -> str:
    """The path of a version's log entry. ``flat``: as format 1 has it.

    >>> entry_path(5432)
    '_zskip/log/00000000000000005/00000000000000005432.json'
    >>> entry_path(7, flat=True)
    '_zskip/log/00000000000000000007.json'
    """
    return f"{LOG}/{version:020d}.json" if flat else f"{LOG}/{version // _IN_A_FOLDER:017d}/{version:020d}.json"


def version_of(path: str) -> int:
    """The version of a log entry, by its path or its name."""
    return int(path[-25:-5])


# --- reading ---

_cached = lru_cache(_MOST_CACHED)(from_bytes)


def _snapshot(data: bytes, name: str) -> Snapshot:
    """The snapshot of an entry; small ones are kept, since opening a table reads its newest entry each time."""
    return _cached(data, name) if len(data) <= _LARGEST_CACHED else from_bytes(data, name)


def _bytes(storage: Storage, version: int, length: int = _LARGEST_ENTRY + 1) -> tuple[str, bytes] | None:
    """The path of a version's entry or tombstone, and its first bytes; None if there is none."""
    for flat in (False, True):
        path = entry_path(version, flat=flat)
        with suppress(FileNotFoundError):
            return path, storage.read_range(path, 0, length)
    return None


def read_entry(storage: Storage, version: int) -> Snapshot | None:
    """A version's snapshot; None if it has no entry or is expired. Raises `DamagedIndex` and `UnsupportedFormat`."""
    found = _bytes(storage, version)
    if found is None or _TOMBSTONE.fullmatch(found[1]):
        return None
    snapshot = _snapshot(found[1], storage.uri_of(found[0]))
    if snapshot.version != version:
        raise DamagedIndex(f"The log entry {storage.uri_of(found[0])} says that it is version {snapshot.version}.")
    return snapshot


def is_expired(storage: Storage, version: int) -> bool:
    """Whether a vacuum has removed a version that was committed. Reads no more than the beginning of its entry."""
    found = _bytes(storage, version, _HEAD_BYTES)
    return found is None or _TOMBSTONE.fullmatch(found[1]) is not None


def versions(storage: Storage, since: int = 0) -> list[int]:
    """The versions in the log from ``since`` on, ascending, by listing the log from there. Some may be expired."""
    after = entry_path(since - 1)[len(LOG) + 1 :] if since > 0 else ""
    found = {version_of(name) for name in storage.names(LOG, after=after) if ENTRY.fullmatch(name)}
    return sorted(version for version in found if version >= since)


def latest_version(storage: Storage) -> int:
    """The newest version; 0 if there is no table. Raises `DamagedIndex` if the entry that the hint names is gone."""
    return _latest(storage, hinted(storage))


def _latest(storage: Storage, hint: int | None) -> int:
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


def newest(storage: Storage, since: int | None = None) -> Snapshot | None:
    """The newest snapshot; None if there is no table.

    Raises `DamagedIndex`, `UnsupportedFormat`, and `PermissionError` for a log that may not be read.

    ``since``: a version that was the newest before, in place of waiting for the hint.
    """
    if storage.local is not None:
        version = latest_version(storage)
        if not version:  # as in a Delta or Iceberg table, whose side-car lies elsewhere
            return None
        found = read_entry(storage, version)
    else:
        version, found = _newest_remote(storage, since)
    while found is None and version < (later := latest_version(storage)):
        # Others committed, and a vacuum has expired this version before it was read.
        version, found = later, read_entry(storage, later)
    return found


def _newest_remote(storage: Storage, since: int | None) -> tuple[int, Snapshot | None]:
    """The newest version and its snapshot, with few requests one after another.

    Mostly the hint, or ``since``, is right: its entry is requested together with the listing that tells.
    """
    with ThreadPoolExecutor(2) as pool:
        hint = pool.submit(hinted, storage)
        start = hint.result() if since is None else since
        if start is None:
            version = _latest(storage, None)
            return version, read_entry(storage, version) if version else None
        entry = pool.submit(read_entry, storage, start)
        version = max(versions(storage, start), default=0)
        known = hint.result()
        if version < (start if known is None else known):  # an entry is missing, or a later one was made just now
            version = _latest(storage, known)
        return version, entry.result() if version == start else read_entry(storage, version) if version else None


def load(storage: Storage, version: int | None = None, as_of: datetime | None = None) -> Snapshot:
    """The newest snapshot, the one of a version, or the newest that is not later than ``as_of`` (naive means UTC).

    Raises `TableNotFound`, `DamagedIndex` and `UnsupportedFormat`.
    """
    if as_of is not None:
        version = _version_as_of(storage, as_of if as_of.tzinfo else as_of.replace(tzinfo=UTC))
    if version is None:
        snapshot = newest(storage)
    else:
        snapshot = read_entry(storage, version) if 0 < version < _LARGEST_VERSION else None
    if snapshot is None:
        raise TableNotFound(not_found(storage, version))
    return snapshot


def not_found(storage: Storage, version: int | None = None) -> str:
    """Why a folder has no such version: what lies there instead, and what to do."""
    now = newest(storage)
    if now is None:
        files = len(storage.list(hidden=False).parquet())
        if files:
            return (
                f"There is no zskip table at {storage.uri}, but {amount(files, 'Parquet file')}. "
                "Index them by zskip.index(path), or in a shell by zskip index."
            )
        nothing = f"There is no zskip table at {storage.uri}, and no Parquet file."
        if any(sign in storage.uri for sign in "*?["):
            return f"{nothing} A table is opened by its folder, not by a pattern."
        return nothing + (nearest_folder(storage) or " Make one with zskip.write.")
    return (
        f"The table at {storage.uri} has no version {version}; its log holds {_kept(storage, now)[0]} to {now.version}."
    )


def nearest_folder(storage: Storage) -> str:
    """A hint for a folder that is not there, which names one beside it; empty if there is none, and in a store."""
    if storage.local is None or storage.local.exists():
        return ""
    beside: list[str] = []
    with suppress(OSError):
        beside = [each.name for each in storage.local.parent.iterdir() if each.is_dir()]
    return nearest(storage.local.name, beside[:_MOST_COMPARED], listed=True)


_MOST_COMPARED = 1_000


def _kept(storage: Storage, newest: Snapshot) -> range:
    """The versions that are not expired. A vacuum of format 1 removed entries; those of format 2 say what is left."""
    first = newest.horizon
    if read_entry(storage, first) is None and first < newest.version:
        first = min(versions(storage, first))
    return range(first, newest.version + 1)


def _version_as_of(storage: Storage, moment: datetime) -> int:
    now = newest(storage)
    if now is None:
        raise TableNotFound(not_found(storage))
    kept = _kept(storage, now)
    found = until(storage, kept, moment)
    if not found:
        raise TableNotFound(f"The table at {storage.uri} holds no version as old as {moment.isoformat()}.")
    return kept[found - 1]


def until(storage: Storage, ascending: Sequence[int], moment: datetime) -> int:
    """How many of these versions are not later than a moment. Those without an entry are not."""

    def time_of(version: int) -> datetime:
        entry = read_entry(storage, version)
        return datetime.min.replace(tzinfo=UTC) if entry is None else entry.time

    return bisect_right(ascending, moment, key=time_of)


def history(storage: Storage, limit: int | None = None) -> Iterator[Snapshot]:
    """The snapshots in the log, newest first. ``limit``: the number of entries to read."""
    now = newest(storage)
    if now is None:
        return
    kept = _kept(storage, now)
    wanted = range(now.version, max(kept[0], 1 if limit is None else now.version - limit + 1) - 1, -1)
    yield from entries(storage, wanted)


def entries(storage: Storage, wanted: range | list[int]) -> Iterator[Snapshot]:
    """The snapshots of those versions that have an entry and are not expired, in this order, few at once in memory."""
    if storage.local is not None:
        yield from filter(None, (read_entry(storage, version) for version in wanted))
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(wanted), _ENTRIES_AT_ONCE):
            some = wanted[start : start + _ENTRIES_AT_ONCE]
            yield from filter(None, pool.map(lambda version: read_entry(storage, version), some))


# --- writing ---


def create(storage: Storage, snapshot: Snapshot, before: Snapshot | None, staged: Staged | None = None) -> bool:
    """Create the entry of a new version, which follows ``before``; False if another writer has created it.

    ``staged``: what the version names; its state is kept. Raises `UncertainCommit` if it is unknown whether the entry
    was made, or it may still arrive.
    """
    staged = staged or Staged(len)
    path = entry_path(snapshot.version, flat=before is not None and before.format == 1)
    data = to_bytes(snapshot)
    staged.maybe_committed("Open the table and see whether the change is there before you repeat it.")
    failed: Exception | None = None
    for attempt in range(_ASKS):
        try:
            if storage.put_if_absent(path, data):
                staged.committed()
                return True
        except UnsupportedStore:
            staged.refused()
            raise
        except Exception as error:  # of whatever class: the entry may be there
            failed = error
        # Also after a refusal: the store's client may have sent it twice, with the first response lost.
        found = _commit_id(storage, path, snapshot, failed)
        if found == snapshot.commit_id:
            if failed is not None:
                _outlast(storage, path, snapshot)
            staged.committed()
            return True
        if found is not None:
            staged.refused()
            return False
        if not attempt and isinstance(failed, OSError) and failed.errno in _REFUSED:
            staged.refused()
            raise failed
        # It may still arrive: S3 refuses a request while an earlier one for the same object is under way. Sending the
        # same bytes again is harmless.
        time.sleep(0.05 * 2**attempt)
    raise UncertainCommit(_unsure(storage, snapshot, "may have been made")) from failed


def _commit_id(storage: Storage, path: str, snapshot: Snapshot, cause: Exception | None) -> str | None:
    """The id of the commit that made an entry, even if it has expired since; None if there is no entry.

    Raises `UncertainCommit` if the store does not tell.
    """
    for attempt in range(_ASKS):
        try:
            return commit_id(storage.read_range(path, 0, _HEAD_BYTES))
        except FileNotFoundError:
            return None
        except Exception as error:
            if attempt == _ASKS - 1:
                raise UncertainCommit(_unsure(storage, snapshot, "may have been made")) from (cause or error)
            time.sleep(0.05 * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


def commit_id(head: bytes) -> str:
    """The id of the commit in the first bytes of an entry, or in a tombstone; zeros if it holds none."""
    found = _TOMBSTONE.fullmatch(head) or _COMMIT_ID.search(head)
    return "0" * 32 if found is None else found[1].decode()


def _outlast(storage: Storage, path: str, snapshot: Snapshot) -> None:
    try:
        storage.make_durable([path])
    except Exception as error:
        raise UncertainCommit(_unsure(storage, snapshot, "was made, and may be lost in a power failure")) from error


def _unsure(storage: Storage, snapshot: Snapshot, what: str) -> str:
    return (
        f"{storage.uri}: version {snapshot.version} {what}. Open the table "
        "and see whether it is there before you repeat the change; an append with batch= can be repeated at once."
    )


def expire(storage: Storage, paths: list[str]) -> None:
    """Put tombstones in the places of these entries, where some may be lost."""

    # A disk's tombstone that a power failure takes is made by the next vacuum; a store may need several requests.
    put = storage.put if storage.local is None else storage.put_once

    def bury(path: str) -> None:
        data = b""
        with suppress(FileNotFoundError):
            data = storage.read_range(path, 0, _HEAD_BYTES)
        put(path, b'{"zskip":%d,"expired":"%s"}' % (FORMAT, commit_id(data).encode()))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(bury, paths):
            pass


def write_hint(storage: Storage, version: int) -> None:
    """Write the hint. A commit does not depend on it, so errors of whatever class are ignored.

    Some stores let an object be replaced about once a second; after faster commits the hint lags behind.
    """
    with suppress(Exception):
        storage.put_once(HINT, b"%d\n" % version)
