"""The column names of a query as in the user's text.

DuckDB names a column without an alias after its expression, and a subquery in it is text that zskip has rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip.language.sql_literals import identifier
from zskip.statements.duckdb.stubs import empty_rows
from zskip.statements.duckdb.table_places import Word, has_pivot, stored_query

if TYPE_CHECKING:
    import duckdb

_SUBQUERY = "(SELECT "


def named_as_written(
    relation: duckdb.DuckDBPyRelation,
    con: duckdb.DuckDBPyConnection,
    text: str,
    params: Sequence[Any] | Mapping[str, Any] | None,
    tables: Mapping[str, pa.Schema],
) -> duckdb.DuckDBPyRelation:
    """The relation with the column names that ``text`` has over ``tables``, the schemas by name.

    Returned unchanged if no name contains a subquery, or DuckDB cannot bind the text over empty tables.
    """
    if not any(_SUBQUERY in name for name in relation.columns):
        return relation
    names = _names(con, text, params, tables)
    pairs = list(zip(relation.columns, names, strict=False))
    others = any(found != name for found, name in pairs if _SUBQUERY not in found)
    if others or len(names) != len(relation.columns):
        return relation
    return relation.project(_named(names))


def naming_edits(
    words: Sequence[Word],
    con: duckdb.DuckDBPyConnection,
    text: str,
    params: Sequence[Any] | Mapping[str, Any] | None,
    tables: Mapping[str, pa.Schema],
) -> list[tuple[int, int, str]]:
    """Edits that make a statement store a query's columns under the names in the user's text."""
    inside = stored_query(words)
    if inside is None or has_pivot(words):
        return []
    start, end = words[inside.start].start, words[inside.stop - 1].end
    names = _names(con, text[start:end], params, tables)
    if not any(_SUBQUERY in name for name in names):
        return []
    return [(start, start, f"SELECT {_named(names)} FROM ("), (end, end, ")")]


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"#{at} AS {identifier(name)}" for at, name in enumerate(names, start=1))


def _names(
    con: duckdb.DuckDBPyConnection,
    query: str,
    params: Sequence[Any] | Mapping[str, Any] | None,
    tables: Mapping[str, pa.Schema],
) -> list[str]:
    """The column names of a query over empty tables; none if DuckDB cannot bind it."""
    import duckdb

    # DuckDB looks up tables that its catalog lacks among the variables of the calling function.
    scope = {name: empty_rows(schema) for name, schema in tables.items()}
    try:
        # A parsed statement that DuckDB cannot bind does not abort an open transaction.
        (parsed,) = con.extract_statements(query)
        found = eval("con.sql(parsed, params=params)", {**scope, "con": con, "parsed": parsed, "params": params})
    except (duckdb.Error, ValueError):
        return []
    return [] if found is None else list(found.columns)
