"""`score`: how much a layout is expected to read, per query and per column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.layouts.assignment import Assignment
from zskip.layouts.sample import Boxes
from zskip.layouts.task import Task, task_of

__all__ = ["Score", "Share", "query_bytes", "score", "scored"]

_CHANCES_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Share:
    """What a query is expected to read of a table: shares of its rows, of its bytes and of its files, from 0 to 1.

    Bytes are those of the values in memory, in the columns that the query reads: compression is not known from a
    sample. A bare predicate reads all columns, and so does a look-up.
    """

    rows: float
    bytes: float
    files: float


@dataclass(frozen=True, slots=True)
class Score:
    """What a layout is expected to read.

    ``cost``: what layouts minimise, from 0 to 1: the expected share of the bytes that a workload reads in the columns
    of each query; without a workload, the share of the rows · ``read``, ``bytes``, ``files``: expected shares of the
    rows, bytes and files · ``columns``: for each path, the cost of a point look-up on it · ``queries``: the cost of
    each query of the workload, in its order · ``weights``: each query's part of the workload's bytes.
    """

    cost: float
    read: float
    bytes: float
    files: float
    columns: Mapping[str, Share]
    queries: tuple[Share, ...] = ()
    weights: tuple[float, ...] = ()


def score(
    rows: pa.Table,
    file: Assignment | NDArray[np.int64],
    by: Sequence[str] | None,
    *,
    weights: Sequence[float] | None = None,
    workload: Sequence[str] | None = None,
) -> Score:
    """Score an assignment, or given file numbers of the rows, on a sample of the rows or on all of them.

    >>> score(pa.table({"a": [1, 2, 3, 4]}), np.array([0, 0, 1, 1]), ["a"]).read
    0.5
    """
    number = file.assign(rows) if isinstance(file, Assignment) else file
    files = int(number.max(initial=0)) + 1
    total = max(1, rows.num_rows)
    task = task_of(rows, by, files=files, weights=weights, workload=workload, total_rows=total, most_queries=None)
    return scored(task, number, files)


def scored(task: Task, number: NDArray[np.int64], files: int) -> Score:
    """The score of a task's rows, given the file number of each."""
    boxes = task.sample.boxes(number, files)
    counts = np.bincount(number, minlength=files)
    # A file without rows is not written.
    parts = np.stack([_shares(part) for part in (counts, task.widths.by_file(number, files), counts > 0)])

    def share(read: NDArray[np.float64]) -> Share:
        return Share(*(parts @ read).tolist())

    columns = {
        column.path: share(task.look_ups.extents(boxes, index))
        for index, column in enumerate(task.sample.columns)
        if task.look_ups.weights[index] > 0
    }
    look_ups = share(task.look_ups(boxes))
    if task.queries is None:
        return Score(look_ups.rows, look_ups.rows, look_ups.bytes, look_ups.files, columns)
    own = _shares(task.widths.by_query(number, files))
    matched, expected = np.zeros((2, 3, len(own)))
    step = max(1, _CHANCES_AT_ONCE // max(1, len(own)))
    for start in range(0, files, step):
        some = slice(start, start + step)
        part = Boxes(boxes.lower[some], boxes.upper[some])
        for total, each in ((matched, task.queries.each(part)), (expected, task.queries.chances(part))):
            total[0] += each @ parts[0, some]
            total[1] += (each * own[:, some]).sum(axis=1)
            total[2] += each @ parts[2, some]
    prior, queries = task.queries.prior, task.queries.weights
    read, held, opened = (
        (1 - prior) * asked + prior * looked
        for asked, looked in (
            (float(expected[0].mean()), look_ups.rows),
            (float(queries @ expected[1]), look_ups.bytes),
            (float(expected[2].mean()), look_ups.files),
        )
    )
    found = tuple(Share(*shares) for shares in matched.T.tolist())
    return Score(held, read, held, opened, columns, found, tuple(queries.tolist()))


def query_bytes(task: Task, number: NDArray[np.int64], files: int, *, similar: bool = True) -> NDArray[np.float64]:
    """The share of bytes that each query of a task's workload reads, given the file number of each row.

    ``similar``: as expected of the query with its ranges shifted anywhere, to the part that layouts are fitted by;
    else of the query itself.
    """
    if task.queries is None:
        raise ValueError("the task has no workload")
    boxes, own = task.sample.boxes(number, files), _shares(task.widths.by_query(number, files))
    found = np.zeros(len(own))
    step = max(1, _CHANCES_AT_ONCE // max(1, len(own)))
    for start in range(0, files, step):
        some = slice(start, start + step)
        part = Boxes(boxes.lower[some], boxes.upper[some])
        read = task.queries.chances(part) if similar else task.queries.each(part)
        found += (read * own[:, some]).sum(axis=1)
    return found


def _shares(held: NDArray[np.float64] | NDArray[np.int64] | NDArray[np.bool_]) -> NDArray[np.float64]:
    """Each number's share of its row's sum."""
    total = held.sum(axis=-1, keepdims=True)
    shares: NDArray[np.float64] = held / np.where(total > 0, total, 1)
    return shares
