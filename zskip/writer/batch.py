"""`Batch`: the rows of an upsert, in parts that fit in memory; and `Pieces`: rows that wait in memory or are spilled.

    rows ──▶ hash of the key ──▶ pieces ──▶ parts: each has all rows of its keys, so it is matched with the table alone

A batch that fits in memory is a single part, and nothing is spilled (the hash join of GRACE, Kitsuregawa 1983).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.errors import naming
from zskip.writer.key_match import key_hashes, require_no_null
from zskip.writer.row_source import RowSource
from zskip.writer.scatter import FILE_NUMBER, SpillFolders, popped, spill_options, split
from zskip.writer.storable import trimmed

_HASHED = 256  # groups of keys, of which a part takes as many as fit


class Pieces:
    """Rows under numbers, in memory or in a spill file. They can be read repeatedly, by any thread.

    ``schema``: of rows under a number that has none · ``folder``: for the spill file; None keeps all rows in memory
    """

    def __init__(self, schema: pa.Schema, folder: str | None) -> None:
        self.rows = 0
        self._schema = schema
        self._path = None if folder is None else os.path.join(folder, "pieces.arrows")
        self._options: pa.ipc.IpcWriteOptions | None = None
        self._pieces: dict[int, list[pa.Table | tuple[int, int]]] = {}
        self._end = 0

    def add(self, number: int, rows: pa.Table) -> None:
        """Add rows under a number, after those that are there. By one thread at a time."""
        piece: pa.Table | tuple[int, int] = rows
        if self._path is not None:
            piece = self._spilled(self._path, trimmed(rows))
        self.rows += rows.num_rows
        self._pieces.setdefault(number, []).append(piece)

    def of(self, numbers: Sequence[int]) -> pa.Table:
        """The rows under some numbers."""
        pieces = [piece for number in numbers for piece in self._pieces.get(number, [])]
        return pa.concat_tables([self._read(piece) for piece in pieces] or [t.empty_table(self._schema)])

    def each(self) -> Iterator[pa.Table]:
        """All pieces, one by one."""
        return (self._read(piece) for pieces in self._pieces.values() for piece in pieces)

    def _spilled(self, path: str, rows: pa.Table) -> tuple[int, int]:
        """Where the rows begin in the spill file, and their length there: each piece is a stream of its own."""
        self._options = self._options or spill_options(rows)
        with pa.BufferOutputStream() as target:
            with pa.ipc.new_stream(target, rows.schema, options=self._options) as writer:
                writer.write_table(rows)
            written = target.getvalue()
        with naming(path), open(path, "ab") as file:
            file.write(written)
        start, self._end = self._end, self._end + len(written)
        return start, len(written)

    def _read(self, piece: pa.Table | tuple[int, int]) -> pa.Table:
        if self._path is None or isinstance(piece, pa.Table):
            return piece
        start, length = piece
        with naming(self._path), open(self._path, "rb") as file:
            file.seek(start)
            with pa.ipc.open_stream(file.read(length), options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
                return reader.read_all()


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of an upsert. ``schema``: as given · ``numbers``: of the pieces of each part"""

    schema: pa.Schema
    pieces: Pieces
    numbers: tuple[tuple[int, ...], ...]
    is_spilled: bool

    @staticmethod
    def of(source: RowSource, on: Sequence[str], most_bytes: int, folders: SpillFolders) -> Batch:
        """Read a source. ``on``: the key columns · ``most_bytes``: of a part. Raises `InvalidOption` for a NULL key."""
        tables = _without_null(source, on)
        held, size = [], 0
        for table in tables:
            held.append(table)
            size += table.nbytes
            if size > most_bytes:
                break
        else:
            pieces = Pieces(source.schema, None)
            for table in held:
                pieces.add(0, table)
            return Batch(source.schema, pieces, ((0,),), False)
        pieces = Pieces(source.schema, folders.make())
        sizes = np.zeros(_HASHED, np.int64)
        for table in chain(popped(held), tables):
            group = (key_hashes(table, on) % _HASHED).astype(np.int64)
            for number, rows in split(table, group, np.arange(_HASHED), 1):
                pieces.add(number, rows.drop_columns([FILE_NUMBER]))
                sizes[number] += rows.nbytes
            pa.default_memory_pool().release_unused()  # else the allocator keeps several times what is alive
        numbers, size = [[0]], int(sizes[0])
        for number in range(1, _HASHED):
            size += int(sizes[number])
            if size > most_bytes:
                numbers.append([])
                size = int(sizes[number])
            numbers[-1].append(number)
        return Batch(source.schema, pieces, tuple(map(tuple, numbers)), True)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.pieces.rows

    def parts(self) -> Iterator[pa.Table]:
        """The rows, part by part. All rows of a key are in the same part."""
        return map(self.pieces.of, self.numbers)


def _without_null(source: RowSource, on: Sequence[str]) -> Iterator[pa.Table]:
    first = 0
    for part in source.parts(None):
        rows = part()
        require_no_null(rows, on, first)
        first += rows.num_rows
        yield rows
