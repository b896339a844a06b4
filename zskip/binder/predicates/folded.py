"""Texts compared in one case: ``lower(s) = 'text'``, of which no range says anything, and sketches of trigrams do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from zskip import types as t
from zskip.binder.context import Binding
from zskip.binder.nodes import bare
from zskip.binder.refusals import opaque
from zskip.expr import tree
from zskip.expr.literals import Refused
from zskip.expr.required_text import containing, implied
from zskip.expr.tree import Literal, Node
from zskip.expr.why import Why

__all__ = ["folded"]

_MOST_TEXTS = 1_000


def folded(binding: Binding, left: exp.Expr, right: Sequence[exp.Expr], whole: exp.Expr, why: Why) -> Node:
    """``lower(s) = 'text'`` or ``lower(s) IN (…)`` as what implies that ``s`` holds a text; else opaque for ``why``.

    Spark's ``upper`` makes two letters of some, as SS of ß; a text in capitals does not name their pieces.
    """
    found, call = opaque(binding, whole, why), bare(left)
    kinds = (exp.Lower, exp.Upper) if binding.dialect.name == "duckdb" else (exp.Lower,)
    if binding.dialect.name not in ("duckdb", "spark") or not isinstance(call, kinds) or len(right) > _MOST_TEXTS:
        return found
    try:
        subject, texts = binding.scalar(call.this), [binding.scalar(each) for each in right]
    except Refused:
        return found
    alternatives = []
    for text in texts:
        if not isinstance(text, Literal) or not t.is_string(subject.type):
            return found
        if text.value.is_valid:
            if not t.is_string(text.type):
                return found
            alternatives.append(implied(containing(subject, [text.value.as_py()], any_case=True)))
    known = [each for each in alternatives if each is not None]
    return replace(found, implies=tree.or_(known)) if len(known) == len(alternatives) else found
