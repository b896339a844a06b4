"""Parse thousands of footers of one shape at once: numpy performs each parsing step on all of them.

A shape is a list of steps, which are processed in short parts. For each part, the bytes of all footers are compared
with those of one example: where the literals are equal and all numbers have the same length, everything has the same
offset as in the example. This holds for most footers of one writer. The remaining ones are compared with another
example, a few times; what is left then is parsed step by step, which decides whether a footer has the shape.

A step is the bytes of a literal, or ``("number", place)``: a varint, or ``("text", place)``: a varint and as many
bytes. ``place``: the row of the result for the number, or for the text's offset and length; -1 discards it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Step", "follow", "joined"]

Step = bytes | tuple[str, int]

_LONGEST_VARINT, _FARTHEST = 10, 1024
_LONGEST_WORD, _USUAL_VARINT = 8, 2
_ALL = np.uint64((1 << 64) - 1)
_SHORT = 3  # of a literal: numbers behind it mostly end within the same eight bytes
_PART_BYTES = 128  # of a part, about: so many bytes of each footer are compared at once
_LAYOUTS, _COMMON = 4, 8  # of a part: so many are tried, while each fits one in so many footers


def joined(pieces: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """The pieces one after another, as `follow` takes them, and where in them each one ends."""
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    # As many zeros behind them as `follow` may go on for before it sees that it has left the last one.
    padding = bytes(2 * _FARTHEST + int(lengths.max(initial=0)) + 2 * _LONGEST_VARINT)
    return np.frombuffer(b"".join([*pieces, padding]), np.uint8), np.cumsum(lengths)


def follow(
    steps: Sequence[Step], places: int, data: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which footers have the shape, and what is kept of those: one row a place, one column a footer.

    ``data`` holds all footers, and behind them what `joined` puts there; offsets count in it.
    """
    kept = np.zeros((places, len(starts)), np.int64)
    rows = np.arange(len(starts))
    at, ends = starts, ends
    for part in _parts(steps):
        if not len(rows):
            break
        found = _walked(part, data, at, ends, _LAYOUTS)
        for place, values in found.kept.items():
            kept[place] = values
        at = found.at
        # A footer of another shape leads anywhere: it is left behind before it leads out of the data.
        if not found.fine.all():
            rows, at, ends, kept = rows[found.fine], at[found.fine], ends[found.fine], kept[:, found.fine]
    good = np.zeros(len(starts), bool)
    good[rows] = True
    return good, kept


@dataclass(slots=True)
class _Walked:
    """Where footers go on behind a part, whether they may have its shape, and what is kept of it, by place."""

    at: np.ndarray
    fine: np.ndarray
    kept: dict[int, np.ndarray]


