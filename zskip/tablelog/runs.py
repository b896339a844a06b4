"""Runs: which files were written together, by the digits that their names share.

A vacuum removes files that no version names, and some of these may belong to a writer that has not committed yet. So it
commits first, and its entry says which runs it dooms. A writer whose commit comes after that finds its run in the entry
and starts over, however long it was suspended. Until then it is not in danger: a vacuum dooms a run only if even its
youngest file is older than `older_than`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from zskip.core.late_loading import pc
from zskip.errors import CorruptFile, DamagedIndex, FilesRemoved, TableNotFound
from zskip.storage.storage import Listing, Storage
from zskip.tablelog import log
from zskip.tablelog.snapshot import Snapshot

_Given = ParamSpec("_Given")
_Base = TypeVar("_Base", Snapshot, Snapshot | None)
_Made = TypeVar("_Made")

# Data files, parts of the index, and files of Spark's staging folders: ``run`` is what the files of one writer share.
_DATA = r"part-[0-9]{6,}(?:_[0-9]{6,})?-(?P<data>[0-9a-f]{16})(?:-[0-9]+)*(?:-in-[0-9a-f]{16})?\.(?:parquet|pq)"
_PART = r"_zskip/(?:stats|layout|sketches)/\.?(?P<part>[0-9a-f]{16})"
_RUN = rf"(?:^|/)\.?{_DATA}|^{_PART}|^_zskip/staging-(?P<staged>[0-9a-f]{{16}})/"
DATA_FILE = r"(^|/)part-[0-9]{6,}(_[0-9]{6,})?-[0-9a-f]{16}(-[0-9]+)*(-in-[0-9a-f]{16})?\.(parquet|pq)$"


def runs_of(paths: pa.StringArray) -> pa.StringArray:
    """The run of each file; null for files whose names hold none, such as those of other writers."""
    found = pc.extract_regex(paths, _RUN)
    groups = [pc.struct_field(found, name) for name in ("data", "part", "staged")]
    return pc.coalesce(*(pc.if_else(pc.equal(group, ""), None, group) for group in groups))


def abandoned(files: Listing, horizon: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Which of some files that no version names may be removed, and their runs.

    ``horizon``: nanoseconds since the epoch; a run whose youngest file is not older than that may still be written.
    """
    runs = runs_of(files.path)
    # A file without a run is a run by itself.
    key = pc.coalesce(runs, files.path).dictionary_encode()
    codes = np.asarray(key.indices)
    youngest = np.zeros(len(key.dictionary), np.int64)
    np.maximum.at(youngest, codes, np.asarray(files.modified))
    old = youngest[codes] <= horizon
    return old, tuple(sorted(pc.unique(runs.filter(pa.array(old))).drop_null().to_pylist()))


def require_not_doomed(storage: Storage, newest: Snapshot, since: int, paths: Sequence[str]) -> None:
    """Raise `FilesRemoved` if a vacuum that committed after version ``since`` may remove these files, or their base.

    ``since``: the newest version when the first of the files was begun · ``newest``: the version that they are to
    follow.
    """
    if newest.version == since:
        return
    if newest.horizon > since:
        raise FilesRemoved(
            f"{storage.uri}: version {since}, on which this change is based, has expired: a vacuum ran, whose "
            "older_than is shorter than the change took. Repeat the change."
        )
    runs = frozenset(runs_of(pa.array(paths, pa.string())).drop_null().to_pylist())
    entry: Snapshot | None = newest
    while entry is not None and entry.version > since:
        if doomed := runs.intersection(entry.doomed):
            raise FilesRemoved(
                f"{storage.uri}: the vacuum of version {entry.version} removes {len(doomed):,} runs of files that this "
                "change has written: it took longer than the vacuum's older_than. Repeat the change."
            )
        if entry.last_vacuum <= since:
            return
        entry = log.read_entry(storage, entry.last_vacuum)
    if entry is None:  # it has expired since ``newest`` was read
        raise FilesRemoved(
            f"{storage.uri}: a vacuum has expired the versions on which this change is based. Repeat it."
        )


@contextmanager
def naming_vacuums(storage: Storage, snapshot: Snapshot) -> Iterator[None]:
    """Raise `FilesRemoved` in place of an error about a file or a part that is gone, if a vacuum has run since.

    ``snapshot``: on which a change is based, so that a vacuum may have removed its files, or the new ones.
    """
    try:
        yield
    except (CorruptFile, DamagedIndex, FileNotFoundError, TableNotFound) as error:
        newest = log.newest(storage)
        if newest is None:
            raise
        vacuumed = newest.version if newest.doomed else newest.last_vacuum
        if max(newest.horizon, vacuumed) <= snapshot.version:
            raise
        raise FilesRemoved(
            f"{storage.uri}: a vacuum removed files that this change, based on version {snapshot.version}, needs. "
            f"Repeat the change. The vacuum's older_than has to be longer than a change takes. ({error})"
        ) from error


def may_meet_vacuums(
    change: Callable[Concatenate[Storage, _Base, _Given], _Made],
) -> Callable[Concatenate[Storage, _Base, _Given], _Made]:
    """A decorator of changes of a table, which take its storage and the version they are based on: `naming_vacuums`."""

    @functools.wraps(change)
    def changed(storage: Storage, base: _Base, /, *given: _Given.args, **named: _Given.kwargs) -> _Made:
        if base is None:
            return change(storage, base, *given, **named)
        with naming_vacuums(storage, base):
            return change(storage, base, *given, **named)

    return changed
