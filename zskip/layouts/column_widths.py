"""`Widths`: the bytes of a row in the columns that a query reads, for each row and each query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip.core import types as t
from zskip.core.schema import Schema

__all__ = ["Widths"]


@dataclass(frozen=True)
class Widths:
    """The bytes of some rows, by column and by query.

    ``reads``: for each query the paths of the leaves that it reads, None for all. Values are measured in memory, since
    a sample does not show how well they compress.
    """

    rows: pa.Table
    reads: tuple[frozenset[str] | None, ...] = ()

    @cached_property
    def _columns(self) -> tuple[float | NDArray[np.float64], ...]:
        """The bytes of each value, leaf by leaf; a single number for a leaf whose values have the same width."""
        return tuple(_value_bytes(_leaf(self.rows, column.parts)) for column in Schema(self.rows.schema))

    @cached_property
    def _reads_leaf(self) -> NDArray[np.float64]:
        """Whether each query reads each leaf: an array (queries, leaves) of 0 and 1."""
        paths = list(Schema(self.rows.schema).columns)
        return np.array([[read is None or path in read for path in paths] for read in self.reads], float).reshape(
            len(self.reads), len(paths)
        )

    def _by_leaf(self, file: NDArray[np.integer], files: int) -> NDArray[np.float64]:
        """The bytes of each leaf in each file: an array (leaves, files)."""
        rows = np.bincount(file, minlength=files)
        widths = [
            rows * width if isinstance(width, float) else np.bincount(file, width, minlength=files)
            for width in self._columns
        ]
        return np.array(widths, float).reshape(len(widths), files)

    def by_file(self, file: NDArray[np.integer], files: int) -> NDArray[np.float64]:
        """The bytes of all columns in each file. ``file``: the file number of each row."""
        total: NDArray[np.float64] = self._by_leaf(file, files).sum(axis=0)
        return total

    def by_query(self, file: NDArray[np.integer], files: int) -> NDArray[np.float64]:
        """The bytes that each query reads when it reads a whole file: an array (queries, files)."""
        total: NDArray[np.float64] = self._reads_leaf @ self._by_leaf(file, files)
        return total

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """The weight of each query: its bytes of an average row, scaled so that all weights sum to 1.

        >>> rows = pa.table({"a": pa.array([1, 2], pa.int16()), "b": ["x", "12345"]})
        >>> Widths(rows, (None, frozenset({"a"}), frozenset({"b"}))).weights.tolist()
        [0.5, 0.2, 0.3]
        """
        mean = np.array([np.mean(width) if np.size(width) else 0.0 for width in self._columns], float)
        by_query = self._reads_leaf @ mean
        count = max(1, len(by_query))
        return by_query / by_query.sum() if by_query.sum() > 0 else np.full(len(by_query), 1 / count)

    @cached_property
    def by_row(self) -> NDArray[np.float64] | None:
        """The bytes that all queries together read of each row, relative to the average row; None if all are equal."""
        readers = self._reads_leaf.sum(axis=0)
        varying = [w for w, count in zip(self._columns, readers, strict=True) if count and not isinstance(w, float)]
        if not varying or not self.rows.num_rows:
            return None
        total = np.zeros(self.rows.num_rows)
        for width, count in zip(self._columns, readers, strict=True):
            total += count * width
        mean = total.mean()
        return total / mean if mean > 0 else None


def _leaf(rows: pa.Table, parts: tuple[str, ...]) -> pa.ChunkedArray:
    """A leaf's values, dictionaries decoded."""
    values = rows.column(parts[0])
    for part in parts[1:]:
        values = pc.struct_field(values, [values.type.get_field_index(part)])
    if isinstance(values.type, pa.BaseExtensionType):
        return values.cast(values.type.storage_type)
    return values.cast(t.value_type(values.type))


def _value_bytes(values: pa.ChunkedArray) -> float | NDArray[np.float64]:
    """The bytes of each value; a nested column's bytes are divided evenly among its rows."""
    if t.is_primitive(values.type) or t.is_decimal(values.type) or t.is_fixed_size_binary(values.type):
        return float(values.type.bit_width) / 8
    if t.is_null(values.type) or not len(values):
        return 0.0
    if t.is_nested(values.type):
        return float(values.nbytes) / len(values)
    return np.asarray(pc.fill_null(pc.binary_length(values.cast(pa.large_binary())), 0), np.float64)
