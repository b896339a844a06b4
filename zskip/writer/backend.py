"""`Backend`: the engine that reads and writes the rows of a change. Commits are the same for every engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from zskip.core import late_loading
from zskip.core.schema import Schema
from zskip.engines.arrow import count, to_batches
from zskip.language.clocks import Clocks
from zskip.parquet.legacy_calendar import refuse_old_values_of_files
from zskip.plan.scan import Scan
from zskip.storage import Staged, Storage, open_storage
from zskip.tablelog.index import Index
from zskip.writer.look_ups import ReadLookUps
from zskip.writer.open_source import open_source, session_of
from zskip.writer.options import WriteOptions
from zskip.writer.paths import rows_of_files
from zskip.writer.row_source import RowSource, of_reader
from zskip.writer.write import Written, write_files


class Rows(Protocol):
    """Rows to write, in an engine's own form. ``schema``: storable, as `storable_schema` returns it."""

    @property
    def schema(self) -> pa.Schema: ...


@dataclass(frozen=True, slots=True)
class Backend:
    """The functions that differ between this machine and a cluster.

    ``open_storage(url, storage_options)``: the storage of a table's folder · ``open_rows(source, storage_options)``:
    the rows of a caller's source · ``rows_of_scan(scan, schema)``: the rows that a scan selects, of these
    types, which differ from the scan's own in INT96 columns · ``count(scan)``: how many rows it selects ·
    ``rows_of_files(index, numbers)``: the rows of some files of a table ·
    ``write(rows, storage, schema, options, look_ups, staged)``: write data files as `write_files` does ·
    ``map(storage, function, items, options)``: the result of a function for each item, in their order; the function can
    be pickled and reads files of the storage · ``timezone()``: of predicates in the engine's own SQL; raises
    `InvalidOption` if Python does not know the session's · ``clocks``: of its time zones, None for DuckDB's.
    """

    open_storage: Callable[[str | os.PathLike[str], Mapping[str, Any] | None], Storage]
    open_rows: Callable[[Any, Mapping[str, Any] | None], Rows]
    rows_of_scan: Callable[[Scan, pa.Schema], Rows]
    count: Callable[[Scan], int]
    rows_of_files: Callable[[Index, np.ndarray], Rows]
    write: Callable[[Any, Storage, Schema, WriteOptions, ReadLookUps | None, Staged], Written]
    map: Callable[[Storage, Callable[[Any], Any], Sequence[Any], WriteOptions], Generator[Any, None, None]]
    timezone: Callable[[], str]
    clocks: Clocks | None = None


def _rows_of_scan(scan: Scan, schema: pa.Schema) -> RowSource:
    own = scan.schema.arrow
    if not scan.managed:
        refuse_old_values_of_files(scan.storage, scan.relative_paths, own)
    rows = to_batches(scan)
    if schema != own:
        # DuckDB would take the clocks of INT96 for those of its session's zone; Arrow takes them for UTC.
        rows = (batch.cast(schema) for batch in rows)
    return of_reader(pa.RecordBatchReader.from_batches(schema, rows))


def _rows_of_files(index: Index, numbers: np.ndarray) -> RowSource:
    snapshot, paths = index.snapshot, index.paths(numbers).to_pylist()
    return rows_of_files(index.storage, snapshot.schema.arrow, snapshot.partition_by, paths)


def _map(
    storage: Storage, function: Callable[[Any], Any], items: Sequence[Any], options: WriteOptions
) -> Generator[Any, None, None]:
    with ThreadPoolExecutor(options.cores, thread_name_prefix="zskip-map") as pool:
        try:
            yield from pool.map(function, items)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


LOCAL = Backend(open_storage, open_source, _rows_of_scan, count, _rows_of_files, write_files, _map, lambda: "UTC")


def backend_of(session: Any, source: Any = None) -> Backend:
    """This machine, or the cluster of a Spark session. A Spark DataFrame as the source brings its own session."""
    if session is None:
        session = session_of(source)
    found: Backend = LOCAL if session is None else late_loading.engine("spark session").backend(session)
    return found
