"""`SourceText`: the user's text, with the values that stand in it without being parsed; and positions in it."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from sqlglot import exp

Parameters: TypeAlias = Sequence[object] | Mapping[str, object]
"""The values of ``?`` and ``$1``, in order; or those of ``$name`` and ``:name``, by name."""


class Value(NamedTuple):
    """A value at a half-open range of the text: a plain one of Python, an Arrow array, or a list of plain ones.

    ``given``: it is a parameter or a read of the clock, in whose place an engine needs a constant. A long list of the
    text itself stays as it is written.
    """

    start: int
    end: int
    value: object
    given: bool = True

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, pa.Array | list)


class SourceText:
    """The text of a predicate and its values, by where they start. The parser sees a constant in place of each."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values: dict[int, Value] = {}
        self._given: list[Value] = []

    def add(self, values: Iterable[Value]) -> None:
        """Adds values that do not overlap with others."""
        for value in values:
            self.values[value.start] = value
            if value.given:
                bisect.insort(self._given, value, key=lambda each: each.start)

    def given(self, start: int, end: int) -> Sequence[Value]:
        """The values in a range of the text that an engine needs as constants, in order."""
        first = bisect.bisect_left(self._given, start, key=lambda each: each.start)
        last = bisect.bisect_left(self._given, end, key=lambda each: each.start)
        return self._given[first:last]


# Positions of parsed expressions.


def without_parentheses(node: exp.Expr) -> exp.Expr:
    """An expression without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def text_range(node: exp.Expr) -> tuple[int, int]:
    """The half-open range of an expression in the parsed text, as far as the parser knows it; (0, 0) if not at all."""
    metas = [each.meta for each in node.walk() if "start" in each.meta]
    if not metas:
        return (0, 0)
    return min(meta["start"] for meta in metas), max(meta["end"] for meta in metas) + 1


def span(source: SourceText, node: exp.Expr) -> tuple[int, int] | None:
    """The range of an expression in the user's text; None if it is not known."""
    start, end = text_range(node)
    return (start, end_with_parentheses(source.text, start, end)) if start < end else None


def span_with_parentheses(source: SourceText, node: exp.Expr) -> tuple[int, int] | None:
    """The range of a call or query in the user's text, extended to its name and parentheses; None if not known."""
    text, (start, end) = source.text, text_range(node)
    if "start" not in node.meta:
        opening = open_parenthesis(text, start)
        start = opening if isinstance(node, exp.Query) else len(re.sub(r"\w+\s*$", "", text[:opening]))
    end = max(start, end) + text.startswith("(", end)
    end = end_with_parentheses(text, start, end)
    return (start, end) if start < end else None


# Parentheses and quotes.


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


def curly_quotes(text: str) -> str:
    """A hint for a text with curly quotes, which word processors make; empty if there are none, or in strings alone.

    >>> curly_quotes("country = ‘DE’")
    " It has curly quotes: text needs straight ones, '…'."
    >>> curly_quotes("name = 'it’s'")
    ''
    """
    found = re.search("[‘’“”]", re.sub("'[^']*'", "", text))
    return " It has curly quotes: text needs straight ones, '…'." if found else ""


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


_SIGNS = re.compile(r"""'(?:[^']|'')*+'|"[^"]*+"|(&&)|\|\|""")


def sign_for_word(text: str, within: tuple[int, int] | None = None) -> tuple[str, tuple[int, int]] | None:
    """A hint at the word to write for the first ``&&`` or ``||`` of an invalid predicate, and where that sign is.

    ``within``: the range of characters to search.

    >>> sign_for_word("s = '&&' || a = 1")
    ('Conditions are joined by OR, not by ||.', (9, 11))
    """
    for sign in _SIGNS.finditer(text, *(within or ())):
        if sign[0] in ("&&", "||"):
            return f"Conditions are joined by {'AND' if sign[1] else 'OR'}, not by {sign[0]}.", sign.span()
    return None


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
