"""Conditions on columns, built of values with DuckDB's meaning, for the front ends whose expressions are no SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from zskip.binder.leaf_binder import computable
from zskip.binder.predicates.comparisons import among
from zskip.core import types as t
from zskip.core.schema import Schema, identifier
from zskip.language import patterns, tree
from zskip.language.bound import Dialect, Predicate
from zskip.language.literals import Refused, compare_fitted, constant, fit, listed, plain_value, unified
from zskip.language.patterns import and_of_known, contains_conditions
from zskip.language.render import literal
from zskip.language.tree import Node, Opaque, Reference, Why

_DUCKDB = Dialect()


class Unread(Exception):
    """A part of an expression that is not converted, as its library prints it; without text if it is not known."""


def predicate(node: Node, schema: Schema) -> Predicate:
    """A condition as a predicate, whose SQL is rendered when it is asked for."""
    return Predicate(None, None, node, schema, _DUCKDB)


def printed(expression: object) -> str | None:
    """An expression as its library prints it; None if pyarrow has cut a long list in the middle of a character."""
    try:
        return str(expression)
    except UnicodeDecodeError:
        return None


def compared(schema: Schema, op: str, column: Reference, value: Any) -> Node:
    """``column op value``; opaque if zskip might compare them otherwise than DuckDB."""
    try:
        return compare_fitted(op, column, fit(constant(plain_value(value)), column.type, "duckdb", "UTC"))
    except Refused as refusal:
        return unproved(schema, f"{_name(schema, column)} {op} {literal(value, 'duckdb')}", column, refusal.why)


def listed_in(schema: Schema, column: Reference, values: Sequence[Any] | pa.Array) -> Node:
    """``column IN values``, none of which is NULL."""
    if isinstance(values, pa.Array) and values.type == column.type:
        return tree.in_(column, values)
    plain = listed(values)
    if isinstance(plain, pa.Array):
        same = column.type == plain.type or (t.is_integer(column.type) and t.is_integer(plain.type))
        if same and not t.is_floating(plain.type):
            return among(column, plain)
    try:
        fits = [
            fit(each, column.type, "duckdb", "UTC")
            for each in unified([constant(each) for each in _each(plain)], column.type)
        ]
    except Refused as refusal:
        return unproved(schema, f"{_name(schema, column)} IN {literal(values, 'duckdb')}", column, refusal.why)
    return tree.in_(
        column, pa.array([each.floor for each in fits if each.exact and each.floor is not None], column.type)
    )


def _each(values: pa.Array | list[Any]) -> list[Any]:
    return values if isinstance(values, list) else [plain_value(each) for each in values]


def text_test(schema: Schema, function: str, column: Reference, text: str) -> Node:
    """``starts_with``, ``ends_with`` or ``contains``."""
    if function == "starts_with":
        return patterns.starts_with(column, text)
    pieces = [text] if len(text) <= patterns.MAX_CHARACTERS else []
    implies = and_of_known(contains_conditions(column, pieces, any_case=False)) or tree.always(column)
    sql = f"{function}({_name(schema, column)}, {literal(text, 'duckdb')})"
    return unproved(schema, sql, column, patterns.NO_LITERAL_PREFIX, implies)


def unproved(schema: Schema, sql: str, column: Reference, why: Why, implies: Node | None = None) -> Node:
    """A condition on one column that ranges cannot decide, which DuckDB may evaluate."""
    node = Opaque(sql, (column.path,), why, implies, strict=implies is not None)
    return computable(schema, _DUCKDB, node, lambda: sql)


def _name(schema: Schema, column: Reference) -> str:
    return identifier(*schema.columns[column.path].parts)
