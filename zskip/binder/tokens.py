"""The tokens of a predicate before they are parsed: how deep they nest, the skeleton of AND, OR, NOT and parentheses,
long lists of constants, and differences between the parser and engines.

The parser sees only the leaves of the skeleton. So a hundred thousand terms or a thousand parentheses do not make a
deep tree, and each part of the predicate keeps its own range of the text. A long list of integers, of decimals, of
strings or of dates is read as one array, and the parser sees a number in its place.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from zskip.binder.names import Names
from zskip.binder.source_text import Value, text_range
from zskip.core.schema import SESSION_VALUES
from zskip.errors import SqlSyntaxError

MAX_DEPTH = 200
"""Levels of nesting. The parser and each recursive function need up to four frames a level, of Python's 1,000."""

TOO_DEEP = f"This nests too deep to be read: more than {MAX_DEPTH:,} levels, or as many operators in one chain."


@contextmanager
def syntax_error_if_too_deep(sql: str) -> Iterator[None]:
    """Turns a RecursionError of the block into a `SqlSyntaxError`: the caller may have used up most of the stack."""
    try:
        yield
    except RecursionError as error:
        raise SqlSyntaxError(TOO_DEEP, sql) from error


_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}


_NESTING = _OPEN | {TokenType.NOT, TokenType.DCOLON} | Parser.NESTED_TYPE_TOKENS


class Part(NamedTuple):
    """Tokens ``start`` to ``end`` (half open). ``kind``: "leaf", "and", "or" or "not"."""

    kind: str
    start: int
    end: int
    parts: tuple[Part, ...] = ()


_SUBSCRIPT_LEVELS = 50
"""Levels of each further subscript of ``x[1][2][3]``: the parser's time is quadratic in their number."""

_TYPE_LEVELS = 4
"""Levels of each type within ``MAP<INT, MAP<INT, …>>``: the parser's time is cubic in their number."""

_MAX_TYPE_BRACKETS = 12
"""Nested brackets after names of types that are allowed in any text: the parser takes a tenth of a second for them."""

_ENDS_CASTS = {TokenType.AND, TokenType.OR, TokenType.COMMA, TokenType.EQ, TokenType.PLUS, TokenType.DASH}
"""Tokens after which a cast applies to another operand."""


def require_parsable(tokens: Sequence[Token], sql: str) -> None:
    """Raises `SqlSyntaxError` for tokens that nest too deep, or for which the parser would take exponential time.

    The depth is the greatest number of nested brackets and CASEs, of nested types, and of consecutive NOTs, subscripts,
    methods and casts: ``x[1][2]``, ``x.trim().lower()``, ``x::INT::TEXT``. The brackets after the name of a type are
    read twice, as in ``DATE(DATE(x))``, first as a type and then as a call.
    """
    kinds = [token.token_type for token in tokens]
    if _NESTING.isdisjoint(kinds):
        return
    deepest = nots = chain = types = casts = of_types = repeated = 0
    # For each open bracket, the levels of the subscripts and methods before it, and whether it follows a type's name.
    open_: list[tuple[int, bool]] = []
    last = None
    for index, kind in enumerate(kinds):
        if kind in _OPEN:
            subscript = kind is TokenType.L_BRACKET and last is TokenType.R_BRACKET
            further = _SUBSCRIPT_LEVELS if subscript else _is_method_of_call(kinds, index)
            levels, of_type = chain + further if further else 0, last in Parser.TYPE_TOKENS
            open_.append((levels, of_type))
            of_types += of_type
            deepest = max(deepest, len(open_), levels)
        elif kind in _CLOSE and open_:
            chain, of_type = open_.pop()
            of_types -= of_type
        elif kind is TokenType.LT and last in Parser.NESTED_TYPE_TOKENS:
            types += 1
            deepest = max(deepest, types * _TYPE_LEVELS)
        elif kind is TokenType.GT:
            types = max(0, types - 1)
        repeated += 1 << min(of_types, _MAX_TYPE_BRACKETS) if of_types > 1 else 0
        casts = 0 if kind in _ENDS_CASTS else casts + (kind is TokenType.DCOLON)
        nots = nots + 1 if kind is TokenType.NOT or (nots and kind is TokenType.L_PAREN) else 0
        deepest = max(deepest, nots, casts)
        last = kind
    if deepest > MAX_DEPTH or repeated > (1 << _MAX_TYPE_BRACKETS) + 4 * len(kinds):
        raise SqlSyntaxError(TOO_DEEP, sql)


def _is_method_of_call(kinds: Sequence[TokenType], opening: int) -> bool:
    """Whether a parenthesis opens the arguments of ``g`` in ``f(x).g()``."""
    if opening < 3 or kinds[opening - 2] is not TokenType.DOT:
        return False
    return kinds[opening] is TokenType.L_PAREN and kinds[opening - 3] is TokenType.R_PAREN


