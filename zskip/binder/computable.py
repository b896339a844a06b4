"""Conditions that DuckDB may evaluate for single values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zskip import types as t
from zskip.binder.context import Binding
from zskip.expr import tree
from zskip.expr.tree import Computable, Node, Reference
from zskip.functions.evaluated import is_computable
from zskip.schema import Column

__all__ = ["computable"]

_LONGEST = 4096
"""Characters of a condition that DuckDB may be asked to compute."""


_MOST_COLUMNS = 8
"""Columns of such a condition."""


def computable(binding: Binding, node: Node, text: Callable[[], str]) -> Node:
    """The node, with its text where DuckDB may say of single values what ranges do not show."""
    if binding.dialect.name != "duckdb" or not tree.is_doubtful(node):
        return node
    columns = [binding.schema.columns[path] for path in sorted(tree.columns(node))]
    if not 0 < len(columns) <= _MOST_COLUMNS or not _are_computable(columns):
        return node
    sql = text()
    if len(sql) > _LONGEST or _negates_beside_nan(columns, sql):
        return node
    references = tuple(Reference(column.path, column.type) for column in columns)
    return Computable(node, references, sql, binding.dialect.timezone)


def _negates_beside_nan(columns: Sequence[Column], sql: str) -> bool:
    """Whether DuckDB's optimizer may turn ``-x < 'nan'`` into ``x > -'nan'``, which other rows fulfil."""
    return "-" in sql and "nan" in sql.lower() and any(t.is_floating(column.type) for column in columns)


def _are_computable(columns: Sequence[Column]) -> bool:
    """Whether DuckDB can be asked of these columns: of types that it reads alike, with names that it tells apart."""
    names = {column.parts[:count] for column in columns for count in range(1, len(column.parts) + 1)}
    folded = {tuple(part.lower() for part in name) for name in names}
    return len(folded) == len(names) and all(is_computable(column.type) for column in columns)
