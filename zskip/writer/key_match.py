"""`Keys`: find the rows of files that have one of some keys, by a semi-join on their key columns alone.

Keys are equal as SQL's `=` says, but that NaN equals NaN, as in DuckDB and Spark: −0.0 equals 0.0, and NULL nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip.core import types as t
from zskip.engines.arrow import to_batches
from zskip.errors import SchemaMismatch, row_shown
from zskip.plan import find_survivors
from zskip.tablelog.index import Index
from zskip.tablelog.sketches.hashing import can_hash, hashes
from zskip.writer.paths import rows_of_files
from zskip.writer.scatter import in_parallel
from zskip.writer.storable import storable_rows

# A table of all integers from the least key to the greatest is used if it has at most so many entries for each key.
# Otherwise Arrow builds a hash table of the keys for each part of the rows.
_SPARSEST, _FEW_KEYS = 8, 1024
_HASH_FACTOR = 0x9E3779B97F4A7C15  # odd: no bit of the columns before is lost


@dataclass(frozen=True, slots=True)
class Keys:
    """Distinct keys, numbered from 0. ``columns``: their top-level columns, in the types of the table.

    ``distinct``: the values of each column · ``codes``: for each column, the sorted codes of the keys' beginnings up to
    it · ``number``: the number of the key with the i-th of the last codes.
    """

    columns: tuple[str, ...]
    distinct: tuple[pa.Array, ...]
    codes: tuple[NDArray[np.int64], ...]
    number: NDArray[np.int64]

    @staticmethod
    def of(rows: pa.Table, columns: Sequence[str]) -> Keys:
        """The keys of some rows, of which none is NULL. Raises `SchemaMismatch` if one occurs twice."""
        parts = [_comparable(rows.column(name)) for name in columns]
        distinct = tuple(pc.unique(values) for values in parts)
        code, codes = np.zeros(rows.num_rows, np.int64), []
        for values, known in zip(parts, distinct, strict=True):
            code = code * max(1, len(known)) + np.asarray(pc.index_in(values, value_set=known), np.int64)
            kept, code = np.unique(code, return_inverse=True)
            codes.append(kept)
        order = np.argsort(code, kind="stable")
        twice = np.flatnonzero(np.diff(code[order]) == 0)
        if len(twice):
            row = rows.select(list(columns)).slice(int(order[twice[0] + 1]), 1)
            raise SchemaMismatch(
                f"The key {row_shown(row)} occurs twice in the batch. A batch has one row for each key."
            )
        return Keys(tuple(columns), distinct, tuple(codes), order)

    def __len__(self) -> int:
        return len(self.number)

    def numbers(self, rows: pa.Table) -> NDArray[np.int64]:
        """The number of the key that each row has; -1 where it has none of them."""
        found = np.full(rows.num_rows, -1, np.int64)
        if not len(self):
            return found
        left, code = np.arange(rows.num_rows), np.zeros(rows.num_rows, np.int64)
        for name, known, kept in zip(self.columns, self.distinct, self.codes, strict=True):
            values = _comparable(rows.column(name))
            values = values if len(left) == len(values) else values.take(pa.array(left))
            place = _places(values, known)
            given = np.flatnonzero(place >= 0)
            left, code = left[given], code[given] * len(known) + place[given]
            at = np.minimum(np.searchsorted(kept, code), len(kept) - 1)
            same = kept[at] == code
            left, code = left[same], at[same]
        found[left] = self.number[code]
        return found

    def in_files(self, rows_of: FileRows, files: NDArray[np.int64], threads: int) -> dict[int, Matches]:
        """The matches in each file that has one of the keys, by ascending number of the file."""

        def found(file: int) -> Matches:
            numbers = self.numbers(rows_of(file, self.columns))
            rows = np.flatnonzero(numbers >= 0)
            return Matches(len(numbers), rows, numbers[rows])

        with ThreadPoolExecutor(threads, thread_name_prefix="zskip-keys") as pool:
            matches = zip(files.tolist(), in_parallel(pool, found, files.tolist(), 2 * threads), strict=True)
            return {file: each for file, each in matches if len(each.rows)}


@dataclass(frozen=True, slots=True)
class Matches:
    """The rows of a file of ``count`` rows that have keys: their positions, ascending, and the numbers of the keys."""

    count: int
    rows: NDArray[np.int64]
    keys: NDArray[np.int64]

    @property
    def others(self) -> pa.BooleanArray:
        """A mask of all other rows."""
        mask = np.ones(self.count, bool)
        mask[self.rows] = False
        return pa.array(mask)


class FileRows:
    """Reads the rows of a table's files one by one, with the types of ``schema``, always in the same order."""

    def __init__(self, index: Index, schema: pa.Schema) -> None:
        self._index, self._schema = index, schema
        # Only a scan resolves another format's column names, partition values and deletes.
        self._everything = None if index.source is None else find_survivors(index, None)

    def __call__(self, file: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of a file, by its number, with these top-level columns. Strings that repeat may be dictionaries."""
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        if self._everything is not None:
            scan = self._everything.narrowed(np.array([file])).scan
            rows = pa.Table.from_batches(to_batches(scan, columns), scan.schema.selected(columns))
            return storable_rows(rows, schema)
        index = self._index
        path = index.paths(np.array([file])).to_pylist()
        source = rows_of_files(index.storage, self._schema, index.snapshot.partition_by, path)
        parts = [part() for part in source.parts(columns)]
        return pa.concat_tables(parts) if parts else t.empty_table(schema)


def require_no_null(rows: pa.Table, columns: Sequence[str], first_row: int) -> None:
    """Raise `SchemaMismatch` if a key is NULL. ``first_row``: the number of the first row in its batch."""
    for name in columns:
        values = rows.column(name)
        if values.null_count:
            row = first_row + int(np.flatnonzero(np.asarray(values.is_null()))[0])
            raise SchemaMismatch(f'The key column "{name}" is NULL in row {row} of the batch. A key has a value.')


def key_hashes(rows: pa.Table, columns: Sequence[str]) -> NDArray[np.uint64]:
    """A hash of each row's key: equal keys in columns of the same types have the same. None is NULL."""
    hashed = np.zeros(rows.num_rows, np.uint64)
    for name in columns:
        values = _comparable(rows.column(name))
        if can_hash(values.type):
            hashed = hashed * np.uint64(_HASH_FACTOR) + hashes(values)
    return hashed


def _places(values: pa.Array, known: pa.Array) -> NDArray[np.int64]:
    """The place of each value among distinct ones; -1 for NULL, and for a value that is none of them."""
    if t.is_integer(known.type) and known.type != pa.uint64() and len(known):
        given = np.asarray(known.cast(pa.int64()))
        least, most = int(given.min()), int(given.max())
        if most - least < _SPARSEST * (len(given) + _FEW_KEYS):
            place = np.full(most - least + 1, -1, np.int64)
            place[given - least] = np.arange(len(given))
            filled = np.asarray(pc.fill_null(values.cast(pa.int64()), 0))
            inside = np.asarray(values.is_valid()) & (filled >= least) & (filled <= most)
            return np.where(inside, place[np.where(inside, filled, least) - least], -1)
    found = pc.index_in(values, value_set=known, skip_nulls=True)
    return np.asarray(pc.fill_null(found, -1)).astype(np.int64)


def _comparable(values: pa.ChunkedArray) -> pa.Array:
    """The values in a form in which Arrow finds equal those that SQL does."""
    whole = pa.table({"": values}).combine_chunks().column(0)
    whole = whole.chunk(0) if whole.num_chunks else pa.array([], values.type)
    if isinstance(whole.type, pa.BaseExtensionType):
        whole = whole.storage
    if t.is_dictionary(whole.type):
        whole = whole.cast(whole.type.value_type)
    if t.is_decimal(whole.type) and whole.type.bit_width < 128:
        whole = whole.cast(pa.decimal128(whole.type.precision, whole.type.scale))
    if t.is_temporal(whole.type):
        whole = whole.view(pa.int32() if whole.type.bit_width == 32 else pa.int64())
    if t.is_floating(whole.type):
        wide = whole.cast(pa.float64())
        whole = pc.if_else(pc.is_nan(wide), pa.scalar(float("nan")), pc.add(wide, 0.0))
    return whole
