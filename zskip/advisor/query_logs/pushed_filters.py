"""Parses the filters that Spark pushes to a scan, as printed in an event log, into DuckDB SQL.

    [IsNotNull(a), EqualTo(a,5), Or(StringStartsWith(b,x),In(c, [1,2]))]
    a = 5 AND (starts_with(b, 'x') OR c IN (1, 2))

The log quotes nothing, so a comma or a parenthesis in a string is ambiguous: the condition guides layouts, and never
prunes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from zskip.core import types as t
from zskip.core.schema import Column, Schema
from zskip.language.sql_literals import identifier

__all__ = ["condition_of"]

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "IS NOT DISTINCT FROM",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_STRING_MATCHES = {"StringStartsWith": "starts_with", "StringEndsWith": "ends_with", "StringContains": "contains"}
_NAMES = (*_COMPARISONS, *_STRING_MATCHES, "In", "IsNull", "IsNotNull", "And", "Or", "Not")
_SEPARATOR = re.compile(rf",\s?(?=(?:{'|'.join(_NAMES)})\()")
_FILTER = re.compile(rf"({'|'.join(_NAMES)})\((.*)\)", re.DOTALL)


def condition_of(filters: str, schema: Schema, zone: str = "UTC") -> str | None:
    """The conjunction of a list of pushed filters; None where it only requires columns not to be NULL.

    ``zone``: the time zone of the log's timestamps. Filters that cannot be parsed, or are on columns that the schema
    lacks, are left out.
    """
    parsed = [(text, _sql(text, schema, zone)) for text in _split(filters.strip()[1:-1])]
    kept = [sql for text, sql in parsed if sql is not None and not text.startswith("IsNotNull(")]
    return " AND ".join(kept) if kept else None


def _split(text: str) -> list[str]:
    """Split a list into filters: each starts with a filter's name, and its parentheses balance if possible."""
    filters: list[str] = []
    for piece in _SEPARATOR.split(text):
        if filters and filters[-1].count("(") > filters[-1].count(")"):
            filters[-1] += f",{piece}"
        else:
            filters.append(piece)
    return [piece for piece in filters if piece]


def _sql(text: str, schema: Schema, zone: str) -> str | None:
    match = _FILTER.fullmatch(text)
    if match is None:
        return None
    name, inside = match.groups()
    if name == "Not":
        part = _sql(inside, schema, zone)
        return None if part is None else f"NOT ({part})"
    if name in ("And", "Or"):
        for left, right in _operands(inside):
            sides = [_sql(left, schema, zone), _sql(right, schema, zone)]
            if None not in sides:
                return f"(({sides[0]}) {name.upper()} ({sides[1]}))"
        return None
    path, _, value = inside.partition(",")
    column = schema.find([part.strip("`") for part in re.findall(r"`[^`]*`|[^.`]+", path)])
    if column is None:
        return None
    quoted = identifier(*column.parts)
    if name in ("IsNull", "IsNotNull"):
        return f"{quoted} IS {'NOT ' if name == 'IsNotNull' else ''}NULL"
    if name == "In":
        values = [_literal(each, column, zone) for each in value.strip()[1:-1].split(",")]
        known = [each for each in values if each is not None]
        return f"{quoted} IN ({', '.join(known)})" if len(known) == len(values) else None
    literal = _literal(value, column, zone)
    if literal is None:
        return None
    if name in _STRING_MATCHES:
        return f"{_STRING_MATCHES[name]}({quoted}, {literal})"
    return f"{quoted} {_COMPARISONS[name]} {literal}"


def _operands(inside: str) -> Iterator[tuple[str, str]]:
    """Each way to split the text into the two operands of AND or OR; those with balanced parentheses first."""
    splits = [(inside[: match.start()], inside[match.end() :]) for match in _SEPARATOR.finditer(inside)]
    yield from sorted(splits, key=lambda pair: abs(pair[0].count("(") - pair[0].count(")")))


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _literal(value: str, column: Column, zone: str) -> str | None:
    """A value of a column as a DuckDB literal; None where it cannot be parsed."""
    if value == "null":
        return "NULL"
    type_ = t.value_type(column.type)
    writers: list[tuple[Callable[..., bool], Callable[[str], str]]] = [
        (t.is_date, lambda text: f"DATE {_quoted(text)}"),
        (t.is_timestamp, lambda text: _timestamp(text, type_.tz is not None, zone)),
        (t.is_string, _quoted),
        (t.is_boolean, str),
        (t.is_integer, str),
        (t.is_floating, str),
        (t.is_decimal, str),
    ]
    try:
        return next((write(value) for is_one, write in writers if is_one(type_)), None)
    except ValueError:
        return None


def _timestamp(text: str, zoned: bool, zone: str) -> str:
    """A timestamp literal. Spark prints values in the zone of the driver's JVM, unless a trailing Z marks UTC."""
    parsed = datetime.fromisoformat(text)
    if not zoned:
        return f"TIMESTAMP '{parsed.replace(tzinfo=None)}'"
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=ZoneInfo(zone))
    return f"TIMESTAMPTZ '{parsed.astimezone(ZoneInfo('UTC'))}'"
