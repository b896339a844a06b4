"""`bind`: binds SQL text to a schema, as a `Predicate`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from zskip.binder import bind_cache, chains
from zskip.binder.bind_constants import bind_constants, reads_clock
from zskip.binder.leaf_binder import Binder
from zskip.binder.lists import SHORTEST, listed_constants, lists_are_intact, without_long_lists
from zskip.binder.names import Names, RecordedName
from zskip.binder.parser_quirks import collations_as_words, keywords_as_columns, without_parser_warnings
from zskip.binder.refusals import opaque
from zskip.binder.split import Part, nesting, parses_exponentially, skeleton
from zskip.binder.sql_text import Parameters, SourceText, is_unicode, require_parameters
from zskip.binder.text_spans import has_more_tokens, parse_error_text, unclosed_quote
from zskip.core.schema import Schema
from zskip.errors import InvalidOption, SqlSyntaxError, UnsupportedSql
from zskip.language import tree
from zskip.language.bound import Dialect, Predicate
from zskip.language.recursion import MAX_DEPTH, TOO_DEEP, syntax_error_if_too_deep
from zskip.language.sql_literals import identifier
from zskip.language.tree import Node, Opaque
from zskip.language.why import Why

__all__ = ["bind"]

MOST_CHARACTERS, MOST_TOKENS, MOST_COSTLY, MOST_PARSED = 2_000_000, 25_000, 20_000, 10_000
"""Limits of a predicate, not counting lists of constants: characters; tokens; tokens of conditions other than a column
compared with constants, which need the parser; and tokens that are parsed, where conditions that differ only in their
constants are parsed once. A predicate of this size is planned in less than half a second."""

_PLAIN_SHARE = MOST_TOKENS / MOST_COSTLY
"""How many times faster a column compared with constants is bound than other conditions of as many tokens."""

_MAX_LEAVES = 300
"""Parsed conditions that are bound one by one; further ones of an AND or OR are opaque."""

_MAX_LEAF_TOKENS = 5_000
"""Tokens of a single condition, not counting constants, commas and parentheses; a longer one is opaque."""

_CONSTANTS = {TokenType.NUMBER, TokenType.STRING}
_CHEAP_TOKENS = _CONSTANTS | {TokenType.COMMA, TokenType.L_PAREN, TokenType.R_PAREN}

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
    if not is_unicode(sql):
        raise SqlSyntaxError("The predicate contains half of a surrogate pair, not a character.", ascii(sql)[1:-1])
    require_parameters(params)
    settings = Dialect(dialect, _zone(timezone), ansi)
    key = bind_cache.key(sql, settings, schema, params, case_sensitive)
    cached = bind_cache.find(key, schema)
    if cached is not None:
        return cached
    parser, original = _parser(dialect), SourceText(sql, sql)
    names = Names(schema, settings, original, case_sensitive)
    source, tokens = _tokens_without_lists(original, parser, names)
    bound = bind_constants(source, tokens, dialect, params, now, settings.timezone)
    if not bound.holds_each_list_once():
        # The value of a parameter contains a number that stands for a list.
        bound = bind_constants(original, _tokens(parser, original, names), dialect, params, now, settings.timezone)
    if bound is not source:
        source, tokens = _tokens_without_lists(bound, parser, names)
    if not tokens:
        raise SqlSyntaxError("The predicate is empty.", sql)
    builder = _PredicateBuilder(source, tokens, parser, schema, settings, case_sensitive)
    if nesting(tokens) > MAX_DEPTH or parses_exponentially(tokens):
        raise SqlSyntaxError(TOO_DEEP, sql)
    with syntax_error_if_too_deep(sql):
        predicate = builder.predicate(skeleton(tokens))
    if predicate.depth > MAX_DEPTH:  # a chain of operators nests too
        raise SqlSyntaxError(TOO_DEEP, sql)
    if not reads_clock(original.text, dialect):
        bind_cache.keep(key, predicate)
    return predicate


def _parser(dialect: str) -> sqlglot.Dialect:
    try:
        return sqlglot.Dialect.get_or_raise(dialect)
    except ValueError as error:
        raise InvalidOption(f'There is no dialect "{dialect}".') from error


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise InvalidOption(f"There is no time zone {name!r}.") from error
    return name


def _tokens_without_lists(source: SourceText, parser: sqlglot.Dialect, names: Names) -> tuple[SourceText, list[Token]]:
    """The text with a number in place of each long list or chain, and its tokens."""
    short = source
    if len(source.text) >= SHORTEST:
        short = without_long_lists(chains.chains_as_lists(source, names), names.dialect.name)
    tokens = _tokens(parser, short, names)
    if short is not source and not lists_are_intact(tokens, short):
        return source, _tokens(parser, source, names)
    return short, tokens


def _tokens(parser: sqlglot.Dialect, source: SourceText, names: Names) -> list[Token]:
    """The tokens of a text. Raises `SqlSyntaxError`, and `UnsupportedSql` if there are too many."""
    sql = source.text
    if len(sql) > MOST_CHARACTERS:
        raise _too_long(source.original, f"{MOST_CHARACTERS:,} characters")
    if has_more_tokens(sql, MOST_TOKENS + MOST_TOKENS // 8):  # the tokenizer needs a microsecond for each
        raise _too_long(source.original, _TOKENS)
    try:
        tokens = parser.tokenize(sql)
    except TokenError as error:
        quote = unclosed_quote(sql)
        message = "something in it is not closed" if quote is None else "a quote is never closed"
        span = None if quote is None else source.span(quote, len(sql))
        raise SqlSyntaxError(f"The predicate does not parse: {message}.", source.original, span) from error
    if len(tokens) - listed_constants(tokens) > MOST_TOKENS:
        raise _too_long(source.original, _TOKENS)
    return keywords_as_columns(_with_doubled_quotes(tokens, sql) if names.dialect.name == "spark" else tokens, names)


_TOKENS = f"{MOST_TOKENS:,} words, signs and constants"
_PARSED = "in conditions that are more than a column compared with constants"


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
    """Builds the predicate of one text from its skeleton.

    ``cost``: the tokens of conditions so far, by which the binding time is limited · ``parsed``, ``leaves``: the tokens
    and conditions that the parser has read · ``forms``: for each form of a condition that is left to the engine, the
    columns that it reads and the names in it
    """

    def __init__(
        self,
        source: SourceText,
        tokens: list[Token],
        parser: sqlglot.Dialect,
        schema: Schema,
        dialect: Dialect,
        case_sensitive: bool,
    ) -> None:
        self.source, self.tokens, self.parser, self.schema, self.dialect = source, tokens, parser, schema, dialect
        self.binder = Binder(schema, dialect, source, case_sensitive)
        self.parsed = self.leaves = 0
        self.cost = 0.0
        self.forms: dict[tuple[tuple[TokenType, bool | str], ...], tuple[Sequence[str], Sequence[RecordedName]]] = {}

    def predicate(self, part: Part) -> Predicate:
        """The predicate of a part of the skeleton, with a predicate for each of its conjuncts."""
        if part.kind == "and" and len(part.parts) <= _MAX_CONJUNCTS:
            parts = tuple(each for inner in part.parts for each in self.predicate(inner).conjuncts)
            node = tree.and_([each.tree for each in parts])
        else:
            parts = ()
            node = self._node(part)
        return Predicate(self._text(part), self._bound_text(part), node, self.schema, self.dialect, parts)

    def _node(self, part: Part) -> Node:
        match part.kind:
            case "and" | "or":
                combine = tree.and_ if part.kind == "and" else tree.or_
                return combine(list(self._nodes(part.parts)))
            case "not":
                return tree.not_(self._node(part.parts[0]))
        plain = self._plain(part)
        if plain is not None:
            return plain
        self._spend(self._token_count(part))
        self.leaves += 1
        parsed = self._parse(part)
        tokens = self.tokens[part.start : part.end]
        costly = sum(each.token_type not in _CHEAP_TOKENS for each in tokens)
        if min(len(tokens) - listed_constants(tokens), costly) > _MAX_LEAF_TOKENS:
            return opaque(self.binder, parsed, f"an expression of more than {_MAX_LEAF_TOKENS:,} words and signs")
        return self.binder.leaf(parsed, lambda: self._bound_text(part))

    def _plain(self, part: Part) -> Node | None:
        """The node of a leaf that needs no parser; None for any other part."""
        node = self.binder.plain(self.tokens[part.start : part.end]) if part.kind == "leaf" else None
        if node is not None:
            self._spend((part.end - part.start) / _PLAIN_SHARE)
        return node

    def _spend(self, tokens: float) -> None:
        """Adds to the cost. Raises `UnsupportedSql` past its limit."""
        self.cost += tokens
        if self.cost > MOST_COSTLY:
            raise _too_long(self.source.original, f"{MOST_COSTLY:,} words, signs and constants {_PARSED}")

    def _token_count(self, part: Part) -> int:
        """The number of tokens of a part, not counting lists of constants."""
        return part.end - part.start - listed_constants(self.tokens[part.start : part.end])

    def _nodes(self, parts: Sequence[Part]) -> Iterator[Node]:
        """The nodes of the parts of an AND or OR; past `_MAX_LEAVES`, one opaque node for each run of parts that need
        the parser."""
        skipped: list[Part] = []
        for part in parts:
            node = self._plain(part)
            if node is None and self.leaves >= _MAX_LEAVES:
                self._spend(self._token_count(part))
                skipped.append(part)
                continue
            if skipped:
                yield self._opaque_run(skipped)
                skipped = []
            yield node or self._node(part)
        if skipped:
            yield self._opaque_run(skipped)

    def _opaque_run(self, parts: Sequence[Part]) -> Node:
        """One opaque node for neighbouring parts. Of parts that differ only in their constants, the first is parsed."""
        paths: set[str] = set()
        for part in parts:
            tokens = self.tokens[part.start : part.end]
            form = tuple([(each.token_type, each.token_type in _CONSTANTS or each.text) for each in tokens])
            known = self.forms.get(form)
            if known is None:
                paths_of_part = opaque(self.binder, self._parse(part), "").paths
                known = self.forms[form] = (paths_of_part, self.binder.names.recorded(tokens))
            self.binder.names.record_again(tokens, known[1])
            paths.update(known[0])
        run = Part("leaf", parts[0].start, parts[-1].end)
        reason = Why(f"more than {_MAX_LEAVES:,} conditions")
        return Opaque(self._bound_text(run), tuple(sorted(paths)), reason)

    def _parse(self, part: Part) -> exp.Expr:
        """Parses a leaf. Raises `SqlSyntaxError`, or `UnsupportedSql` if it is too long or not a condition."""
        tokens = self.tokens[part.start : part.end]
        self.parsed += len(tokens) - listed_constants(tokens)
        if self.parsed > MOST_PARSED:
            raise _too_long(self.source.original, f"{MOST_PARSED:,} words, signs and constants {_PARSED}")
        try:
            with without_parser_warnings():
                statements: list[Any] = self.parser.parser().parse(tokens, self.source.text)
        except _PARSER_FAILURES as error:
            message = "The predicate does not parse: something is missing, or in the wrong place."
            raise SqlSyntaxError(message, self.source.original, self._span(part)) from error
        except ParseError as error:
            detail = error.errors[0] if error.errors else {}
            raise SqlSyntaxError(
                f"The predicate does not parse: {parse_error_text(detail)}.{self._quoting_hint()}",
                self.source.original,
                self._error_span(detail, tokens),
            ) from error
        statement = statements[0] if len(statements) == 1 else None
        if statement is None:
            raise SqlSyntaxError("There is more than one statement.", self.source.original, self._span(part))
        if isinstance(statement, exp.Query) and len(tokens) == len(self.tokens):
            message = (
                "This is a whole query and not a condition on rows: "
                "give the condition of its WHERE, or run the query by itself, without a path before it, "
                "by zskip.sql() or in a shell by zskip query."
            )
            raise UnsupportedSql(message, self.source.original, self._span(part))
        if not isinstance(statement, exp.Condition | exp.Query | exp.Tuple):
            message = "This is a statement or a named expression, and not a condition on rows."
            raise UnsupportedSql(message, self.source.original, self._span(part))
        collations_as_words(statement)
        return statement

    def _quoting_hint(self) -> str:
        """Which column's name stands in the text without the quotes that it needs."""
        needy = {part for column in self.schema for part in column.parts if not part.isidentifier()}
        for name in sorted(needy, key=len, reverse=True):
            if re.search(rf'(?<![\w"`]){re.escape(name)}(?![\w"`])', self.source.original, re.IGNORECASE):
                return f" Quote the column's name: {identifier(name)}."
        return ""

    def _error_span(self, detail: Mapping[str, object], tokens: Sequence[Token]) -> tuple[int, int] | None:
        """The range in the user's text of the token at which the parser failed, or of all tokens."""
        for token in tokens:
            if (token.line, token.col) == (detail.get("line"), detail.get("col")):
                return self.source.span(token.start, token.end + 1)
        return self.source.span(tokens[0].start, tokens[-1].end + 1) if tokens else None

    def _span(self, part: Part) -> tuple[int, int]:
        return self.source.span(self.tokens[part.start].start, self.tokens[part.end - 1].end + 1)

    def _text(self, part: Part) -> str:
        start, end = self._span(part)
        return self.source.original[start:end]

    def _bound_text(self, part: Part) -> str:
        start, end = self.tokens[part.start].start, self.tokens[part.end - 1].end + 1
        return self.binder.names.with_exact_names(start, end)
