"""What a table is asked, and the same of the format's own reader: rows, counts and predicates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import duckdb
import pyarrow as pa

import zskip


def rows(table: pa.Table) -> list[str]:
    """The rows in no order, as texts; NaN and -0.0 as they are written."""
    with connection(table=table) as con:
        texts = con.sql('SELECT CAST("table" AS VARCHAR) AS text FROM "table" ORDER BY text')
        return texts.to_arrow_table()["text"].to_pylist()  # type: ignore[no-any-return]


@contextmanager
def connection(**tables: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    """One connection for all, since a new one takes 30 ms; the tables are its own until the end."""
    con = _connection()
    for name, table in tables.items():
        con.register(name, table)
    yield con
    for name in tables:
        con.unregister(name)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    return con


def as_ours(theirs: pa.Table, ours: pa.Table) -> pa.Table:
    """The other reader's rows with our columns' order and types."""
    fields = [pa.field(field.name, field.type) for field in ours.schema]
    return theirs.select(ours.column_names).cast(pa.schema(fields))


def require_same(opened: zskip.Table, theirs: pa.Table, predicates: list[str] | tuple[str, ...] = ()) -> None:
    """All rows, their count, and the rows and count of each predicate are those of the other reader."""
    plan = opened.plan()
    ours = plan.to_arrow()
    theirs = as_ours(theirs, ours)
    assert rows(ours) == rows(theirs)
    assert plan.count() == len(theirs)
    with connection(theirs=theirs) as con:
        for predicate in predicates:
            wanted = con.sql(f"SELECT * FROM theirs WHERE {predicate}").to_arrow_table().cast(theirs.schema)
            found = opened.plan(predicate)
            assert rows(found.to_arrow()) == rows(wanted), predicate
            assert found.count() == len(wanted), predicate
