"""The positions at which a statement names tables in FROM, found in the tokens of DuckDB's tokenizer.

The only names resolved here are those of common table expressions, which hide tables of the same name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

__all__ = ["Place", "Places", "Word", "calls", "edited", "has_pivot", "table_places", "tokens", "unquoted"]

_QUERY_STARTS = {
    "SELECT",
    "FROM",
    "WITH",
    "VALUES",
    "PIVOT",
    "UNPIVOT",
    "DESCRIBE",
    "DESC",
    "SUMMARIZE",
    "SHOW",
    "TABLE",
}
_ABOUT_TABLES = {"SUMMARIZE", "DESCRIBE", "DESC"}
_END_FROM = {
    *("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "QUALIFY", "WINDOW", "SELECT", "SET", "RETURNING"),
    *("UNION", "EXCEPT", "INTERSECT", "VALUES", "WHEN"),
}
_OPENING, _CLOSING = {"(", "[", "{"}, {")", "]", "}"}
_DEFINES = ("CREATE", "PREPARE")  # statements in which AS precedes a query


class Word(NamedTuple):
    """A token: its text, DuckDB's token kind, and its half-open range of characters in the statement."""

    text: str
    kind: str
    start: int
    end: int


class Place(NamedTuple):
    """A table in FROM: its name without quotes, the quotation mark or "", and its range in the text.

    ``aliased``: it has an alias · ``bare``: it directly follows SUMMARIZE or DESCRIBE, as in ``SUMMARIZE 'lake'``.
    """

    name: str
    quote: str
    start: int
    end: int
    aliased: bool
    bare: bool


@dataclass(slots=True)
class Places:
    """The tables that a statement reads, in textual order, and the functions that it calls, in lower case."""

    tables: list[Place] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)


@lru_cache(maxsize=64)
def tokens(statement: str) -> tuple[Word, ...]:
    """The statement's tokens, without comments."""
    import duckdb

    raw = statement.encode()
    ascii = len(raw) == len(statement)
    starts = [(offset, kind.name) for offset, kind in duckdb.tokenize(statement)]
    words: list[Word] = []
    for number, (start, kind) in enumerate(starts):
        end = starts[number + 1][0] if number + 1 < len(starts) else len(raw)
        text = raw[start:end].decode().rstrip()
        if kind != "comment":
            first = start if ascii else len(raw[:start].decode())
            words.append(Word(text, kind, first, first + len(text)))
    return tuple(words)


@dataclass(slots=True)
class _Frame:
    """The state within one pair of parentheses. ``query``: they enclose a query · ``expecting``: a table is next ·
    ``listing``: a table is next after a comma · ``naming``: the next word names a CTE · ``ctes``: the CTEs in scope ·
    ``defines``: the CTE whose query they enclose."""

    query: bool
    expecting: bool = False
    listing: bool = False
    naming: bool = False
    ctes: set[str] = field(default_factory=set)
    defines: str | None = None


