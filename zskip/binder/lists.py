"""Long lists of constants: read as one array, and represented by a number in the text for the parser.

So ten thousand values bind about as fast as ten. Only plain lists are taken, of whole numbers, of decimals, of doubles
as parameters give them, of texts without backslashes, or of dates; every other is parsed. That a list really stands in
the code, and not within a text or a comment, is seen from the tokens: there its number must stand, alone between the
parentheses of an IN.
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

from zskip.binder.sql_text import LongList, Source

__all__ = ["array_of", "listed_constants", "shortened", "stand_ins", "stands_for_lists"]

SHORTEST = 1000
"""Characters of a text that is worth the search."""

FEWEST = 50
"""Constants that are worth it."""


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


_READERS: dict[str, tuple[str, Callable[[str], pa.Array]]] = {
    "numbers": (r"(?:-?\d{1,18}|\(-\d{1,18}\))", _numbers),
    "decimals": (r"-?\d{1,18}\.\d{1,18}", _decimals),
    "doubles": (r"CAST\('[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?' AS DOUBLE\)", _doubles),
    "texts": (_TEXT, _texts),
    "dates": (r"DATE\s*'(?!0000)\d{4}-\d\d-\d\d'", _dates),
}
"""The form of one constant, and how a list of them is read."""

_LIST = re.compile(
    r"\bIN\s*\(\s*(?:"
    + "|".join(rf"(?P<{kind}>{one}(?:\s*+,\s*+{one}){{{FEWEST - 1},}}+)" for kind, (one, _) in _READERS.items())
    + r")\s*\)",
    re.IGNORECASE,
)


def stand_ins(text: str) -> Iterator[str]:
    """Numbers that a text does not hold, each of which may stand for a list in it."""
    first = 10**17 + secrets.randbelow(8 * 10**17)  # drawn, so that no text can be made to hold many of them
    return (str(each) for each in itertools.count(first) if str(each) not in text)


_ARRAYS: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), str: pa.string(), date: pa.date32()}


def array_of(values: Collection[object]) -> pa.Array | None:
    """The values of a parameter's long list, as their literals would be read; None where those have to be."""
    kinds = {type(each) for each in values}
    found = _ARRAYS.get(kinds.pop()) if len(values) >= FEWEST and len(kinds) == 1 else None
    try:
        return None if found is None else pa.array(list(values), found)
    except (OverflowError, pa.ArrowInvalid, UnicodeEncodeError):
        return None


def shortened(source: Source, dialect: str) -> Source:
    """The text with a number for each long list; the same where there is none."""
    text = source.frozen
    if len(text) < SHORTEST or dialect not in ("duckdb", "spark"):
        return source
    replacements: list[tuple[int, int, str]] = []
    lists: dict[str, LongList] = {}
    numbers = stand_ins(text)
    for match in _LIST.finditer(text):
        kind = str(match.lastgroup)
        try:
            values = _READERS[kind][1](match[kind])
        except pa.ArrowInvalid:
            continue  # no date, which the binder says in its own words
        number = next(numbers)
        replacements.append((*match.span(kind), number))
        lists[number] = LongList(match[kind], values)
    return source.replaced(replacements, lists)


_IN_LISTS = {
    *(TokenType.NUMBER, TokenType.STRING, TokenType.NULL, TokenType.TRUE, TokenType.FALSE),
    *(TokenType.DASH, TokenType.PLUS, TokenType.COMMA, TokenType.DATE),
    *(TokenType.TIMESTAMP, TokenType.TIMESTAMPNTZ, TokenType.TIMESTAMPTZ),
}


def listed_constants(tokens: Sequence[Token]) -> int:
    """How many tokens stand in lists of nothing but constants behind IN, signs and commas among them."""
    found, first = 0, None
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN and index and tokens[index - 1].token_type is TokenType.IN:
            first = index + 1
        elif first is not None and token.token_type not in _IN_LISTS:
            found += index - first if token.token_type is TokenType.R_PAREN else 0
            first = None
    return found


def stands_for_lists(tokens: Sequence[Token], source: Source) -> bool:
    """Whether the number of every list stands in the code, and there only, as the one thing within an IN."""
    found = 0
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.NUMBER and token.text in source.lists:
            around = [each.token_type for each in tokens[max(0, index - 2) : index + 2]]
            if around != [TokenType.IN, TokenType.L_PAREN, TokenType.NUMBER, TokenType.R_PAREN]:
                return False
            found += 1
    return found == len(source.lists)
