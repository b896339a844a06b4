"""Lets pyiceberg read files through zskip's `Storage`, with the same credentials. Importing it needs pyiceberg."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from zskip.errors import UnsupportedFormat
from zskip.table_formats.iceberg_metadata import path_in

if TYPE_CHECKING:
    from zskip.storage.storage import Storage


class StorageIO(FileIO):
    """Read-only access to the files below a table's folder."""

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
