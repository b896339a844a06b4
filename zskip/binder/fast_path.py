"""`FastPath`: binds comparisons of a column with constants, the most common leaves, from tokens without the parser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date

import pyarrow as pa
from sqlglot.tokenizer_core import Token, TokenType

from zskip.binder.constants import number_value
from zskip.binder.context import Binding
from zskip.binder.predicates.operands import are_comparable, fitted
from zskip.core import types as t
from zskip.language import literals, patterns, tree
from zskip.language.literals import Refused
from zskip.language.tree import Literal, Node, Reference

__all__ = ["NO_NAMES", "FastPath"]

_OPERATORS: dict[TokenType, str] = {
    TokenType.EQ: "=",
    TokenType.NEQ: "<>",
    TokenType.LT: "<",
    TokenType.LTE: "<=",
    TokenType.GT: ">",
    TokenType.GTE: ">=",
}


NO_NAMES = {"ANY", "CASE", "CONNECT_BY_ROOT", "IF", "MAP", "NEXT", "PRIOR"}
"""Words that may begin something other than a column's name, although their tokens look like names."""


class FastPath:
    """Binds comparisons of one source text, of which there may be a hundred thousand."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self._columns: dict[tuple[TokenType, str], Reference | None] = {}
        self._integer_limits: dict[str, tuple[int, int] | None] = {}

    def leaf(self, tokens: Sequence[Token]) -> Node | None:
        """Binds ``column op constant``, ``column LIKE constant`` or ``column BETWEEN constant AND constant``; None for
        anything else, and for errors, which the parser's path raises."""
        if not 3 <= len(tokens) <= 7 or self.binding.dialect.name not in ("duckdb", "spark"):
            return None
        operator = tokens[1].token_type
        if operator is TokenType.LIKE and len(tokens) == 3 and tokens[2].token_type is TokenType.STRING:
            return self._like(tokens[0], tokens[2].text)
        if operator is TokenType.BETWEEN:
            middle = next((n for n in (3, 4) if n < len(tokens) and tokens[n].token_type is TokenType.AND), 0)
            sides = [(">=", tokens[2:middle]), ("<=", tokens[middle + 1 :])] if middle else []
        else:
            op = _OPERATORS.get(operator)
            sides = [(op, tokens[2:])] if op else []
        column = self._column(tokens[0]) if sides else None
        if column is None:
            return None
        whole = [(op, literal) for op, constant in sides if (literal := self._whole(column, constant)) is not None]
        if len(whole) == len(sides):
            self._record(tokens[0], column)
            return tree.and_([tree.compare(op, column, each) for op, each in whole])
        try:
            values = [self._constant(constant) for _, constant in sides]
            known = [each for each in values if each is not None]
            if len(known) < len(values) or len({each.type for each in known}) > 1:
                return None
            if known[0].type != column.type and not are_comparable(column.type, known[0].type, True):
                return None
            comparisons = [
                literals.compare_fitted(op, column, fitted(self.binding, column, value))
                for (op, _), value in zip(sides, known, strict=True)
            ]
        except Refused:
            return None
        self._record(tokens[0], column)
        return tree.and_(comparisons)

    def _like(self, name: Token, pattern: str) -> Node | None:
        column = self._column(name)
        if column is None or not t.is_string(column.type) or "\\" in pattern:
            return None
        matching = None if set("%_") & set(pattern.rstrip("%")) else patterns.like(column, pattern, None)
        if matching is None or tree.has_call_or_opaque(matching):
            return None
        self._record(name, column)
        return matching

    def _whole(self, column: Reference, tokens: Sequence[Token]) -> Literal | None:
        """A whole number that an integer column can hold, the most common constant; None for any other."""
        limits = self._limits(column)
        if limits is None or len(tokens) != 1 or tokens[0].token_type is not TokenType.NUMBER:
            return None
        text = tokens[0].text
        if len(text) > 18 or not (text.isascii() and text.isdigit()) or text in self.binding.source.lists:
            return None
        value = int(text)
        return Literal(pa.scalar(value, column.type)) if limits[0] <= value <= limits[1] else None

    def _limits(self, column: Reference) -> tuple[int, int] | None:
        """The least and the greatest value of an integer column; None for other types."""
        if column.path not in self._integer_limits:
            is_integer = t.is_integer(column.type)
            self._integer_limits[column.path] = literals.integer_limits(column.type) if is_integer else None
        return self._integer_limits[column.path]

    def _constant(self, tokens: Sequence[Token]) -> pa.Scalar | None:
        """The value of a number, a string or a date; None for anything else. Raises `Refused`."""
        text = tokens[-1].text if tokens else ""
        match [token.token_type for token in tokens]:
            case [TokenType.STRING] if "\\" not in text:
                return pa.scalar(text, pa.string())
            case [TokenType.NUMBER] if text not in self.binding.source.lists:
                return number_value(text)
            case [TokenType.DATE, TokenType.STRING] if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
                with suppress(ValueError):  # for an invalid date, the parser's path raises its own error
                    return pa.scalar(date.fromisoformat(text))
            case [TokenType.DASH, TokenType.NUMBER] if text not in self.binding.source.lists:
                return number_value(text, negative=True)
        return None

    def _record(self, name: Token, column: Reference) -> None:
        self.binding.names.record(name.start, name.end + 1, self.binding.schema.columns[column.path])

    def _column(self, name: Token) -> Reference | None:
        """The column that a token names; None if it may be something else."""
        key = (name.token_type, name.text)
        if key not in self._columns:
            unquoted = name.token_type is TokenType.VAR and name.text.upper() not in NO_NAMES
            is_name = unquoted or name.token_type is TokenType.IDENTIFIER
            column = self.binding.names.find([name.text]) if is_name else None
            self._columns[key] = None if column is None else Reference(column.path, column.type)
        return self._columns[key]
