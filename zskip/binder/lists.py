"""Long written lists of constants: read as one array, without the parser.

The parser sees a text of the same length with one number and blanks in place of the list, so all positions stay. This
applies to lists of integers, of decimals, of strings without backslashes, and of dates; other lists are parsed. What
looks like a list inside a string or a comment is none, so the tokens are checked afterwards: the number must be the
only token between the parentheses of an IN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

import numpy as np
import pyarrow as pa
from sqlglot.tokenizer_core import Token, TokenType

from zskip.binder.source_text import Value

_SHORTEST = 1000
"""The length of a text, in characters, from which it is searched for long lists."""

_FEWEST = 50
"""The number of constants from which a list is long."""

_NO_PARENTHESES = str.maketrans("", "", "()")
_TEXT = r"'(?:[^'\\]|'')*+'"


def _numbers(text: str) -> pa.Array:
    return pa.array(np.fromstring(text.translate(_NO_PARENTHESES), np.int64, sep=","))


def _texts(text: str) -> pa.Array:
    if "''" not in text:
        return pa.array(text.split("'")[1::2], pa.string())
    return pa.array([each[1:-1].replace("''", "'") for each in re.findall(_TEXT, text)], pa.string())


def _decimals(text: str) -> pa.Array:
    texts = [each.strip() for each in text.split(",")]
    parts = [each.lstrip("-").split(".") for each in texts]
    whole, scale = (max(len(each[side]) for each in parts) for side in (0, 1))
    return pa.array(texts, pa.string()).cast(pa.decimal128(whole + scale, scale))


def _dates(text: str) -> pa.Array:
    return _texts(text).cast(pa.date32())


_READERS: dict[str, tuple[str, Callable[[str], pa.Array]]] = {
    "numbers": (r"(?:-?\d{1,18}|\(-\d{1,18}\))", _numbers),
    "decimals": (r"-?\d{1,18}\.\d{1,18}", _decimals),
    "texts": (_TEXT, _texts),
    "dates": (r"DATE\s*'(?!0000)\d{4}-\d\d-\d\d'", _dates),
}
"""By kind: the form of one constant, and the function that reads a list of them."""

_LIST = re.compile(
    r"\bIN\s*\(\s*(?:"
    + "|".join(rf"(?P<{kind}>{one}(?:\s*+,\s*+{one}){{{_FEWEST - 1},}}+)" for kind, (one, _) in _READERS.items())
    + r")\s*\)",
    re.IGNORECASE,
)


def long_lists(text: str, dialect: str) -> list[Value]:
    """What looks like a long list of constants in a text, in order."""
    if dialect not in ("duckdb", "spark") or len(text) < _SHORTEST:
        return []
    found = []
    for match in _LIST.finditer(text):
        kind = str(match.lastgroup)
        try:
            values = _READERS[kind][1](match[kind])
        except pa.ArrowInvalid:
            continue  # an invalid date, for which the binder raises its own error
        found.append(Value(*match.span(kind), values, given=False))
    return found


def without_lists(text: str, lists: Collection[Value]) -> str:
    """The text with a number and blanks in place of each list, at the same positions."""
    pieces = []
    position = 0
    for start, end, *_ in lists:
        pieces += [text[position:start], "0".ljust(end - start)]
        position = end
    return "".join([*pieces, text[position:]])


def are_intact(tokens: Sequence[Token], lists: Collection[Value]) -> bool:
    """Whether each list is a token of its own, alone between the parentheses of an IN."""
    starts = {each.start for each in lists}
    count = 0
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.NUMBER and token.start in starts:
            around = [each.token_type for each in tokens[max(0, index - 2) : index + 2]]
            if around != [TokenType.IN, TokenType.L_PAREN, TokenType.NUMBER, TokenType.R_PAREN]:
                return False
            count += 1
    return count == len(lists)


_LIST_TOKENS = {
    *(TokenType.NUMBER, TokenType.STRING, TokenType.NULL, TokenType.TRUE, TokenType.FALSE),
    *(TokenType.DASH, TokenType.PLUS, TokenType.COMMA, TokenType.DATE),
    *(TokenType.TIMESTAMP, TokenType.TIMESTAMPNTZ, TokenType.TIMESTAMPTZ),
}


def listed_constants(tokens: Sequence[Token]) -> int:
    """The number of tokens, signs and commas included, in IN lists that contain only constants."""
    count, first = 0, None
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN and index and tokens[index - 1].token_type is TokenType.IN:
            first = index + 1
        elif first is not None and token.token_type not in _LIST_TOKENS:
            count += index - first if token.token_type is TokenType.R_PAREN else 0
            first = None
    return count
