"""`check_assignment`: whether an assignment that was read from JSON is one that `Assignment.of` could have made.

Descents end since children follow their parents; look-ups stay in bounds since every number is below its count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zskip.keys import Boundaries, dense_codes
from zskip.layouts.cells import Files, ThresholdTree

__all__ = ["check_assignment", "integers"]

_MOST_FILES = 1 << 28  # as many as a table has


def check_assignment(
    columns: Sequence[str],
    weights: Sequence[float],
    boundaries: Sequence[Boundaries],
    quantiles: Sequence[Boundaries],
    tree: ThresholdTree,
    cells: Files,
) -> None:
    """Check the fields of an `Assignment`. Raises `ValueError`, `TypeError` or an error of Arrow's."""
    _require(all(isinstance(path, str) for path in columns), "columns have paths")
    _require(len(set(columns)) == len(columns) > 0, "there is a column, and none is repeated")
    _require(all(math.isfinite(weight) and weight >= 0 for weight in weights), "weights are 0 or more")
    for path, values, cuts in zip(columns, boundaries, quantiles, strict=True):
        _require(_is_sorted(values) and _is_sorted(cuts), f'the values of "{path}" are sorted and distinct')
    nodes = len(tree)
    _require(len(tree.threshold) == len(tree.below) == len(tree.above) == nodes, "nodes have a column and two children")
    _require(_within(tree.column, 0, len(columns)), "nodes compare columns that there are")
    counts = np.array([len(values) + 2 for values in boundaries])
    _require(bool(((tree.threshold >= 1) & (tree.threshold < counts[tree.column])).all()), "thresholds are codes")
    for side in (tree.below, tree.above):
        _require(_within(side, -len(cells.first), nodes), "children are nodes or cells that there are")
        _require(bool(((side < 0) | (side > np.arange(nodes))).all()), "children follow their parents")
    _require(len(cells.first) == len(cells.salt) > 0, "there is a cell, and each has a file")
    _require(0 < cells.files <= _MOST_FILES, f"a layout has 1 to {_MOST_FILES:,} files")
    _require(_within(cells.first, 0, cells.files) and _within(cells.salt, 1, cells.files + 1), "cells have such files")
    _require(bool((cells.first + cells.salt <= cells.files).all()), "cells have such files")


def integers(values: Any, type: type[np.signedinteger[Any]]) -> NDArray[Any]:
    """A list of whole numbers as an array. Raises `ValueError` for anything else, and for a number beyond the type."""
    array = np.array(values if isinstance(values, list) else None)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, type)
    if array.ndim != 1 or array.dtype.kind != "i":
        raise ValueError("a list of whole numbers is expected")
    _require(_within(array, np.iinfo(type).min, np.iinfo(type).max), "numbers are of a usual size")
    return array.astype(type)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"not so: {what}")


def _within(numbers: NDArray[Any], least: int, end: int) -> bool:
    return bool(((numbers >= least) & (numbers < end)).all())


def _is_sorted(boundaries: Boundaries) -> bool:
    codes = dense_codes(boundaries.values)[0]
    return bool((codes == np.arange(1, len(codes) + 1)).all())
