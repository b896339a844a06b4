"""`Assignment`: a fitted layout as a pure function of a row's values. Row → codes → cell → file.

    codes    per column: 0 for NULL, else 1 + the number of boundaries up to the value      (`zskip.stats.keys`)
    cell     descend a tree: node i leads to above[i] where code[column[i]] >= threshold[i], else to below[i]
    file     first[cell]; where salt[cell] > 1, first[cell] + (a hash of the row) mod salt[cell]

The JSON form is complete: any engine can compute the same cells from it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.core.schema import Schema
from zskip.core.types import decode_typed, encode_typed
from zskip.errors import SchemaMismatch, UnsupportedFormat
from zskip.layouts.cells import CellFiles, Cells, ThresholdTree, collapse
from zskip.layouts.reads import Sample
from zskip.layouts.row_order import SlabLevel, arrange, slabs
from zskip.stats.keys import Boundaries, Codes, row_hashes

_FORMAT = 1
_QUANTILES = 64


@dataclass(frozen=True)
class Assignment:
    """Which file each row belongs to. Files are numbered in layout order.

    ``columns``: paths of the columns that it reads · ``weights``: the share of look-ups on each · ``boundaries``: for
    each column, the values at which an interval begins · ``tree``: thresholds over the codes of those intervals ·
    ``cells``: the files of each cell · ``quantiles``: for each column, up to 64 quantiles of the sample, by which rows
    are ordered inside a file · ``reason``: why this layout was chosen.
    """

    layout: str
    columns: tuple[str, ...]
    weights: tuple[float, ...]
    boundaries: tuple[Boundaries, ...]
    tree: ThresholdTree
    cells: CellFiles
    quantiles: tuple[Boundaries, ...]
    reason: str = field(default="", compare=False)

    @staticmethod
    def of(
        layout: str, sample: Sample, weights: tuple[float, ...], cells: Cells, files: CellFiles, reason: str = ""
    ) -> Assignment:
        """The assignment of a fitted tree. The codes at which the tree splits become values of the sample.

        A column without weight is omitted if no node of the tree compares it.
        """
        tree, files = collapse(cells.tree, files)
        kept = [c for c, weight in enumerate(weights) if weight > 0 or (tree.column == c).any()]
        renumbered = np.zeros(len(weights), np.int32)
        renumbered[kept] = np.arange(len(kept))
        threshold = tree.threshold.copy()
        boundaries = []
        for number, distinct in enumerate(sample.distinct):
            nodes = tree.column == number
            used = np.unique(tree.threshold[nodes])
            used = used[used >= 2]  # the threshold 1 separates NULL from the values and needs no boundary
            boundaries.append(Boundaries(distinct.take(pa.array(used - 1))))
            threshold[nodes] = np.where(
                tree.threshold[nodes] >= 2, np.searchsorted(used, tree.threshold[nodes]) + 2, tree.threshold[nodes]
            )
        fitted = ThresholdTree(renumbered[tree.column], threshold.astype(np.int32), tree.below, tree.above)
        return Assignment(
            layout,
            tuple(sample.columns[c].path for c in kept),
            tuple(weights[c] for c in kept),
            tuple(boundaries[c] for c in kept),
            fitted,
            files,
            tuple(Boundaries(_quantiles(sample, c)) for c in kept),
            reason,
        )

    @property
    def files(self) -> int:
        """The number of files; some may get no rows."""
        return self.cells.files

    @cached_property
    def _lookup(self) -> _CellLookup:
        return _CellLookup.of(self.tree, self.code_counts)

    @property
    def code_counts(self) -> tuple[int, ...]:
        """The number of codes of each column: one for NULL, one for each interval between boundaries."""
        return tuple(len(boundaries) + 2 for boundaries in self.boundaries)

    def grid(self, most_entries: int) -> _Grid:
        """The top of the tree as a table of at most ``most_entries``; see `Grid`."""
        return _Grid.of(self.tree, self.code_counts, most_entries)

    def cell_of(self, rows: pa.Table | pa.RecordBatch) -> NDArray[np.int32]:
        """The cell of each row."""
        schema = Schema(rows.schema)
        return self._lookup.cells(
            [
                boundaries.codes(schema.column(path).encoded(rows))
                for path, boundaries in zip(self.columns, self.boundaries, strict=True)
            ]
        )

    def assign(self, rows: pa.Table | pa.RecordBatch) -> NDArray[np.int64]:
        """The file number of each row, from 0 to ``files - 1``, in layout order. Raises `UnknownColumn`.

        Equal values give the same file in every batch. The exception is a cell with more rows than a file holds that
        no clustering column divides: a hash of all columns spreads its rows over several files, and rows that are
        equal in all of them go to these files in turn.
        """
        cell = self.cell_of(rows)
        file = self.cells.first[cell]
        if (self.cells.salt > 1).any():
            salted = np.flatnonzero(self.cells.salt[cell] > 1)
            if len(salted):
                file[salted] += (row_hashes(rows, salted) % self.cells.salt[cell[salted]].astype(np.uint64)).astype(
                    np.int64
                )
        return file

    def arrange(self, rows: pa.Table, row_group_rows: int) -> NDArray[np.int64]:
        """The order of rows inside one file, which continues the layout: each row group covers a small box.

        ``row_group_rows``: rows per row group. Returns a permutation: the numbers of the rows in their new order.
        """
        schema = Schema(rows.schema)
        columns = [schema.column(path).of(rows) for path in self.columns]
        return arrange(columns, self.quantiles, np.array(self.weights), row_group_rows, linear=self.layout == "linear")

    def slabs(self, rows: pa.Table, row_groups: int) -> list[SlabLevel]:
        """The cuts by which `arrange` divides a file into ``row_groups``, by level, estimated from a sample of rows.

        Empty for one row group, and for a linear layout, whose files are sorted.
        """
        if self.layout == "linear":
            return []
        schema = Schema(rows.schema)
        columns = [schema.column(path).of(rows) for path in self.columns]
        return slabs(columns, self.quantiles, np.array(self.weights), row_groups)

    def to_json(self) -> dict[str, Any]:
        """The JSON form, as snapshots store it."""
        return {
            "format": _FORMAT,
            "layout": self.layout,
            "reason": self.reason,
            "files": self.files,
            "columns": [
                {
                    "path": path,
                    "weight": weight,
                    "boundaries": _encode(path, boundaries.values),
                    "quantiles": _encode(path, quantiles.values),
                }
                for path, weight, boundaries, quantiles in zip(
                    self.columns, self.weights, self.boundaries, self.quantiles, strict=True
                )
            ],
            "tree": {
                "column": self.tree.column.tolist(),
                "threshold": self.tree.threshold.tolist(),
                "below": self.tree.below.tolist(),
                "above": self.tree.above.tolist(),
            },
            "cells": {"first": self.cells.first.tolist(), "salt": self.cells.salt.tolist()},
        }

    @staticmethod
    def from_json(tree: Mapping[str, Any]) -> Assignment:
        """The inverse of `to_json`.

        Raises `UnsupportedFormat` if a newer zskip wrote it. Nothing else is checked: the form is a complete layout,
        so an assignment is as good as the text that it is read from.
        """
        if tree.get("format") != _FORMAT:
            raise UnsupportedFormat(
                f"The layout has format {tree.get('format')!r}, and this zskip reads format {_FORMAT}. Update zskip."
            )
        columns, nodes, cells = tree["columns"], tree["tree"], tree["cells"]
        return Assignment(
            tree["layout"],
            tuple(column["path"] for column in columns),
            tuple(float(column["weight"]) for column in columns),
            tuple(Boundaries(decode_typed(column["boundaries"])) for column in columns),
            ThresholdTree(*(np.array(nodes[key], np.int32) for key in ("column", "threshold", "below", "above"))),
            CellFiles(np.array(cells["first"], np.int64), np.array(cells["salt"], np.int64), tree["files"]),
            tuple(Boundaries(decode_typed(column["quantiles"])) for column in columns),
            tree["reason"],
        )


def _quantiles(sample: Sample, column: int) -> pa.Array:
    """The distinct values of a sample's column at its 64-quantiles."""
    cdf = sample.cdf[column]
    codes = np.unique(np.searchsorted(cdf, np.arange(1, _QUANTILES) / _QUANTILES, side="right"))
    codes = codes[(codes >= 1) & (codes <= len(sample.distinct[column]))]
    return sample.distinct[column].take(pa.array(codes - 1))


