"""The orientation of the Hilbert curve in a cube: which axis each bit of the key halves, and which half comes first.

Skilling's transform (2004), one level at a time. The order in which the curve visits the 2**d sub-cubes of a cube
follows from a permutation of the axes, a flip for each axis, and one parity bit. Each bit of the key halves one axis:

    place i of the key's digit w     halves axis[i]
    which half comes first           low[i] of w = 0:   y[i] = w[i] ^ w[i-1]   (w[-1] is the parity)
                                                        coordinate bit = y[i] ^ flip[i]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Orientation"]


@dataclass(frozen=True, slots=True)
class Orientation:
    """The curve's orientation in one cube."""

    axes: tuple[int, ...]
    flips: tuple[int, ...]
    parity: int

    @staticmethod
    def first(columns: int) -> Orientation:
        """The orientation in the whole space."""
        return Orientation(tuple(range(columns)), (0,) * columns, 0)

    def upper_first(self, place: int, before: int) -> bool:
        """Whether the upper half of ``axes[place]`` is visited first, ``before`` being the key's bit just above."""
        return bool((before if place else self.parity) ^ self.flips[place])

    def digit(self, bits: Sequence[int]) -> tuple[int, ...]:
        """The key's bits for one bit of each coordinate."""
        digit, before = [], self.parity
        for axis, flip in zip(self.axes, self.flips, strict=True):
            before ^= bits[axis] ^ flip
            digit.append(before)
        return tuple(digit)

    def below(self, digit: Sequence[int]) -> Orientation:
        """The orientation in the sub-cube with this digit."""
        axes, flips, before = list(self.axes), list(self.flips), self.parity
        for place, bit in enumerate(digit):
            if bit ^ before:
                flips[0] ^= 1
            else:
                axes[0], axes[place] = axes[place], axes[0]
                flips[0], flips[place] = flips[place], flips[0]
            before = bit
        # The last bit of the digit is the parity of all coordinates, xor the parity so far.
        return Orientation(tuple(axes), tuple(flips), before)
