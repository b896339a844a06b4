"""The conditions that an engine applies to the scans of a table, combined into one predicate that prunes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from zskip.binder import bind
from zskip.core import types as t
from zskip.core.schema import Schema, identifier
from zskip.errors import SqlError
from zskip.language import Predicate, conjunction
from zskip.statements.plan_tree import Scan

# The engine has bound a printed condition, so a setting can only matter to its calls, casts and arithmetic operators.
_READS_SETTINGS = re.compile(r"[\w\"]\s*\((?!\s*SELECT)|::|[/%~]|TIME ZONE|TIMESTAMPTZ")
# Constants and operators that no setting affects.
_READS_NONE = re.compile(
    r"CAST\('[-+.\d]+' AS DECIMAL\(\d+, \d+\)\)|'(?:[^']|'')*'(?:::(?:BLOB|INTERVAL)\b)?"
    r"|\b(?:AND|OR|NOT|IN|prefix|suffix|contains|struct_extract) ?(?=\()|!?~~(?!\*)"
)


@dataclass(frozen=True, slots=True)
class Session:
    """The settings of a connection that can affect a bound condition. ``timezone``: None if Python does not know it ·
    ``usual``: whether all settings that functions read have their defaults."""

    timezone: str | None
    usual: bool


class Conditions(NamedTuple):
    """``predicate``: TRUE for every row that the scans of a table may contribute; None if every row may contribute.

    ``complete``: the predicate is not TRUE for any other row.
    """

    predicate: Predicate | None
    complete: bool


def conditions_of(scans: Sequence[Scan], schema: Schema, session: Callable[[], Session]) -> Conditions:
    """The rows that any of the scans of one table needs.

    ``schema``: in the engine's types · ``session`` is called only if a setting can matter.
    """
    timezone = "UTC"
    texts = [tuple(map(_bindable, scan.conditions)) for scan in scans]
    if any(map(_reads_settings, chain.from_iterable(texts))):
        known = session()
        timezone = known.timezone or "UTC"
        if known.timezone is None or not known.usual:
            texts = [tuple(one for one in conditions if not _reads_settings(one)) for conditions in texts]
    bound = [[one for text in conditions if (one := _bound(text, schema, timezone))] for conditions in texts]
    if len(scans) == 1:
        complete = scans[0].complete and len(bound[0]) == len(scans[0].conditions)
        return Conditions(conjunction(bound[0]) if bound[0] else None, complete)
    if not all(bound) or not bound:
        return Conditions(None, False)
    by_scan = (" AND ".join(f"({predicate.text})" for predicate in predicates) for predicates in bound)
    return Conditions(_bound(" OR ".join(f"({text})" for text in dict.fromkeys(by_scan)), schema, timezone), False)


def _reads_settings(condition: str) -> bool:
    """Whether a setting of the session may affect a bound condition.

    >>> _reads_settings("((d >= DATE '1994-01-01') AND prefix(s, 'a'))"), _reads_settings("(year(d) = 1994)")
    (False, True)
    """
    return bool(_READS_SETTINGS.search(_READS_NONE.sub(",", condition)))


_STRING, _NAME = r"'(?:[^']|'')*'", r'"(?:[^"]|"")*"'
_CONSTANT = re.compile(rf"{_NAME}|({_STRING})(?:::(BLOB|INTERVAL)\b)?")
_EXPONENT = re.compile(r"\de[+-]\d")
# A BLOB constant with a byte that is no printable ASCII character.
_BYTES = re.compile(r"'(?:[^'\\]|'')*\\(?:[^']|'')*'::BLOB\b")
_FIELD = re.compile(rf"struct_extract\(({_NAME}(?:\.{_NAME})*), '((?:[^']|'')*)'\)")


def _bindable(condition: str) -> str:
    """The condition with BLOB and INTERVAL constants and struct fields in a syntax that `bind` parses.

    DuckDB compares strings with BLOB constants by their bytes, to narrow the range of a pattern. Without an escape,
    such a constant is a string.

    >>> print(_bindable("struct_extract(\\"s\\", 'y') = 'a'::BLOB AND t > '1 day'::INTERVAL"))
    "s"."y" = 'a' AND t > INTERVAL '1 day'
    """

    def constant(match: re.Match[str]) -> str:
        text, type = match[1], match[2]
        if type is None or (type == "BLOB" and "\\" in text):
            return match[0]
        return text if type == "BLOB" else f"INTERVAL {text}"

    condition = _CONSTANT.sub(constant, condition)
    while (field := _FIELD.search(condition)) is not None:
        name = identifier(field[2].replace("''", "'"))
        condition = f"{condition[: field.start()]}{field[1]}.{name}{condition[field.end() :]}"
    return condition


def _bound(condition: str, schema: Schema, timezone: str) -> Predicate | None:
    try:
        predicate = bind(condition, schema, timezone=timezone)
    except SqlError:
        # The engine still applies this condition, which only fails to prune.
        return None
    types = [schema.columns[path].type for path in predicate.columns]
    if _EXPONENT.search(_CONSTANT.sub("", condition)) and (pa.float32() in types or "FLOAT" in condition):
        return None  # a FLOAT constant, which the text of a condition has as a DOUBLE
    if any(isinstance(type, pa.BaseExtensionType) and t.is_struct(type.storage_type) for type in types):
        return None  # a VARIANT, of which the index knows only the parts
    # The bytes may be no valid string, and SQL would cast a string beside a BLOB instead of comparing its bytes.
    of_bytes = _BYTES.search(condition) is None or all(map(t.is_bytes, types))
    return predicate if of_bytes else None
