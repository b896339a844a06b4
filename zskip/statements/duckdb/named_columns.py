"""The columns that a statement names, and whether it can reach any other column.

DuckDB's binder takes time for each column of a table, so a stub leaves out columns that the statement cannot reach.
Names are not resolved here: a column whose name occurs anywhere in the text is kept in every table that has it. A
statement reaches columns without their names by

| means              | example                                            |
| ------------------ | -------------------------------------------------- |
| stars              | ``*``, ``t.*``, ``COLUMNS('a.*')``, ``FROM t``     |
| positions          | ``t AS x(a, b)``, ``WITH e(a) AS``, ``#1``         |
| all names at once  | ``NATURAL JOIN``, ``UNION BY NAME``, ``PIVOT``     |
| a row as a value   | ``SELECT c FROM t c``, ``c.typeof()``              |

A macro cannot reach any: DuckDB rejects a macro whose body has a star or a name other than its parameters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from zskip.statements.duckdb.survivor_reads import default_alias
from zskip.statements.duckdb.table_places import Word, calls, table_places, tokens, unquoted

__all__ = ["named_columns", "names_its_columns"]

# Keywords with which a statement reaches columns only by their names. Any other keyword may do otherwise.
_KEYWORDS = frozenset(
    """
    ALL AND ANTI ANY AS ASC BETWEEN BY CASE CAST COALESCE COLLATE CROSS DESC DISTINCT ELSE END EXCEPT EXISTS EXTRACT
    FALSE FILTER FIRST FOR FROM FULL GROUP HAVING ILIKE IN INNER INTERSECT INTERVAL IS ISNULL JOIN LAST LEFT LIKE LIMIT
    NOT NOTNULL NULL NULLIF NULLS OFFSET ON OR ORDER OUTER OVER PARTITION QUALIFY RIGHT SELECT SEMI SIMILAR SUBSTRING
    THEN TIMESTAMP TO TRIM TRUE TRY_CAST UNION USING WHEN WHERE WITH
    """.split()  # noqa: SIM905  # a list takes a line for each word
)
# Keywords that can also be names of columns, types or parts of dates.
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
_CALLS_WITH_FROM = frozenset({"EXTRACT", "SUBSTRING", "TRIM"})
_READS_NAMES = frozenset({"alias", "columns", "query", "query_table", "typeof", "pg_typeof", "struct_keys"})
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def named_columns(schema: pa.Schema, statement: str) -> pa.Schema:
    """The columns that the text may name, or the first column if it names none.

    Columns whose names need quotes are always among them, since the text can write such a name in several ways.
    """
    words = _words_of(statement)
    named = [field for field in schema if not _PLAIN_NAME.fullmatch(field.name) or field.name.lower() in words]
    return pa.schema(named or list(schema)[:1])


@lru_cache(maxsize=64)
def _words_of(statement: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]\w*", statement.casefold()))


@dataclass(slots=True)
class _Frame:
    """The state within parentheses. ``selects``: SELECT came before FROM · ``in_tables``: the next words are tables and
    aliases · ``in_join_condition``: they are the condition of a join · ``in_call``: FROM is an argument's keyword."""

    selects: bool = False
    in_tables: bool = False
    in_join_condition: bool = False
    in_call: bool = False


@lru_cache(maxsize=64)
def names_its_columns(statement: str) -> bool:
    """Whether a query over zskip tables, with no functions but DuckDB's own, reaches columns only by their names."""
    words = tokens(statement)
    places = table_places(words)
    if _READS_NAMES & places.functions or not all(map(_is_plain, words)):
        return False
    padded = [None, None, *words, None, None]
    stack = [_Frame()]
    relations, values = {unquoted(default_alias(place)).casefold() for place in places.tables}, set()
    for number, word in enumerate(words):
        two_before, before, _, after, two_after = (
            "" if near is None else near.text.upper() for near in padded[number : number + 5]
        )
        frame, text = stack[-1], word.text.upper()
        if text == "(":
            is_list = _begins_column_list(words, number)
            # An alias may be a keyword: FROM t last(a, b).
            if is_list or (frame.in_tables and words[number - 1].kind == "keyword" and before not in _BEFORE_TABLES):
                return False
            inside = frame.in_tables and before in ("FROM", "JOIN", ",", "(")
            stack.append(_Frame(in_tables=inside, in_call=before in _CALLS_WITH_FROM))
        elif text == ")":
            stack.pop()
        elif text == "*":
            counts = two_before == "COUNT" and before == "(" and after == ")"
            if not (counts or _is_operand(words[number - 1])):
                return False
        elif text == "." and two_after == "(":
            return False  # a.f() is f(a)
        elif text == "DISTINCT" and after == "ON":
            return False  # DISTINCT ON (a) * would look like a product
        elif before == ")" and _defines_cte(before, text, after):
            return False  # WITH e(a, b) AS (…)
        elif text in _SET_OPERATIONS:
            if "BY" in (after, two_after):
                return False
            stack[-1] = _Frame()
        elif text == "SELECT":
            stack[-1] = _Frame(selects=True)
        elif text == "FROM":
            if before != "DISTINCT" and not frame.in_call:
                if not frame.selects:
                    return False
                frame.in_tables, frame.in_join_condition = True, False
        elif text in _END_FROM:
            frame.in_tables = frame.in_join_condition = False
        elif text == "ON" and frame.in_tables:
            frame.in_tables, frame.in_join_condition = False, True
        elif text in ("JOIN", ",") and frame.in_join_condition:
            frame.in_tables, frame.in_join_condition = True, False
        elif frame.in_tables:
            if text != "AS":
                relations.add(unquoted(word.text).casefold())
        elif word.kind not in ("identifier", "keyword") or after in (".", "("):
            continue
        elif not _defines_cte(text, after, two_after):
            values.add(unquoted(word.text).casefold())  # a keyword may be the name of a table too
    return not relations & values


def _is_plain(word: Word) -> bool:
    if word.kind == "keyword":
        return word.text.upper() in _KEYWORDS | _NAMES
    if word.kind == "operator":
        return word.text in _OPERATORS
    return word.kind != "identifier" or "\\" not in word.text


def _begins_column_list(words: Sequence[Word], number: int) -> bool:
    """Whether the parenthesis at ``number`` begins new names for a table's columns, such as ``t AS x(a, b)``."""
    if not number:
        return False
    before = words[number - 1]
    if before.kind == "identifier" or before.text.upper() in _NAMES:
        return not calls(words, number - 1)  # True for DECIMAL(4, 1) as well, which only costs time
    return before.kind == "string_const"


def _defines_cte(name: str, after: str, two_after: str) -> bool:
    """Whether three words begin the definition of a common table expression: ``e AS (``, ``e AS MATERIALIZED``."""
    return bool(name) and after == "AS" and two_after in ("(", "NOT", "MATERIALIZED")


def _is_operand(word: Word) -> bool:
    # DuckDB's tokenizer classifies the dot of t.a as a number.
    is_value = word.kind in ("identifier", "numeric_const", "string_const") and word.text != "."
    return is_value or word.text in (")", "?")
