"""pyarrow's expressions as DuckDB's SQL, read from their Substrait form.

The text has Arrow's meaning: NaN is unequal to everything and not greater, and IS IN is never NULL. What is not in the
tables here is not read: casts, arithmetic, unsigned and nanosecond columns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from zskip import types as t
from zskip.expr.sql_literals import identifier, literal
from zskip.schema import Schema

__all__ = ["conjuncts"]

Message: TypeAlias = "dict[int, list[Any]]"
"""A message of protobuf by the numbers of its fields: integers, and bytes for all else."""

# The fields of Substrait's messages that are read here, by number: substrait-io/substrait, proto/substrait.
_DECLARATIONS, _REFERRED = 2, 3
_EXPRESSION_OF_REFERENCE = 1
_LITERAL, _SELECTION, _CALL, _IF_THEN, _IN_LIST = 1, 2, 3, 6, 8
_ANCHOR, _OPTIONS, _ARGUMENTS = 1, 5, 4
_COMPARISONS = {"equal": "=", "not_equal": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TEXT_TESTS = {"starts_with": "starts_with", "ends_with": "ends_with", "contains": "contains"}
_EPOCH = datetime(1970, 1, 1)


class _Unread(Exception):
    """A part that is not in the tables here."""


def conjuncts(expression: pc.Expression, schema: Schema) -> list[str | None]:
    """The conjuncts of an expression as SQL; None for one that cannot be said."""
    try:
        message = _message(bytes(expression.to_substrait(schema.arrow)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return [None]
    names = dict(_functions(message))
    root = _one(_message(_one(message, _REFERRED)), _EXPRESSION_OF_REFERENCE)
    try:
        printed = str(expression)
    except UnicodeDecodeError:  # pyarrow cuts long lists in the middle of a character
        return [None]
    # The message does not say how is_in treats NULL, only the expression's text does.
    nulls_match = "null_matching_behavior=" not in printed.replace("null_matching_behavior=MATCH", "")
    return list(_parts(_message(root), _Reading(schema, names, nulls_match)))


def _functions(message: Message) -> Iterator[tuple[int, str]]:
    for declared in message.get(_DECLARATIONS, ()):
        for function in _message(declared).get(3, ()):
            fields = _message(function)
            yield _one(fields, 2, 0), _one(fields, 3).decode()


def _parts(node: Message, reading: _Reading) -> Iterator[str | None]:
    try:
        name, arguments = reading.call(node)
        text = None if name == "and" else reading.text(node)
    except _Unread:
        yield None
        return
    if text is not None:
        yield text
        return
    for argument in arguments:
        yield from _parts(argument, reading)


class _Reading:
    """One expression over one schema.

    ``names``: its functions, by the numbers that the message gives them · ``nulls_match``: in every is_in.
    """

    def __init__(self, schema: Schema, names: Mapping[int, str], nulls_match: bool) -> None:
        self.schema, self.names, self.nulls_match = schema, names, nulls_match

    def call(self, node: Message) -> tuple[str | None, list[Message]]:
        """The name of a call and its arguments; None for what is no call."""
        if _CALL not in node:
            return None, []
        fields = _message(_one(node, _CALL))
        arguments = [_message(_one(_message(one), 3)) for one in fields.get(_ARGUMENTS, ())]
        options = {_one(_message(one), 1).decode(): _one(_message(one), 2) for one in fields.get(_OPTIONS, ())}
        if options.get("case_sensitivity", b"CASE_SENSITIVE") != b"CASE_SENSITIVE":
            raise _Unread
        return self.names[_one(fields, _ANCHOR, 0)], arguments

    def text(self, node: Message) -> str:
        """A condition as SQL."""
        if _SELECTION in node:
            name, type = self.column(node)
            if t.is_boolean(type):
                return name
        if _LITERAL in node:
            value = _literal(_message(_one(node, _LITERAL)))
            if value is None or isinstance(value, bool):
                return literal(value, "duckdb")
        if _IN_LIST in node:
            return self.membership(_message(_one(node, _IN_LIST)))
        if _IF_THEN in node:
            return self.choice(_message(_one(node, _IF_THEN)))
        name_, arguments = self.call(node)
        match name_:
            case "and" | "or":
                return "(" + f" {name_.upper()} ".join(map(self.text, arguments)) + ")"
            case "not":
                return f"(NOT {self.text(arguments[0])})"
            case "is_null":
                return f"({self.column(arguments[0])[0]} IS NULL)"
            case "is_not_null":
                return f"({self.column(arguments[0])[0]} IS NOT NULL)"
            case "is_nan":
                return f"isnan({self.column(arguments[0])[0]})"
        if name_ in _COMPARISONS:
            return self.comparison(_COMPARISONS[name_], *arguments)
        if name_ in _TEXT_TESTS:
            name, type = self.column(arguments[0])
            text = self.constant(arguments[1], type)
            if t.is_string(type):
                return f"{_TEXT_TESTS[name_]}({name}, {text})"
        raise _Unread

    def comparison(self, operator: str, left: Message, right: Message) -> str:
        if _LITERAL in left:
            left, right, operator = right, left, _MIRRORED[operator]
        name, type = self.column(left)
        if _SELECTION in right:
            other, its_type = self.column(right)
            if its_type != type or t.is_floating(type):
                raise _Unread
            return f"({name} {operator} {other})"
        found = f"({name} {operator} {self.constant(right, type)})"
        # To DuckDB, NaN is greater than every number.
        return f"({found} AND NOT isnan({name}))" if t.is_floating(type) and operator in (">", ">=") else found

    def membership(self, node: Message) -> str:
        """IS IN of Arrow's: NULL is a value as any other."""
        name, type = self.column(_message(_one(node, 1)))
        options = [_message(one) for one in node.get(2, ())]
        values = [_literal(_message(_one(one, _LITERAL))) for one in options]
        if None in values and not self.nulls_match:
            raise _Unread
        constants = [self.constant(one, type) for one, value in zip(options, values, strict=True) if value is not None]
        held = f"{name} IN ({', '.join(constants)})" if constants else "FALSE"
        return f"({held} OR {name} IS NULL)" if None in values else f"({held} AND {name} IS NOT NULL)"

    def choice(self, node: Message) -> str:
        """if_else, in which DuckDB wraps its IN. Unlike CASE it is NULL where its condition is."""
        clauses = [_message(one) for one in node.get(1, ())]
        if len(clauses) != 1:
            raise _Unread
        test, then, otherwise = (
            self.text(_message(part)) for part in (_one(clauses[0], 1), _one(clauses[0], 2), _one(node, 2))
        )
        return f"(CASE WHEN {test} THEN {then} WHEN NOT ({test}) THEN {otherwise} END)"

    def column(self, node: Message) -> tuple[str, pa.DataType]:
        """A column's name in SQL, and its type."""
        if _SELECTION not in node:
            raise _Unread
        step = _message(_one(_message(_one(node, _SELECTION)), 1, b""))
        fields: Any = list(self.schema.arrow)
        names = []
        while 2 in step:
            inner = _message(_one(step, 2))
            field = fields[_one(inner, 1, 0)]
            names.append(identifier(field.name))
            if 2 not in inner:
                return ".".join(names), field.type
            step = _message(_one(inner, 2))
            fields = list(field.type)
        raise _Unread

    def constant(self, node: Message, type: pa.DataType) -> str:
        """A constant as SQL of the column's type."""
        if _LITERAL not in node:
            raise _Unread
        value = _literal(_message(_one(node, _LITERAL)))
        if isinstance(value, float) and value != value:
            raise _Unread
        if t.is_float32(type) and isinstance(value, float):
            return f"CAST('{value!r}' AS FLOAT)"
        return literal(value, "duckdb")


