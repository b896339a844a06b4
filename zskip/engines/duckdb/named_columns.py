"""Statements whose meaning depends on no column that their text does not name.

DuckDB's binder pays for each column of a table, so a stub leaves out those that cannot matter. Names are not resolved
here: a column whose name occurs anywhere in the text is kept in every table that has it. What can reach other columns:

| reaches columns without their names        | example                                            |
| ------------------------------------------ | -------------------------------------------------- |
| stars                                      | ``*``, ``t.*``, ``COLUMNS('a.*')``, ``FROM t``     |
| positions                                  | ``t AS x(a, b)``, ``WITH e(a) AS``, ``#1``         |
| all names at once                          | ``NATURAL JOIN``, ``UNION BY NAME``, ``PIVOT``     |
| a row as a value                           | ``SELECT c FROM t c``, ``c.typeof()``              |

A macro does not: DuckDB refuses one whose body has a star or a name that is not its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from zskip.engines.duckdb.survivor_reads import default_alias
from zskip.engines.duckdb.table_places import Word, calls, table_places, tokens, unquoted

__all__ = ["named_columns", "names_its_columns"]

# Keywords after which columns are reached by their names alone; an unknown one may have another meaning.
_KEYWORDS = frozenset(
    """
    ALL AND ANTI ANY AS ASC BETWEEN BY CASE CAST COALESCE COLLATE CROSS DESC DISTINCT ELSE END EXCEPT EXISTS EXTRACT
    FALSE FILTER FIRST FOR FROM FULL GROUP HAVING ILIKE IN INNER INTERSECT INTERVAL IS ISNULL JOIN LAST LEFT LIKE LIMIT
    NOT NOTNULL NULL NULLIF NULLS OFFSET ON OR ORDER OUTER OVER PARTITION QUALIFY RIGHT SELECT SEMI SIMILAR SUBSTRING
    THEN TIMESTAMP TO TRIM TRUE TRY_CAST UNION USING WHEN WHERE WITH
    """.split()  # noqa: SIM905  # a list takes a line for each word
)
# Keywords that are names of columns, types and parts of dates too.
_NAMES = frozenset(
    """
    BIGINT BOOLEAN CHAR DATE DAY DAYS DECIMAL DOUBLE FLOAT HOUR HOURS INT INTEGER KEY MINUTE MINUTES MONTH MONTHS NAME
    NUMERIC QUARTER REAL SECOND SECONDS SMALLINT TIME TYPE VALUE VARCHAR WEEK WEEKS YEAR YEARS
    """.split()  # noqa: SIM905
)
_OPERATORS = frozenset(
    "= == <> != < <= > >= + - * / // % || :: ( ) , . ? $ ;".split()  # noqa: SIM905
)
_BEFORE_TABLES = frozenset({"FROM", "JOIN", "USING"})
_END_FROM = frozenset({"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "QUALIFY"})
_SET_OPERATIONS = frozenset({"UNION", "EXCEPT", "INTERSECT"})
_TAKE_FROM = frozenset({"EXTRACT", "SUBSTRING", "TRIM"})
_READS_NAMES = frozenset({"alias", "columns", "query", "query_table", "typeof", "pg_typeof", "struct_keys"})
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def named_columns(schema: pa.Schema, statement: str) -> pa.Schema:
    """The columns that the text may name, or the first column if it names none; with them those whose names must be
    quoted, as they may be written in several ways."""
    named = [one for one in schema if not _PLAIN_NAME.fullmatch(one.name) or one.name.lower() in _words_of(statement)]
    return pa.schema(named or list(schema)[:1])


@lru_cache(maxsize=64)
def _words_of(statement: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]\w*", statement.casefold()))


@dataclass(slots=True)
class _Frame:
    """One pair of parentheses. ``selects``: SELECT stands before FROM · ``tables``: tables and their names stand here ·
    ``joins_on``: the condition of a join does, until the next table · ``takes_from``: FROM is part of a call."""

    selects: bool = False
    tables: bool = False
    joins_on: bool = False
    takes_from: bool = False


@lru_cache(maxsize=64)
def names_its_columns(statement: str) -> bool:
    """Whether a query over zskip tables alone, and DuckDB's own functions, reaches columns by their names alone."""
    words = tokens(statement)
    places = table_places(words)
    if _READS_NAMES & places.functions or not all(map(_is_plain, words)):
        return False
    padded = [None, None, *words, None, None]
    stack = [_Frame()]
    relations, values = {unquoted(default_alias(place)).casefold() for place in places.tables}, set()
    for number, word in enumerate(words):
        last, before, _, after, second = (
            "" if one is None else one.text.upper() for one in padded[number : number + 5]
        )
        frame, text = stack[-1], word.text.upper()
        if text == "(":
            is_list = _names_positions(words, number)
            # A keyword may be a table's name: FROM t last(a, b).
            if is_list or (frame.tables and words[number - 1].kind == "keyword" and before not in _BEFORE_TABLES):
                return False
            inside = frame.tables and before in ("FROM", "JOIN", ",", "(")
            stack.append(_Frame(tables=inside, takes_from=before in _TAKE_FROM))
        elif text == ")":
            stack.pop()
        elif text == "*":
            counts = last == "COUNT" and before == "(" and after == ")"
            if not (counts or _is_operand(words[number - 1])):
                return False
        elif text == "." and second == "(":
            return False  # a.f() is f(a)
        elif text == "DISTINCT" and after == "ON":
            return False  # the star behind its parenthesis looks like a product
        elif before == ")" and _defines(before, text, after):
            return False  # WITH e(a, b) AS (…)
        elif text in _SET_OPERATIONS:
            if "BY" in (after, second):
                return False
            stack[-1] = _Frame()
        elif text == "SELECT":
            stack[-1] = _Frame(selects=True)
        elif text == "FROM":
            if before != "DISTINCT" and not frame.takes_from:
                if not frame.selects:
                    return False
                frame.tables, frame.joins_on = True, False
        elif text in _END_FROM:
            frame.tables = frame.joins_on = False
        elif text == "ON" and frame.tables:
            frame.tables, frame.joins_on = False, True
        elif text in ("JOIN", ",") and frame.joins_on:
            frame.tables, frame.joins_on = True, False
        elif frame.tables:
            if text != "AS":
                relations.add(unquoted(word.text).casefold())
        elif word.kind in ("identifier", "keyword") and after not in (".", "(") and not _defines(text, after, second):
            values.add(unquoted(word.text).casefold())  # a keyword may be the name of a table too
    return not relations & values


def _is_plain(word: Word) -> bool:
    if word.kind == "keyword":
        return word.text.upper() in _KEYWORDS | _NAMES
    if word.kind == "operator":
        return word.text in _OPERATORS
    return word.kind != "identifier" or "\\" not in word.text


def _names_positions(words: Sequence[Word], number: int) -> bool:
    """Whether the parenthesis there begins a list of names for a table's columns."""
    if not number:
        return False
    before = words[number - 1]
    if before.kind == "identifier" or before.text.upper() in _NAMES:
        return not calls(words, number - 1)  # the parenthesis of DECIMAL(4, 1) is taken for one, which costs time alone
    return before.kind == "string_const"


def _defines(name: str, after: str, second: str) -> bool:
    """Whether a common table expression is defined there: its name, AS, and what may follow that."""
    return bool(name) and after == "AS" and second in ("(", "NOT", "MATERIALIZED")


def _is_operand(word: Word) -> bool:
    # DuckDB calls the dot of t.a a number.
    is_value = word.kind in ("identifier", "numeric_const", "string_const") and word.text != "."
    return is_value or word.text in (")", "?")
