"""Convert pyarrow's expressions to DuckDB's SQL, from their Substrait form.

The SQL keeps Arrow's meaning: NaN is unequal to everything and not greater, and IS IN is never NULL. Casts, arithmetic,
and unsigned and nanosecond columns are not supported.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.language.sql_literals import identifier, literal

__all__ = ["conjuncts"]

Message: TypeAlias = "dict[int, list[Any]]"
"""A protobuf message: the values of each field, by field number. They are integers, or bytes for any other type."""

# Field numbers of Substrait's messages: substrait-io/substrait, proto/substrait.
_DECLARATIONS, _REFERRED = 2, 3
_EXPRESSION_OF_REFERENCE = 1
_LITERAL, _SELECTION, _CALL, _IF_THEN, _IN_LIST = 1, 2, 3, 6, 8
_ANCHOR, _OPTIONS, _ARGUMENTS = 1, 5, 4
_COMPARISONS = {"equal": "=", "not_equal": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TEXT_TESTS = {"starts_with", "ends_with", "contains"}
_EPOCH = datetime(1970, 1, 1)


class _Unsupported(Exception):
    """A part of the expression that is not converted."""


def conjuncts(expression: pc.Expression, schema: Schema) -> list[str | None]:
    """The conjuncts of an expression as SQL, with None for each that cannot be converted."""
    try:
        message = _message(bytes(expression.to_substrait(schema.arrow)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return [None]
    names = dict(_functions(message))
    root = _field(_message(_field(message, _REFERRED)), _EXPRESSION_OF_REFERENCE)
    try:
        printed = str(expression)
    except UnicodeDecodeError:  # pyarrow cuts long lists in the middle of a character
        return [None]
    # Only the printed form shows how is_in treats NULL; the message does not.
    nulls_match = "null_matching_behavior=" not in printed.replace("null_matching_behavior=MATCH", "")
    return list(_parts(_message(root), _Converter(schema, names, nulls_match)))


def _functions(message: Message) -> Iterator[tuple[int, str]]:
    for declared in message.get(_DECLARATIONS, ()):
        for function in _message(declared).get(3, ()):
            fields = _message(function)
            yield _field(fields, 2, 0), _field(fields, 3).decode()


def _parts(node: Message, converter: _Converter) -> Iterator[str | None]:
    try:
        name, arguments = converter.call(node)
        text = None if name == "and" else converter.condition(node)
    except _Unsupported:
        yield None
        return
    if text is not None:
        yield text
        return
    for argument in arguments:
        yield from _parts(argument, converter)


class _Converter:
    """Converts one expression over one schema.

    ``names``: its functions, by their anchors in the message · ``nulls_match``: whether NULL is a value to each is_in.
    """

    def __init__(self, schema: Schema, names: Mapping[int, str], nulls_match: bool) -> None:
        self.schema, self.names, self.nulls_match = schema, names, nulls_match

    def call(self, node: Message) -> tuple[str | None, list[Message]]:
        """The function's name and the arguments of a call; the name is None for other expressions."""
        if _CALL not in node:
            return None, []
        fields = _message(_field(node, _CALL))
        arguments = [_message(_field(_message(one), 3)) for one in fields.get(_ARGUMENTS, ())]
        options = {_field(_message(one), 1).decode(): _field(_message(one), 2) for one in fields.get(_OPTIONS, ())}
        if options.get("case_sensitivity", b"CASE_SENSITIVE") != b"CASE_SENSITIVE":
            raise _Unsupported
        return self.names[_field(fields, _ANCHOR, 0)], arguments

    def condition(self, node: Message) -> str:
        """A boolean expression as SQL."""
        if _SELECTION in node:
            name, type = self.column(node)
            if t.is_boolean(type):
                return name
        if _LITERAL in node:
            value = _literal(_message(_field(node, _LITERAL)))
            if value is None or isinstance(value, bool):
                return literal(value, "duckdb")
        if _IN_LIST in node:
            return self.membership(_message(_field(node, _IN_LIST)))
        if _IF_THEN in node:
            return self.choice(_message(_field(node, _IF_THEN)))
        function, arguments = self.call(node)
        match function:
            case "and" | "or":
                return "(" + f" {function.upper()} ".join(map(self.condition, arguments)) + ")"
            case "not":
                return f"(NOT {self.condition(arguments[0])})"
            case "is_null":
                return f"({self.column(arguments[0])[0]} IS NULL)"
            case "is_not_null":
                return f"({self.column(arguments[0])[0]} IS NOT NULL)"
            case "is_nan":
                return f"isnan({self.column(arguments[0])[0]})"
        if function in _COMPARISONS:
            return self.comparison(_COMPARISONS[function], *arguments)
        if function in _TEXT_TESTS:
            name, type = self.column(arguments[0])
            text = self.constant(arguments[1], type)
            if t.is_string(type):
                return f"{function}({name}, {text})"
        raise _Unsupported

    def comparison(self, operator: str, left: Message, right: Message) -> str:
        if _LITERAL in left:
            left, right, operator = right, left, _MIRRORED[operator]
        name, type = self.column(left)
        if _SELECTION in right:
            other, other_type = self.column(right)
            if other_type != type or t.is_floating(type):
                raise _Unsupported
            return f"({name} {operator} {other})"
        sql = f"({name} {operator} {self.constant(right, type)})"
        # In DuckDB, NaN is greater than every number.
        return f"({sql} AND NOT isnan({name}))" if t.is_floating(type) and operator in (">", ">=") else sql

    def membership(self, node: Message) -> str:
        """Arrow's IS IN, to which NULL is a value like any other."""
        name, type = self.column(_message(_field(node, 1)))
        options = [_message(one) for one in node.get(2, ())]
        values = [_literal(_message(_field(one, _LITERAL))) for one in options]
        if None in values and not self.nulls_match:
            raise _Unsupported
        given = [(one, value) for one, value in zip(options, values, strict=True) if value is not None]
        # Arrow's is_in tells -0.0 from 0.0, unlike its comparisons.
        zeros = {math.copysign(1, value) for _, value in given if t.is_floating(type) and value == 0}
        tests = [f"({name} = 0 AND {'NOT ' if sign > 0 else ''}signbit({name}))" for sign in sorted(zeros)]
        constants = [self.constant(one, type) for one, value in given if not zeros or value != 0]
        tests += [f"{name} IN ({', '.join(constants)})"] if constants else []
        sql = " OR ".join(tests) or "FALSE"
        return f"({sql} OR {name} IS NULL)" if None in values else f"(({sql}) AND {name} IS NOT NULL)"

    def choice(self, node: Message) -> str:
        """if_else, which DuckDB puts around its IN. Unlike CASE, it is NULL where its condition is."""
        clauses = [_message(one) for one in node.get(1, ())]
        if len(clauses) != 1:
            raise _Unsupported
        test, then, otherwise = (
            self.condition(_message(part)) for part in (_field(clauses[0], 1), _field(clauses[0], 2), _field(node, 2))
        )
        return f"(CASE WHEN {test} THEN {then} WHEN NOT ({test}) THEN {otherwise} END)"

    def column(self, node: Message) -> tuple[str, pa.DataType]:
        """A column's quoted name and its type."""
        if _SELECTION not in node:
            raise _Unsupported
        step = _message(_field(_message(_field(node, _SELECTION)), 1, b""))
        fields: Any = list(self.schema.arrow)
        names = []
        while 2 in step:
            inner = _message(_field(step, 2))
            field = fields[_field(inner, 1, 0)]
            names.append(identifier(field.name))
            if 2 not in inner:
                return ".".join(names), field.type
            step = _message(_field(inner, 2))
            fields = list(field.type)
        raise _Unsupported

    def constant(self, node: Message, type: pa.DataType) -> str:
        """A constant as SQL of the column's type."""
        if _LITERAL not in node:
            raise _Unsupported
        value = _literal(_message(_field(node, _LITERAL)))
        if isinstance(value, float) and value != value:
            raise _Unsupported
        if t.is_float32(type) and isinstance(value, float):
            return f"CAST('{value!r}' AS FLOAT)"
        return literal(value, "duckdb")


