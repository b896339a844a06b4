"""Convert boolean expressions of ibis to DuckDB's SQL by ibis' own compiler."""

from __future__ import annotations

from typing import Any

import sqlglot
from sqlglot import exp

from zskip.schema import Schema

__all__ = ["conjuncts"]


def conjuncts(expression: Any, schema: Schema) -> list[str | None]:
    """The conjuncts of an expression over one table as SQL; a single None if it cannot be converted."""
    import ibis

    if not isinstance(expression, ibis.Expr):  # a Deferred, such as `_.a > 5`
        (expression,) = ibis.table(ibis.Schema.from_pyarrow(schema.arrow), name="t").bind(expression)
    statement = sqlglot.parse_one(str(ibis.to_sql(expression, dialect="duckdb")), dialect="duckdb")
    if not isinstance(statement, exp.Select) or len(statement.selects) != 1 or statement.find(exp.Join, exp.Subquery):
        return [None]
    condition = statement.selects[0].unalias()
    for column in condition.find_all(exp.Column):
        column.set("table", None)
    parts = condition.unnest().flatten() if isinstance(condition.unnest(), exp.And) else [condition]
    return [part.sql(dialect="duckdb") for part in parts]
