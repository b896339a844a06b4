"""`bind`: from SQL text and a schema to a `Predicate`."""

from __future__ import annotations

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
from zskip.binder.lists import SHORTEST, listed_constants, shortened, stands_for_lists
from zskip.binder.names import Names, RecordedName
from zskip.binder.parser_quirks import keywords_as_columns, without_parser_warnings
from zskip.binder.refusals import opaque
from zskip.binder.split import Part, nesting, parses_exponentially, skeleton
from zskip.binder.sql_text import Parameters, SourceText, is_unicode, require_parameters
from zskip.binder.text_spans import has_more_tokens, parse_error_text, unclosed_quote
from zskip.errors import InvalidOption, SqlSyntaxError, UnsupportedSql
from zskip.expr import tree
from zskip.expr.bound import Dialect, Predicate
from zskip.expr.recursion import MAX_DEPTH, TOO_DEEP, syntax_error_if_too_deep
from zskip.expr.tree import Node, Opaque
from zskip.expr.why import Why
from zskip.schema import Schema

__all__ = ["bind"]

MOST_CHARACTERS, MOST_TOKENS, MOST_COSTLY, MOST_PARSED = 2_000_000, 60_000, 20_000, 10_000
"""What a predicate may hold beside lists of constants: characters, tokens (words, signs and constants), and of these
the ones of conditions that are more than a column beside constants, for which the parser is needed; of those again the
ones that it reads, since conditions that differ in their constants alone are read once. A predicate of that size is
planned in about half a second."""

_PLAIN_SHARE = MOST_TOKENS // MOST_COSTLY
"""A column beside constants is bound in so much less time than other conditions of as many tokens."""

_MOST_LEAVES = 300
"""Conditions that are bound one by one after the parser has read them; the others in a chain are left to the engine."""

_MOST_WORDS = 5_000
"""Words and signs of one condition that is bound; a longer one is left to the engine."""

_CONSTANTS = {TokenType.NUMBER, TokenType.STRING}
_READ_QUICKLY = _CONSTANTS | {TokenType.COMMA, TokenType.L_PAREN, TokenType.R_PAREN}

_PARSERS_OWN = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What the parser raises of some wrong texts beside its own errors: MAP(1) in Spark's dialect, a::DECIMAL(x)."""

_MOST_CONJUNCTS = 1000
"""Parts of an AND that are predicates of their own, proved and left out one by one; more of them are one."""


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
    """The meaning of a predicate for the columns of a schema.

    ``dialect`` is sqlglot's name; ``timezone`` the session's zone, an IANA name; ``params`` the values of ``?`` and
    ``$1`` (a sequence) or of ``$name`` and ``:name`` (a mapping); ``now`` what now() and current_date read, the
    clock by default; ``ansi`` Spark's ANSI mode.

    Raises `SqlSyntaxError`, `UnknownColumn`, `IncomparableTypes`, `UnknownParameter`, `UnsupportedSql`, each
    pointing at its place; `InvalidOption` for an unknown dialect or time zone. What is valid but cannot be proved
    from statistics does not raise: it keeps everything, and `zskip.pruning.reasons` says why.

    >>> import pyarrow as pa
    >>> bind("a > 5 AND b LIKE 'x%'", Schema(pa.schema({"a": pa.int32(), "b": pa.string()}))).columns == {"a", "b"}
    True
    """
    if not isinstance(sql, str):
        raise InvalidOption(f"A predicate is a text in SQL, not {sql!r}.")
    if not is_unicode(sql):
        raise SqlSyntaxError("The predicate holds half of a surrogate pair, which is no character.", ascii(sql)[1:-1])
    require_parameters(params)
    settings = Dialect(dialect, _zone(timezone), ansi)
    key = bind_cache.key(sql, settings, schema, params, case_sensitive)
    known = bind_cache.find(key, schema)
    if known is not None:
        return known
    try:
        parser = sqlglot.Dialect.get_or_raise(dialect)
    except ValueError as error:
        raise InvalidOption(f'There is no dialect "{dialect}".') from error
    whole = SourceText(sql, sql)
    names = Names(schema, settings, whole, case_sensitive)
    source, tokens = _read(whole, parser, names)
    frozen = bind_constants(source, tokens, dialect, params, now, settings.timezone)
    if not frozen.holds_each_list_once():
        # A parameter holds the very number that stands for a list.
        frozen = bind_constants(whole, _tokens(parser, whole, names), dialect, params, now, settings.timezone)
    if frozen is not source:
        source, tokens = _read(frozen, parser, names)
    if not tokens:
        raise SqlSyntaxError("The predicate is empty.", sql)
    binding = _Binding(source, tokens, parser, schema, settings, case_sensitive)
    if nesting(tokens) > MAX_DEPTH or parses_exponentially(tokens):
        raise SqlSyntaxError(TOO_DEEP, sql)
    with syntax_error_if_too_deep(sql):
        found = binding.predicate(skeleton(tokens))
    if found.depth > MAX_DEPTH:  # a chain of operators nests too
        raise SqlSyntaxError(TOO_DEEP, sql)
    if not reads_clock(whole.text, dialect):
        bind_cache.keep(key, found)
    return found


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise InvalidOption(f"There is no time zone {name!r}.") from error
    return name


