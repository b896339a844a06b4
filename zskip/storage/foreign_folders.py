"""Folders that are tables of other formats, whose own logs define which files are live.

| format | its log |
| --- | --- |
| Delta | `_delta_log/` |
| Iceberg | `metadata/….metadata.json`, `….metadata.json.gz`, `metadata/version-hint.text` |
| Hudi | `.hoodie/`; in its partitions `.hoodie_partition_metadata` |

A file below such a folder may have been removed or replaced, or hold deleted rows, which would reappear. So
`zskip.index` and `zskip.write` refuse these files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import ForeignTable, UnsafePath
from zskip.storage.local import LocalStorage
from zskip.storage.storage import Storage

__all__ = ["folders_of", "refuse_folder", "refuse_foreign_files", "with_those_above"]

_LOGS = {"Delta": "_delta_log", "Hudi": ".hoodie", "Iceberg": "metadata"}
_ENTRIES = {"Delta": r".+", "Hudi": r".+", "Iceberg": r"[^/]+\.metadata\.json(\.gz)?|version-hint\.text"}
_PARTITION = ".hoodie_partition_metadata"
_ANY = (
    r"(^|/)(_delta_log/|\.hoodie/|\.hoodie_partition_metadata$"
    r"|metadata/([^/]+\.metadata\.json(\.gz)?|version-hint\.text)$)"
)
_WAYS = {
    "Delta": "Open it with zskip.open: that takes its live rows.",
    "Iceberg": "Open it with zskip.open: that takes its live rows.",
    "Hudi": "zskip does not read Hudi: read its live rows with an engine that does, and give these to zskip.write.",
}


def refuse_foreign_files(storage: Storage, files: pa.StringArray) -> None:
    """Raise `ForeignTable` where one of some files belongs to a table of another format."""
    folders = folders_of(files)
    for folder, kind in _tables(storage, folders):
        if folder in folders:
            raise ForeignTable(_message(storage.uri_of(folder.rstrip("/")) if folder else storage.uri, kind))
    refuse_folder(storage.parent())
    if storage.local is not None:
        linked = {path for path in map(storage.local.joinpath, [*folders, *files.to_pylist()]) if path.is_symlink()}
        for path in sorted(linked):
            target = LocalStorage(path.resolve())
            refuse_folder(target if path.is_dir() else target.parent())


def _tables(storage: Storage, folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The folders that are tables of another format, and their format; on a local disk only those in ``folders``."""
    if storage.local is not None:
        for folder in sorted(folders):
            yield from ((folder, kind) for kind in _LOGS if _has_log(storage, folder, kind))
        return
    found = storage.list("").path
    for path in found.filter(pc.match_substring_regex(found, _ANY)).to_pylist():
        for kind, log in _LOGS.items():
            if match := re.fullmatch(rf"((?:.*/)?){re.escape(log)}/(?:{_ENTRIES[kind]})", path):
                yield match[1], kind
        if path.rpartition("/")[2] == _PARTITION:
            yield path.removesuffix(_PARTITION), "Hudi"


def _has_log(storage: Storage, folder: str, kind: str) -> bool:
    try:
        if kind == "Hudi" and storage.exists(folder + _PARTITION):
            return True
        if kind != "Iceberg" and storage.local is not None:
            return (storage.local / folder / _LOGS[kind]).is_dir()  # empty too: its entries may be elsewhere, or lost
        names = storage.names(f"{folder}{_LOGS[kind]}")
    except (PermissionError, UnsafePath):  # the user may read a folder but not the one above it
        return False
    return any(re.fullmatch(_ENTRIES[kind], name) for name in names)


def refuse_folder(storage: Storage | None) -> None:
    """Raise `ForeignTable` where a folder, or a folder above it, is a table of another format."""
    for place in with_those_above(storage):
        for kind in _LOGS:
            if _has_log(place, "", kind):
                raise ForeignTable(_message(place.uri, kind))


def with_those_above(storage: Storage | None) -> Iterator[Storage]:
    """A folder and the folders above it, outwards."""
    while storage is not None:
        yield storage
        storage = storage.parent()


def folders_of(files: pa.StringArray) -> set[str]:
    """The folders that some files lie in and those above, each with a trailing slash; the outermost is "".

    >>> sorted(folders_of(pa.array(["a/b/c.parquet", "a/b/d.parquet"])))
    ['', 'a/', 'a/b/']
    """
    folders = pc.unique(pc.replace_substring_regex(files, r"[^/]*$", "")).to_pylist()
    return {"", *(folder[: at + 1] for folder in folders for at, letter in enumerate(folder) if letter == "/")}


def _message(uri: str, kind: str) -> str:
    return (
        f"{uri} is {'an' if kind[0] == 'I' else 'a'} {kind} table: its files hold rows that were deleted or replaced, "
        f"and only its own log tells which. {_WAYS[kind]}"
    )
