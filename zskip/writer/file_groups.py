"""Small writes: neighbouring slots of the layout share a file; otherwise files would consist mostly of footers.

A slot is the number of a file in the layout. Example: 20 slots with 10 rows each, four slots to a file:

    slots 0 1 2 3 │ 4 5 6 7 │ 8 9 10 11 │ …
    part-000000_000003-….parquet

Groups have 4, 16, 64, … slots and begin at multiples of their size within a partition. So appends of similar size form
the same groups, and optimize merges their files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zskip.writer.routing import Routing

__all__ = ["LEAST_FILL", "FileGroups", "least_rows", "slot_label", "slots_per_file"]

LEAST_FILL = 1 / 8
"""The least share of a full file that a file of several slots holds; at this size, opening costs half of reading it."""

_FOOTER_ROWS = 600  # this many narrow rows take about as much space as a footer, 2 kB
_STEP = 4


@dataclass(frozen=True, slots=True)
class FileGroups:
    """For each slot, the first and last slot of its group, which shares a file. A group lies in one partition."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]

    @staticmethod
    def of(routing: Routing, width: int) -> FileGroups:
        """Groups of ``width`` slots; the last one of a partition may have fewer."""
        edges = routing.first_file
        start, stop = (np.repeat(ends, np.diff(edges)) for ends in (edges[:-1], edges[1:]))
        slots = np.arange(routing.files, dtype=np.int64)
        first = start + (slots - start) // width * width
        return FileGroups(first, np.minimum(first + width, stop) - 1)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The number of each slot's group, ascending."""
        return np.cumsum(np.diff(self.first, prepend=self.first[:1]) > 0)


def least_rows(rows_per_file: int) -> int:
    """The least number of rows of a file of several slots, if a full file has ``rows_per_file``.

    >>> least_rows(1_000_000), least_rows(400), least_rows(50)
    (125000, 200, 25)
    """
    return max(1, min(max(int(rows_per_file * LEAST_FILL), _FOOTER_ROWS), rows_per_file // 2))


def slots_per_file(rows: int, slots: int, least: int, filled: int | None = None) -> int:
    """The number of neighbouring slots, possibly all, that must share a file for it to hold ``least`` rows on average.

    ``filled``: the number of slots that get rows; by default all.

    >>> slots_per_file(1000, 100, 125), slots_per_file(100_000, 100, 125), slots_per_file(3, 100, 125)
    (16, 1, 256)
    """
    width, filled = 1, slots if filled is None else filled
    while width < slots and width * rows < least * filled:
        width *= _STEP
    return width


def slot_label(first: int, last: int) -> str:
    """The part of a file's name that gives its slots.

    >>> slot_label(7, 7), slot_label(16, 31)
    ('000007', '000016_000031')
    """
    return f"{first:06d}" if first == last else f"{first:06d}_{last:06d}"
