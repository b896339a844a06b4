"""Grafting: the files of an assignment are cut further, each by an assignment of its own, and all of it is one again.

trunk    row ──▶ file 0, 1, 2, …           the tree of a table, which its appends follow
part     file 1 ──▶ [ 0 │ 1 ]              a fit to the rows of that file
grafted  row ──▶ 0, 1 or 2                 the part's tree stands where the file's cells stood
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.keys import Boundaries, dense_codes
from zskip.layouts.assignment import Assignment
from zskip.layouts.cells import Files, ThresholdTree

__all__ = ["Trunk", "grafted"]


@dataclass(frozen=True)
class Trunk:
    """An assignment of which some files are to be cut further."""

    assignment: Assignment

    @cached_property
    def _spans(self) -> tuple[list[int], list[int]]:
        """By node, the first and the last file below it."""
        tree, cells = self.assignment.tree, self.assignment.cells
        least, most = cells.first.tolist(), (cells.first + cells.salt - 1).tolist()
        low, high = [0] * len(tree), [0] * len(tree)
        # children stand after their parents
        for node in range(len(tree) - 1, -1, -1):
            below, above = int(tree.below[node]), int(tree.above[node])
            low[node] = min(low[c] if c >= 0 else least[~c] for c in (below, above))
            high[node] = max(high[c] if c >= 0 else most[~c] for c in (below, above))
        return low, high

    def pruned(self, wanted: NDArray[np.bool_]) -> Assignment:
        """The part of the tree that leads to the wanted files, of which there is one at least.

        A row of another file goes to any of them. A cell that is spread over several files goes to the first of them.
        """
        tree, cells = self.assignment.tree, self.assignment.cells
        low, high = self._spans
        upto = np.concatenate([[0], np.cumsum(wanted)]).tolist()
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
                ways = [int(way[child]) for way in (tree.below, tree.above)]
                on = [way for way in ways if reaches(way)]
                if len(on) == 1:
                    waiting.append((on[0], parent, side))
                    continue
                number = len(nodes)
                nodes.append(child)
                children.append([0, 0])
                waiting += [(ways[1], number, 1), (ways[0], number, 0)]
            if parent >= 0:
                children[parent][side] = number
        below, above = np.array(children, np.int32).reshape(-1, 2).T
        small = ThresholdTree(tree.column[nodes], tree.threshold[nodes], below.copy(), above.copy())
        first = np.array([_first_wanted(int(least[leaf]), int(most[leaf]), wanted) for leaf in leaves], np.int64)
        files = Files(first, np.ones(len(leaves), np.int64), cells.files)
        like = self.assignment
        return Assignment(
            like.layout, like.columns, like.weights, like.boundaries, small, files, like.quantiles, like.reason
        )


def _first_wanted(first: int, last: int, wanted: NDArray[np.bool_]) -> int:
    return first + int(wanted[first : last + 1].argmax())


def grafted(
    trunk: Assignment, part_of: NDArray[np.int64], parts: Sequence[Assignment | None], first: Sequence[int], files: int
) -> Assignment:
    """One assignment of ``files`` files: each file of the trunk goes on through the tree of its part.

    ``part_of``: by file of the trunk, the number of its part, which several files may share · ``first``: the number of
    each part's first file; a part that is None is one file.
    """
    whole = [part for part in parts if part is not None]
    columns = list(dict.fromkeys(path for one in (trunk, *whole) for path in one.columns))
    drawn = [_Drawn.of([_boundaries(one, path) for one in (trunk, *whole)]) for path in columns]
    number_of = np.cumsum([part is not None for part in parts])  # 0 is the trunk
    column, threshold = _moved(trunk, 0, columns, drawn)
    nodes: list[tuple[NDArray[np.int32], ...]] = []
    firsts: list[NDArray[np.int64]] = []
    salts: list[NDArray[np.int64]] = []
    node, cell = len(trunk.tree), 0
    instead = np.empty(len(trunk.cells.first), np.int32)  # of each cell of the trunk: a node, or ~ a cell
    moved: dict[int, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}
    for leaf, number in enumerate(part_of[trunk.cells.first].tolist()):
        part = parts[number]
        if part is None:
            instead[leaf] = ~cell
            firsts.append(np.array([first[number]], np.int64))
            salts.append(np.ones(1, np.int64))
            cell += 1
            continue
        if number not in moved:
            moved[number] = _moved(part, int(number_of[number]), columns, drawn)
        instead[leaf] = node if len(part.tree) else ~cell
        below, above = (np.where(way >= 0, way + node, way - cell) for way in (part.tree.below, part.tree.above))
        nodes.append((*moved[number], below.astype(np.int32), above.astype(np.int32)))
        firsts.append(part.cells.first + first[number])
        salts.append(part.cells.salt)
        node, cell = node + len(part.tree), cell + len(part.cells.first)
    ways = [np.where(way >= 0, way, instead[~np.minimum(way, -1)]) for way in (trunk.tree.below, trunk.tree.above)]
    tree = ThresholdTree(
        *(
            np.concatenate([own.astype(np.int32), *(each[place] for each in nodes)])
            for place, own in enumerate((column, threshold, *ways))
        )
    )
    # Inside a file rows are ordered by what its own fit knows of them, where there is one.
    own = [next(one for one in (*whole, trunk) if path in one.columns) for path in columns]
    return Assignment(
        trunk.layout,
        tuple(columns),
        tuple(trunk.weights[trunk.columns.index(path)] if path in trunk.columns else 0.0 for path in columns),
        tuple(Boundaries(one.values) for one in drawn),
        tree,
        Files(np.concatenate(firsts), np.concatenate(salts), files),
        tuple(one.quantiles[one.columns.index(path)] for one, path in zip(own, columns, strict=True)),
        trunk.reason,
    )


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The boundaries of one column, of several trees, as one; ``places``: by tree, where each of its own stands."""

    values: pa.Array
    places: list[NDArray[np.int32]]

    @staticmethod
    def of(each: list[pa.Array | None]) -> _Drawn:
        # The trunk may be of a time when the column was narrower.
        arrow = next(values.type for values in reversed(each) if values is not None)
        there = [pa.array([], arrow) if values is None else values.cast(arrow) for values in each]
        codes, distinct = dense_codes(pa.chunked_array(there))
        return _Drawn(distinct, np.split(codes - 1, np.cumsum([len(values) for values in there])[:-1]))


def _boundaries(assignment: Assignment, path: str) -> pa.Array | None:
    """The boundaries of a column that the tree's nodes name; None where it does not know the column."""
    if path not in assignment.columns:
        return None
    return assignment.boundaries[assignment.columns.index(path)].values


def _moved(
    assignment: Assignment, number: int, columns: Sequence[str], drawn: Sequence[_Drawn]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The columns and thresholds of a tree's nodes among the columns and boundaries of all."""
    place = np.array([columns.index(path) for path in assignment.columns], np.int32)
    tree = assignment.tree
    column, threshold = place[tree.column], tree.threshold.copy()
    for one in np.unique(column).tolist():
        # the threshold 1 parts NULL from the values, and names no boundary
        cuts = (column == one) & (tree.threshold >= 2)
        threshold[cuts] = drawn[one].places[number][tree.threshold[cuts] - 2] + 2
    return column, threshold
