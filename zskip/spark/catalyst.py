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

What ranges do not decide, such as ``upper(s) = 'DE'``, Catalyst itself evaluates in the driver, for units that hold few
values. That uses the expression and not its text, so all of these details are Spark's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import Schema, identifier, join_path
from zskip.errors import SchemaError, ZskipError
from zskip.language import Predicate, conjunction, tree
from zskip.language.tree import Computable, Opaque, Reference, Why
from zskip.spark.jvm import Jvm, elements
from zskip.spark.spark_session import Semantics, clocks_of, same_in_spark
from zskip.spark.spark_types import arrow_schema

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

    ``expressions``: Java objects. Those that can neither be bound nor evaluated are left out, which keeps more files;
    the predicate is None if all are.
    """
    semantics = jvm.semantics()
    found, is_equivalent = [], True
    for expression in expressions:
        nodes = json.loads(expression.toJSON())
        bound = usable = None
        if all(_is_builtin(node) for node in nodes):
            bound = _bound(expression, nodes, schema, semantics, jvm)
            usable = None if bound is None else same_in_spark(bound, schema)
            is_whole = bound is None or (usable is not None and len(usable.conjuncts) == len(bound.conjuncts))
            if is_whole and (bound is None or tree.has_call_or_opaque(bound.tree)):
                usable = _with_evaluation(expression, nodes, bound, schema, semantics, jvm)
        is_equivalent &= bound is not None and usable is not None and len(usable.conjuncts) == len(bound.conjuncts)
        if usable is not None:
            found.append(usable)
    return (conjunction(found) if found else None), is_equivalent


def _bound(
    expression: Any, nodes: Sequence[Mapping[str, Any]], schema: Schema, semantics: Semantics, jvm: Jvm
) -> Predicate | None:
    """The predicate of an expression's text; None if it cannot be bound, or may mean something else."""
    text = None if semantics.zone is None else _unambiguous_sql(expression, nodes, semantics)
    if text is None:
        return None
    try:
        return semantics.bind(text, schema, clocks_of(jvm.spark))
    except (ZskipError, RecursionError):
        return None


def _unambiguous_sql(expression: Any, nodes: Sequence[Mapping[str, Any]], semantics: Semantics) -> str | None:
    """The SQL text of an expression; None if the text may mean something other than the expression."""
    if not _all_in_zone(nodes, semantics.timezone) or not _all_in_mode(expression, nodes, semantics.ansi):
        return None
    qualifiers = [_parts(node["qualifier"]) for node in nodes if "qualifier" in node]
    if len(set(qualifiers)) != 1:
        return None
    return _without_prefix(expression.sql(), ".".join(map(_quoted, qualifiers[0])), len(qualifiers))


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


def _without_prefix(text: str, prefix: str, names: int) -> str | None:
    """The text without the prefix of its ``names`` column references; None if the text is ambiguous.

    >>> _without_prefix("(a.s = 'a.b')", "a", 1)
    "(s = 'a.b')"
    """
    pieces: list[str] = []
    done = 0
    for token in _TOKEN.finditer(text):
        if token["string"] is not None:
            continue
        if token["name"].lower() == "collate":
            return None
        if prefix and token["name"].startswith(f"{prefix}."):
            pieces += [text[done : token.start()], token["name"][len(prefix) + 1 :]]
            done = token.end()
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


# Catalyst's own evaluation, for units that hold few values.

_MOST_COLUMNS = 8
# Rows of values that are evaluated for an expression, and in one call. No further call is made once a row raises an
# error: each costs Java a third of a millisecond.
_MOST_VALUES, _TOGETHER = 1 << 14, 1 << 9
_UNKNOWN = -1
# As Spark prints a row with an array of the outcome, or with NULL where the evaluation raises an error.
_OUTCOMES = {"[[true]]": 1, "[[false]]": 0, "[[null]]": 2, "[null]": _UNKNOWN}


def _with_evaluation(
    expression: Any,
    nodes: Sequence[Mapping[str, Any]],
    bound: Predicate | None,
    schema: Schema,
    semantics: Semantics,
    jvm: Jvm,
) -> Predicate | None:
    """The predicate of an expression, which Catalyst evaluates for units that hold few values; ``bound`` if it cannot.

    ``bound``: the predicate of its text, if there is one.
    """
    leaves = sorted(_leaves(nodes))
    columns = [schema.columns[path] for path in map(join_path, leaves) if path in schema.columns]
    if not 0 < len(columns) == len(leaves) <= _MOST_COLUMNS or not expression.deterministic():
        return bound
    if not all(column.orderable for column in columns):  # such as intervals, which have no bounds
        return bound
    references = tuple(Reference(column.path, column.type) for column in columns)
    text = expression.sql()
    paths = tuple(column.path for column in columns)
    part = Opaque(text, paths, Why("only Spark evaluates it")) if bound is None else bound.tree
    evaluate = _Evaluation(jvm, expression, tuple(leaves))
    computable = Computable(part, references, text, semantics.dialect.timezone, evaluate)
    if bound is not None:
        return replace(bound, tree=computable, parts=())
    return same_in_spark(Predicate(text, None, computable, schema, semantics.dialect), schema)


