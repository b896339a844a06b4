"""A table's files in an object store, as DuckDB reads them: one ranged request for each range that it asks for.

The index knows each file's name and size, so opening a file costs no listing and no request of its own. A statement
opens a file several times, and reads its footer each time, or all of a small file: the ends of files are kept.
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

__all__ = ["KnownFile", "register_storage"]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class KnownFile(NamedTuple):
    """What the index knows of a file. ``size``: bytes · ``modified``: nanoseconds since the epoch, if known."""

    size: int
    modified: int | None


_LARGEST_END, _ENDS_BYTES = 1 << 20, 1 << 25

# By protocol and path: connections share what is known of a table's files.
_FILES: dict[str, dict[str, KnownFile]] = {}


def register_storage(con: duckdb.DuckDBPyConnection, storage: Storage, files: Mapping[str, KnownFile]) -> str:
    """Make files of a remote table readable on a connection; the prefix that their paths take there.

    The prefix is the table's own, so that it meets neither another table's server or credentials nor another
    library's file system. Registering again adds to the files that are known.
    """
    protocol = f"zskip-{xxhash.xxh64_hexdigest(storage.identity.encode())}"
    known = _FILES.setdefault(protocol, {})
    known.update(files)
    if not con.filesystem_is_registered(protocol):
        con.register_filesystem(_TableFiles(protocol, storage, known))
    return f"{protocol}://"


class _Ends:
    """The last bytes of files, from the first byte that was read; the least recently used files are dropped."""

    def __init__(self) -> None:
        self._kept: LRUCache[tuple[str, KnownFile], bytes] = LRUCache(_ENDS_BYTES, getsizeof=len)
        self._lock = threading.Lock()

    def read(self, file: tuple[str, KnownFile], at: int, length: int) -> bytes | None:
        """A range of a file, if it is kept."""
        with self._lock:
            data = self._kept.get(file, b"")
        begin = at - (file[1].size - len(data))
        return data[begin : begin + length] if begin >= 0 else None

    def keep(self, file: tuple[str, KnownFile], at: int, data: bytes) -> None:
        """A range that reaches the end of its file, or what is kept of it; other ranges are not kept."""
        with self._lock:
            kept = self._kept.get(file, b"")
            reaches = file[1].size - len(kept) == at + len(data)
            # Without a time, a file cannot be told from the one that replaces it.
            if file[1].modified is None or not reaches or len(kept) + len(data) > _LARGEST_END:
                return
            self._kept[file] = data + kept


_ENDS: dict[str, _Ends] = {}


class _TableFiles(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec is untyped
    """The read-only verbs that DuckDB calls."""

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
        """The path itself, brackets around wildcards taken off: planned files are named one by one."""
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
        # DuckDB's cache of ranges compares this instant: a file that was replaced is read anew.
        return _EPOCH + datetime.timedelta(microseconds=(self._files[self._path(path)].modified or 0) // 1000)

    def open(self, path: str, mode: str = "rb", **_: Any) -> io.RawIOBase:
        plain = self._path(path)
        return _RangedFile(self._storage, plain, self._files[plain], self._ends)


class _RangedFile(io.RawIOBase):
    """A file of known size; each read is one ranged request.

    DuckDB's threads share a file, each of them says where it reads and then reads: every thread has a place of its own.
    """

    def __init__(self, storage: Storage, path: str, known: KnownFile, ends: _Ends) -> None:
        super().__init__()
        self._storage = storage
        self._path = path
        self._known = known
        self._size = known.size
        self._ends = ends
        self._places = threading.local()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return getattr(self._places, "at", 0)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at: int = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        self._places.at = at
        return at

    def read(self, size: int = -1) -> bytes:
        at = self.tell()
        length = self._size - at if size < 0 else min(size, self._size - at)
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
        self._places.at = at + len(data)
        return data
