"""`score`: what a layout is expected to read, per query and per column, by the cost that layouts minimise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as t

from zskip.layouts.assignment import Assignment
from zskip.layouts.fitting import task_of

__all__ = ["Score", "Share", "score"]


@dataclass(frozen=True, slots=True)
class Share:
    """What a query is expected to read of a table: shares of its rows, bytes and files, from 0 to 1.

    Bytes are those of the values as they stand in memory, each row by its own width: a sample knows no compression.
    """

    rows: float
    bytes: float
    files: float


@dataclass(frozen=True, slots=True)
class Score:
    """What a layout is expected to read.

    ``read``, ``bytes``, ``files``: expected shares of the rows, bytes and files, over the whole cost; ``columns``: by
    path, what a point look-up on it reads; ``queries``: what each query of the workload reads, in its order.
    """

    read: float
    bytes: float
    files: float
    columns: Mapping[str, Share]
    queries: tuple[Share, ...]


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
    held = np.bincount(number, row_bytes(rows), minlength=files)
    # a file without rows is not written
    parts = np.stack([part / max(1, part.sum()) for part in (counts, held, counts > 0)])

    def share(read: NDArray[np.float64] | NDArray[np.bool_]) -> Share:
        return Share(*(parts @ read).tolist())

    columns = {
        column.path: share(task.look_ups.extents(boxes, index))
        for index, column in enumerate(task.sample.columns)
        if task.look_ups.weights[index] > 0
    }
    queries = tuple(share(matched) for matched in task.queries.each(boxes)) if task.queries else ()
    whole = share(task.reads(boxes))
    return Score(whole.rows, whole.bytes, whole.files, columns, queries)


def row_bytes(rows: pa.Table | pa.RecordBatch) -> NDArray[np.float64]:
    """How many bytes each row's values take; of nested columns each row has an even part.

    >>> row_bytes(pa.table({"number": pa.array([1, 2], pa.int16()), "text": ["a", "abc"]})).tolist()
    [3.0, 5.0]
    """
    widths: NDArray[np.float64] = np.zeros(rows.num_rows)
    for column in rows.columns:
        values = column.cast(column.type.value_type) if t.is_dictionary(column.type) else column
        if t.is_primitive(values.type) or t.is_decimal(values.type) or t.is_fixed_size_binary(values.type):
            widths += values.type.bit_width / 8
        elif t.is_null(values.type) or not len(values):
            continue
        elif t.is_nested(values.type):
            widths += values.nbytes / len(values)
        else:
            text = values.cast(pa.large_binary())
            widths += np.asarray(pc.fill_null(pc.binary_length(text), 0), np.float64)
    return widths
