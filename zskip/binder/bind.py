"""`bind`: binds SQL text to a schema, as a `Predicate`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from threading import Lock
from typing import Any

import sqlglot
from cachetools import LRUCache
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from zskip.binder.context import opaque
from zskip.binder.leaf_binder import Binder
from zskip.binder.names import Names
from zskip.binder.parameters import reads_clock, with_values
from zskip.binder.source_text import (
    Parameters,
    SourceText,
    curly_quotes,
    has_more_tokens,
    parse_error_text,
    sign_for_word,
    unclosed_quote,
)
from zskip.binder.tokens import (
    MAX_DEPTH,
    TOO_DEEP,
    Part,
    collations_as_words,
    keywords_as_columns,
    long_lists,
    require_parsable,
    skeleton,
    syntax_error_if_too_deep,
    without_parser_warnings,
)
from zskip.core.option_checks import check_options, is_encodable, require_parameters
from zskip.core.schema import Schema, identifier
from zskip.errors import InvalidOption, SqlSyntaxError, UnsupportedSql, nearest
from zskip.language import clocks, tree
from zskip.language.bound import Dialect, Predicate, Template
from zskip.language.tree import Node, Opaque, Why

MOST_CHARACTERS, MOST_TOKENS = 2_000_000, 20_000
"""Limits of a predicate, not counting lists of constants. A predicate of this size is planned in half a second."""

MOST_CACHED, _CAPACITY, _LEAST_SIZE = 200_000, 2_000_000, 8_000
"""Characters of the longest text that is cached, and of all of them; a short one counts as so many, so that at most 250
predicates are cached."""

_lock = Lock()
_cache: LRUCache[tuple[object, ...], Predicate] = LRUCache(_CAPACITY, lambda each: max(_LEAST_SIZE, len(each.text)))
"""Predicates by text and settings, but for those that read parameters or the clock. Schemas are compared by identity,
and an entry keeps its schema alive."""

_MAX_LEAVES, _NODES = 1_000, 4
"""Conditions that are bound and proved one by one; further ones of an AND or OR are opaque. Those with functions and
opaque ones count three times, since they take as much longer, and so do so many nodes of the tree that one becomes."""

_MAX_LEAF_TOKENS = 5_000
"""Tokens of a single condition, not counting constants, commas and parentheses; a longer one is opaque."""

_NAMES_OR_VALUES = {*Parser.ID_VAR_TOKENS, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER}
_CHEAP_TOKENS = {TokenType.NUMBER, TokenType.STRING, TokenType.COMMA, TokenType.L_PAREN, TokenType.R_PAREN}

_PARSER_FAILURES = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Errors that the parser raises for some invalid texts instead of its own: MAP(1) in Spark's dialect, a::DECIMAL(x)."""

_MAX_CONJUNCTS = 1000
"""Parts of an AND that become conjuncts, each proved on its own; an AND with more of them is a single conjunct."""


