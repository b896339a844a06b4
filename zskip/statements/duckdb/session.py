"""A connection as a statement finds it: its transaction, the types of tables on it, and settings that change meanings.

DuckDB has resolved collations, integer division, casts and macros in the conditions of its plans. What remains are the
settings that their functions read when they run; `guard` tells a relation that is read later whether any has changed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from cachetools import LRUCache, cached

from zskip.core import types as t
from zskip.core.option_checks import is_zone
from zskip.core.schema import Schema
from zskip.engines.duckdb.native_scan import literal
from zskip.engines.duckdb.relation import READ_BY_FUNCTIONS, schema_read
from zskip.plan import Survivors
from zskip.statements.duckdb.table_places import Place, Word

if TYPE_CHECKING:
    import duckdb

    from zskip.statements.conditions import Session
    from zskip.tablelog.index import Index


def in_transaction(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether the connection has an open transaction: one that began before this call.

    Raises DuckDB's `ResourceInUseException` if ``con.execute`` left rows that another ``con.execute`` would discard.
    """
    described = con.description
    # The EXPLAIN of the last plan was read to its end.
    run = con.execute if described is None or described[0][0] == "explain_key" else con.sql
    called = time.time_ns() // 1000
    ((began,),) = run(_beginning(con)).fetchall()
    return bool(began < called)


@cached(LRUCache(1), key=lambda con: "parsed", lock=Lock())
def _beginning(con: duckdb.DuckDBPyConnection) -> duckdb.Statement:
    """The query for the moment at which a transaction began, which is asked with every statement: parsed once."""
    (parsed,) = con.extract_statements("SELECT system.main.epoch_us(system.main.now())")
    return parsed


def session_of(con: duckdb.DuckDBPyConnection) -> Session:
    """The time zone of a connection, and whether functions mean in it what proofs assume."""
    from zskip.statements.conditions import Session  # only a statement that is pruned binds conditions

    settings = ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name in ("TimeZone", *READ_BY_FUNCTIONS))
    ((timezone, *others),) = con.sql(f"SELECT {settings}").fetchall()
    return Session(
        timezone if is_zone(timezone) else None, [one.lower() for one in others] == list(READ_BY_FUNCTIONS.values())
    )


def schema_of(index: Index, con: duckdb.DuckDBPyConnection) -> Schema:
    """A table's schema with the types that DuckDB gives its columns on this connection."""
    if not index.snapshot.schema.holds_bytes:
        return index.snapshot.schema
    settings = "SELECT current_setting('binary_as_string'), current_setting('enable_geoparquet_conversion')"
    key = "types in duckdb", con.sql(settings).fetchall()[0]
    first = np.zeros(min(1, len(index)), np.int64)

    def read() -> Schema:
        return Schema(schema_read(Survivors.of_all(index).narrowed(first).scan, con))

    return index.once(key, read, lambda _: 4096)


# --- the guard of a lazy relation ---
#
# An expression that raises if a setting has changed since the statement was planned. DuckDB binds the text of a lazy
# relation each time the relation is read, but its files were chosen under the settings at planning time. So the text
# compares the settings itself: the guard is the value of an option of the read. To compare all settings would add half
# to the time of a look-up.
#
# | part of the statement                                           | settings that can change the rows it needs |
# | --------------------------------------------------------------- | ------------------------------------------ |
# | comparisons, + - * of numbers, dates, times without a zone      | none                                       |
# | strings, as constants or in columns that pruning reads; CASE    | the collation, implicit casts              |
# | a division                                                      | those of divisions                         |
# | columns of times with a zone that pruning reads                 | the time zone, the calendar                |
# | ORDER BY … LIMIT that skips files                               | the default orders                         |
# | any other call, cast, operator, keyword or type                 | all                                        |

_STRING_SETTINGS = ("default_collation", "old_implicit_casting")
_ZONE_SETTINGS = ("TimeZone", "Calendar")
_ORDER_SETTINGS = ("default_order", "default_null_order")
_DIVISION_SETTINGS = ("integer_division", "ieee_floating_point_ops", "error_on_division_by_zero")
_ALL_SETTINGS = (
    *(*_ZONE_SETTINGS, *_STRING_SETTINGS, *_ORDER_SETTINGS, *_DIVISION_SETTINGS, "regex_match_operator_semantics"),
    *("scalar_subquery_error_on_multiple_rows", "binary_as_string", "dialect_compatibility_mode"),
)
# DuckDB prints the default order as ASCENDING until it is set, and as ASC afterwards.
_COMPARED_PART = {"default_order": "[:3]"}
# Keywords, functions and operators to which no setting matters, except through the types of columns.
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
    **dict.fromkeys(("LIKE", "CASE", "WHEN", "THEN", "ELSE", "END"), _STRING_SETTINGS),
    **dict.fromkeys(("/", "//", "%"), _DIVISION_SETTINGS),
}
_TYPES_OF_CONSTANTS = frozenset({"DATE", "TIMESTAMP", "INTERVAL"})


