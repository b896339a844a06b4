"""`Storage`: the interface to a table's folder, on a local disk or in an object store.

Paths are relative to the table, with forward slashes. Commits depend on `Storage.put_if_absent`: a hard link and fsync
on a local disk, and a conditional put in an object store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import numpy as np
import pyarrow as pa

from zskip.core.late_loading import pc
from zskip.errors import UnsafePath

if TYPE_CHECKING:
    import fsspec

# The file name extensions of Parquet, compared without regard to case.
PARQUET_ENDINGS = (".parquet", ".parq", ".pq")

# Paths that may lead out of the table: those with an empty, "." or ".." segment, absolute paths, and those with NUL.
_UNSAFE = r"(^|/)\.{0,2}(/|$)|\x00|^[A-Za-z]:[\\/]|(^|[\\/])\.\.([\\/]|$)"
# So many paths take less time in Python than Arrow's calls.
_FEW = 64


@dataclass(frozen=True, slots=True)
class Listing:
    """Files by path. ``size``: bytes · ``modified``: nanoseconds since the epoch · ``etag``: null if there is none.

    On a local disk, the ETag is the nanoseconds from a file's last modification to its last status change (ctime -
    mtime): copying tools restore the modification time, but cannot set the time of the status change. Only listings of
    folders have it. `Storage.size_and_modified` gives a missing file a null size.
    """

    path: pa.StringArray
    size: pa.Int64Array
    modified: pa.Int64Array
    etag: pa.StringArray

    def __len__(self) -> int:
        return len(self.path)

    def take(self, files: np.ndarray) -> Listing:
        """Some of the files, by number or by mask."""
        if files.dtype == bool and files.all():
            return self
        chosen = pa.array(np.flatnonzero(files) if files.dtype == bool else files)
        return Listing(*(column.take(chosen) for column in (self.path, self.size, self.modified, self.etag)))

    def at(self, paths: pa.StringArray) -> Listing:
        """The files at these paths, in their order, with nulls for those that are not listed."""
        place = pc.index_in(paths, value_set=self.path)
        return Listing(paths, *(column.take(place) for column in (self.size, self.modified, self.etag)))

    def visible(self) -> Listing:
        """The files that `Storage.list` returns with ``hidden=False``."""
        return self.take(~np.asarray(pc.match_substring_regex(self.path, r"(^|/)[._][^/=]*(/|$)")))

    def parquet(self) -> Listing:
        """The files with an extension of Parquet."""
        if len(self) <= _FEW:
            return self.take(np.array([path.lower().endswith(PARQUET_ENDINGS) for path in self.path.to_pylist()], bool))
        endings = "|".join(ending[1:] for ending in PARQUET_ENDINGS)
        return self.take(np.asarray(pc.match_substring_regex(self.path, rf"(?i)\.({endings})$")))

    @staticmethod
    def of_columns(
        path: Sequence[str], size: Sequence[int], modified: Sequence[int], status_changed: Sequence[int]
    ) -> Listing:
        """A listing of a local disk, sorted by the paths' bytes. Times are nanoseconds since the epoch."""
        if len(path) <= _FEW:
            etags = (str(changed - written) for changed, written in zip(status_changed, modified, strict=True))
            return Listing.of(zip(path, size, modified, etags, strict=True))
        times = pa.array(modified, pa.int64())
        etag = pc.subtract(pa.array(status_changed, pa.int64()), times).cast(pa.string())
        unordered = Listing(pa.array(path, pa.string()), pa.array(size, pa.int64()), times, etag)
        return unordered.take(np.asarray(pc.sort_indices(unordered.path)))

    def rows(self) -> Iterator[tuple[str, int | None, int | None, str | None]]:
        """The files as `of` takes them."""
        return zip(*(column.to_pylist() for column in (self.path, self.size, self.modified, self.etag)), strict=True)

    @staticmethod
    def of(rows: Iterable[tuple[str, int | None, int | None, str | None]]) -> Listing:
        """A listing of rows (path, size, modified, etag), sorted by the paths' bytes."""
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
    """A table's folder. Every method raises `UnsafePath` for a path that leads out of the folder."""

    @property
    def uri(self) -> str:
        """The table's address: an absolute path, or a URL without a trailing slash."""

    @property
    def identity(self) -> str:
        """The address with a hash of the options: equal addresses may belong to different servers."""

    @property
    def local(self) -> Path | None:
        """The folder on the local disk; None for an object store."""

    def uri_of(self, path: str) -> str:
        """The address of a file, for Arrow, DuckDB and Spark."""

    def parent(self) -> Storage | None:
        """The folder that contains this one; None for the outermost, such as a bucket."""

    def exists(self, path: str) -> bool:
        """Whether a file or, on a local disk, a folder of this path exists."""

    def list(self, prefix: str = "", *, hidden: bool = True) -> Listing:
        """All files below a folder, recursively.

        ``hidden``: whether to list files whose path has a segment that begins with _ or a dot and has no "=".
        """

    def names(self, folder: str, *, after: str = "") -> Sequence[str]:
        """The files below a folder, by their paths in it, that sort after ``after``; in any order.

        None if the folder does not exist. Folders that sort before ``after`` are not read.
        """

    def read(self, path: str) -> bytes:
        """The content of a file. Raises `FileNotFoundError`."""

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """At most ``length`` bytes of a file, fewer at its end; a negative ``start`` counts from the end."""

    def put(self, path: str, data: bytes) -> None:
        """Write a file atomically and durably, replacing an existing one."""

    def put_once(self, path: str, data: bytes) -> None:
        """Write a file atomically, without retries, and without waiting until it is durable: for optional files."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file atomically and durably unless it exists. Returns whether it was written.

        Raises `UnsupportedStore` if the store cannot guarantee that. After any other error the outcome is unknown.
        """

    def open_writer(self, path: str) -> BinaryIO:
        """Open a file for writing: `close` publishes it under its name, an exception inside ``with`` discards it."""

    def make_durable(self, paths: Sequence[str]) -> None:
        """Return only when these files and their names would survive a power failure."""

    def move(self, source: str, target: str) -> None:
        """Rename a file, replacing an existing one. An object store copies and deletes it."""

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files, ignoring missing ones. An error is raised only after the other files are removed."""

    def remove_empty(self, folder: str) -> None:
        """Remove a folder and its subfolders, except those that hold files."""

    def size_and_modified(self, paths: Sequence[str]) -> Listing:
        """A listing of these files, sorted by the paths' bytes."""

    def require_inside(self, paths: pa.StringArray) -> None:
        """Raise `UnsafePath` if one of these files, after following links, lies outside the table."""

    def filesystem(self) -> fsspec.AbstractFileSystem:
        """An fsspec file system that reads this storage; its paths are `uri_of` addresses without their scheme."""


def abandon(storage: Storage, paths: Sequence[str]) -> None:
    """Remove unreferenced files after a failure; vacuum later removes those that cannot be removed now.

    It suppresses errors of whatever class, which would hide the failure, or a commit that was made.
    """
    with suppress(Exception):
        storage.delete(paths)


def table_path(path: str) -> str:
    """The path unchanged, if it stays inside the table. Raises `UnsafePath`.

    >>> table_path("day=1/part-0.parquet")
    'day=1/part-0.parquet'
    """
    if re.search(_UNSAFE, path):
        raise UnsafePath(f'The path "{path}" leads out of its table, or is not a plain relative path.')
    return path


def unsafe_paths(paths: pa.StringArray) -> list[str]:
    """The paths that `table_path` refuses."""
    if len(paths) <= _FEW:
        return [path for path in paths.to_pylist() if re.search(_UNSAFE, path)]
    found: list[str] = paths.filter(pc.match_substring_regex(paths, _UNSAFE)).to_pylist()
    return found