def _literal(fields: Message) -> Any:
    """The value of a literal. Integers and times are kept as unsigned numbers."""
    (number, (value, *_)) = next((item for item in fields.items() if item[0] in _LITERALS), (0, (None,)))
    if number not in _LITERALS:
        raise _Unread
    return _LITERALS[number](value)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _decimal(data: bytes) -> Decimal:
    fields = _message(data)
    with localcontext(prec=38):
        return Decimal(int.from_bytes(_one(fields, 1), "little", signed=True)).scaleb(-_one(fields, 3, 0))


def _user_defined(data: bytes) -> str:
    """A text of 64-bit offsets: Substrait has no such type."""
    wrapped = _message(_one(_message(data), 2))
    if _one(wrapped, 1) != b"type.googleapis.com/google.protobuf.StringValue":
        raise _Unread
    text: str = _one(_message(_one(wrapped, 2)), 1, b"").decode()
    return text


def _moment(value: int) -> datetime:
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
    14: _moment,
    16: lambda value: date(1970, 1, 1) + timedelta(days=_signed(value)),
    24: _decimal,
    27: lambda value: _moment(value).replace(tzinfo=UTC),
    29: lambda _: None,
    33: _user_defined,
}


def _one(fields: Message, number: int, missing: Any = None) -> Any:
    values = fields.get(number)
    if values is None and missing is None:
        raise _Unread
    return missing if values is None else values[-1]


def _message(data: bytes) -> Message:
    """The fields of a message of protobuf.

    >>> _message(bytes([8, 150, 1, 18, 2, 104, 105]))
    {1: [150], 2: [b'hi']}
    """
    fields: Message = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value: Any = varint()
        else:
            length = {1: 8, 5: 4}.get(key & 7) or varint()
            value = data[at : at + length]
            at += length
        fields.setdefault(key >> 3, []).append(value)
    return fields
