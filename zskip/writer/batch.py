"""`Batch`: the rows of an upsert, in parts that fit in memory.

    rows ──▶ hash of the key ──▶ pieces ──▶ parts: each has all rows of its keys, so it is matched with the table alone

A batch that fits in memory is a single part, and nothing is spilled (the hash join of GRACE, Kitsuregawa 1983).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.writer.key_match import key_hashes, require_no_null
from zskip.writer.row_source import RowSource
from zskip.writer.scatter import FILE_NUMBER, MakeFolder, Pieces, popped, split

_HASHED = 256  # groups of keys, of which a part takes as many as fit


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of an upsert. ``schema``: as given · ``numbers``: of the pieces of each part"""

    schema: pa.Schema
    pieces: Pieces
    numbers: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(source: RowSource, on: Sequence[str], most_bytes: int, make_folder: MakeFolder) -> Batch:
        """Read a source. ``on``: the key columns · ``most_bytes``: of a part. Raises `InvalidOption` for a NULL key."""
        tables = _without_null(source, on)
        held, size = [], 0
        for table in tables:
            held.append(table)
            size += table.nbytes
            if size > most_bytes:
                break
        else:
            pieces = Pieces()
            for table in held:
                pieces.add(0, table)
            return Batch(source.schema, pieces, ((0,),))
        pieces = Pieces(make_folder())
        for table in chain(popped(held), tables):
            group = (key_hashes(table, on) % _HASHED).astype(np.int64)
            for number, rows in split(table, group, np.arange(_HASHED), pieces.takes):
                pieces.add(number, rows.drop_columns([FILE_NUMBER]))
            pa.default_memory_pool().release_unused()  # else the allocator keeps several times what is alive
        numbers, size = [[0]], pieces.bytes(0)
        for number in range(1, _HASHED):
            size += pieces.bytes(number)
            if size > most_bytes:
                numbers.append([])
                size = pieces.bytes(number)
            numbers[-1].append(number)
        return Batch(source.schema, pieces, tuple(map(tuple, numbers)))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.pieces.row_count

    def parts(self) -> Iterator[pa.Table]:
        """The rows, part by part. All rows of a key are in the same part."""
        empty = t.empty_table(self.schema)
        for numbers in self.numbers:
            yield pa.concat_tables([*chain.from_iterable(map(self.pieces.of, numbers))] or [empty])


def _without_null(source: RowSource, on: Sequence[str]) -> Iterator[pa.Table]:
    first = 0
    for part in source.parts(None):
        rows = part()
        require_no_null(rows, on, first)
        first += rows.num_rows
        yield rows
