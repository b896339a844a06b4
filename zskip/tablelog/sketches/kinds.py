"""`SKETCHES`: the registry of the kinds of sketches, and the parser of the option ``sketches=``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from zskip.core.schema import Column, Schema
from zskip.errors import InvalidOption, nearest
from zskip.tablelog.sketches import substrings, whole_values
from zskip.tablelog.sketches.hashing import Hashes

__all__ = ["SKETCHES", "Sketch", "SketchName", "named_sketches"]


@dataclass(frozen=True, slots=True)
class Sketch:
    """A kind of sketch.

    ``keys(values)``: the distinct 64-bit keys of a file's values, ascending ·
    ``key_bits(entries)``: the leading bits of each key that a segment of this many entries stores ·
    ``check_column``: raises `InvalidOption` for a column of an unsupported type.
    """

    keys: Callable[[pa.ChunkedArray], Hashes]
    key_bits: Callable[[int], int]
    check_column: Callable[[Column], None]


SKETCHES = {
    "values": Sketch(whole_values.keys, whole_values.key_bits, whole_values.check_column),
    "substrings": Sketch(substrings.keys, substrings.key_bits, substrings.check_column),
}


@dataclass(frozen=True, slots=True, order=True)
class SketchName:
    """One sketch of a table: the path of its column, and its kind."""

    column: str
    kind: str


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
