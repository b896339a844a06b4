"""Rows that stand for files which the index answers, as a SELECT beside the read of the others."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from zskip import types as t
from zskip.engines.duckdb.duckdb_types import duckdb_type, quoted
from zskip.engines.duckdb.native_scan import literal
from zskip.statement.aggregates import IndexRows

__all__ = ["with_index_rows"]


def with_index_rows(read: str, rows: IndexRows, schema: pa.Schema) -> str:
    """A read of the rest, and the rows beside it, with all columns of the table."""
    made = ", ".join(f"{_value(rows, field)} AS {quoted(field.name)}" for field in schema)
    standing = f"SELECT {made} FROM range({rows.rows}) AS zskip(i)"
    if not len(rows.rest):
        return f"({standing})"
    columns = ", ".join(quoted(field.name) for field in schema)
    return f"(SELECT {columns} FROM {read} UNION ALL {standing})"


def _value(rows: IndexRows, field: pa.Field) -> str:
    type, values = duckdb_type(field.type), rows.columns.get(field.name)
    if values is None or not values.count:
        return f"CAST(NULL AS {type})"
    lower, upper = (_constant(bound, type) for bound in (values.lower, values.upper))
    return f"CASE WHEN i = 0 THEN {upper} WHEN i < {values.count} THEN {lower} END"


def _constant(value: pa.Scalar, type: str) -> str:
    # Texts are only counted: any will do.
    text = "" if t.is_string(value.type) else pc.cast(value, pa.string()).as_py()
    return f"CAST({literal(text)} AS {type})"
