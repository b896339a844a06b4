"""CASE, IF, COALESCE and NULLIF, as predicates and as values."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from zskip.binder.case_values import Choice, Value, distribute
from zskip.binder.context import Binding
from zskip.binder.predicates.common_type import one_branch_type
from zskip.binder.predicates.operands import bind_comparison
from zskip.binder.source_text import without_parentheses
from zskip.language import tree
from zskip.language.functions.function import require_only
from zskip.language.literals import Refused
from zskip.language.tree import Literal, Node

_MAX_BRANCHES = 180
"""Branches of a CASE, and arguments of COALESCE, that become nested choices; more are left to the engine."""


def case(binding: Binding, node: exp.Expr) -> Node:
    """CASE, IF and COALESCE as a predicate. Raises `Refused`."""
    if isinstance(node, exp.Coalesce):
        _require_few(node.expressions)
        parts = [binding.predicate(each) for each in (node.this, *node.expressions)]
        chosen = parts[-1]
        for part in reversed(parts[:-1]):
            chosen = tree.choose(tree.is_(part, None), chosen, part)
        return chosen
    branches, default = _branches(binding, node)
    chosen = tree.unknown() if default is None else binding.predicate(default)
    for condition, result in reversed(branches):
        chosen = tree.choose(condition, binding.predicate(result), chosen)
    return chosen


def value(binding: Binding, node: exp.Expr) -> Value:
    """An expression as a scalar or a choice of scalars. Raises `Refused`."""
    node = without_parentheses(node)
    if isinstance(node, exp.Case | exp.If):
        branches, default = _branches(binding, node)
        results = [value(binding, each) for _, each in branches]
        last: Value = Literal(pa.scalar(None)) if default is None else value(binding, default)
        *results, last = one_branch_type([*results, last], binding.dialect)
        for (condition, _), result in zip(reversed(branches), reversed(results), strict=True):
            last = Choice(condition, result, last)
        return last
    if isinstance(node, exp.Coalesce):
        require_only(node, "this", "expressions")
        _require_few(node.expressions)
        values = one_branch_type([value(binding, each) for each in (node.this, *node.expressions)], binding.dialect)
        last = values[-1]
        for each in reversed(values[:-1]):
            last = Choice(distribute(tree.IsNull, each), last, each)
        return last
    if isinstance(node, exp.Nullif):
        left = binding.scalar(node.this)
        equal = bind_comparison(binding, "=", left, binding.scalar(node.expression), node)
        return Choice(equal, Literal(pa.scalar(None)), left)
    return binding.scalar(node)


def _require_few(branches: Sequence[exp.Expr]) -> None:
    if len(branches) > _MAX_BRANCHES:
        raise Refused(f"a choice among more than {_MAX_BRANCHES} values")


def _branches(binding: Binding, node: exp.Expr) -> tuple[list[tuple[Node, exp.Expr]], exp.Expr | None]:
    """The conditions and results of a CASE or IF, and the result of its ELSE."""
    if isinstance(node, exp.If):
        require_only(node, "this", "true", "false")
        return [(binding.predicate(node.this), node.args["true"])], node.args.get("false")
    require_only(node, "this", "ifs", "default")
    _require_few(node.args["ifs"])
    branches = []
    for branch in node.args["ifs"]:
        test = branch.this if node.this is None else exp.EQ(this=node.this.copy(), expression=branch.this.copy())
        branches.append((binding.predicate(test), branch.args["true"]))
    return branches, node.args.get("default")
