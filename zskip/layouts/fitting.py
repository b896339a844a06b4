"""`fit`: learn an `Assignment` from a sample of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from zskip.errors import InvalidOption, nearest
from zskip.layouts.assignment import Assignment
from zskip.layouts.cells import Cells, Files
from zskip.layouts.curve import hilbert_cells, linear_cells, zorder_cells
from zskip.layouts.cuts import plan_cuts
from zskip.layouts.greedy_tree import tree_cells
from zskip.layouts.sample import Sample
from zskip.layouts.score import scored
from zskip.layouts.task import Task, task_of
from zskip.layouts.tiles import tile

__all__ = ["LAYOUTS", "fit", "fitted"]

CELLS_PER_FILE = 8

Fitted = Callable[[Task], tuple[Cells, Files]]


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
    """Fit a layout to a sample of rows: 100 to 400 rows per file are enough.

    ``by``: clustering columns, by default the workload's columns · ``files``: the most files (the assignment has fewer
    only where there are fewer rows, or where no cuts within the bounds make as many) · ``weights``: how often each
    column is looked up, relative to the others · ``workload``: predicates or SELECT statements like the expected
    queries, whose columns may be cut too · ``total_rows``: the number of rows that the sample represents.

    Raises `InvalidOption`, `UnknownColumn`, `NotOrderable`, `SqlError`.
    """
    if layout not in LAYOUTS:
        raise InvalidOption(f'There is no layout "{layout}".{nearest(layout, LAYOUTS)}')
    if files < 1:
        raise InvalidOption(f"files={files}: a table has at least one file.")
    return fitted(task_of(sample, by, files=files, weights=weights, workload=workload, total_rows=total_rows), layout)


def fitted(task: Task, layout: str) -> Assignment:
    """The layout of this name for a task."""
    if layout == "auto":
        layout, (cells, cut), reason = _cheapest(task)
    else:
        (cells, cut), reason = LAYOUTS[layout](task), "as asked for"
    return Assignment.of(layout, task.sample, tuple(task.look_ups.weights.tolist()), cells, cut, reason)


def _cheapest(task: Task) -> tuple[str, tuple[Cells, Files], str]:
    """The candidate that is expected to read the least of the sample, and the reason: what each is expected to read."""
    each = {name: LAYOUTS[name](task) for name in _CANDIDATES}
    read = {name: _expected(task, cells, cut) for name, (cells, cut) in each.items()}
    best = min(read, key=lambda name: read[name])
    expected = ", ".join(f"{name} {share:.4f}" for name, share in sorted(read.items(), key=lambda pair: pair[1]))
    unit = "bytes" if task.queries else "rows"
    return best, each[best], f"{best}: the least of the {unit} expected to be read on the sample ({expected})"


def _expected(task: Task, cells: Cells, files: Files) -> float:
    # Rows of a salted cell lie in any of its files, so each of these files has the box of all of them.
    file = files.first[cells.cell] + np.arange(task.sample.rows) % files.salt[cells.cell]
    return scored(task, file, files.files).cost


def _planned(cells_of: Callable[[Task, float], Cells]) -> Fitted:
    def cut(task: Task) -> tuple[Cells, Files]:
        cells = cells_of(task, max(1.0, task.bounds.target / CELLS_PER_FILE))
        boxes = task.sample.boxes(cells.cell, cells.tree.cells)
        held = np.bincount(cells.cell, task.row_weights, minlength=cells.tree.cells)
        return cells, plan_cuts(cells.rows, held, boxes, task.reads, task.files, task.bounds)

    return cut


def _only_by(task: Task) -> Sample:
    """The sample without the columns that only the workload names: curves use only the clustering columns."""
    return task.sample.in_order(range(int(np.flatnonzero(task.look_ups.weights).max()) + 1))


_CANDIDATES = ("tiles", "tree")

LAYOUTS: Mapping[str, Fitted] = {
    "auto": lambda task: _cheapest(task)[1],
    "tiles": lambda task: tile(task.sample, task.look_ups, task.files, task.bounds),
    "tree": _planned(
        lambda task, rows: tree_cells(
            task.sample, rows, task.reads, task.queries.borders if task.queries else None, task.row_weights
        )
    ),
    "hilbert": _planned(lambda task, rows: hilbert_cells(_only_by(task), rows)),
    "zorder": _planned(lambda task, rows: zorder_cells(_only_by(task), rows)),
    "linear": _planned(lambda task, rows: linear_cells(_only_by(task), rows)),
}
