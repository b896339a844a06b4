"""Parsed expressions: their positions in the text, and their simplest equivalent form."""

from __future__ import annotations

import re

from sqlglot import exp

from zskip.binder.sql_text import Source
from zskip.binder.text_spans import closed, opened

__all__ = ["bare", "place", "span", "whole_span"]


def bare(node: exp.Expr) -> exp.Expr:
    """An expression without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def place(node: exp.Expr) -> tuple[int, int]:
    """Where an expression stands in the parsed text, half open, as far as the parser knows; (0, 0) if it does not."""
    metas = [each.meta for each in node.walk() if "start" in each.meta]
    if not metas:
        return (0, 0)
    return min(meta["start"] for meta in metas), max(meta["end"] for meta in metas) + 1


def span(source: Source, node: exp.Expr) -> tuple[int, int] | None:
    """The place of an expression in what the user wrote; None where it has none."""
    start, end = place(node)
    return source.span(start, closed(source.frozen, start, end)) if start < end else None


def whole_span(source: Source, node: exp.Expr) -> tuple[int, int] | None:
    """The place of a call or of a query, which the parser gives only in part: with its name and parentheses."""
    text, (start, end) = source.frozen, place(node)
    if "start" not in node.meta:
        opening = opened(text, start)
        start = opening if isinstance(node, exp.Query) else len(re.sub(r"\w+\s*$", "", text[:opening]))
    end = max(start, end) + text.startswith("(", end)
    end = closed(text, start, end)
    return source.span(start, end) if start < end else None
