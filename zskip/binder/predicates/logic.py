"""AND, OR, NOT and XOR within a leaf; IS NULL, TRUE, FALSE and UNKNOWN; isnan."""

from __future__ import annotations

import math
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from zskip import types as t
from zskip.binder.case_values import chosen
from zskip.binder.context import Binding
from zskip.binder.nodes import bare
from zskip.binder.refusals import opaque
from zskip.expr import tree
from zskip.expr.literals import Refused
from zskip.expr.tree import Node, Opaque, Reference
from zskip.expr.why import Why

__all__ = ["and_", "is_", "nan", "not_", "null_call", "or_", "xor"]


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
    tested = bare(node.expression)
    if isinstance(tested, exp.Null):
        try:
            return chosen(tree.IsNull, binding.value(node.this))
        except Refused as refusal:
            return _null_struct(binding, node) or _null_test(binding, node, refusal.why)
    if isinstance(tested, exp.Boolean):
        return tree.is_(binding.predicate(node.this), bool(tested.this))
    return opaque(binding, node, "IS with something other than NULL, TRUE or FALSE")


def _null_struct(binding: Binding, node: exp.Expr) -> Node | None:
    """``s IS NULL`` of a struct: all that it holds is NULL then. None of anything else."""
    column = bare(node.this)
    if not isinstance(column, exp.Column) or len(column.parts) > 1:
        return None
    named = [each for each in binding.schema.arrow if each.name.lower() == column.name.lower()]
    if len(named) != 1 or not t.is_struct(named[0].type):
        return None
    leaves = [each for each in binding.schema if each.parts[0] == named[0].name and not t.is_nested(each.type)]
    unproved = opaque(binding, node, "a struct, which is NULL where all of its fields are, and maybe not there")
    if not leaves or not isinstance(unproved, Opaque):
        return None
    null = tree.and_([tree.IsNull(Reference(each.path, each.type)) for each in leaves])
    return replace(unproved, implies=null, strict=True)


def _null_test(binding: Binding, node: exp.Expr, reason: Why) -> Node:
    """IS NULL of a predicate, such as ``(a > 5) IS NULL``."""
    if isinstance(bare(node.this), exp.Predicate | exp.Connector | exp.Not):
        return tree.is_(binding.predicate(node.this), None)
    return opaque(binding, node, reason)


def null_call(binding: Binding, node: exp.Expr) -> Node:
    """``isnull(x)`` and ``isnotnull(x)``."""
    if len(node.expressions) != 1:
        raise Refused("isnull() of something other than one")
    found = chosen(tree.IsNull, binding.value(node.expressions[0]))
    return found if node.name.lower() == "isnull" else tree.not_(found)


def nan(binding: Binding, node: exp.Expr) -> Node:
    """``isnan(x)``; Spark's is never NULL."""
    term = binding.scalar(node.this)
    if not t.is_floating(term.type):
        raise Refused(f"isnan over {term.type}")
    found = tree.in_(term, pa.array([math.nan], term.type))
    return tree.is_(found, True) if binding.dialect.name == "spark" else found
