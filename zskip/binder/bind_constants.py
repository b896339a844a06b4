"""Replace parameters and reads of the clock in the text by constants, before it is parsed.

The proof, the residual and the engine then all use the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from sqlglot.tokenizer_core import Token, TokenType

from zskip.binder.lists import array_of, stand_ins
from zskip.binder.sql_text import LongList, Parameters, SourceText, is_unicode
from zskip.errors import UnknownParameter, nearest
from zskip.language.sql_literals import literal

__all__ = ["bind_constants", "reads_clock"]

_CLOCK_FUNCTIONS = {
    "duckdb": {
        "now": "instant",
        "get_current_timestamp": "instant",
        "transaction_timestamp": "instant",
        "current_timestamp": "instant",
        "current_localtimestamp": "local",
        "localtimestamp": "local",
        "today": "date",
        "current_date": "date",
    },
    "spark": {
        "now": "instant",
        "current_timestamp": "instant",
        "localtimestamp": "local",
        "current_date": "date",
        "curdate": "date",
    },
}
"""The functions that read the clock, by dialect, and the kind of their result."""

_WITHOUT_PARENTHESES = {"current_timestamp", "current_date", "localtimestamp"}
"""The functions that may also be called without parentheses."""


def bind_constants(
    source: SourceText,
    tokens: Sequence[Token],
    dialect: str,
    params: Parameters | None,
    now: datetime | None,
    zone: str,
) -> SourceText:
    """The text with every parameter and every read of the clock replaced by its value.

    Raises `UnknownParameter` for a parameter without a value, and for a value without a parameter.
    """
    replacements: list[tuple[int, int, str]] = []
    lists: dict[str, LongList] = {}
    if params is not None or any(mark in source.text for mark in "?$:"):
        replacements += _parameters(source, tokens, params, dialect, lists)
    if reads_clock(source.text, dialect):
        replacements += _clock_replacements(tokens, dialect, now or datetime.now(UTC), zone)
    return source.replaced(replacements, lists)


def reads_clock(text: str, dialect: str) -> bool:
    """Whether a text may read the clock: it contains the name of such a function, perhaps with another meaning."""
    lowered = text.lower()
    return any(name in lowered for name in _CLOCK_FUNCTIONS.get(dialect, {}))


def _clock_replacements(
    tokens: Sequence[Token], dialect: str, now: datetime, zone: str
) -> Iterable[tuple[int, int, str]]:
    """The start and end of each read of the clock, and the literal that replaces it."""
    names = _CLOCK_FUNCTIONS.get(dialect, {})
    for index, token in enumerate(tokens):
        name = token.text.lower()
        if name not in names or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        if index and tokens[index - 1].token_type is TokenType.DOT:
            continue
        following = [each.token_type for each in tokens[index + 1 : index + 3]]
        if following == [TokenType.L_PAREN, TokenType.R_PAREN]:
            yield token.start, tokens[index + 2].end + 1, _clock_literal(names[name], dialect, now, zone)
        elif name in _WITHOUT_PARENTHESES and following[:1] not in ([TokenType.L_PAREN], [TokenType.DOT]):
            yield token.start, token.end + 1, _clock_literal(names[name], dialect, now, zone)


def _clock_literal(kind: str, dialect: str, now: datetime, zone: str) -> str:
    """The current time as a literal of the kind that a clock function returns."""
    aware = now if now.tzinfo else now.replace(tzinfo=UTC)
    if kind == "instant":
        return literal(aware, dialect)
    local = aware.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return literal(local.date() if kind == "date" else local, dialect)


_LISTS = (list, tuple, set, frozenset)

_ENDS_VALUE = {
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.NUMBER,
    TokenType.STRING,
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
}


class _Parameter(NamedTuple):
    """A parameter in the text. ``key``: its name or number as text, or the position of a ``?``, from 0 · ``start`` and
    ``end``: its half-open range of characters · ``after_in``: whether IN precedes it."""

    key: int | str
    start: int
    end: int
    after_in: bool


def _found_parameters(tokens: Sequence[Token]) -> Iterator[_Parameter]:
    position = 0
    for index, token in enumerate(tokens):
        before = tokens[index - 1].token_type if index else None
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        after_in = before is TokenType.IN
        if token.token_type is TokenType.PLACEHOLDER:
            yield _Parameter(position, token.start, token.end + 1, after_in)
            position += 1
        elif token.token_type in (TokenType.PARAMETER, TokenType.COLON) and following and token.text in ("$", ":"):
            if following.start == token.end + 1 and before not in _ENDS_VALUE:
                yield _Parameter(following.text, token.start, following.end + 1, after_in)
        elif token.token_type is TokenType.VAR and token.text.startswith("$") and len(token.text) > 1:
            yield _Parameter(token.text[1:], token.start, token.end + 1, after_in)


def _parameters(
    source: SourceText,
    tokens: Sequence[Token],
    params: Parameters | None,
    dialect: str,
    lists: dict[str, LongList],
) -> Iterable[tuple[int, int, str]]:
    """The start and end of each parameter, and the literal that replaces it; adds long lists to ``lists``."""
    named = params if isinstance(params, Mapping) else {}
    ordered = [] if params is None or isinstance(params, Mapping) else list(params)
    used: set[object] = set()
    numbers = stand_ins(source.original)
    for key, start, end, after_in in _found_parameters(tokens):
        written, span = source.text[start:end], source.span(start, end)
        if isinstance(key, str) and key.isdigit() and len(key) < 10 and not isinstance(params, Mapping):
            key = int(key) - 1
        if isinstance(key, int):
            if not 0 <= key < len(ordered):
                raise UnknownParameter(
                    f"There is no value for the parameter {written}: params= has {len(ordered)}.",
                    source.original,
                    span,
                )
            value = ordered[key]
        else:
            if key not in named:
                raise UnknownParameter(
                    f"There is no value for the parameter {written}.{nearest(key, named)}", source.original, span
                )
            value = named[key]
        used.add(key)
        if isinstance(value, _LISTS) and not after_in:
            raise UnknownParameter(
                f"The parameter {written} holds a {type(value).__name__}, which is allowed only after IN, without "
                f"parentheses: IN {written}.",
                source.original,
                span,
            )
        text = literal(value, dialect)
        if not is_unicode(text):
            message = f"The parameter {written} contains half of a surrogate pair, not a character."
            raise UnknownParameter(message, source.original, span)
        values = array_of(value) if isinstance(value, _LISTS) and dialect in ("duckdb", "spark") else None
        if values is not None:
            number = next(numbers)
            lists[number] = LongList(text[1:-1], values)
            text = f"({number})"
        yield start, end, text
    unused = [f"${name}" for name in named if name not in used] + [
        f"number {i + 1}" for i in range(len(ordered)) if i not in used
    ]
    if unused:
        raise UnknownParameter(f"The predicate has no parameter for the value {unused[0]}.", source.original)
