"""The conditions that an engine applies to the scans of a table, combined into one predicate that prunes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple
from zoneinfo import ZoneInfo

from zskip.binder import bind
from zskip.errors import SqlError
from zskip.expr import Predicate, conjunction
from zskip.expr.sql_literals import identifier
from zskip.schema import Schema
from zskip.statement.plan_tree import Scan

__all__ = ["Conditions", "Session", "conditions_of", "known_zone"]

# A printed condition is bound: settings can still matter only to calls, casts and operators of arithmetic, but not to
# texts, to these constants and to these operators.
_READS_SETTINGS = re.compile(r"[\w\"]\s*\((?!\s*SELECT)|::|[/%~]|TIME ZONE|TIMESTAMPTZ")
_READS_NONE = re.compile(
    r"CAST\('[-+.\d]+' AS DECIMAL\(\d+, \d+\)\)|'(?:[^']|'')*'(?:::(?:BLOB|INTERVAL)\b)?"
    r"|\b(?:AND|OR|NOT|IN|prefix|suffix|contains|struct_extract) ?(?=\()|!?~~(?!\*)"
)


@dataclass(frozen=True, slots=True)
class Session:
    """The settings of a connection that can matter to a bound condition. ``timezone``: None where Python does not know
    it · ``usual``: whether functions give what they give by default."""

    timezone: str | None
    usual: bool


class Conditions(NamedTuple):
    """``predicate``: TRUE for every row that the scans of a table may contribute; None where all rows may.

    ``complete``: it is TRUE for no other row.
    """

    predicate: Predicate | None
    complete: bool


def conditions_of(scans: Sequence[Scan], schema: Schema, session: Callable[[], Session]) -> Conditions:
    """What all scans of one table together need of it. ``session`` is called only where settings can matter."""
    timezone = "UTC"
    texts = [tuple(map(_as_written, scan.conditions)) for scan in scans]
    if any(map(_reads_settings, chain.from_iterable(texts))):
        known = session()
        timezone = known.timezone or "UTC"
        if known.timezone is None or not known.usual:
            texts = [tuple(one for one in conditions if not _reads_settings(one)) for conditions in texts]
    sides = [[found for text in conditions if (found := _bound(text, schema, timezone))] for conditions in texts]
    if len(scans) == 1:
        complete = scans[0].complete and len(sides[0]) == len(scans[0].conditions)
        return Conditions(conjunction(sides[0]) if sides[0] else None, complete)
    if not all(sides) or not sides:
        return Conditions(None, False)
    each = (" AND ".join(f"({predicate.text})" for predicate in side) for side in sides)
    return Conditions(_bound(" OR ".join(f"({side})" for side in dict.fromkeys(each)), schema, timezone), False)


def _reads_settings(condition: str) -> bool:
    """Whether a setting of the session may matter to a bound condition.

    >>> _reads_settings("((d >= DATE '1994-01-01') AND prefix(s, 'a'))"), _reads_settings("(year(d) = 1994)")
    (False, True)
    """
    return bool(_READS_SETTINGS.search(_READS_NONE.sub(",", condition)))


_STRING, _NAME = r"'(?:[^']|'')*'", r'"(?:[^"]|"")*"'
_CONSTANT = re.compile(rf"{_NAME}|({_STRING})(?:::(BLOB|INTERVAL)\b)?")
_FIELD = re.compile(rf"struct_extract\(({_NAME}(?:\.{_NAME})*), '((?:[^']|'')*)'\)")


def _as_written(condition: str) -> str:
    """The condition as a person writes it, who has other ways than DuckDB's plans for some constants and fields.

    >>> print(_as_written("struct_extract(\\"s\\", 'y') = 'a'::BLOB AND t > '1 day'::INTERVAL"))
    "s"."y" = 'a' AND t > INTERVAL '1 day'
    """

    def constant(found: re.Match[str]) -> str:
        text, type = found[1], found[2]
        return found[0] if type is None else text if type == "BLOB" else f"INTERVAL {text}"

    condition = _CONSTANT.sub(constant, condition)
    while (field := _FIELD.search(condition)) is not None:
        name = identifier(field[2].replace("''", "'"))
        condition = f"{condition[: field.start()]}{field[1]}.{name}{condition[field.end() :]}"
    return condition


def _bound(condition: str, schema: Schema, timezone: str) -> Predicate | None:
    try:
        return bind(condition, schema, timezone=timezone)
    except SqlError:
        # The engine knows what this means; here it merely proves nothing.
        return None


def known_zone(name: str) -> str | None:
    """The name of a time zone where Python knows it: not so "AET", and some more old names."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
    return name
