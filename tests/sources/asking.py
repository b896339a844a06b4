"""What a table is asked, and the same of the format's own reader: rows, counts and predicates."""

from __future__ import annotations

import duckdb
import pyarrow as pa

import zskip


def rows(table: pa.Table) -> list[str]:
    """The rows in no order; NaN and -0.0 as they are written."""
    return sorted(map(repr, table.to_pylist()))


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
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.register("theirs", theirs)
    for predicate in predicates:
        wanted = con.sql(f"SELECT * FROM theirs WHERE {predicate}").to_arrow_table().cast(theirs.schema)
        found = opened.plan(predicate)
        assert rows(found.to_arrow()) == rows(wanted), predicate
        assert found.count() == len(wanted), predicate
