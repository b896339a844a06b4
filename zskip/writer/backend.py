"""`Backend`: the engine that reads and writes the rows of a change. Commits do not depend on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from zskip.engines.arrow import to_batches
from zskip.scan import Scan
from zskip.schema import Schema
from zskip.storage import Storage, open_storage
from zskip.tablelog import Index
from zskip.writer.open_source import open_source
from zskip.writer.options import WriteOptions
from zskip.writer.paths import stored_rows
from zskip.writer.routing import Routing
from zskip.writer.row_sample import RowSample
from zskip.writer.row_source import RowSource, of_reader
from zskip.writer.write import Written, available_cores, write_files

__all__ = ["LOCAL", "Backend", "Rows"]


class Rows(Protocol):
    """Rows to be written, in an engine's form. ``schema``: as `storable_schema` returns it."""

    @property
    def schema(self) -> pa.Schema: ...


@dataclass(frozen=True, slots=True)
class Backend:
    """The functions that differ between this machine and a cluster.

    ``storage(url, storage_options)``: a table's folder · ``opened(source, storage_options)``: the rows of a caller's
    source · ``scanned(scan)``: the rows that a scan selects · ``stored(index, numbers)``: the rows of some of a table's
    files · ``sampled(rows, columns, size, total, seed)``: about ``size`` of ``total`` rows, with these top-level
    columns · ``write(rows, storage, schema, options, routing, rows_per_file, slots)``: as `write_files`; after an error
    no file is left · ``each(storage, work, items, options)``: what ``work``, which reads files of the storage and
    pickles, returns of each item, in their order.

    ``recuts_at_once``: whether optimize rewrites all groups of files in one write, as a cluster should, or one by one.
    """

    storage: Callable[[str | os.PathLike[str], Mapping[str, Any] | None], Storage]
    opened: Callable[[Any, Mapping[str, Any] | None], Rows]
    scanned: Callable[[Scan], Rows]
    stored: Callable[[Index, np.ndarray], Rows]
    sampled: Callable[[Any, Sequence[str], int, int, int], pa.Table]
    write: Callable[
        [Any, Storage, Schema, WriteOptions, Routing | None, int | None, Sequence[tuple[int, int]] | None],
        Written,
    ]
    each: Callable[[Storage, Callable[[Any], Any], Sequence[Any], WriteOptions], Generator[Any, None, None]]
    recuts_at_once: bool


def _scanned(scan: Scan) -> RowSource:
    return of_reader(pa.RecordBatchReader.from_batches(scan.schema.arrow, to_batches(scan)))


def _stored(index: Index, numbers: np.ndarray) -> RowSource:
    return stored_rows(index.storage, index.snapshot, index.paths(numbers).to_pylist())


def _sampled(source: RowSource, columns: Sequence[str], size: int, total: int, seed: int) -> pa.Table:
    sample = RowSample(size, seed, total)
    rows = 0
    for part in source.parts(columns):
        table = part().select(columns)
        sample.add(table, rows)
        rows += table.num_rows
    found = sample.rows()
    return pa.schema([source.schema.field(name) for name in columns]).empty_table() if found is None else found


def _write(
    source: RowSource,
    storage: Storage,
    schema: Schema,
    options: WriteOptions,
    routing: Routing | None,
    rows_per_file: int | None,
    slots: Sequence[tuple[int, int]] | None,
) -> Written:
    return write_files(source, storage, schema, options, routing, rows_per_file, slots=slots)


def _each(
    storage: Storage, work: Callable[[Any], Any], items: Sequence[Any], options: WriteOptions
) -> Generator[Any, None, None]:
    with ThreadPoolExecutor(options.threads or available_cores(), thread_name_prefix="zskip-each") as pool:
        try:
            yield from pool.map(work, items)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


LOCAL = Backend(open_storage, open_source, _scanned, _stored, _sampled, _write, _each, recuts_at_once=False)
