"""Make a stream repeatable by keeping its rows in memory or in a spill file; and measure the free memory."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa

from zskip.errors import naming
from zskip.writer.row_source import RowSource, of_parts, of_streams


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
            return _spooled(
                source.schema, itertools.chain(_popped(tables), (part() for part in parts)), folders, report
            )
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


def _popped(tables: list[pa.Table]) -> Iterator[pa.Table]:
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
