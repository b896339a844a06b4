"""`fit`: a sample and a few wishes to an `Assignment`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from zskip.errors import InvalidOption, nearest
from zskip.layouts.assignment import Assignment
from zskip.layouts.cells import Cells
from zskip.layouts.curve import hilbert_cells, linear_cells, zorder_cells
from zskip.layouts.cuts import Bounds, plan_cuts
from zskip.layouts.reads import LookUps
from zskip.layouts.sample import Sample
from zskip.schema import Schema

__all__ = ["LAYOUTS", "fit"]

CELLS_PER_FILE = 8

LAYOUTS: Mapping[str, Callable[[Sample, float], Cells]] = {
    "auto": hilbert_cells,
    "hilbert": hilbert_cells,
    "zorder": zorder_cells,
    "linear": linear_cells,
}


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
    cells = LAYOUTS[layout](codes, max(1.0, bounds.target / CELLS_PER_FILE))
    reads = LookUps(codes, shares)
    cut = plan_cuts(cells.rows, codes.boxes(cells.cell, cells.tree.cells), reads, files, bounds)
    return Assignment.of(layout, codes, tuple(shares.tolist()), cells, cut)


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
