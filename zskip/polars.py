"""polars: a table as a LazyFrame that prunes itself.

polars resolves the frame when it optimizes a query, and passes the filters that it pushes down. The filters prune the
files. polars applies them to the rows, in its own `scan_parquet` if that returns the table's rows.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import pyarrow as pa

from zskip.api import open as open_table
from zskip.binder.library_expressions import provable_part
from zskip.errors import MissingDependency
from zskip.language import conjunction
from zskip.plan.scan import Scan
from zskip.table import Table

try:
    import polars as pl
    from polars.io.plugins import register_io_source
    from polars.lazyframe.resolver import FilterExpr, LazyFrameResolver, ResolvedLazyFrameProps
except ImportError as error:
    raise MissingDependency('This needs polars 2.1 or later: pip install "zskip[polars]"') from error

__all__ = ["scan"]


def scan(
    path: str | os.PathLike[str] | Table,
    *,
    version: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pl.LazyFrame:
    """A LazyFrame over a table, at one of its versions. Raises `TableNotFound`.

    Comparisons, IN, ranges, tests for NULL and NaN, and text searches in polars' filters prune files; polars applies
    all other conditions to the rows. The frame stays at its version of the table.
    """
    table = path if isinstance(path, Table) else open_table(path, version=version, storage_options=storage_options)
    return _Resolver(copy.copy(table)).lazy()  # changes to the caller's table move that one on


class _Resolver(LazyFrameResolver):
    def __init__(self, table: Table) -> None:
        self._table = table
        self._schema = pl.DataFrame(table.schema.empty_table()).schema

    def schema(self) -> pl.Schema:
        return self._schema

    def resolve_lazyframe(self, *, filters: list[FilterExpr], **_: Any) -> tuple[pl.LazyFrame, ResolvedLazyFrameProps]:
        snapshot = self._table.snapshot
        proofs = [proof for one in filters if (proof := provable_part(one.expr, snapshot.schema)) is not None]
        survivors = self._table.plan(conjunction(proofs) if proofs else None).scan.unfiltered()
        if not len(survivors):
            found = pl.LazyFrame(schema=self._schema)
        elif snapshot.uniform and survivors.storage.local is not None and not survivors.partition_by:
            found = self._native(survivors)
        else:
            found = self._converted(survivors)
        # polars reuses the resolved frame for the next query if the version key is the same.
        return found, ResolvedLazyFrameProps(version_key=None if snapshot.managed else str(uuid4()))

    def _native(self, survivors: Scan) -> pl.LazyFrame:
        """The rows by polars' own reader, for files that all have exactly the table's columns and types."""
        lazy = pl.scan_parquet(survivors.paths, glob=False, hive_partitioning=False)
        stored = lazy.collect_schema()
        return lazy.cast({name: type for name, type in self._schema.items() if stored[name] != type})

    def _converted(self, survivors: Scan) -> pl.LazyFrame:
        """The rows by zskip's reader."""

        def rows(
            columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, _: int | None
        ) -> Iterator[pl.DataFrame]:
            wanted = self._schema.names() if columns is None else columns
            named = {*wanted, *(predicate.meta.root_names() if predicate is not None else ())}
            for batch in survivors.to_batches([name for name in self._schema if name in named]):
                frame = pl.DataFrame(pa.Table.from_batches([batch]))
                frame = (frame if predicate is None else frame.filter(predicate)).select(wanted)
                frame = frame if limit is None else frame.head(limit)
                yield frame.cast({name: self._schema[name] for name in wanted})
                limit = None if limit is None else limit - len(frame)
                if limit == 0:
                    return

        return register_io_source(rows, schema=self._schema)
