"""The rules that bind SQL predicates to nodes of the tree, by the class of the parsed expression.

``comparisons``: of values and of rows · ``membership``: BETWEEN, IN · ``logic``: AND, OR, NOT, XOR, IS, CASE, COALESCE,
NULLIF · ``like``: LIKE and other patterns.
A predicate whose rule raises `Refused` becomes opaque.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from zskip.binder.context import Binding
from zskip.binder.predicates import like, logic, membership
from zskip.binder.predicates.comparisons import comparison, distinct
from zskip.language.tree import Node

__all__ = ["ARGUMENTS", "rule"]

Rule = Callable[[Binding, exp.Expr], Node]


def rule(node: exp.Expr) -> Rule | None:
    """The rule that binds an expression as a predicate; None if there is none."""
    found = _RULES.get(type(node))
    if found is None and isinstance(node, exp.Anonymous):
        return _NAMED.get(node.name.lower())
    return found


_RULES: dict[type[exp.Expr], Rule] = {
    exp.EQ: comparison("="),
    exp.NEQ: comparison("<>"),
    exp.LT: comparison("<"),
    exp.LTE: comparison("<="),
    exp.GT: comparison(">"),
    exp.GTE: comparison(">="),
    exp.NullSafeEQ: distinct,
    exp.NullSafeNEQ: distinct,
    exp.And: logic.and_,
    exp.Or: logic.or_,
    exp.Not: logic.not_,
    exp.Xor: logic.xor,
    exp.Is: logic.is_,
    exp.IsNan: logic.nan,
    exp.Between: membership.between,
    exp.In: membership.in_,
    exp.Case: logic.case,
    exp.If: logic.case,
    exp.Coalesce: logic.case,
    exp.Like: like.like,
    exp.Escape: like.escaped,
    exp.ILike: like.ilike,
    exp.Glob: like.glob,
    exp.StartsWith: like.starts,
    exp.EndsWith: like.anywhere,
    exp.Contains: like.anywhere,
    exp.RegexpLike: like.regex,
    exp.RegexpFullMatch: like.regex,
    exp.SimilarTo: like.regex,
}

_NAMED: dict[str, Rule] = {
    "prefix": like.prefix_call,
    "suffix": like.suffix_call,
    "isnull": logic.null_call,
    "isnotnull": logic.null_call,
}

ARGUMENTS = (
    "this", "expression", "expressions", "low", "high", "symmetric", "negate", "ifs", "default", "true", "false",
    "query", "unnest", "field",
)  # fmt: skip
"""The arguments that the rules read; an expression with others, such as flags of a regular expression, is refused."""
