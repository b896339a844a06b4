"""`Source`: rows from wherever they are, as parts that are read one after another or in parallel.

| given                                                   | read                                           |
| ------------------------------------------------------- | ---------------------------------------------- |
| pyarrow Table, RecordBatch; pandas or polars DataFrame  | in slices, without a copy                      |
| pyarrow Dataset                                         | by its scanner, twice where that saves memory  |
| RecordBatchReader, Scanner, DuckDB relation, any stream | once, batch by batch                           |
| paths, globs, folders, URLs of Parquet                  | by row group, in parallel                      |
| paths, globs, folders, URLs of CSV or JSON              | by DuckDB, lazily                              |
| the path of a zskip table                               | the files of its newest snapshot               |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pad

from zskip.errors import InvalidOption
from zskip.writer.storable import storable_rows, storable_schema

__all__ = ["Part", "Source", "of_parts", "open_source"]

PART_BYTES = 64 << 20
PART_ROWS = 1 << 18

Part = Callable[[], pa.Table]
"""Some of the rows, not yet read; calling it reads them, in whatever thread calls."""


@dataclass(frozen=True, slots=True)
class Source:
    """Rows to be written. ``schema``: as `storable_schema` keeps it · ``row_count``: None where only reading tells.

    ``parts(columns)`` yields the rows part by part, in their order, with these top-level columns (all by default).
    A source that is not ``repeatable`` gives them once, and ignores ``columns``. ``resident``: the rows are in memory.
    """

    schema: pa.Schema
    row_count: int | None
    repeatable: bool
    parts: Callable[[Sequence[str] | None], Iterator[Part]]
    resident: bool = False


def open_source(source: Any, storage_options: Mapping[str, Any] | None = None) -> Source:
    """The rows of anything that the module's table lists.

    Raises `InvalidOption` for what is none of it, `NoParquet` and `CorruptFile` for paths, `SchemaError`.
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, (str, os.PathLike)) or _are_paths(source):
        from zskip.writer.paths import open_paths  # which stands on this module

        paths = [source] if isinstance(source, (str, os.PathLike)) else list(source)
        return open_paths([os.fspath(path) for path in paths], storage_options)
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if _is_data_frame(source):
        source = pa.table(source)
    if isinstance(source, pa.Table):
        return of_table(source)
    if isinstance(source, pad.Dataset):
        return of_dataset(source)
    if isinstance(source, pad.Scanner):
        source = source.to_reader()
    if hasattr(source, "__arrow_c_stream__"):
        return of_reader(
            source if isinstance(source, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(source)
        )
    raise InvalidOption(
        f"Rows cannot be read from a {type(source).__module__}.{type(source).__qualname__}. Give an Arrow table, "
        "reader or dataset, a pandas or polars DataFrame, a DuckDB relation, or paths of Parquet, CSV or JSON files."
    )


def of_table(table: pa.Table) -> Source:
    """The rows of a table in memory."""
    schema = storable_schema(table.schema)
    length = _rows_per_part(table.nbytes, table.num_rows)

    def parts(columns: Sequence[str] | None) -> Iterator[Part]:
        chosen = table if columns is None else table.select(columns)
        kept = schema if columns is None else _selected(schema, columns)
        for start in range(0, chosen.num_rows, length):
            yield lambda start=start: storable_rows(chosen.slice(start, length), kept)  # type: ignore[misc]  # a default binds

    return Source(schema, table.num_rows, True, parts, resident=True)


def of_parts(schema: pa.Schema, tables: Sequence[pa.Table]) -> Source:
    """Tables of storable rows in memory."""

    def parts(columns: Sequence[str] | None) -> Iterator[Part]:
        for table in tables:
            yield lambda table=table: table if columns is None else table.select(columns)  # type: ignore[misc]  # a default binds

    return Source(schema, sum(table.num_rows for table in tables), True, parts, resident=True)


def of_dataset(dataset: pad.Dataset) -> Source:
    """The rows of a dataset, which may be read again."""
    schema = storable_schema(dataset.schema)

    def read(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        return iter(dataset.to_batches(columns=None if columns is None else list(columns), batch_size=PART_ROWS))

    return of_streams(schema, read, dataset.count_rows())


def of_reader(reader: pa.RecordBatchReader) -> Source:
    """The rows of a stream that can be read once."""
    schema = storable_schema(reader.schema)
    return Source(schema, None, False, lambda columns: _of_batches(reader, schema))


def of_streams(
    schema: pa.Schema,
    read: Callable[[Sequence[str] | None], Iterable[pa.RecordBatch]],
    row_count: int | None = None,
) -> Source:
    """The rows of batches that can be read again."""

    def parts(columns: Sequence[str] | None) -> Iterator[Part]:
        return _of_batches(read(columns), schema if columns is None else _selected(schema, columns))

    return Source(schema, row_count, True, parts)


def _of_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[Part]:
    """Small batches joined, so that each part is worth its overhead, and long ones cut."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= PART_ROWS or size >= PART_BYTES:
            yield from _joined(waiting, schema)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield from _joined(waiting, schema)


def _joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> Iterator[Part]:
    rows = pa.Table.from_batches(batches)
    length = _rows_per_part(rows.nbytes, rows.num_rows)
    for start in range(0, rows.num_rows, length):
        yield lambda start=start: storable_rows(rows.slice(start, length), schema)  # type: ignore[misc]  # a default binds


def _rows_per_part(size: int, rows: int) -> int:
    return max(1, min(2 * PART_ROWS, rows * 2 * PART_BYTES // max(size, 1)))


def _selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns])


def _are_paths(source: object) -> bool:
    return (
        isinstance(source, (list, tuple))
        and bool(source)
        and all(isinstance(path, (str, os.PathLike)) for path in source)
    )


def _is_data_frame(source: object) -> bool:
    kind = type(source)
    return kind.__name__ == "DataFrame" and kind.__module__.split(".")[0] in ("pandas", "polars")
