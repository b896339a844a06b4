"""`RowSource`: rows to write, as parts that are read in turn or in parallel; and the sources for Arrow objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from zskip.writer.storable import storable_rows, storable_schema

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

PART_BYTES = 32 << 20
PART_ROWS = 1 << 18

Part = Callable[[], pa.Table]
"""A part of the rows. Calling it reads them; any thread may do so."""


@dataclass(frozen=True, slots=True)
class RowSource:
    """Rows to write. ``schema``: storable, as `storable_schema` returns it · ``row_count``: None if it is unknown.

    ``parts(columns)`` yields the rows part by part, in their order, with these top-level columns (None: all).
    A source that is not ``repeatable`` yields them once and ignores ``columns``.
    ``encoded``: string columns that the parts contain as dictionaries, which are faster to read.
    """

    schema: pa.Schema
    row_count: int | None
    repeatable: bool
    parts: Callable[[Sequence[str] | None], Iterator[Part]]
    encoded: frozenset[str] = frozenset()


def of_table(table: pa.Table) -> RowSource:
    """The rows of a table in memory."""
    return of_tables(storable_schema(table.schema), lambda: [table], table.num_rows)


def of_tables(schema: pa.Schema, tables: Callable[[], Iterable[pa.Table]], row_count: int) -> RowSource:
    """The rows of tables with all columns of a storable schema. ``tables``: gives them, any number of times."""

    def read(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        for table in tables():
            yield from (table if columns is None else table.select(columns)).to_batches(PART_ROWS)

    return of_streams(schema, read, row_count)


def of_dataset(dataset: Dataset) -> RowSource:
    """The rows of a dataset, which can be read repeatedly."""
    schema = storable_schema(dataset.schema)

    def read(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        return iter(dataset.to_batches(columns=None if columns is None else list(columns), batch_size=PART_ROWS))

    return of_streams(schema, read, dataset.count_rows())


def of_reader(reader: pa.RecordBatchReader, schema: pa.Schema | None = None) -> RowSource:
    """The rows of a stream, which can be read once. ``schema``: the types to read them in, by default their own."""
    schema = storable_schema(reader.schema if schema is None else schema)
    return RowSource(schema, None, False, lambda columns: _of_batches(reader, schema))


def of_streams(
    schema: pa.Schema,
    read: Callable[[Sequence[str] | None], Iterable[pa.RecordBatch]],
    row_count: int | None = None,
) -> RowSource:
    """The rows of batches that can be read repeatedly."""

    def parts(columns: Sequence[str] | None) -> Iterator[Part]:
        return _of_batches(read(columns), schema if columns is None else _selected(schema, columns))

    return RowSource(schema, row_count, True, parts)


def _of_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[Part]:
    """Parts of similar size: small batches are combined, large ones sliced."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        pending.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= PART_ROWS or size >= PART_BYTES:
            yield from _sliced(pending, schema)
            pending, rows, size = [], 0, 0
    if pending:
        yield from _sliced(pending, schema)


def _sliced(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> Iterator[Part]:
    """The rows of batches, taken together, in slices of similar size."""
    rows = pa.Table.from_batches(batches)
    length = max(1, min(2 * PART_ROWS, rows.num_rows * 2 * PART_BYTES // max(rows.nbytes, 1)))
    for start in range(0, rows.num_rows, length):
        yield lambda start=start: storable_rows(rows.slice(start, length), schema)  # type: ignore[misc]  # a default binds


def _selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns])
