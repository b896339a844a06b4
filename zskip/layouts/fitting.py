"""`fit`: learn an `Assignment` from a sample of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from zskip.errors import InvalidOption, nearest
from zskip.layouts.assignment import Assignment
from zskip.layouts.cells import CellFiles, Cells, hilbert_cells, linear_cells, zorder_cells
from zskip.layouts.cuts import plan_cuts
from zskip.layouts.fitting_task import Task, task_of
from zskip.layouts.greedy_tree import tree_cells
from zskip.layouts.reads import Sample
from zskip.layouts.score import scored
from zskip.layouts.tiles import tile

CELLS_PER_FILE = 8

Fit = Callable[[Task], tuple[Cells, CellFiles]]


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

    ``by``: clustering columns, by default the workload's columns · ``files``: the greatest number of files (the
    assignment has fewer only if there are fewer rows, or if no cuts within the bounds give as many) · ``weights``: how
    often each column is looked up, relative to the others · ``workload``: predicates or SELECT statements like the
    expected queries; the layout may cut by their columns too · ``total_rows``: the number of rows that the sample
    represents.

    Raises `InvalidOption`, `UnknownColumn`, `NotOrderable`, `SqlError`.
    """
    if layout not in LAYOUTS:
        raise InvalidOption(f'There is no layout "{layout}".{nearest(layout, LAYOUTS)}')
    if files < 1:
        raise InvalidOption(f"files={files}: a table has at least one file.")
    return fitted(task_of(sample, by, files=files, weights=weights, workload=workload, total_rows=total_rows), layout)


def fitted(task: Task, layout: str) -> Assignment:
    """Fit the layout of this name to a task."""
    if layout == "auto":
        layout, (cells, files), reason = _cheapest(task)
    else:
        (cells, files), reason = LAYOUTS[layout](task), "as asked for"
    return Assignment.of(layout, task.sample, tuple(task.look_ups.weights.tolist()), cells, files, reason)


def _cheapest(task: Task) -> tuple[str, tuple[Cells, CellFiles], str]:
    """The candidate of the lowest cost, fitted, and the reason for it: the costs of all candidates."""
    fits = {name: LAYOUTS[name](task) for name in _CANDIDATES}
    costs = {name: _cost(task, cells, files) for name, (cells, files) in fits.items()}
    best = min(costs, key=lambda name: costs[name])
    ranking = ", ".join(f"{name} {cost:.4f}" for name, cost in sorted(costs.items(), key=lambda pair: pair[1]))
    unit = "bytes" if task.queries else "rows"
    return best, fits[best], f"{best}: the least of the {unit} expected to be read on the sample ({ranking})"


def _cost(task: Task, cells: Cells, files: CellFiles) -> float:
    # A row of a salted cell may go to any of its files, so each of these files has the box of the whole cell.
    file = files.first[cells.cell] + np.arange(task.sample.rows) % files.salt[cells.cell]
    return scored(task, file, files.files).cost


def _with_planned_cuts(cells_of: Callable[[Task, float], Cells]) -> Fit:
    """Fit small cells by a rule, then group them into files. ``cells_of``: takes the task and the rows per cell."""

    def fit_cells(task: Task) -> tuple[Cells, CellFiles]:
        cells = cells_of(task, max(1.0, task.bounds.target / CELLS_PER_FILE))
        boxes = task.sample.boxes(cells.cell, cells.tree.cells)
        weights = np.bincount(cells.cell, task.row_weights, minlength=cells.tree.cells)
        return cells, plan_cuts(cells.rows, weights, boxes, task.reads, task.files, task.bounds)

    return fit_cells


def _clustering_columns(task: Task) -> Sample:
    """The sample without the columns that only the workload names: curves use only the clustering columns."""
    return task.sample.select(range(int(np.flatnonzero(task.look_ups.weights).max()) + 1))


_CANDIDATES = ("tiles", "tree")

LAYOUTS: Mapping[str, Fit] = {
    "auto": lambda task: _cheapest(task)[1],
    "tiles": lambda task: tile(task.sample, task.look_ups, task.files, task.bounds),
    "tree": _with_planned_cuts(
        lambda task, rows: tree_cells(
            task.sample, rows, task.reads, task.queries.borders if task.queries else None, task.row_weights
        )
    ),
    "hilbert": _with_planned_cuts(lambda task, rows: hilbert_cells(_clustering_columns(task), rows)),
    "zorder": _with_planned_cuts(lambda task, rows: zorder_cells(_clustering_columns(task), rows)),
    "linear": _with_planned_cuts(lambda task, rows: linear_cells(_clustering_columns(task), rows)),
}
