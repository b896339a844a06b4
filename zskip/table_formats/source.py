"""`Source`: the interface to a table of another format, and `Content`, what it returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.core.types import logical_type
from zskip.errors import CommitConflict, CorruptFile, SchemaError, TableError, TableNotFound, ZskipError, first_line
from zskip.parquet.arrow_differences import leaves
from zskip.parquet.trust import Writer, is_of_calendar, trusted
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics
from zskip.storage.staged import Staged
from zskip.storage.storage import Storage

if TYPE_CHECKING:
    from zskip.core.receipts import Version
    from zskip.tablelog.index import Index

STORED_AS, FIELD_ID, DEFAULT = b"zskip.stored_as", b"zskip.field_id", b"zskip.default"
"""Keys of a field's metadata: its name in the data files, or its id there, if that is not the field's name; and its
default, as text, for the rows of files that lack it."""

RESTORE = "Restore it from a copy of the table, or open the table as it was earlier."
"""The advice in errors about a missing or damaged file of a log."""

COMMIT_ATTEMPTS = 50
"""How often `Source.replace_files` asks for its commit while others commit first."""

_LOG = Writer("zskip", (1,))
"""As a writer of bounds, a log is trusted: truncated upper bounds are rounded up, and no bound is zeroed."""


@dataclass(frozen=True, slots=True)
class Content:
    """The live files of a table, or its changes since an earlier state.

    ``removed``: the paths removed since that state; None if ``files`` are all live files · ``state``: the state to pass
    to the next `Source.changes`, with the format's ``version`` and the id of the ``table``.
    """

    schema: Schema
    partition_by: tuple[str, ...]
    files: DataFiles
    removed: tuple[str, ...] | None
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replacement:
    """The files numbered ``gone`` of an index, and what takes their place, in two forms, of which a format takes one.

    ``write(storage, staged)``: writes data files, in folders that name the values of their partitions · ``rows()``: the
    rows of each file, for a library that writes the files itself · ``indexed``: the index of a table's newest version ·
    ``changes``: the note of a commit that changes rows; by default none does · ``batch``: recorded in the commit ·
    ``still``: whether a newer index allows the same change: else it raises.
    """

    index: Index
    gone: np.ndarray
    write: Callable[[Storage, Staged], DataFiles]
    rows: Callable[[], Iterable[pa.Table]]
    indexed: Callable[[Source], Index]
    changes: str | None = None
    batch: tuple[str, int] | None = None
    still: Callable[[Index], None] = lambda _: None

    def again(self, source: Source) -> Replacement:
        """The same on the newest version. Raises `CommitConflict` unless it is the same table, with the same columns,
        and has the files with the same deletes; and what ``still`` raises."""
        newer, paths = self.indexed(source), self.index.paths(self.gone)
        before, after = self.index.snapshot, newer.snapshot
        if after.details["table"] != before.details["table"]:
            raise CommitConflict("The table was replaced by another one.")
        if after.schema != before.schema:
            raise CommitConflict("Another writer changed the columns of the table.")
        gone = np.flatnonzero(np.asarray(pc.is_in(newer.paths(np.arange(len(newer))), value_set=paths)))
        if newer.paths(gone) != paths or newer.deletes(gone) != self.index.deletes(self.gone):
            raise CommitConflict("Another writer changed files that were being replaced.")
        self.still(newer)
        return replace(self, index=newer, gone=gone)


@dataclass(frozen=True, slots=True)
class Replaced:
    """A table after some of its files were replaced: the commit's ``version``, and the ``paths`` of the new files."""

    source: Source
    version: int
    paths: list[str]


class Source(Protocol):
    """A table in a format with a log of its own: a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def format(self) -> str:
        """The format's name: "delta" or "iceberg"."""

    @property
    def storage(self) -> Storage:
        """The folder to which the paths of data files are relative."""

    @property
    def home(self) -> Storage:
        """The table's folder. It differs from ``storage`` if files of the table lie outside it."""

    @property
    def fixed(self) -> int | str | datetime | None:
        """The requested version, name or time; None for the newest state."""

    @property
    def deep(self) -> bool:
        """Whether its index has the statistics in the files' footers, too."""

    def newest(self) -> Source:
        """The table's newest state; the source itself if a version or a metadata file was requested."""

    def is_current(self, state: Mapping[str, Any]) -> bool:
        """Whether nothing was committed since that state."""

    def read(self) -> Content:
        """All live files. Raises `UnsupportedFormat` for an unsupported feature of the format."""

    def changes(self, state: Mapping[str, Any]) -> Content | None:
        """The files added and removed since that state; None if `read` is needed."""

    def history(self, limit: int | None) -> list[Version]:
        """The versions that the log names, the newest first. ``limit``: how many at most."""

    def require_replaceable(
        self, index: Index, files: np.ndarray, *, rows_change: bool = False, batch: tuple[str, int] | None = None
    ) -> None:
        """Raise `UnsupportedFormat` if replacing these files would lose data or is not supported, `SchemaError` for old
        dates in Spark's legacy calendar, and `InvalidOption` if a commit cannot record the ``batch``.

        ``rows_change``: the new files do not have the rows of the old ones, which may need more than to replace files.
        """

    def replace_files(self, new: Replacement) -> Replaced | None:
        """Replace files in one commit on the version of the index; None if the table has the batch already.

        If another writer commits first, the commit is retried while `Replacement.again` allows it. Raises
        `CommitConflict`, with the same rows as before, if it does not, or if the table was dropped or recreated, or a
        vacuum removed the new files; and `UncertainCommit` if it is unknown whether the commit was made.
        """


