"""Files of tables that zskip writes, named by a glob, by a partition's folder or by a folder above the table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import ForeignTable, UnsafePath
from zskip.storage.storage import Storage
from zskip.tablelog.log import LOG
from zskip.tablelog.snapshot import from_bytes
from zskip.tablelog.vacuum import DATA_FILE

__all__ = ["refuse_own_files"]


def refuse_own_files(storage: Storage, files: pa.StringArray) -> None:
    """Raise `ForeignTable` where one of some files was written into a table of zskip: its rows may have been deleted or
    replaced since, which only the table's log tells."""
    ours = files.filter(pc.match_substring_regex(files, DATA_FILE))
    if not len(ours):
        return
    folders = set(pc.unique(pc.replace_substring_regex(ours, r"[^/]*$", "")).to_pylist())
    above = {folder[: at + 1] for folder in folders for at in range(len(folder)) if folder[at] == "/"}
    for place, folder in _places(storage, {"", *above}):
        if _is_managed(place, folder):
            table = place.uri_of(folder.rstrip("/")) if folder else place.uri
            raise ForeignTable(
                f"{table} is a table of zskip: its files may hold rows that were deleted or replaced, and only its log "
                f'tells which. Give the table itself, "{table}", in place of its files or of a folder above it.'
            )


def _places(storage: Storage, folders: set[str]) -> Iterator[tuple[Storage, str]]:
    yield from ((storage, folder) for folder in sorted(folders))
    parent = storage.parent()
    while parent is not None:
        yield parent, ""
        parent = parent.parent()


def _is_managed(storage: Storage, folder: str) -> bool:
    try:
        entries = sorted(name for name in storage.names(f"{folder}{LOG}") if name.startswith("00"))
    except (PermissionError, UnsafePath):  # the user may read a folder but not the one above it
        return False
    if not entries:
        return False
    path = f"{folder}{LOG}/{entries[-1]}"
    return from_bytes(storage.read(path), storage.uri_of(path)).managed
