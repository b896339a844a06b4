"""Finds the Delta or Iceberg table at an address, and its side-car; and the files that lag behind their dimensions."""

from __future__ import annotations

import errno
import operator
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
import pyarrow.compute as pc

from zskip.errors import InvalidOption, UnsupportedFormat, ZskipError
from zskip.storage import Storage, open_storage, options_for
from zskip.table_formats.log_index import cache_of, follow
from zskip.table_formats.source import Source
from zskip.tablelog.dimensions import Dimension
from zskip.tablelog.index import CACHE_BYTES, Index
from zskip.tablelog.log import load, newest
from zskip.tablelog.snapshot import Snapshot
from zskip.tablelog.table_folders import FORMATS, format_of_object, own_snapshot


def open_index(table: Any, storage_options: Mapping[str, Any] | None = None) -> Index:
    """The index of the newest version of a table: at a path or URL, or an object of deltalake or pyiceberg.

    The side-car of a Delta or Iceberg table lies in the table's folder if `attach` put it there, else in the user's
    cache folder; it is brought up to date with the log. Raises `TableNotFound`, `UnsupportedFormat`, `InvalidOption`.
    """
    own = own_snapshot(table, storage_options=storage_options)
    return Index(*own) if own is not None else open_foreign_index(table, storage_options)


def open_foreign_index(table: Any, storage_options: Mapping[str, Any] | None = None) -> Index:
    """`open_index` of a table for which `own_snapshot` has found nothing."""
    source = source_of(table, storage_options=storage_options)
    if source is not None:
        return index_of(source)
    storage = open_storage(table, storage_options)
    return Index(storage, load(storage))


def index_of(source: Source, cache_bytes: int = CACHE_BYTES) -> Index:
    """The index of a Delta or Iceberg table, brought up to date. Raises the errors of `open_index`."""
    attached = _attached(source)
    if attached is not None:
        source = _deepened(source, bool(attached.details.get("deep")))
        try:
            return Index(source.storage, follow(source, source.storage), cache_bytes)
        except OSError as error:
            # A reader that may not write here keeps an index of its own.
            if not isinstance(error, PermissionError) and error.errno != errno.EROFS:
                raise
    parts = cache_of(source)
    return Index(source.storage, follow(source, parts), cache_bytes, parts)


def source_of(
    table: Any,
    version: int | str | None = None,
    as_of: datetime | None = None,
    storage_options: Mapping[str, Any] | None = None,
    deep: bool = False,
) -> Source | None:
    """The Delta or Iceberg table at an address or of a deltalake or pyiceberg object; None if it is neither.

    ``deep``: with the statistics in its files' footers.
    """
    found = _source_of(table, version, as_of, storage_options)
    return None if found is None else _deepened(found, deep)


class _Reader(Protocol):
    """The module of a format. ``chosen``: a version, a name or a time; None for the newest state."""

    def of_object(self, table: Any, chosen: Any, options: Mapping[str, Any] | None) -> Source:
        """The table of an object of the format's library."""

    def at_address(self, address: str, chosen: Any, options: Mapping[str, Any] | None) -> Source | None:
        """The table at a path or URL; None if there is none."""


def _source_of(
    table: Any, version: int | str | None, as_of: datetime | None, storage_options: Mapping[str, Any] | None
) -> Source | None:
    chosen = _requested_version(version, as_of)
    kind = format_of_object(table)
    if kind is None and not isinstance(table, str | os.PathLike):
        raise InvalidOption(f"A table is a path, a URL, a deltalake.DeltaTable or a pyiceberg Table, not {table!r}.")
    for each in FORMATS.values():
        if not each.reader or kind not in (each, None):
            continue
        reader = cast(_Reader, import_module(each.reader))
        if kind is not None:
            return reader.of_object(table, chosen, storage_options)
        if (found := reader.at_address(os.fspath(table), chosen, storage_options)) is not None:
            return found
    return None


def attach(table: Any, *, deep: bool = False, storage_options: Mapping[str, Any] | None = None) -> Source:
    """Store the side-car of a Delta or Iceberg table in the table's folder, under ``_zskip/``, for all its readers.

    ``deep``: with the statistics in its files' footers. Readers and vacuums of both formats ignore such folders.
    Raises `InvalidOption` for a zskip table, and `UnsupportedFormat` for a table with files outside its folder.
    """
    source = source_of(table, storage_options=storage_options, deep=deep)
    if source is None:
        raise InvalidOption(f"{table} is neither a Delta nor an Iceberg table: it has nothing to attach to.")
    if source.home is not source.storage:
        raise UnsupportedFormat(
            f"The table at {source.home.uri} has files outside of its folder, so no side-car can lie there for all its "
            "readers. zskip.open keeps one in your cache folder."
        )
    follow(source, source.storage)
    return source


def _attached(source: Source) -> Snapshot | None:
    """The side-car in the table's folder, if `attach` put one there that has what the source needs."""
    storage = source.storage
    if source.fixed is not None or source.home is not storage:
        return None
    found = None
    with suppress(PermissionError):  # the table can be read without it
        found = newest(storage)
    if found is None or found.details.get("source") != source.format:
        return None
    return None if source.deep and not found.details.get("deep") else found


def _deepened(source: Source, deep: bool) -> Source:
    return replace(source, deep=True) if deep else source


def _requested_version(version: Any, as_of: datetime | None) -> int | str | datetime | None:
    """The version as a number or a name, or the time with its zone, UTC by default; None if neither is given."""
    if as_of is not None:
        return as_of if as_of.tzinfo else as_of.replace(tzinfo=UTC)
    if version is None or isinstance(version, str):
        return version
    if not hasattr(version, "__index__") or isinstance(version, bool):
        raise InvalidOption(
            f"A version is a whole number, or the name of a branch or a tag of an Iceberg table, not {version!r}."
        )
    return operator.index(version)


# Which files of a table have attributes of other versions of its dimensions than the newest.


def newest_version(dimension: Dimension, storage: Storage) -> str | None:
    """The newest version of a dimension of a table in a storage; None if it has none, or cannot be read."""
    if not dimension.uri:
        return None
    try:
        return open_index(dimension.uri, options_for(dimension.uri, storage)).identity
    except (ZskipError, OSError):
        return None


def stale_files(index: Index, versions: Mapping[Dimension, str | None]) -> np.ndarray:
    """The numbers of the files whose attributes are of other versions of the dimensions than these, or unknown. A
    dimension whose version is None counts for none."""
    numbers = np.arange(len(index), dtype=np.int64)
    stale = np.zeros(len(numbers), bool)
    columns = index.files_at(numbers, [each.version_path for each in versions]).statistics.columns
    for dimension, version in versions.items():
        if version is not None and len(numbers):
            recorded = columns[dimension.version_path].lower
            current = pc.equal(recorded, version)
            if dimension.uri == index.storage.uri and index.snapshot.operation == "refresh joins":
                # The table is its own dimension, of which this version only says what was read from the one before.
                before = f"zskip {index.snapshot.table_id} {index.snapshot.parent} "
                current = pc.or_(current, pc.starts_with(recorded, before))
            stale |= ~np.asarray(pc.fill_null(current, False))
    return numbers[stale]


def stale_by_dimension(index: Index) -> dict[Dimension, int | None]:
    """For each dimension, the number of files whose attributes are of other versions; None if it cannot be read."""
    versions = {each: newest_version(each, index.storage) for each in index.snapshot.dimensions}
    return {
        each: None if version is None else len(stale_files(index, {each: version}))
        for each, version in versions.items()
    }
