"""Folders that are tables with a log of their own, which determines the files that are live.

| format | its log |
| --- | --- |
| Delta | `_delta_log/` |
| Iceberg | `metadata/….metadata.json`, `….metadata.json.gz`, `metadata/version-hint.text` |
| Hudi | `.hoodie/`; in its partitions `.hoodie_partition_metadata` |
| zskip | `_zskip/log/`, unless its newest version only indexes the folder |

Some files in such a folder may have been removed from the table or replaced, or hold deleted rows. To read them by name
would bring those rows back, so these files are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from zskip.core.late_loading import pc
from zskip.errors import ForeignTable, UnsafePath
from zskip.storage.local import LocalStorage
from zskip.storage.storage import Storage
from zskip.tablelog import log
from zskip.tablelog.runs import DATA_FILE
from zskip.tablelog.snapshot import Snapshot, from_bytes

_LOGS = {"Delta": "_delta_log", "Hudi": ".hoodie", "Iceberg": "metadata", "zskip": log.LOG}
_ENTRIES = {
    "Delta": r".+",
    "Hudi": r".+",
    "Iceberg": r"[^/]+\.metadata\.json(?:\.gz)?|version-hint\.text",
    "zskip": r"(?:00\d{15}/)?00\d{18}\.json",
}
_OTHERS = ("Delta", "Hudi", "Iceberg")
_HUDI_PARTITION = ".hoodie_partition_metadata"
_OPEN = "Open it with zskip.open: that takes its live rows."
_ADVICE = {
    "Delta": _OPEN,
    "Iceberg": _OPEN,
    "Hudi": "zskip does not read Hudi: read its live rows with an engine that does, and give these to zskip.write.",
    "zskip": "Give the table itself in place of its files or of a folder above it.",
}


def refuse_folder(storage: Storage | None) -> None:
    """Raise `ForeignTable` if a folder, or one above it, is a table of another format."""
    for folder in _with_ancestors(storage):
        for kind in _OTHERS:
            if _has_log(folder, "", kind):
                raise ForeignTable(_message(folder.uri, kind))


def refuse_new_files(storage: Storage) -> None:
    """Raise `ForeignTable` if a folder, which need not exist, is a zskip table, or lies in one.

    A file there would be no part of the table, whose log does not name it, but other programs would read it as one.
    """
    for folder in _with_ancestors(storage):
        table = _own_table(folder, "")
        if table is not None and table.managed:
            raise ForeignTable(
                f"{folder.uri} is a table of zskip, and {storage.uri} lies in its folder: only its log tells which "
                "files are part of it. Write the file to another folder, or append the rows with Table.append."
            )


def refuse_files_of_tables(storage: Storage, files: pa.StringArray, *, itself: bool = True) -> None:
    """As `refuse_tables_within`, and for tables that hold the storage, or to which links in it lead."""
    ours = refuse_tables_within(storage, files, itself=itself)
    refuse_folder(storage.parent())
    for folder in _with_ancestors(storage.parent()):
        _refuse_own(folder, "", ours)
    if storage.local is not None:
        folders = _folders_of(files)
        used = {*folders, *files.to_pylist()}
        for link in sorted(link for link in _links(storage.local, folders) if not used.isdisjoint((link, f"{link}/"))):
            path = storage.local / link
            target = LocalStorage(path.resolve())
            refuse_folder(target if path.is_dir() else target.parent())


def refuse_tables_within(
    storage: Storage, files: pa.StringArray, listed: pa.StringArray | None = None, *, itself: bool = True
) -> set[str]:
    """Raise `ForeignTable` if a folder of one of these files is a table; return the folders of zskip's data files.

    ``listed``: all paths of an object store, to save another listing · ``itself``: whether the storage may be a zskip
    table, too.
    """
    folders = _folders_of(files)
    ours = _folders_of(files.filter(pc.match_substring_regex(files, DATA_FILE)))
    for folder, kind in _tables(storage, folders, listed):
        if kind != "zskip":
            raise ForeignTable(_message(storage.uri_of(folder.rstrip("/")) if folder else storage.uri, kind))
        if folder or itself:
            _refuse_own(storage, folder, ours)
    return ours


def _refuse_own(storage: Storage, folder: str, ours: set[str]) -> None:
    """Raise `ForeignTable` if a folder is a zskip table that has files in the folders ``ours``.

    Where `cluster` laid a folder out, any file in it may be one that it replaced, until a vacuum removes it.
    """
    table = _own_table(storage, folder)
    if table is not None and table.managed:
        laid_out = table.layout is not None and table.layout.options.get("hidden")
        if laid_out or folder in ours:
            raise ForeignTable(_message(storage.uri_of(folder.rstrip("/")) if folder else storage.uri, "zskip"))


def _own_table(storage: Storage, folder: str) -> Snapshot | None:
    """The newest version of the zskip table in a folder. Raises `PermissionError` if the table's log cannot be read."""
    names = filter(log.ENTRY.fullmatch, _names(storage, folder, "zskip"))
    newest = max(names, key=log.version_of, default=None)
    if newest is None:
        return None
    path = f"{folder}{log.LOG}/{newest}"
    return from_bytes(storage.read(path), storage.uri_of(path))


