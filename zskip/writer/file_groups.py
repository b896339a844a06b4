"""Small writes: neighbouring slots of the layout share a file, so that no file is mostly footer.

    20 files in the layout, 10 rows each:      slots 0 1 2 3 │ 4 5 6 7 │ 8 9 10 11 │ …      four to a file
                                               part-000000_000003-….parquet

Widths are powers of four, and bundles begin at multiples of them: appends of about one size make the same bundles, and
`decay` finds their files together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zskip.writer.routing import Routing

__all__ = ["LEAST", "Bundles", "least_rows", "place", "width"]

LEAST = 1 / 8
"""The least that a file of several slots holds, as a share of a full one: opening it costs half of reading it then."""

_FOOTER_ROWS = 600  # what a file takes beside its values: some 2 kB, as so many narrow rows
_STEP = 4


@dataclass(frozen=True, slots=True)
class Bundles:
    """The first and the last slot of each slot's bundle. A bundle lies in one partition."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]

    @staticmethod
    def of(routing: Routing, width: int) -> Bundles:
        """Bundles of so many slots; the last one of a partition may have fewer."""
        edges = routing.first_file
        start, stop = (np.repeat(ends, np.diff(edges)) for ends in (edges[:-1], edges[1:]))
        slots = np.arange(routing.files, dtype=np.int64)
        first = start + (slots - start) // width * width
        return Bundles(first, np.minimum(first + width, stop) - 1)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The number of each slot's bundle, ascending."""
        return np.cumsum(np.diff(self.first, prepend=self.first[:1]) > 0)


def least_rows(rows_per_file: int) -> int:
    """How many rows a file of several slots should hold at least, where a full one has ``rows_per_file``.

    >>> least_rows(1_000_000), least_rows(400), least_rows(50)
    (125000, 200, 25)
    """
    return max(1, min(max(int(rows_per_file * LEAST), _FOOTER_ROWS), rows_per_file // 2))


def width(rows: int, slots: int, least: int, filled: int | None = None) -> int:
    """How many neighbouring slots share a file so that it holds ``least`` rows on average; all may.

    ``filled``: how many of the slots get rows, where that is known.

    >>> width(1000, 100, 125), width(100_000, 100, 125), width(3, 100, 125)
    (16, 1, 256)
    """
    wide, filled = 1, slots if filled is None else filled
    while wide < slots and wide * rows < least * filled:
        wide *= _STEP
    return wide


def place(first: int, last: int) -> str:
    """The slots of a file, as its name says them.

    >>> place(7, 7), place(16, 31)
    ('000007', '000016_000031')
    """
    return f"{first:06d}" if first == last else f"{first:06d}_{last:06d}"
