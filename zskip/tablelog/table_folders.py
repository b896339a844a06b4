"""Folders that are tables of other formats, whose own logs determine which files are live.

| format | its log |
| --- | --- |
| Delta | `_delta_log/` |
| Iceberg | `metadata/….metadata.json`, `….metadata.json.gz`, `metadata/version-hint.text` |
| Hudi | `.hoodie/`; in its partitions `.hoodie_partition_metadata` |

Some files in such a folder may have been removed from the table or replaced, or hold deleted rows. To index them would
bring those rows back, so `zskip.index` and `zskip.write` refuse these files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import ForeignTable, UnsafePath
from zskip.storage.local import LocalStorage
from zskip.storage.storage import Storage

_LOGS = {"Delta": "_delta_log", "Hudi": ".hoodie", "Iceberg": "metadata"}
_LOG_ENTRIES = {"Delta": r".+", "Hudi": r".+", "Iceberg": r"[^/]+\.metadata\.json(\.gz)?|version-hint\.text"}
_HUDI_PARTITION = ".hoodie_partition_metadata"
_ANY_LOG_ENTRY = (
    r"(^|/)(_delta_log/|\.hoodie/|\.hoodie_partition_metadata$"
    r"|metadata/([^/]+\.metadata\.json(\.gz)?|version-hint\.text)$)"
)
_ADVICE = {
    "Delta": "Open it with zskip.open: that takes its live rows.",
    "Iceberg": "Open it with zskip.open: that takes its live rows.",
    "Hudi": "zskip does not read Hudi: read its live rows with an engine that does, and give these to zskip.write.",
}


def refuse_foreign_files(storage: Storage, files: pa.StringArray) -> None:
    """Raise `ForeignTable` if one of these files belongs to a table of another format."""
    refuse_tables_around(storage, files, None)
    folders = folders_of(files)
    refuse_folder(storage.parent())
    if storage.local is not None:
        used = {*folders, *files.to_pylist()}
        for link in sorted(link for link in _links(storage.local, folders) if not used.isdisjoint((link, f"{link}/"))):
            path = storage.local / link
            target = LocalStorage(path.resolve())
            refuse_folder(target if path.is_dir() else target.parent())


def _links(root: Path, folders: Iterable[str]) -> Iterator[str]:
    """The symbolic links in some folders, found by reading the folders, without a system call per file."""
    for folder in folders:
        with os.scandir(root / folder) as entries:
            yield from (folder + entry.name for entry in entries if entry.is_symlink())


def refuse_tables_around(storage: Storage, files: pa.StringArray, listed: pa.StringArray | None) -> None:
    """Raise `ForeignTable` if a folder of one of these files is a table of another format.

    ``listed``: all paths of an object store, to save another listing.
    """
    folders = folders_of(files)
    for folder, kind in _tables(storage, folders, listed):
        if folder in folders:
            raise ForeignTable(_message(storage.uri_of(folder.rstrip("/")) if folder else storage.uri, kind))


def _tables(
    storage: Storage, folders: Iterable[str], listed: pa.StringArray | None = None
) -> Iterator[tuple[str, str]]:
    """The folders that are tables of another format, each with its format.

    On a local disk only ``folders`` are read; an object store is listed as a whole, unless it was ``listed``.
    """
    if storage.local is not None:
        for folder in sorted(folders):
            yield from ((folder, kind) for kind in _LOGS if _has_log(storage, folder, kind))
        return
    found = storage.list("").path if listed is None else listed
    for path in found.filter(pc.match_substring_regex(found, _ANY_LOG_ENTRY)).to_pylist():
        for kind, log in _LOGS.items():
            if match := re.fullmatch(rf"((?:.*/)?){re.escape(log)}/(?:{_LOG_ENTRIES[kind]})", path):
                yield match[1], kind
        if path.rpartition("/")[2] == _HUDI_PARTITION:
            yield path.removesuffix(_HUDI_PARTITION), "Hudi"


def _has_log(storage: Storage, folder: str, kind: str) -> bool:
    try:
        if kind == "Hudi" and storage.exists(folder + _HUDI_PARTITION):
            return True
        if kind != "Iceberg" and storage.local is not None:
            return (
                storage.local / folder / _LOGS[kind]
            ).is_dir()  # even if empty: its entries may be elsewhere, or lost
        names = storage.names(f"{folder}{_LOGS[kind]}")
    except (PermissionError, UnsafePath):  # users may be allowed to read a folder but not the one above it
        return False
    return any(re.fullmatch(_LOG_ENTRIES[kind], name) for name in names)


def refuse_folder(storage: Storage | None) -> None:
    """Raise `ForeignTable` if a folder, or one above it, is a table of another format."""
    for folder in with_ancestors(storage):
        for kind in _LOGS:
            if _has_log(folder, "", kind):
                raise ForeignTable(_message(folder.uri, kind))


def with_ancestors(storage: Storage | None) -> Iterator[Storage]:
    """A folder and the folders above it, from the inside out."""
    while storage is not None:
        yield storage
        storage = storage.parent()


def folders_of(files: pa.StringArray) -> set[str]:
    """The folders of some files and all folders above these, each with a trailing slash; the outermost is "".

    >>> sorted(folders_of(pa.array(["a/b/c.parquet", "a/b/d.parquet"])))
    ['', 'a/', 'a/b/']
    """
    folders = pc.unique(pc.replace_substring_regex(files, r"[^/]*$", "")).to_pylist()
    return {"", *(folder[: at + 1] for folder in folders for at, letter in enumerate(folder) if letter == "/")}


def _message(uri: str, kind: str) -> str:
    return (
        f"{uri} is {'an' if kind[0] == 'I' else 'a'} {kind} table: its files hold rows that were deleted or replaced, "
        f"and only its own log tells which. {_ADVICE[kind]}"
    )