def _tables(storage: Storage, folders: set[str], listed: pa.StringArray | None) -> Iterator[tuple[str, str]]:
    """The folders that are tables, each with its format.

    On a local disk only ``folders`` are read; an object store is listed as a whole, unless it was ``listed``.
    """
    if storage.local is not None:
        for folder in sorted(folders):
            yield from ((folder, kind) for kind in _LOGS if _has_log(storage, folder, kind))
        return
    found = storage.list("").path if listed is None else listed
    logs = [(kind, rf"{re.escape(log)}/(?:{_ENTRIES[kind]})") for kind, log in _LOGS.items()]
    for kind, entry in (*logs, ("Hudi", re.escape(_HUDI_PARTITION))):
        matches = pc.extract_regex(found, rf"^(?P<folder>(?:.*/)?){entry}$").drop_null()
        yield from ((folder, kind) for folder in matches.field("folder").unique().to_pylist() if folder in folders)


def _has_log(storage: Storage, folder: str, kind: str) -> bool:
    try:
        if kind == "Hudi" and storage.exists(folder + _HUDI_PARTITION):
            return True
        if kind in ("Delta", "Hudi") and storage.local is not None:
            return (
                storage.local / folder / _LOGS[kind]
            ).is_dir()  # even if empty: its entries may be elsewhere, or lost
    except (PermissionError, UnsafePath):
        return False
    return any(re.fullmatch(_ENTRIES[kind], name) for name in _names(storage, folder, kind))


def _names(storage: Storage, folder: str, kind: str) -> Sequence[str]:
    """The names in a folder's log. Users may be allowed to read a folder but not the one above it: that has none.

    Raises `PermissionError` for a log of zskip's that is there and cannot be read.
    """
    path = folder + _LOGS[kind]
    try:
        return storage.names(path)
    except UnsafePath:
        return ()
    except PermissionError:
        if kind == "zskip" and storage.exists(path.removesuffix("/log")):
            raise
        return ()


def _links(root: Path, folders: Iterable[str]) -> Iterator[str]:
    """The symbolic links in some folders, found by reading the folders, without a system call per file."""
    for folder in folders:
        with os.scandir(root / folder) as entries:
            yield from (folder + entry.name for entry in entries if entry.is_symlink())


def _with_ancestors(storage: Storage | None) -> Iterator[Storage]:
    """A folder and the folders above it, from the inside out."""
    while storage is not None:
        yield storage
        storage = storage.parent()


def _folders_of(files: pa.StringArray) -> set[str]:
    """The folders of some files and all folders above these, each with a trailing slash; the outermost is "".

    None for no files.

    >>> sorted(_folders_of(pa.array(["a/b/c.parquet", "a/b/d.parquet"])))
    ['', 'a/', 'a/b/']
    """
    folders = pc.unique(pc.replace_substring_regex(files, r"[^/]*$", "")).to_pylist()
    above = {folder[: at + 1] for folder in folders for at, letter in enumerate(folder) if letter == "/"}
    return {"", *above} if folders else set()


def _message(uri: str, kind: str) -> str:
    what = "a table of zskip" if kind == "zskip" else f"{'an' if kind[0] == 'I' else 'a'} {kind} table"
    return (
        f"{uri} is {what}: its files may hold rows that were deleted or replaced, and only its own log tells which. "
        f"{_ADVICE[kind]}"
    )
