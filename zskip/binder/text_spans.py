"""Positions in a text: matching parentheses and quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

_QUOTED_OR_PARENTHESIS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|[()]|['"`]""")


def _parentheses(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """The positions of parentheses outside quotes, and of quotes that are never closed."""
    for piece in _QUOTED_OR_PARENTHESIS.finditer(text, start):
        if len(piece[0]) == 1:
            yield piece.start(), piece[0]


def end_with_parentheses(text: str, start: int, end: int) -> int:
    """The end of a range, extended past the closing parentheses of those that open in it.

    >>> end_with_parentheses("abs(x) > 1", 0, 5), end_with_parentheses("f(g(x), 1) > 1", 0, 7)
    (6, 10)
    """
    within = [piece[0] for piece in _QUOTED_OR_PARENTHESIS.finditer(text, start, end)]
    depth = within.count("(") - within.count(")")
    if depth > 0:
        for at, sign in _parentheses(text, end):
            depth += {"(": 1, ")": -1}.get(sign, 0)
            if depth == 0:
                return at + 1
    return end


def open_parenthesis(text: str, end: int) -> int:
    """The position of the innermost parenthesis that is still open at ``end``; 0 if there is none.

    >>> open_parenthesis("x IN (1, (2), 3)", 14)
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


_TOKEN = re.compile(
    r"""'(?:[^']|'')*+'|"(?:[^"]|"")*+"|--[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/|\$(\w*)\$.*?\$\1\$"""
    r"""|\bIN\s*+\((?=[^()]{500})(?:[\d.,\se+-]|'(?:[^']|'')*+'|\b(?:DATE|TIMESTAMP|NULL|TRUE|FALSE)\b)*+\)"""
    r"""|\d++(?:\.\d++)?+|\w++|::|[<>!=|]{2}|[^\w\s]""",
    re.IGNORECASE | re.DOTALL,
)


def has_more_tokens(text: str, most: int) -> bool:
    """Whether a text has more than about ``most`` tokens. A string, a comment or a long list counts as one.

    >>> has_more_tokens("a = 'x y z' AND b > 2", 7), has_more_tokens("a = 1 OR b > -2", 7)
    (False, True)
    """
    return len(text) > most and next(islice(_TOKEN.finditer(text), most, None), None) is not None


def unclosed_quote(text: str) -> int | None:
    """The position of a quote that is never closed; None if there is none.

    >>> unclosed_quote("s = 'it''s' OR s = 'x")
    19
    """
    return next((at for at, sign in _parentheses(text) if sign not in "()"), None)


def parse_error_text(detail: Mapping[str, object]) -> str:
    """The parser's description of an error, without the names of its classes.

    >>> parse_error_text({"description": "Expecting )"})
    'Expecting )'
    >>> parse_error_text({"description": "Expected table name but got <Token token_type: TokenType.WHERE, …>"})
    'Expected table name here'
    """
    parts = str(detail.get("description") or "something is missing").partition(" but got <Token")
    if parts[0].startswith("Required keyword"):
        return "something is missing here"
    if parts[0].startswith("Invalid expression"):
        return "this cannot stand here"
    return parts[0] + (" here" if parts[1] else "")
