"""Compare layouts on a sample of a table's rows, with a user's queries as the workload."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zskip import layouts
from zskip.bench.queries import tables_of
from zskip.bench.report import LayoutScore
from zskip.binder.workload_sql import is_query, table_query, translated
from zskip.engines.duckdb.relation import planned_scan
from zskip.errors import InvalidOption
from zskip.layouts import Share
from zskip.plan import find_survivors
from zskip.tablelog import Index

if TYPE_CHECKING:
    import duckdb

__all__ = ["compare"]

_SAMPLE_ROWS = 200_000


def compare(
    index: Index, con: duckdb.DuckDBPyConnection, queries: Sequence[str], names: Sequence[str]
) -> tuple[tuple[LayoutScore, ...], bool]:
    """The scores of the layouts, for as many files as the table has, best first; and whether queries were held out.

    Layouts are fitted to every other query and scored on the rest, then the other way round; a single query serves
    both. Rows are held out in the same way.
    """
    schema = index.snapshot.schema
    workload = [text for query in queries if table_query(text := _condition_or_select(index, query), schema)]
    if not workload:
        raise InvalidOption("There is nothing to compare layouts by: no query has a condition on the table.")
    held_out = len(workload) > 1
    folds = [(workload[::2], workload[1::2]), (workload[1::2], workload[::2])] if held_out else [(workload, workload)]
    sample = _sample(index, con)
    rows = np.arange(sample.num_rows)
    halves = sample.take(rows[::2]), sample.take(rows[1::2])
    scores = [_score(name, index, halves, folds) for name in dict.fromkeys(names)]
    return tuple(sorted(scores, key=lambda one: (-one.bytes, -one.rows, -one.files))), held_out


def _condition_or_select(index: Index, query: str) -> str:
    return translated(query, tables_of(index, query), "zskip_bench", into="duckdb") if is_query(query) else query


def _score(
    name: str, index: Index, halves: tuple[pa.Table, pa.Table], folds: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> LayoutScore:
    record, files = index.snapshot.layout, max(1, len(index))
    by = list(record.columns) if record is not None else None
    fitted_rows, judged_rows = halves
    total = index.snapshot.totals.rows or fitted_rows.num_rows
    seconds = 0.0
    read: list[Share] = []
    for fitted_to, judged_by in folds:
        start = time.perf_counter()
        assignment = layouts.fit(fitted_rows, by, layout=name, files=files, workload=fitted_to, total_rows=total)
        seconds += time.perf_counter() - start
        read += layouts.score(judged_rows, assignment, by, workload=judged_by).queries
    bytes_, rows, opened = (
        1 - float(np.mean(shares)) for shares in zip(*((one.bytes, one.rows, one.files) for one in read), strict=True)
    )
    return LayoutScore(name, bytes_, rows, opened, seconds / len(folds))


def _sample(index: Index, con: duckdb.DuckDBPyConnection) -> pa.Table:
    scan = planned_scan(find_survivors(index, None).scan, con, None)
    sampling = f"FROM ({scan.sql}) USING SAMPLE reservoir({_SAMPLE_ROWS} ROWS) REPEATABLE (1)"
    return con.sql(sampling, params=dict(scan.parameters)).to_arrow_table().cast(index.snapshot.schema.arrow)
