"""polars: a table as a LazyFrame that prunes itself.

polars hands over what it pushes down to a scan: columns, filter and limit. The filter chooses the files, which are read
by polars' own `scan_parquet`, and is asked of their rows again.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip.binder.expressions import provable
from zskip.errors import MissingDependency
from zskip.scan import Scan
from zskip.table import Table
from zskip.table import open as open_table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["scan"]


def scan(
    path: str | os.PathLike[str] | Table,
    *,
    version: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pl.LazyFrame:
    """A LazyFrame over a table, at one of its versions. Raises `TableNotFound`, and `MissingDependency` without polars.

    What polars' filters say in comparisons, IN, ranges, NULL and NaN tests and text searches chooses files; the rest is
    polars' alone. It stays at the version that it was made from.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise MissingDependency("This needs the package polars: pip install polars.") from error
    table = path if isinstance(path, Table) else open_table(path, version=version, storage_options=storage_options)
    held = copy.copy(table)  # changes to the caller's table move that one on
    empty = pl.DataFrame(table.schema.empty_table())

    def rows(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        proof = None if predicate is None else provable(predicate, held.snapshot.schema)
        survivors = held.plan(proof).scan.unfiltered()
        wanted = empty.columns if columns is None else columns
        for frame in _frames(survivors, wanted, predicate, limit, batch_rows):
            yield frame.cast({name: empty.schema[name] for name in wanted})

    return register_io_source(rows, schema=empty.schema, is_pure=table.snapshot.managed)


def _frames(
    survivors: Scan, columns: list[str], predicate: pl.Expr | None, limit: int | None, batch_rows: int | None
) -> Iterator[pl.DataFrame]:
    import polars as pl

    if not len(survivors):
        return
    if not _native(survivors):
        yield from _converted(survivors, columns, predicate, limit)
        return
    lazy = pl.scan_parquet(survivors.paths, glob=False, hive_partitioning=False)
    if predicate is not None:
        lazy = lazy.filter(predicate)
    lazy = lazy.select(columns)
    if limit is not None:
        lazy = lazy.head(limit)
    yield from lazy.collect_batches(chunk_size=batch_rows)


def _native(survivors: Scan) -> bool:
    """Whether polars' own reader gives the table's rows: local files that all have the table's columns."""
    return (
        survivors.managed
        and survivors.storage.local is not None
        and not (survivors.added or survivors.deletes or survivors.partition_by)
    )


def _converted(
    survivors: Scan, columns: list[str], predicate: pl.Expr | None, limit: int | None
) -> Iterator[pl.DataFrame]:
    """The rows as zskip reads them itself."""
    import polars as pl

    named = {*columns, *(predicate.meta.root_names() if predicate is not None else ())}
    left = limit
    for batch in survivors.to_batches([name for name in survivors.schema.arrow.names if name in named]):
        frame = pl.DataFrame(pa.Table.from_batches([batch]))
        frame = (frame if predicate is None else frame.filter(predicate)).select(columns)
        frame = frame if left is None else frame.head(left)
        left = None if left is None else left - len(frame)
        yield frame
        if left == 0:
            return
