"""`Binding`: the interface of the binder that its rules see."""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from zskip.binder.case_values import Value
from zskip.binder.names import Names
from zskip.binder.source_text import SourceText
from zskip.core.schema import Schema
from zskip.language.bound import Dialect
from zskip.language.tree import Node, Scalar


class Binding(Protocol):
    """The binding of one text. A rule is a function of it and of a parsed expression.

    ``checked``: the parsed expressions, by id, that are known to contain no aggregate and no subquery.
    """

    schema: Schema
    dialect: Dialect
    source: SourceText
    names: Names
    checked: dict[int, exp.Expr]

    def predicate(self, node: exp.Expr) -> Node:
        """Binds an expression as a predicate. Unsupported expressions become opaque."""
        ...

    def scalar(self, node: exp.Expr) -> Scalar:
        """Binds an expression as a scalar. Raises `Refused` for unsupported expressions."""
        ...

    def value(self, node: exp.Expr) -> Value:
        """Binds an expression as a scalar or a choice of scalars. Raises `Refused`."""
        ...
