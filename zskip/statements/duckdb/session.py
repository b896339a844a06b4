"""The settings of a connection under which the conditions in a DuckDB plan are evaluated.

DuckDB has already resolved collations, integer division, casts and macros in such a condition. What remains are the
settings that its functions read when they run.
"""

from __future__ import annotations

import time
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from zskip.core.schema import Schema
from zskip.engines.duckdb.connection_settings import READ_BY_FUNCTIONS
from zskip.engines.duckdb.relation import schema_read
from zskip.plan import find_survivors
from zskip.statements.conditions import Session, known_zone
from zskip.statements.duckdb.table_places import own_connection

if TYPE_CHECKING:
    import duckdb

    from zskip.tablelog import Index


class Transaction(Enum):
    """The transaction in which a statement runs: that of the user, one of zskip around this statement, or none."""

    NONE = auto()
    OF_USER = auto()
    OF_STATEMENT = auto()


def in_transaction(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether the connection has an open transaction: one that began before this call.

    Raises DuckDB's `ResourceInUseException` if ``con.execute`` left rows that another ``con.execute`` would discard.
    """
    described = con.description
    # The EXPLAIN of the last plan was read to its end.
    run = con.execute if described is None or described[0][0] == "explain_key" else con.sql
    called = time.time_ns() // 1000
    ((began,),) = run(_parsed("SELECT system.main.epoch_us(system.main.now())")).fetchall()
    return bool(began < called)


@lru_cache(maxsize=8)
def _parsed(query: str) -> duckdb.Statement:
    """A query that is asked with every statement."""
    (parsed,) = own_connection().extract_statements(query)
    return parsed


def session_of(con: duckdb.DuckDBPyConnection) -> Session:
    """The time zone of a connection, and whether functions mean in it what proofs assume."""
    settings = ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name in ("TimeZone", *READ_BY_FUNCTIONS))
    ((timezone, *others),) = con.sql(f"SELECT {settings}").fetchall()
    return Session(known_zone(timezone), [one.lower() for one in others] == list(READ_BY_FUNCTIONS.values()))


def schema_of(index: Index, con: duckdb.DuckDBPyConnection) -> Schema:
    """A table's schema with the types that DuckDB gives its columns on this connection."""
    if not index.snapshot.schema.holds_bytes:
        return index.snapshot.schema
    settings = "SELECT current_setting('binary_as_string'), current_setting('enable_geoparquet_conversion')"
    key = "types in duckdb", con.sql(settings).fetchall()[0]
    first = np.zeros(min(1, len(index)), np.int64)

    def read() -> Schema:
        return Schema(schema_read(find_survivors(index, None).narrowed(first).scan, con))

    return index.once(key, read, lambda _: 4096)
