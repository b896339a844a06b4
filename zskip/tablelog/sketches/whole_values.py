"""The sketch ``values``: which files hold a value, for ``=``, ``IN`` and ``IS NOT DISTINCT FROM``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import Column
from zskip.errors import InvalidOption
from zskip.tablelog.sketches.hashing import Hashes, can_hash, hashes
from zskip.tablelog.sketches.pairs import RUN_KEY_BITS

__all__ = ["check_column", "key_bits", "keys"]

_LEAST_BITS, _BITS_BEYOND_ENTRIES = 33, 8


def check_column(column: Column) -> None:
    """Raise `InvalidOption` unless hashes decide the equality of the column's values."""
    # Durations are refused since DuckDB cannot compare them: it has no cast from their Parquet column to an interval.
    if not can_hash(column.type) or t.is_duration(column.type):
        raise InvalidOption(
            f'The column "{column.path}" is {column.type}, which the sketch "values" cannot keep: name a column of '
            "numbers, strings, binary, dates, times or booleans, or a field of a struct."
        )


def key_bits(entries: int) -> int:
    """The bits of a hash to store, such that at most one look-up in 256 returns a false positive.

    >>> key_bits(20_000_000), key_bits(2_000_000_000)
    (33, 39)
    """
    return min(RUN_KEY_BITS, max(_LEAST_BITS, entries.bit_length() + _BITS_BEYOND_ENTRIES))


def keys(values: pa.ChunkedArray) -> Hashes:
    """The hashes of the distinct values, ascending."""
    found = [np.zeros(0, np.uint64)]
    for chunk in values.chunks:
        if t.is_dictionary(chunk.type):
            # The dictionary may hold values that no row has.
            chunk = chunk.dictionary.take(chunk.indices.unique().drop_null())
        found.append(hashes(chunk))
    return distinct(np.concatenate(found))


def distinct(keys: Hashes) -> Hashes:
    """The distinct keys, ascending."""
    ordered = np.sort(keys)
    kept = np.ones(len(ordered), bool)
    kept[1:] = ordered[1:] != ordered[:-1]
    return ordered[kept]
