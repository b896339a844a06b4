"""The names of a query's columns as the user's text gives them.

DuckDB names a column without an alias after its expression; where a subquery stands in it, that is text that zskip has
rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip.engines.duckdb.duckdb_types import quoted
from zskip.engines.duckdb.stubs import empty_rows

if TYPE_CHECKING:
    import duckdb

__all__ = ["named_as_written"]

_SUBQUERY = "(SELECT "


def named_as_written(
    relation: duckdb.DuckDBPyRelation,
    con: duckdb.DuckDBPyConnection,
    text: str,
    params: Sequence[Any] | Mapping[str, Any] | None,
    tables: Mapping[str, pa.Schema],
) -> duckdb.DuckDBPyRelation:
    """The relation under the names that ``text`` gives its columns over ``tables``, by their names in it.

    As it is where no name holds a subquery, or where DuckDB cannot bind the text over empty tables.
    """
    import duckdb

    if not any(_SUBQUERY in name for name in relation.columns):
        return relation
    # DuckDB finds a table that its catalog does not have among the names of the calling function.
    scope = {name: empty_rows(schema) for name, schema in tables.items()}
    try:
        names = eval("con.sql(text, params=params)", {**scope, "con": con, "text": text, "params": params}).columns
    except duckdb.Error:
        return relation
    pairs = list(zip(relation.columns, names, strict=False))
    others = any(found != name for found, name in pairs if _SUBQUERY not in found)
    if others or len(names) != len(relation.columns):
        return relation
    return relation.project(", ".join(f"#{at} AS {quoted(name)}" for at, name in enumerate(names, start=1)))
