"""From codes to cells, for many rows at once: a table look-up replaces the top of the tree, a descent does the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zskip.layouts.cells import ThresholdTree
from zskip.stats.keys import Codes

__all__ = ["CellLookup", "Grid"]

_ROWS_AT_ONCE = 1 << 15
_GRID_ENTRIES = 1 << 17


@dataclass(frozen=True, slots=True)
class Grid:
    """The top of a tree as a table: for each combination of coarse codes, the node at which the descent continues.

    ``coarse``: for each column, the coarse code of each code · ``stride``: for each column, the distance in ``node``
    between neighbouring coarse codes. A row's entry is ``node[sum(coarse[c][code[c]] * stride[c] for c in columns)]``:
    the number of a node, or ``len(tree) + cell`` if the table decides the cell.
    """

    coarse: tuple[NDArray[np.int32], ...]
    stride: tuple[int, ...]
    node: NDArray[np.int32]

    @staticmethod
    def of(tree: ThresholdTree, code_counts: Sequence[int], most_entries: int) -> Grid:
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
        return Grid(tuple(coarse), tuple(stride), node)


@dataclass(frozen=True, slots=True)
class CellLookup:
    """A tree prepared for many rows: node i leads to ``child[2 * i + 1]`` for codes >= its threshold, else to
    ``child[2 * i]``. Cells are numbered after the nodes.

    ``steps``: for each column and code, its summand in the index into the grid · ``grid_decides``: whether every entry
    of the grid is a cell.
    """

    grid: Grid
    steps: tuple[NDArray[np.int32], ...]
    column: NDArray[np.intp]
    threshold: NDArray[np.int32]
    child: NDArray[np.intp]
    grid_decides: bool

    @staticmethod
    def of(tree: ThresholdTree, code_counts: Sequence[int]) -> CellLookup:
        """``code_counts``: the number of codes of each column."""
        sides = np.stack([tree.below, tree.above], axis=1).reshape(-1)
        child = np.where(sides < 0, len(tree) + ~sides, sides).astype(np.intp)
        grid = Grid.of(tree, code_counts, _GRID_ENTRIES)
        steps = tuple((c * s).astype(np.int32) for c, s in zip(grid.coarse, grid.stride, strict=True))
        grid_decides = bool((grid.node >= len(tree)).all())
        return CellLookup(grid, steps, tree.column.astype(np.intp), tree.threshold, child, grid_decides)

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
