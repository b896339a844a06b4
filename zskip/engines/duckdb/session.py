"""The settings of a connection that can affect a condition which DuckDB has already bound.

Collations, integer division, casts and macros are part of the bound condition; what is left are the settings that its
functions read when they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from zskip import types as t
from zskip.statement.conditions import Session, known_zone

if TYPE_CHECKING:
    import duckdb

    from zskip.schema import Schema

__all__ = ["reads_bytes_as_text", "session_of", "texts_for_bytes"]

_USUAL = {
    "ieee_floating_point_ops": "true",
    "error_on_division_by_zero": "true",
    "regex_match_operator_semantics": "partial",
    "Calendar": "gregorian",
    "dialect_compatibility_mode": "none",
}


def session_of(con: duckdb.DuckDBPyConnection) -> Session:
    """What the connection is set to."""
    settings = ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name in ("TimeZone", *_USUAL))
    ((timezone, *others),) = con.execute(f"SELECT {settings}").fetchall()
    return Session(known_zone(timezone), [one.lower() for one in others] == list(_USUAL.values()))


def reads_bytes_as_text(con: duckdb.DuckDBPyConnection, schema: Schema) -> bool:
    """Whether the connection takes columns of bytes for texts: a table has some, and ``binary_as_string`` is set."""
    return schema.holds_bytes and bool(con.execute("SELECT current_setting('binary_as_string')").fetchall()[0][0])


def texts_for_bytes(schema: pa.Schema) -> pa.Schema:
    """The schema as such a connection reads it."""
    return pa.schema([field.with_type(pa.string()) if t.is_bytes(field.type) else field for field in schema])
