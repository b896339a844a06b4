"""Refuses data files of zskip tables that are given as plain files: by a glob, or a folder in or above the table."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import DamagedIndex, ForeignTable, UnsafePath
from zskip.storage.foreign_folders import folders_of, refuse_foreign_files, with_ancestors
from zskip.storage.storage import Listing, Storage
from zskip.tablelog import log
from zskip.tablelog.index import Index
from zskip.tablelog.runs import DATA_FILE
from zskip.tablelog.snapshot import Snapshot, from_bytes


def refuse_files_of_tables(storage: Storage, files: pa.StringArray) -> None:
    """Raise `ForeignTable` if a file belongs to a table with a log, of zskip or another format.

    Its rows may have been deleted or replaced since, which only the log records.
    """
    refuse_foreign_files(storage, files)
    ours = files.filter(pc.match_substring_regex(files, DATA_FILE))
    if not len(ours):
        return
    inside = ((storage, folder) for folder in sorted(folders_of(ours)))
    above = ((outer, "") for outer in with_ancestors(storage.parent()))
    _refuse(chain(inside, above))


def refuse_replaced_files(storage: Storage, files: pa.StringArray) -> None:
    """As `refuse_files_of_tables`, and for the files of a folder that `zskip.cluster` has laid out, which keep their
    names until a vacuum removes them."""
    refuse_files_of_tables(storage, files)
    folders = sorted(folders_of(files)) if storage.local is not None else [""]
    inside = ((storage, folder) for folder in folders)
    above = ((outer, "") for outer in with_ancestors(storage.parent()))
    _refuse((each, folder) for each, folder in chain(inside, above) if _is_laid_out(each, folder))


def _is_laid_out(storage: Storage, folder: str) -> bool:
    try:
        return bool(storage.names(f"{folder}_data"))
    except (PermissionError, UnsafePath):  # the user may read a folder but not the one above it
        return False


def refuse_files_of_tables_below(storage: Storage, files: pa.StringArray) -> None:
    """As `refuse_files_of_tables`, but only for zskip tables in subfolders.

    The storage is asked only if the name of some file is one that zskip gives.
    """
    ours = files.filter(pc.match_substring_regex(files, DATA_FILE))
    _refuse((storage, folder) for folder in sorted(folders_of(ours) - {""}))


def refuse_new_files(storage: Storage) -> None:
    """Raise `ForeignTable` if a folder, which need not exist, is a zskip table, or lies in one.

    A file there would be no part of the table, whose log does not name it, but other programs would read it as one.
    """
    for folder in with_ancestors(storage):
        if _is_managed(folder, ""):
            raise ForeignTable(
                f"{folder.uri} is a table of zskip, and {storage.uri} lies in its folder: only its log tells which "
                "files are part of it. Write the file to another folder, or append the rows with Table.append."
            )


def _refuse(folders: Iterable[tuple[Storage, str]]) -> None:
    for storage, folder in folders:
        if _is_managed(storage, folder):
            table = storage.uri_of(folder.rstrip("/")) if folder else storage.uri
            raise ForeignTable(
                f"{table} is a table of zskip: its files may hold rows that were deleted or replaced, and only its log "
                f'tells which. Give the table itself, "{table}", in place of its files or of a folder above it.'
            )


def _is_managed(storage: Storage, folder: str) -> bool:
    try:
        names = filter(log.ENTRY.fullmatch, storage.names(f"{folder}{log.LOG}"))
        newest = max(names, key=log.version_of, default=None)
    except (PermissionError, UnsafePath):  # the user may read a folder but not the one above it
        return False
    if newest is None:
        return False
    path = f"{folder}{log.LOG}/{newest}"
    return from_bytes(storage.read(path), storage.uri_of(path)).managed


# Files that other programs put into the folder of a table that zskip wrote: no version holds their rows.

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
