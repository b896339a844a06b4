"""pyiceberg's files through a storage of zskip's: one set of credentials, whatever reads them."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from zskip.errors import UnsupportedFormat

if TYPE_CHECKING:
    from zskip.storage.storage import Storage

__all__ = ["StorageIO", "path_in"]


def path_in(storage: Storage, location: str) -> str:
    """The path in a table's folder of a file that its metadata names. Raises `UnsupportedFormat` for one outside."""
    if storage.local is not None:
        path = re.sub(r"^file:/+", "/", location)  # Hadoop writes one slash
    else:
        path = re.sub(r"^s3[an]://", "s3://", location)
    root = storage.uri.rstrip("/") + "/"
    if not path.startswith(root):
        raise UnsupportedFormat(
            f"The Iceberg table at {storage.uri} names the file {location}, which is outside of its folder, as "
            "write.data.path makes them and as a folder has that was moved. zskip reads tables that hold their "
            "own files. Move it back, or have an engine rewrite its paths (rewrite_table_path of Spark)."
        )
    return path.removeprefix(root)


class StorageIO(FileIO):
    """The files below a table's folder, to read."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage = storage

    def new_input(self, location: str) -> InputFile:
        return _Input(self._storage, location)

    def new_output(self, location: str) -> OutputFile:
        raise UnsupportedFormat(f"{location} can only be written through the catalog of its Iceberg table.")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise UnsupportedFormat(f"{location} can only be removed through the catalog of its Iceberg table.")


class _Input(InputFile):
    def __init__(self, storage: Storage, location: str) -> None:
        super().__init__(location)
        self._storage, self._path = storage, path_in(storage, location)

    def __len__(self) -> int:
        return int(self._storage.size_and_modified([self._path]).size[0].as_py())

    def exists(self) -> bool:
        return self._storage.exists(self._path)

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._storage.read(self._path))
