"""polars: a table as a LazyFrame that prunes itself.

polars passes the filters that it pushes down to the table. They prune the files, and are applied to the rows: in
polars' own `scan_parquet` if that returns the table's rows.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from zskip.api import open as open_table
from zskip.binder.bind_condition import provable_part
from zskip.core import types as t
from zskip.errors import CorruptFile, MissingDependency
from zskip.plan.plan import in_polars
from zskip.plan.scan import Scan
from zskip.table import Table

try:
    import polars as pl
    from polars.io.plugins import register_io_source
except ImportError as error:
    raise MissingDependency('This needs polars 2.1 or later: pip install "zskip[polars]"') from error

__all__ = ["scan"]


def scan(
    path: str | os.PathLike[str] | Table,
    *,
    version: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pl.LazyFrame:
    """A LazyFrame over a table, at one of its versions.

    Raises `TableNotFound`, and `SchemaError` for a column that polars cannot hold.

    Comparisons, IN, ranges, tests for NULL and NaN, and text searches in polars' filters prune files; polars applies
    all other conditions to the rows. The frame stays at its version of the table.
    """
    table = path if isinstance(path, Table) else open_table(path, version=version, storage_options=storage_options)
    table = copy.copy(table)  # changes to the caller's table move that one on
    schema = in_polars(t.empty_table(table.schema)).schema

    def rows(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        # The limit comes first: the predicate selects among so many rows of the table.
        proves = predicate is not None and limit is None
        proof = provable_part(predicate, table._index.snapshot.schema) if proves else None
        survivors = table.plan(proof).scan.unfiltered()
        wanted = schema.names() if columns is None else columns
        if not len(survivors):
            yield pl.DataFrame(schema={name: schema[name] for name in wanted})
        elif table._index.snapshot.uniform and survivors.storage.local is not None and not survivors.partition_by:
            yield from _native(survivors, schema, wanted, predicate, limit)
        else:
            yield from _converted(survivors, schema, wanted, predicate, limit)

    return register_io_source(rows, schema=schema)


def _native(
    survivors: Scan, schema: pl.Schema, wanted: list[str], predicate: pl.Expr | None, limit: int | None
) -> Iterator[pl.DataFrame]:
    """The rows by polars' own reader, for files that all have exactly the table's columns and types."""
    for path in survivors.paths:
        if os.path.isdir(path):  # polars would read what lies in it, or nothing
            raise CorruptFile(f"{path} is a folder, where the table has a file. Put the file back.")
    # polars' own use of statistics loses rows where integers overflow, and the plan has pruned already.
    lazy = pl.scan_parquet(survivors.paths, glob=False, hive_partitioning=False, use_statistics=False)
    stored = lazy.collect_schema()
    lazy = lazy.cast({name: type for name, type in schema.items() if stored[name] != type})
    lazy = lazy if limit is None else lazy.head(limit)
    lazy = lazy if predicate is None else lazy.filter(predicate)
    if wanted:
        yield from lazy.select(wanted).collect_batches(maintain_order=True)
    else:  # a selection of no column loses the number of rows
        yield pl.DataFrame(height=lazy.select(pl.len()).collect().item())


def _converted(
    survivors: Scan, schema: pl.Schema, wanted: list[str], predicate: pl.Expr | None, limit: int | None
) -> Iterator[pl.DataFrame]:
    """The rows by zskip's reader."""
    named = {*wanted, *(predicate.meta.root_names() if predicate is not None else ())}
    for batch in survivors.to_batches([name for name in schema if name in named]):
        frame = pl.DataFrame(pa.Table.from_batches([batch])) if named else pl.DataFrame(height=batch.num_rows)
        frame = frame if limit is None else frame.head(limit)
        limit = None if limit is None else limit - len(frame)
        frame = frame if predicate is None else frame.filter(predicate)
        chosen = frame.select(wanted) if wanted else pl.DataFrame(height=len(frame))
        yield chosen.cast({name: schema[name] for name in wanted})
        if limit == 0:
            return
