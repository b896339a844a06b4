"""Scatter and gather: rows are distributed part by part to buckets, and each bucket is then written as a run of files.

Buckets are in memory, or in spill files (Arrow IPC) if the rows exceed the memory limit. Both contain the same pieces
in the same order, so a table's files do not depend on the limit. Spill files are compressed (LZ4) if that makes them
much smaller, as it does for long strings but hardly for rows in their narrow forms (`compact_rows`).

DuckDB's partitioned COPY would be slower: it takes 3.5 s of processor time to scatter 3 million rows of TPC-H's
lineitem, and 1.1 s to read them back, together as long as the whole write here.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

import numpy as np
import pyarrow as pa

from zskip.errors import naming
from zskip.writer.row_source import RowSource, of_parts, of_streams
from zskip.writer.storable import trimmed

FILE_NUMBER = "\x00file"
"""The name of the column that holds each row's file number between scatter and gather."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_parallel(
    pool: ThreadPoolExecutor, function: Callable[[_Item], _Result], items: Iterable[_Item], window: int
) -> Iterator[_Result]:
    """The results of a function for each item, in order; at most ``window`` of them run or wait to be consumed."""
    pending: list[Future[_Result]] = []
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= window:
                yield pending.pop(0).result()
        while pending:
            yield pending.pop(0).result()
    finally:
        for future in pending:
            future.cancel()


