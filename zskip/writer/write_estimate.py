"""Estimate how long a write takes, by writing samples."""

from __future__ import annotations

import tempfile
import time

import pyarrow as pa

from zskip.core.schema import Schema
from zskip.layouts import Assignment
from zskip.storage import Staged, open_storage
from zskip.writer.open_source import open_source
from zskip.writer.options import WriteOptions
from zskip.writer.routing import Routing
from zskip.writer.storable import storable_schema
from zskip.writer.write import write_files

_MOST_ROWS = 160_000


def seconds_to_write(sample: pa.Table, assignment: Assignment, total_rows: int) -> float:
    """An estimate of the seconds to write ``total_rows`` rows like the sample on this machine, without reading them.

    It writes the sample to a temporary folder, then several copies of it, until that takes twice as long. The
    difference is the cost of rows; the rest is the fixed cost of files.
    """
    rows = sample
    short = long = _seconds(rows, assignment)
    while long < 2 * short and 0 < rows.num_rows < min(total_rows, _MOST_ROWS):
        rows = pa.concat_tables([rows] * 4)
        long = _seconds(rows, assignment)
    per_row = (long - short) / max(1, rows.num_rows - sample.num_rows)
    return float(max(0.0, short + per_row * (total_rows - sample.num_rows)))


def _seconds(rows: pa.Table, assignment: Assignment) -> float:
    """The seconds that writing some rows takes."""
    routing, schema = Routing((), ((),), (assignment,)), Schema(storable_schema(rows.schema))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        storage = open_storage(folder)
        staged = Staged(storage.delete)
        write_files(open_source(rows, None), storage, schema, WriteOptions(), None, staged, routing=routing)
        return time.perf_counter() - started
