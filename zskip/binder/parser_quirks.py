"""Differences between the parser and engines: names of columns and of collations; and the parser's warnings."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from zskip.binder.names import Names
from zskip.binder.source_text import text_range

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
    columns = {column.parts[0].lower() for column in names.schema} & _KEYWORDS
    if not columns or names.dialect.name not in ("duckdb", "spark"):
        return tokens
    replaced = list(tokens)
    for index, token in enumerate(tokens):
        if token.text.lower() not in columns or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        before = index == 0 or tokens[index - 1].token_type in _BEFORE
        after = index + 1 == len(tokens) or tokens[index + 1].token_type in _AFTER
        if before and after and names.find([token.text]) is not None:
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
