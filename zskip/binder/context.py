"""`Binding`: the interface that the binding offers to its rules."""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from zskip.binder.case_values import Value
from zskip.binder.names import Names
from zskip.binder.sql_text import Source
from zskip.expr.bound import Dialect
from zskip.expr.tree import Node, Scalar
from zskip.schema import Schema

__all__ = ["Binding"]


class Binding(Protocol):
    """The binding of one text. Rules are functions of it and of a parsed expression, and know nothing else of it.

    ``checked``: the parsed expressions, by their id, that are known to hold no aggregate and no subquery.
    """

    schema: Schema
    dialect: Dialect
    source: Source
    names: Names
    checked: dict[int, exp.Expr]

    def predicate(self, node: exp.Expr) -> Node:
        """An expression where TRUE, FALSE or NULL is wanted. What zskip does not know becomes opaque."""
        ...

    def scalar(self, node: exp.Expr) -> Scalar:
        """An expression with a value. Raises `Refused` for what zskip does not know."""
        ...

    def value(self, node: exp.Expr) -> Value:
        """A scalar, or a choice of scalars. Raises `Refused`."""
        ...
