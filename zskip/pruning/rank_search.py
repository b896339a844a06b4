"""`RankIndex`: the ranks of the bounds of units among sorted cuts, of which there may be ten or a hundred thousand.

Numbers are searched by numpy. Strings are searched as numbers too: by the eight bytes that follow the common prefix of
most cuts. Only bounds that share these bytes with a cut are compared as strings.

    cuts     key-0001  key-0007  key-0012…    prefix  key-00
    words          01        07        12     a bound key-0009 has rank 2: no string is compared
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from zskip.language.intervals.spans import Bools, Keys

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

FEW = 8
"""The number of cuts up to which all bounds are compared with each cut."""

LONG = 1024
"""The most bytes of the prefix, and the length of a cut in bytes above which cuts are truncated for comparisons."""

_KEPT = np.array([0, *(2**64 - 2 ** (64 - 8 * length) for length in range(1, 9))], np.uint64)
"""For each length, a mask of the first bytes of a word of eight bytes."""


class RankIndex:
    """Distinct ascending cuts, with a search for the number of them that are at most as large as a bound.

    >>> RankIndex(np.array([3, 5, 8])).at_most(np.array([2, 3, 7, 9])).tolist()
    [0, 1, 2, 3]
    """

    def __init__(self, cuts: Keys) -> None:
        self.cuts = cuts

    def __len__(self) -> int:
        return len(self.cuts)

    def at_most(self, bounds: Keys) -> Ints | npt.NDArray[np.uint8]:
        """For each bound, the number of cuts <= it. A null bound is above every cut."""
        if len(self) <= FEW:
            return _one_by_one(self.cuts, bounds)
        if isinstance(self.cuts, np.ndarray):
            return np.asarray(np.searchsorted(self.cuts, bounds, side="right"))
        return self._words.at_most(bounds)

    @cached_property
    def _words(self) -> TextCuts:
        return TextCuts.of(self.cuts)


def _one_by_one(cuts: Keys, bounds: Keys) -> npt.NDArray[np.uint8]:
    """The ranks, as bytes: a plan of a million files is bound by memory access, and 64 bits take 8 times as much."""
    found = np.full(len(bounds), len(cuts), np.uint8)
    for cut in cuts:
        if isinstance(cuts, np.ndarray):
            below = bounds < cut
        else:
            below = np.asarray(pc.fill_null(pc.less(bounds, cut), False).to_numpy(zero_copy_only=False), bool)
        found -= below.view(np.uint8)
    return found


def _bisected(cuts: Keys, bounds: Keys, low: Ints, high: Ints) -> Ints:
    """The number of cuts <= each bound, which is known to be from ``low`` to ``high``; both arrays are overwritten.

    This is a binary search for all bounds at once: each step halves the interval of every bound not yet found.
    """
    units = np.flatnonzero(low < high)
    if isinstance(cuts, pa.Array) and len(units):
        cuts = _shortened(cuts, bounds)
    while len(units):
        first, last = low[units], high[units]
        middle = (first + last) >> 1
        if isinstance(cuts, np.ndarray):
            at_least = cuts.take(middle) <= bounds.take(units)
        else:
            searched = bounds if len(units) == len(bounds) else bounds.take(pa.array(units))
            not_below = pc.greater_equal(searched, cuts.take(pa.array(middle)))
            at_least = np.asarray(pc.fill_null(not_below, True).to_numpy(zero_copy_only=False))
        first, last = np.where(at_least, middle + 1, first), np.where(at_least, last, middle)
        low[units], high[units] = first, last
        units = units[first < last]
    return low


def _shortened(cuts: pa.BinaryArray, bounds: pa.BinaryArray) -> pa.BinaryArray:
    """The cuts, truncated to one byte more than the longest bound, which keeps their order relative to the bounds.

    A step of the search copies a cut for each bound, which would be gigabytes for a string of a megabyte.
    """
    longest = _longest(cuts)
    room = max(LONG, 1 + _longest(bounds)) if longest > LONG else longest
    return cuts if longest <= room else pc.binary_slice(cuts, 0, room)


def _longest(texts: pa.BinaryArray) -> int:
    return int(pc.max(pc.binary_length(texts)).as_py() or 0)


@dataclass(frozen=True, slots=True, eq=False)
class TextCuts:
    """Sorted strings, with the eight bytes of each after the prefix that most of them share, as a number.

    ``words``: the distinct numbers, ascending. ``first[i]``: the number of cuts before the first one of the i-th word.
    Cuts before ``first[0]`` and from ``first[-1]`` on do not begin with the prefix.
    """

    cuts: pa.BinaryArray
    prefix: bytes
    words: Words
    first: Ints

    @staticmethod
    def of(cuts: pa.BinaryArray) -> TextCuts:
        """From distinct ascending cuts."""
        prefix = _common_prefix(cuts[len(cuts) // 4].as_py(), cuts[len(cuts) * 3 // 4].as_py())[:LONG]
        below, above = _outside_prefix(cuts, prefix)
        start, end = int(below.sum()), len(cuts) - int(above.sum())
        words = _words(cuts[start:end], len(prefix))
        new = np.append(True, words[1:] != words[:-1])
        return TextCuts(cuts, prefix, words[new], start + np.append(np.flatnonzero(new), end - start))

    def at_most(self, bounds: pa.BinaryArray) -> Ints:
        """For each bound, the number of cuts <= it."""
        below, above = _outside_prefix(bounds, self.prefix)
        if bounds.null_count:
            above |= np.asarray(bounds.is_null().to_numpy(zero_copy_only=False))
            below &= ~above
        words = _words(bounds, len(self.prefix))
        rank = np.searchsorted(self.words, words, side="right")
        last = np.maximum(rank - 1, 0)
        # Strings with the same word may be in either order.
        same = (self.words.take(last) == words) & (rank > 0)
        low, high = self.first.take(np.where(same, last, rank)), self.first.take(rank)
        low[below], high[below] = 0, self.first[0]
        low[above], high[above] = self.first[-1], len(self.cuts)
        return _bisected(self.cuts, bounds, low, high)


def _common_prefix(first: bytes, last: bytes) -> bytes:
    """The common prefix of two strings, and so of all strings between them."""
    pairs = enumerate(zip(first, last, strict=False))
    length = next((at for at, (one, other) in pairs if one != other), min(len(first), len(last)))
    return first[:length]


def _outside_prefix(values: pa.BinaryArray, prefix: bytes) -> tuple[Bools, Bools]:
    """Which values are below, and which above, all strings that begin with a prefix."""
    below, above = np.zeros(len(values), bool), np.zeros(len(values), bool)
    for at in range(0, len(prefix), 8):
        word = int.from_bytes(prefix[at : at + 8].ljust(8, b"\0"))
        found = _words(values, at) & _KEPT[min(8, len(prefix) - at)]
        open_ = ~(below | above)
        below |= open_ & (found < word)
        above |= open_ & (found > word)
    return below, above


def _words(values: pa.BinaryArray, at: int) -> Words:
    """Eight bytes of each value from a position on, padded with zeros, as a number of the same order."""
    if not len(values):
        return np.zeros(0, np.uint64)
    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    if data is None or offsets[0] == offsets[-1]:
        return np.zeros(len(values), np.uint64)
    text = np.frombuffer(data, np.uint8, offsets[-1] - offsets[0], offsets[0])
    windows = np.ndarray(len(text) + 1, ">u8", np.append(text, np.zeros(8, np.uint8)), strides=(1,))
    offsets -= offsets[0]
    starts = np.minimum(offsets[:-1] + at, offsets[1:])
    return windows[starts].astype(np.uint64) & _KEPT.take(np.minimum(offsets[1:] - starts, 8))
