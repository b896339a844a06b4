"""`Places`: where the bounds of units stand among sorted cuts, be they ten or a hundred thousand.

A binary search takes a step more each time that the cuts double, and each step waits for memory. Here the cuts hang in
a tree of digits (a trie; Fredkin 1960): a bound's first digits say at once how many cuts are below them, and only where
some cut begins with the same are its next digits asked, or at last the cuts themselves.

    cuts        1024  1187  3305  3306  3307  3308  3310  8800
    digit       0   1   2   3   4   5   6   7   8   9
    cuts below  0   0   2   2   7   7   7   7   7   8        2500 stands behind 2 cuts: no look at any of them
                            └ digit       0   1   2   3   4 …        3600 is asked of its next digit
                              cuts below  2   2   2   2   7 …
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from zskip.intervals.spans import Keys
from zskip.pruning.outcomes import Bools

__all__ = ["Places"]

Ints = npt.NDArray[np.int64]
Digits = npt.NDArray[np.uint64]

FEW = 8
"""Cuts that are compared one by one."""

WORTH_NUMBERS, WORTH_BYTES = 512, FEW + 1
"""Cuts from which on the tree is faster than a binary search, over numbers and over bytes."""

CROWD = 4
"""Cuts that are not parted by further digits."""

ROOM, MOST = 32, 1 << 21
"""Entries of a level: for each cut, and in all, at most."""

TREES = 4
"""Trees that are kept."""

LONG = 1024
"""Bytes of a cut from which on cuts hang in no tree, and are shortened before they are compared with many bounds."""

_KEPT = np.array([0, *(2**64 - 2 ** (64 - 8 * length) for length in range(1, 9))], np.uint64)
"""Of a word of eight bytes, those before a length."""


class Places:
    """Ascending cuts without repetition, and how many of them are at most as large as a bound.

    >>> Places(np.array([3, 5, 8])).at_most(np.array([2, 3, 7, 9])).tolist()
    [0, 1, 2, 3]
    """

    __slots__ = ("asked", "cuts")

    def __init__(self, cuts: Keys) -> None:
        self.cuts, self.asked = cuts, 0

    def __len__(self) -> int:
        return len(self.cuts)

    def at_most(self, bounds: Keys) -> Ints | npt.NDArray[np.uint8]:
        """For each bound, how many cuts are <= it. A null bound is above every cut."""
        if len(self) <= FEW:
            return _one_by_one(self.cuts, bounds)
        self.asked += len(bounds)
        numbers = isinstance(self.cuts, np.ndarray)
        # A tree costs about as much as a binary search for as many bounds as it has cuts.
        worth = len(self) >= (WORTH_NUMBERS if numbers else WORTH_BYTES) and self.asked >= len(self)
        if worth and (numbers or _longest(self.cuts) <= LONG):
            return _tree(self).at_most(bounds)
        if numbers:
            return np.asarray(np.searchsorted(self.cuts, bounds, side="right"))
        return _bisected(self.cuts, bounds, np.zeros(len(bounds), np.int64), np.full(len(bounds), len(self)))


@lru_cache(maxsize=TREES)
def _tree(places: Places) -> Tree:
    return Tree.of(places.cuts)


def _one_by_one(cuts: Keys, bounds: Keys) -> npt.NDArray[np.uint8]:
    """In bytes: planning a million files waits for memory, and eight times as much of it for 64 bits."""
    found = np.full(len(bounds), len(cuts), np.uint8)
    for cut in cuts:
        if isinstance(cuts, np.ndarray):
            below = bounds < cut
        else:
            below = np.asarray(pc.fill_null(pc.less(bounds, cut), False).to_numpy(zero_copy_only=False), bool)
        found -= below.view(np.uint8)
    return found


def _bisected(cuts: Keys, bounds: Keys, low: Ints, high: Ints) -> Ints:
    """How many cuts are <= each bound, where that is known to be from ``low`` to ``high``; both are overwritten.

    A binary search whose every step asks for all open units at once.
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
            open_ = bounds if len(units) == len(bounds) else bounds.take(pa.array(units))
            asked = pc.greater_equal(open_, cuts.take(pa.array(middle)))
            at_least = np.asarray(pc.fill_null(asked, True).to_numpy(zero_copy_only=False))
        first, last = np.where(at_least, middle + 1, first), np.where(at_least, last, middle)
        low[units], high[units] = first, last
        units = units[first < last]
    return low


