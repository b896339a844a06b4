"""Fingerprints of the rows that an engine returns for a plan, to compare engines by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip.core import types as t
from zskip.core.engine_registry import engine
from zskip.plan import Plan

if TYPE_CHECKING:
    import duckdb

__all__ = ["fingerprint", "with_types"]


def fingerprint(plan: Plan, name: str, connection: duckdb.DuckDBPyConnection, spark: Any) -> tuple[int, int]:
    """The number of rows that an engine returns for a plan, and the sum of their hashes, which DuckDB computes.

    ``spark``: the session for the engine "spark"; None for the active one, or a new one.
    """
    schema = plan.scan.schema.arrow
    if name == "duckdb":
        batches: Iterable[pa.RecordBatch] = plan.to_duckdb(connection).to_arrow_reader()
    elif name == "arrow":
        batches = plan.to_batches()
    else:
        batches = (
            plan.to_spark(spark or engine("spark session").active_session()).toArrow().select(schema.names).to_batches()
        )
    count, total = 0, 0
    # On another connection: this one still has the result open, and a query on it would replace the error of an
    # unreadable file by one of its own.
    with connection.cursor() as hashing:
        for batch in batches:
            if batch.num_rows:
                rows = with_types(pa.Table.from_batches([batch]), schema)
                hashing.register("found", rows.cast(_importable(schema)).combine_chunks())
                ((hashes,),) = hashing.execute("SELECT sum(hash(r)::HUGEINT) FROM found r").fetchall()
                count, total = count + batch.num_rows, total + int(hashes)
    return count, total


def with_types(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows cast to the types of a schema, including types that DuckDB exports as strings, such as UUIDs."""
    for number, field in enumerate(schema):
        logical = t.logical_type(field.type)
        read = t.of(logical).read
        if read is not None and t.is_string(rows.schema.field(number).type):
            texts = rows.column(number).to_pylist()
            values = [None if text is None else read(text) for text in texts]
            plain = pa.array([None if value is None else value.as_py() for value in values], logical)
            rows = rows.set_column(number, field.name, plain.cast(field.type))
    return rows.cast(schema)


def _importable(schema: pa.Schema) -> pa.Schema:
    """The schema with types that DuckDB imports from Arrow. Distinct values stay distinct."""
    return pa.schema([field.with_type(t.with_leaves(field.type, _importable_leaf)) for field in schema])


def _importable_leaf(type: pa.DataType) -> pa.DataType:
    if t.is_float16(type):
        return pa.float32()
    return pa.string() if t.is_decimal(type) and type.precision > 38 else type
