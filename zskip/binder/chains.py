"""Long chains of the same comparison: bound as arrays, while a number stands for each in the text that the parser sees.

    i = 1 OR i = 7 OR i = 14 …                              one IN
    i <> 1 AND i <> 7 AND i <> 14 …                         one NOT IN
    (i = 1 AND s = 'a') OR (i = 7 AND s = 'b') …            an OR of ANDs, its constants read column by column
    (i, s) IN ((1, 'a'), (7, 'b'), …)                       the same, beside what row values say of NULL

So a hundred thousand terms bind about as fast as a list of them. Only constants of a column's very own kind are taken:
whole numbers beside an integer, texts beside a text, dates beside a date; every other chain is bound term by term. That
a chain really stands in the code, whole and with nothing bound tighter beside it, is seen from the tokens and from the
skeleton: there its number must be a leaf of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t
from sqlglot.tokenizer_core import Token, TokenType

from zskip.binder.predicates.comparisons import any_of_rows
from zskip.binder.split import skeleton
from zskip.binder.sql_text import LongChain, Source
from zskip.expr import tree
from zskip.expr.literals import integer_limits
from zskip.expr.tree import Compare, Literal, Node, Reference

__all__ = ["chained", "stand_for_chains"]

SHORTEST = 5000
"""Characters of a text that is worth the search."""

FEWEST = 200
"""Terms that are worth it."""

_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], Callable[[str], bool], slice]] = {
    "text": (t.is_string, lambda text: text[0] == "'", slice(1, -1)),
    "date": (t.is_date32, lambda text: text[0] in "dD", slice(-11, -1)),
    "number": (t.is_integer, lambda text: text[0] not in "'dD", slice(None)),
}
"""By kind of constant: the columns beside which it is read here, how it is known, and what of its text is its value."""

_NAME = r'(?:[A-Za-z_]\w*|"[^"]+"|`[^`]+`)'
_CONSTANT = r"(?:'[^'\\]*'|DATE\s*'(?!0000)\d{4}-\d\d-\d\d'|-?\d{1,18}(?![\w.]))"
_EQUAL = rf"{_NAME}\s*=\s*{_CONSTANT}"
_LEG = rf"(?:\(\s*+{_EQUAL}(?:\s+AND\s+{_EQUAL})*+\s*+\)|{_EQUAL}(?:\s+AND\s+{_EQUAL})*+)"
_UNEQUAL = rf"{_NAME}\s*(?:<>|!=)\s*{_CONSTANT}"
_NAMES = rf"\(\s*+{_NAME}(?:\s*+,\s*+{_NAME})++\s*+\)"
_ROW = rf"\(\s*+{_CONSTANT}(?:\s*+,\s*+{_CONSTANT})++\s*+\)"
_CHAIN = re.compile(  # nothing in it is read twice: a chain that is too short, or breaks off, is passed over whole
    rf"""(?<![\w.\"`])(?:
        (?P<any>{_LEG}(?:\s+OR\s+{_LEG})*+)
      | (?P<none>{_UNEQUAL}(?:\s+AND\s+{_UNEQUAL})*+)
      | (?P<row>{_NAMES}\s*+IN\s*+\(\s*+{_ROW}(?:\s*+,\s*+{_ROW})*+\s*+\))
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_PIECE = re.compile(rf"{_CONSTANT}|{_NAME}|<>|!=|[=(),]", re.IGNORECASE)

_BESIDE: dict[str, tuple[set[TokenType], set[TokenType]]] = {
    "any": ({TokenType.OR}, {TokenType.OR}),
    "none": ({TokenType.OR, TokenType.AND}, {TokenType.OR, TokenType.AND}),
    "row": ({TokenType.OR, TokenType.AND, TokenType.NOT}, {TokenType.OR, TokenType.AND}),
}
"""What may stand before and behind a chain, besides parentheses and the ends of the text: nothing bound tighter."""

Named = Callable[[str], tuple[Reference, str] | None]
"""The column that a name means, and its exact name in the text of the engine; None for what is no plain name."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """A column of a chain, its exact name, and the constants beside it: as they stand, and as its own values.

    A constant that the column's type does not hold is null.
    """

    column: Reference
    name: str
    texts: Sequence[str]
    values: pa.Array


def chained(source: Source, dialect: str, named: Named) -> Source:
    """The text with a number for each long chain; the same where there is none."""
    text = source.frozen
    if len(text) < SHORTEST or dialect not in ("duckdb", "spark"):
        return source
    replacements: list[tuple[int, int, str]] = []
    chains: dict[str, LongChain] = {}
    number = 2 * 10**17
    for match in _CHAIN.finditer(text):
        kind = str(match.lastgroup)
        compared = _read(match[0], kind, named) if len(match[0]) >= SHORTEST else None
        chain = None if compared is None else _bound(kind, compared)
        if chain is None:
            continue
        number = next(each for each in range(number + 1, number + len(text)) if str(each) not in text)
        replacements.append((*match.span(), str(number)))
        chains[str(number)] = chain
    return source.replaced(replacements, chains)


def stand_for_chains(tokens: Sequence[Token], source: Source) -> bool:
    """Whether the number of every chain is a leaf of the skeleton, with nothing beside it that is bound tighter."""
    chains = {number: chain for number, chain in source.lists.items() if isinstance(chain, LongChain)}
    found = 0
    waiting = [skeleton(tokens)] if chains else []
    while waiting:
        each = waiting.pop()
        waiting.extend(each.parts)
        token = tokens[each.start]
        if each.kind != "leaf" or each.end - each.start > 1 or token.token_type is not TokenType.NUMBER:
            continue
        if token.text in chains:
            before, behind = _BESIDE[chains[token.text].kind]
            if each.start and tokens[each.start - 1].token_type not in before | {TokenType.L_PAREN}:
                return False
            if each.end < len(tokens) and tokens[each.end].token_type not in behind | {TokenType.R_PAREN}:
                return False
            found += 1
    return found == len(chains)


def _read(text: str, kind: str, named: Named) -> list[_Compared] | None:
    """What a chain compares; None unless all its legs are alike and their constants are of their columns' own kinds."""
    pieces = _PIECE.findall(text)
    upper = [piece.upper() for piece in pieces[:1000]]
    if kind == "row":
        first = upper.index("IN") + 2
        names = pieces[1 : first - 3 : 2]
        legs = pieces[first:-1]
        size = 2 * len(names) + 1
        places = list(range(1, size, 2))
        if legs[size - 1 : size] != [")"]:
            return None
    else:
        link = "OR" if kind == "any" else "AND"
        size = upper.index(link) if link in upper else 0
        legs = pieces
        places = [place + 1 for place, piece in enumerate(pieces[:size]) if piece in ("=", "<>", "!=")]
        names = [pieces[place - 2] for place in places]
    step = size + 1
    if size == 0 or len(legs) < step * FEWEST or (len(legs) + 1) % step:
        return None
    legs.append(legs[size])
    if any(len(set(legs[place::step])) > 1 for place in range(step) if place not in places):
        return None
    found = [_beside(named(name), legs[place::step]) for name, place in zip(names, places, strict=True)]
    compared = [each for each in found if each is not None]
    return compared if compared and len(compared) == len(found) else None


def _beside(column: tuple[Reference, str] | None, texts: Sequence[str]) -> _Compared | None:
    if column is None:
        return None
    reference, name = column
    for holds, is_so, value in _KINDS.values():
        if holds(reference.type) and all(map(is_so, texts)):
            plain = pa.array([text[value] for text in texts], pa.string())
            if not t.is_integer(reference.type):
                try:
                    return _Compared(reference, name, texts, plain.cast(reference.type))
                except pa.ArrowInvalid:
                    return None  # no date, which the binder says in its own words
            numbers = plain.cast(pa.int64())
            low, high = integer_limits(reference.type)
            inside = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, min(high, 2**63 - 1)))
            held = pc.if_else(inside, numbers, None)
            return _Compared(reference, name, texts, held.cast(reference.type))
    return None


def _bound(kind: str, compared: Sequence[_Compared]) -> LongChain | None:
    first = compared[0]
    if kind == "none" or (kind == "any" and len(compared) == 1):
        among = tree.in_(first.column, first.values.drop_null())
        word, node = ("NOT IN", tree.not_(among)) if kind == "none" else ("IN", among)
        return LongChain(kind, f"{first.name} {word} ({', '.join(first.texts)})", node)
    if any(each.values.null_count for each in compared):
        return None
    legs = _legs(compared)
    rows = zip(*(each.texts for each in compared), strict=True)
    if kind == "row":
        names = ", ".join(each.name for each in compared)
        listed = ", ".join(f"({', '.join(row)})" for row in rows)
        return LongChain(kind, f"({names}) IN ({listed})", any_of_rows(legs))
    said = (" AND ".join(f"{each.name} = {text}" for each, text in zip(compared, row, strict=True)) for row in rows)
    return LongChain(kind, " OR ".join(f"({leg})" for leg in said), tree.or_(legs))


def _legs(compared: Sequence[_Compared]) -> list[Node]:
    sides = [[Compare("=", each.column, Literal(value)) for value in each.values] for each in compared]
    return [tree.and_(leg) for leg in zip(*sides, strict=True)]
