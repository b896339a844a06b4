"""Positions in a text: matching parentheses and quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

__all__ = ["closed", "has_more_words", "opened", "unclosed_quote", "what_is_wrong"]

_PIECE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|[()]|['"`]""")


def _parentheses(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """The parentheses of a text, and quotes that are never closed; what stands in quotes is passed over."""
    for piece in _PIECE.finditer(text, start):
        if len(piece[0]) == 1:
            yield piece.start(), piece[0]


def closed(text: str, start: int, end: int) -> int:
    """The end of a range, moved behind the parentheses that are open in it.

    >>> closed("abs(x) > 1", 0, 5), closed("f(g(x), 1) > 1", 0, 7)
    (6, 10)
    """
    within = [piece[0] for piece in _PIECE.finditer(text, start, end)]
    depth = within.count("(") - within.count(")")
    if depth > 0:
        for at, sign in _parentheses(text, end):
            depth += {"(": 1, ")": -1}.get(sign, 0)
            if depth == 0:
                return at + 1
    return end


def opened(text: str, end: int) -> int:
    """Where the innermost parenthesis stands that is open at some place; 0 where there is none.

    >>> opened("x IN (1, (2), 3)", 14)
    5
    """
    open_: list[int] = []
    for at, sign in _parentheses(text):
        if at >= end:
            break
        if sign == "(":
            open_.append(at)
        elif sign == ")" and open_:
            open_.pop()
    return open_[-1] if open_ else 0


_WORD = re.compile(
    r"""'(?:[^']|'')*+'|"(?:[^"]|"")*+"|--[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/|\$(\w*)\$.*?\$\1\$"""
    r"""|\bIN\s*+\((?=[^()]{500})(?:[\d.,\se+-]|'(?:[^']|'')*+'|\b(?:DATE|TIMESTAMP|NULL|TRUE|FALSE)\b)*+\)"""
    r"""|\d++(?:\.\d++)?+|\w++|::|[<>!=|]{2}|[^\w\s]""",
    re.IGNORECASE | re.DOTALL,
)


def has_more_words(text: str, most: int) -> bool:
    """Whether a text holds about more words and signs than that. Texts, comments and long lists count as one each.

    >>> has_more_words("a = 'x y z' AND b > 2", 7), has_more_words("a = 1 OR b > -2", 7)
    (False, True)
    """
    return len(text) > most and next(islice(_WORD.finditer(text), most, None), None) is not None


def unclosed_quote(text: str) -> int | None:
    """Where a quote stands that is never closed; None where there is none.

    >>> unclosed_quote("s = 'it''s' OR s = 'x")
    19
    """
    return next((at for at, sign in _parentheses(text) if sign not in "()"), None)


def what_is_wrong(detail: Mapping[str, object]) -> str:
    """What the parser says of an error; where it only names classes of its own, that something is missing or wrong.

    >>> what_is_wrong({"description": "Expecting )"})
    'Expecting )'
    >>> what_is_wrong({"description": "Expected table name but got <Token token_type: TokenType.WHERE, …>"})
    'Expected table name here'
    """
    parts = str(detail.get("description") or "something is missing").partition(" but got <Token")
    if parts[0].startswith("Required keyword"):
        return "something is missing here"
    if parts[0].startswith("Invalid expression"):
        return "this cannot stand here"
    return parts[0] + (" here" if parts[1] else "")
