"""What the parser takes otherwise than engines do: columns whose names begin statements; and what it says of that."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from zskip.binder.names import Names

__all__ = ["named_as_words", "parsed", "without_parser_warnings"]

_WORDS = {
    "alter", "attach", "begin", "cache", "comment", "commit", "connect", "copy", "delete", "detach", "disconnect",
    "drop", "force", "grant", "if", "insert", "install", "list", "load", "map", "merge", "nullable", "object", "pragma",
    "range", "revoke", "rollback", "row", "set", "struct", "truncate", "update", "use",
}  # fmt: skip
"""Names that engines read as columns where they can be nothing else, and the parser as something that begins there."""

_SIGNS = {
    TokenType.EQ, TokenType.NEQ, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.PLUS, TokenType.DASH,
    TokenType.STAR, TokenType.SLASH, TokenType.AND, TokenType.OR, TokenType.BETWEEN,
}  # fmt: skip
_BEFORE = _SIGNS | {TokenType.L_PAREN, TokenType.NOT}
_BEHIND = _SIGNS | {TokenType.R_PAREN, TokenType.LT, TokenType.NOT, TokenType.IN, TokenType.IS, TokenType.LIKE}
"""What stands beside a value, and never beside a constructor, a type or the first word of a statement."""


def named_as_words(tokens: list[Token], names: Names) -> list[Token]:
    """The tokens, with columns such as ``comment`` and ``map`` as names where only a name can stand."""
    columns = {column.parts[0].lower() for column in names.schema} & _WORDS
    if not columns or names.dialect.name not in ("duckdb", "spark"):
        return tokens
    found = list(tokens)
    for index, token in enumerate(tokens):
        if token.text.lower() not in columns or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        before = index == 0 or tokens[index - 1].token_type in _BEFORE
        behind = index + 1 == len(tokens) or tokens[index + 1].token_type in _BEHIND
        if before and behind and names.find([token.text]) is not None:
            place = (token.line, token.col, token.start, token.end, token.comments)
            found[index] = Token(TokenType.IDENTIFIER, token.text, *place)
    return found


def parsed(text: str, dialect: str) -> list[exp.Expr | None]:
    """The statements of a text. Raises sqlglot's errors."""
    with without_parser_warnings():
        return sqlglot.parse(text, dialect=dialect)


@contextmanager
def without_parser_warnings() -> Iterator[None]:
    """Without the parser's warnings of this thread: what it does not know, zskip says itself."""
    thread = threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger = logging.getLogger("sqlglot")
    logger.addFilter(of_others)
    try:
        yield
    finally:
        logger.removeFilter(of_others)