def _literal(fields: Message) -> Any:
    """The value of a literal message; None for NULL."""
    (number, (value, *_)) = next((item for item in fields.items() if item[0] in _LITERALS), (0, (None,)))
    if number not in _LITERALS:
        raise _Unsupported
    return _LITERALS[number](value)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _decimal(data: bytes) -> Decimal:
    fields = _message(data)
    return t.decimal_of(int.from_bytes(_field(fields, 1), "little", signed=True), _field(fields, 3, 0))


def _user_defined(data: bytes) -> str:
    """A large_string, for which Substrait has no type."""
    wrapped = _message(_field(_message(data), 2))
    if _field(wrapped, 1) != b"type.googleapis.com/google.protobuf.StringValue":
        raise _Unsupported
    text: str = _field(_message(_field(wrapped, 2)), 1, b"").decode()
    return text


def _timestamp(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=_signed(value))


_LITERALS: dict[int, Callable[[Any], Any]] = {
    1: bool,
    2: _signed,
    3: _signed,
    5: _signed,
    7: _signed,
    10: lambda data: struct.unpack("<f", data)[0],
    11: lambda data: struct.unpack("<d", data)[0],
    12: lambda data: data.decode(),
    13: bytes,
    14: _timestamp,
    16: lambda value: date(1970, 1, 1) + timedelta(days=_signed(value)),
    24: _decimal,
    27: lambda value: _timestamp(value).replace(tzinfo=UTC),
    29: lambda _: None,
    33: _user_defined,
}


def _field(fields: Message, number: int, default: Any = None) -> Any:
    """The last value of a field. Raises `_Unsupported` if it is missing and there is no default."""
    values = fields.get(number)
    if values is None and default is None:
        raise _Unsupported
    return default if values is None else values[-1]


def _message(data: bytes) -> Message:
    """Decodes the fields of a protobuf message.

    >>> _message(bytes([8, 150, 1, 18, 2, 104, 105]))
    {1: [150], 2: [b'hi']}
    """
    fields: Message = {}
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while position < len(data):
        key = varint()
        if key & 7 == 0:
            value: Any = varint()
        else:
            length = {1: 8, 5: 4}.get(key & 7) or varint()
            value = data[position : position + length]
            position += length
        fields.setdefault(key >> 3, []).append(value)
    return fields
