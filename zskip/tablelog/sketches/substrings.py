"""The sketch ``substrings``: which files may hold a string that contains a text, by the trigrams of its bytes.

A to Z are folded to a to z, so that one set of trigrams serves LIKE and ILIKE. Four non-ASCII characters have an ASCII
letter as their other case (the Kelvin sign, the long s, dotted I and dotless i): a string with one of them is indexed
twice, as it is and with that letter.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.core import types as t
from zskip.core.late_loading import pc
from zskip.core.schema import Column
from zskip.errors import InvalidOption
from zskip.language.tree import Contains, In
from zskip.tablelog.sketches.hashing import Hashes
from zskip.tablelog.sketches.pairs import LookUp, Numbers, Segment

_BITS = 24
_ASCII_OF_OTHER_CASE = {"\u212a": "k", "\u017f": "s", "\u0130": "i", "\u0131": "i"}
_FOLDED = np.arange(256, dtype=np.uint8)
_FOLDED[ord("A") : ord("Z") + 1] += 32


def check_column(column: Column) -> None:
    """Raise `InvalidOption` unless the column holds strings."""
    if not t.is_string(column.type):
        raise InvalidOption(
            f'The column "{column.path}" is {column.type}: the sketch "substrings" is for strings. '
            'For look-ups by whole values there is the sketch "values".'
        )


def key_bits(entries: int) -> int:
    """All bits of a trigram, whatever the number of entries."""
    return _BITS


def keys(values: pa.ChunkedArray) -> Hashes:
    """The distinct trigrams of the strings, each left-aligned in 64 bits, ascending."""
    seen = np.zeros(1 << _BITS, bool)
    for chunk in values.chunks:
        if t.is_dictionary(chunk.type):
            chunk = chunk.dictionary.take(chunk.indices.unique().drop_null())
        strings = chunk.drop_null()
        _mark(strings, seen)
        for character in _ASCII_OF_OTHER_CASE:
            matches = strings.filter(pc.match_substring(strings, character))
            if len(matches):
                for other_case, letter in _ASCII_OF_OTHER_CASE.items():
                    matches = pc.replace_substring(matches, other_case, letter)
                _mark(matches, seen)
    return _aligned(np.flatnonzero(seen))


def _mark(strings: pa.StringArray, seen: NDArray[np.bool_]) -> None:
    """Set ``seen`` for the trigrams of these strings, none of which is NULL."""
    _, offset_buffer, data_buffer = strings.buffers()
    if not len(strings) or data_buffer is None:
        return
    offsets = np.frombuffer(offset_buffer, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    data = _FOLDED[np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]].astype(np.int32)
    if len(data) < 3:
        return
    found = data[:-2] << 16 | data[1:-1] << 8 | data[2:]
    in_one_string = np.ones(len(data), bool)
    ends = (offsets[1:] - offsets[0]).astype(np.int64)
    for back in (1, 2):
        # No trigram of a string begins at its last two bytes.
        in_one_string[ends[ends >= back] - back] = False
    seen[found[in_one_string[:-2]]] = True


def _aligned(found: NDArray[np.integer]) -> Hashes:
    return found.astype(np.uint64) << np.uint64(64 - _BITS)


def trigrams(text: str, *, any_case: bool = False) -> Hashes:
    """The trigrams that every string containing this text has; ``any_case``: containing it in any case.

    >>> len(trigrams("abcd")), len(trigrams("ab")), len(trigrams("abcdé", any_case=True))
    (2, 0, 2)
    """
    data = _FOLDED[np.frombuffer(text.encode(), np.uint8)].astype(np.int64)
    if len(data) < 3:
        return np.zeros(0, np.uint64)
    found = data[:-2] << 16 | data[1:-1] << 8 | data[2:]
    if any_case:
        beyond = data >= 128
        found = found[~(beyond[:-2] | beyond[1:-1] | beyond[2:])]
    return _aligned(np.unique(found))


def look_up(condition: In | Contains) -> LookUp | None:
    """Asks for the files that hold all trigrams of a text; None for a text that has none."""
    if not isinstance(condition, Contains):
        return None
    wanted = trigrams(condition.text, any_case=condition.folded)

    def files(segment: Segment, among: Numbers | None) -> Numbers:
        _, found = segment.find(wanted)
        return np.flatnonzero(np.bincount(found, minlength=len(segment.coverage)) == len(wanted))

    return files if len(wanted) else None
