"""The settings of a connection under which the conditions in a DuckDB plan are evaluated.

DuckDB has already resolved collations, integer division, casts and macros in such a condition. What remains are the
settings that its functions read when they run.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from zskip.core import types as t
from zskip.engines.duckdb.connection_settings import READ_BY_FUNCTIONS
from zskip.statements.conditions import Session, known_zone

if TYPE_CHECKING:
    import duckdb

    from zskip.core.schema import Schema


def in_transaction(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether the connection has an open transaction: one that began before this call.

    Raises DuckDB's `ResourceInUseException` if ``con.execute`` left rows that another ``con.execute`` would discard.
    """
    described = con.description
    # The EXPLAIN of the last plan was read to its end.
    run = con.execute if described is None or described[0][0] == "explain_key" else con.sql
    called = time.time_ns() // 1000
    ((began,),) = run("SELECT system.main.epoch_us(system.main.now())").fetchall()
    return bool(began < called)


def session_of(con: duckdb.DuckDBPyConnection) -> Session:
    """The time zone of a connection, and whether functions mean in it what proofs assume."""
    settings = ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name in ("TimeZone", *READ_BY_FUNCTIONS))
    ((timezone, *others),) = con.sql(f"SELECT {settings}").fetchall()
    return Session(known_zone(timezone), [one.lower() for one in others] == list(READ_BY_FUNCTIONS.values()))


def reads_bytes_as_text(con: duckdb.DuckDBPyConnection, schema: Schema) -> bool:
    """Whether a table has binary columns and the connection reads those as strings (``binary_as_string``)."""
    return schema.holds_bytes and bool(con.sql("SELECT current_setting('binary_as_string')").fetchall()[0][0])


def texts_for_bytes(schema: pa.Schema) -> pa.Schema:
    """The schema under ``binary_as_string``: binary columns are strings."""
    return pa.schema([field.with_type(pa.string()) if t.is_bytes(field.type) else field for field in schema])
