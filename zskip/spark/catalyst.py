"""Catalyst filters as predicates: the SQL text of an expression is bound where it means the same to zskip as to Spark.

``Expression.sql`` omits details of an expression. They are read from its JSON form, and the text of an expression is
ignored where it is ambiguous.

| omitted or ambiguous in the text                            | handling                                        |
| ----------------------------------------------------------- | ----------------------------------------------- |
| a function's class: a user-defined ``abs`` prints ``abs``   | only Spark's own expressions are used           |
| the error mode: ``try_add`` prints ``+``                    | only the session's error mode is used           |
| the time zone of a cast                                     | only the session's time zone is used            |
| the instant of a local time in the hour when clocks go back | such a literal is not used                      |
| the session's default collation                             | an expression that names a collation is ignored |
| the table's alias, which looks like a struct                | removed from the column names                   |
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from zskip.core.schema import Schema, identifier
from zskip.errors import ZskipError
from zskip.language import Predicate, conjunction
from zskip.spark.jvm import Jvm
from zskip.spark.spark_session import Semantics, same_in_spark

_PACKAGE = "org.apache.spark.sql.catalyst.expressions"
# Classes of Spark's own package that run code of a user or of a plug-in, or that refer to another plan.
_EXCLUDED = {
    "ApplyFunctionExpression",
    "CallMethodViaReflection",
    "Collate",
    "ListQuery",
    "OuterReference",
    "PythonUDAF",
    "PythonUDF",
    "PythonUDTF",
    "ScalaUDF",
    "ScalarSubquery",
    "TryReflect",
}
_MOST_LOOKUPS = 100
_TOKEN = re.compile(
    r"""(?P<string>'(?:\\.|[^'\\])*')
      | (?P<name>(?:`(?:[^`]|``)*`|[A-Za-z_]\w*)(?:\.(?:`(?:[^`]|``)*`|[A-Za-z_]\w*))*)""",
    re.DOTALL | re.VERBOSE,
)


def predicate(expressions: Sequence[Any], schema: Schema, jvm: Jvm) -> tuple[Predicate | None, bool]:
    """The conjunction of Catalyst expressions as a predicate, and whether it is equivalent to them.

    ``expressions``: Java objects. Those that cannot be bound are left out, which keeps more files; if all are, the
    predicate is None.
    """
    semantics = jvm.semantics()
    found, is_equivalent = [], True
    for expression in expressions:
        nodes = json.loads(expression.toJSON())
        bound = _bound(expression, nodes, schema, semantics) if all(map(_is_builtin, nodes)) else None
        usable = None if bound is None else same_in_spark(bound, schema)
        is_equivalent &= bound is not None and usable is not None and len(usable.conjuncts) == len(bound.conjuncts)
        if usable is not None:
            found.append(usable)
    return (conjunction(found) if found else None), is_equivalent


def _bound(
    expression: Any, nodes: Sequence[Mapping[str, Any]], schema: Schema, semantics: Semantics
) -> Predicate | None:
    """The predicate of an expression's text; None if it cannot be bound, or may mean something else."""
    text = None if semantics.zone is None else _unambiguous_sql(expression, nodes, semantics, semantics.zone)
    if text is None:
        return None
    try:
        return semantics.bind(text, schema)
    except (ZskipError, RecursionError):
        return None


def _unambiguous_sql(
    expression: Any, nodes: Sequence[Mapping[str, Any]], semantics: Semantics, zone: ZoneInfo
) -> str | None:
    """The SQL text of an expression; None if the text may mean something other than the expression."""
    if not _all_in_zone(nodes, semantics.timezone) or not _all_in_mode(expression, nodes, semantics.ansi):
        return None
    qualifiers = [_parts(node["qualifier"]) for node in nodes if "qualifier" in node]
    if len(set(qualifiers)) != 1:
        return None
    return _without_prefix(expression.sql(), ".".join(map(_quoted, qualifiers[0])), len(qualifiers), zone)


def _is_builtin(node: Mapping[str, Any]) -> bool:
    package, _, name = node["class"].rpartition(".")
    return package == _PACKAGE and name not in _EXCLUDED


def _all_in_zone(nodes: Sequence[Mapping[str, Any]], timezone: str) -> bool:
    return all(node.get("timeZoneId") in (None, timezone) for node in nodes)


def _all_in_mode(expression: Any, nodes: Sequence[Mapping[str, Any]], ansi: bool) -> bool:
    """Whether all arithmetic and casts have the session's error mode. The JSON lacks the mode, so Java is asked."""
    wanted = "ANSI" if ansi else "LEGACY"
    if any(node.get("failOnError", ansi) is not ansi for node in nodes):
        return False
    with_mode = [number for number, node in enumerate(nodes) if "evalMode" in node or "evalContext" in node]
    if len(with_mode) > _MOST_LOOKUPS:
        return False
    for number in with_mode:
        node = expression.apply(number)
        if node.getClass().getName() != nodes[number]["class"]:
            return False
        if "evalContext" in nodes[number]:
            mode = node.evalContext().evalMode().toString()
        else:
            mode = node.evalMode().toString()
            if mode == "TRY" and nodes[number]["class"] == f"{_PACKAGE}.Cast":
                continue  # printed as TRY_CAST
        if mode != wanted:
            return False
    return True


def _without_prefix(text: str, prefix: str, names: int, zone: ZoneInfo) -> str | None:
    """The text without the prefix of its ``names`` column references; None if the text is ambiguous.

    >>> _without_prefix("(a.s = 'a.b')", "a", 1, ZoneInfo("UTC"))
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
    """The parts of a column's qualifier. In the JSON, an empty one is a list and any other is a string.

    >>> _parts("[spark_catalog, default, t]"), _parts([])
    (('spark_catalog', 'default', 't'), ())
    """
    return tuple(qualifier[1:-1].split(", ")) if isinstance(qualifier, str) else tuple(qualifier)


def _quoted(part: str) -> str:
    """A part of a qualified name as Spark prints it."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", part)
    return part if plain else identifier(part, dialect="spark")


def _is_one_instant(literal: str, zone: ZoneInfo) -> bool:
    """Whether a local time is one instant in the zone: False in the hour when clocks go back or forward."""
    try:
        local = datetime.fromisoformat(literal)
    except ValueError:  # a year after 9999
        return False
    first, second = local.replace(tzinfo=zone, fold=0), local.replace(tzinfo=zone, fold=1)
    return local.tzinfo is None and first.utcoffset() == second.utcoffset()
