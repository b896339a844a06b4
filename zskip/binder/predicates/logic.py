"""AND, OR, NOT and XOR within a leaf; IS NULL, TRUE, FALSE and UNKNOWN; isnan; CASE, IF, COALESCE and NULLIF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from zskip.binder.context import Binding, Choice, Value, distribute, opaque
from zskip.binder.predicates.comparisons import bind_comparison, one_branch_type
from zskip.binder.source_text import without_parentheses
from zskip.core import types as t
from zskip.language import tree
from zskip.language.functions.function import require_only
from zskip.language.literals import Refused
from zskip.language.tree import Literal, Node, Reference, Why


def and_(binding: Binding, node: exp.Expr) -> Node:
    """AND, of any number of parts."""
    return tree.and_([binding.predicate(each) for each in node.flatten()])


def or_(binding: Binding, node: exp.Expr) -> Node:
    """OR, of any number of parts."""
    return tree.or_([binding.predicate(each) for each in node.flatten()])


def not_(binding: Binding, node: exp.Expr) -> Node:
    """NOT."""
    return tree.not_(binding.predicate(node.this))


def xor(binding: Binding, node: exp.Expr) -> Node:
    """XOR."""
    left, right = binding.predicate(node.this), binding.predicate(node.expression)
    return tree.or_([tree.and_([left, tree.not_(right)]), tree.and_([tree.not_(left), right])])


def is_(binding: Binding, node: exp.Expr) -> Node:
    """``x IS NULL``; ``p IS TRUE``, ``IS FALSE``, ``IS UNKNOWN``."""
    tested = without_parentheses(node.expression)
    if isinstance(tested, exp.Null):
        try:
            return distribute(tree.IsNull, binding.value(node.this))
        except Refused as refusal:
            return _null_struct(binding, node) or _null_predicate(binding, node, refusal.why)
    if isinstance(tested, exp.Boolean):
        return tree.Is(binding.predicate(node.this), bool(tested.this))
    return opaque(binding, node, "IS with something other than NULL, TRUE or FALSE")


def _null_struct(binding: Binding, node: exp.Expr) -> Node | None:
    """``s IS NULL`` of a struct: opaque, and implies that all its fields are NULL. None for anything else."""
    leaves = binding.names.leaves_of_struct(without_parentheses(node.this))
    if not leaves:
        return None
    unproved = opaque(binding, node, "a struct may be NULL or not where all of its fields are NULL")
    null = tree.and_([tree.IsNull(Reference(each.path, each.type)) for each in leaves])
    return replace(unproved, implies=null, strict=True)


def _null_predicate(binding: Binding, node: exp.Expr, reason: Why) -> Node:
    """IS NULL of a predicate, such as ``(a > 5) IS NULL``."""
    if isinstance(without_parentheses(node.this), exp.Predicate | exp.Connector | exp.Not):
        return tree.Is(binding.predicate(node.this), None)
    return opaque(binding, node, reason)


def null_call(binding: Binding, node: exp.Expr) -> Node:
    """``isnull(x)`` and ``isnotnull(x)``."""
    if len(node.expressions) != 1:
        raise Refused("isnull() with other than one argument")
    null = distribute(tree.IsNull, binding.value(node.expressions[0]))
    return null if node.name.lower() == "isnull" else tree.not_(null)


def nan(binding: Binding, node: exp.Expr) -> Node:
    """``isnan(x)``; Spark's is never NULL."""
    term = binding.scalar(node.this)
    if not t.is_floating(term.type):
        raise Refused(f"isnan over {term.type}")
    return tree.Is(tree.is_nan(term), True) if binding.dialect.name == "spark" else tree.is_nan(term)


_MAX_BRANCHES = 180
"""Branches of a CASE, and arguments of COALESCE, that become nested choices; more are left to the engine."""


def case(binding: Binding, node: exp.Expr) -> Node:
    """CASE, IF and COALESCE as a predicate. Raises `Refused`."""
    if isinstance(node, exp.Coalesce):
        _require_few(node.expressions)
        parts = [binding.predicate(each) for each in (node.this, *node.expressions)]
        chosen = parts[-1]
        for part in reversed(parts[:-1]):
            chosen = tree.Choose(tree.Is(part, None), chosen, part)
        return chosen
    branches, default = _branches(binding, node)
    chosen = tree.unknown() if default is None else binding.predicate(default)
    for condition, result in reversed(branches):
        chosen = tree.Choose(condition, binding.predicate(result), chosen)
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