_NEW = datetime(1901, 1, 1)
"""A time from which on both calendars write dates and timestamps alike, with some margin."""


def refuse_old_values_of_index(index: Index, files: np.ndarray) -> None:
    """Raise `SchemaError` for files of an index with old dates in Spark's legacy calendar.

    Footers are read only of files that may have dates or timestamps before 1901, by their bounds.
    """
    from zskip.parquet.legacy_calendar import refuse_old_values_of_files

    may_be_old = np.logical_or.reduce([np.zeros(len(files), bool), *may_hold_old_values(index, files).values()])
    paths = index.paths(files[may_be_old]).to_pylist()
    refuse_old_values_of_files(index.storage, paths, index.snapshot.schema.arrow)


def may_hold_old_values(index: Index, files: np.ndarray) -> dict[str, np.ndarray]:
    """For each column with dates or timestamps, by path, whether each file may hold one of before 1901."""
    columns = [column for column in index.snapshot.schema if any(map(is_of_calendar, leaves(column.type)))]
    if not columns or not len(files):
        return {}
    ranges = index.files_at(files, [column.path for column in columns]).statistics.columns
    found = {}
    for column in columns:
        found[column.path] = np.ones(len(files), bool)
        known = ranges.get(column.path)
        if known is not None and is_of_calendar(column.type):  # a list of dates has no bounds
            new = pc.greater_equal(known.lower, pa.scalar(_NEW).cast(pa.timestamp("s")).cast(column.type))
            is_new = pc.or_kleene(new, pc.invert(known.has_value))
            found[column.path] = ~np.asarray(pc.fill_null(is_new, False))
    return found


def mark_of(storage: Storage, path: str) -> str:
    """A fingerprint of a file, which differs for any other file of that name, now or later; empty if there is none."""
    if storage.local is not None:
        try:
            status = os.stat(storage.uri_of(path))
        except (FileNotFoundError, NotADirectoryError):
            return ""
        # Unlike the modification time, the time of the last status change cannot be set.
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    found = storage.size_and_modified([path])
    return "" if found.size.null_count else f"{found.size[0]} {found.modified[0]} {found.etag[0]}"


def live_statistics(statistics: ColumnStatistics, rows: pa.Int64Array, live: pa.Int64Array) -> ColumnStatistics:
    """Statistics over a file's live rows, from a log's statistics over all its rows.

    ``rows``: row counts before deletes; ``live``: after. In a file with deletes the bounds still hold, but are inexact,
    and the NULL count is known only if no value or every value is NULL.
    """
    statistics = trusted(statistics, rows, _LOG)
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
    """Raise a `TableError` in place of any error from a library that reads a file of a log. ``what``: its role.

    The libraries do not validate the bytes: damaged ones raise any error, from KeyError to SystemError.
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
    """Files with unknown row groups: each file is a single unit of pruning."""
    units = FileStatistics(live, columns)
    first = np.arange(len(path) + 1, dtype=np.int64)
    etag = pa.nulls(len(path), pa.string())
    return DataFiles(
        path, size, modified, etag, units, units, first, deletes if deletes.null_count < len(deletes) else None
    )


def deleted_rows(numbers: np.ndarray) -> bytes:
    """Row numbers in the form of `DataFiles.deletes`: ascending, distinct, 64 bits, little-endian."""
    return np.unique(numbers).astype("<i8").tobytes()


def plain_field(
    one: pa.Field, marks: Mapping[bytes, bytes], inside: Callable[[pa.Field], Mapping[bytes, bytes]] | None = None
) -> pa.Field:
    """A field of logical types, whose metadata is ``marks``; that of nested fields is what ``inside`` returns.

    Raises `SchemaError` for a field without a name.
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
        # A UUID keeps its extension type: its storage type would be binary.
        return type if isinstance(type, pa.BaseExtensionType) else logical_type(type)

    def within(inner: pa.Field) -> pa.Field:
        return plain_field(inner, {} if inside is None else inside(inner), inside)

    return pa.field(one.name, plain(one.type), one.nullable, dict(marks) or None)
