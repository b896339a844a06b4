"""Refuses data files of zskip tables that are given as plain files: by a glob, or a folder in or above the table."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import ForeignTable, UnsafePath
from zskip.storage.foreign_folders import folders_of, refuse_foreign_files, with_ancestors
from zskip.storage.storage import Storage
from zskip.tablelog import log
from zskip.tablelog.runs import DATA_FILE
from zskip.tablelog.snapshot import from_bytes

__all__ = ["refuse_files_of_tables", "refuse_files_of_tables_below", "refuse_replaced_files"]


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