def _leaves(nodes: Sequence[Mapping[str, Any]]) -> set[tuple[str, ...]]:
    """The paths of what an expression reads, in parts: columns, and fields of structs. ``nodes``: parents first.

    >>> struct = {"type": "struct", "fields": [{"name": "a", "type": "integer"}, {"name": "b", "type": "string"}]}
    >>> column = {"class": "AttributeReference", "name": "s", "dataType": struct}
    >>> _leaves([{"class": "IsNull"}, {"class": "GetStructField", "ordinal": 1}, column])
    {('s', 'b')}
    """
    found = set()
    for place, node in enumerate(nodes):
        if not node["class"].endswith("AttributeReference"):
            continue
        parts, type = [node["name"]], node["dataType"]
        while place and nodes[place - 1]["class"].endswith("GetStructField"):
            place -= 1
            field = type["fields"][nodes[place]["ordinal"]]
            parts, type = [*parts, field["name"]], field["type"]
        found.add(tuple(parts))
    return found


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """Evaluates an expression in the driver, by Spark's interpreter and without a job.

    ``leaves``: what it reads, as paths in parts.
    """

    jvm: Jvm
    expression: Any
    leaves: tuple[tuple[str, ...], ...]

    def __call__(self, values: Sequence[pa.Array]) -> np.ndarray | None:
        codes = np.full(len(values[0]), _UNKNOWN, np.int8)
        named = dict(zip(self.leaves, (each.slice(0, _MOST_VALUES) for each in values), strict=True))
        references = self.expression.references().toSeq()
        try:
            relation = self._relation(named, references)
        except (SchemaError, pa.ArrowInvalid, pa.ArrowNotImplementedError):  # not a type of values that zskip has
            return None
        outcome = self._outcome(references)
        done, groups = 0, relation.data().grouped(_TOGETHER)
        while groups.hasNext():
            found = self._evaluated(outcome, relation, groups.next())
            if found is None:
                return None
            codes[done : done + len(found)] = found
            if _UNKNOWN in found:
                break
            done += len(found)
        return codes

    def _outcome(self, references: Any) -> Any:
        """The expression as a column of `_OUTCOMES`, so that an error of one row does not end the call to Java."""
        jvm, expressions = self.jvm, "org.apache.spark.sql.catalyst.expressions"
        attributes = jvm.class_(f"{expressions}.package$AttributeSeq")(references)
        condition = jvm.static(f"{expressions}.BindReferences", "bindReference")(self.expression, attributes, False)
        # The array tells an outcome of NULL from an error, which TryEval makes NULL.
        outcome = jvm.class_(f"{expressions}.CreateArray")(jvm.seq([condition]), False)
        return jvm.class_(f"{expressions}.Alias")(
            jvm.class_(f"{expressions}.TryEval")(outcome),
            "outcome",
            jvm.static(f"{expressions}.NamedExpression", "newExprId")(),
            jvm.empty_seq,
            jvm.class_("scala.Option").empty(),
            jvm.empty_seq,
        )

    def _evaluated(self, outcome: Any, relation: Any, rows: Any) -> list[int] | None:
        """The outcomes of some rows of a relation; None if only a job can compute them."""
        jvm, catalyst = self.jvm, "org.apache.spark.sql.catalyst"
        some = relation.copy(relation.output(), rows, relation.isStreaming(), relation.stream())
        project = jvm.class_(f"{catalyst}.plans.logical.Project")(jvm.seq([outcome]), some)
        done = jvm.static(f"{catalyst}.optimizer.ConvertToLocalRelation", "apply")(project)
        if done.getClass().getSimpleName() != "LocalRelation":
            return None
        return [_OUTCOMES[row] for row in done.data().mkString(",").split(",")]

    def _relation(self, values: Mapping[tuple[str, ...], pa.Array], references: Any) -> Any:
        """Spark's ``LocalRelation`` of these values, with the references' types. Fields that are not read are NULL."""
        from pyspark.sql.types import StructType

        fields = [
            {"name": each.name(), "type": json.loads(each.dataType().json()), "nullable": True, "metadata": {}}
            for each in elements(references)
        ]
        types = StructType.fromJson({"type": "struct", "fields": fields})
        schema = arrow_schema(types)
        columns = [_column(values, (field.name,), field.type) for field in schema]
        rows = self.jvm.spark.createDataFrame(pa.Table.from_arrays(columns, schema=schema), types)
        return rows._jdf.queryExecution().analyzed()


def _column(values: Mapping[tuple[str, ...], pa.Array], path: tuple[str, ...], type: pa.DataType) -> pa.Array:
    """A column of values, or a struct with those of its leaves."""
    if path in values:
        return values[path].cast(type)
    if t.is_struct(type):
        fields = list(type)
        return pa.StructArray.from_arrays([_column(values, (*path, f.name), f.type) for f in fields], fields=fields)
    return pa.nulls(len(next(iter(values.values()))), type)
