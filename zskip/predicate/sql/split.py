"""The skeleton of a predicate: AND, OR, NOT and parentheses, found among the tokens.

The parser sees only the leaves, so a hundred thousand terms or a thousand parentheses make no deep tree, and every
part of the predicate keeps its own place in the text.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["Part", "nesting", "skeleton"]

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens ``start`` to ``end`` (half open). ``kind``: "leaf", "and", "or" or "not"."""

    kind: str
    start: int
    end: int
    parts: tuple[Part, ...] = ()


def nesting(tokens: Sequence[Token]) -> int:
    """The greatest depth of brackets and CASEs, and of NOTs in a row."""
    depth = deepest = nots = 0
    for token in tokens:
        kind = token.token_type
        if kind in _OPEN:
            depth += 1
        elif kind in _CLOSE:
            depth -= 1
        nots = nots + 1 if kind is TokenType.NOT or (nots and kind is TokenType.L_PAREN) else 0
        deepest = max(deepest, depth, nots)
    return deepest


def skeleton(tokens: Sequence[Token]) -> Part:
    """The predicate as a tree of leaves. Text that does not add up is one leaf: the parser says what is wrong."""
    partners = _partners(tokens)
    if partners is None:
        return Part("leaf", 0, len(tokens))
    return _part(tokens, partners, 0, len(tokens))


def _partners(tokens: Sequence[Token]) -> dict[int, int] | None:
    """For each opening token its closing one; None where they do not match."""
    partners: dict[int, int] = {}
    waiting: list[int] = []
    for index, token in enumerate(tokens):
        if token.token_type in _OPEN:
            waiting.append(index)
        elif token.token_type in _CLOSE:
            if not waiting or (tokens[waiting[-1]].token_type is TokenType.CASE) != (token.token_type is TokenType.END):
                return None
            partners[waiting.pop()] = index
    return None if waiting else partners


def _part(tokens: Sequence[Token], partners: dict[int, int], start: int, end: int) -> Part:
    while start < end and tokens[start].token_type is TokenType.L_PAREN and partners[start] == end - 1:
        inner = _cut(tokens, partners, start + 1, end - 1)
        if inner is None:
            return Part("leaf", start, end)
        start, end = start + 1, end - 1
    cut = _cut(tokens, partners, start, end)
    if cut is None:
        return Part("leaf", start, end)
    kind, places = cut
    if kind:
        edges = [start - 1, *places, end]
        spans = [(left + 1, right) for left, right in itertools.pairwise(edges)]
        if any(left >= right for left, right in spans):
            return Part("leaf", start, end)
        return Part(kind, start, end, tuple(_part(tokens, partners, left, right) for left, right in spans))
    if start + 1 < end and tokens[start].token_type is TokenType.NOT:
        return Part("not", start, end, (_part(tokens, partners, start + 1, end),))
    return Part("leaf", start, end)


def _cut(tokens: Sequence[Token], partners: dict[int, int], start: int, end: int) -> tuple[str, list[int]] | None:
    """Where the loosest connective stands at this level: ``("", [])`` where there is none, None where it is no
    predicate but a list, a query or something unknown."""
    places: dict[TokenType, list[int]] = {TokenType.AND: [], TokenType.OR: []}
    betweens = 0
    index = start
    if index >= end:
        return None
    while index < end:
        kind = tokens[index].token_type
        if kind in (TokenType.COMMA, TokenType.SELECT, TokenType.XOR, TokenType.WITH, TokenType.ARROW):
            return None
        if kind is TokenType.BETWEEN:
            betweens += 1
        elif kind is TokenType.AND and betweens:
            betweens -= 1
        elif kind in places:
            places[kind].append(index)
        index = partners.get(index, index) + 1
    if places[TokenType.OR]:
        return "or", places[TokenType.OR]
    if places[TokenType.AND]:
        return "and", places[TokenType.AND]
    return "", []
