"""Patterns over strings: LIKE, ILIKE, GLOB, regular expressions, starts_with and similar functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from zskip.binder.constants import literal_value
from zskip.binder.context import Binding, opaque
from zskip.core import types as t
from zskip.language import patterns, tree
from zskip.language.functions.function import require_only
from zskip.language.literals import Refused
from zskip.language.patterns import and_of_known, contains_conditions, glob_pieces, like_pieces, regex_pieces
from zskip.language.tree import Literal, Node, Scalar


def like(binding: Binding, node: exp.Expr) -> Node:
    """``s LIKE 'p%'``, with the dialect's default escape character."""
    try:
        text, subject = binding.scalar(node.expression), binding.scalar(node.this)
    except Refused as refusal:
        return opaque(binding, node, refusal.why)
    if not isinstance(text, Literal):
        return opaque(binding, node, "LIKE with a pattern that is not a constant")
    if not text.value.is_valid:
        return tree.unknown()
    if not t.is_string(subject.type) or not t.is_string(text.type):
        return opaque(binding, node, f"LIKE over {subject.type}")
    if "\\" in text.value.as_py() and binding.dialect.name not in ("duckdb", "spark"):
        return opaque(binding, node, "a pattern with a backslash, which may escape what follows")
    escape = _default_escape(binding)
    return _matching(binding, node, subject, patterns.like(subject, text.value.as_py(), escape))


def _default_escape(binding: Binding) -> str | None:
    return "\\" if binding.dialect.name == "spark" else None


def escaped(binding: Binding, node: exp.Expr) -> Node:
    """``s LIKE 'p#%' ESCAPE '#'``."""
    inner = node.this
    escape = literal_value(node.expression, binding)
    if isinstance(inner, exp.Like) and escape is not None and escape.is_valid and len(escape.as_py()) <= 1:
        subject, text = binding.scalar(inner.this), binding.scalar(inner.expression)
        if isinstance(text, Literal) and text.value.is_valid and t.is_string(subject.type):
            matching = patterns.like(subject, text.value.as_py(), escape.as_py() or None)
            if matching is not None:
                return matching
    return opaque(binding, node, "an unsupported pattern")


def starts(binding: Binding, node: exp.Expr) -> Node:
    """``starts_with(s, 'p')`` and ``s ^@ 'p'``."""
    subject, text = _text(binding, node)
    return tree.unknown() if text is None else patterns.starts_with(subject, text)


def anywhere(binding: Binding, node: exp.Expr) -> Node:
    """``contains(s, 'p')`` and ``suffix(s, 'p')``."""
    return _implied(binding, node, lambda subject, text: None, lambda text: [text])


def ilike(binding: Binding, node: exp.Expr) -> Node:
    """``s ILIKE 'p%'``."""
    escape = _default_escape(binding)
    return _implied(
        binding,
        node,
        lambda subject, text: patterns.ilike(subject, text, escape),
        lambda text: like_pieces(text, escape),
        any_case=True,
    )


def regex(binding: Binding, node: exp.Expr) -> Node:
    """``regexp_matches``, RLIKE and SIMILAR TO."""
    whole = isinstance(node, exp.SimilarTo | exp.RegexpFullMatch)
    if binding.dialect.name not in ("duckdb", "spark"):
        raise Refused(f"regular expressions of {binding.dialect.name}")
    subject, text = _text(binding, node)
    exact = None if text is None else patterns.exact_regex(subject, text, whole, binding.dialect.name)
    if exact is not None:
        require_only(node, "this", "expression")
        return exact
    return _implied(binding, node, lambda subject, text: patterns.regex(subject, text, whole), regex_pieces)


def glob(binding: Binding, node: exp.Expr) -> Node:
    """``s GLOB 'p*'``."""
    return _implied(binding, node, patterns.glob, glob_pieces)


def prefix_call(binding: Binding, node: exp.Expr) -> Node:
    """``prefix(s, 'p')``."""
    if len(node.expressions) != 2:
        raise Refused("prefix() with other than two arguments")
    return starts(binding, exp.StartsWith(this=node.expressions[0], expression=node.expressions[1]))


def suffix_call(binding: Binding, node: exp.Expr) -> Node:
    """``suffix(s, 'p')``."""
    if len(node.expressions) != 2:
        raise Refused("suffix() with other than two arguments")
    return anywhere(binding, exp.EndsWith(this=node.expressions[0], expression=node.expressions[1]))


def _text(binding: Binding, node: exp.Expr) -> tuple[Scalar, str | None]:
    """The subject and the text of a pattern; the text is None for NULL. Raises `Refused`."""
    subject, text = binding.scalar(node.this), binding.scalar(node.expression)
    if not isinstance(text, Literal) or not t.is_string(subject.type):
        raise Refused("a pattern that is not a constant, or not over a string")
    if not text.value.is_valid:
        return subject, None
    if not t.is_string(text.type):
        raise Refused(f"a pattern of type {text.type}")
    return subject, text.value.as_py()


def _implied(
    binding: Binding,
    node: exp.Expr,
    range_of: Callable[[Scalar, str], Node | None],
    pieces_of: Callable[[str], list[str]],
    *,
    any_case: bool = False,
) -> Node:
    """A pattern as opaque, with the range of its prefix and the pieces of text that its matches contain.

    ``range_of(subject, text)`` returns the range, and ``pieces_of(text)`` the pieces.
    """
    require_only(node, "this", "expression")
    subject, text = _text(binding, node)
    if text is None:
        return tree.unknown()
    if len(text) > patterns.MAX_CHARACTERS:
        return _matching(binding, node, subject, None)
    prefix_range = range_of(subject, text)
    # The escape characters of other dialects are not known.
    pieces = pieces_of(text) if binding.dialect.name in ("duckdb", "spark") else []
    implies = and_of_known([prefix_range, *contains_conditions(subject, pieces, any_case=any_case)])
    if implies is None:
        return _matching(binding, node, subject, None)
    reason = patterns.NO_LITERAL_PREFIX if prefix_range is None else patterns.ONLY_PREFIX_PROVED
    return replace(opaque(binding, node, reason), implies=implies, strict=True)


def _matching(binding: Binding, node: exp.Expr, subject: Scalar, matching: Node | None) -> Node:
    """``matching``, or if it is None, an opaque predicate that is NULL only where the subject is, and never fails."""
    if matching is not None:
        return matching
    unproved = opaque(binding, node, patterns.NO_LITERAL_PREFIX)
    if binding.dialect.name in ("duckdb", "spark"):
        return replace(unproved, implies=tree.always(subject), strict=True)
    return unproved