@lru_cache(maxsize=64)
def table_places(words: tuple[Word, ...]) -> Places:
    """The tables and functions of one statement."""
    found = Places()
    stack = [_Frame(query=True)]
    verb = words[0].text.upper() if words else ""
    cte: str | None = None
    bare = recursive = False
    for number, word in enumerate(words):
        frame, text, name = stack[-1], word.text.upper(), unquoted(word.text)
        before = words[number - 1].text.upper() if number else ""
        after = words[number + 1].text.upper() if number + 1 < len(words) else ""
        first = number == 0 or before in ("(", ";") or before in ("EXPLAIN", "ANALYZE")
        if text in _OPENING:
            if cte is not None and after in _QUERY_STARTS:
                stack.append(_Frame(query=True, defines=cte, ctes={cte} if recursive else set()))
                cte = None
            else:
                query = text == "(" and (after in _QUERY_STARTS or (frame.expecting and before != "."))
                in_from = query and frame.expecting
                stack.append(_Frame(query, expecting=in_from, listing=in_from))
            frame.expecting = False
        elif text in _CLOSING:
            closed = stack.pop() if len(stack) > 1 else frame
            if closed.defines is not None:
                stack[-1].ctes.add(closed.defines)
                stack[-1].naming = after == ","
        elif text == ",":
            frame.expecting = frame.listing and not frame.naming
        elif frame.naming and word.kind in ("identifier", "keyword") and text != "RECURSIVE":
            cte, frame.naming = name.lower(), False
        elif not frame.query:
            if calls(words, number):
                found.functions.add(name.lower())
        elif text == "WITH" and (first or (frame.query and after not in ("ORDINALITY",))):
            frame.naming, recursive = True, after == "RECURSIVE"
        elif text == "FROM":
            if before != "DISTINCT":  # x IS DISTINCT FROM y, also where more tables follow
                frame.expecting = frame.listing = before != "DELETE"
                bare = False
        elif text == "JOIN" or (text in ("PIVOT", "UNPIVOT") and (first or (before == "AS" and verb in _DEFINES))):
            frame.expecting = True
        elif text == "USING" and verb in ("MERGE", "DELETE"):
            frame.expecting = frame.listing = True
        elif text in _ABOUT_TABLES and first:
            frame.expecting = bare = True
        elif text in _END_FROM:
            frame.expecting = frame.listing = bare = False
        elif frame.expecting and text != "LATERAL":
            if after == "(" and word.kind != "string_const":  # COPY t FROM 'file' (FORMAT parquet) calls nothing
                found.functions.add(name.lower())
            elif after == ":" or text == ":":
                continue  # FROM alias : table
            elif _can_be_table(word, before, after) and not any(name.lower() in one.ctes for one in stack):
                found.tables.append(_place(words, number, bare))
            frame.expecting = bare = False
        elif calls(words, number):
            found.functions.add(name.lower())
    return found


def has_pivot(words: Sequence[Word]) -> bool:
    """Whether a statement may contain a PIVOT whose columns depend on rows.

    DuckDB runs a part of such a PIVOT to plan it. Over empty tables that may fail, and abort the open transaction.
    """
    return any(word.text.upper() == "PIVOT" for word in words)


def _can_be_table(word: Word, before: str, after: str) -> bool:
    """Whether a word in FROM, with these neighbours, can be an unqualified name of a table."""
    return word.kind in ("identifier", "string_const", "keyword") and "." not in (before, after)


def _place(words: Sequence[Word], number: int, bare: bool) -> Place:
    word = words[number]
    quote = word.text[0] if word.text[0] in "'\"" else ""
    follows_alias = number > 0 and words[number - 1].text == ":"  # FROM alias : table
    aliased = follows_alias or any(map(_is_alias, words[number + 1 : number + 2]))
    return Place(unquoted(word.text), quote, word.start, word.end, aliased, bare)


def calls(words: Sequence[Word], number: int) -> bool:
    """Whether a word is the name of a called function, and not an alias with a list of columns."""
    followed = number + 1 < len(words) and words[number + 1].text == "("
    if not followed or words[number].kind not in ("identifier", "keyword"):
        return False
    before = words[number - 1] if number else None
    return before is None or not (before.kind in ("identifier", "string_const") or before.text.upper() in (")", "AS"))


def unquoted(text: str) -> str:
    """A name as it stands in the text, without its quotes."""
    quote = text[:1]
    return text[1:-1].replace(quote * 2, quote) if quote in ("'", '"') else text


def _is_alias(word: Word) -> bool:
    """Whether the word after a table begins its alias according to DuckDB's grammar."""
    if word.kind == "keyword":
        return word.text.upper() == "AS" or word.text.lower() in _alias_keywords()
    return word.kind in ("identifier", "string_const")


@lru_cache(maxsize=1)
def _alias_keywords() -> Collection[str]:
    """The keywords of DuckDB's grammar that can be a table's alias without AS."""
    import duckdb

    with duckdb.connect() as con:
        rows = con.execute(
            "SELECT keyword_name FROM duckdb_keywords() GROUP BY ALL "
            "HAVING bool_and(keyword_category IN ('unreserved', 'column_name'))"
        ).fetchall()
    return frozenset(name for (name,) in rows)


def edited(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """The text with the ranges in ``edits``, each ``(start, end, replacement)``, replaced."""
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text