@dataclass(frozen=True, slots=True)
class _Marks:
    """For each token: its type; the index of its closing token if it opens a bracket, else its own index; and the index
    of the first token from it on that is in `_MARKED`."""

    kinds: list[TokenType]
    partners: list[int]
    following: list[int]


_NOT_IN_PREDICATES = {TokenType.COMMA, TokenType.SELECT, TokenType.XOR, TokenType.WITH, TokenType.ARROW}
"""Tokens that show that brackets contain a list, a query, or something unknown."""

_MARKED = _OPEN | _NOT_IN_PREDICATES | {TokenType.AND, TokenType.OR, TokenType.BETWEEN}


def skeleton(tokens: Sequence[Token]) -> Part:
    """The predicate as a tree of parts; one leaf, for which the parser raises, if brackets are unbalanced."""
    kinds = [token.token_type for token in tokens]
    partners = _partners(kinds)
    if partners is None:
        return Part("leaf", 0, len(tokens))
    following = [len(kinds)] * (len(kinds) + 1)
    for index in range(len(kinds) - 1, -1, -1):
        following[index] = index if kinds[index] in _MARKED else following[index + 1]
    return _part(_Marks(kinds, partners, following), 0, len(tokens))


def _partners(kinds: Sequence[TokenType]) -> list[int] | None:
    """The index of the closing token for each opening one, else the token's own; None if they do not match."""
    partners = list(range(len(kinds)))
    open_: list[int] = []
    for index, kind in enumerate(kinds):
        if kind in _OPEN:
            open_.append(index)
        elif kind in _CLOSE:
            if not open_ or (kinds[open_[-1]] is TokenType.CASE) != (kind is TokenType.END):
                return None
            partners[open_.pop()] = index
    return None if open_ else partners


def _part(marks: _Marks, start: int, end: int) -> Part:
    kinds = marks.kinds
    split = None
    while start < end and kinds[start] is TokenType.L_PAREN and marks.partners[start] == end - 1:
        split = _split_level(marks, start + 1, end - 1)
        if split is None:
            return Part("leaf", start, end)
        start, end = start + 1, end - 1
    split = split or _split_level(marks, start, end)
    if split is None:
        return Part("leaf", start, end)
    kind, connectives = split
    if kind:
        edges = [start - 1, *connectives, end]
        spans = [(left + 1, right) for left, right in itertools.pairwise(edges)]
        if any(left >= right for left, right in spans):
            return Part("leaf", start, end)
        return Part(kind, start, end, tuple([_part(marks, left, right) for left, right in spans]))
    if start + 1 < end and kinds[start] is TokenType.NOT:
        return Part("not", start, end, (_part(marks, start + 1, end),))
    return Part("leaf", start, end)


def _split_level(marks: _Marks, start: int, end: int) -> tuple[str, list[int]] | None:
    """The connective that binds most loosely outside brackets, "or" or "and", and its indices; ``("", [])`` if there is
    none, None for tokens that are not a predicate but a list, a query or something unknown."""
    if start >= end:
        return None
    ands: list[int] = []
    ors: list[int] = []
    betweens = 0
    index = marks.following[start]
    while index < end:
        kind = marks.kinds[index]
        if kind is TokenType.AND:
            if betweens:
                betweens -= 1
            else:
                ands.append(index)
        elif kind is TokenType.OR:
            ors.append(index)
        elif kind in _NOT_IN_PREDICATES:
            return None
        elif kind is TokenType.BETWEEN:
            betweens += 1
        index = marks.following[marks.partners[index] + 1]
    if ors:
        return "or", ors
    return ("and", ands) if ands else ("", [])


_FEWEST = 50
"""The number of constants from which a list is long."""

_NUMBERS = {TokenType.NUMBER, TokenType.COMMA, TokenType.DASH}


def long_lists(tokens: Sequence[Token]) -> tuple[list[Token], list[Value]]:
    """The tokens with a number for each long list after IN, and the values of these lists."""
    kinds = [token.token_type for token in tokens]
    replaced: list[Token] = []
    lists: list[Value] = []
    position = 0
    while position < len(tokens):
        try:
            first = kinds.index(TokenType.IN, position) + 2
            last = kinds.index(TokenType.R_PAREN, first)
        except ValueError:
            break
        replaced += tokens[position:first]
        position = first
        values = None
        if kinds[first - 1] is TokenType.L_PAREN and last - first >= 2 * _FEWEST - 1:
            values = _constants(tokens[first:last], kinds[first:last])
        if values is not None:
            begin, end = tokens[first], tokens[last - 1].end
            replaced.append(Token(TokenType.NUMBER, "0", begin.line, begin.col, begin.start, end))
            lists.append(Value(begin.start, end + 1, values, given=False))
            position = last
    return [*replaced, *tokens[position:]], lists


