"""Mark conditions that DuckDB may evaluate for single values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zskip.core import types as t
from zskip.core.schema import Column, Schema
from zskip.language import tree
from zskip.language.bound import Dialect
from zskip.language.functions.duckdb_evaluated import is_computable
from zskip.language.tree import Computable, Node, Reference

_MAX_CHARACTERS, _MAX_COLUMNS = 4096, 8
"""Of a condition that DuckDB may evaluate."""


def computable(schema: Schema, dialect: Dialect, node: Node, text: Callable[[], str]) -> Node:
    """The node, as a `Computable` if it may be more precise to evaluate it in DuckDB than over ranges.

    ``text`` returns the condition's SQL; it is called only if needed.
    """
    if dialect.name != "duckdb" or not tree.has_call_or_opaque(node):
        return node
    columns = [schema.columns[path] for path in sorted(tree.columns(node))]
    if not 0 < len(columns) <= _MAX_COLUMNS or not _are_computable(columns):
        return node
    sql = text()
    if len(sql) > _MAX_CHARACTERS or _may_compare_negation_with_nan(columns, sql):
        return node
    references = tuple(Reference(column.path, column.type) for column in columns)
    return Computable(node, references, sql, dialect.timezone)


def _may_compare_negation_with_nan(columns: Sequence[Column], sql: str) -> bool:
    """Whether DuckDB's optimizer may turn ``-x < 'nan'`` into ``x > -'nan'``, which is TRUE for other rows."""
    return "-" in sql and "nan" in sql.lower() and any(t.is_floating(column.type) for column in columns)


def _are_computable(columns: Sequence[Column]) -> bool:
    """Whether DuckDB reads the columns' types unchanged, and their names differ in more than case."""
    names = {column.parts[:count] for column in columns for count in range(1, len(column.parts) + 1)}
    folded = {tuple(part.lower() for part in name) for name in names}
    return len(folded) == len(names) and all(is_computable(column.type) for column in columns)
