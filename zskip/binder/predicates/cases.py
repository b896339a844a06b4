"""CASE, IF, COALESCE and NULLIF: as predicates, and as values among which a comparison chooses."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from zskip.binder.case_values import Choice, Value, chosen
from zskip.binder.context import Binding
from zskip.binder.nodes import bare
from zskip.binder.predicates.common_type import one_kind
from zskip.binder.predicates.operands import compared
from zskip.expr import tree
from zskip.expr.literals import Refused
from zskip.expr.tree import Literal, Node
from zskip.functions.parsed_arguments import known

__all__ = ["case", "value"]

_MOST_BRANCHES = 180
"""Branches of a CASE, and arguments of COALESCE, that become choices within choices; more are left to the engine."""


def case(binding: Binding, node: exp.Expr) -> Node:
    """CASE, IF and COALESCE where a predicate is wanted. Raises `Refused`."""
    if isinstance(node, exp.Coalesce):
        _require_few(node.expressions)
        parts = [binding.predicate(each) for each in (node.this, *node.expressions)]
        found = parts[-1]
        for part in reversed(parts[:-1]):
            found = tree.choose(tree.is_(part, None), found, part)
        return found
    branches, default = _branches(binding, node)
    found = tree.unknown() if default is None else binding.predicate(default)
    for condition, result in reversed(branches):
        found = tree.choose(condition, binding.predicate(result), found)
    return found


def value(binding: Binding, node: exp.Expr) -> Value:
    """A scalar, or a choice of scalars. Raises `Refused`."""
    node = bare(node)
    if isinstance(node, exp.Case | exp.If):
        branches, default = _branches(binding, node)
        results = [value(binding, each) for _, each in branches]
        last: Value = Literal(pa.scalar(None)) if default is None else value(binding, default)
        *results, last = one_kind([*results, last], binding.dialect)
        for (condition, _), result in zip(reversed(branches), reversed(results), strict=True):
            last = Choice(condition, result, last)
        return last
    if isinstance(node, exp.Coalesce):
        known(node, "this", "expressions")
        _require_few(node.expressions)
        values = one_kind([value(binding, each) for each in (node.this, *node.expressions)], binding.dialect)
        last = values[-1]
        for each in reversed(values[:-1]):
            last = Choice(chosen(tree.IsNull, each), last, each)
        return last
    if isinstance(node, exp.Nullif):
        left = binding.scalar(node.this)
        equal = compared(binding, "=", left, binding.scalar(node.expression), node)
        return Choice(equal, Literal(pa.scalar(None)), left)
    return binding.scalar(node)


def _require_few(branches: Sequence[exp.Expr]) -> None:
    if len(branches) > _MOST_BRANCHES:
        raise Refused(f"a choice among more than {_MOST_BRANCHES}")


def _branches(binding: Binding, node: exp.Expr) -> tuple[list[tuple[Node, exp.Expr]], exp.Expr | None]:
    if isinstance(node, exp.If):
        known(node, "this", "true", "false")
        return [(binding.predicate(node.this), node.args["true"])], node.args.get("false")
    known(node, "this", "ifs", "default")
    _require_few(node.args["ifs"])
    found = []
    for branch in node.args["ifs"]:
        test = branch.this if node.this is None else exp.EQ(this=node.this.copy(), expression=branch.this.copy())
        found.append((binding.predicate(test), branch.args["true"]))
    return found, node.args.get("default")
