"""Create a log entry, and make sure that it belongs to the table's history.

An entry is created only if it is absent, but absence alone does not say that a number is new: a vacuum may have removed
the entry that had it. So whoever has created an entry looks at the log once more:

    1 2 3 4 [5]            mine is the highest: it is the table now
    1 2 3 4 [5] 6 7        others came after it: 7 names the commits before it, mine among them
          .[5] . . 8 9     a vacuum had removed another 5: 9 names that one, and mine is withdrawn

The highest entry is never removed, and numbers only grow. So the entry of a vacated number always stands below one that
names another commit for it, and whoever withdraws it, however late, removes nothing that belongs to the table.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

from zskip.errors import CommitConflict, UncertainCommit, UnsupportedStore
from zskip.storage.storage import Storage, abandon
from zskip.tablelog.log import entry_path, read_entry, versions
from zskip.tablelog.snapshot import ANCESTOR_DIGITS, ANCESTORS, Snapshot, to_bytes

__all__ = ["ancestors", "create", "with_patience"]

_ASKS = 5
_Answer = TypeVar("_Answer")
# What a disk says that has done nothing. Of a network's errors the entry may be on its way still.
_REFUSED = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE}


def ancestors(parent: Snapshot) -> tuple[str, ...]:
    """The `Snapshot.ancestors` of the version after ``parent``."""
    return (parent.commit_id[:ANCESTOR_DIGITS], *parent.ancestors)[:ANCESTORS]


def create(storage: Storage, snapshot: Snapshot) -> bool:
    """Create the entry of a new version; False where another writer came first, though a vacuum removed its entry.

    Raises `UncertainCommit` where it cannot be told whether the entry is there or whether it belongs to the table, any
    other error where it is not there.
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
    """The answer of a store that may fail a few times. What zskip raises about a commit is an answer too."""
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


# --- does it belong? ---


def _belongs(storage: Storage, snapshot: Snapshot) -> bool:
    """Whether the table's history goes through an entry that was just created."""
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
    """Whether the highest entry continues the table that it was made for, and not another one in its folder."""
    if snapshot.parent is None or snapshot.parent in found:
        return True
    # A vacuum has removed the parent, or someone has removed the whole table and begun a new one.
    below = [version for version in versions(storage) if version < snapshot.version]
    other = read_entry(storage, below[-1]) if below else None
    return other is None or other.table_id == snapshot.table_id


def _descends(storage: Storage, snapshot: Snapshot, newest: Snapshot, found: list[int]) -> bool:
    """Whether ``newest`` comes after this very commit, by the ancestors that it and entries before it name."""
    known = newest
    between = [version for version in found if snapshot.version < version < newest.version]
    while (distance := known.version - snapshot.version) > len(known.ancestors):
        reached = [version for version in between if known.version - len(known.ancestors) <= version < known.version]
        if not reached:
            # Vacuum removes fewer entries at once than lie between: that one had gone before mine was there.
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
                # It may be on its way still: the same bytes can be sent again under the same name without harm.
                time.sleep(0.05 * 2**attempt)
                continue
            if found.commit_id == snapshot.commit_id:
                _outlast(storage, snapshot)
                return True
            return False
        found = read_entry(storage, snapshot.version)
        # The store's client may have sent it twice, and lost the first answer.
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
        raise UncertainCommit(_unsure(storage, snapshot, "was made, and may be lost with the power")) from error


def _unsure(storage: Storage, snapshot: Snapshot, what: str) -> str:
    return (
        f"{storage.uri}: version {snapshot.version} {what}. Open the table "
        "and see whether it is there before you repeat the change; an append with batch= can be repeated at once."
    )
