"""Checks of the arguments of parsed calls, and integer literals."""

from __future__ import annotations

import re

from sqlglot import exp

from zskip.language.literals import Refused


def require_only(node: exp.Expr, *names: str) -> None:
    """Raises `Refused` for a node with other arguments than these, which may change its meaning."""
    for name, value in node.args.items():
        if name not in names and value not in (None, False, []):
            raise Refused(f"{node.key.upper()} with {name}")


def whole_number(node: exp.Expr) -> int | None:
    """The value of an integer literal, or of a string literal with an integer; None for any other expression."""
    if isinstance(node, exp.Literal) and re.fullmatch(
        r"-?[0-9]{1,18}" if node.is_string else "[0-9]{1,1000}", node.this
    ):
        return int(node.this)
    if isinstance(node, exp.Neg) and (inner := whole_number(node.this)) is not None:
        return -inner
    if isinstance(node, exp.Paren):
        return whole_number(node.this)
    return None
