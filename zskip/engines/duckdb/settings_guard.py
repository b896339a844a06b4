"""A guard on the settings under which a statement was planned.

DuckDB binds the text of a lazy relation each time it is read, but the files in it were chosen under the settings of one
moment. So the text itself compares the settings: an option of the read is an expression that raises where one differs.

| a statement has                                                 | settings that can change which rows it wants |
| --------------------------------------------------------------- | -------------------------------------------- |
| comparisons, + - * of numbers, dates, times without a zone      | none                                         |
| texts, as constants or in columns that its pruning reads; CASE  | the collation, implicit casts                |
| a division                                                      | those of divisions                           |
| columns of times with a zone that its pruning reads             | the time zone, the calendar                  |
| ORDER BY … LIMIT that prunes                                    | the default orders                           |
| a call, cast, operator, keyword or type not known here          | all                                          |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from zskip import types as t
from zskip.engines.duckdb.native_scan import literal
from zskip.engines.duckdb.table_places import Place, Word

if TYPE_CHECKING:
    import duckdb

__all__ = ["OutdatedGuard", "asking_again", "guard", "settings_read"]

_OF_TEXTS = ("default_collation", "old_implicit_casting")
_OF_ZONES = ("TimeZone", "Calendar")
_OF_ORDER = ("default_order", "default_null_order")
# Until it is set, DuckDB calls the order ASCENDING, and ASC from then on.
_SHORTENED = {"default_order": "[:3]"}
_OF_DIVISION = ("integer_division", "ieee_floating_point_ops", "error_on_division_by_zero")
_ALL = (
    *(*_OF_ZONES, *_OF_TEXTS, *_OF_ORDER, *_OF_DIVISION, "regex_match_operator_semantics"),
    *("scalar_subquery_error_on_multiple_rows", "binary_as_string", "dialect_compatibility_mode"),
)
# What means the same under all settings, or differs by the types of its columns alone.
_KEYWORDS = frozenset(
    """
    ALL AND ANTI AS ASC BETWEEN BY CROSS DAY DESC DISTINCT EXCEPT EXISTS EXTRACT FALSE FIRST FROM FULL GROUP HAVING IN
    INNER INTERSECT INTERVAL IS JOIN LAST LEFT LIMIT MONTH NATURAL NOT NULL NULLS OFFSET ON OR ORDER OUTER RIGHT SELECT
    SEMI SUBSTRING TIMESTAMP TRUE UNION USING WHERE WITH YEAR
    """.split()  # noqa: SIM905  # a list takes a line for each word
)
_FUNCTIONS = frozenset({"avg", "count", "max", "min", "sum"})
_OPERATORS = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">=", "(", ")", ",", ".", "?", "$", ";", "+", "-", "*"})
_SETTINGS_OF = {
    **dict.fromkeys(("LIKE", "CASE", "WHEN", "THEN", "ELSE", "END"), _OF_TEXTS),
    **dict.fromkeys(("/", "//", "%"), _OF_DIVISION),
}
_TYPES_OF_CONSTANTS = frozenset({"DATE", "TIMESTAMP", "INTERVAL"})


def settings_read(
    words: Sequence[Word],
    places: Collection[Place],
    params: Sequence[Any] | Mapping[str, Any] | None,
    types: Iterable[pa.DataType],
    ordered: bool,
) -> tuple[str, ...]:
    """The settings that can change which rows a statement wants of its tables, possibly more.

    ``types``: of the columns that its pruning reads · ``ordered``: files were left out by an order.
    """
    values = params.values() if isinstance(params, Mapping) else params or ()
    found = set(_OF_ORDER) if ordered else set()
    found.update(*map(_of_type, types), *map(_of_value, values), _of_words(words, places))
    return tuple(name for name in _ALL if name in found)


def _of_words(words: Sequence[Word], places: Collection[Place]) -> Collection[str]:
    found: set[str] = set()
    for before, word, after in zip((None, *words), words, (*words[1:], None), strict=False):
        text, last = word.text.upper(), "" if before is None else before.text.upper()
        if word.kind == "numeric_const" or any(place.start <= word.start < place.end for place in places):
            continue
        if word.kind == "string_const":
            if before is not None and before.kind == "identifier" and last not in _TYPES_OF_CONSTANTS:
                return _ALL
            if last not in _TYPES_OF_CONSTANTS:
                found.update(_OF_TEXTS)
        elif word.kind == "identifier":
            if after is not None and after.text == "(" and word.text.lower() not in _FUNCTIONS:
                return _ALL
        elif text in _SETTINGS_OF:
            found.update(_SETTINGS_OF[text])
        elif text not in (_KEYWORDS if word.kind == "keyword" else _OPERATORS):
            return _ALL
    return found


def _of_type(type: pa.DataType) -> Collection[str]:
    type = t.logical_type(type)
    if t.is_timestamp(type):
        return () if type.tz is None else _OF_ZONES
    if t.is_integer(type) or t.is_floating(type) or t.is_decimal(type) or t.is_boolean(type) or t.is_date(type):
        return ()
    return _OF_TEXTS if t.is_string(type) else _ALL


def _of_value(value: Any) -> Collection[str]:
    if isinstance(value, str):
        return _OF_TEXTS
    if value is None or isinstance(value, bool | int | float | Decimal):
        return ()
    naive = isinstance(value, date) and not (isinstance(value, datetime) and value.tzinfo is not None)
    return () if naive else _ALL


_PLANNED = "zskip.sql planned this relation under"
_ASKED: WeakKeyDictionary[duckdb.DuckDBPyConnection, dict[str, str]] = WeakKeyDictionary()


class OutdatedGuard(Exception):
    """A connection has other settings by now than those that a guard took it to have."""


def guard(names: Sequence[str], con: duckdb.DuckDBPyConnection) -> str:
    """An expression in SQL that is FALSE while these settings are as they were when the connection was last asked for
    them, and raises otherwise: `asking_again` then has them asked for anew."""
    read = {name: f"CAST(current_setting({literal(name)}) AS VARCHAR){_SHORTENED.get(name, '')}" for name in names}
    asked = _ASKED.setdefault(con, {})
    if not asked.keys() >= read.keys():
        (values,) = con.execute(f"SELECT {', '.join(read.values())}").fetchall()
        asked.update(zip(read, values, strict=True))
    same = " AND ".join(f"{one} = {literal(asked[name])}" for name, one in read.items())
    planned = ", ".join(f"{name} = {literal(asked[name])}" for name in names)
    message = f"{_PLANNED} {planned}. Make the relation again after a SET."
    return f"CASE WHEN {same} THEN false ELSE error({literal(message)}) END"


@contextmanager
def asking_again(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Raise `OutdatedGuard` where a guard raises, and forget what it took the connection's settings to be."""
    import duckdb

    try:
        yield
    except duckdb.InvalidInputException as error:
        if _PLANNED not in str(error):
            raise
        _ASKED.pop(con, None)
        raise OutdatedGuard(str(error)) from error
