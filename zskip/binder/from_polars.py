"""Bind polars' expressions, from their JSON form.

Both have three-valued logic, and to both NaN is the greatest number and equals itself. Constants are compared in the
column's type, to which polars casts them; a part in which that would change a value is not bound.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from zskip.binder.typed_conditions import Unread, compared, listed_in, text_test
from zskip.core import types as t
from zskip.core.schema import Schema, join_path, unknown_column
from zskip.language import tree
from zskip.language.tree import Node, Reference

_COMPARISONS = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_LOGIC = {"And": "AND", "LogicalAnd": "AND", "Or": "OR", "LogicalOr": "OR"}
_BETWEEN = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_TEXT_TESTS = {"StartsWith": "starts_with", "EndsWith": "ends_with"}
_INTEGERS = frozenset(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_EXACT_IN_DOUBLES, _EXACT_IN_FLOATS = 1 << 53, 1 << 24
_TEXT_OR_BOOLEAN = {"String": (t.is_string, t.is_dictionary), "Boolean": (t.is_boolean,)}
_MICROSECONDS_A_DAY = 86_400_000_000
_UNITS = {"Milliseconds": ("ms", 1_000), "Microseconds": ("us", 1)}


def conjuncts(expression: Any, schema: Schema) -> list[Node | Unread]:
    """The conjuncts of an expression, with `Unread` for each that cannot be bound. Raises `UnknownColumn`."""
    for name in expression.meta.root_names():
        if name not in schema.arrow.names:
            raise unknown_column(join_path([name]), tuple(schema.columns))
    try:
        return list(_parts(json.loads(expression.meta.serialize(format="json")), schema))
    except RecursionError:
        return [Unread()]


def _parts(node: Any, schema: Schema) -> Iterator[Node | Unread]:
    kind, body = _tagged(node)
    if kind == "BinaryExpr" and _LOGIC.get(body["op"]) == "AND":
        yield from _parts(body["left"], schema)
        yield from _parts(body["right"], schema)
        return
    try:
        yield _condition(node, schema)
    except Unread as part:
        yield part


def _tagged(node: Any) -> tuple[str, Any]:
    """The tag and the content of a tagged JSON value; the tag is empty for other values."""
    if not isinstance(node, dict) or len(node) != 1:
        return "", node
    return next(iter(node.items()))


def _condition(node: Any, schema: Schema) -> Node:
    """A boolean expression. Raises `Unread` with the innermost one that is not read."""
    try:
        return _read(node, schema)
    except (Unread, KeyError, IndexError, TypeError, AttributeError) as part:
        # The JSON is internal to polars, and its form may change between releases.
        raise part if isinstance(part, Unread) and part.args else Unread(_printed(node)) from None


def _printed(node: Any) -> str:
    """An expression as polars prints it; empty if it nests too deep for polars to read it."""
    import polars as pl

    try:
        return str(pl.Expr.deserialize(json.dumps(node).encode(), format="json"))
    except pl.exceptions.ComputeError:
        return ""


def _read(node: Any, schema: Schema) -> Node:
    kind, body = _tagged(node)
    if kind == "BinaryExpr":
        left, right, operator = body["left"], body["right"], body["op"]
        if operator in _LOGIC:
            combine = tree.and_ if _LOGIC[operator] == "AND" else tree.or_
            return combine([_condition(left, schema), _condition(right, schema)])
        if operator in _COMPARISONS:
            return _comparison(_COMPARISONS[operator], left, right, schema)
    if kind == "Function":
        return _call(body["input"], body["function"], schema)
    if kind == "Literal" and isinstance(body.get("Scalar", {}).get("Boolean"), bool):
        return tree.and_([]) if body["Scalar"]["Boolean"] else tree.or_([])
    column, type = _column(node, schema)
    if t.is_boolean(type):
        return tree.is_true(column)
    raise Unread


def _comparison(operator: str, left: Any, right: Any, schema: Schema) -> Node:
    left, right = _folded(left), _folded(right)
    if _tagged(left)[0] == "Literal":
        left, right, operator = right, left, tree.MIRRORED[operator]
    column, type = _column(left, schema)
    if t.is_dictionary(type) and operator not in ("=", "<>"):
        raise Unread  # A categorical may be ordered by its categories.
    if _tagged(right)[0] == "Literal":
        return compared(schema, operator, column, _constant(right, type))
    other, other_type = _column(right, schema)
    if other_type != type or other.type != column.type:
        raise Unread
    return tree.compare(operator, column, other)


def _call(arguments: list[Any], function: Any, schema: Schema) -> Node:
    family, which = _tagged(function)
    if family == "Boolean":
        match which:
            case "Not":
                return tree.not_(_condition(arguments[0], schema))
            case "IsNull":
                return tree.IsNull(_column(arguments[0], schema)[0])
            case "IsNotNull":
                return tree.not_(tree.IsNull(_column(arguments[0], schema)[0]))
            case "IsNan":
                return tree.is_nan(_floating(arguments[0], schema))
            case "IsNotNan":
                return tree.not_(tree.is_nan(_floating(arguments[0], schema)))
        name, options = _tagged(which)
        if name == "IsBetween":
            column, type = _column(arguments[0], schema)
            if t.is_dictionary(type):
                raise Unread
            bounds = [_constant(bound, type) for bound in arguments[1:]]
            sides = zip(_BETWEEN[options["closed"]], bounds, strict=True)
            return tree.and_([compared(schema, operator, column, bound) for operator, bound in sides])
        if name == "IsIn" and not options["nulls_equal"]:
            return _membership(arguments[0], arguments[1], schema)
    if family == "StringExpr":
        test = _text_test(which)
        column, type = _column(arguments[0], schema)
        text = _tagged(arguments[1])[1].get("Scalar", {}).get("String")
        if test is not None and text is not None and t.is_string(type):
            return text_test(schema, test, column, text)
    raise Unread


def _floating(node: Any, schema: Schema) -> Reference:
    column, type = _column(node, schema)
    if not t.is_floating(type):
        raise Unread
    return column


def _text_test(which: Any) -> str | None:
    if isinstance(which, str):
        return _TEXT_TESTS.get(which)
    name, options = _tagged(which)
    return "contains" if name == "Contains" and options["literal"] else None


def _membership(subject: Any, list_: Any, schema: Schema) -> Node:
    column, type = _column(subject, schema)
    data = _tagged(list_)[1].get("Scalar", {}).get("List")
    if data is None:
        raise Unread
    try:
        values = pa.ipc.open_stream(bytes(data)).read_all().column(0).combine_chunks()
    except pa.ArrowNotImplementedError as error:  # of integers of 128 bits, as which polars lists those beyond 64
        raise Unread from error
    values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
    plain = values.cast(pa.string()) if t.is_large_string(values.type) or t.is_string_view(values.type) else values
    plain = plain.drop_null()  # To is_in, NULL in the list equals nothing, and is not unknown.
    if not len(plain):
        return tree.never(column)
    if plain.type != t.value_type(type) and not (t.is_integer(plain.type) and t.is_integer(type)):
        raise Unread
    return listed_in(schema, column, plain)


def _column(node: Any, schema: Schema) -> tuple[Reference, pa.DataType]:
    """A column, and its type as polars reads it."""
    names, type = _path(node, schema)
    found = schema.columns.get(join_path(names))
    if found is None:
        raise Unread
    return Reference(found.path, found.type), type


def _path(node: Any, schema: Schema) -> tuple[list[str], pa.DataType]:
    kind, body = _tagged(node)
    if kind == "Column" and body in schema.arrow.names:
        type = schema.arrow.field(body).type
        return [body], pa.string() if t.is_large_string(type) or t.is_string_view(type) else type
    if kind == "Function" and _tagged(body["function"])[0] == "StructExpr":
        which, field = _tagged(body["function"]["StructExpr"])
        names, type = _path(body["input"][0], schema)
        if which == "FieldByName" and t.is_struct(type):
            if type.get_field_index(field) < 0:
                raise unknown_column(join_path([*names, field]), tuple(schema.columns))
            return [*names, field], type.field(field).type
    raise Unread


def _folded(node: Any) -> Any:
    """The literal that a constant such as ``pl.date(2024, 2, 29)`` stands for; any other node as it is."""
    kind, body = _tagged(node)
    if kind == "Alias":
        inner = _folded(body[0])
        return inner if _tagged(inner)[0] == "Literal" else node
    if kind == "Cast" and body["dtype"] == {"Literal": "Date"}:
        name, value = _tagged(_tagged(_folded(body["expr"]))[1].get("Scalar"))
        if name == "Datetime" and value[1:] == ["Microseconds", None]:
            return {"Literal": {"Scalar": {"Date": value[0] // _MICROSECONDS_A_DAY}}}
    return node


def _constant(node: Any, type: pa.DataType) -> Any:
    """The value of a literal, if polars compares it with a column of this type without changing its value."""
    kind, body = _tagged(_folded(node))
    if kind != "Literal":
        raise Unread
    form, tagged = _tagged(body)
    name, value = _tagged(tagged)
    if form not in ("Dyn", "Scalar") or value is None or value == "Null":
        raise Unread
    if (form == "Dyn" and name == "Int") or name in _INTEGERS:
        if t.is_integer(type):
            return int(value)
        exact = _EXACT_IN_FLOATS if t.is_float32(type) else _EXACT_IN_DOUBLES
        if (t.is_float64(type) or t.is_float32(type)) and abs(int(value)) < exact:
            return int(value)
    elif name in ("Float", "Float64"):
        if t.is_float64(type) or (t.is_integer(type) and abs(value) < _EXACT_IN_DOUBLES):
            return float(value)
    elif name in _TEXT_OR_BOOLEAN and any(holds(type) for holds in _TEXT_OR_BOOLEAN[name]):
        return value
    elif name == "Binary" and (t.is_binary(type) or t.is_large_binary(type)):
        return bytes(value)
    elif name == "Date" and t.is_date32(type):
        return date(1970, 1, 1) + timedelta(days=value)
    elif name == "Decimal" and t.is_decimal128(type) and value[2] <= type.scale:
        return t.decimal_of(value[0], value[2])
    elif name == "Datetime" and t.is_timestamp(type):
        ticks, unit, zone = value
        return _timestamp(ticks, unit, zone, type)
    raise Unread


def _timestamp(ticks: int, unit: str, zone: Any, type: pa.DataType) -> datetime:
    """A timestamp, if polars compares it with the column without a loss of precision."""
    name, micros = _UNITS.get(unit, ("", 0))
    if not micros or type.unit not in ("ms", "us") or (zone is None) != (type.tz is None):
        raise Unread
    if type.unit == "ms" and ticks * micros % 1_000:
        raise Unread
    if type.unit != name and type.unit != "ms":
        raise Unread
    moment = datetime(1970, 1, 1) + timedelta(microseconds=ticks * micros)
    return moment if zone is None else moment.replace(tzinfo=UTC)
