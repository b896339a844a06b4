"""`Table`: a folder of Parquet with its index, and the verbs of its life; and the ways to get one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from zskip import sidecar
from zskip.errors import InvalidOption, TableExists
from zskip.sidecar import Index, Snapshot, Storage
from zskip.writer import WriteOptions, changes, open_source

__all__ = ["Table", "open", "write"]

_MODES = ("error", "append", "overwrite")


def write(
    source: Any,
    path: str | os.PathLike[str],
    *,
    by: str | Sequence[str] = (),
    layout: str = "auto",
    files: int | None = None,
    rows_per_file: int | None = None,
    file_size: int | str | None = None,
    row_group_rows: int = 122_880,
    compression: str = "zstd",
    weights: Mapping[str, float] | Sequence[float] | None = None,
    workload: Sequence[str] | None = None,
    partition_by: str | Sequence[str] = (),
    mode: str = "error",
    memory_limit: int | str | None = None,
    temp_directory: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """Lay out the rows of a source as a table at a path or URL, and return it.

    ``source``: anything with an Arrow stream (pyarrow, pandas, polars, DuckDB relations), a dataset, or paths, globs,
    folders and URLs of Parquet, CSV or JSON. ``by``: the columns that queries filter on, the most important first.
    ``files``, ``rows_per_file`` or ``file_size`` ("128MB" by default) says how large the files are.
    ``weights``: how often each column is asked for; ``workload``: predicates that stand for the queries to come.
    ``mode``: what to do where a table is already: "error", "append" or "overwrite".
    ``memory_limit``: by default half of what is free; larger inputs go through spill files in ``temp_directory``.

    Raises `TableExists`, `InvalidOption`, `UnknownColumn`, `NotOrderable`, `SchemaError`, `NoParquet`, `CorruptFile`.
    After an error nothing is left behind.
    """
    if mode not in _MODES:
        raise InvalidOption(f'mode is "error", "append" or "overwrite", not {mode!r}.')
    options = WriteOptions(
        by=by,
        layout=layout,
        files=files,
        rows_per_file=rows_per_file,
        file_size=file_size,
        row_group_rows=row_group_rows,
        compression=compression,
        weights=weights,
        workload=workload,
        partition_by=partition_by,
        memory_limit=memory_limit,
        temp_directory=temp_directory,
        threads=threads,
        seed=seed,
        progress=progress,
    )
    storage = sidecar.open_storage(path, storage_options)
    base = sidecar.load(storage) if sidecar.latest_version(storage) else None
    if base is not None and mode == "error":
        raise TableExists(f'There is a table at {storage.uri} already. Say mode="append" or mode="overwrite".')
    rows = open_source(source, storage_options)
    if base is not None and mode == "append":
        return Table(storage, changes.append(storage, base, rows, options)[0])
    return Table(storage, changes.create(storage, base, rows, options))


def open(
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    as_of: datetime | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """The table at a path or URL: its newest version, or an older one by number or by time.

    ``as_of``: a time, in UTC where it names no zone. Raises `TableNotFound`.
    """
    storage = sidecar.open_storage(path, storage_options)
    moment = datetime.fromisoformat(as_of) if isinstance(as_of, str) else as_of
    return Table(storage, sidecar.load(storage, version, moment))


class Table:
    """A table at one of its versions. A verb that changes the table moves it to the version that it made."""

    def __init__(self, storage: Storage, snapshot: Snapshot) -> None:
        self._storage = storage
        self._index = Index(storage, snapshot)

    def __repr__(self) -> str:
        totals = self.snapshot.totals
        return f"<zskip table {self.uri}, version {self.version}: {totals.files} files, {totals.rows} rows>"

    @property
    def storage(self) -> Storage:
        """Where the table lies."""
        return self._storage

    @property
    def index(self) -> Index:
        """What plans read: the statistics of this version."""
        return self._index

    @property
    def snapshot(self) -> Snapshot:
        """This version as a value."""
        return self._index.snapshot

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table's rows."""
        return self.snapshot.schema.arrow

    @property
    def version(self) -> int:
        """The number of this version; the first is 1."""
        return self.snapshot.version

    @property
    def uri(self) -> str:
        """The table's address."""
        return self._storage.uri