# Arrow arrays as JSON, exactly and with their types.


def _encode(column: str, values: pa.Array) -> dict[str, Any]:
    """The JSON form of a column's values and their type; none of them is null. See `zskip.core.types.encode_typed`.

    Raises `SchemaMismatch` for a string that is not UTF-8.

    >>> _encode("x", pa.array([1.5, float("inf")]))
    {'type': 'double', 'values': [1.5, 'Infinity']}
    """
    try:
        return encode_typed(values)
    except UnicodeDecodeError as error:
        raise SchemaMismatch(f'The column "{column}" holds a text that is not UTF-8: {error}') from error


# From codes to cells, for many rows at once: a table look-up replaces the top of the tree, a descent does the rest.

_ROWS_AT_ONCE = 1 << 15
_GRID_ENTRIES = 1 << 17


@dataclass(frozen=True, slots=True)
class _Grid:
    """The top of a tree as a table: for each combination of coarse codes, the node at which the descent continues.

    ``coarse``: for each column, the coarse code of each code · ``stride``: for each column, the distance in ``node``
    between neighbouring coarse codes. A row's entry is ``node[sum(coarse[c][code[c]] * stride[c] for c in columns)]``:
    the number of a node, or ``len(tree) + cell`` if the table decides the cell.
    """

    coarse: tuple[NDArray[np.int32], ...]
    stride: tuple[int, ...]
    node: NDArray[np.int32]

    @staticmethod
    def of(tree: ThresholdTree, code_counts: Sequence[int], most_entries: int) -> _Grid:
        """The table for thresholds taken level by level from the root, without those that would make it too large."""
        chosen: list[set[int]] = [set() for _ in code_counts]
        level = [0] if len(tree) else []
        while level:
            for column, threshold in zip(tree.column[level].tolist(), tree.threshold[level].tolist(), strict=True):
                if threshold not in chosen[column]:
                    chosen[column].add(threshold)
                    if np.prod([float(len(thresholds) + 1) for thresholds in chosen]) > most_entries:
                        chosen[column].remove(threshold)
            children = np.concatenate([tree.below[level], tree.above[level]])
            level = children[children >= 0].tolist()
        edges = [np.array(sorted(thresholds), np.int32) for thresholds in chosen]
        coarse = [
            np.searchsorted(edge, np.arange(count), side="right").astype(np.int32)
            for edge, count in zip(edges, code_counts, strict=True)
        ]
        shape = [len(edge) + 1 for edge in edges]
        coarse_codes = np.unravel_index(np.arange(int(np.prod(shape))), shape)
        lowest = np.stack([np.concatenate([[0], e])[code] for e, code in zip(edges, coarse_codes, strict=True)])
        highest = np.stack(
            [np.concatenate([e, [n]])[code] - 1 for e, code, n in zip(edges, coarse_codes, code_counts, strict=True)]
        )
        node = np.zeros(lowest.shape[1], np.int32)
        active = np.arange(len(node)) if len(tree) else np.empty(0, np.intp)
        while len(active):  # descend while all codes of an entry lie on one side of the threshold
            current = node[active]
            cut, at = tree.column[current], tree.threshold[current]
            above, below = lowest[cut, active] >= at, highest[cut, active] < at
            active, current, above = active[above | below], current[above | below], above[above | below]
            child = np.where(above, tree.above[current], tree.below[current])
            node[active] = np.where(child < 0, len(tree) + ~child, child)
            active = active[child >= 0]
        stride = [int(np.prod(shape[number + 1 :])) for number in range(len(shape))]
        return _Grid(tuple(coarse), tuple(stride), node)


