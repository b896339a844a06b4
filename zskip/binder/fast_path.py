"""A column beside constants, the commonest leaf of all: bound from tokens, without the parser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date

import pyarrow as pa
from sqlglot.tokenizer_core import Token, TokenType

from zskip import types as t
from zskip.binder.constants import number_value
from zskip.binder.context import Binding
from zskip.binder.names import Names
from zskip.binder.predicates.operands import are_comparable, fitted
from zskip.expr import literals, patterns, tree
from zskip.expr.literals import Refused
from zskip.expr.tree import Literal, Node, Reference
from zskip.schema import Column

__all__ = ["NO_NAMES", "Plain", "plain_column"]

_SIGNS: dict[TokenType, str] = {
    TokenType.EQ: "=",
    TokenType.NEQ: "<>",
    TokenType.LT: "<",
    TokenType.LTE: "<=",
    TokenType.GT: ">",
    TokenType.GTE: ">=",
}


NO_NAMES = {"ANY", "CASE", "CONNECT_BY_ROOT", "IF", "MAP", "NEXT", "PRIOR"}
"""Words that begin something other than a column's name, though the tokens do not tell."""


class Plain:
    """Reads comparisons of one source text, of which there may be a hundred thousand."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self._terms: dict[tuple[TokenType, str], Reference | None] = {}
        self._integers: dict[str, tuple[int, int] | None] = {}

    def leaf(self, tokens: Sequence[Token]) -> Node | None:
        """``column op constant``, ``column LIKE constant`` or ``column BETWEEN constant AND constant``; None for
        everything else, and for what is wrong."""
        if not 3 <= len(tokens) <= 7 or self.binding.dialect.name not in ("duckdb", "spark"):
            return None
        if [token.token_type for token in tokens[1:]] == [TokenType.LIKE, TokenType.STRING]:
            return self._like(tokens[0], tokens[2].text)
        if tokens[1].token_type is TokenType.BETWEEN:
            bounds = next((n for n in (3, 4) if n < len(tokens) and tokens[n].token_type is TokenType.AND), 0)
            ends = [(">=", tokens[2:bounds]), ("<=", tokens[bounds + 1 :])] if bounds else []
        else:
            op = _SIGNS.get(tokens[1].token_type)
            ends = [(op, tokens[2:])] if op else []
        column = self._term(tokens[0]) if ends else None
        if column is None:
            return None
        whole = [(op, found) for op, constant in ends if (found := self._whole(column, constant)) is not None]
        if len(whole) == len(ends):
            self._note(tokens[0], column)
            return tree.and_([tree.compare(op, column, each) for op, each in whole])
        try:
            values = [self._constant(constant) for _, constant in ends]
            known = [each for each in values if each is not None]
            if len(known) < len(values) or len({each.type for each in known}) > 1:
                return None
            if known[0].type != column.type and not are_comparable(column.type, known[0].type, True):
                return None
            sides = [
                literals.compare_fitted(op, column, fitted(self.binding, column, value))
                for (op, _), value in zip(ends, known, strict=True)
            ]
        except Refused:
            return None
        self._note(tokens[0], column)
        return tree.and_(sides)

    def _like(self, name: Token, pattern: str) -> Node | None:
        column = self._term(name)
        if column is None or not t.is_string(column.type) or "\\" in pattern:
            return None
        found = None if set("%_") & set(pattern.rstrip("%")) else patterns.like(column, pattern, None)
        if found is None or tree.has_call_or_opaque(found):
            return None
        self._note(name, column)
        return found

    def _whole(self, column: Reference, tokens: Sequence[Token]) -> Literal | None:
        """A whole number beside an integer that holds it: the commonest constant. None for every other."""
        limits = self._limits(column)
        if limits is None or len(tokens) != 1 or tokens[0].token_type is not TokenType.NUMBER:
            return None
        text = tokens[0].text
        if len(text) > 18 or not (text.isascii() and text.isdigit()) or text in self.binding.source.lists:
            return None
        value = int(text)
        return Literal(pa.scalar(value, column.type)) if limits[0] <= value <= limits[1] else None

    def _limits(self, column: Reference) -> tuple[int, int] | None:
        """The least and the greatest value of an integer; None of every other type."""
        if column.path not in self._integers:
            is_integer = t.is_integer(column.type)
            self._integers[column.path] = literals.integer_limits(column.type) if is_integer else None
        return self._integers[column.path]

    def _constant(self, tokens: Sequence[Token]) -> pa.Scalar | None:
        """A number, a text or a date; None for everything else. Raises `Refused`."""
        text = tokens[-1].text if tokens else ""
        match [token.token_type for token in tokens]:
            case [TokenType.STRING] if "\\" not in text:
                return pa.scalar(text, pa.string())
            case [TokenType.NUMBER] if text not in self.binding.source.lists:
                return number_value(text)
            case [TokenType.DATE, TokenType.STRING] if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
                with suppress(ValueError):  # no date, which the parser's way says in its own words
                    return pa.scalar(date.fromisoformat(text))
            case [TokenType.DASH, TokenType.NUMBER] if text not in self.binding.source.lists:
                return number_value(text, negative=True)
        return None

    def _note(self, name: Token, column: Reference) -> None:
        self.binding.names.record(name.start, name.end + 1, self.binding.schema.columns[column.path])

    def _term(self, name: Token) -> Reference | None:
        key = (name.token_type, name.text)
        if key not in self._terms:
            column = plain_column(self.binding.names, name)
            self._terms[key] = None if column is None else Reference(column.path, column.type)
        return self._terms[key]


def plain_column(names: Names, token: Token) -> Column | None:
    """The column that one token names, and can only name; None for every other token."""
    bare = token.token_type is TokenType.VAR and token.text.upper() not in NO_NAMES
    return names.find([token.text]) if bare or token.token_type is TokenType.IDENTIFIER else None
