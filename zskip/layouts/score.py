"""`score`: what a layout is expected to read, per query and per column, by the cost that layouts minimise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.layouts.assignment import Assignment
from zskip.layouts.fitting import task_of

__all__ = ["Score", "score"]


@dataclass(frozen=True, slots=True)
class Score:
    """Shares from 0 to 1 of a table that is read; bytes go by rows, since a sample knows no compression.

    ``read``: the expected share of rows, over the whole cost; ``files``: the expected share of files;
    ``columns``: by path, the share of rows that a point look-up on it reads; ``queries``: one share of rows per
    query of the workload, in its order.
    """

    read: float
    files: float
    columns: Mapping[str, float]
    queries: tuple[float, ...]


def score(
    rows: pa.Table,
    file: Assignment | NDArray[np.int64],
    by: Sequence[str] | None,
    *,
    weights: Sequence[float] | None = None,
    workload: Sequence[str] | None = None,
) -> Score:
    """Score an assignment, or any numbering of the rows by file, on some rows: a sample, or all of them.

    >>> score(pa.table({"a": [1, 2, 3, 4]}), np.array([0, 0, 1, 1]), ["a"]).read
    0.5
    """
    number = file.assign(rows) if isinstance(file, Assignment) else file
    files = int(number.max(initial=0)) + 1
    task = task_of(rows, by, files=files, weights=weights, workload=workload, total_rows=max(1, rows.num_rows))
    boxes = task.sample.boxes(number, files)
    counts = np.bincount(number, minlength=files)
    share, filled = counts / max(1, counts.sum()), counts > 0
    read = task.reads(boxes)
    columns = {
        column.path: float((share * task.look_ups.extents(boxes, index)).sum())
        for index, column in enumerate(task.sample.columns)
        if task.look_ups.weights[index] > 0
    }
    queries = (task.queries.each(boxes) * share).sum(axis=1) if task.queries else np.empty(0)
    return Score(
        float((share * read).sum()),
        float(read[filled].mean()) if filled.any() else 0.0,
        columns,
        tuple(queries.tolist()),
    )
