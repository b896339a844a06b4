"""The filters that Spark pushes to a scan, as an event log prints them, and as DuckDB's SQL.

    [IsNotNull(a), EqualTo(a,5), Or(StringStartsWith(b,x),In(c, [1,2]))]
    a = 5 AND (starts_with(b, 'x') OR c IN (1, 2))

The log quotes nothing, so a comma or a parenthesis within a string is ambiguous: the condition guides layouts and is
never a proof.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from zskip import types as t
from zskip.expr.sql_literals import identifier
from zskip.schema import Column, Schema

__all__ = ["condition_of"]

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "IS NOT DISTINCT FROM",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_TEXTS = {"StringStartsWith": "starts_with", "StringEndsWith": "ends_with", "StringContains": "contains"}
_NAMES = (*_COMPARISONS, *_TEXTS, "In", "IsNull", "IsNotNull", "And", "Or", "Not")
_NEXT = re.compile(rf",\s?(?=(?:{'|'.join(_NAMES)})\()")
_FILTER = re.compile(rf"({'|'.join(_NAMES)})\((.*)\)", re.DOTALL)


def condition_of(filters: str, schema: Schema, zone: str = "UTC") -> str | None:
    """The condition that a list of pushed filters makes; None where it only asks for columns not to be NULL.

    ``zone``: of the log's timestamps. Filters that cannot be read, or whose column the schema does not have, are left
    out.
    """
    found = [(text, _sql(text, schema, zone)) for text in _listed(filters.strip()[1:-1])]
    kept = [sql for text, sql in found if sql is not None and not text.startswith("IsNotNull(")]
    return " AND ".join(kept) if kept else None


def _listed(text: str) -> list[str]:
    """The filters of a list: each begins with a filter's name, and its parentheses balance where they can."""
    found: list[str] = []
    for piece in _NEXT.split(text):
        if found and found[-1].count("(") > found[-1].count(")"):
            found[-1] += f",{piece}"
        else:
            found.append(piece)
    return [piece for piece in found if piece]


def _sql(text: str, schema: Schema, zone: str) -> str | None:
    match = _FILTER.fullmatch(text)
    if match is None:
        return None
    name, inside = match.groups()
    if name == "Not":
        part = _sql(inside, schema, zone)
        return None if part is None else f"NOT ({part})"
    if name in ("And", "Or"):
        for left, right in _halves(inside):
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
    if name in _TEXTS:
        return f"{_TEXTS[name]}({quoted}, {literal})"
    return f"{quoted} {_COMPARISONS[name]} {literal}"


def _halves(inside: str) -> Iterator[tuple[str, str]]:
    """The two arguments of AND or OR, for each place at which they may be divided; even ones first."""
    splits = [(inside[: match.start()], inside[match.end() :]) for match in _NEXT.finditer(inside)]
    yield from sorted(splits, key=lambda pair: abs(pair[0].count("(") - pair[0].count(")")))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _literal(value: str, column: Column, zone: str) -> str | None:
    """A value of a column in DuckDB's SQL; None where the log does not hold it."""
    if value == "null":
        return "NULL"
    type_ = t.value_type(column.type)
    writers: list[tuple[Callable[..., bool], Callable[[str], str]]] = [
        (t.is_date, lambda text: f"DATE {_text(text)}"),
        (t.is_timestamp, lambda text: _moment(text, type_.tz is not None, zone)),
        (t.is_string, _text),
        (t.is_boolean, str),
        (t.is_integer, str),
        (t.is_floating, str),
        (t.is_decimal, str),
    ]
    try:
        return next((write(value) for is_one, write in writers if is_one(type_)), None)
    except ValueError:
        return None


def _moment(text: str, zoned: bool, zone: str) -> str:
    """A timestamp. Spark prints it in the zone of its driver's JVM, unless a letter Z says UTC."""
    moment = datetime.fromisoformat(text)
    if not zoned:
        return f"TIMESTAMP '{moment.replace(tzinfo=None)}'"
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(zone))
    return f"TIMESTAMPTZ '{moment.astimezone(ZoneInfo('UTC'))}'"
