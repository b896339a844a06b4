"""A sample of a table's rows as codes: every layout is fitted to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.core.schema import Column
from zskip.stats.keys import Codes, dense_codes


@dataclass(frozen=True, slots=True)
class Boxes:
    """The least and the greatest code of each unit of rows, ignoring NULL: int32 arrays (units, columns).

    Where a unit holds only NULL in a column, or no rows, lower > upper.
    """

    lower: NDArray[np.int32]
    upper: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.lower)


@dataclass(frozen=True, slots=True)
class Sample:
    """Sampled rows, column by column: dense codes (0 is NULL), distinct values, and their cumulative distribution.

    ``codes_null_last``: the codes with NULL above all others, so that a minimum ignores it, as a footer's does ·
    ``cdf[c][k]``: the share of the column's values with a code from 1 to k.
    """

    columns: tuple[Column, ...]
    codes: tuple[Codes, ...]
    codes_null_last: tuple[Codes, ...]
    distinct: tuple[pa.Array, ...]
    cdf: tuple[NDArray[np.float64], ...]

    @staticmethod
    def of(rows: pa.Table | pa.RecordBatch, columns: Sequence[Column]) -> Sample:
        """Encode the columns of some rows. Raises `NotOrderable`."""
        pairs = [dense_codes(column.of(rows)) for column in columns]
        codes = tuple(code for code, _ in pairs)
        distinct = tuple(values for _, values in pairs)
        null_last = tuple(
            np.where(code == 0, np.int32(len(values) + 1), code) if (code == 0).any() else code
            for code, values in pairs
        )
        return Sample(tuple(columns), codes, null_last, distinct, tuple(map(_cdf, codes, distinct)))

    def select(self, columns: Sequence[int]) -> Sample:
        """The same rows with these columns, by number and in this order."""
        parts = (self.columns, self.codes, self.codes_null_last, self.distinct, self.cdf)
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
            for number, (null_last, code) in enumerate(zip(self.codes_null_last, self.codes, strict=True)):
                lower[filled, number] = np.minimum.reduceat(null_last[order], starts)
                upper[filled, number] = np.maximum.reduceat(code[order], starts)
        return Boxes(lower, upper)

    def ranks(self, column: int) -> NDArray[np.float64]:
        """The quantile rank of each code, from 0 to 1: the middle of the interval of ranks that its rows occupy.

        Ranks fill the whole range in every column, and frequent values lie far apart.
        """
        counts = np.bincount(self.codes[column], minlength=len(self.distinct[column]) + 1)
        middle: NDArray[np.float64] = (np.cumsum(counts) - counts / 2) / max(1, self.rows)
        return middle


def _cdf(codes: Codes, distinct: pa.Array) -> NDArray[np.float64]:
    counts = np.bincount(codes, minlength=len(distinct) + 2)  # the last slot is NULL's code in `codes_null_last`
    counts[0] = 0
    cdf: NDArray[np.float64] = np.cumsum(counts) / max(1, counts.sum())
    return cdf