def _shortened(cuts: pa.BinaryArray, bounds: pa.BinaryArray) -> pa.BinaryArray:
    """The cuts, none longer than the longest bound and a byte: each stands to each bound as it did.

    A step takes a cut for each bound, which for a text of a megabyte would be gigabytes. What is cut off is behind a
    byte that no bound has, so that no comparison reaches it.
    """
    longest = _longest(cuts)
    room = max(LONG, 1 + _longest(bounds)) if longest > LONG else longest
    return cuts if longest <= room else pc.binary_slice(cuts, 0, room)


def _longest(texts: pa.BinaryArray) -> int:
    return int(pc.max(pc.binary_length(texts)).as_py() or 0)


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Nodes that part their cuts by the same digits; the entry of a node's digits is ``node << width | digits``.

    ``below[entry]``: how many cuts are before the entry, of all cuts. ``size[entry]``: how many are in it; where they
    are many, ``~node`` of the next level, which parts them.
    """

    shift: int
    width: int
    below: Ints
    size: Ints

    @staticmethod
    def entries(shift: int, width: int, node: Ints | None, digits: Digits) -> Ints:
        """The entry of each one's digits in its node; None where there is but one node."""
        own = (digits >> np.uint64(shift)).view(np.int64)
        return own if node is None else node << width | own & (1 << width) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """``digits``: those of the cuts, ascending, each once; ``first[i]``: how many cuts are before those of the i-th.

    Digits never fall as values grow. Those of different numbers differ; those of texts are the eight bytes behind
    ``prefix``, with which most cuts begin: those from ``first[0]`` to ``first[-1]``.
    """

    cuts: Keys
    prefix: bytes
    digits: Digits
    first: Ints
    levels: tuple[Level, ...]

    @staticmethod
    def of(cuts: Keys) -> Tree:
        """Of ascending cuts without repetition."""
        if isinstance(cuts, np.ndarray):
            ordered = _ordered(cuts)
            digits = ordered.view(np.uint64) - ordered[:1].view(np.uint64)
            return Tree(cuts, b"", digits, np.arange(len(cuts) + 1), _levels(digits, int(digits[-1]).bit_length()))
        prefix = _shared(cuts[len(cuts) // 4].as_py(), cuts[len(cuts) * 3 // 4].as_py())
        below, above = _beside(cuts, prefix)
        start, end = int(below.sum()), len(cuts) - int(above.sum())
        words = _words(cuts[start:end], len(prefix))
        new = np.append(True, words[1:] != words[:-1])
        digits, first = words[new], start + np.append(np.flatnonzero(new), end - start)
        return Tree(cuts, prefix, digits, first, _levels(digits, 64))

    def at_most(self, bounds: Keys) -> Ints:
        """For each bound, how many cuts are <= it."""
        digits, below, above = self._digits(bounds)
        outside = below | above
        low, high = self._descended(digits)
        rank = _bisected(self.digits, digits, low, np.where(outside, low, high))
        if isinstance(bounds, np.ndarray):
            rank[below] = 0
            rank[above] = len(self.cuts)
            return rank
        # Texts of the same digits may be on either side of one another.
        last = np.maximum(rank - 1, 0)
        same = (self.digits.take(last) == digits) & ~outside
        low, high = self.first.take(np.where(same, last, rank)), self.first.take(rank)
        low[below], high[below] = 0, self.first[0]
        low[above], high[above] = self.first[-1], len(self.cuts)
        return _bisected(self.cuts, bounds, low, high)

    def _descended(self, digits: Digits) -> tuple[Ints, Ints]:
        """Between which two of the tree's digits each one's place is."""
        level = self.levels[0]
        entry = level.entries(level.shift, level.width, None, digits)
        low, size = level.below.take(entry), level.size.take(entry)
        high = low + size
        units = np.flatnonzero(size < 0)
        for level in self.levels[1:]:
            entry = level.entries(level.shift, level.width, ~size[size < 0], digits.take(units))
            below, size = level.below.take(entry), level.size.take(entry)
            low[units], high[units] = below, below + size
            units = units[size < 0]
        return low, high

    def _digits(self, bounds: Keys) -> tuple[Digits, Bools, Bools]:
        """The digits of the bounds, and which are below the cuts that have any, and which above."""
        if isinstance(bounds, np.ndarray):
            ordered, ends = _ordered(bounds), _ordered(self.cuts[[0, -1]])
            digits = np.clip(ordered, *ends).view(np.uint64) - ends[:1].view(np.uint64)
            return digits, ordered < ends[0], ordered >= ends[1]
        below, above = _beside(bounds, self.prefix)
        if bounds.null_count:
            above |= np.asarray(bounds.is_null().to_numpy(zero_copy_only=False))
            below &= ~above
        return _words(bounds, len(self.prefix)), below, above


def _levels(digits: Digits, bits: int) -> tuple[Level, ...]:
    """The levels of a tree over distinct digits of so many bits."""
    levels: list[Level] = []
    numbers, node, nodes = np.arange(len(digits)), None, 1
    shift, width = bits, min(bits, max(16, (8 * len(digits)).bit_length()), MOST.bit_length() - 1)
    while True:
        shift -= width
        entry = Level.entries(shift, width, node, digits[numbers])
        size = np.bincount(entry, minlength=nodes << width)
        before = np.cumsum(size) - size
        # From the place among the cuts that this level parts to that among all.
        skipped = (numbers - np.arange(len(numbers)))[before[:: 1 << width]]
        below = before + np.repeat(skipped, 1 << width)
        crowded = size > CROWD
        nodes, further = int(crowded.sum()), min(8, shift)
        if not nodes or not shift or nodes << further > min(ROOM * len(digits), MOST):
            return (*levels, Level(shift, width, below, size))
        child = np.cumsum(crowded) - 1
        levels.append(Level(shift, width, below, np.where(crowded, ~child, size)))
        kept = crowded[entry]
        numbers, node, width = numbers[kept], child[entry[kept]], further


def _shared(first: bytes, last: bytes) -> bytes:
    """How both begin, and so all texts between them."""
    pairs = enumerate(zip(first, last, strict=False))
    length = next((at for at, (one, other) in pairs if one != other), min(len(first), len(last)))
    return first[:length]


def _beside(values: pa.BinaryArray, prefix: bytes) -> tuple[Bools, Bools]:
    """Which values are below, and which above, all that begin with a prefix."""
    below, above = np.zeros(len(values), bool), np.zeros(len(values), bool)
    for at in range(0, len(prefix), 8):
        word = int.from_bytes(prefix[at : at + 8].ljust(8, b"\0"))
        found = _words(values, at) & _KEPT[min(8, len(prefix) - at)]
        open_ = ~(below | above)
        below |= open_ & (found < word)
        above |= open_ & (found > word)
    return below, above


def _ordered(values: Keys) -> Ints:
    """Numbers as integers of the same order; -0.0 as 0.0."""
    if values.dtype != np.float64:
        return np.asarray(values)
    bits = (values + 0.0).view(np.int64)
    return np.asarray(bits ^ (bits >> 63 & np.iinfo(np.int64).max))


def _words(values: pa.BinaryArray, at: int) -> Digits:
    """Eight bytes of each value from a place on, zeros behind its end, as a number of the same order."""
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
