"""Patterns over texts: LIKE, ILIKE, GLOB, regular expressions, starts_with and their kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pyarrow import types as t
from sqlglot import exp

from zskip.binder.constants import constant
from zskip.binder.nodes import bare, known
from zskip.binder.refusals import opaque
from zskip.expr import patterns, tree
from zskip.expr.literals import Refused
from zskip.expr.tree import Literal, Node, Opaque, Scalar

if TYPE_CHECKING:
    from zskip.binder.leaf_binder import Binder

__all__ = ["anywhere", "escaped", "glob", "ilike", "like", "prefix_call", "regex", "starts", "suffix_call"]


def like(binder: Binder, node: exp.Expr) -> Node:
    """``s LIKE 'p%'``, with the escape of the dialect."""
    escape: str | None = None
    pattern = bare(node.expression)
    if isinstance(pattern, exp.Escape):
        pattern = pattern.this
    try:
        text, subject = binder.scalar(pattern), binder.scalar(node.this)
    except Refused as refusal:
        return opaque(binder, node, str(refusal))
    if not isinstance(text, Literal):
        return opaque(binder, node, "LIKE with a pattern that is no constant")
    if not text.value.is_valid:
        return tree.unknown()
    if not t.is_string(subject.type) or not t.is_string(text.type):
        return opaque(binder, node, f"LIKE over {subject.type}")
    if escape is None and binder.dialect.name == "spark":
        escape = "\\"
    return _matching(binder, node, subject, patterns.like(subject, text.value.as_py(), escape))


def escaped(binder: Binder, node: exp.Expr) -> Node:
    """``s LIKE 'p#%' ESCAPE '#'``."""
    inner = node.this
    escape = constant(node.expression, binder.dialect)
    if isinstance(inner, exp.Like) and escape is not None and escape.is_valid and len(escape.as_py()) <= 1:
        subject, text = binder.scalar(inner.this), binder.scalar(inner.expression)
        if isinstance(text, Literal) and text.value.is_valid and t.is_string(subject.type):
            found = patterns.like(subject, text.value.as_py(), escape.as_py() or None)
            if found is not None:
                return found
    return opaque(binder, node, "a pattern that zskip does not read")


def starts(binder: Binder, node: exp.Expr) -> Node:
    """``starts_with(s, 'p')`` and ``s ^@ 'p'``."""
    subject, text = _text(binder, node)
    return tree.unknown() if text is None else patterns.starts_with(subject, text)


def anywhere(binder: Binder, node: exp.Expr) -> Node:
    """``contains(s, 'p')`` and ``suffix(s, 'p')``."""
    return _implied(binder, node, lambda subject, text: None)


def ilike(binder: Binder, node: exp.Expr) -> Node:
    """``s ILIKE 'p%'``."""
    escape = "\\" if binder.dialect.name == "spark" else None
    return _implied(binder, node, lambda subject, text: patterns.ilike(subject, text, escape))


def regex(binder: Binder, node: exp.Expr) -> Node:
    """``regexp_matches``, RLIKE and SIMILAR TO."""
    whole = isinstance(node, exp.SimilarTo | exp.RegexpFullMatch)
    if binder.dialect.name not in ("duckdb", "spark"):
        raise Refused(f"regular expressions of {binder.dialect.name}")
    subject, text = _text(binder, node)
    exact = None if text is None else patterns.exact_regex(subject, text, whole, binder.dialect.name)
    if exact is not None:
        known(node, "this", "expression")
        return exact
    return _implied(binder, node, lambda subject, text: patterns.regex(subject, text, whole))


def glob(binder: Binder, node: exp.Expr) -> Node:
    """``s GLOB 'p*'``."""
    return _implied(binder, node, patterns.glob)


def prefix_call(binder: Binder, node: exp.Expr) -> Node:
    """``prefix(s, 'p')``."""
    if len(node.expressions) != 2:
        raise Refused("prefix() of something other than two")
    return starts(binder, exp.StartsWith(this=node.expressions[0], expression=node.expressions[1]))


def suffix_call(binder: Binder, node: exp.Expr) -> Node:
    """``suffix(s, 'p')``."""
    if len(node.expressions) != 2:
        raise Refused("suffix() of something other than two")
    return anywhere(binder, exp.EndsWith(this=node.expressions[0], expression=node.expressions[1]))


def _text(binder: Binder, node: exp.Expr) -> tuple[Scalar, str | None]:
    """The subject of a pattern and the pattern; None for NULL."""
    subject, text = binder.scalar(node.this), binder.scalar(node.expression)
    if not isinstance(text, Literal) or not t.is_string(subject.type):
        raise Refused("a pattern that is no constant, or not over a string")
    if not text.value.is_valid:
        return subject, None
    if not t.is_string(text.type):
        raise Refused(f"a pattern of type {text.type}")
    return subject, text.value.as_py()


def _implied(binder: Binder, node: exp.Expr, range_of: Callable[[Scalar, str], Node | None]) -> Node:
    """A pattern of which only a literal beginning is a range."""
    known(node, "this", "expression")
    subject, text = _text(binder, node)
    if text is None:
        return tree.unknown()
    implied = range_of(subject, text)
    if implied is None:
        return _matching(binder, node, subject, None)
    found = opaque(binder, node, "only the literal beginning of the pattern is a range")
    return replace(found, implies=implied, strict=True) if isinstance(found, Opaque) else found


def _matching(binder: Binder, node: exp.Expr, subject: Scalar, found: Node | None) -> Node:
    """What a pattern says; where that is nothing of the order, it is NULL for NULL alone, and never fails."""
    if found is not None:
        return found
    unproved = opaque(binder, node, "a pattern that does not begin with a literal")
    if isinstance(unproved, Opaque) and binder.dialect.name in ("duckdb", "spark"):
        return replace(unproved, implies=tree.always(subject), strict=True)
    return unproved
