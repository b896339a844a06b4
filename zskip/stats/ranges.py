"""`Ranges` and `Statistics`: the values that each unit (a shard, a file or a row group) may have, one slot per unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["Ranges", "Statistics"]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Every value of the unit that is neither null nor NaN lies in [lower, upper].

    An Arrow null in a bound means "unknown", never SQL NULL. A flag is True, False, or null for "unknown".

    | the unit                  | lower | upper | has_value | has_null | has_nan |
    | ------------------------- | ----- | ----- | --------- | -------- | ------- |
    | 3, 5                      | 3     | 5     | True      | False    | False   |
    | 3.0, NaN, NULL            | 3.0   | 3.0   | True      | True     | True    |
    | only NULL                 | null  | null  | False     | True     | False   |
    | no row at all             | null  | null  | False     | False    | False   |
    | nothing is known          | null  | null  | null      | null     | null    |
    """

    lower: pa.Array
    upper: pa.Array
    has_value: pa.BooleanArray
    has_null: pa.BooleanArray
    has_nan: pa.BooleanArray
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """A cache of values computed from the ranges, since each query reads the ranges of the same shards."""

    def __len__(self) -> int:
        return len(self.lower)

    def take(self, units: np.ndarray) -> Ranges:
        """The ranges of some units, by number."""
        chosen = pa.array(units)
        flags = (self.has_value, self.has_null, self.has_nan)
        return Ranges(*(each.take(chosen) for each in (self.lower, self.upper, *flags)))


@dataclass(frozen=True, slots=True)
class Statistics:
    """The row count and the ranges of each unit, by column path. An absent column is unknown.

    ``row_count``: an int64 array, null where it is unknown.
    """

    row_count: pa.Int64Array
    columns: Mapping[str, Ranges]

    def __len__(self) -> int:
        return len(self.row_count)

    def take(self, units: np.ndarray) -> Statistics:
        """The statistics of some units, by number."""
        columns = {path: ranges.take(units) for path, ranges in self.columns.items()}
        return Statistics(self.row_count.take(pa.array(units)), columns)
