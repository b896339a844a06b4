"""Long lists of constants: read as one array, and represented by a number in the text that is parsed.

Ten thousand values then bind about as fast as ten. This applies to lists of integers, of decimals, of doubles as
parameters are written, of strings without backslashes, and of dates; other lists are parsed. A match inside a string or
a comment is not a list, so the tokens are checked afterwards: the number must be the only token between the parentheses
of an IN.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import date

import numpy as np
import pyarrow as pa
from sqlglot.tokenizer_core import Token, TokenType

from zskip.binder.sql_text import LongList, SourceText

__all__ = [
    "FEWEST",
    "READERS",
    "SHORTEST",
    "array_of",
    "listed_constants",
    "lists_are_intact",
    "stand_ins",
    "without_long_lists",
]

SHORTEST = 1000
"""The length of a text, in characters, from which it is searched for long lists."""

FEWEST = 50
"""The number of constants from which a list is long."""

_NO_PARENTHESES = str.maketrans("", "", "()")
_TEXT = r"'(?:[^'\\]|'')*+'"


def _numbers(text: str) -> pa.Array:
    return pa.array(np.fromstring(text.translate(_NO_PARENTHESES), np.int64, sep=","))


def _texts(text: str) -> pa.Array:
    if "''" not in text:
        return pa.array(text.split("'")[1::2], pa.string())
    return pa.array([each[1:-1].replace("''", "'") for each in re.findall(_TEXT, text)], pa.string())


def _doubles(text: str) -> pa.Array:
    return pa.array([float(each) for each in text.split("'")[1::2]], pa.float64())


def _decimals(text: str) -> pa.Array:
    texts = [each.strip() for each in text.split(",")]
    parts = [each.lstrip("-").split(".") for each in texts]
    whole, scale = (max(len(each[side]) for each in parts) for side in (0, 1))
    return pa.array(texts, pa.string()).cast(pa.decimal128(whole + scale, scale))


def _dates(text: str) -> pa.Array:
    return _texts(text).cast(pa.date32())


READERS: dict[str, tuple[str, Callable[[str], pa.Array]]] = {
    "numbers": (r"(?:-?\d{1,18}|\(-\d{1,18}\))", _numbers),
    "decimals": (r"-?\d{1,18}\.\d{1,18}", _decimals),
    "doubles": (r"CAST\('[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?' AS DOUBLE\)", _doubles),
    "texts": (_TEXT, _texts),
    "dates": (r"DATE\s*'(?!0000)\d{4}-\d\d-\d\d'", _dates),
}
"""By kind: the form of one constant, and the function that reads a list of them."""

_LIST = re.compile(
    r"\bIN\s*\(\s*(?:"
    + "|".join(rf"(?P<{kind}>{one}(?:\s*+,\s*+{one}){{{FEWEST - 1},}}+)" for kind, (one, _) in READERS.items())
    + r")\s*\)",
    re.IGNORECASE,
)


def stand_ins(text: str) -> Iterator[str]:
    """Numbers that do not occur in a text, each of which may stand for a list in it."""
    first = 10**17 + secrets.randbelow(8 * 10**17)  # random, so that nobody can craft a text that contains many
    return (str(each) for each in itertools.count(first) if str(each) not in text)


_ARRAYS: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), str: pa.string(), date: pa.date32()}


def array_of(values: Collection[object]) -> pa.Array | None:
    """A long list of a parameter, as an array with the values of its literals; None if the literals must be parsed."""
    kinds = {type(each) for each in values}
    arrow_type = _ARRAYS.get(kinds.pop()) if len(values) >= FEWEST and len(kinds) == 1 else None
    try:
        return None if arrow_type is None else pa.array(list(values), arrow_type)
    except (OverflowError, pa.ArrowInvalid, UnicodeEncodeError):
        return None


def without_long_lists(source: SourceText, dialect: str) -> SourceText:
    """The text with a number in place of each long list; the text itself if there are none."""
    text = source.text
    if dialect not in ("duckdb", "spark"):
        return source
    replacements: list[tuple[int, int, str]] = []
    lists: dict[str, LongList] = {}
    numbers = stand_ins(text)
    for match in _LIST.finditer(text):
        kind = str(match.lastgroup)
        try:
            values = READERS[kind][1](match[kind])
        except pa.ArrowInvalid:
            continue  # an invalid date, for which the binder raises its own error
        number = next(numbers)
        replacements.append((*match.span(kind), number))
        lists[number] = LongList(match[kind], values)
    return source.replaced(replacements, lists)


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


def lists_are_intact(tokens: Sequence[Token], source: SourceText) -> bool:
    """Whether every number that stands for a list is a token of its own, alone between the parentheses of an IN."""
    count = 0
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.NUMBER and token.text in source.lists:
            around = [each.token_type for each in tokens[max(0, index - 2) : index + 2]]
            if around != [TokenType.IN, TokenType.L_PAREN, TokenType.NUMBER, TokenType.R_PAREN]:
                return False
            count += 1
    return count == len(source.lists)