def bind(
    sql: str,
    schema: Schema,
    *,
    dialect: str = "duckdb",
    timezone: str = "UTC",
    params: Parameters | None = None,
    now: datetime | None = None,
    ansi: bool = True,
    case_sensitive: bool = False,
) -> Predicate:
    """Binds a predicate to the columns of a schema.

    ``dialect``: sqlglot's name of the dialect · ``timezone``: the session's time zone, an IANA name · ``params``: the
    values of ``?`` and ``$1`` (a sequence), or of ``$name`` and ``:name`` (a mapping) · ``now``: the time that now()
    and current_date return, by default the current time · ``ansi``: Spark's ANSI mode · ``case_sensitive``: whether
    column names are case-sensitive

    Raises `SqlSyntaxError`, `UnknownColumn`, `IncomparableTypes`, `UnknownParameter` and `UnsupportedSql`, which point
    at the position in the text, and `InvalidOption` for an unknown dialect or time zone. A valid condition that
    statistics cannot prove raises nothing: it keeps all files, and `zskip.pruning.reasons` says why.

    >>> import pyarrow as pa
    >>> bind("a > 5 AND b LIKE 'x%'", Schema(pa.schema({"a": pa.int32(), "b": pa.string()}))).columns == {"a", "b"}
    True
    """
    if not isinstance(sql, str):
        raise InvalidOption(f"A predicate is SQL text, not {sql!r}.")
    if not is_encodable(sql):
        raise SqlSyntaxError("The predicate contains half of a surrogate pair, not a character.", ascii(sql)[1:-1])
    require_parameters(params)
    check_options(timezone=timezone)
    settings = Dialect(dialect, timezone, ansi)
    reads_values = params is not None or reads_clock(sql, dialect)
    key = (
        None if reads_values or len(sql) > MOST_CACHED else (sql, settings, clocks.in_use(), id(schema), case_sensitive)
    )
    with _lock:
        cached = None if key is None else _cache.get(key)
    if cached is not None and cached.schema is schema:
        return cached
    parser, source = _parser(dialect), SourceText(sql)
    names = Names(schema, settings, source, case_sensitive)
    tokens = with_values(source, _tokens(parser, names), dialect, params, now, settings.timezone)
    if not tokens:
        raise SqlSyntaxError("The predicate is empty. TRUE matches all rows.", sql)
    builder = _PredicateBuilder(names, tokens, parser)
    require_parsable(tokens, sql)
    with syntax_error_if_too_deep(sql), without_parser_warnings():
        predicate = builder.predicate(skeleton(tokens))
    if predicate.depth > MAX_DEPTH:  # a chain of operators nests too
        raise SqlSyntaxError(TOO_DEEP, sql)
    if key is not None:
        with _lock:
            _cache[key] = predicate
    return predicate


def _parser(dialect: str) -> sqlglot.Dialect:
    try:
        return sqlglot.Dialect.get_or_raise(dialect)
    except ValueError as error:
        known = dict.fromkeys(["duckdb", "spark", *(each.value for each in sqlglot.Dialects if each.value)])
        hint = nearest(dialect, known)
        raise InvalidOption(f'There is no dialect "{dialect}".{hint}') from error


def _tokens(parser: sqlglot.Dialect, names: Names) -> list[Token]:
    """The tokens of the source text, with a number for each long list of constants, whose values it adds to the source.

    Raises `SqlSyntaxError`, and `UnsupportedSql` if there are too many.
    """
    source, sql = names.source, names.source.text
    if len(sql) > MOST_CHARACTERS:
        raise _too_long(sql, f"{MOST_CHARACTERS:,} characters")
    tokens = _tokens_of(parser, source)
    if names.dialect.name == "spark":
        tokens = _with_doubled_quotes(tokens, sql)
    if names.dialect.name in ("duckdb", "spark"):
        tokens, lists = long_lists(tokens)
        source.add(lists)
    if len(tokens) > MOST_TOKENS:
        raise _too_long(sql, _TOKENS)
    return keywords_as_columns(tokens, names)


