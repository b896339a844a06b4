"""A workload of whole statements over a star schema, as conditions on the facts and their dimensions' attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from zskip.core.schema import Schema
from zskip.language import Predicate, conjunction
from zskip.language.sql_literals import identifier
from zskip.statements.conditions import conditions_of
from zskip.statements.duckdb.session import session_of
from zskip.statements.duckdb.stubs import engine_plan, make_stubs, printed_columns
from zskip.tablelog.dimensions import attribute_name


def star_conditions(
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
