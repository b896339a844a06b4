"""`LocalStorage`: a table on a local disk. A link or a rename publishes a complete file; fsync makes it durable."""

from __future__ import annotations

import errno
import io
import itertools
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from zskip.errors import FilesRemoved, TableError, UnsafePath, UnsupportedStore, naming
from zskip.storage.storage import Listing, table_path, unsafe_paths

if TYPE_CHECKING:
    import fsspec
    from _typeshed import ReadableBuffer

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}

_BUFFER_BYTES = 1 << 20
_FEW_SYNCS, _SYNCS_AT_ONCE = 4, 32


class LocalStorage:
    """A folder on a local disk; it need not exist before the first file is written.

    ``durable``: whether a written file must survive a power failure. A cache need not, since it can be rebuilt.
    """

    def __init__(self, root: str | Path, *, durable: bool = True) -> None:
        self.uri: str = absolute(os.path.expanduser(root))
        self.identity = self.uri
        self.durable = durable

    @cached_property
    def local(self) -> Path:
        return Path(self.uri)

    def __repr__(self) -> str:
        return f"LocalStorage({self.uri!r})"

    def __reduce__(self) -> tuple[Callable[..., LocalStorage], tuple[Path]]:
        return partial(LocalStorage, durable=self.durable), (self.local,)

    def uri_of(self, path: str) -> str:
        return f"{self.uri.rstrip('/')}/{table_path(path)}"

    def parent(self) -> LocalStorage | None:
        root = Path(self._real_root)  # the parent of a link's target: another format's log may lie there
        return None if root.parent == root else LocalStorage(root.parent)

    @cached_property
    def _real_root(self) -> str:
        return os.path.realpath(self.uri)

    def _locate(self, path: str) -> str:
        """The absolute path of a file in the table. Raises `UnsafePath` if a link leads out of the table."""
        located = self.uri_of(path)
        self._refuse_outside(path, located)
        return located

    def _refuse_outside(self, path: str, located: str) -> None:
        """Raise `UnsafePath` if a link leads from the table to a place outside it."""
        if os.name != "nt" and not self._has_link(path):  # Windows has other kinds of links, which realpath follows
            return
        if os.path.commonpath([os.path.realpath(located), self._real_root]) != self._real_root:
            raise UnsafePath(f'The path "{path}" of the table {self.uri} is a link to a place outside the table.')

    def _has_link(self, path: str) -> bool:
        prefix = self.uri.rstrip("/")
        for part in path.split("/"):
            prefix = f"{prefix}/{part}"
            if os.path.islink(prefix):
                return True
        return False

    def require_inside(self, paths: pa.StringArray) -> None:
        for path in unsafe_paths(paths):
            table_path(path)
        folders: set[str] = set()
        for path in paths.to_pylist():
            folder, _, _ = path.rpartition("/")
            if folder not in folders:
                folders.add(folder)
                if folder:
                    self._refuse_outside(folder, self.uri_of(folder))
            located = f"{self.uri}/{path}"
            if os.path.islink(located):
                self._refuse_outside(path, located)

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._locate(path))

    def list(self, prefix: str = "", *, hidden: bool = True) -> Listing:
        paths: list[str] = []
        sizes: list[int] = []
        modified: list[int] = []  # separate lists: a tuple per file would cost time in Python's garbage collector
        status_changed: list[int] = []
        self.require_folder()
        if prefix:
            self._locate(prefix.rstrip("/"))
        pending = [prefix.rstrip("/")]  # without links that lead out of the table
        while pending:
            folder = pending.pop()
            before = f"{folder}/" if folder else ""
            with suppress(FileNotFoundError), _entries(f"{self.uri}/{folder}") as entries:
                for entry in entries:
                    name = entry.name
                    if not hidden and name[0] in "._" and "=" not in name:
                        continue
                    if entry.is_symlink():
                        self._refuse_outside(before + name, f"{self.uri}/{before}{name}")
                        self._refuse_loop(before + name)
                    if entry.is_dir():
                        pending.append(before + name)
                        continue
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue  # deleted since the folder was read
                    if not stat.S_ISREG(status.st_mode):
                        continue  # reading a pipe or a device may block forever
                    paths.append(before + name)
                    sizes.append(status.st_size)
                    modified.append(status.st_mtime_ns)
                    status_changed.append(status.st_ctime_ns)
        try:
            return Listing.of_columns(paths, sizes, modified, status_changed)
        except UnicodeEncodeError as error:
            raise UnsafePath(
                f"The name {os.fsencode(error.object)!r} of a file in {self.uri} is not UTF-8. Rename the file."
            ) from error

    def _refuse_loop(self, link: str) -> None:
        """Raise `UnsafePath` if a link leads to a folder above it: listing that folder would never end."""
        parents = itertools.accumulate(("", *link.split("/")[:-1]), os.path.join)
        if self._real_path(link) in map(self._real_path, parents):
            raise UnsafePath(f'The path "{link}" of the table {self.uri} is a link to a folder above it. Remove it.')

    def _real_path(self, path: str) -> str:
        return os.path.realpath(os.path.join(self.uri, path))

    def names(self, folder: str, *, after: str = "") -> Sequence[str]:
        found: list[str] = []
        above, _, below = after.partition("/")
        try:
            with _entries(self._locate(folder)) as entries:
                for entry in entries:
                    name = entry.name
                    inner: Sequence[str] = ()
                    if entry.is_dir(follow_symlinks=False) and name >= above:
                        inner = self.names(f"{folder}/{name}", after=below if name == above else "")
                        found += [f"{name}/{each}" for each in inner]
                    if not inner and name > after:
                        found.append(name)  # also a folder where a file should be
        except (FileNotFoundError, NotADirectoryError):  # the latter if the storage's address is a file
            return []
        return found

    def size_and_modified(self, paths: Sequence[str]) -> Listing:
        return Listing.of([self._status(path) for path in paths])

    def _status(self, path: str) -> tuple[str, int | None, int | None, None]:
        try:
            status = os.stat(self.uri_of(path))
        except (FileNotFoundError, NotADirectoryError):
            return path, None, None, None
        if not stat.S_ISREG(status.st_mode):  # a folder has taken the file's place
            return path, None, None, None
        return path, status.st_size, status.st_mtime_ns, None

    def read(self, path: str) -> bytes:
        located = self._locate(path)
        with naming(located), _open_regular(located) as file:
            return file.read()

    def read_range(self, path: str, start: int, length: int) -> bytes:
        located = self._locate(path)
        with naming(located), _open_regular(located) as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size + start) if start < 0 else start
            file.seek(start)
            # Python allocates ``length`` bytes at once; a damaged snapshot may request more than fits in memory.
            return file.read(min(length, max(0, size - start)))

    def put(self, path: str, data: bytes) -> None:
        with self.open_writer(path) as file:
            file.write(data)
            file.flush()
            with naming(self.uri_of(path)):
                self._sync_file(file)
        self._sync_folders([path])

    def put_once(self, path: str, data: bytes) -> None:
        with self.open_writer(path) as file:
            file.write(data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        target = self._locate(path)
        temporary = _temporary(target)
        try:
            with _naming_folder(os.path.dirname(target), _WRITING):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with naming(temporary), open(temporary, "xb") as file:
                    file.write(data)
                    file.flush()
                    self._sync_file(file)
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            except FileNotFoundError as error:
                raise _removed_by_vacuum(target) from error
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise UnsupportedStore(
                        f"The file system of {self.uri} cannot create a file only if it is absent (no hard links), "
                        "so a commit could lose another writer's. Keep the table on a POSIX disk or an object store."
                    ) from error
                raise
        finally:
            _remove(temporary)
        self._sync_folders([path])
        return True

    def require_folder(self) -> None:
        """Raise `TableError` if the table's address exists and is not a folder."""
        if os.path.lexists(self.local) and not self.local.is_dir():
            raise TableError(
                f"{self.uri} is not a folder, and a table is one. Give the folder, or write the file into a new one."
            )

    def open_writer(self, path: str) -> BinaryIO:
        target = self._locate(path)
        temporary = _temporary(target)
        with _naming_folder(os.path.dirname(target), _WRITING):
            try:
                file = _Named(temporary, target)
            except (FileNotFoundError, NotADirectoryError):
                self.require_folder()
                os.makedirs(os.path.dirname(target), exist_ok=True)
                file = _Named(temporary, target)
        return _Unpublished(file, temporary, target)

    def make_durable(self, paths: Sequence[str]) -> None:
        if not paths or not self.durable:
            return
        _sync_all([*map(self.uri_of, paths)])
        self._sync_folders(paths)

    def _sync_file(self, file: BinaryIO) -> None:
        if self.durable:
            os.fsync(file.fileno())

    def _sync_folders(self, paths: Sequence[str]) -> None:
        """Make the names of files durable: fsync their folders."""
        # Windows cannot open a folder for fsync; NTFS journals names itself.
        if self.durable and os.name != "nt":
            _sync_all(self._folders_of(paths))

    def _folders_of(self, paths: Sequence[str]) -> Sequence[str]:
        """Every folder from the files up to the table's parent, deepest first."""
        inner: set[str] = set()
        for path in paths:
            while (path := path.rpartition("/")[0]) and path not in inner:
                inner.add(path)
        deepest_first = sorted(inner, key=len, reverse=True)  # a folder's path is longer than that of the one above it
        return [*(f"{self.uri}/{folder}" for folder in deepest_first), self.uri, str(self.local.parent)]

    def move(self, source: str, target: str) -> None:
        located = self._locate(target)
        os.makedirs(os.path.dirname(located), exist_ok=True)
        os.replace(self._locate(source), located)

    def delete(self, paths: Sequence[str]) -> None:
        failed: OSError | None = None
        for path in paths:
            try:
                os.unlink(self._locate(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def remove_empty(self, folder: str) -> None:
        for inner, _, _ in os.walk(self._locate(folder) if folder else self.uri, topdown=False):
            with suppress(OSError):  # a folder that is not empty is in use
                os.rmdir(inner)

    def filesystem(self) -> fsspec.AbstractFileSystem:
        from fsspec.implementations.local import LocalFileSystem

        return LocalFileSystem()


_WRITING = (
    "A table and its index are written into this folder: give this user the right to do so, or write the rows to "
    "another folder by zskip.write"
)


@contextmanager
def _naming_folder(path: str, advice: str) -> Iterator[None]:
    """Name the folder that is closed to this user, this one or the nearest one above that it sees, with advice."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        while not os.path.lexists(path):
            path = os.path.dirname(path)
        raise OSError(error.errno, f"{error.strerror}. {advice}", path.rstrip("/") or path) from error


class _Named(io.FileIO):
    """A new file whose errors name the file that it will become."""

    def __init__(self, temporary: str, target: str) -> None:
        super().__init__(temporary, "xb")
        self._target = target

    def write(self, data: ReadableBuffer, /) -> int:
        with naming(self._target):
            return super().write(data)


class _Unpublished(io.BufferedWriter):
    """A file under a temporary name in its folder; `close` renames it, an exception inside ``with`` removes it."""

    def __init__(self, file: _Named, temporary: str, target: str) -> None:
        super().__init__(file, _BUFFER_BYTES)
        self._temporary, self._target = temporary, target

    def close(self) -> None:
        if self.closed:
            return
        try:
            super().close()
            try:
                os.replace(self._temporary, self._target)
            except FileNotFoundError as error:
                raise _removed_by_vacuum(self._target) from error
        except BaseException:
            _remove(self._temporary)
            raise

    def discard(self) -> None:
        """Close without publishing, and remove the temporary file."""
        if not self.closed:
            self.raw.close()  # so that the buffer is not flushed
            _remove(self._temporary)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        with suppress(ValueError):  # an interrupt came before the file was there
            self.discard()  # a file whose writer was never closed is incomplete


def absolute(path: str | os.PathLike[str]) -> str:
    """A path from the root of the disk. As for the system, ``link/..`` is the folder above the link's target.

    Raises `TableError` for a relative path if the working directory is gone.
    """
    if ".." in os.fspath(path) and ".." in (parts := Path(path).parts) and os.name != "nt":
        # Windows itself drops the part before "..".
        last = len(parts) - parts[::-1].index("..")
        path = os.path.join(os.path.realpath(os.path.join(*parts[:last])), *parts[last:])
    try:
        return os.path.abspath(path)
    except FileNotFoundError as error:
        raise TableError(f'"{path}" lies in the working directory, which is gone. Give the whole path.') from error


@contextmanager
def _entries(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The entries of a folder, read through a descriptor: `stat` of an entry then resolves one name, not a path."""
    if os.scandir not in os.supports_fd:
        with os.scandir(folder) as entries:
            yield entries
        return
    with _naming_folder(folder, "Give this user the right to read this folder"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


def _open_regular(located: str) -> BinaryIO:
    """Open a file for reading. Raises `TableError` for a folder, a pipe or a device, whose reading may never end."""

    def opener(path: str, flags: int) -> int:
        descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise TableError(f"{path} is not a regular file. Remove it.")

    return open(located, "rb", opener=opener)


def _temporary(target: str) -> str:
    """A unique hidden name in the folder of a file, at most about 140 characters long."""
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name[:100]}.{secrets.token_hex(8)}.tmp")


def _removed_by_vacuum(target: str) -> FilesRemoved:
    return FilesRemoved(
        f"{target} was removed while it was written, by a vacuum: this change took longer than the vacuum's time. "
        "Make it again, and give vacuum a longer older_than=."
    )


def _remove(temporary: str) -> None:
    # A later vacuum removes the file if that fails now. An error here must not hide an earlier one.
    with suppress(OSError):
        os.unlink(temporary)


def _sync_all(paths: Sequence[str]) -> None:
    """Make files or folders durable, many at once: the disk writes their journal entries together."""
    if len(paths) < _FEW_SYNCS:
        for path in paths:
            _sync(path)
        return

    def sync_share(number: int) -> None:
        for path in paths[number::_SYNCS_AT_ONCE]:
            _sync(path)

    with ThreadPoolExecutor(_SYNCS_AT_ONCE, thread_name_prefix="zskip-sync") as pool:
        for _ in pool.map(sync_share, range(min(_SYNCS_AT_ONCE, len(paths)))):
            pass


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
