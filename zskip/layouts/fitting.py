"""`fit`: a sample and a few wishes to an `Assignment`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from zskip.errors import InvalidOption, nearest
from zskip.layouts.assignment import Assignment
from zskip.layouts.cells import Cells, Files
from zskip.layouts.curve import hilbert_cells, linear_cells, zorder_cells
from zskip.layouts.cuts import Bounds, plan_cuts
from zskip.layouts.reads import LookUps, share_read
from zskip.layouts.sample import Sample
from zskip.layouts.tiles import tile
from zskip.layouts.tree import tree_cells
from zskip.schema import Schema

__all__ = ["LAYOUTS", "fit"]

CELLS_PER_FILE = 8

Fitted = Callable[[Sample, LookUps, int, Bounds], tuple[Cells, Files]]


def fit(
    sample: pa.Table,
    by: Sequence[str] | None,
    *,
    layout: str = "auto",
    files: int,
    weights: Sequence[float] | None = None,
    workload: Sequence[str] | None = None,
    total_rows: int,
) -> Assignment:
    """Fit a layout on a sample of rows: 100 to 400 a file are enough.

    ``by``: clustering columns; ``files``: how many files at most (the assignment has fewer only where there are fewer
    rows, or where no cuts within the bounds make as many); ``weights``: how often each column is asked for, relative;
    ``total_rows``: how many rows the sample stands for. Raises `InvalidOption`, `UnknownColumn`, `NotOrderable`.
    """
    if layout not in LAYOUTS:
        raise InvalidOption(f'There is no layout "{layout}".{nearest(layout, LAYOUTS)}')
    if files < 1:
        raise InvalidOption(f"files={files}: a table has at least one file.")
    if not by:
        raise InvalidOption("by= names no column. Name at least one column to cluster by.")
    columns = Schema(sample.schema).orderable(by)
    shares = _weights(weights, len(columns))
    codes = Sample.of(sample, columns)
    files = max(1, min(files, codes.rows, total_rows))
    bounds = Bounds.of(max(codes.rows, 1), max(total_rows, 1), files)
    look_ups = LookUps(codes, shares)
    if layout == "auto":
        layout, (cells, cut), reason = _cheapest(codes, look_ups, files, bounds)
    else:
        (cells, cut), reason = LAYOUTS[layout](codes, look_ups, files, bounds), "as asked for"
    return Assignment.of(layout, codes, tuple(shares.tolist()), cells, cut, reason)


def _cheapest(sample: Sample, look_ups: LookUps, files: int, bounds: Bounds) -> tuple[str, tuple[Cells, Files], str]:
    """The candidate that is expected to read the least of the sample, and what was expected of each."""
    fitted = {name: LAYOUTS[name](sample, look_ups, files, bounds) for name in _CANDIDATES}
    read = {name: share_read(sample, look_ups, cells, cut) for name, (cells, cut) in fitted.items()}
    best = min(read, key=lambda name: read[name])
    expected = ", ".join(f"{name} {share:.4f}" for name, share in sorted(read.items(), key=lambda pair: pair[1]))
    return best, fitted[best], f"{best}: the least of the rows expected to be read on the sample ({expected})"


def _planned(cells_of: Callable[[Sample, float, LookUps], Cells]) -> Fitted:
    def fitted(sample: Sample, look_ups: LookUps, files: int, bounds: Bounds) -> tuple[Cells, Files]:
        cells = cells_of(sample, max(1.0, bounds.target / CELLS_PER_FILE), look_ups)
        return cells, plan_cuts(cells.rows, sample.boxes(cells.cell, cells.tree.cells), look_ups, files, bounds)

    return fitted


def _weights(weights: Sequence[float] | None, columns: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if weights is None:
        return np.full(columns, 1 / columns)
    given = np.array(weights, float)
    if len(given) != columns or not np.isfinite(given).all() or (given < 0).any() or not given.sum():
        raise InvalidOption(
            f"weights={list(weights)}: give one number for each of the {columns} columns of by=, none below 0, "
            "at least one above."
        )
    shares: np.ndarray[tuple[int], np.dtype[np.float64]] = given / given.sum()
    return shares


_CANDIDATES = ("tiles", "tree")

LAYOUTS: Mapping[str, Fitted] = {
    "auto": lambda *given: _cheapest(*given)[1],
    "tiles": tile,
    "tree": _planned(tree_cells),
    "hilbert": _planned(lambda sample, cell_rows, _: hilbert_cells(sample, cell_rows)),
    "zorder": _planned(lambda sample, cell_rows, _: zorder_cells(sample, cell_rows)),
    "linear": _planned(lambda sample, cell_rows, _: linear_cells(sample, cell_rows)),
}
