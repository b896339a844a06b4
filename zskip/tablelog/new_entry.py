"""Creates a log entry, and checks that it belongs to the table's history.

An entry is created only if it is absent. That alone does not prove that its number is new: a vacuum may have removed an
entry of that number. So after creating an entry, a writer reads the log again:

    1 2 3 4 [5]            the new entry is the highest: it is the current table
    1 2 3 4 [5] 6 7        others follow: 7 names the commits before it, and the new one is among them
          .[5] . . 8 9     a vacuum had removed another 5: 9 names that one, so the new entry is withdrawn

The highest entry is never removed, and numbers only grow. So if a new entry reuses a removed number, a higher entry
names another commit for that number. Withdrawing the new entry, however late, removes nothing that the table needs.
"""

from __future__ import annotations

import errno
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from zskip.errors import CommitConflict, UncertainCommit, UnsupportedStore
from zskip.storage.storage import Storage, abandon
from zskip.tablelog.log import entry_path, read_entry, versions
from zskip.tablelog.snapshot import ANCESTOR_DIGITS, ANCESTORS, Snapshot, to_bytes

__all__ = ["create", "later", "successor", "with_patience"]

_ASKS = 5
_Answer = TypeVar("_Answer")
# Errors after which a disk has written nothing. After a network error the entry may still arrive.
_REFUSED = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE}


def successor(newest: Snapshot, state: Snapshot, **changes: Any) -> Snapshot:
    """A state of the table, with some fields changed, as the version after ``newest``."""
    follows = {
        "version": newest.version + 1,
        "commit_id": secrets.token_hex(16),
        "time": later(newest),
        "parent": newest.version,
        "removed": (),
        "ancestors": (newest.commit_id[:ANCESTOR_DIGITS], *newest.ancestors)[:ANCESTORS],
    }
    return replace(state, **{**follows, **changes})


def later(snapshot: Snapshot) -> datetime:
    """Now, or a microsecond after a version whose writer's clock is ahead."""
    return max(datetime.now(UTC), snapshot.time + timedelta(microseconds=1))


def create(storage: Storage, snapshot: Snapshot) -> bool:
    """Create the entry of a new version; False if another writer has created it, even if it was vacuumed since.

    Raises `UncertainCommit` if it is unknown whether the entry exists or belongs to the table, and any other error if
    it does not exist.
    """
    if not _put(storage, snapshot):
        return False
    try:
        belongs = with_patience(lambda: _belongs(storage, snapshot))
    except UncertainCommit:
        raise
    except OSError as error:
        raise UncertainCommit(_unsure(storage, snapshot, "was made, and may have come too late")) from error
    if not belongs:
        abandon(storage, [entry_path(snapshot.version)])
    return belongs


def with_patience(ask: Callable[[], _Answer]) -> _Answer:
    """Call ``ask``, retrying a few times after errors of the store. Errors of zskip about a commit are not retried."""
    for attempt in range(_ASKS):
        try:
            return ask()
        except (CommitConflict, UncertainCommit):
            raise
        except OSError:
            if attempt == _ASKS - 1:
                raise
            time.sleep(0.05 * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


# --- checking it ---


def _belongs(storage: Storage, snapshot: Snapshot) -> bool:
    """Whether an entry that was just created is part of the table's history."""
    for _ in range(_ASKS):
        found = versions(storage, snapshot.version - 1)
        higher = [version for version in found if version > snapshot.version]
        if not higher:
            return _continues(storage, snapshot, found)
        newest = read_entry(storage, higher[-1])
        if newest is not None:
            return _descends(storage, snapshot, newest, found)
    raise UncertainCommit(_unsure(storage, snapshot, "was made, and may have come too late"))


def _continues(storage: Storage, snapshot: Snapshot, found: list[int]) -> bool:
    """Whether the highest entry continues its own table, not another one in the same folder."""
    if snapshot.parent is None or snapshot.parent in found:
        return True
    # A vacuum has removed the parent, or the table was deleted and another one created.
    below = [version for version in versions(storage) if version < snapshot.version]
    other = read_entry(storage, below[-1]) if below else None
    return other is None or other.table_id == snapshot.table_id


def _descends(storage: Storage, snapshot: Snapshot, newest: Snapshot, found: list[int]) -> bool:
    """Whether ``newest`` follows this commit, by the ancestors that it and earlier entries name."""
    known = newest
    between = [version for version in found if snapshot.version < version < newest.version]
    while (distance := known.version - snapshot.version) > len(known.ancestors):
        reached = [version for version in between if known.version - len(known.ancestors) <= version < known.version]
        if not reached:
            # More entries lie in between than a vacuum removes at once: it removed the other one before this existed.
            if snapshot.version in found and known.version - 1 not in found and distance > ANCESTORS:
                return False
            raise UncertainCommit(_unsure(storage, snapshot, "was made, and may have come too late"))
        between.remove(reached[0])
        older = read_entry(storage, reached[0])
        if older is not None and _names(known, older):
            known = older
    return _names(known, snapshot)


def _names(later: Snapshot, snapshot: Snapshot) -> bool:
    return later.ancestors[later.version - snapshot.version - 1] == snapshot.commit_id[:ANCESTOR_DIGITS]


# --- creating it ---


def _put(storage: Storage, snapshot: Snapshot) -> bool:
    path, data = entry_path(snapshot.version), to_bytes(snapshot)
    for attempt in range(_ASKS):
        try:
            if storage.put_if_absent(path, data):
                return True
        except UnsupportedStore:
            raise
        except OSError as error:
            found = _found(storage, snapshot, error)
            if found is None:
                if error.errno in _REFUSED:
                    raise
                if attempt == _ASKS - 1:
                    raise UncertainCommit(_unsure(storage, snapshot, "may have been made")) from error
                # The entry may still arrive. Sending the same bytes again is harmless.
                time.sleep(0.05 * 2**attempt)
                continue
            if found.commit_id == snapshot.commit_id:
                _outlast(storage, snapshot)
                return True
            return False
        found = read_entry(storage, snapshot.version)
        # The store's client may have sent it twice, with the first response lost.
        return found is not None and found.commit_id == snapshot.commit_id
    return False


def _found(storage: Storage, snapshot: Snapshot, cause: OSError) -> Snapshot | None:
    try:
        return read_entry(storage, snapshot.version)
    except OSError:
        raise UncertainCommit(_unsure(storage, snapshot, "may have been made")) from cause


def _outlast(storage: Storage, snapshot: Snapshot) -> None:
    try:
        storage.make_durable([entry_path(snapshot.version)])
    except OSError as error:
        raise UncertainCommit(_unsure(storage, snapshot, "was made, and may be lost in a power failure")) from error


def _unsure(storage: Storage, snapshot: Snapshot, what: str) -> str:
    return (
        f"{storage.uri}: version {snapshot.version} {what}. Open the table "
        "and see whether it is there before you repeat the change; an append with batch= can be repeated at once."
    )