def _tokens_of(parser: sqlglot.Dialect, source: SourceText) -> list[Token]:
    if has_more_tokens(source.text, MOST_TOKENS + MOST_TOKENS // 8):  # the tokenizer needs a microsecond for each
        raise _too_long(source.text, _TOKENS)
    text = source.text
    has_tags = "$" in text and bool(parser.tokenizer_class.HEREDOC_STRINGS)
    try:
        # sqlglot takes "$a,$" for the tag of a string in dollars.
        read = (
            _DOLLARS.sub(lambda match: f"?{match['name']}" if match["name"] else match[0], text) if has_tags else text
        )
        return [part for token in parser.tokenize(read) for part in _as_written(token, text)]
    except TokenError as error:
        quote = unclosed_quote(source.text)
        message = "something in it is not closed" if quote is None else "a quote is never closed"
        span = None if quote is None else (quote, len(source.text))
        message = f"The predicate does not parse: {message}.{curly_quotes(text)}"
        raise SqlSyntaxError(message, source.text, span) from error


_DOLLARS = re.compile(
    r"""[eE]'(?:\\.|[^'])*' | '[^']*' | "[^"]*" | --[^\n]* | /\*.*?\*/
    | \$(?P<tag>[^\W\d]\w*|)\$.*?\$(?P=tag)\$ | \$(?P<name>\w+)""",
    re.DOTALL | re.VERBOSE,
)
"""Strings, quoted names, comments, and parameters, by their names, where strings may have tags and no backslashes."""


def _as_written(token: Token, text: str) -> Sequence[Token]:
    """A token as the text has it: ``$`` where sqlglot has read ``?`` in its place, and ``?::`` as a cast of ``?``."""
    line, column, start = token.line, token.col, token.start
    if token.token_type is TokenType.QDCOLON:
        return (
            Token(TokenType.PLACEHOLDER, "?", line, column - 2, start, start),
            Token(TokenType.DCOLON, "::", line, column, start + 1, token.end, token.comments),
        )
    if token.text == "?" and text[start] == "$":
        return (Token(TokenType.PARAMETER, "$", line, column, start, token.end, token.comments),)
    return (token,)


_TOKENS = f"{MOST_TOKENS:,} words, signs and constants"


def _too_long(sql: str, limit: str) -> UnsupportedSql:
    message = f"This predicate is too long to be read: more than {limit}"
    return UnsupportedSql(f"{message}. Give many values as one list: IN $list, params={{'list': […]}}.", sql)


def _with_doubled_quotes(tokens: Sequence[Token], sql: str) -> list[Token]:
    """The tokens with ``'it''s'`` as one string, as Spark reads it since 4.0; sqlglot reads two."""
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        strings = last is not None and last.token_type is token.token_type is TokenType.STRING
        if last is not None and strings and last.end + 1 == token.start and sql[last.end] == sql[token.start]:
            text = last.text + sql[token.start] + token.text
            joined[-1] = Token(TokenType.STRING, text, token.line, token.col, last.start, token.end, token.comments)
        else:
            joined.append(token)
    return joined


class _PredicateBuilder:
    """Builds the predicate of one text from its skeleton. ``leaves``: the number of conditions that were bound."""

    def __init__(self, names: Names, tokens: list[Token], parser: sqlglot.Dialect) -> None:
        self.source, self.tokens, self.schema, self.dialect = names.source, tokens, names.schema, names.dialect
        self.parser = parser.parser()
        self.binder = Binder(names)
        self.leaves = 0

    def predicate(self, part: Part) -> Predicate:
        """The predicate of a part of the skeleton, with a predicate for each of its conjuncts."""
        if part.kind == "and" and len(part.parts) <= _MAX_CONJUNCTS:
            parts = tuple(each for inner in part.parts for each in self.predicate(inner).conjuncts)
            node = tree.and_([each.tree for each in parts])
        else:
            parts = ()
            node = self._node(part)
        return Predicate(self._text(part), self._template(part), node, self.schema, self.dialect, parts)

    def _node(self, part: Part) -> Node:
        match part.kind:
            case "and" | "or":
                combine = tree.and_ if part.kind == "and" else tree.or_
                return combine(list(self._nodes(part.parts)))
            case "not":
                return tree.not_(self._node(part.parts[0]))
        self.leaves += 1
        parsed = self._parse(part)
        tokens = self.tokens[part.start : part.end]
        if len(tokens) > _MAX_LEAF_TOKENS:
            costly = sum(each.token_type not in _CHEAP_TOKENS for each in tokens)
            if costly > _MAX_LEAF_TOKENS:
                return opaque(self.binder, parsed, f"an expression of more than {_MAX_LEAF_TOKENS:,} words and signs")
        found = self.binder.leaf(parsed, lambda: self._bound_text(part))
        self.leaves += 2 * tree.has_call_or_opaque(found) + 2 * (tree.size(found) // _NODES)
        return found

    def _nodes(self, parts: Sequence[Part]) -> Iterator[Node]:
        """The nodes of the parts of an AND or OR; past `_MAX_LEAVES`, one opaque node for all that are left."""
        for index, part in enumerate(parts):
            if self.leaves >= _MAX_LEAVES and index:
                yield self._opaque(parts[index:])
                return
            yield self._node(part)

    def _opaque(self, parts: Sequence[Part]) -> Node:
        """One opaque node for neighbouring parts."""
        paths = {path for part in parts for path in opaque(self.binder, self._parse(part), "").paths}
        run = Part("leaf", parts[0].start, parts[-1].end)
        return Opaque(
            self._bound_text(run),
            tuple(sorted(paths)),
            Why(f"more than {_MAX_LEAVES:,} conditions, of which those with functions count three times"),
        )

    def _parse(self, part: Part) -> exp.Expr:
        """Parses a leaf. Raises `SqlSyntaxError`, or `UnsupportedSql` if it is too long or not a condition."""
        tokens = self.tokens[part.start : part.end]
        try:
            statements: list[Any] = self.parser.parse(tokens, self.source.text)
        except _PARSER_FAILURES as error:
            message = "The predicate does not parse: something is missing, or in the wrong place."
            raise SqlSyntaxError(message, self.source.text, self._span(part)) from error
        except ParseError as error:
            detail = error.errors[0] if error.errors else {}
            raise SqlSyntaxError(
                f"The predicate does not parse: {parse_error_text(detail)}.{self._hint()}",
                self.source.text,
                self._error_span(detail, tokens),
            ) from error
        statement = statements[0] if len(statements) == 1 else None
        if statement is None:
            message = "There is more than one statement: give one condition, and join two by AND or OR."
            raise SqlSyntaxError(message, self.source.text, self._span(part))
        if isinstance(statement, exp.Query) and len(tokens) == len(self.tokens):
            message = (
                "This is a whole query and not a condition on rows: "
                "give the condition of its WHERE, or run the query by itself, without a path before it, "
                "by zskip.sql() or in a shell by zskip query."
            )
            raise UnsupportedSql(message, self.source.text, self._span(part))
        if not isinstance(statement, exp.Condition | exp.Query | exp.Tuple):
            message = "This is a statement or a named expression, and not a condition on rows."
            message += curly_quotes(self.source.text)
            if re.search(r"\d\s+(second|minute|hour|day|week|month|year)s?\b", self.source.text, re.IGNORECASE):
                message += " Spans of time are written as in INTERVAL 7 DAY."
            raise UnsupportedSql(message, self.source.text, self._span(part))
        collations_as_words(statement)
        return statement

    def _hint(self) -> str:
        """What to write instead: a condition without WHERE, or a date or name with the quotes that it needs."""
        if self.tokens[0].token_type == TokenType.WHERE:
            return " Leave out WHERE: give the condition alone."
        if re.search(r"(?<!')\b\d{4}-\d\d?-\d\d?\b", self.source.text):
            return " Dates and times need quotes: '2025-03-01 10:00:00'."
        if re.search(r"\bI?LIKE\s+\w*%", self.source.text, re.IGNORECASE):
            return " Text needs single quotes: LIKE 'DE%'."
        if curly := curly_quotes(self.source.text):
            return curly
        if sign := sign_for_word(self.source.text):
            return f" {sign[0]}"
        if "`" in self.source.text:
            return ' Quote names as in "a b"; dialect="spark" reads backticks.'
        keywords = {token.text.lower() for token in self.tokens if token.token_type not in _NAMES_OR_VALUES}
        parts = {part for column in self.schema for part in column.parts}
        needy = {part for part in parts if not part.isidentifier() or part.lower() in keywords}
        for name in sorted(needy, key=len, reverse=True):
            if re.search(rf'(?<![\w"`]){re.escape(name)}(?![\w"`])', self.source.text, re.IGNORECASE):
                return f" Quote the column's name: {identifier(name)}."
        return ""

    def _error_span(self, detail: Mapping[str, object], tokens: Sequence[Token]) -> tuple[int, int] | None:
        """The range in the user's text of the token at which the parser failed, or of all tokens."""
        for token in tokens:
            if (token.line, token.col) == (detail.get("line"), detail.get("col")):
                return token.start, token.end + 1
        return (tokens[0].start, tokens[-1].end + 1) if tokens else None

    def _span(self, part: Part) -> tuple[int, int]:
        return self.tokens[part.start].start, self.tokens[part.end - 1].end + 1

    def _text(self, part: Part) -> str:
        start, end = self._span(part)
        return self.source.text[start:end]

    def _template(self, part: Part) -> Template:
        return self.binder.names.template(*self._span(part))

    def _bound_text(self, part: Part) -> str:
        return self._template(part).render()
