"""AND, OR, NOT and XOR within a leaf; IS NULL, TRUE, FALSE and UNKNOWN; isnan; CASE, IF, COALESCE and NULLIF."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from zskip.binder.context import Binding, Choice, Value, opaque, samples
from zskip.binder.predicates.comparisons import bind_comparison, distribute
from zskip.binder.source_text import without_parentheses
from zskip.core import types as t
from zskip.language import tree
from zskip.language.bound import Dialect
from zskip.language.functions.function import require_only
from zskip.language.functions.widths import is_wide
from zskip.language.literals import Refused, fit
from zskip.language.tree import Call, Cause, Literal, Node, Reference, Scalar, Why


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


CHOICES = (exp.Case, exp.If, exp.Coalesce, exp.Nullif)


def choice(binding: Binding, node: exp.Expr) -> Value:
    """One of `CHOICES` as a choice of scalars. Raises `Refused`."""
    if isinstance(node, exp.Nullif):
        left = binding.scalar(node.this)
        equal = bind_comparison(binding, "=", left, binding.scalar(node.expression), node)
        return Choice(equal, Literal(pa.scalar(None)), left)
    if isinstance(node, exp.Coalesce):
        require_only(node, "this", "expressions")
        _require_few(node.expressions)
        values = _one_branch_type([binding.value(each) for each in (node.this, *node.expressions)], binding.dialect)
        last = values[-1]
        for each in reversed(values[:-1]):
            last = Choice(distribute(tree.IsNull, each), last, each)
        return last
    branches, default = _branches(binding, node)
    results = [binding.value(each) for _, each in branches]
    last = Literal(pa.scalar(None)) if default is None else binding.value(default)
    *results, last = _one_branch_type([*results, last], binding.dialect)
    for (condition, _), result in zip(reversed(branches), reversed(results), strict=True):
        last = Choice(condition, result, last)
    return last


def _one_branch_type(values: Sequence[Value], dialect: Dialect) -> list[Value]:
    """The branches of a choice, in their common type. Raises `Refused` if the engine's cast may round."""
    scalars = samples(values)
    if len(scalars) > 1 and any(isinstance(each, Call) and is_wide(each) for each in scalars):
        raise Refused("a choice among computed numbers of more than 18 digits", Cause.SEVERAL_TYPES)
    types = _distinct(each.type for each in scalars if each.type != pa.null())
    exact = all(t.is_integer(each) or t.is_decimal(each) for each in types) and _fits_38(types)
    if len(types) <= 1 or exact:
        return list(values)
    terms = _distinct(each.type for each in scalars if not isinstance(each, Literal))
    if len(terms) != 1 or any(isinstance(value, Choice) for value in values):
        raise Refused("a choice among values of several types", Cause.SEVERAL_TYPES)
    return list(_aligned([value for value in values if not isinstance(value, Choice)], dialect))


def _one_type(scalars: Sequence[Scalar]) -> pa.DataType:
    type = next((each.type for each in scalars if not isinstance(each, Literal)), scalars[0].type)
    if t.is_floating(type) and type != pa.float64():
        raise Refused("values of several float types")
    return type


def _aligned(scalars: Sequence[Scalar], dialect: Dialect) -> list[Scalar]:
    """The scalars with constants converted to the type of the others. Raises `Refused` if types differ."""
    type = _one_type(scalars)
    found: list[Scalar] = []
    for scalar in scalars:
        if scalar.type == type:
            found.append(scalar)
        elif not isinstance(scalar, Literal):
            raise Refused(f"{scalar.type} among values of {type}")
        elif not scalar.value.is_valid:
            found.append(Literal(pa.scalar(None, type)))
        else:
            fitted = fit(scalar.value, type, dialect.name, dialect.timezone)
            if not fitted.exact or fitted.floor is None:
                raise Refused(f"{scalar.value} among values of {type}")
            found.append(Literal(fitted.floor))
    return found


def _distinct(types: Iterable[pa.DataType]) -> list[pa.DataType]:
    """The types without duplicates. They are compared, since not every extension type has a hash."""
    found: list[pa.DataType] = []
    for type in types:
        if type not in found:
            found.append(type)
    return found


def _fits_38(types: Iterable[pa.DataType]) -> bool:
    """Whether a decimal of 38 digits holds all values of some exact types, so that no engine rounds."""
    sizes = [(each.precision - each.scale, each.scale) if t.is_decimal(each) else (20, 0) for each in types]
    return max((whole for whole, _ in sizes), default=0) + max((scale for _, scale in sizes), default=0) <= 38


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
