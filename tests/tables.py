"""Small tables for tests: rows sorted by one column, cut into files and row groups, with exact statistics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.plan import Plan
from zskip.plan.planner import plan
from zskip.stats import DataFiles, Ranges, Statistics, collect
from zskip.storage import open_storage
from zskip.tablelog.commit import commit
from zskip.tablelog.index import Index
from zskip.tablelog.snapshot import FORMAT


def build_table(
    folder: Path,
    rows: pa.Table,
    *,
    by: str | None = None,
    files: int = 8,
    row_group_rows: int = 50,
    managed: bool = True,
) -> Index:
    """Write rows as ``files`` Parquet files by pyarrow, commit their statistics, and open the index."""
    folder.mkdir(parents=True)
    schema = Schema(rows.schema)
    ordered = rows if by is None else rows.take(pa.compute.sort_indices(rows.column(by)))
    cuts = np.linspace(0, len(ordered), files + 1).astype(np.int64)
    group_cuts: list[int] = []
    first = [0]
    paths = [f"part-{number:05d}.parquet" for number in range(files)]
    for path, start, end in zip(paths, cuts[:-1], cuts[1:], strict=True):
        pq.write_table(ordered.slice(start, end - start), folder / path, row_group_size=row_group_rows)
        group_cuts += range(start, end, row_group_rows)
        first.append(len(group_cuts))
    found = [(folder / path).stat() for path in paths]
    data = DataFiles(
        pa.array(paths),
        pa.array([one.st_size for one in found]),
        pa.array([one.st_mtime_ns for one in found]),
        pa.nulls(files, pa.string()),
        collect.row_groups(ordered, cuts, schema),
        collect.row_groups(ordered, np.array([*group_cuts, len(ordered)]), schema),
        np.array(first),
    )
    storage = open_storage(str(folder))
    return Index(storage, commit(storage, None, "write", add=data, schema=schema, managed=managed))


def ranges_of(lower: pa.Array, upper: pa.Array | None = None, *, null: bool | Sequence[bool] = False) -> Ranges:
    """Units that hold values from ``lower`` to ``upper``, or ``lower`` alone, no NaN, and NULL where ``null``."""
    count = len(lower)
    yes, no = pa.array([True] * count), pa.array([False] * count)
    has_null = pa.array([null] * count if isinstance(null, bool) else null)
    return Ranges(lower, lower if upper is None else upper, yes, has_null, no)


def statistics_of(**columns: Ranges) -> Statistics:
    """Units of nine rows each, with the ranges of their columns."""
    return Statistics(pa.array([9] * len(next(iter(columns.values())))), columns)


def signed_entry(body: bytes, form: int = FORMAT) -> bytes:
    """An entry of the log that holds this as its snapshot, with a right checksum."""
    return b'{"zskip":%d,"xxh3_128":"%s","snapshot":%s}' % (form, xxhash.xxh3_128_hexdigest(body).encode(), body)


def plan_of(index: Index, where: str, **options: object) -> Plan:
    """The plan of a predicate over a whole index."""
    return plan(index, bind(where, index.snapshot.schema, **options))  # type: ignore[arg-type]


def sorted_rows(rows: pa.Table | Sequence[tuple[object, ...]]) -> list[str]:
    """Rows as comparable text in an order of their own; NaN equals itself."""
    listed = rows if not isinstance(rows, pa.Table) else list(zip(*(c.to_pylist() for c in rows.columns), strict=True))
    return sorted(repr(tuple(row)) for row in listed)


def whole_scan(con: duckdb.DuckDBPyConnection, rows: pa.Table, where: str) -> pa.Table:
    """The rows of an Arrow table for which DuckDB finds the predicate TRUE."""
    con.register("whole_scan_rows", rows)
    return con.sql(f"SELECT * FROM whole_scan_rows WHERE {where}").to_arrow_table().cast(rows.schema)
