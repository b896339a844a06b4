"""AND, OR, NOT and XOR within a leaf; IS NULL, TRUE, FALSE and UNKNOWN; isnan."""

from __future__ import annotations

import math
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from zskip.binder.case_values import distribute
from zskip.binder.context import Binding
from zskip.binder.refusals import opaque
from zskip.binder.source_text import without_parentheses
from zskip.core import types as t
from zskip.language import tree
from zskip.language.literals import Refused
from zskip.language.tree import Node, Reference
from zskip.language.why import Why


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
        return tree.is_(binding.predicate(node.this), bool(tested.this))
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
        return tree.is_(binding.predicate(node.this), None)
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
    is_nan = tree.in_(term, pa.array([math.nan], term.type))
    return tree.is_(is_nan, True) if binding.dialect.name == "spark" else is_nan
