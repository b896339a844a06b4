"""Tables with a log of their own, which determines the files that are live: their formats, and their folders.

Some files in such a folder may have been removed from the table or replaced, or hold deleted rows. To read them by name
would bring those rows back, so these files are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from zskip.core.late_loading import pc
from zskip.errors import DamagedIndex, ForeignTable, InvalidOption, TableNotFound, UnsafePath
from zskip.storage import Storage, open_storage
from zskip.storage.local import LocalStorage
from zskip.storage.storage import PARQUET_ENDINGS
from zskip.tablelog import log
from zskip.tablelog.runs import DATA_FILE
from zskip.tablelog.snapshot import Snapshot, from_bytes

_OPEN = "Open it with zskip.open: that takes its live rows."


@dataclass(frozen=True, slots=True)
class Format:
    """A table format.

    ``title``: "a Delta table" · ``log``: the folder of its log · ``entry``: a pattern for the names there · ``advice``:
    how to read such a table · ``any_log``: whether a folder of that name suffices, since its entries may be lost ·
    ``mark``: the name of a file in each folder of data · ``reader``: the module with its `Source`, if zskip reads it ·
    ``objects``: the classes of its library whose objects are tables · ``address``: a pattern for files of the log whose
    address stands for the table.
    """

    title: str
    log: str
    entry: str
    advice: str
    any_log: bool = False
    mark: str = ""
    reader: str = ""
    objects: tuple[str, ...] = ()
    address: str = ""


FORMATS = {
    "delta": Format(
        "a Delta table",
        "_delta_log",
        r".+",
        _OPEN,
        any_log=True,
        reader="zskip.table_formats.delta",
        objects=("deltalake.table.DeltaTable",),
    ),
    "iceberg": Format(
        "an Iceberg table",
        "metadata",
        r"[^/]+\.metadata\.json(?:\.gz)?|version-hint\.text",
        _OPEN,
        reader="zskip.table_formats.iceberg",
        objects=("pyiceberg.table.Table", "pyiceberg.table.StaticTable"),
        address=r"(?:^|/)metadata/[^/*?]+\.metadata\.json(?:\.gz)?$",
    ),
    "hudi": Format(
        "a Hudi table",
        ".hoodie",
        r".+",
        "zskip does not read Hudi: read its live rows with an engine that does, and give these to zskip.write.",
        any_log=True,
        mark=".hoodie_partition_metadata",
    ),
    # Spark reads the files that this log names: what a driver or a task left that failed may lie beside them.
    "spark": Format(
        "the output of a Spark streaming query",
        "_spark_metadata",
        r".+",
        "Give zskip.write the rows of spark.read.parquet, which follows that log, or let the query write a table: "
        "zskip.spark.append_batch. If every file counts and the query has ended, remove the folder _spark_metadata.",
        any_log=True,
    ),
    "zskip": Format(
        "a table of zskip",
        log.LOG,
        r"(?:00\d{15}/)?00\d{18}\.json",
        "Give the table itself in place of its files or of a folder above it.",
    ),
}
"""The formats. A zskip table counts unless its newest version only indexes the folder."""

SOURCE_FORMATS = tuple(name for name, each in FORMATS.items() if each.reader)
"""The formats whose logs an index can follow."""


_OBJECTS = {name: each for each in FORMATS.values() for name in each.objects}


def format_of_object(table: Any) -> Format | None:
    """The format of a table of its library, such as deltalake or pyiceberg; None for anything else."""
    return _OBJECTS.get(f"{type(table).__module__}.{type(table).__name__}")


ADDRESS_OF_ENTRY = re.compile("|".join(each.address for each in FORMATS.values() if each.address))
"""Finds addresses of files of a log that stand for the table."""


def own_snapshot(
    table: Any,
    version: int | str | None = None,
    as_of: datetime | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Storage, Snapshot] | None:
    """The storage and snapshot of the zskip table at an address; None for other formats, and if it is unreadable.

    It is called first: opening a zskip table need not look for the logs of other formats.
    """
    if not isinstance(table, str | os.PathLike) or not (version is None or type(version) is int):
        return None
    if ADDRESS_OF_ENTRY.search(os.fspath(table)):
        return None
    storage = open_storage(table, storage_options)
    try:
        # `load` would list the whole folder for its error, and most tables of other formats have no side-car in it.
        given = version is not None or as_of is not None
        snapshot = log.load(storage, version, as_of) if given else log.newest(storage)
    # The side-car of another format is rebuilt, and a file may be one of its log; otherwise it is raised again later.
    except (TableNotFound, DamagedIndex, NotADirectoryError, PermissionError):
        return None
    return None if snapshot is None or snapshot.details.get("source") in SOURCE_FORMATS else (storage, snapshot)


def refuse_folder(storage: Storage | None) -> None:
    """Raise `ForeignTable` if a folder, or one above it, is a table of another format."""
    for folder in _with_ancestors(storage):
        for kind in FORMATS:
            if kind != "zskip" and _has_log(folder, "", kind):
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


def refuse_within_index(storage: Storage) -> None:
    """Raise `InvalidOption` if a new table would lie in a folder of which zskip indexes the files.

    The index would find the table's files among those of its folder. It then refuses to read them, and takes those that
    `cluster` replaced and a vacuum removed for removed rows.
    """
    for folder in _with_ancestors(storage.parent()):
        inner = storage.uri.removeprefix(folder.uri).strip("/").split("/")
        if any(name[:1] in ("_", ".") and "=" not in name for name in inner):
            continue  # hidden: no index lists it
        table = None
        with suppress(OSError):  # a folder above that cannot be read
            table = _own_table(folder, "")
        if table is not None and table.details.get("source") in ("footers", "rows"):
            raise InvalidOption(
                f"{storage.uri} lies in {folder.uri}, whose files are indexed: a table in it would make that index "
                "unreadable. Choose a folder outside it, or lay the whole folder out by zskip.cluster(path, by=…)."
            )


def refuse_files_of_tables(storage: Storage, files: pa.StringArray, *, itself: bool = True) -> None:
    """As `refuse_tables_within`, and for tables that hold the storage, or to which links in it lead."""
    ours = refuse_tables_within(storage, files, itself=itself)
    refuse_folder(storage.parent())
    for folder in _with_ancestors(storage.parent()):
        _refuse_own(folder, "", ours)
    if storage.local is not None:
        listed = files.to_pylist()
        folders = _folders_of(files)
        used = {*folders, *listed}
        targets: dict[Path, list[str]] = {}
        links = sorted(link for link in _links(storage.local, folders) if not used.isdisjoint((link, f"{link}/")))
        followed: set[str] = set()
        for link in links:
            if not followed.isdisjoint(link[:at] for at, letter in enumerate(link) if letter == "/"):
                continue  # found again below what the outer link leads to, which may be a folder above it
            target = (storage.local / link).resolve()
            if target.is_dir():
                followed.add(link)
                below = [file.removeprefix(f"{link}/") for file in listed if file.startswith(f"{link}/")]
                targets.setdefault(target, []).extend(below)
            else:
                targets.setdefault(target.parent, []).append(target.name)
        for within, names in targets.items():
            refuse_files_of_tables(LocalStorage(within), pa.array(names, pa.string()))


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


def holds_parquet(folder: str) -> bool:
    """Whether a look at a folder shows files of Parquet, or folders with the value of a column."""
    with suppress(OSError):
        return any(name.lower().endswith(PARQUET_ENDINGS) or "=" in name for name in os.listdir(folder))
    return False


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
            yield from ((folder, kind) for kind in FORMATS if _has_log(storage, folder, kind))
        return
    paths = storage.list("").path if listed is None else listed
    yield from ((folder, kind) for folder, kind in folders_with_logs(paths) if folder in folders)


def folders_with_logs(paths: pa.StringArray) -> Iterator[tuple[str, str]]:
    """The folders that are tables by some of these paths, with their formats. ``paths``: all below a folder."""
    for kind, each in FORMATS.items():
        entry = rf"{re.escape(each.log)}/(?:{each.entry})" + (f"|{re.escape(each.mark)}" if each.mark else "")
        matches = pc.extract_regex(paths, rf"^(?P<folder>(?:.*/)?)(?:{entry})$").drop_null()
        yield from ((folder, kind) for folder in matches.field("folder").unique().to_pylist())


def _has_log(storage: Storage, folder: str, kind: str) -> bool:
    form = FORMATS[kind]
    try:
        if form.mark and storage.exists(folder + form.mark):
            return True
        if form.any_log and storage.local is not None:
            return (storage.local / folder / form.log).is_dir()
    except (PermissionError, UnsafePath):
        return False
    return any(re.fullmatch(form.entry, name) for name in _names(storage, folder, kind))


def _names(storage: Storage, folder: str, kind: str) -> Sequence[str]:
    """The names in a folder's log. Users may be allowed to read a folder but not the one above it: that has none.

    Raises `PermissionError` for a log of zskip's that is there and cannot be read.
    """
    path = folder + FORMATS[kind].log
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
    return (
        f"{uri} is {FORMATS[kind].title}: its files may hold rows that are not, or no longer, part of it, and only its "
        f"own log tells which. {FORMATS[kind].advice}"
    )
