"""A SELECT of rows that represent files answered by the index, combined with the read of the other files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from zskip.engines.duckdb.duckdb_types import duckdb_type
from zskip.engines.duckdb.native_scan import literal
from zskip.language.sql_literals import identifier
from zskip.statements.aggregates import IndexRows
from zskip.statements.duckdb.survivor_reads import Values


def with_index_rows(read: str, rows: IndexRows, schema: pa.Schema, values: Values) -> str:
    """The read of the other files, which may be empty, UNION ALL the index rows, with the columns of a schema."""
    standing = _of_groups(rows, schema, values) if len(rows.rows) > 1 else _of_one_group(rows, schema)
    if not read:
        return f"({standing})"
    columns = ", ".join(identifier(field.name) for field in schema)
    return f"(SELECT {columns} FROM {read} UNION ALL {standing})"


def _of_one_group(rows: IndexRows, schema: pa.Schema) -> str:
    """Rows as constants over ``range``: DuckDB generates a billion of them in a third of a second."""
    columns, total = rows.columns.values(), rows.rows[0].as_py()
    ends = {total, *(column.count[0].as_py() for column in columns)}
    ends |= {1 for column in columns if column.lower != column.upper}
    parts, first = [], 0
    for end in sorted(end for end in ends if 0 < end <= total):
        made = ", ".join(f"{_constant_of(rows, field, first)} AS {identifier(field.name)}" for field in schema)
        parts.append(f"SELECT {made} FROM range({end - first})")
        first = end
    return " UNION ALL ".join(parts)


def _constant_of(rows: IndexRows, field: pa.Field, row: int) -> str:
    type, column = duckdb_type(field.type), rows.columns.get(field.name)
    if column is None or row >= column.count[0].as_py():
        return f"CAST(NULL AS {type})"
    (text,) = _texts(column.lower if row else column.upper)
    return f"CAST({literal(text or '')} AS {type})"


def _of_groups(rows: IndexRows, schema: pa.Schema, values: Values) -> str:
    lists = {"n": rows.rows}
    for number, column in enumerate(rows.columns.values()):
        lists |= {f"lower{number}": column.lower, f"upper{number}": column.upper, f"count{number}": column.count}
    types = {name: "BIGINT" if name.startswith(("n", "count")) else "VARCHAR" for name in lists}
    groups = ", ".join(
        f"CAST(unnest({values.add_list(_texts(each))}) AS {types[name]}) AS {name}" for name, each in lists.items()
    )
    numbers = {name: number for number, name in enumerate(rows.columns)}
    made = ", ".join(f"{_value(numbers.get(field.name), field)} AS {identifier(field.name)}" for field in schema)
    return f"SELECT {made} FROM (SELECT {groups}) AS zskip, range(zskip.n) AS rows(i)"


def _value(number: int | None, field: pa.Field) -> str:
    type = duckdb_type(field.type)
    if number is None:
        return f"CAST(NULL AS {type})"
    value = f"CASE WHEN i >= count{number} THEN NULL WHEN i = 0 THEN upper{number} ELSE lower{number} END"
    return f"CAST({value} AS {type})"


def _texts(bounds: pa.Array) -> list[str | None]:
    texts: list[str | None] = pc.cast(bounds, pa.string()).to_pylist()
    return texts
