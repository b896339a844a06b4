"""A file system for DuckDB over a table's files in an object store: one ranged request for each range that it reads.

The index knows each file's name and size, so opening a file needs no request. A statement opens a file several times
and reads its footer each time, or all of a small file, so the ends of files are cached.
"""

from __future__ import annotations

import datetime
import io
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import fsspec
import xxhash
from cachetools import LRUCache

from zskip.errors import TableNotFound

if TYPE_CHECKING:
    import duckdb

    from zskip.storage import Storage

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class KnownFile(NamedTuple):
    """A file's properties in the index. ``size``: bytes · ``modified``: nanoseconds since the epoch, if known."""

    size: int
    modified: int | None


# In bytes: the longest cached end of a file, and the size of the cache.
_LARGEST_END, _CACHE_BYTES = 1 << 20, 1 << 25

# By protocol and path; shared between connections.
_FILES: dict[str, dict[str, KnownFile]] = {}


def register_storage(con: duckdb.DuckDBPyConnection, storage: Storage, files: Mapping[str, KnownFile]) -> str:
    """Make files of a remote table readable on a connection, and return the prefix of their paths there.

    Each table has its own prefix, so tables with different servers or credentials, or another library's file system, do
    not interfere. Further calls add files.
    """
    protocol = f"zskip-{xxhash.xxh64_hexdigest(storage.identity.encode())}"
    known = _FILES.setdefault(protocol, {})
    known.update(files)
    if not con.filesystem_is_registered(protocol):
        con.register_filesystem(_TableFiles(protocol, storage, known))
    return f"{protocol}://"


class _Ends:
    """A cache of the last bytes of files, which drops the least recently used files."""

    def __init__(self) -> None:
        self._kept: LRUCache[tuple[str, KnownFile], bytes] = LRUCache(_CACHE_BYTES, getsizeof=len)
        self._lock = threading.Lock()

    def read(self, file: tuple[str, KnownFile], at: int, length: int) -> bytes | None:
        """A range of a file; None if it is not cached."""
        with self._lock:
            data = self._kept.get(file, b"")
        begin = at - (file[1].size - len(data))
        return data[begin : begin + length] if begin >= 0 else None

    def keep(self, file: tuple[str, KnownFile], at: int, data: bytes) -> None:
        """Cache a range that ends where the file, or the cached end of the file, does; ignore any other range."""
        with self._lock:
            kept = self._kept.get(file, b"")
            reaches = file[1].size - len(kept) == at + len(data)
            # Without a modification time, a file cannot be distinguished from its replacement.
            if file[1].modified is None or not reaches or len(kept) + len(data) > _LARGEST_END:
                return
            self._kept[file] = data + kept


_ENDS: dict[str, _Ends] = {}


class _TableFiles(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec is untyped
    """The read-only methods that DuckDB calls."""

    cachable = False

    def __init__(self, protocol: str, storage: Storage, files: dict[str, KnownFile]) -> None:
        super().__init__()
        self.protocol = protocol
        self._storage = storage
        self._files = files
        self._ends = _ENDS.setdefault(protocol, _Ends())

    def _path(self, path: str) -> str:
        return path.removeprefix(f"{self.protocol}://")

    def glob(self, path: str, **_: Any) -> list[str]:
        """The path itself, with wildcards unescaped: a scan lists each of its files."""
        plain = self._path(path)
        for wild in "[*?":
            plain = plain.replace(f"[{wild}]", wild)
        return [plain]

    def exists(self, path: str, **_: Any) -> bool:
        return self._path(path) in self._files

    def isfile(self, path: str) -> bool:
        return self.exists(path)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        plain = self._path(path)
        return {"name": plain, "size": self._files[plain].size, "type": "file"}

    def modified(self, path: str) -> datetime.datetime:
        # DuckDB's cache compares this time to detect a replaced file.
        return _EPOCH + datetime.timedelta(microseconds=(self._files[self._path(path)].modified or 0) // 1000)

    def open(self, path: str, mode: str = "rb", **_: Any) -> io.RawIOBase:
        plain = self._path(path)
        return _RangedFile(self._storage, plain, self._files[plain], self._ends)


class _RangedFile(io.RawIOBase):
    """A file of known size; each read is one ranged request.

    DuckDB's threads share one object and call ``seek`` and then ``read``, so each thread has its own position.
    """

    def __init__(self, storage: Storage, path: str, known: KnownFile, ends: _Ends) -> None:
        super().__init__()
        self._storage = storage
        self._path = path
        self._known = known
        self._ends = ends
        self._position = threading.local()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return getattr(self._position, "offset", 0)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at: int = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._known.size}[whence]
        self._position.offset = at
        return at

    def read(self, size: int = -1) -> bytes:
        at = self.tell()
        rest = self._known.size - at
        length = rest if size < 0 else min(size, rest)
        data = self._ends.read((self._path, self._known), at, length) if length > 0 else b""
        try:
            if data is None:
                data = self._storage.read_range(self._path, at, length)
                self._ends.keep((self._path, self._known), at, data)
        except FileNotFoundError as error:
            raise TableNotFound(
                f"{self._storage.uri_of(self._path)} has gone since it was planned. Open the table again with "
                f'zskip.open("{self._storage.uri}"), and plan anew.'
            ) from error
        self._position.offset = at + len(data)
        return data
