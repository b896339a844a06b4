"""polars: a table as a LazyFrame that prunes itself.

polars resolves the frame when a query is optimized, with the filters that it pushes down. They choose the files; polars
asks them of the rows itself, in its own `scan_parquet` wherever that gives the table's rows.
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
from zskip.expr import conjunction
from zskip.scan import Scan
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

    What polars' filters say in comparisons, IN, ranges, NULL and NaN tests and text searches chooses files; the rest is
    polars' alone. It stays at the version that it was made from.
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
        # polars takes what one query resolved for the next, unless it has a version that may change.
        return found, ResolvedLazyFrameProps(version_key=None if snapshot.managed else str(uuid4()))

    def _native(self, survivors: Scan) -> pl.LazyFrame:
        """polars' own reader, where every file has exactly the table's columns and types."""
        lazy = pl.scan_parquet(survivors.paths, glob=False, hive_partitioning=False)
        stored = lazy.collect_schema()
        return lazy.cast({name: type for name, type in self._schema.items() if stored[name] != type})

    def _converted(self, survivors: Scan) -> pl.LazyFrame:
        """The rows as zskip reads them itself."""

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
