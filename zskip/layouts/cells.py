"""Cells: boxes in layout order. A tree of thresholds assigns each row to one.

Those of Z-order, Hilbert and linear order are prefixes of a curve's key over quantile ranks: boxes with dyadic
boundaries. Each bit of the key halves one column; the curve determines which one, and which half comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from zskip.curves import Orientation
from zskip.layouts.reads import Sample

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class ThresholdTree:
    """Node i leads to ``above[i]`` if a row's code in ``column[i]`` is >= ``threshold[i]``, else to ``below[i]``.

    A child is the number of a node, or ~c for the cell c. A tree without nodes is the single cell 0.
    """

    column: NDArray[np.int32]
    threshold: NDArray[np.int32]
    below: NDArray[np.int32]
    above: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.column)

    @property
    def cells(self) -> int:
        return len(self) + 1


@dataclass(frozen=True, slots=True)
class Cells:
    """A tree over the codes of a sample, and the cell of each sampled row. Cells are numbered in layout order."""

    tree: ThresholdTree
    cell: NDArray[np.int32]

    @property
    def rows(self) -> NDArray[np.int64]:
        """How many sampled rows each cell holds."""
        return np.bincount(self.cell, minlength=self.tree.cells)


@dataclass(frozen=True, slots=True)
class CellFiles:
    """The files of each cell: its rows go to file ``first``, or by their hash to one of ``salt`` files from there on.

    ``files``: the number of files.
    """

    first: NDArray[np.int64]
    salt: NDArray[np.int64]
    files: int


class Split(NamedTuple):
    """A cell cut in two by a threshold.

    ``upper_first``: whether the upper side comes first in layout order · ``below``, ``above``: the state that the rule
    gets for each side.
    """

    column: int
    threshold: int
    upper_first: bool
    below: object
    above: object


def grow(sample: Sample, rule: Callable[[NDArray[np.intp], State], Split | None], start: State) -> Cells:
    """Split cells depth first, one at a time, until the rule returns None for each.

    ``rule(rows, state)``: the split of the cell that holds these sampled rows; both sides must get rows.
    """
    column: list[int] = []
    threshold: list[int] = []
    children: list[list[int]] = []
    cell = np.zeros(sample.rows, np.int32)
    cells = 0
    # Rows, the rule's state, and the parent node and its side under which this cell or node is entered.
    waiting: list[tuple[NDArray[np.intp], object, int, int]] = [(np.arange(sample.rows), start, -1, 0)]
    while waiting:
        rows, state, parent, side = waiting.pop()
        split = rule(rows, state)  # type: ignore[arg-type]  # the state is the one that this rule returned
        if split is None:
            number = ~cells
            cell[rows] = cells
            cells += 1
        else:
            number = len(column)
            column.append(split.column)
            threshold.append(split.threshold)
            children.append([0, 0])
            high = sample.codes[split.column][rows] >= split.threshold
            sides = [(rows[~high], split.below, number, 0), (rows[high], split.above, number, 1)]
            waiting.extend(sides if split.upper_first else reversed(sides))
        if parent >= 0:
            children[parent][side] = number
    below, above = np.array(children, np.int32).reshape(-1, 2).T
    tree = ThresholdTree(np.array(column, np.int32), np.array(threshold, np.int32), below.copy(), above.copy())
    return Cells(tree, cell)


def collapse(tree: ThresholdTree, files: CellFiles) -> tuple[ThresholdTree, CellFiles]:
    """The same assignment with fewer nodes: a node whose cells all go to one file becomes a single cell."""
    nodes = len(tree)
    # Children follow their parents, so a backward pass visits them first. ``file``: the file of all cells below a node,
    # or -1 if they go to several files.
    file = np.where(files.salt == 1, files.first, -1)
    only_file = np.full(nodes, -1, np.int64)
    for node in range(nodes - 1, -1, -1):
        below, above = int(tree.below[node]), int(tree.above[node])
        file_below = file[~below] if below < 0 else only_file[below]
        if file_below >= 0 and file_below == (file[~above] if above < 0 else only_file[above]):
            only_file[node] = file_below
    remaining = np.flatnonzero(only_file < 0)
    number = np.cumsum(only_file < 0) - 1
    first: list[int] = []
    salt: list[int] = []
    children = np.zeros((len(remaining), 2), np.int32)
    for new, node in enumerate(remaining.tolist()):
        for side, child in enumerate((int(tree.below[node]), int(tree.above[node]))):
            if child >= 0 and only_file[child] < 0:
                children[new, side] = number[child]
            else:
                children[new, side] = ~len(first)
                first.append(int(files.first[~child] if child < 0 else only_file[child]))
                salt.append(int(files.salt[~child]) if child < 0 else 1)
    if not len(remaining):
        first, salt = [int(files.first[0])], [int(files.salt[0])]
    small = ThresholdTree(
        tree.column[remaining], tree.threshold[remaining], children[:, 0].copy(), children[:, 1].copy()
    )
    return small, CellFiles(np.array(first, np.int64), np.array(salt, np.int64), files.files)


_MOST_HALVINGS = 50


def zorder_cells(sample: Sample, cell_rows: float) -> Cells:
    """Prefixes of the Z-order key, extended until each holds at most ``cell_rows`` sampled rows or a single point."""
    return _curve_cells(sample, cell_rows, lambda orientation, digit: orientation)


def hilbert_cells(sample: Sample, cell_rows: float) -> Cells:
    """Prefixes of the Hilbert key; see `zorder_cells`."""
    return _curve_cells(sample, cell_rows, Orientation.below)


def linear_cells(sample: Sample, cell_rows: float) -> Cells:
    """Runs of the rows in lexicographic order; where possible, equal values of a column share a cell."""

    def rule(rows: NDArray[np.intp], _: None) -> Split | None:
        if len(rows) <= cell_rows:
            return None
        for column, codes in enumerate(sample.codes):
            ordered = np.sort(codes[rows])
            if ordered[0] == ordered[-1]:
                continue
            middle = ordered[len(ordered) // 2]
            starts, ends = np.searchsorted(ordered, middle), np.searchsorted(ordered, middle, side="right")
            # Cut before or after the median value, whichever is nearer to an even cut and leaves rows on both sides.
            at_start = starts and (len(ordered) - ends < starts or ends == len(ordered))
            threshold = middle if at_start else ordered[ends]
            return Split(column, int(threshold), False, None, None)
        return None

    return grow(sample, rule, None)


@dataclass(frozen=True, slots=True)
class _Prefix:
    """A prefix of the key: its box of quantile ranks, the curve's orientation in it, and the bits of its last,
    incomplete digit."""

    box: tuple[tuple[float, float], ...]
    orientation: Orientation
    digit: tuple[int, ...] = ()

    def halved(self, column: int, upper: bool, key_bit: int, below: Callable[..., Orientation]) -> _Prefix:
        """The prefix with one more bit, which halves ``column``. ``below``: gives the orientation in a sub-cube."""
        low, high = self.box[column]
        middle = (low + high) / 2
        box = (*self.box[:column], (middle, high) if upper else (low, middle), *self.box[column + 1 :])
        digit = (*self.digit, key_bit)
        if len(digit) < len(box):
            return replace(self, box=box, digit=digit)
        return _Prefix(box, below(self.orientation, digit))


def _curve_cells(sample: Sample, cell_rows: float, below: Callable[..., Orientation]) -> Cells:
    columns = len(sample.columns)
    ranks = [sample.ranks(column) for column in range(columns)]
    hilbert = below is Orientation.below

    def rule(rows: NDArray[np.intp], prefix: _Prefix) -> Split | None:
        if len(rows) <= cell_rows:
            return None
        lowest = [int(codes[rows].min()) for codes in sample.codes]
        highest = [int(codes[rows].max()) for codes in sample.codes]
        if lowest == highest:
            return None
        for _ in range(_MOST_HALVINGS * columns):
            position = len(prefix.digit)
            column = prefix.orientation.axes[position]
            upper_first = hilbert and prefix.orientation.upper_first(position, prefix.digit[-1] if position else 0)
            threshold = int(np.searchsorted(ranks[column], sum(prefix.box[column]) / 2))
            if lowest[column] < threshold <= highest[column]:
                down = prefix.halved(column, False, int(upper_first), below)
                up = prefix.halved(column, True, int(not upper_first), below)
                return Split(column, threshold, upper_first, down, up)
            upper = threshold <= lowest[column]  # all rows lie in one half
            prefix = prefix.halved(column, upper, int(upper != upper_first), below)
        return None

    return grow(sample, rule, _Prefix(((0.0, 1.0),) * columns, Orientation.first(columns)))
