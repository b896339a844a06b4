"""`SKETCHES`: the registry of the kinds of sketches, and the parser of the option ``sketches=``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import Column, Schema
from zskip.errors import InvalidOption, nearest
from zskip.language.tree import Contains, In
from zskip.tablelog.sketches import substrings
from zskip.tablelog.sketches.hashing import Hashes, can_hash, hashes
from zskip.tablelog.sketches.pairs import RUN_KEY_BITS, LookUp, Numbers, Segment
from zskip.tablelog.snapshot import SketchName


@dataclass(frozen=True, slots=True)
class Sketch:
    """A kind of sketch.

    ``keys(values)``: the distinct 64-bit keys of a file's values, ascending · ``key_bits(entries)``: the leading bits
    of each key that a segment of this many entries stores · ``check_column``: raises `InvalidOption` for a column of an
    unsupported type · ``look_up(condition)``: how to ask segments about a condition on the column; None if they cannot
    tell · ``key``: what a key stands for, in messages.
    """

    keys: Callable[[pa.ChunkedArray], Hashes]
    key_bits: Callable[[int], int]
    check_column: Callable[[Column], None]
    look_up: Callable[[In | Contains], LookUp | None]
    key: str


# The sketch ``values``: which files hold a value, for ``=``, ``IN`` and ``IS NOT DISTINCT FROM``.

_LEAST_BITS, _BITS_BEYOND_ENTRIES = 33, 8


def _check_values(column: Column) -> None:
    """Raise `InvalidOption` unless hashes decide the equality of the column's values."""
    # Durations are refused since DuckDB cannot compare them: it has no cast from their Parquet column to an interval.
    if not can_hash(column.type) or t.is_duration(column.type):
        raise InvalidOption(
            f'The column "{column.path}" is {column.type}, which the sketch "values" cannot keep: name a column of '
            "numbers, strings, binary, dates, times or booleans, or a field of a struct."
        )


def _value_key_bits(entries: int) -> int:
    """The bits of a hash to store, such that at most one look-up in 256 returns a false positive.

    >>> _value_key_bits(20_000_000), _value_key_bits(2_000_000_000)
    (33, 39)
    """
    return min(RUN_KEY_BITS, max(_LEAST_BITS, entries.bit_length() + _BITS_BEYOND_ENTRIES))


def _value_keys(values: pa.ChunkedArray) -> Hashes:
    """The hashes of the distinct values, ascending."""
    found = [np.zeros(0, np.uint64)]
    for chunk in values.chunks:
        if t.is_dictionary(chunk.type):
            # The dictionary may hold values that no row has.
            chunk = chunk.dictionary.take(chunk.indices.unique().drop_null())
        found.append(hashes(chunk))
    return _distinct(np.concatenate(found))


def _distinct(keys: Hashes) -> Hashes:
    """The distinct keys, ascending."""
    ordered = np.sort(keys)
    kept = np.ones(len(ordered), bool)
    kept[1:] = ordered[1:] != ordered[:-1]
    return ordered[kept]


def _value_look_up(condition: In | Contains) -> LookUp | None:
    """Asks for the files that may hold one of the values of an IN."""
    if not isinstance(condition, In) or not can_hash(condition.values.type):
        return None
    keys = hashes(condition.values)

    def files(segment: Segment, among: Numbers | None) -> Numbers:
        return segment.find(keys)[1] if among is None else np.flatnonzero(segment.files_holding(keys, among))

    return files


SKETCHES = {
    "values": Sketch(_value_keys, _value_key_bits, _check_values, _value_look_up, "value"),
    "substrings": Sketch(
        substrings.keys, substrings.key_bits, substrings.check_column, substrings.look_up, "piece of text"
    ),
}


def named_sketches(given: object, schema: Schema) -> tuple[SketchName, ...]:
    """Parse the option ``sketches=``, such as ``{"uid": "values", "url": ["values", "substrings"]}``.

    Raises `InvalidOption` and `UnknownColumn`.
    """
    if not isinstance(given, Mapping) or not all(isinstance(column, str) for column in given):
        raise InvalidOption(f'sketches= maps columns to kinds of sketches, as {{"uid": "values"}}, not {given!r}.')
    names = []
    for column, kinds in given.items():
        # A stored path takes precedence: `a.b` is the struct field even if a column has that name.
        found = schema.columns.get(column) or schema.column(column)
        if not isinstance(kinds, Sequence):
            raise InvalidOption(
                f'The sketches of "{column}" are {", ".join(SKETCHES)}, or a list of these: not {kinds!r}.'
            )
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            if kind not in SKETCHES:
                raise InvalidOption(f"There is no sketch {kind!r}.{nearest(str(kind), SKETCHES)}")
            SKETCHES[kind].check_column(found)
            names.append(SketchName(found.path, kind))
    if len(set(names)) < len(names):
        raise InvalidOption(f"A sketch stands twice in sketches={given!r}.")
    return tuple(names)
