"""Parse thousands of footers of one shape at once: numpy performs each parsing step on all of them.

A shape is a list of steps, which are processed in short parts. For each part, the bytes of all footers are compared
with those of one example: where the literals are equal and all numbers have the same length, everything has the same
offset as in the example. This holds for most footers of one writer. The remaining ones are compared with another
example, a few times; what is left then is parsed step by step, which decides whether a footer has the shape.

A step is the bytes of a literal, or ``("number", place)``, a varint, or ``("text", place)``, a varint and that many
bytes. ``place``: the row of the result for the number, or for the text's offset and length; -1 discards it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

Step = bytes | tuple[str, int]

_LONGEST_VARINT, _FARTHEST = 10, 1024
_LONGEST_WORD, _USUAL_VARINT = 8, 2
_ALL = np.uint64((1 << 64) - 1)
_PART_BYTES = 128  # approximate length of a part, of which the bytes are compared at once
_LAYOUTS, _COMMON = 4, 8  # examples to try for a part, as long as each fits one in so many footers


def joined(pieces: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """The concatenated pieces with padding, as `follow` requires them, and the offset at which each piece ends."""
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    # `follow` may read beyond the last piece before it notices that the piece has another shape.
    padding = bytes(2 * _FARTHEST + int(lengths.max(initial=0)) + 2 * _LONGEST_VARINT)
    return np.frombuffer(b"".join([*pieces, padding]), np.uint8), np.cumsum(lengths)


def follow(
    steps: Sequence[Step], places: int, data: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each footer has the shape, and the values of those that have it: an array (places, footers).

    ``data``: all footers, from `joined` · ``starts``, ``ends``: the offsets of each footer
    """
    kept = np.zeros((places, len(starts)), np.int64)
    rows = np.arange(len(starts))
    at, ends = starts, ends
    for part in _parts(steps):
        if not len(rows):
            break
        found = _parsed(part, data, at, ends, _LAYOUTS)
        for place, values in found.kept.items():
            kept[place] = values
        at = found.at
        # A footer of another shape has meaningless offsets. It is dropped before they exceed the data.
        if not found.fits.all():
            rows, at, ends, kept = rows[found.fits], at[found.fits], ends[found.fits], kept[:, found.fits]
    good = np.zeros(len(starts), bool)
    good[rows] = True
    return good, kept


@dataclass(slots=True)
class _Parsed:
    """The result of a part: the offset after it, whether each footer may have the shape, and values by place."""

    at: np.ndarray
    fits: np.ndarray
    kept: dict[int, np.ndarray]


def _parts(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps in parts, which end after a text or when they are long."""
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


def _parsed(part: list[Step], data: np.ndarray, at: np.ndarray, ends: np.ndarray, layouts: int) -> _Parsed:
    """Parse one part of all footers: those with the layout of the first one together, then the others."""
    layout = _Layout.of(part, data, int(at[0])) if layouts else None
    if layout is None:
        return _singly(part, data, at, ends)
    found, rest = layout.parse(data, at)
    if len(rest):
        fits = len(at) - len(rest)
        others = _parsed(part, data, at[rest], ends[rest], layouts - 1 if fits * _COMMON >= len(at) else 0)
        found.at[rest] = others.at
        found.fits[rest] = others.fits
        for place, values in others.kept.items():
            found.kept[place][rest] = values
    found.fits &= (found.at >= at) & (found.at <= ends)
    return found


@dataclass(frozen=True, slots=True)
class _Layout:
    """The encoding of a part in one footer: the bytes that others must share, and the positions of numbers.

    ``expected``: words of eight bytes · ``mask``: the bits to compare: all bits of literals, and the top bit of each
    byte of a number, by which its length is encoded · ``exact``: whether all bits are compared · ``numbers``: the kind,
    place, first byte and length of each · ``length``: that of the part, without the bytes of a last text
    """

    expected: np.ndarray
    mask: np.ndarray
    exact: bool
    numbers: list[tuple[str, int, int, int]]
    length: int

    @classmethod
    def of(cls, part: list[Step], data: np.ndarray, at: int) -> _Layout | None:
        """The layout of the part at an offset; None if a number is too long for one word."""
        expected, mask = bytearray(), bytearray()
        numbers = []
        for step in part:
            start = len(expected)
            if isinstance(step, bytes):
                expected += step
                mask += b"\xff" * len(step)
                continue
            tops = data[at + start : at + start + _LONGEST_WORD] & 0x80
            length = int(tops.argmin()) + 1
            if tops[length - 1]:
                return None
            expected += tops[:length].tobytes()
            mask += b"\x80" * length
            numbers.append((*step, start, length))
        padding = bytes(-len(expected) % 8)
        words, bits = (np.frombuffer(bytes(of) + padding, "<u8") for of in (expected, mask))
        return cls(words, bits, bool((bits == _ALL).all()), numbers, len(expected))

    def parse(self, data: np.ndarray, at: np.ndarray) -> tuple[_Parsed, np.ndarray]:
        """Parse the part of all footers but those with another layout, whose positions are returned too."""
        size = 8 * len(self.expected)
        pieces = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))[at]
        words = pieces.view("<u8").reshape(len(at), len(self.expected))
        octets = pieces.view(np.uint8).reshape(len(at), size)
        differing = (words if self.exact else words & self.mask) != self.expected
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
        return _Parsed(after, ~wrong, kept), np.flatnonzero(wrong)


def _singly(part: list[Step], data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> _Parsed:
    """Parse a part step by step, for footers with numbers of any lengths."""
    at = starts.copy()
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))  # the eight bytes from each offset on
    kept: dict[int, np.ndarray] = {}
    wrong = np.zeros(len(starts), np.uint64)
    for step in part:
        if isinstance(step, bytes):
            for place in range(0, len(step), 8):
                wrong |= _differing(words[at + place], step[place : place + 8])
            at += len(step)
            continue
        kind, place = step
        value, length = _varints(data, at)
        at += length
        if int(length.max()) == _LONGEST_VARINT:
            wrong |= data[at - 1] >= 0x80  # a varint with too many bytes
        if kind == "number":
            if place >= 0:
                kept[place] = _zigzag(value)
        else:
            if place >= 0:
                kept[place], kept[place + 1] = at.copy(), value
            at += value
    return _Parsed(at, (wrong == 0) & (at >= starts) & (at <= ends), kept)


def _zigzag(value: np.ndarray) -> np.ndarray:
    """Decode zigzag: the unsigned numbers 0, 1, 2, 3 become 0, -1, 1, -2."""
    bits = value.view(np.uint64)
    return ((bits >> np.uint64(1)) ^ -(bits & np.uint64(1))).view(np.int64)


def _differing(word: np.ndarray, piece: bytes) -> np.ndarray:
    """Nonzero where the first bytes of a word are not these."""
    found = word ^ np.uint64(int.from_bytes(piece, "little"))
    if len(piece) < 8:
        found &= np.uint64((1 << 8 * len(piece)) - 1)
    return found


def _varints(data: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The varints at some offsets, of up to ten bytes, and their lengths; bits beyond 64 are dropped."""
    at = start
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
