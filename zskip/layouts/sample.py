"""A sample of the rows as codes, to which every layout is fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.keys import Codes, dense_codes
from zskip.schema import Column

__all__ = ["Boxes", "Sample"]


@dataclass(frozen=True, slots=True)
class Boxes:
    """The smallest and the greatest code of some units of rows, NULL left out: int32 arrays (units, columns).

    A unit whose column holds only NULL has lower > upper there.
    """

    lower: NDArray[np.int32]
    upper: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.lower)


@dataclass(frozen=True, slots=True)
class Sample:
    """Sampled rows, column by column: dense codes (0 is NULL), their distinct values, the share of values up to each.

    ``low``: the codes with NULL above all others, so that a minimum ignores it, as a footer's does ·
    ``reach[c][k]``: the share of the column's values with a code from 1 to k.
    """

    columns: tuple[Column, ...]
    codes: tuple[Codes, ...]
    low: tuple[Codes, ...]
    distinct: tuple[pa.Array, ...]
    reach: tuple[NDArray[np.float64], ...]

    @staticmethod
    def of(rows: pa.Table | pa.RecordBatch, columns: Sequence[Column]) -> Sample:
        """The codes of some rows."""
        pairs = [dense_codes(column.of(rows)) for column in columns]
        codes = tuple(code for code, _ in pairs)
        distinct = tuple(values for _, values in pairs)
        low = tuple(
            np.where(code == 0, np.int32(len(values) + 1), code) if (code == 0).any() else code
            for code, values in pairs
        )
        return Sample(tuple(columns), codes, low, distinct, tuple(map(_reach, codes, distinct)))

    def in_order(self, columns: Sequence[int]) -> Sample:
        """The same rows with these columns, by number."""
        parts = (self.columns, self.codes, self.low, self.distinct, self.reach)
        return Sample(*(tuple(part[number] for number in columns) for part in parts))  # type: ignore[arg-type]

    @property
    def rows(self) -> int:
        return len(self.codes[0])

    def boxes(self, unit: NDArray[np.integer], units: int) -> Boxes:
        """The box of each unit. ``unit``: the unit of each row; a unit without rows has an empty box."""
        order = np.argsort(unit, kind="stable")
        counts = np.bincount(unit, minlength=units)
        filled = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[filled]
        lower = np.empty((units, len(self.columns)), np.int32)
        upper = np.zeros((units, len(self.columns)), np.int32)
        for number, values in enumerate(self.distinct):
            lower[:, number] = len(values) + 1
        if len(filled):
            for number, (low, code) in enumerate(zip(self.low, self.codes, strict=True)):
                lower[filled, number] = np.minimum.reduceat(low[order], starts)
                upper[filled, number] = np.maximum.reduceat(code[order], starts)
        return Boxes(lower, upper)

    def positions(self, column: int) -> NDArray[np.float64]:
        """The quantile rank of each code, from 0 to 1: the middle of the share of rows that have it.

        So every column fills the whole range, and frequent values are spread apart.
        """
        counts = np.bincount(self.codes[column], minlength=len(self.distinct[column]) + 1)
        middle: NDArray[np.float64] = (np.cumsum(counts) - counts / 2) / max(1, self.rows)
        return middle


def _reach(codes: Codes, distinct: pa.Array) -> NDArray[np.float64]:
    counts = np.bincount(codes, minlength=len(distinct) + 2)  # the last slot is NULL's code in `low`
    counts[0] = 0
    reach: NDArray[np.float64] = np.cumsum(counts) / max(1, counts.sum())
    return reach
