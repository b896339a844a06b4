"""`Binder`: from a parsed leaf and a schema to a node of the bound tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import Token

from zskip import types as t
from zskip.binder.case_values import Value
from zskip.binder.computable import computable
from zskip.binder.constants import constant
from zskip.binder.fast_path import Plain
from zskip.binder.names import Names
from zskip.binder.nodes import bare
from zskip.binder.predicates import ARGUMENTS, cases, rule
from zskip.binder.refusals import called, must_be_condition, must_be_of_a_row, opaque
from zskip.binder.sql_text import Source
from zskip.expr import tree
from zskip.expr.bound import Dialect
from zskip.expr.literals import Refused
from zskip.expr.tree import Literal, Node, Opaque, Scalar
from zskip.expr.why import Cause
from zskip.functions import call
from zskip.functions.parsed_arguments import known
from zskip.schema import Schema

__all__ = ["Binder"]

_FOLDING = {"upper()", "ucase()", "lower()", "lcase()"}
_MOST_PARTS = 50_000
"""Predicates that one leaf may become; of a longer text, as many as it has characters."""


class Binder:
    """Binds expressions of one source text. The rules of ``predicates`` and ``functions`` ask it for what is inside."""

    def __init__(self, schema: Schema, dialect: Dialect, source: Source, case_sensitive: bool) -> None:
        self.schema, self.dialect, self.source = schema, dialect, source
        self.names = Names(schema, dialect, source, case_sensitive)
        self.checked: dict[int, exp.Expr] = {}
        self._plain = Plain(self)

    def plain(self, tokens: Sequence[Token]) -> Node | None:
        """The predicate of a leaf that needs no parser; None for every other."""
        return self._plain.leaf(tokens)

    def chain(self, terms: Sequence[Sequence[Token]], conjunction: bool) -> Node | None:
        """The predicate of an AND or OR of such leaves that are all alike; None for every other."""
        return self._plain.chain(terms, conjunction)

    def leaf(self, node: exp.Expr, text: Callable[[], str]) -> Node:
        """The predicate of a whole leaf of the skeleton, whose text is at hand."""
        found = self.predicate(node)
        if isinstance(found, Opaque) and found.sql:
            # What the parser knows of places leaves out signs and parentheses at the ends.
            found = replace(found, sql=text())
        size = tree.size(found)
        if size > _MOST_PARTS and size > len(text()):
            found = opaque(self, node, "choices within choices, of too many parts")
        return computable(self, found, text)

    def predicate(self, node: exp.Expr) -> Node:
        """An expression that stands where TRUE, FALSE or NULL is wanted."""
        node = bare(node)
        bound = rule(node)
        if bound is None:
            return self._truth(node)
        try:
            known(node, *ARGUMENTS)
            found = bound(self, node)
        except Refused as refusal:
            return opaque(self, node, refusal.why)
        # The parser keeps the NOT of NOT LIKE as a flag of the LIKE, within ESCAPE too.
        pattern = node.this if isinstance(node, exp.Escape) else node
        return tree.not_(found) if pattern.args.get("negate") else found

    def _truth(self, node: exp.Expr) -> Node:
        """A boolean column, a constant, or an expression that zskip does not know."""
        try:
            value = constant(node, self.dialect)
        except Refused as refusal:
            return opaque(self, node, refusal.why)
        if value is not None:
            if not value.is_valid:
                return tree.unknown()
            if t.is_boolean(value.type):
                return tree.and_([]) if value.as_py() else tree.or_([])
            must_be_condition(self, node, value.type)
            return opaque(self, node, f"a constant of type {value.type} where a predicate is wanted")
        if isinstance(node, exp.Column):
            scalar = self.names.reference(node)
            if not t.is_boolean(scalar.type):
                must_be_condition(self, node, scalar.type)
                return opaque(self, node, f"a column of type {scalar.type} where a predicate is wanted")
            return tree.compare("=", scalar, Literal(pa.scalar(True)))
        return opaque(self, node, f"{called(self, node)} is not a predicate that zskip knows")

    def value(self, node: exp.Expr) -> Value:
        """A scalar, or a choice of scalars. Raises `Refused`."""
        return cases.value(self, node)

    def scalar(self, node: exp.Expr) -> Scalar:
        """An expression with a value. Raises `Refused` for what zskip does not know."""
        node = bare(node)
        value = constant(node, self.dialect)
        if value is not None:
            return Literal(value)
        if isinstance(node, exp.Column | exp.Dot):
            return self.names.reference(node)
        must_be_of_a_row(self, node)
        found = call(self, node)
        if found is not None:
            return found
        name = called(self, node)
        cause = Cause.CASE_FOLDED if name.lower() in _FOLDING else Cause.UNSUPPORTED
        raise Refused(f"{name} is not a function that zskip knows", cause)