def _constants(tokens: Sequence[Token], kinds: Sequence[TokenType]) -> pa.Array | None:
    """The constants that tokens between parentheses list; None if they are of several kinds, or of none of these."""
    try:
        if set(kinds) <= _NUMBERS:
            return _numbers("".join([token.text for token in tokens]).split(","))
        if _repeats(kinds, TokenType.STRING, TokenType.COMMA):
            return pa.array([token.text for token in tokens[::2]], pa.string())
        if _repeats(kinds, TokenType.DATE, TokenType.STRING, TokenType.COMMA):
            days = [token.text for token in tokens[1::3]]
            return (
                None if any(day.startswith("0000") for day in days) else pa.array(days, pa.string()).cast(pa.date32())
            )
    except (pa.ArrowInvalid, ValueError, OverflowError):
        pass  # no such list, or an invalid constant, for which the binder raises its own error
    return None


def _repeats(kinds: Sequence[TokenType], *pattern: TokenType) -> bool:
    """Whether the kinds are the pattern again and again, without its last one at the end."""
    step = len(pattern)
    return len(kinds) % step == step - 1 and all(set(kinds[n::step]) <= {kind} for n, kind in enumerate(pattern))


def _numbers(texts: list[str]) -> pa.Array:
    """Integers of up to 18 digits, or decimals of up to 18 digits on each side of the point. Raises `ValueError`."""
    parts = [text.lstrip("-").split(".") for text in texts]
    if max(map(len, parts)) == 1 and max(map(len, texts)) < 19:
        return pa.array(list(map(int, texts)), pa.int64())
    if any(len(each) != 2 or not (0 < len(each[0]) <= 18 and 0 < len(each[1]) <= 18) for each in parts):
        raise ValueError
    whole, scale = (max(len(each[side]) for each in parts) for side in (0, 1))
    return pa.array(texts, pa.string()).cast(pa.decimal128(whole + scale, scale))


_KEYWORDS = {
    "alter", "attach", "begin", "cache", "comment", "commit", "connect", "copy", "delete", "detach", "disconnect",
    "drop", "force", "grant", "if", "insert", "install", "list", "load", "map", "merge", "nullable", "object", "pragma",
    "range", "revoke", "rollback", "row", "set", "struct", "truncate", "update", "use",
}  # fmt: skip
"""Names that the parser reads as the start of a statement, type or constructor, and engines as columns."""

_OPERATORS = {
    TokenType.EQ, TokenType.NEQ, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.PLUS, TokenType.DASH,
    TokenType.STAR, TokenType.SLASH, TokenType.AND, TokenType.OR, TokenType.BETWEEN,
}  # fmt: skip
_BEFORE = _OPERATORS | {TokenType.L_PAREN, TokenType.NOT}
_AFTER = _OPERATORS | {TokenType.R_PAREN, TokenType.LT, TokenType.NOT, TokenType.IN, TokenType.IS, TokenType.LIKE}
"""Tokens next to a value that never occur next to a constructor, a type or the first word of a statement."""


def keywords_as_columns(tokens: list[Token], names: Names) -> list[Token]:
    """The tokens, with columns such as ``comment`` and ``map`` as identifiers where only an identifier is possible."""
    columns = {column.parts[0].lower() for column in names.schema} & (_KEYWORDS | SESSION_VALUES)
    if not columns or names.dialect.name not in ("duckdb", "spark"):
        return tokens
    replaced = list(tokens)
    for index, token in enumerate(tokens):
        if token.text.lower() not in columns or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        before = index == 0 or tokens[index - 1].token_type in _BEFORE
        after = index + 1 == len(tokens) or tokens[index + 1].token_type in _AFTER
        called = index + 1 < len(tokens) and tokens[index + 1].token_type is TokenType.L_PAREN
        is_value = token.text.lower() in SESSION_VALUES and not called
        if ((before and after) or is_value) and names.find([token.text]) is not None:
            position = (token.line, token.col, token.start, token.end, token.comments)
            replaced[index] = Token(TokenType.IDENTIFIER, token.text, *position)
    return replaced


def collations_as_words(node: exp.Expr) -> None:
    """Turns the collations in an expression into plain words: the parser reads ``NOCASE.NOACCENT`` as a column."""
    for collated in node.find_all(exp.Collate):
        name = collated.expression
        if isinstance(name, exp.Column):
            word = exp.var(".".join(part.name for part in name.parts))
            start, end = text_range(name)
            word.meta.update(start=start, end=end - 1)
            collated.set("expression", word)


@contextmanager
def without_parser_warnings() -> Iterator[None]:
    """Suppresses the parser's log messages in this thread: zskip itself reports what is not supported."""
    thread = threading.get_ident()

    def is_of_other_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger = logging.getLogger("sqlglot")
    logger.addFilter(is_of_other_thread)
    try:
        yield
    finally:
        logger.removeFilter(is_of_other_thread)
