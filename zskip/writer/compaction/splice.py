"""Splice assignments: cut the files of one assignment further by other assignments, into a single new assignment.

trunk    row ──▶ file 0, 1, 2, …           the tree of a table, which its appends follow
part     file 1 ──▶ [ 0 │ 1 ]              a fit to the rows of that file
spliced  row ──▶ 0, 1 or 2                 the part's tree replaces the file's cells
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.core.offsets import offsets_of
from zskip.layouts.assignment import Assignment
from zskip.layouts.cells import CellFiles, ThresholdTree
from zskip.stats.keys import Boundaries, dense_codes

__all__ = ["Trunk", "spliced"]


@dataclass(frozen=True)
class Trunk:
    """An assignment whose files may be cut further."""

    assignment: Assignment

    @cached_property
    def _spans(self) -> tuple[list[int], list[int]]:
        """The first and the last file below each node."""
        tree, cells = self.assignment.tree, self.assignment.cells
        least, most = cells.first.tolist(), (cells.first + cells.salt - 1).tolist()
        low, high = [0] * len(tree), [0] * len(tree)
        # Children come after their parents.
        for node in range(len(tree) - 1, -1, -1):
            below, above = int(tree.below[node]), int(tree.above[node])
            low[node] = min(low[c] if c >= 0 else least[~c] for c in (below, above))
            high[node] = max(high[c] if c >= 0 else most[~c] for c in (below, above))
        return low, high

    def pruned(self, wanted: NDArray[np.bool_]) -> Assignment:
        """The part of the tree that leads to the wanted files, at least one.

        Rows of other files go to any of the wanted files. A cell that was spread over several files goes to the first
        wanted one.
        """
        tree, cells = self.assignment.tree, self.assignment.cells
        low, high = self._spans
        upto = offsets_of(wanted).tolist()
        least, most = cells.first, cells.first + cells.salt - 1

        def reaches(child: int) -> bool:
            first, last = (low[child], high[child]) if child >= 0 else (int(least[~child]), int(most[~child]))
            return bool(upto[last + 1] > upto[first])

        nodes: list[int] = []
        children: list[list[int]] = []
        leaves: list[int] = []
        waiting = [(0 if len(tree) else -1, -1, 0)]
        while waiting:
            child, parent, side = waiting.pop()
            if child < 0:
                number = ~len(leaves)
                leaves.append(~child)
            else:
                sides = [int(tree.below[child]), int(tree.above[child])]
                reaching = [one for one in sides if reaches(one)]
                if len(reaching) == 1:
                    waiting.append((reaching[0], parent, side))
                    continue
                number = len(nodes)
                nodes.append(child)
                children.append([0, 0])
                waiting += [(sides[1], number, 1), (sides[0], number, 0)]
            if parent >= 0:
                children[parent][side] = number
        below, above = np.array(children, np.int32).reshape(-1, 2).T
        small = ThresholdTree(tree.column[nodes], tree.threshold[nodes], below.copy(), above.copy())
        first = np.array([_first_wanted(int(least[leaf]), int(most[leaf]), wanted) for leaf in leaves], np.int64)
        files = CellFiles(first, np.ones(len(leaves), np.int64), cells.files)
        like = self.assignment
        return Assignment(
            like.layout, like.columns, like.weights, like.boundaries, small, files, like.quantiles, like.reason
        )


def _first_wanted(first: int, last: int, wanted: NDArray[np.bool_]) -> int:
    return first + int(wanted[first : last + 1].argmax())


def spliced(
    trunk: Assignment, part_of: NDArray[np.int64], parts: Sequence[Assignment | None], first: Sequence[int], files: int
) -> Assignment:
    """One assignment of ``files`` files, in which each file of the trunk is cut by the tree of its part.

    ``part_of``: for each file of the trunk, the number of its part, which several files may share · ``first``: the
    number of each part's first file. A part that is None is a single file.
    """
    fits = [part for part in parts if part is not None]
    columns = list(dict.fromkeys(path for one in (trunk, *fits) for path in one.columns))
    merged = [_MergedBoundaries.of([_boundaries(one, path) for one in (trunk, *fits)]) for path in columns]
    number_of = np.cumsum([part is not None for part in parts])  # 0 is the trunk
    column, threshold = _moved(trunk, 0, columns, merged)
    nodes: list[tuple[NDArray[np.int32], ...]] = []
    firsts: list[NDArray[np.int64]] = []
    salts: list[NDArray[np.int64]] = []
    node, cell = len(trunk.tree), 0
    replacement = np.empty(len(trunk.cells.first), np.int32)  # of each cell of the trunk: a node, or ~ a cell
    moved: dict[int, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}
    for leaf, number in enumerate(part_of[trunk.cells.first].tolist()):
        part = parts[number]
        if part is None:
            replacement[leaf] = ~cell
            firsts.append(np.array([first[number]], np.int64))
            salts.append(np.ones(1, np.int64))
            cell += 1
            continue
        if number not in moved:
            moved[number] = _moved(part, int(number_of[number]), columns, merged)
        replacement[leaf] = node if len(part.tree) else ~cell
        below, above = (np.where(side >= 0, side + node, side - cell) for side in (part.tree.below, part.tree.above))
        nodes.append((*moved[number], below.astype(np.int32), above.astype(np.int32)))
        firsts.append(part.cells.first + first[number])
        salts.append(part.cells.salt)
        node, cell = node + len(part.tree), cell + len(part.cells.first)
    sides = [
        np.where(side >= 0, side, replacement[~np.minimum(side, -1)]) for side in (trunk.tree.below, trunk.tree.above)
    ]
    tree = ThresholdTree(
        *(
            np.concatenate([own.astype(np.int32), *(each[place] for each in nodes)])
            for place, own in enumerate((column, threshold, *sides))
        )
    )
    # Rows inside a file are ordered by the quantiles of its own fit, if it has one.
    own = [next(one for one in (*fits, trunk) if path in one.columns) for path in columns]
    return Assignment(
        trunk.layout,
        tuple(columns),
        tuple(trunk.weights[trunk.columns.index(path)] if path in trunk.columns else 0.0 for path in columns),
        tuple(Boundaries(one.values) for one in merged),
        tree,
        CellFiles(np.concatenate(firsts), np.concatenate(salts), files),
        tuple(one.quantiles[one.columns.index(path)] for one, path in zip(own, columns, strict=True)),
        trunk.reason,
    )


@dataclass(frozen=True, slots=True)
class _MergedBoundaries:
    """The boundaries of one column in several trees, merged.

    ``places``: for each tree, the positions of its own boundaries among the merged ones.
    """

    values: pa.Array
    places: list[NDArray[np.int32]]

    @staticmethod
    def of(each: list[pa.Array | None]) -> _MergedBoundaries:
        # The trunk may have been fitted before the column was widened.
        arrow = next(values.type for values in reversed(each) if values is not None)
        lists = [pa.array([], arrow) if values is None else values.cast(arrow) for values in each]
        codes, distinct = dense_codes(pa.chunked_array(lists))
        return _MergedBoundaries(distinct, np.split(codes - 1, np.cumsum([len(values) for values in lists])[:-1]))


def _boundaries(assignment: Assignment, path: str) -> pa.Array | None:
    """An assignment's boundaries of a column; None if it does not use the column."""
    if path not in assignment.columns:
        return None
    return assignment.boundaries[assignment.columns.index(path)].values


def _moved(
    assignment: Assignment, number: int, columns: Sequence[str], merged: Sequence[_MergedBoundaries]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The columns and thresholds of a tree's nodes, renumbered for the merged columns and boundaries."""
    place = np.array([columns.index(path) for path in assignment.columns], np.int32)
    tree = assignment.tree
    column, threshold = place[tree.column], tree.threshold.copy()
    for one in np.unique(column).tolist():
        # The threshold 1 separates NULL from the values and is not a boundary.
        cuts = (column == one) & (tree.threshold >= 2)
        threshold[cuts] = merged[one].places[number][tree.threshold[cuts] - 2] + 2
    return column, threshold
