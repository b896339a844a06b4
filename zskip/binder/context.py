"""`Binding`: the interface of the binder that its rules see; values under a CASE; what becomes of unsupported SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from zskip.binder.names import Names
from zskip.binder.source_text import SourceText, end_with_parentheses, span, span_with_parentheses, text_range
from zskip.core import types as t
from zskip.errors import IncomparableTypes, UnsupportedSql
from zskip.language.functions.function import ArgumentBinder
from zskip.language.render import type_name
from zskip.language.tree import Literal, Node, Opaque, Scalar, Why


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The value ``then`` if the condition is TRUE, else ``otherwise``."""

    condition: Node
    then: Value
    otherwise: Value
    samples: tuple[Scalar, ...] = field(init=False)
    """Of the scalars in the branches, for each type, one constant and one other scalar, if any."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", samples((self.then, self.otherwise)))


Value = Scalar | Choice


def samples(values: Iterable[Value]) -> tuple[Scalar, ...]:
    """One constant and one other scalar, if any, for each type among these values and the branches of choices."""
    found: list[tuple[bool, Scalar]] = []
    for value in values:
        for scalar in value.samples if isinstance(value, Choice) else (value,):
            constant = isinstance(scalar, Literal)
            # Types are compared, since not every extension type has a hash.
            if not any(constant == known and scalar.type == other.type for known, other in found):
                found.append((constant, scalar))
    return tuple(scalar for _, scalar in found)


class Binding(ArgumentBinder, Protocol):
    """The binding of one text. A rule is a function of it and of a parsed expression.

    ``checked``: the parsed expressions, by id, that are known to contain no aggregate and no subquery.
    """

    source: SourceText
    names: Names
    checked: dict[int, exp.Expr]

    def predicate(self, node: exp.Expr) -> Node:
        """Binds an expression as a predicate. Unsupported expressions become opaque."""
        ...

    def value(self, node: exp.Expr) -> Value:
        """Binds an expression as a scalar or a choice of scalars. Raises `Refused`."""
        ...


# Unsupported SQL becomes opaque, with a reason; SQL that is not a condition on rows raises an error.

_NOT_A_PREDICATE: dict[type[exp.Expr], str] = {
    exp.AggFunc: "an aggregate",
    exp.Window: "a window function",
    exp.Query: "a subquery",
    exp.Star: "a star",
}


_RUNS_CODE = {"reflect", "java_method", "try_reflect"}
"""Spark's functions that can call any method of any Java class."""


def opaque(binding: Binding, node: exp.Expr, reason: Why | str) -> Opaque:
    """An expression that ranges cannot decide, and why; a string is a reason of the cause UNSUPPORTED."""
    reason = Why(reason) if isinstance(reason, str) else reason
    require_row_expression(binding, node)
    paths = tuple(sorted({path for column in node.find_all(exp.Column) for path in binding.names.paths(column)}))
    start, end = text_range(node)
    end = end_with_parentheses(binding.source.text, start, end)
    sql = binding.names.template(start, end).render() if start < end else node.sql(binding.dialect.name)
    return Opaque(sql, paths, reason)


def require_row_expression(binding: Binding, node: exp.Expr) -> None:
    """Raises `UnsupportedSql` for an expression that contains an aggregate, a subquery, or a call of arbitrary code."""
    if id(node) in binding.checked:
        return  # already checked as a part of a larger expression
    for each in node.walk():
        binding.checked[id(each)] = each
        for kind, name in _NOT_A_PREDICATE.items():
            if isinstance(each, kind):
                raise UnsupportedSql(
                    f"There is {name} in the predicate: it cannot be planned over one table's rows.",
                    binding.source.text,
                    span_with_parentheses(binding.source, each),
                )
        if isinstance(each, exp.Func) and each.name.lower() in _RUNS_CODE:
            raise UnsupportedSql(
                f"{each.name}() can run arbitrary code, so it is not allowed in a condition on rows.",
                binding.source.text,
                span_with_parentheses(binding.source, each),
            )


def require_condition(binding: Binding, node: exp.Expr, type: pa.DataType) -> None:
    """Raises `IncomparableTypes` for a value as a condition, unless the dialect converts it to TRUE or FALSE.

    DuckDB converts numbers. Strings are refused: DuckDB converts some, and fails at the first row with another.
    """
    if binding.dialect.name == "spark" or not (t.is_integer(type) or t.is_floating(type) or t.is_decimal(type)):
        type_text = type_name(type, binding.dialect.name)
        raise IncomparableTypes(
            f"A condition is TRUE or FALSE, and this is {type_text}: compare it with something.",
            binding.source.text,
            span(binding.source, node),
        )


def name_as_written(binding: Binding, node: exp.Expr) -> str:
    """The name of an expression's function or operator, as the text has it."""
    written = binding.source.text[node.meta["start"] : node.meta["end"] + 1] if "start" in node.meta else ""
    if isinstance(node, exp.Func) and written.isidentifier():
        return f"{written}()"
    if isinstance(node, exp.Binary):
        between = binding.source.text[text_range(node.this)[1] : text_range(node.expression)[0]]
        operator = between.strip("()[]'\"` \t\n")
        return operator if 0 < len(operator) <= 3 else _name(node)
    function = re.match(r"(\w+)\(", node.sql(binding.dialect.name).lower())
    return f"{function[1]}()" if function and function[1] in binding.source.text.lower() else _name(node)


def _name(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return f"{node.name}()"
    return node.key.upper()
