"""Case-folded equality: ``lower(s) = 'text'``. Ranges cannot decide it, but sketches of trigrams can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from zskip.binder.context import Binding
from zskip.binder.nodes import without_parentheses
from zskip.binder.refusals import opaque
from zskip.core import types as t
from zskip.language import tree
from zskip.language.literals import Refused
from zskip.language.required_text import and_of_known, contains_conditions
from zskip.language.tree import Literal, Node
from zskip.language.why import Why

_MAX_TEXTS = 1_000


def case_folded_equality(
    binding: Binding, left: exp.Expr, right: Sequence[exp.Expr], whole: exp.Expr, why: Why
) -> Node:
    """``lower(s) = 'text'`` or ``lower(s) IN (…)`` as opaque, with the texts that ``s`` must contain in any case.

    Any other expression is opaque for the reason ``why``. Spark's ``upper`` maps some letters to two, such as ß to
    SS, so an upper-case text does not show what ``s`` contains.
    """
    unproved, call = opaque(binding, whole, why), without_parentheses(left)
    kinds = (exp.Lower, exp.Upper) if binding.dialect.name == "duckdb" else (exp.Lower,)
    if binding.dialect.name not in ("duckdb", "spark") or not isinstance(call, kinds) or len(right) > _MAX_TEXTS:
        return unproved
    try:
        subject, texts = binding.scalar(call.this), [binding.scalar(each) for each in right]
    except Refused:
        return unproved
    alternatives = []
    for text in texts:
        if not isinstance(text, Literal) or not t.is_string(subject.type):
            return unproved
        if text.value.is_valid:
            if not t.is_string(text.type):
                return unproved
            alternatives.append(and_of_known(contains_conditions(subject, [text.value.as_py()], any_case=True)))
    known = [each for each in alternatives if each is not None]
    return replace(unproved, implies=tree.or_(known)) if len(known) == len(alternatives) else unproved
