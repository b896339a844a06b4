"""`Source`: the interface to a table of another format, and `Content`, its answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import types as t
from zskip.errors import CorruptFile, SchemaError, TableError, TableNotFound, ZskipError, first_line
from zskip.parquet.trust import Writer, believed
from zskip.schema import Schema
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics
from zskip.storage.storage import Storage
from zskip.types import logical_type

__all__ = [
    "DEFAULT",
    "FIELD_ID",
    "RESTORE",
    "STORED_AS",
    "Content",
    "Source",
    "content_files",
    "deleted_rows",
    "live_statistics",
    "mark_of",
    "plain_field",
    "reading",
]

STORED_AS, FIELD_ID, DEFAULT = b"zskip.stored_as", b"zskip.field_id", b"zskip.default"
"""Metadata of a field: the name, or the id, under which the data files hold it, where that is not the field's own, and
the value of the rows of files that lack it, as text."""

RESTORE = "Restore it from a copy of the table, or open the table as it was earlier."
"""What to do about a file of a log that is gone or damaged."""

_LOG = Writer("zskip", (1,))
"""A format's log says how bounds are made: cut strings are rounded up, and nothing is cleared to zero."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a table holds, or what changed in it since an earlier state.

    ``removed``: paths that are no longer live, None where ``files`` is all there is · ``state``: what the next call
    needs to follow from here, with the format's own ``version`` and the id of the ``table`` in it.
    """

    schema: Schema
    partition_by: tuple[str, ...]
    files: DataFiles
    removed: tuple[str, ...] | None
    state: Mapping[str, Any]


class Source(Protocol):
    """A table in a format with a log of its own."""

    @property
    def format(self) -> str:
        """The format's name: "delta" or "iceberg"."""

    @property
    def storage(self) -> Storage:
        """The folder that the paths of data files start from."""

    @property
    def home(self) -> Storage:
        """The table's folder: another one than ``storage`` where files of the table lie outside of it."""

    @property
    def fixed(self) -> int | str | datetime | None:
        """The version, name or time that was asked for; None for the newest state."""

    def newest(self) -> Source:
        """The same table as it is now, unless one version or one metadata file was asked for."""

    def is_current(self, state: Mapping[str, Any]) -> bool:
        """Whether nothing was committed since that state."""

    def read(self) -> Content:
        """All live files. Raises `UnsupportedFormat` for a feature of the format that would be read wrongly."""

    def changes(self, state: Mapping[str, Any]) -> Content | None:
        """What was committed since that state; None where only `read` can tell."""


def mark_of(storage: Storage, path: str) -> str:
    """What tells a file from another one that has its name, now or later; empty where there is none."""
    if storage.local is not None:
        try:
            status = os.stat(storage.uri_of(path))
        except (FileNotFoundError, NotADirectoryError):
            return ""
        # The time of the last change of status is no one's to set, as that of the last modification is.
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    found = storage.size_and_modified([path])
    return "" if found.size.null_count else f"{found.size[0]} {found.modified[0]} {found.etag[0]}"


def live_statistics(statistics: ColumnStatistics, rows: pa.Int64Array, live: pa.Int64Array) -> ColumnStatistics:
    """A log's statistics of all rows of each file as those of its live rows.

    ``rows``: before deletes, ``live``: after. Where rows are deleted the bounds still hold, but may be no row's value,
    and of the NULLs only none and all survive as a count.
    """
    statistics = believed(statistics, rows, _LOG)
    untouched = pc.fill_null(pc.equal(rows, live), False)
    nulls = statistics.null_count
    none, every = pc.fill_null(pc.equal(nulls, 0), False), pc.fill_null(pc.equal(nulls, rows), False)
    unknown = pa.scalar(None, pa.int64())
    return ColumnStatistics(
        statistics.lower,
        statistics.upper,
        pc.if_else(pc.or_(untouched, none), nulls, pc.if_else(every, live, unknown)),
        pc.if_else(
            pc.or_(untouched, pc.fill_null(pc.equal(statistics.nan_count, 0), False)), statistics.nan_count, unknown
        ),
        pc.and_kleene(statistics.lower_exact, untouched),
        pc.and_kleene(statistics.upper_exact, untouched),
    )


@contextmanager
def reading(address: str, what: str) -> Iterator[None]:
    """Raise a `TableError` in place of any error of a library that reads a file of a log; ``what``: the file's part.

    The libraries trust the bytes: damaged ones raise whatever error they lead to, from KeyError to SystemError.
    """
    try:
        yield
    except ZskipError:
        raise
    except FileNotFoundError as error:
        raise TableNotFound(f"{address}, {what}, is gone. {RESTORE}") from error
    except OSError as error:
        raise TableError(f"{address}, {what}, cannot be read: {error}") from error
    except Exception as error:
        raise CorruptFile(f"{address}, {what}, is damaged: {first_line(error)}. {RESTORE}") from error


def content_files(
    path: pa.StringArray,
    size: pa.Int64Array,
    modified: pa.Int64Array,
    live: pa.Int64Array,
    columns: Mapping[str, ColumnStatistics],
    deletes: pa.BinaryArray,
) -> DataFiles:
    """Files whose row groups are not known: each is one unit of a proof."""
    units = FileStatistics(live, columns)
    first = np.arange(len(path) + 1, dtype=np.int64)
    etag = pa.nulls(len(path), pa.string())
    return DataFiles(
        path, size, modified, etag, units, units, first, deletes if deletes.null_count < len(deletes) else None
    )


def deleted_rows(numbers: np.ndarray) -> bytes:
    """Row numbers of a file in the form that `DataFiles.deletes` keeps: ascending, 64 bits, little-endian."""
    return np.unique(numbers).astype("<i8").tobytes()


def plain_field(
    one: pa.Field, marks: Mapping[bytes, bytes], inside: Callable[[pa.Field], Mapping[bytes, bytes]] | None = None
) -> pa.Field:
    """A field with plain types, and with no metadata but ``marks``, and for the fields in it what ``inside`` gives.

    Raises `SchemaError` for one without a name.
    """
    if not one.name:
        raise SchemaError("A column has no name, so SQL cannot refer to it. Give it one.")

    def plain(type: pa.DataType) -> pa.DataType:
        if t.is_struct(type):
            return pa.struct([within(inner) for inner in type])
        if t.is_list(type) or t.is_large_list(type):
            return pa.list_(within(type.value_field))
        if t.is_map(type):
            return pa.map_(within(type.key_field), within(type.item_field))
        # A UUID stays one: its bytes alone would be binary.
        return type if isinstance(type, pa.BaseExtensionType) else logical_type(type)

    def within(inner: pa.Field) -> pa.Field:
        return plain_field(inner, {} if inside is None else inside(inner), inside)

    return pa.field(one.name, plain(one.type), one.nullable, dict(marks) or None)
