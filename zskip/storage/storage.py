"""`Storage`: the folder that a table lives in, on a local disk or in an object store, behind a dozen verbs.

Paths are relative to the table, with forward slashes. A local disk answers with exclusive creation and fsync, an
object store with conditional puts; nothing above this module knows which it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import UnsafePath

if TYPE_CHECKING:
    import fsspec

__all__ = ["PARQUET_ENDINGS", "Listing", "Storage", "abandon", "table_path", "unsafe_paths"]

# What a Parquet file's name ends in, in small letters or not.
PARQUET_ENDINGS = (".parquet", ".parq", ".pq")

# A path that stays in the table: no empty, "." or ".." segment, nothing that starts at a root, no NUL.
_UNSAFE = r"(^|/)\.{0,2}(/|$)|\x00|^[A-Za-z]:[\\/]|(^|[\\/])\.\.([\\/]|$)"
_FEW = 64


@dataclass(frozen=True, slots=True)
class Listing:
    """Files by name. ``size``: bytes · ``modified``: nanoseconds since the epoch · ``etag``: null where there is none.

    A local disk's ETag is how many nanoseconds after its modification a file's status last changed: whoever replaces a
    file and gives it the old one's time, as copying tools do, cannot set that. Only a listing of a folder tells it.
    A file that was asked for by name and is not there has a null size.
    """

    path: pa.StringArray
    size: pa.Int64Array
    modified: pa.Int64Array
    etag: pa.StringArray

    def __len__(self) -> int:
        return len(self.path)

    def take(self, files: np.ndarray) -> Listing:
        """Some of the files, by number or by mask."""
        chosen = np.flatnonzero(files) if files.dtype == bool else files
        return Listing(*(column.take(pa.array(chosen)) for column in (self.path, self.size, self.modified, self.etag)))

    def parquet(self) -> Listing:
        """The files that are Parquet by the ends of their names."""
        endings = "|".join(ending[1:] for ending in PARQUET_ENDINGS)
        return self.take(np.asarray(pc.match_substring_regex(self.path, rf"(?i)\.({endings})$")))

    @staticmethod
    def of_columns(
        path: Sequence[str], size: Sequence[int], modified: Sequence[int], touched: Sequence[int]
    ) -> Listing:
        """A listing of a local disk, in the order of the paths' bytes. ``touched``: when each file's status changed."""
        times = pa.array(modified, pa.int64())
        etag = pc.subtract(pa.array(touched, pa.int64()), times).cast(pa.string())
        unordered = Listing(pa.array(path, pa.string()), pa.array(size, pa.int64()), times, etag)
        return unordered.take(np.asarray(pc.sort_indices(unordered.path)))

    @staticmethod
    def of(rows: Iterable[tuple[str, int | None, int | None, str | None]]) -> Listing:
        """A listing of rows of path, size, modified and etag, in the order of the paths' bytes."""
        ordered = sorted(rows)
        path, size, modified, etag = zip(*ordered, strict=True) if ordered else ((), (), (), ())
        numbers = pa.int64()
        return Listing(
            pa.array(path, pa.string()),
            pa.array(size, numbers),
            pa.array(modified, numbers),
            pa.array(etag, pa.string()),
        )


class Storage(Protocol):
    """A table's folder. Every verb raises `UnsafePath` for a path that leads out of it."""

    @property
    def uri(self) -> str:
        """The table's own address: an absolute path, or a URL without a slash at its end."""

    @property
    def place(self) -> str:
        """What tells it from all others: the address alone does not where options lead to another server."""

    @property
    def local(self) -> Path | None:
        """The folder on the local disk; None for an object store."""

    def uri_of(self, path: str) -> str:
        """The address of a file of the table, as Arrow, DuckDB and Spark take it."""

    def parent(self) -> Storage | None:
        """The folder that this one lies in; None for the outermost, such as a bucket."""

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""

    def list(self, prefix: str = "", *, hidden: bool = True) -> Listing:
        """All files below a folder, recursively; without ``hidden``, none below a name that starts with _ or a dot."""

    def names(self, folder: str, *, after: str = "") -> Sequence[str]:
        """The names in one folder that sort behind ``after``, in any order; none where there is no such folder."""

    def read(self, path: str) -> bytes:
        """A whole file. Raises `FileNotFoundError`."""

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """A part of a file, shorter where the file ends; a negative ``start`` counts from the end."""

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file at once, durably, over whatever was there."""

    def put_once(self, path: str, data: bytes) -> None:
        """As `put`, for what can be done without: a store that is too busy for it is not asked again."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a whole file at once, durably, unless there is one; whether it was written.

        Raises `UnsupportedStore` where that cannot be promised. After any other error the outcome is unknown.
        """

    def open_writer(self, path: str) -> BinaryIO:
        """A file to write: `close` publishes it whole under its name, an exception inside ``with`` drops it."""

    def make_durable(self, paths: Sequence[str]) -> None:
        """Return only when these files, and their names, would survive a loss of power."""

    def move(self, source: str, target: str) -> None:
        """Give a file another name; whatever had that name is replaced. On an object store it is copied there."""

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files; those that are not there are no error. One that cannot be removed is raised after the rest."""

    def remove_empty(self, folder: str) -> None:
        """Remove a folder, and those in it, that hold no file; where one is in use it stays."""

    def size_and_modified(self, paths: Sequence[str]) -> Listing:
        """What `list` would say of these files, in the order of the paths' bytes."""

    def contain(self, paths: pa.StringArray) -> None:
        """Raise `UnsafePath` where one of these files lies outside the table, links followed."""

    def filesystem(self) -> fsspec.AbstractFileSystem:
        """An fsspec file system that reads this storage under `uri_of` addresses without their scheme."""


def abandon(storage: Storage, paths: Sequence[str]) -> None:
    """Remove files that no one will name, as far as the store lets: the rest are orphans, and vacuum's.

    For what is cleaned up after a failure, which must not be hidden by another one.
    """
    with suppress(OSError):
        storage.delete(paths)


def table_path(path: str) -> str:
    """The path itself, if it stays in the table. Raises `UnsafePath`.

    >>> table_path("day=1/part-0.parquet")
    'day=1/part-0.parquet'
    """
    if re.search(_UNSAFE, path):
        raise UnsafePath(f'The path "{path}" leads out of its table, or is not a plain relative path.')
    return path


def unsafe_paths(paths: pa.StringArray) -> pa.StringArray:
    """Those of the paths that `table_path` would refuse."""
    if len(paths) <= _FEW:  # Arrow takes longer to read the pattern than to look for it
        return pa.array([path for path in paths.to_pylist() if re.search(_UNSAFE, path)], pa.string())
    return paths.filter(pc.match_substring_regex(paths, _UNSAFE))