@dataclass(frozen=True, slots=True)
class _CellLookup:
    """A tree prepared for many rows: node i leads to ``child[2 * i + 1]`` for codes >= its threshold, else to
    ``child[2 * i]``. Cells are numbered after the nodes.

    ``steps``: for each column and code, its summand in the index into the grid · ``grid_decides``: whether every entry
    of the grid is a cell.
    """

    grid: _Grid
    steps: tuple[NDArray[np.int32], ...]
    column: NDArray[np.intp]
    threshold: NDArray[np.int32]
    child: NDArray[np.intp]
    grid_decides: bool

    @staticmethod
    def of(tree: ThresholdTree, code_counts: Sequence[int]) -> _CellLookup:
        """``code_counts``: the number of codes of each column."""
        sides = np.stack([tree.below, tree.above], axis=1).reshape(-1)
        child = np.where(sides < 0, len(tree) + ~sides, sides).astype(np.intp)
        grid = _Grid.of(tree, code_counts, _GRID_ENTRIES)
        steps = tuple((c * s).astype(np.int32) for c, s in zip(grid.coarse, grid.stride, strict=True))
        grid_decides = bool((grid.node >= len(tree)).all())
        return _CellLookup(grid, steps, tree.column.astype(np.intp), tree.threshold, child, grid_decides)

    def cells(self, codes: Sequence[Codes]) -> NDArray[np.int32]:
        """The cell of each row, from its codes in each column."""
        rows, nodes = len(codes[0]), len(self.column)
        cell = np.empty(rows, np.int32)
        for start in range(0, rows, _ROWS_AT_ONCE):
            part = [code[start : start + _ROWS_AT_ONCE] for code in codes]
            entry = self.steps[0][part[0]]
            for step, code in zip(self.steps[1:], part[1:], strict=True):
                entry += step[code]
            node = self.grid.node[entry]
            if not self.grid_decides:
                self._descend(node, part)
            cell[start : start + _ROWS_AT_ONCE] = node
        return cell - np.int32(nodes)

    def _descend(self, node: NDArray[np.int32], codes: Sequence[Codes]) -> None:
        """Replace, in place, the node of each row by the cell to which the descent from there leads."""
        nodes = len(self.column)
        flat = np.concatenate(codes)
        starts = self.column * len(node)
        active = np.flatnonzero(node < nodes)
        current = node[active].astype(np.intp)
        while len(active):
            index = starts[current]
            index += active
            above = flat[index] >= self.threshold[current]
            current += current
            current += above
            current = self.child[current]
            node[active] = current
            inner = np.flatnonzero(current < nodes)
            active, current = active[inner], current[inner]
