"""Peers of benchmarks/layouts.py: the same rows as others cluster them, in as nearly as many files as they allow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from layout_cases import Case

ATTEMPTS = 4


def duckdb_linear(rows: pa.Table, case: Case, folder: Path) -> None:
    """Linear order as anyone would make it: ORDER BY the columns, cut at equal counts."""
    columns = ", ".join(f'"{name}"' for name in case.by or case.peers_by)
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.register("rows", rows)
        ordered = connection.sql(f"SELECT * FROM rows ORDER BY {columns}").to_arrow_table()
    size = -(-len(ordered) // case.files)
    for number in range(case.files):
        part = ordered.slice(number * size, size)
        pq.write_table(part, folder / f"{number:05}.parquet", row_group_size=case.row_group_rows)


def delta_z_order(rows: pa.Table, case: Case, folder: Path) -> None:
    """delta-rs, its z_order, with a target size that gives about as many files."""
    from deltalake import DeltaTable, WriterProperties, write_deltalake

    rows = rows.rename_columns([plain_name(name) for name in rows.column_names])
    by = [plain_name(name) for name in case.by or case.peers_by]
    properties = WriterProperties(max_row_group_size=case.row_group_rows) if case.row_group_rows else None
    write_deltalake(str(folder), rows)
    size = float(sum(path.stat().st_size for path in folder.glob("*.parquet")))
    for _ in range(ATTEMPTS):
        table = DeltaTable(str(folder))
        table.optimize.z_order(by, target_size=max(1, int(size / case.files)), writer_properties=properties)
        table = DeltaTable(str(folder))
        files = len(table.file_uris())
        if 0.8 * case.files <= files <= 1.25 * case.files:
            break
        size *= files / case.files
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def plain_name(name: str) -> str:
    """A column's name for delta-rs, which takes a dot for a field of a struct.

    >>> plain_name('"id.orig_h"')
    'id_orig_h'
    """
    return name.replace(".", "_").replace('"', "")


PEERS: dict[str, Callable[[pa.Table, Case, Path], None]] = {
    "ORDER BY (DuckDB)": duckdb_linear,
    "z_order (delta-rs)": delta_z_order,
}
