"""The bytes that a query reads of each row: those of the columns that it names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip import types as t
from zskip.schema import Schema

__all__ = ["Widths"]


@dataclass(frozen=True)
class Widths:
    """The bytes of some rows, by column and by query.

    ``reads``: for each query the paths of the leaves that it reads, None for all. Bytes are those of the values in
    memory, row by row: compression is not known from a sample.
    """

    rows: pa.Table
    reads: tuple[frozenset[str] | None, ...] = ()

    @cached_property
    def _columns(self) -> tuple[float | NDArray[np.float64], ...]:
        """The bytes of each value, leaf by leaf; a single number where all values take the same."""
        return tuple(_value_bytes(_leaf(self.rows, column.parts)) for column in Schema(self.rows.schema))

    @cached_property
    def _members(self) -> NDArray[np.float64]:
        """The leaves that each query reads: an array (queries, leaves) of 0 and 1."""
        paths = list(Schema(self.rows.schema).columns)
        return np.array([[read is None or path in read for path in paths] for read in self.reads], float).reshape(
            len(self.reads), len(paths)
        )

    def _by_leaf(self, file: NDArray[np.integer], files: int) -> NDArray[np.float64]:
        """The bytes of each leaf in each file: an array (leaves, files)."""
        rows = np.bincount(file, minlength=files)
        held = [
            rows * width if isinstance(width, float) else np.bincount(file, width, minlength=files)
            for width in self._columns
        ]
        return np.array(held, float).reshape(len(held), files)

    def by_file(self, file: NDArray[np.integer], files: int) -> NDArray[np.float64]:
        """The bytes of all columns in each file."""
        held: NDArray[np.float64] = self._by_leaf(file, files).sum(axis=0)
        return held

    def by_query(self, file: NDArray[np.integer], files: int) -> NDArray[np.float64]:
        """The bytes that each query would read of each whole file: an array (queries, files)."""
        held: NDArray[np.float64] = self._members @ self._by_leaf(file, files)
        return held

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """The weight of each query: the bytes that it reads of an average row, scaled to sum to 1.

        >>> rows = pa.table({"a": pa.array([1, 2], pa.int16()), "b": ["x", "12345"]})
        >>> Widths(rows, (None, frozenset({"a"}), frozenset({"b"}))).weights.tolist()
        [0.5, 0.2, 0.3]
        """
        whole = self._members @ np.array([np.sum(width) / _count(width) for width in self._columns], float)
        count = max(1, len(whole))
        return whole / whole.sum() if whole.sum() > 0 else np.full(len(whole), 1 / count)

    @cached_property
    def by_row(self) -> NDArray[np.float64] | None:
        """The bytes that queries read of each row, relative to the average row; None where all rows are equal."""
        asked = self._members.sum(axis=0)
        varying = [w for w, often in zip(self._columns, asked, strict=True) if often and not isinstance(w, float)]
        if not varying or not self.rows.num_rows:
            return None
        whole = np.zeros(self.rows.num_rows)
        for width, often in zip(self._columns, asked, strict=True):
            whole += often * width
        mean = whole.mean()
        return whole / mean if mean > 0 else None


def _count(width: float | NDArray[np.float64]) -> int:
    return 1 if isinstance(width, float) else max(1, len(width))


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