def _parts(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps in parts that end behind a text, or where they have grown long."""
    part: list[Step] = []
    size = 0
    for step in steps:
        pieces: list[Step] = [step]
        if isinstance(step, bytes):
            pieces = [step[first : first + _PART_BYTES] for first in range(0, len(step), _PART_BYTES)]
        for piece in pieces:
            length = len(piece) if isinstance(piece, bytes) else _USUAL_VARINT
            if size + length > _PART_BYTES:
                yield part
                part, size = [], 0
            part.append(piece)
            size += length
        if not isinstance(step, bytes) and step[0] == "text":
            yield part
            part, size = [], 0
    if part:
        yield part


def _walked(part: list[Step], data: np.ndarray, at: np.ndarray, ends: np.ndarray, layouts: int) -> _Walked:
    """All footers over one part: side by side those that lie as the first one does, the others by themselves."""
    layout = _Layout.of(part, data, int(at[0])) if layouts else None
    if layout is None:
        return _singly(part, data, at, ends)
    found, rest = layout.over(data, at)
    if len(rest):
        fits = len(at) - len(rest)
        others = _walked(part, data, at[rest], ends[rest], layouts - 1 if fits * _COMMON >= len(at) else 0)
        found.at[rest] = others.at
        found.fine[rest] = others.fine
        for place, values in others.kept.items():
            found.kept[place][rest] = values
    found.fine &= (found.at >= at) & (found.at <= ends)
    return found


@dataclass(frozen=True, slots=True)
class _Layout:
    """How one footer encodes a part: what to compare the others with, and where its numbers are.

    ``expected``: words of eight bytes; ``counts``: the bits of them that count, which are all of a literal's, and of a
    number's bytes the top ones, which tell its length. ``numbers``: kind, place, first byte, bytes.
    """

    expected: np.ndarray
    counts: np.ndarray
    exact: bool
    numbers: list[tuple[str, int, int, int]]
    length: int

    @classmethod
    def of(cls, part: list[Step], data: np.ndarray, at: int) -> _Layout | None:
        """The layout of the footer that continues at an offset; None where a number is too long for one word."""
        expected, counts = bytearray(), bytearray()
        numbers = []
        for step in part:
            start = len(expected)
            if isinstance(step, bytes):
                expected += step
                counts += b"\xff" * len(step)
                continue
            tops = data[at + start : at + start + _LONGEST_WORD] & 0x80
            length = int(tops.argmin()) + 1
            if tops[length - 1]:
                return None
            expected += tops[:length].tobytes()
            counts += b"\x80" * length
            numbers.append((*step, start, length))
        padding = bytes(-len(expected) % 8)
        words, bits = (np.frombuffer(bytes(of) + padding, "<u8") for of in (expected, counts))
        return cls(words, bits, bool((bits == _ALL).all()), numbers, len(expected))

    def over(self, data: np.ndarray, at: np.ndarray) -> tuple[_Walked, np.ndarray]:
        """The footers over the part, and the numbers of those with another layout, which are left undecoded."""
        size = 8 * len(self.expected)
        pieces = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))[at]
        words = pieces.view("<u8").reshape(len(at), len(self.expected))
        octets = pieces.view(np.uint8).reshape(len(at), size)
        differing = (words if self.exact else words & self.counts) != self.expected
        wrong = differing.any(axis=1) if differing.any() else np.zeros(len(at), bool)
        after = at + self.length
        kept = {}
        for kind, place, start, length in self.numbers:
            if place < 0 and kind == "number":
                continue
            value = octets[:, start + length - 1].astype(np.int64)
            for byte in range(start + length - 2, start - 1, -1):
                value = value << 7 | octets[:, byte] & 0x7F
            if kind == "number":
                kept[place] = _zigzag(value)
            else:
                if place >= 0:
                    kept[place], kept[place + 1] = after, value
                after = after + value
        return _Walked(after, ~wrong, kept), np.flatnonzero(wrong)


def _singly(part: list[Step], data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> _Walked:
    """The same step by step, for footers whose numbers have any lengths."""
    at = starts.copy()
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))  # the eight bytes from each place on
    kept: dict[int, np.ndarray] = {}
    wrong = np.zeros(len(starts), np.uint64)
    before = b""  # a short literal before a number: one word of eight bytes holds both
    for step, following in zip(part, [*part[1:], b""], strict=True):
        if isinstance(step, bytes):
            if len(step) <= _SHORT and not isinstance(following, bytes):
                before = step
                continue
            for place in range(0, len(step), 8):
                wrong |= _differing(words[at + place], step[place : place + 8])
            at += len(step)
            continue
        kind, place = step
        word = words[at]
        if before:
            wrong |= _differing(word, before)
        if kind == "number" and place < 0:
            value, length = None, _lengths(word, data, at, len(before))
        else:
            value, length = _varints(word, data, at, len(before))
        at += length
        if int(length.max()) == len(before) + _LONGEST_VARINT:
            wrong |= data[at - 1] >= 0x80  # a varint that continues beyond its longest form
        if value is not None and kind == "number":
            kept[place] = _zigzag(value)
        elif value is not None:
            if place >= 0:
                kept[place], kept[place + 1] = at.copy(), value
            at += value
        before = b""
    return _Walked(at, (wrong == 0) & (at >= starts) & (at <= ends), kept)


def _zigzag(value: np.ndarray) -> np.ndarray:
    """Decode zigzag: the unsigned numbers 0, 1, 2, 3 become 0, -1, 1, -2."""
    bits = value.view(np.uint64)
    return ((bits >> np.uint64(1)) ^ -(bits & np.uint64(1))).view(np.int64)


def _differing(word: np.ndarray, piece: bytes) -> np.ndarray:
    """Not zero where the first of eight bytes are not these."""
    found = word ^ np.uint64(int.from_bytes(piece, "little"))
    if len(piece) < 8:
        found &= np.uint64((1 << 8 * len(piece)) - 1)
    return found


def _varints(word: np.ndarray, data: np.ndarray, at: np.ndarray, before: int) -> tuple[np.ndarray, np.ndarray]:
    """The varints that begin ``before`` bytes after some offsets, and how many bytes after these each ends.

    ``word``: the eight bytes from each place on.
    """
    # A number's last byte is the first whose top bit is not set: the lowest such bit tells how long it is.
    last = ~word
    last &= _TOPS[before]
    if not last.all():
        return _long_varints(data, at, before)
    if before:
        word = word >> np.uint64(8 * before)
        last >>= np.uint64(8 * before)
    last &= ~last + np.uint64(1)
    longest = int(last.max())
    if longest == 0x80:
        return (word & np.uint64(0x7F)).view(np.int64), np.full(1, before + 1, np.int64)
    last -= np.uint64(1)
    word = word & last  # without the top bit of the last byte, which is not set
    value = word & np.uint64(0x7F)
    for place in range(1, longest.bit_length() // 8):
        word >>= np.uint64(1)
        value |= word & np.uint64(0x7F << 7 * place)
    return value.view(np.int64), (np.bitwise_count(last) >> 3) + np.int64(before + 1)


def _lengths(word: np.ndarray, data: np.ndarray, at: np.ndarray, before: int) -> np.ndarray:
    """How many bytes after some offsets `_varints`' numbers end, for numbers whose value is not needed."""
    last = ~word
    last &= _TOPS[before]
    if not last.all():
        return _long_varints(data, at, before)[1]
    last ^= last - np.uint64(1)  # all bits up to the lowest that is set: the top one of the number's last byte
    lengths: np.ndarray = (np.bitwise_count(last) >> 3).astype(np.int64)
    return lengths


# The top bits of a word's bytes, without the first so many bytes.
_TOPS = [np.uint64(0x8080808080808080 >> 8 * before << 8 * before) for before in range(_SHORT + 1)]


def _long_varints(data: np.ndarray, start: np.ndarray, before: int) -> tuple[np.ndarray, np.ndarray]:
    """The same, byte by byte, for numbers of up to ten bytes; of more than 64 bits the low ones are taken."""
    at = start + before
    value = np.zeros(len(at), np.uint64)
    going = np.ones(len(at), bool)
    for shift in range(0, 7 * _LONGEST_VARINT, 7):
        byte = np.where(going, data[at], 0).astype(np.uint64)
        value |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        at = at + going
        going = byte >= 0x80
        if not going.any():
            break
    return value.view(np.int64), at - start
