"""A uniform sample from one pass over the rows: the rows whose numbers have the smallest hashes.

The choice depends only on row numbers, so the same rows in the same order give the same sample, whether they come from
a table, a stream or files. (Bottom-k sampling: Cohen and Kaplan 2007; the hash is splitmix64: Steele 2014.)
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t

_ROWS_AT_ONCE = 1 << 13
_ROWS_PER_FILE, _LEAST, LARGEST = 400, 50_000, 1_000_000
_LONGEST_TEXT = 256


def shortened(rows: pa.Table, whole: Collection[str] = ()) -> pa.Table:
    """Rows with the first characters of texts that are long on average: a layout is fitted to these.

    A sample of whole texts would take any memory, above all one of a dimension's texts, which are of many rows each.
    ``whole``: columns that are left as they are.
    """
    columns = [
        column if name in whole else pa.chunked_array([_shortened(chunk) for chunk in column.chunks], column.type)
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _shortened(values: pa.Array) -> pa.Array:
    if t.is_dictionary(values.type):
        return pa.DictionaryArray.from_arrays(
            values.indices, _shortened(values.dictionary), ordered=values.type.ordered
        )
    if not t.is_string(values.type) or values.nbytes <= _LONGEST_TEXT * len(values):
        return values
    return pc.utf8_slice_codeunits(values, 0, _LONGEST_TEXT)


def sample_size(files: int) -> int:
    """The number of rows to sample for a layout of ``files``."""
    return min(max(files * _ROWS_PER_FILE, _LEAST), LARGEST)


class RowSample:
    """A sample of at most ``size`` rows, collected part by part; it contains all rows if there are no more than that.

    >>> sample = RowSample(3, seed=0)
    >>> sample.add(pa.table({"x": list(range(100))}), first=0)
    >>> sample.rows().num_rows
    3
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self._size = size
        self._seed = seed
        self._limit = np.uint64(2**64 - 1)
        self._kept: list[pa.Table] = []
        self._hashes: list[np.ndarray] = []
        self._count = 0

    def add(self, rows: pa.Table, first: int) -> None:
        """Sample from a part of the rows, whose row numbers begin with ``first``."""
        chosen, hashes = [], []
        for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, rows.num_rows)
            hashed = _splitmix(np.arange(first + start, first + stop, dtype=np.uint64), self._seed)
            low = np.flatnonzero(hashed <= self._limit)
            chosen.append(low + start)
            hashes.append(hashed[low])
        count = sum(len(part) for part in chosen)
        if not count:
            return
        self._kept.append(rows if count == rows.num_rows else rows.take(pa.array(np.concatenate(chosen))))
        self._hashes += hashes
        self._count += count
        if self._count > 2 * self._size:
            self._shrink()

    def rows(self) -> pa.Table | None:
        """The sampled rows, in the order of their numbers; None if no row was added."""
        if self._count > self._size:
            self._shrink()
        return pa.concat_tables(self._kept).combine_chunks() if self._kept else None

    def _shrink(self) -> None:
        hashes = np.concatenate(self._hashes)
        self._limit = np.partition(hashes, self._size - 1)[self._size - 1]
        chosen = np.flatnonzero(hashes <= self._limit)
        self._kept = [pa.concat_tables(self._kept).combine_chunks().take(pa.array(chosen))]
        self._hashes = [hashes[chosen]]
        self._count = len(chosen)


def _splitmix(numbers: np.ndarray, seed: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64((int(seed) * 2 + 1) * 0x9E3779B97F4A7C15 % 2**64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)))