def settings_read(
    words: Sequence[Word],
    places: Collection[Place],
    params: Sequence[Any] | Mapping[str, Any] | None,
    types: Iterable[pa.DataType],
    ordered: bool,
) -> tuple[str, ...]:
    """The settings that can change which rows a statement needs; possibly more.

    ``types``: the types of the columns that pruning reads · ``ordered``: pruning depends on an order of rows.
    """
    values = params.values() if isinstance(params, Mapping) else params or ()
    settings = set(_ORDER_SETTINGS) if ordered else set()
    settings.update(*map(_of_type, types), *map(_of_value, values), _of_words(words, places))
    return tuple(name for name in _ALL_SETTINGS if name in settings)


def _of_words(words: Sequence[Word], places: Collection[Place]) -> Collection[str]:
    settings: set[str] = set()
    for before, word, after in zip((None, *words), words, (*words[1:], None), strict=False):
        text, last = word.text.upper(), "" if before is None else before.text.upper()
        if word.kind == "numeric_const" or any(place.start <= word.start < place.end for place in places):
            continue
        if word.kind == "string_const":
            if before is not None and before.kind == "identifier" and last not in _TYPES_OF_CONSTANTS:
                return _ALL_SETTINGS
            if last not in _TYPES_OF_CONSTANTS:
                settings.update(_STRING_SETTINGS)
        elif word.kind == "identifier":
            if after is not None and after.text == "(" and word.text.lower() not in _FUNCTIONS:
                return _ALL_SETTINGS
        elif text in _SETTINGS_OF:
            settings.update(_SETTINGS_OF[text])
        elif text not in (_KEYWORDS if word.kind == "keyword" else _OPERATORS):
            return _ALL_SETTINGS
    return settings


def _of_type(type: pa.DataType) -> Collection[str]:
    type = t.logical_type(type)
    if t.is_timestamp(type):
        return () if type.tz is None else _ZONE_SETTINGS
    if t.is_integer(type) or t.is_floating(type) or t.is_decimal(type) or t.is_boolean(type) or t.is_date(type):
        return ()
    return _STRING_SETTINGS if t.is_string(type) else _ALL_SETTINGS


def _of_value(value: Any) -> Collection[str]:
    if isinstance(value, str):
        return _STRING_SETTINGS
    if value is None or isinstance(value, bool | int | float | Decimal):
        return ()
    naive = isinstance(value, date) and not (isinstance(value, datetime) and value.tzinfo is not None)
    return () if naive else _ALL_SETTINGS


_MESSAGE_START = "zskip.sql planned this relation under"
# Each connection's settings, read once and kept until a guard raises.
_CACHED_SETTINGS: WeakKeyDictionary[duckdb.DuckDBPyConnection, dict[str, str]] = WeakKeyDictionary()


class OutdatedGuard(Exception):
    """A guard was made of cached settings, and the connection's settings have changed since."""


def guard(names: Sequence[str], con: duckdb.DuckDBPyConnection) -> str:
    """A SQL expression that is FALSE while the connection has its cached values of these settings, and else raises."""
    current = {name: f"current_setting({literal(name)}){_COMPARED_PART.get(name, '')}" for name in names}
    cached = _CACHED_SETTINGS.setdefault(con, {})
    if not cached.keys() >= current.keys():
        texts = ", ".join(f"CAST({expression} AS VARCHAR)" for expression in current.values())
        (values,) = con.sql(f"SELECT {texts}").fetchall()
        cached.update(zip(current, values, strict=True))
    # Compared one by one, the settings would take DuckDB's binder twice as long. No value has a "|" in it.
    together = f"system.main.concat_ws('|', {', '.join(current.values())})"
    planned = ", ".join(f"{name} = {literal(cached[name])}" for name in names)
    message = f"{_MESSAGE_START} {planned}. Make the relation again after a SET."
    values_then = literal("|".join(cached[name] for name in names))
    return f"CASE WHEN {together} = {values_then} THEN false ELSE error({literal(message)}) END"


@contextmanager
def detecting_outdated_guard(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Raise `OutdatedGuard` for the error of a guard, and drop the connection's cached settings."""
    import duckdb

    try:
        yield
    except duckdb.InvalidInputException as error:
        if _MESSAGE_START not in str(error):
            raise
        _CACHED_SETTINGS.pop(con, None)
        raise OutdatedGuard(str(error)) from error
