"""Positions of parsed expressions in the text."""

from __future__ import annotations

import re

from sqlglot import exp

from zskip.binder.source_text import SourceText
from zskip.binder.text_spans import end_with_parentheses, open_parenthesis


def without_parentheses(node: exp.Expr) -> exp.Expr:
    """An expression without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def text_range(node: exp.Expr) -> tuple[int, int]:
    """The half-open range of an expression in the parsed text, as far as the parser knows it; (0, 0) if not at all."""
    metas = [each.meta for each in node.walk() if "start" in each.meta]
    if not metas:
        return (0, 0)
    return min(meta["start"] for meta in metas), max(meta["end"] for meta in metas) + 1


def span(source: SourceText, node: exp.Expr) -> tuple[int, int] | None:
    """The range of an expression in the user's text; None if it is not known."""
    start, end = text_range(node)
    return (start, end_with_parentheses(source.text, start, end)) if start < end else None


def span_with_parentheses(source: SourceText, node: exp.Expr) -> tuple[int, int] | None:
    """The range of a call or query in the user's text, extended to its name and parentheses; None if not known."""
    text, (start, end) = source.text, text_range(node)
    if "start" not in node.meta:
        opening = open_parenthesis(text, start)
        start = opening if isinstance(node, exp.Query) else len(re.sub(r"\w+\s*$", "", text[:opening]))
    end = max(start, end) + text.startswith("(", end)
    end = end_with_parentheses(text, start, end)
    return (start, end) if start < end else None
