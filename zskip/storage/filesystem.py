"""An fsspec file system over a `Storage`, through which DuckDB and Arrow read tables in object stores."""

from __future__ import annotations

from typing import Any

import fsspec
from fsspec.spec import AbstractBufferedFile

from zskip.storage.storage import Storage


class StorageFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec is untyped
    """A read-only file system. Paths are the addresses that `Storage.uri_of` returns, with or without the scheme."""

    protocol = "zskip"
    cachable = False

    def __init__(self, storage: Storage, **options: Any) -> None:
        super().__init__(**options)
        self._storage = storage
        self.protocol = storage.uri.partition("://")[0]
        self._root = self._bare(storage.uri)

    @staticmethod
    def _bare(path: str) -> str:
        return path.partition("://")[2].strip("/") if "://" in path else path.strip("/")

    def _strip_protocol(self, path: str | list[str]) -> str | list[str]:
        return [self._bare(one) for one in path] if isinstance(path, list) else self._bare(path)

    def _relative(self, path: str) -> str:
        """The path relative to the storage. Raises `FileNotFoundError` for a path outside it."""
        bare = self._bare(path)
        if bare == self._root:
            return ""
        if not bare.startswith(f"{self._root}/"):
            raise FileNotFoundError(f"{path} is not in the table {self._storage.uri}.")
        return bare[len(self._root) + 1 :]

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        relative = self._relative(path)
        listing = self._storage.list(relative)
        above = f"{relative}/" if relative else ""
        entries: dict[str, dict[str, Any]] = {}
        for name, size in zip(listing.path.to_pylist(), listing.size.to_pylist(), strict=True):
            head, slash, _ = name[len(above) :].partition("/")
            full = f"{self._root}/{above}{head}"
            entries[full] = {"name": full, "size": 0 if slash else size, "type": "directory" if slash else "file"}
        if not entries and relative:
            return [self.info(path)] if detail else [self._bare(path)]
        return list(entries.values()) if detail else list(entries)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        relative = self._relative(path)
        listing = self._storage.size_and_modified([relative]) if relative else None
        if listing is None or listing.size[0].as_py() is None:
            if not relative or len(self._storage.list(relative)):
                return {"name": self._bare(path), "size": 0, "type": "directory"}
            raise FileNotFoundError(f"{path} does not exist.")
        return {
            "name": self._bare(path),
            "size": listing.size[0].as_py(),
            "type": "file",
            "mtime": listing.modified[0].as_py(),
            "ETag": listing.etag[0].as_py(),
        }

    def modified(self, path: str) -> Any:
        import datetime

        return datetime.datetime.fromtimestamp((self.info(path)["mtime"] or 0) / 1e9, datetime.UTC)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> AbstractBufferedFile:
        if mode != "rb":
            raise PermissionError(f"{path} cannot be opened for writing: this file system is read-only.")
        options.setdefault("cache_type", "readahead")
        return _File(self, path, mode=mode, block_size=block_size or 1 << 20, **options)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """At most ``length`` bytes of a file from a non-negative ``start``."""
        return self._storage.read_range(self._relative(path), start, length)


class _File(AbstractBufferedFile):  # type: ignore[misc]  # fsspec is untyped
    def _fetch_range(self, start: int, end: int) -> bytes:
        # Not `cat_file`, which would open the file again.
        return self.fs.read_range(self.path, start, end - start)  # type: ignore[no-any-return]
