"""`fit`: a sample and a few wishes to an `Assignment`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.errors import InvalidOption, nearest
from zskip.layouts.assignment import Assignment
from zskip.layouts.cells import Cells, Files
from zskip.layouts.curve import hilbert_cells, linear_cells, zorder_cells
from zskip.layouts.cuts import Bounds, plan_cuts
from zskip.layouts.reads import LookUps, Reads, share_read
from zskip.layouts.sample import Sample
from zskip.layouts.tiles import tile
from zskip.layouts.tree import tree_cells
from zskip.layouts.workload import Queries
from zskip.predicate import bind
from zskip.predicate.sql.workload import conditions
from zskip.schema import Schema

__all__ = ["LAYOUTS", "fit"]

CELLS_PER_FILE = 8

Fitted = Callable[["Task"], tuple[Cells, Files]]


@dataclass(frozen=True, slots=True)
class Task:
    """What a layout is fitted to: the sample, what a query costs, how many files of which size."""

    sample: Sample
    look_ups: LookUps
    queries: Queries | None
    files: int
    bounds: Bounds

    @property
    def reads(self) -> Reads:
        """The cost that is minimised."""
        return self.queries or self.look_ups


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

    ``by``: clustering columns; without them a workload's columns. ``files``: how many files at most (the assignment
    has fewer only where there are fewer rows, or where no cuts within the bounds make as many); ``weights``: how often
    each column is asked for, relative; ``workload``: predicates or SELECT statements that stand for the queries to
    come, whose columns may be cut too; ``total_rows``: how many rows the sample stands for.

    Raises `InvalidOption`, `UnknownColumn`, `NotOrderable`, `SqlError`.
    """
    if layout not in LAYOUTS:
        raise InvalidOption(f'There is no layout "{layout}".{nearest(layout, LAYOUTS)}')
    if files < 1:
        raise InvalidOption(f"files={files}: a table has at least one file.")
    task = task_of(sample, by, files=files, weights=weights, workload=workload, total_rows=total_rows)
    if layout == "auto":
        layout, (cells, cut), reason = _cheapest(task)
    else:
        (cells, cut), reason = LAYOUTS[layout](task), "as asked for"
    return Assignment.of(layout, task.sample, tuple(task.look_ups.weights.tolist()), cells, cut, reason)


def task_of(
    sample: pa.Table,
    by: Sequence[str] | None,
    *,
    files: int,
    weights: Sequence[float] | None,
    workload: Sequence[str] | None,
    total_rows: int,
) -> Task:
    """The sample as codes and the cost as a function of boxes."""
    schema = Schema(sample.schema)
    predicates = [bind(condition, schema) for text in workload or () for condition in conditions(text, schema)]
    asked = dict.fromkeys(path for predicate in predicates for path in sorted(predicate.columns))
    extra = [path for path in asked if schema.columns[path].orderable]
    if not by and not extra:
        raise InvalidOption("by= names no column, and no workload filters on one. Name a column to cluster by.")
    columns = schema.orderable(by or extra)
    shares = _weights(weights, len(columns))
    beside = [schema.columns[path] for path in extra if path not in {column.path for column in columns}]
    codes = Sample.of(sample, [*columns, *beside])
    look_ups = LookUps(codes, np.concatenate([shares, np.zeros(len(beside))]))
    files = max(1, min(files, codes.rows, total_rows))
    bounds = Bounds.of(max(codes.rows, 1), max(total_rows, 1), files)
    queries = Queries.of(codes, predicates, look_ups) if predicates else None
    return Task(codes, look_ups, queries, files, bounds)


def _cheapest(task: Task) -> tuple[str, tuple[Cells, Files], str]:
    """The candidate that is expected to read the least of the sample, and what was expected of each."""
    fitted = {name: LAYOUTS[name](task) for name in _CANDIDATES}
    read = {name: share_read(task.sample, task.reads, cells, cut) for name, (cells, cut) in fitted.items()}
    best = min(read, key=lambda name: read[name])
    expected = ", ".join(f"{name} {share:.4f}" for name, share in sorted(read.items(), key=lambda pair: pair[1]))
    return best, fitted[best], f"{best}: the least of the rows expected to be read on the sample ({expected})"


def _planned(cells_of: Callable[[Task, float], Cells]) -> Fitted:
    def fitted(task: Task) -> tuple[Cells, Files]:
        cells = cells_of(task, max(1.0, task.bounds.target / CELLS_PER_FILE))
        boxes = task.sample.boxes(cells.cell, cells.tree.cells)
        return cells, plan_cuts(cells.rows, boxes, task.reads, task.files, task.bounds)

    return fitted


def _weights(weights: Sequence[float] | None, columns: int) -> NDArray[np.float64]:
    if weights is None:
        return np.full(columns, 1 / columns)
    given = np.array(weights, float)
    if len(given) != columns or not np.isfinite(given).all() or (given < 0).any() or not given.sum():
        raise InvalidOption(
            f"weights={list(weights)}: give one number for each of the {columns} columns of by=, none below 0, "
            "at least one above."
        )
    shares: NDArray[np.float64] = given / given.sum()
    return shares


def _only_by(task: Task) -> Sample:
    """The sample without columns that only the workload names: a curve has no use for them."""
    count = int(np.flatnonzero(task.look_ups.weights).max()) + 1
    sample = task.sample
    return Sample(
        sample.columns[:count], sample.codes[:count], sample.low[:count], sample.distinct[:count], sample.reach[:count]
    )


_CANDIDATES = ("tiles", "tree")

LAYOUTS: Mapping[str, Fitted] = {
    "auto": lambda task: _cheapest(task)[1],
    "tiles": lambda task: tile(task.sample, task.look_ups, task.files, task.bounds),
    "tree": _planned(
        lambda task, rows: tree_cells(task.sample, rows, task.reads, task.queries.borders if task.queries else None)
    ),
    "hilbert": _planned(lambda task, rows: hilbert_cells(_only_by(task), rows)),
    "zorder": _planned(lambda task, rows: zorder_cells(_only_by(task), rows)),
    "linear": _planned(lambda task, rows: linear_cells(_only_by(task), rows)),
}
