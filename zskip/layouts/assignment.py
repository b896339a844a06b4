"""`Assignment`: a fitted layout as a pure function of a row's values. Row → codes → cell → file.

    codes    per column: 0 for NULL, else 1 + the number of boundaries up to the value      (`zskip.stats.keys`)
    cell     descend a tree: node i leads to above[i] where code[column[i]] >= threshold[i], else to below[i]
    file     first[cell]; where salt[cell] > 1, first[cell] + (a hash of the row) mod salt[cell]

The JSON form is complete: any engine can compute the same cells from it alone.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.core.schema import Schema
from zskip.layouts import typed_json
from zskip.layouts.assignment_checks import check_assignment, integers
from zskip.layouts.cell_lookup import CellLookup, Grid
from zskip.layouts.cells import CellFiles, Cells, ThresholdTree, collapse
from zskip.layouts.row_order import SlabLevel, arrange, slabs
from zskip.layouts.sample import Sample
from zskip.stats.keys import Boundaries, row_hashes

__all__ = ["Assignment"]

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
    def _lookup(self) -> CellLookup:
        return CellLookup.of(self.tree, self.code_counts)

    @property
    def code_counts(self) -> tuple[int, ...]:
        """The number of codes of each column: one for NULL, one for each interval between boundaries."""
        return tuple(len(boundaries) + 2 for boundaries in self.boundaries)

    def grid(self, most_entries: int) -> Grid:
        """The top of the tree as a table of at most ``most_entries``; see `Grid`."""
        return Grid.of(self.tree, self.code_counts, most_entries)

    def cell_of(self, rows: pa.Table | pa.RecordBatch) -> NDArray[np.int32]:
        """The cell of each row."""
        schema = Schema(rows.schema)
        return self._lookup.cells(
            [
                boundaries.codes(schema.column(path).of(rows))
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
                    "boundaries": typed_json.encode(path, boundaries.values),
                    "quantiles": typed_json.encode(path, quantiles.values),
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

        Raises `UnsupportedFormat` if a newer zskip wrote it. Input that `to_json` cannot have returned raises an error
        of Python or Arrow: `ValueError`, `TypeError`, `LookupError`, `ArithmeticError`, `AttributeError` or
        `ArrowException`.
        """
        typed_json.require_format(tree, _FORMAT)
        columns, nodes, cells = tree["columns"], tree["tree"], tree["cells"]
        assignment = Assignment(
            tree["layout"],
            tuple(column["path"] for column in columns),
            tuple(float(column["weight"]) for column in columns),
            tuple(Boundaries(typed_json.decode(column["boundaries"])) for column in columns),
            ThresholdTree(*(integers(nodes[key], np.int32) for key in ("column", "threshold", "below", "above"))),
            CellFiles(
                integers(cells["first"], np.int64), integers(cells["salt"], np.int64), operator.index(tree["files"])
            ),
            tuple(Boundaries(typed_json.decode(column["quantiles"])) for column in columns),
            tree["reason"],
        )
        if not isinstance(assignment.layout, str) or not isinstance(assignment.reason, str):
            raise TypeError("layout and reason must be strings")
        check_assignment(
            assignment.columns,
            assignment.weights,
            assignment.boundaries,
            assignment.quantiles,
            assignment.tree,
            assignment.cells,
        )
        return assignment


def _quantiles(sample: Sample, column: int) -> pa.Array:
    """The distinct values of a sample's column at its 64-quantiles."""
    cdf = sample.cdf[column]
    codes = np.unique(np.searchsorted(cdf, np.arange(1, _QUANTILES) / _QUANTILES, side="right"))
    codes = codes[(codes >= 1) & (codes <= len(sample.distinct[column]))]
    return sample.distinct[column].take(pa.array(codes - 1))
