"""A workload of whole statements over a star schema, as a layout of the facts takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from zskip.binder.workload_sql import is_query, named_tables
from zskip.core.schema import Schema, identifier, join_path, split_path
from zskip.language import Predicate, conjunction
from zskip.statements.conditions import conditions_of
from zskip.statements.duckdb.session import session_of
from zskip.statements.duckdb.stubs import engine_plan, make_stubs, printed_columns
from zskip.tablelog.dimensions import attribute_name
from zskip.writer.star import Join, joined_with, schema_of


def star_workload(
    queries: Sequence[str],
    joins: Sequence[Join],
    facts: str,
    schema: Schema,
    storage_options: Mapping[str, Any] | None,
) -> tuple[tuple[str, ...], tuple[Join, ...]]:
    """The queries as conditions on the facts and on the attributes of their dimensions, and the joins with the
    attributes that these conditions read.

    ``facts``: the name of the facts in the statements, unless these name but one table besides the dimensions, which
    have the names of ``joins`` · ``schema``: the facts'. A query that DuckDB cannot plan over these tables is returned
    as it is.
    """
    named = {split_path(name)[0] for query in queries if is_query(query) for name in named_tables(query)}
    others = named - {join.name for join in joins}
    if len(others) == 1:
        facts = others.pop()
    schemas = {join.name: schema_of(join, storage_options) for join in joins}
    conditions = _conditions(queries, facts, schema, schemas)
    read = {path for each in conditions if each is not None for path in each.columns}
    texts = tuple(text if one is None else one.sql() or text for text, one in zip(queries, conditions, strict=True))
    return texts, tuple(
        replace(
            join,
            attributes=tuple(
                name for name in schemas[join.name].arrow.names if join_path([attribute_name(join.name, name)]) in read
            ),
        )
        for join in joins
    )


def _conditions(
    statements: Sequence[str], facts: str, schema: Schema, dimensions: Mapping[str, Schema]
) -> list[Predicate | None]:
    """For each statement, the condition on the rows of ``facts`` that its plan applies, with the conditions on
    dimensions as conditions on the columns ``dimension.column``; None for a statement that DuckDB cannot plan, or that
    has no condition.

    ``facts`` and the keys of ``dimensions`` are the names of the tables in the statements.
    """
    import duckdb

    names, schemas = [facts, *dimensions], [schema, *dimensions.values()]
    fields = list(schema.arrow)
    for name, each in dimensions.items():
        fields += [pa.field(attribute_name(name, field.name), field.type) for field in each.arrow]
    joined = Schema(pa.schema(fields))
    found: list[Predicate | None] = []
    for statement in statements:
        with duckdb.connect() as con:
            stubs = make_stubs([each.arrow for each in schemas], statement)
            for name, stub in zip(names, stubs, strict=True):
                con.register(stub.name, stub.rows)
                con.execute(f"CREATE VIEW {identifier(name)} AS FROM {stub.sql}")
            root = engine_plan(con, statement, stubs)
            if root is None:
                found.append(None)
                continue
            columns = printed_columns(root, stubs, statement)
            for place, name in enumerate(dimensions, 1):
                printed = {label: attribute_name(name, column) for label, column in columns[place].printed.items()}
                columns[place] = columns[place]._replace(printed=printed)
            scans = root.scans(columns) or ()
            conditions = [
                conditions_of([scan for scan in scans if scan.place == place], joined, lambda: session_of(con))
                for place in {scan.place for scan in scans}
            ]
        predicates = [one.predicate for one in conditions if one.predicate is not None]
        found.append(conjunction(predicates) if predicates else None)
    return found


def with_attributes(
    queries: Sequence[str],
    rows: pa.Table,
    joins: Sequence[Join],
    facts: str,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[tuple[str, ...], pa.Table]:
    """As `star_workload`, with rows of the facts joined with the attributes."""
    schema = Schema(rows.schema)
    texts, joins = star_workload(queries, joins, facts, schema, storage_options)
    star = joined_with(joins, schema, (), storage_options)
    return texts, rows if star is None else star.with_attributes(rows)
