"""Parameters and reads of the clock: their values, and the tokens by which the parser sees a constant.

The proof, the residual and the engine then all use the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

from zskip.binder.source_text import Parameters, SourceText, Value
from zskip.core.option_checks import is_encodable, numbered
from zskip.errors import UnknownParameter, nearest
from zskip.language.clocks import local_time
from zskip.language.literals import is_list, listed, plain_value

STAND_IN = "?"
"""The text of a token that stands for a value of which the parser needs not know more than that it is constant."""

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


class _Replaced(NamedTuple):
    """Tokens ``first`` to ``last`` (half open), and the value in their place."""

    first: int
    last: int
    value: Value


def with_values(
    source: SourceText, tokens: list[Token], dialect: str, params: Parameters | None, now: datetime | None, zone: str
) -> list[Token]:
    """The tokens with a constant in place of parameters and reads of the clock; adds their values to ``source``.

    Raises `UnknownParameter` for a parameter without a value, and for a value without a parameter.
    """
    found: list[_Replaced] = []
    if params is not None or any(mark in source.text for mark in "?$:"):
        found += _parameters(source, tokens, params)
    if reads_clock(source.text, dialect):
        found += _clock_reads(tokens, dialect, now or datetime.now(UTC), zone)
    if not found:
        return tokens
    source.add(each.value for each in found)
    replaced: list[Token] = []
    position = 0
    for first, last, value in sorted(found):
        replaced += tokens[position:first]
        replaced += _constant_tokens(value, tokens[first])
        position = last
    return replaced + tokens[position:]


def _constant_tokens(value: Value, at: Token) -> list[Token]:
    """The tokens of a constant, all at the place of the value. Rules that read the text of a constant see it."""

    def token(kind: TokenType, text: str) -> Token:
        return Token(kind, text, at.line, at.col, value.start, value.end - 1)

    if value.is_list:
        parts = [(TokenType.L_PAREN, "("), (TokenType.NUMBER, STAND_IN), (TokenType.R_PAREN, ")")]
        return [token(kind, text) for kind, text in parts]
    match value.value:
        case None:
            return [token(TokenType.NULL, "NULL")]
        case bool():
            return [token(TokenType.TRUE, "TRUE") if value.value else token(TokenType.FALSE, "FALSE")]
        case str():
            return [token(TokenType.STRING, value.value)]
        case int() if value.value >= 0:
            return [token(TokenType.NUMBER, str(value.value))]
        case timedelta():
            micros = str(value.value // timedelta(microseconds=1))
            parts = [(TokenType.INTERVAL, "INTERVAL"), (TokenType.STRING, micros), (TokenType.VAR, "MICROSECONDS")]
            return [token(kind, text) for kind, text in parts]
    return [token(TokenType.NUMBER, STAND_IN)]


def reads_clock(text: str, dialect: str) -> bool:
    """Whether a text may read the clock: it contains the name of such a function, perhaps with another meaning."""
    lowered = text.lower()
    return any(name in lowered for name in _CLOCK_FUNCTIONS.get(dialect, {}))


def _clock_reads(tokens: Sequence[Token], dialect: str, now: datetime, zone: str) -> Iterator[_Replaced]:
    """Each read of the clock, with the time that it reads."""
    names = _CLOCK_FUNCTIONS.get(dialect, {})
    for index, token in enumerate(tokens):
        name = token.text.lower()
        if name not in names or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        if index and tokens[index - 1].token_type is TokenType.DOT:
            continue
        following = [each.token_type for each in tokens[index + 1 : index + 3]]
        if following == [TokenType.L_PAREN, TokenType.R_PAREN]:
            last = index + 2
        elif name in _WITHOUT_PARENTHESES and following[:1] not in ([TokenType.L_PAREN], [TokenType.DOT]):
            last = index
        else:
            continue
        value = Value(token.start, tokens[last].end + 1, _clock_value(names[name], now, zone))
        yield _Replaced(index, last + 1, value)


def _clock_value(kind: str, now: datetime, zone: str) -> object:
    """The current time as the value that a clock function of this kind returns."""
    aware = now if now.tzinfo else now.replace(tzinfo=UTC)
    if kind == "instant":
        return aware
    local = local_time(aware, zone)
    return local.date() if kind == "date" else local


_ENDS_VALUE = {
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.NUMBER,
    TokenType.STRING,
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
}


class _Parameter(NamedTuple):
    """A parameter in the text. ``key``: its name or number as text · ``first`` and ``last``: its tokens (half open) ·
    ``after_in``: whether IN precedes it."""

    key: str
    first: int
    last: int
    after_in: bool


def _found_parameters(tokens: Sequence[Token]) -> Iterator[_Parameter]:
    """The parameters of a text. A ``?`` is numbered as in DuckDB."""
    found = list(_as_written(tokens))
    for each, key in zip(found, numbered(each.key for each in found), strict=True):
        yield each._replace(key=key)


def _as_written(tokens: Sequence[Token]) -> Iterator[_Parameter]:
    """The parameters of a text; the key of a ``?`` without a number is empty."""
    for index, token in enumerate(tokens):
        before = tokens[index - 1].token_type if index else None
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        after_in = before is TokenType.IN
        if token.token_type is TokenType.PLACEHOLDER:
            numbered = following is not None and following.start == token.end + 1 and following.text.isdigit()
            key = following.text if following is not None and numbered else ""
            yield _Parameter(key, index, index + 1 + numbered, after_in)
        elif token.token_type in (TokenType.PARAMETER, TokenType.COLON) and following and token.text in ("$", ":"):
            if following.start == token.end + 1 and before not in _ENDS_VALUE and not _is_slice(tokens, index):
                yield _Parameter(following.text, index, index + 2, after_in)
        elif token.token_type is TokenType.VAR and token.text.startswith("$") and len(token.text) > 1:
            yield _Parameter(token.text[1:], index, index + 1, after_in)


def _is_slice(tokens: Sequence[Token], colon: int) -> bool:
    """Whether a colon begins the range of a subscript, as in ``c[:2]``; in ``IN [:a, :b]`` it begins a parameter."""
    if colon < 2 or tokens[colon - 1].token_type is not TokenType.L_BRACKET:
        return False
    return tokens[colon - 2].token_type in _ENDS_VALUE


def _parameters(source: SourceText, tokens: Sequence[Token], params: Parameters | None) -> Iterable[_Replaced]:
    """Each parameter, with its value."""
    named = params if isinstance(params, Mapping) else {}
    folded = {str(name).lower(): name for name in named}
    ordered = [] if params is None or isinstance(params, Mapping) else list(params)
    used: set[object] = set()
    for key, first, last, after_in in _found_parameters(tokens):
        start, end = tokens[first].start, tokens[last - 1].end + 1
        written, span = source.text[start:end], (start, end)
        if key.isdigit() and len(key) < 10 and not isinstance(params, Mapping):
            number = int(key) - 1
            if not 0 <= number < len(ordered):
                raise UnknownParameter(
                    f"There is no value for the parameter {written}: params= has {len(ordered)}. In a shell, "
                    f"--param {key}=… gives it.",
                    source.text,
                    span,
                )
            value: Any = ordered[number]
            used.add(number)
        else:
            name = key if key in named else folded.get(key.lower())
            if name is None:
                hint = nearest(key, named) or " Give it by params=, or in a shell by --param."
                raise UnknownParameter(f"There is no value for the parameter {written}.{hint}", source.text, span)
            value = named[name]
            used.add(name)
        if is_list(value) and not after_in:
            raise UnknownParameter(
                f"The parameter {written} holds a {type(value).__name__}, which is allowed only after IN, without "
                f"parentheses: IN {written}.",
                source.text,
                span,
            )
        plain = listed(value) if is_list(value) else plain_value(value)
        if isinstance(plain, str) and not is_encodable(plain):
            message = f"The parameter {written} contains half of a surrogate pair, not a character."
            raise UnknownParameter(message, source.text, span)
        yield _Replaced(first, last, Value(start, end, plain))
    unused = [f"${name}" for name in named if name not in used] + [
        f"number {i + 1}" for i in range(len(ordered)) if i not in used
    ]
    if unused:
        raise UnknownParameter(f"The predicate has no parameter for the value {unused[0]}.", source.text)