def split(rows: pa.Table, files: np.ndarray, bucket_of: np.ndarray, takes: int) -> list[tuple[int, pa.Table]]:
    """The rows of each bucket, sorted by file number, which is added as the last column.

    The rows of a file keep their order. ``files``: the file number of each row · ``bucket_of``: the bucket of each file
    · ``takes``: the greatest number of calls of Arrow's take; rows taken together share memory, which is freed only
    when the last of their buckets is written.
    """
    if not rows.num_rows:
        return []
    order = np.argsort(files.astype(_sort_type(len(bucket_of) - 1)), kind="stable")
    numbers = files[order].astype(np.int16 if len(bucket_of) < 1 << 15 else np.int32)
    count = int(bucket_of[-1]) + 1
    ends = np.searchsorted(numbers, np.searchsorted(bucket_of, np.arange(count + 1)).astype(numbers.dtype))
    rows = rows.combine_chunks()
    pieces = []
    for first in range(0, count, -(-count // takes)):
        last = min(first + -(-count // takes), count)
        chosen = slice(ends[first], ends[last])
        taken = rows.take(pa.array(order[chosen])).append_column(FILE_NUMBER, pa.array(numbers[chosen]))
        for bucket in range(first, last):
            length = int(ends[bucket + 1] - ends[bucket])
            if length:
                pieces.append((bucket, taken.slice(int(ends[bucket] - ends[first]), length)))
    return pieces


def _sort_type(most: int) -> type[np.unsignedinteger]:
    # numpy sorts 16-bit numbers by radix, in linear time.
    return np.uint16 if most < 1 << 16 else np.uint32


class MemoryBuckets:
    """Buckets in memory. `take` returns a bucket's rows and releases them."""

    takes = 16
    """Several, so that the memory of some buckets can be freed before the others are written."""

    def __init__(self, count: int) -> None:
        self._pieces: list[list[pa.Table]] = [[] for _ in range(count)]

    def add(self, bucket: int, rows: pa.Table) -> None:
        self._pieces[bucket].append(rows)

    def finish(self) -> None:
        """To be called once after the last `add`."""

    def rows(self, bucket: int) -> int:
        return sum(piece.num_rows for piece in self._pieces[bucket])

    def bytes(self, bucket: int) -> int:
        return sum(piece.nbytes for piece in self._pieces[bucket])

    def take(self, bucket: int) -> list[pa.RecordBatch]:
        pieces, self._pieces[bucket] = self._pieces[bucket], []
        return [batch for piece in pieces for batch in piece.to_batches()]

    def __len__(self) -> int:
        return len(self._pieces)


class SpilledBuckets:
    """Buckets in spill files of one folder."""

    takes = 1
    """One, since pieces are written at once and keep no memory."""

    def __init__(self, count: int, folder: str) -> None:
        self._folder = folder
        self._paths: list[list[str]] = [[] for _ in range(count)]
        self._writers: list[tuple[pa.Schema, pa.RecordBatchStreamWriter] | None] = [None] * count
        self._rows, self._bytes = [0] * count, [0] * count
        self._options: pa.ipc.IpcWriteOptions | None = None

    def add(self, bucket: int, rows: pa.Table) -> None:
        # Write at once: a piece is a slice, and would keep its whole part in memory.
        self._rows[bucket] += rows.num_rows
        rows = trimmed(rows, rows.num_rows)
        self._bytes[bucket] += rows.nbytes
        with naming(self._paths[bucket][-1] if self._paths[bucket] else self._folder):
            self._writer(bucket, rows).write_table(rows)

    def _writer(self, bucket: int, rows: pa.Table) -> pa.RecordBatchStreamWriter:
        """The bucket's open stream, or a new one if the rows have another schema than those before."""
        current = self._writers[bucket]
        if current is not None and current[0].equals(rows.schema):
            return current[1]
        if current is not None:
            current[1].close()
        self._options = self._options or spill_options(rows)
        path = os.path.join(self._folder, f"{bucket:06d}-{len(self._paths[bucket])}.arrows")
        self._paths[bucket].append(path)
        writer = pa.ipc.new_stream(path, rows.schema, options=self._options)
        self._writers[bucket] = rows.schema, writer
        return writer

    def finish(self) -> None:
        """To be called once after the last `add`."""
        for bucket, current in enumerate(self._writers):
            if current is not None:
                with naming(self._paths[bucket][-1]):
                    current[1].close()

    def rows(self, bucket: int) -> int:
        return self._rows[bucket]

    def bytes(self, bucket: int) -> int:
        """The size of a bucket in memory."""
        return self._bytes[bucket]

    def take(self, bucket: int) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        for path in self._paths[bucket]:
            with (
                naming(path),
                pa.OSFile(path) as file,
                pa.ipc.open_stream(file, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader,
            ):
                batches += reader
            os.unlink(path)
        return batches

    def __len__(self) -> int:
        return len(self._writers)


def spill_options(rows: pa.Table) -> pa.ipc.IpcWriteOptions:
    """The options for spilling rows like these: compressed if that halves the size of the first ones."""
    sizes = []
    for compression in (None, "lz4"):
        options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
        with pa.BufferOutputStream() as target, pa.ipc.new_stream(target, rows.schema, options=options) as writer:
            writer.write_table(rows.slice(0, _TESTED_ROWS))
            sizes.append(target.tell())
    compress = sizes[1] <= _WORTHWHILE * sizes[0]
    return pa.ipc.IpcWriteOptions(compression="lz4" if compress else None, use_threads=False)


_TESTED_ROWS, _WORTHWHILE = 16_384, 0.5


# Make a stream repeatable by keeping its rows in memory or in a spill file; and measure the free memory.


class SpillFolders:
    """Creates folders for spill files below ``parent``, and removes them on success, error and interrupt."""

    def __init__(self, parent: str | os.PathLike[str] | None) -> None:
        self._parent = parent
        self._cleanup = ExitStack()

    def __enter__(self) -> SpillFolders:
        return self

    def __exit__(self, *error: object) -> None:
        self._cleanup.close()

    def make(self) -> str:
        """Create a folder, and return its path."""
        folder = tempfile.mkdtemp(prefix="zskip-spill-", dir=self._parent)
        self._cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder


def repeatable(source: RowSource, most_bytes: int, folders: SpillFolders, report: Callable[[int], None]) -> RowSource:
    """A repeatable source of the same rows: in memory up to ``most_bytes``, else in a spill file.

    ``report``: called with the number of rows read so far.
    """
    if source.repeatable:
        return source
    parts = source.parts(None)
    tables: list[pa.Table] = []
    size = rows = 0
    for part in parts:
        table = part()
        tables.append(table)
        size, rows = size + table.nbytes, rows + table.num_rows
        report(rows)
        if size > most_bytes:
            return _spooled(source.schema, itertools.chain(popped(tables), (part() for part in parts)), folders, report)
    return of_parts(source.schema, tables)


def _spooled(
    schema: pa.Schema, tables: Iterator[pa.Table], folders: SpillFolders, report: Callable[[int], None]
) -> RowSource:
    path = os.path.join(folders.make(), "rows.arrows")
    rows = 0
    with pa.ipc.new_stream(path, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for table in tables:
            with naming(path):
                writer.write_table(table.combine_chunks())
            rows += table.num_rows
            report(rows)

    def read(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        fields = None if columns is None else [schema.get_field_index(name) for name in columns]
        with (
            naming(path),
            pa.OSFile(path) as file,
            pa.ipc.open_stream(file, options=pa.ipc.IpcReadOptions(included_fields=fields)) as reader,
        ):
            yield from reader

    return of_streams(schema, read, rows)


def popped(tables: list[pa.Table]) -> Iterator[pa.Table]:
    """The tables in turn. Each is removed from the list, so it can be freed once the next one is taken."""
    tables.reverse()
    while tables:
        yield tables.pop()


def free_memory() -> int:
    """The bytes of free memory, within the limit of the control group."""
    import psutil

    free = int(psutil.virtual_memory().available)
    try:
        with open("/sys/fs/cgroup/memory.max") as most, open("/sys/fs/cgroup/memory.current") as used:
            return max(0, min(free, int(most.read()) - int(used.read())))
    except (OSError, ValueError):
        return free  # there is no control group, or it sets no limit