def _read(source: SourceText, parser: sqlglot.Dialect, names: Names) -> tuple[SourceText, list[Token]]:
    """The text with its long lists taken out, and its tokens."""
    short = source
    if len(source.text) >= SHORTEST:
        short = shortened(chains.joined(source, names), names.dialect.name)
    tokens = _tokens(parser, short, names)
    if short is not source and not stands_for_lists(tokens, short):
        return source, _tokens(parser, source, names)
    return short, tokens


def _tokens(parser: sqlglot.Dialect, source: SourceText, names: Names) -> list[Token]:
    sql = source.text
    if len(sql) > MOST_CHARACTERS:
        raise _too_long(source.original, f"{MOST_CHARACTERS:,} characters")
    if has_more_tokens(sql, MOST_TOKENS + MOST_TOKENS // 8):  # the tokenizer needs a microsecond for each
        raise _too_long(source.original, _WORDS)
    try:
        tokens = parser.tokenize(sql)
    except TokenError as error:
        at = unclosed_quote(sql)
        what = "something in it is not closed" if at is None else "a quote is never closed"
        span = None if at is None else source.span(at, len(sql))
        raise SqlSyntaxError(f"The predicate does not parse: {what}.", source.original, span) from error
    if len(tokens) - listed_constants(tokens) > MOST_TOKENS:
        raise _too_long(source.original, _WORDS)
    return keywords_as_columns(_joined(tokens, sql) if names.dialect.name == "spark" else tokens, names)


_WORDS = f"{MOST_TOKENS:,} words, signs and constants"
_WHERE = "in conditions that are more than a column beside constants"


def _too_long(sql: str, limit: str) -> UnsupportedSql:
    what = f"This predicate is too long to be read: more than {limit}"
    return UnsupportedSql(f"{what}. Give many values as one list: IN $list, params={{'list': […]}}.", sql)


def _joined(tokens: Sequence[Token], sql: str) -> list[Token]:
    """With ``'it''s'`` as one text that holds a quote, as Spark reads it since 4.0 (sqlglot: two texts)."""
    found: list[Token] = []
    for token in tokens:
        last = found[-1] if found else None
        texts = last is not None and last.token_type is token.token_type is TokenType.STRING
        if last is not None and texts and last.end + 1 == token.start and sql[last.end] == sql[token.start]:
            text = last.text + sql[token.start] + token.text
            found[-1] = Token(TokenType.STRING, text, token.line, token.col, last.start, token.end, token.comments)
        else:
            found.append(token)
    return found


class _Binding:
    """One call of `bind`."""

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
        """The predicate of a part of the skeleton; its conjuncts are predicates of their own."""
        if part.kind == "and" and len(part.parts) <= _MOST_CONJUNCTS:
            parts = tuple(each for inner in part.parts for each in self.predicate(inner).conjuncts)
            node = tree.and_([each.tree for each in parts])
        else:
            parts = ()
            node = self._node(part)
        return Predicate(self._text(part), self._frozen(part), node, self.schema, self.dialect, parts)

    def _node(self, part: Part) -> Node:
        match part.kind:
            case "and" | "or":
                joined = tree.and_ if part.kind == "and" else tree.or_
                return joined(list(self._nodes(part.parts)))
            case "not":
                return tree.not_(self._node(part.parts[0]))
        plain = self._plain(part)
        if plain is not None:
            return plain
        self._spend(self._words(part))
        self.leaves += 1
        parsed = self._parse(part)
        tokens = self.tokens[part.start : part.end]
        words = sum(each.token_type not in _READ_QUICKLY for each in tokens)
        if min(len(tokens) - listed_constants(tokens), words) > _MOST_WORDS:
            return opaque(self.binder, parsed, f"an expression of more than {_MOST_WORDS:,} words and signs")
        return self.binder.leaf(parsed, lambda: self._frozen(part))

    def _plain(self, part: Part) -> Node | None:
        found = self.binder.plain(self.tokens[part.start : part.end]) if part.kind == "leaf" else None
        if found is not None:
            self._spend((part.end - part.start) / _PLAIN_SHARE)
        return found

    def _spend(self, tokens: float) -> None:
        self.cost += tokens
        if self.cost > MOST_COSTLY:
            raise _too_long(self.source.original, f"{MOST_COSTLY:,} words, signs and constants {_WHERE}")

    def _words(self, part: Part) -> int:
        """The tokens of a part, beside lists of constants."""
        return part.end - part.start - listed_constants(self.tokens[part.start : part.end])

    def _nodes(self, parts: Sequence[Part]) -> Iterator[Node]:
        """The nodes of parts side by side; past `_MOST_LEAVES`, one for all neighbours that the parser has to read."""
        unread: list[Part] = []
        for part in parts:
            node = self._plain(part)
            if node is None and self.leaves >= _MOST_LEAVES:
                self._spend(self._words(part))
                unread.append(part)
                continue
            if unread:
                yield self._unread(unread)
                unread = []
            yield node or self._node(part)
        if unread:
            yield self._unread(unread)

    def _unread(self, parts: Sequence[Part]) -> Node:
        """What is left to the engine. Of conditions that differ in nothing but their constants, the first is parsed."""
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
        whole = Part("leaf", parts[0].start, parts[-1].end)
        reason = Why(f"more than {_MOST_LEAVES:,} conditions")
        return Opaque(self._frozen(whole), tuple(sorted(paths)), reason)

    def _parse(self, part: Part) -> exp.Expr:
        tokens = self.tokens[part.start : part.end]
        self.parsed += len(tokens) - listed_constants(tokens)
        if self.parsed > MOST_PARSED:
            raise _too_long(self.source.original, f"{MOST_PARSED:,} words, signs and constants {_WHERE}")
        try:
            with without_parser_warnings():
                found: list[Any] = self.parser.parser().parse(tokens, self.source.text)
        except _PARSERS_OWN as error:
            what = "The predicate does not parse: something is missing, or stands in a wrong place."
            raise SqlSyntaxError(what, self.source.original, self._span(part)) from error
        except ParseError as error:
            detail = error.errors[0] if error.errors else {}
            raise SqlSyntaxError(
                f"The predicate does not parse: {parse_error_text(detail)}.",
                self.source.original,
                self._place(detail, tokens),
            ) from error
        statement = found[0] if len(found) == 1 else None
        if statement is None:
            raise SqlSyntaxError("There is more than one statement.", self.source.original, self._span(part))
        if isinstance(statement, exp.Query) and len(tokens) == len(self.tokens):
            what = (
                "This is a whole query, where a condition on rows is wanted: "
                "give what stands behind its WHERE, or run the query by zskip.sql()."
            )
            raise UnsupportedSql(what, self.source.original, self._span(part))
        if not isinstance(statement, exp.Condition | exp.Query | exp.Tuple):
            what = "This is a statement, or a named expression, and no condition on rows."
            raise UnsupportedSql(what, self.source.original, self._span(part))
        return statement

    def _place(self, detail: Mapping[str, object], tokens: Sequence[Token]) -> tuple[int, int] | None:
        for token in tokens:
            if (token.line, token.col) == (detail.get("line"), detail.get("col")):
                return self.source.span(token.start, token.end + 1)
        return self.source.span(tokens[0].start, tokens[-1].end + 1) if tokens else None

    def _span(self, part: Part) -> tuple[int, int]:
        return self.source.span(self.tokens[part.start].start, self.tokens[part.end - 1].end + 1)

    def _text(self, part: Part) -> str:
        start, end = self._span(part)
        return self.source.original[start:end]

    def _frozen(self, part: Part) -> str:
        start, end = self.tokens[part.start].start, self.tokens[part.end - 1].end + 1
        return self.binder.names.with_exact_names(start, end)
