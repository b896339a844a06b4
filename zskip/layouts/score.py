"""`score`: how much queries are expected to read under a layout, per query and per column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.layouts.assignment import Assignment
from zskip.layouts.fitting_task import Task, task_of
from zskip.layouts.reads import Boxes

_CHANCES_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Share:
    """The shares of a table's rows, bytes and files that a query is expected to read, from 0 to 1.

    Bytes are those of the values in memory, in the columns that the query reads, since a sample does not show how well
    they compress. A bare predicate reads all columns, and so does a look-up.
    """

    rows: float
    bytes: float
    files: float


@dataclass(frozen=True, slots=True)
class Score:
    """What queries are expected to read under a layout.

    ``cost``: what layouts minimise, from 0 to 1: with a workload the share of bytes, in the columns of each query;
    without one the share of rows · ``read``, ``bytes``, ``files``: expected shares of the rows, bytes and files ·
    ``columns``: for each path, the shares that a point look-up on it reads · ``queries``: the shares that each query of
    the workload reads, in its order · ``weights``: each query's part of the workload's bytes.
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
    """Score an assignment, or the file number of each row, on a sample of the rows or on all of them.

    ``by``, ``weights``, ``workload``: see `zskip.layouts.fit`, whose errors it raises.

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
    query_shares = _shares(task.widths.by_query(number, files))
    exact, similar = np.zeros((2, 3, len(query_shares)))
    for block, part in _blocks(boxes, len(query_shares)):
        for total, read in ((exact, task.queries.matches(part)), (similar, task.queries.chances(part))):
            total[0] += read @ parts[0, block]
            total[1] += (read * query_shares[:, block]).sum(axis=1)
            total[2] += read @ parts[2, block]
    prior, weights = task.queries.prior, task.queries.weights
    row_share, byte_share, file_share = (
        (1 - prior) * by_workload + prior * by_look_up
        for by_workload, by_look_up in (
            (float(similar[0].mean()), look_ups.rows),
            (float(weights @ similar[1]), look_ups.bytes),
            (float(similar[2].mean()), look_ups.files),
        )
    )
    queries = tuple(Share(*shares) for shares in exact.T.tolist())
    return Score(byte_share, row_share, byte_share, file_share, columns, queries, tuple(weights.tolist()))


def query_bytes(task: Task, number: NDArray[np.int64], files: int, *, similar: bool = True) -> NDArray[np.float64]:
    """The share of bytes that each query of a task's workload reads, given the file number of each row.

    ``similar``: average over the query itself and over the query with its ranges shifted, as layouts are fitted; else
    take the query itself. Raises `ValueError` for a task without a workload.
    """
    if task.queries is None:
        raise ValueError("the task has no workload")
    boxes, query_shares = task.sample.boxes(number, files), _shares(task.widths.by_query(number, files))
    total = np.zeros(len(query_shares))
    for block, part in _blocks(boxes, len(query_shares)):
        read = task.queries.chances(part) if similar else task.queries.matches(part)
        total += (read * query_shares[:, block]).sum(axis=1)
    return total


def _blocks(boxes: Boxes, queries: int) -> Iterator[tuple[slice, Boxes]]:
    """The boxes in blocks, which bound the memory for one number per query and box."""
    step = max(1, _CHANCES_AT_ONCE // max(1, queries))
    for start in range(0, len(boxes), step):
        block = slice(start, start + step)
        yield block, Boxes(boxes.lower[block], boxes.upper[block])


def _shares(amounts: NDArray[np.float64] | NDArray[np.int64] | NDArray[np.bool_]) -> NDArray[np.float64]:
    """Each amount's share of the sum of its row."""
    total = amounts.sum(axis=-1, keepdims=True)
    shares: NDArray[np.float64] = amounts / np.where(total > 0, total, 1)
    return shares
