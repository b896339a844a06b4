"""`check_assignment`: reject an assignment read from JSON that `Assignment.of` could not have made.

Once it is checked, descents end, since children follow their parents, and every index is within bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zskip.layouts.cells import CellFiles, ThresholdTree
from zskip.stats.keys import Boundaries, dense_codes

__all__ = ["check_assignment", "integers"]

_MOST_FILES = 1 << 28  # the most files of a table


def check_assignment(
    columns: Sequence[str],
    weights: Sequence[float],
    boundaries: Sequence[Boundaries],
    quantiles: Sequence[Boundaries],
    tree: ThresholdTree,
    cells: CellFiles,
) -> None:
    """Check the fields of an `Assignment`. Raises `ValueError`, `TypeError` or an error of Arrow's."""
    _require(all(isinstance(path, str) for path in columns), "column paths must be strings")
    _require(len(set(columns)) == len(columns) > 0, "columns must be distinct, and at least one")
    _require(all(math.isfinite(weight) and weight >= 0 for weight in weights), "weights must be finite and at least 0")
    for path, values, cuts in zip(columns, boundaries, quantiles, strict=True):
        _require(_is_sorted(values) and _is_sorted(cuts), f'the values of "{path}" must be sorted and distinct')
    nodes = len(tree)
    _require(
        len(tree.threshold) == len(tree.below) == len(tree.above) == nodes,
        "each node must have a column, a threshold and two children",
    )
    _require(_within(tree.column, 0, len(columns)), "nodes must compare columns of the layout")
    counts = np.array([len(values) + 2 for values in boundaries])
    _require(
        bool(((tree.threshold >= 1) & (tree.threshold < counts[tree.column])).all()),
        "thresholds must be codes of their column",
    )
    for side in (tree.below, tree.above):
        _require(_within(side, -len(cells.first), nodes), "children must be nodes or cells of the tree")
        _require(bool(((side < 0) | (side > np.arange(nodes))).all()), "children must follow their parents")
    _require(len(cells.first) == len(cells.salt) > 0, "each cell must have a first file and a salt")
    _require(0 < cells.files <= _MOST_FILES, f"the number of files must be 1 to {_MOST_FILES:,}")
    _require(
        _within(cells.first, 0, cells.files)
        and _within(cells.salt, 1, cells.files + 1)
        and bool((cells.first + cells.salt <= cells.files).all()),
        "the files of a cell must be files of the layout",
    )


def integers(values: Any, type: type[np.signedinteger[Any]]) -> NDArray[Any]:
    """A list of integers as an array. Raises `ValueError` for anything else, and for a number beyond the type."""
    array = np.array(values if isinstance(values, list) else None)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, type)
    if array.ndim != 1 or array.dtype.kind != "i":
        raise ValueError("expected a list of integers")
    _require(_within(array, np.iinfo(type).min, np.iinfo(type).max), f"integers must fit in {np.dtype(type)}")
    return array.astype(type)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _within(numbers: NDArray[Any], least: int, end: int) -> bool:
    return bool(((numbers >= least) & (numbers < end)).all())


def _is_sorted(boundaries: Boundaries) -> bool:
    codes = dense_codes(boundaries.values)[0]
    return bool((codes == np.arange(1, len(codes) + 1)).all())
