"""Convert boolean expressions of ibis to DuckDB's SQL by ibis' own compiler."""

from __future__ import annotations

from typing import Any

import sqlglot
from sqlglot import exp

from zskip.core.schema import Schema


def conjuncts(expression: Any, schema: Schema) -> list[str | None]:
    """The conjuncts of an expression over one table as SQL; a single None if it cannot be converted."""
    import ibis
    from ibis.expr.operations import Analytic, ScalarParameter, WindowFunction

    if not isinstance(expression, ibis.Expr):  # a Deferred, such as `_.a > 5`
        (expression,) = ibis.table(ibis.Schema.from_pyarrow(schema.arrow), name="t").bind(expression)
    if expression.op().find((Analytic, ScalarParameter, WindowFunction)):
        return [None]
    statement = sqlglot.parse_one(str(ibis.to_sql(expression, dialect="duckdb")), dialect="duckdb")
    # Any other clause, such as the WHERE of a filtered table, selects rows that the condition alone does not.
    clauses = {name for name, clause in statement.args.items() if clause}
    if not isinstance(statement, exp.Select) or len(statement.selects) != 1 or not clauses <= {"expressions", "from_"}:
        return [None]
    table = statement.find(exp.Table)  # none for an expression without columns
    condition = statement.selects[0].unalias()
    if statement.find(exp.Subquery):
        return [None]
    for column in [*condition.find_all(exp.Column)]:
        name, *path = column.parts
        if table is None or name.name != table.alias_or_name or not path:
            return [None]
        field: exp.Expr = exp.Column(this=path[0])
        for part in path[1:]:
            field = exp.Dot(this=field, expression=part)
        condition = field if column is condition else condition
        column.replace(field)
    parts = condition.unnest().flatten() if isinstance(condition.unnest(), exp.And) else [condition]
    return [part.sql(dialect="duckdb") for part in parts]
