"""Arguments of parsed calls: which ones a rule reads, and integer literals."""

from __future__ import annotations

import re

from sqlglot import exp

from zskip.expr.literals import Refused

__all__ = ["known", "whole_number"]


def known(node: exp.Expr, *names: str) -> None:
    """Refuses a node that holds an argument besides these: it would mean something else."""
    for name, value in node.args.items():
        if name not in names and value not in (None, False, []):
            raise Refused(f"{node.key.upper()} with {name}")


def whole_number(node: exp.Expr) -> int | None:
    """A whole number that is written out."""
    if isinstance(node, exp.Literal) and re.fullmatch(
        r"-?[0-9]{1,18}" if node.is_string else "[0-9]{1,1000}", node.this
    ):
        return int(node.this)
    if isinstance(node, exp.Neg) and (inner := whole_number(node.this)) is not None:
        return -inner
    if isinstance(node, exp.Paren):
        return whole_number(node.this)
    return None
