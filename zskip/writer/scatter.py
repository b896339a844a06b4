"""Scatter and gather: rows are distributed part by part to buckets, and each bucket is then written as a run of files.

Buckets are `Pieces`, in memory, or in spill files (Arrow IPC) if the rows exceed the memory limit. Both contain the
same pieces in the same order, so a table's files do not depend on the limit. Spill files are compressed (LZ4) if that
makes them much smaller, as it does for long strings but hardly for rows in their narrow forms (`compact_rows`).

DuckDB's partitioned COPY would be slower: it takes 3.5 s of processor time to scatter 3 million rows of TPC-H's
lineitem, and 1.1 s to read them back, together as long as the whole write here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from zskip.errors import naming
from zskip.writer.row_source import RowSource, of_tables
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


class Pieces:
    """Rows under numbers, in memory or in a spill file for each number. Any thread may read them.

    ``folder``: for the spill files; None keeps all rows in memory
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._kept: dict[int, list[pa.Table]] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self._options: pa.ipc.IpcWriteOptions | None = None

    @property
    def takes(self) -> int:
        """As in `split`: several, so that some rows can be freed before others; one where none stay in memory."""
        return 1 if self.is_spilled else 16

    @property
    def is_spilled(self) -> bool:
        """Whether the rows are in spill files."""
        return self._folder is not None

    def __iter__(self) -> Iterator[int]:
        """The numbers that have rows, ascending."""
        return iter(sorted(self._sizes))

    @property
    def row_count(self) -> int:
        return sum(rows for rows, _ in self._sizes.values())

    def rows(self, number: int) -> int:
        return self._sizes.get(number, (0, 0))[0]

    def bytes(self, number: int) -> int:
        """The size of the rows under a number in memory."""
        return self._sizes.get(number, (0, 0))[1]

    def add(self, number: int, rows: pa.Table) -> None:
        """Add rows under a number, after those that are there. By one thread at a time."""
        if not self.is_spilled:
            self._kept.setdefault(number, []).append(rows)
        else:  # at once, as a stream of its own: a piece is a slice, and would keep its whole part in memory
            rows = trimmed(rows, rows.num_rows)
            self._options = self._options or spill_options(rows)
            path = self._path(number)
            with (
                naming(path),
                pa.OSFile(path, "ab") as file,
                pa.ipc.new_stream(file, rows.schema, options=self._options) as writer,
            ):
                writer.write_table(rows)
        self._sizes[number] = self.rows(number) + rows.num_rows, self.bytes(number) + rows.nbytes

    def of(self, number: int) -> Iterator[pa.Table]:
        """The pieces under a number, one by one, in their order. They can be read repeatedly."""
        yield from self._kept.get(number, ())
        if self.is_spilled and number in self._sizes:
            path = self._path(number)
            options = pa.ipc.IpcReadOptions(use_threads=False)
            with naming(path), pa.OSFile(path) as file:
                while file.tell() < file.size():
                    with pa.ipc.open_stream(file, options=options) as reader:
                        yield reader.read_all()

    def take(self, number: int) -> list[pa.Table]:
        """The pieces under a number, which are released here."""
        found = list(self.of(number))
        self._kept.pop(number, None)
        if self.is_spilled and found:
            os.unlink(self._path(number))
        return found

    def _path(self, number: int) -> str:
        return os.path.join(self._folder or "", f"{number:06d}.arrows")


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


# Make a stream repeatable by keeping its rows in memory or in a spill file.


MakeFolder: TypeAlias = Callable[[], str]
"""Makes a folder for spill files, and returns its path."""


@contextmanager
def spill_folders(parent: str | os.PathLike[str] | None) -> Iterator[MakeFolder]:
    """Makes folders for spill files below ``parent``, and removes them on success, error and interrupt."""
    with ExitStack() as cleanup:

        def make() -> str:
            folder = tempfile.mkdtemp(prefix="zskip-spill-", dir=parent)
            cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder

        yield make


def repeatable(source: RowSource, most_bytes: int, make_folder: MakeFolder, report: Callable[[int], None]) -> RowSource:
    """A repeatable source of the same rows: in memory up to ``most_bytes``, else in a spill file.

    ``report``: called with the number of rows read so far.
    """
    if source.repeatable:
        return source
    pieces = Pieces()
    for part in source.parts(None):
        pieces.add(0, part())
        if not pieces.is_spilled and pieces.bytes(0) > most_bytes:
            kept, pieces = pieces, Pieces(make_folder())
            for table in popped(kept.take(0)):
                pieces.add(0, table)
        report(pieces.rows(0))
    return of_tables(source.schema, partial(pieces.of, 0), pieces.rows(0))


def popped(tables: list[pa.Table]) -> Iterator[pa.Table]:
    """The tables in turn. Each is removed from the list, so it can be freed once the next one is taken."""
    tables.reverse()
    while tables:
        yield tables.pop()
