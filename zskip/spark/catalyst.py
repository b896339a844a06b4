"""Catalyst's filters as predicates: Spark's text of an expression, where its meaning is known to be the same.

``Expression.sql`` leaves things out. What it leaves out is looked up in the expression's JSON form, and an expression
whose text could mean something else is not used: its files are kept.

| left out of the text                                  | what is done                                             |
| ----------------------------------------------------- | -------------------------------------------------------- |
| whose function it is: a user's ``abs`` prints ``abs`` | only Spark's own expressions are used                    |
| ``try_add`` prints as ``+``                           | only arithmetic of the session's own mode is used        |
| the zone that a cast was bound to                     | only the session's own zone is used                      |
| which of two instants, when clocks go back            | a literal in such an hour is not used                    |
| a collation that the session adds                     | an expression that names one is not used                 |
| the table's alias, which looks like a struct          | taken off the names                                      |
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from zskip.binder import bind
from zskip.errors import ZskipError
from zskip.expr import Predicate, conjunction
from zskip.schema import Schema
from zskip.spark.handoff import Semantics, alike

__all__ = ["predicate"]

_OWN = "org.apache.spark.sql.catalyst.expressions"
# In Spark's own package, and yet they run what a user or another plug-in wrote, or look at another plan.
_FOREIGN = {
    "ApplyFunctionExpression",
    "Collate",
    "ListQuery",
    "OuterReference",
    "PythonUDAF",
    "PythonUDF",
    "PythonUDTF",
    "ScalaUDF",
    "ScalarSubquery",
}
_MOST_LOOKUPS = 100
_TOKEN = re.compile(
    r"""(?P<string>'(?:\\.|[^'\\])*')
      | (?P<name>(?:`(?:[^`]|``)*`|[A-Za-z_]\w*)(?:\.(?:`(?:[^`]|``)*`|[A-Za-z_]\w*))*)""",
    re.DOTALL | re.VERBOSE,
)


def predicate(expressions: Sequence[Any], schema: Schema, semantics: Semantics) -> tuple[Predicate | None, bool]:
    """What Catalyst's expressions, all of which hold for a row, say of its columns; None where nothing can be used.

    ``expressions`` are Java objects. What cannot be read is left out, which keeps more files and never fewer. The flag
    says whether nothing was left out.
    """
    zone = semantics.zone
    if zone is None:
        return None, not expressions
    found, whole = [], True
    for expression in expressions:
        text = meant(expression, semantics, zone)
        bound = read = None
        if text is not None:
            # Kept where the planner cannot read it, because that proves nothing.
            with suppress(ZskipError, RecursionError):
                bound = bind(text, schema, dialect="spark", timezone=zone.key, ansi=semantics.ansi)
                read = alike(bound, schema)
        whole &= bound is not None and read is not None and len(read.conjuncts) == len(bound.conjuncts)
        if read is not None:
            found.append(read)
    return (conjunction(found) if found else None), whole


def meant(expression: Any, semantics: Semantics, zone: ZoneInfo) -> str | None:
    """The text of an expression that means to the planner what the expression means to Spark; else None."""
    nodes = json.loads(expression.toJSON())
    if not all(_is_known(node) for node in nodes) or not _same_zone(nodes, semantics.timezone):
        return None
    if not _same_mode(expression, nodes, semantics.ansi):
        return None
    qualifiers = [_parts(node["qualifier"]) for node in nodes if "qualifier" in node]
    if len(set(qualifiers)) != 1:
        return None
    return _rewritten(expression.sql(), ".".join(map(_quoted, qualifiers[0])), len(qualifiers), zone)


def _is_known(node: Mapping[str, Any]) -> bool:
    package, _, name = node["class"].rpartition(".")
    return package == _OWN and name not in _FOREIGN


def _same_zone(nodes: Sequence[Mapping[str, Any]], timezone: str) -> bool:
    return all(node.get("timeZoneId") in (None, timezone) for node in nodes)


def _same_mode(expression: Any, nodes: Sequence[Mapping[str, Any]], ansi: bool) -> bool:
    """Whether all arithmetic and casts treat errors as the session does. The JSON lacks their modes, Java has them."""
    wanted = "ANSI" if ansi else "LEGACY"
    if any(node.get("failOnError", ansi) is not ansi for node in nodes):
        return False
    doubtful = [number for number, node in enumerate(nodes) if "evalMode" in node or "evalContext" in node]
    if len(doubtful) > _MOST_LOOKUPS:
        return False
    for number in doubtful:
        node = expression.apply(number)
        if node.getClass().getName() != nodes[number]["class"]:
            return False
        if "evalContext" in nodes[number]:
            mode = node.evalContext().evalMode().toString()
        else:
            mode = node.evalMode().toString()
            if mode == "TRY" and nodes[number]["class"] == f"{_OWN}.Cast":
                continue  # it prints as TRY_CAST
        if mode != wanted:
            return False
    return True


def _rewritten(text: str, prefix: str, names: int, zone: ZoneInfo) -> str | None:
    """The text without the prefix of its ``names`` columns; None where it can be read in more than one way.

    >>> _rewritten("(a.s = 'a.b')", "a", 1, ZoneInfo("UTC"))
    "(s = 'a.b')"
    """
    pieces: list[str] = []
    done = 0
    before = ""
    for token in _TOKEN.finditer(text):
        if token["string"] is not None:
            if before == "TIMESTAMP" and not _is_one_instant(token["string"][1:-1], zone):
                return None
        elif token["name"].lower() == "collate":
            return None
        elif prefix and token["name"].startswith(f"{prefix}."):
            pieces += [text[done : token.start()], token["name"][len(prefix) + 1 :]]
            done = token.end()
        before = token["name"] or ""
    if prefix and len(pieces) != 2 * names:
        return None
    return "".join([*pieces, text[done:]])


def _parts(qualifier: str | list[str]) -> tuple[str, ...]:
    """The parts of a name's qualifier, which the JSON has as a text but for an empty one.

    >>> _parts("[spark_catalog, default, t]"), _parts([])
    (('spark_catalog', 'default', 't'), ())
    """
    return tuple(qualifier[1:-1].split(", ")) if isinstance(qualifier, str) else tuple(qualifier)


def _quoted(part: str) -> str:
    """A part of a name as Spark prints it."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", part)
    return part if plain else "`" + part.replace("`", "``") + "`"


def _is_one_instant(literal: str, zone: ZoneInfo) -> bool:
    """Whether a local time stands for one instant in the zone: not so in the hour when clocks go back, or forward."""
    try:
        local = datetime.fromisoformat(literal)
    except ValueError:  # a year beyond 9999, which Python's calendar lacks
        return False
    first, second = local.replace(tzinfo=zone, fold=0), local.replace(tzinfo=zone, fold=1)
    return local.tzinfo is None and first.utcoffset() == second.utcoffset()
