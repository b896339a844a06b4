"""The orientation of the Hilbert curve in a cube: which axis each bit of the key halves, and which half comes first.

Skilling's transform (2004), one level at a time. The order in which the curve visits the 2**d sub-cubes of a cube
follows from a permutation of the axes, a flip for each axis, and one parity bit. Each bit of the key halves one axis:

    bit i of the key's digit w      halves the axis axes[i]
    coordinate bit on that axis     w[i] ^ w[i-1] ^ flips[i]       (w[-1] is the parity)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Orientation"]


@dataclass(frozen=True, slots=True)
class Orientation:
    """The curve's orientation in one cube: the order of the axes, a flip (0 or 1) for each, and the parity bit."""

    axes: tuple[int, ...]
    flips: tuple[int, ...]
    parity: int

    @staticmethod
    def first(columns: int) -> Orientation:
        """The orientation in the whole space."""
        return Orientation(tuple(range(columns)), (0,) * columns, 0)

    def upper_first(self, position: int, before: int) -> bool:
        """Whether the curve visits the upper half of ``axes[position]`` first.

        ``before``: the digit's bit at the previous position; ignored at position 0, where the parity takes its place.
        """
        return bool((before if position else self.parity) ^ self.flips[position])

    def digit(self, bits: Sequence[int]) -> tuple[int, ...]:
        """The key's digit (one bit per axis) of the sub-cube in which each coordinate has the given bit."""
        digit, before = [], self.parity
        for axis, flip in zip(self.axes, self.flips, strict=True):
            before ^= bits[axis] ^ flip
            digit.append(before)
        return tuple(digit)

    def below(self, digit: Sequence[int]) -> Orientation:
        """The orientation in the sub-cube with this digit."""
        axes, flips, before = list(self.axes), list(self.flips), self.parity
        for position, bit in enumerate(digit):
            if bit ^ before:
                flips[0] ^= 1
            else:
                axes[0], axes[position] = axes[position], axes[0]
                flips[0], flips[position] = flips[position], flips[0]
            before = bit
        # The digit's last bit is the parity of the coordinate bits and flips, combined with the parity so far.
        return Orientation(tuple(axes), tuple(flips), before)
