"""Unknown SQL becomes opaque, with a reason; what is not a condition on rows raises an error."""

from __future__ import annotations

import re

import pyarrow as pa
from sqlglot import exp

from zskip import types as t
from zskip.binder.context import Binding
from zskip.binder.nodes import place, span, whole_span
from zskip.binder.text_spans import closed
from zskip.errors import IncomparableTypes, UnsupportedSql
from zskip.expr.render import type_name
from zskip.expr.tree import Opaque
from zskip.expr.why import Why

__all__ = ["called", "must_be_condition", "must_be_of_a_row", "opaque"]

_NOT_A_PREDICATE: dict[type[exp.Expr], str] = {
    exp.AggFunc: "an aggregate",
    exp.Window: "a window function",
    exp.Query: "a subquery",
    exp.Star: "a star",
}


_RUNS_CODE = {"reflect", "java_method", "try_reflect"}
"""Functions of Spark that call any method of any Java class."""


def opaque(binding: Binding, node: exp.Expr, reason: Why | str) -> Opaque:
    """An expression that cannot be proved from ranges, and why; a text alone is the reason of what is unsupported."""
    reason = Why(reason) if isinstance(reason, str) else reason
    must_be_of_a_row(binding, node)
    paths = tuple(sorted({path for column in node.find_all(exp.Column) for path in binding.names.paths(column)}))
    start, end = place(node)
    end = closed(binding.source.frozen, start, end)
    return Opaque(binding.names.named(start, end) if start < end else node.sql(binding.dialect.name), paths, reason)


def must_be_of_a_row(binding: Binding, node: exp.Expr) -> None:
    """Raises `UnsupportedSql` where an expression holds an aggregate, a subquery or the like: not of one row."""
    if id(node) in binding.checked:
        return  # within something larger
    for each in node.walk():
        binding.checked[id(each)] = each
        for kind, name in _NOT_A_PREDICATE.items():
            if isinstance(each, kind):
                raise UnsupportedSql(
                    f"There is {name} in the predicate: it cannot be planned over one table's rows.",
                    binding.source.original,
                    whole_span(binding.source, each),
                )
        if isinstance(each, exp.Func) and each.name.lower() in _RUNS_CODE:
            raise UnsupportedSql(
                f"{each.name}() runs code of its caller's choice: that is no condition on rows.",
                binding.source.original,
                whole_span(binding.source, each),
            )


def must_be_condition(binding: Binding, node: exp.Expr, type: pa.DataType) -> None:
    """Raises `IncomparableTypes` for a value that stands as a condition, and which no engine takes for TRUE or FALSE.

    DuckDB takes numbers; of texts it takes some, and fails at the first row with another.
    """
    if binding.dialect.name == "spark" or not (t.is_integer(type) or t.is_floating(type) or t.is_decimal(type)):
        type_text = type_name(type, binding.dialect.name)
        raise IncomparableTypes(
            f"A condition is TRUE or FALSE, and this is {type_text}: compare it with something.",
            binding.source.original,
            span(binding.source, node),
        )


def called(binding: Binding, node: exp.Expr) -> str:
    """What an expression is called where it stands."""
    written = binding.source.frozen[node.meta["start"] : node.meta["end"] + 1] if "start" in node.meta else ""
    if isinstance(node, exp.Func) and written.isidentifier():
        return f"{written}()"
    if isinstance(node, exp.Binary):
        between = binding.source.frozen[place(node.this)[1] : place(node.expression)[0]]
        sign = between.strip("()[]'\"` \t\n")
        return sign if 0 < len(sign) <= 3 else _name(node)
    begins = re.match(r"(\w+)\(", node.sql(binding.dialect.name).lower())
    return f"{begins[1]}()" if begins and begins[1] in binding.source.frozen.lower() else _name(node)


def _name(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return f"{node.name}()"
    return node.key.upper()
