"""Bind pyarrow's expressions, from their Substrait form, and its lists of filters.

The conditions have Arrow's meaning: NaN is unequal to everything and not greater, and IS IN is never NULL. Casts,
arithmetic, and nanosecond columns are not supported in expressions, which hide their casts in Substrait.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from zskip.binder.typed_conditions import Unread, compared, listed_in, printed, text_test, unproved
from zskip.core import types as t
from zskip.core.schema import Schema, identifier, join_path, unknown_column
from zskip.language import tree
from zskip.language.tree import Node, Reference, Why

Message: TypeAlias = "dict[int, list[Any]]"
"""A protobuf message: the values of each field, by field number. They are integers, or bytes for any other type."""

# Field numbers of Substrait's messages: substrait-io/substrait, proto/substrait.
_DECLARATIONS, _REFERRED = 2, 3
_EXPRESSION_OF_REFERENCE = 1
_LITERAL, _SELECTION, _CALL, _IF_THEN, _IN_LIST = 1, 2, 3, 6, 8
_ANCHOR, _OPTIONS, _ARGUMENTS = 1, 5, 4
_COMPARISONS = {"equal": "=", "not_equal": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_TEXT_TESTS = {"starts_with", "ends_with", "contains"}
_EPOCH = datetime(1970, 1, 1)
_DEEPEST = 14
_QUOTED, _INNERMOST = re.compile(r'"(?:[^"\\]|\\.)*"'), re.compile(r"\([^()]*\)")
_MISSING = re.compile(r"No match for FieldRef\.(?:Name\((.*)\)|Nested\(FieldRef\.Name\((.*)\)\)) in ")
_EXACT_IN_DOUBLES = 1 << 53


def conjuncts(expression: pc.Expression, schema: Schema) -> list[Node | Unread]:
    """The conjuncts of an expression, with `Unread` for each that cannot be bound.

    pyarrow takes twice as long to make a message for each level that an expression nests, half a second at 16: an OR of
    20 is not converted.
    """
    text = printed(expression)
    if text is None or _nesting(text) > _DEEPEST:
        return [Unread()]
    try:
        message = _message(_substrait(expression, schema.arrow))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if missing := _MISSING.match(str(error)):
            # Arrow takes a name as it is written, so one that differs in case only is unknown, too.
            parts = (missing[2] if missing[1] is None else missing[1]).split(") FieldRef.Name(")
            raise unknown_column(join_path(parts), tuple(schema.columns)) from error
        return [Unread()]
    names = dict(_functions(message))
    root = _field(_message(_field(message, _REFERRED)), _EXPRESSION_OF_REFERENCE)
    # Only the printed form shows how is_in treats NULL; the message does not.
    nulls_match = "null_matching_behavior=" not in text.replace("null_matching_behavior=MATCH", "")
    return list(_parts(_message(root), _Converter(schema, names, nulls_match)))


def _nesting(text: str) -> int:
    """How deep an expression's text nests, at most one more than the limit.

    >>> _nesting('((a == 1) or (b == "((("))')
    2
    """
    text = _QUOTED.sub("", text)
    for depth in range(_DEEPEST + 1):
        text, inner = _INNERMOST.subn("", text)
        if not inner:
            return depth
    return _DEEPEST + 1


def _substrait(expression: pc.Expression, schema: pa.Schema) -> bytes:
    """The expression's message. Raises Arrow's errors for an expression that Substrait lacks.

    Arrow compares a dictionary by its values, even if it is ordered, and Substrait has no cast from one.
    """
    schema = pa.schema([field.with_type(t.with_leaves(field.type, t.value_type)) for field in schema])
    try:
        return bytes(expression.to_substrait(schema))
    except pa.ArrowNotImplementedError:
        # Arrow translates all columns, also those that the expression does not read, and does not say which type it
        # lacks. To find out takes a call for each column, so it is done only here; an expression that Substrait itself
        # lacks raises again.
        columns = pa.schema([field.with_type(_as_substrait(field.type)) for field in schema])
        return bytes(expression.to_substrait(columns))


def _as_substrait(type: pa.DataType) -> pa.DataType:
    """The type, with null in place of what Substrait lacks: an expression over another column is read all the same."""
    if t.is_struct(type):
        return pa.struct([field.with_type(_as_substrait(field.type)) for field in type])
    try:
        pc.scalar(True).to_substrait(pa.schema([("", type)]))
    except pa.ArrowNotImplementedError:
        return pa.null()
    return type


def _functions(message: Message) -> Iterator[tuple[int, str]]:
    for declared in message.get(_DECLARATIONS, ()):
        for function in _message(declared).get(3, ()):
            fields = _message(function)
            yield _field(fields, 2, 0), _field(fields, 3).decode()


def _parts(node: Message, converter: _Converter) -> Iterator[Node | Unread]:
    try:
        name, arguments = converter.call(node)
        found = None if name == "and" else converter.condition(node)
    except (Unread, RecursionError):
        yield Unread()
        return
    if found is not None:
        yield found
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
            raise Unread
        return self.names[_field(fields, _ANCHOR, 0)], arguments

    def condition(self, node: Message) -> Node:
        """A boolean expression."""
        if _SELECTION in node:
            column = self.column(node)
            if t.is_boolean(column.type):
                return tree.is_true(column)
        if _LITERAL in node:
            value = _literal(_message(_field(node, _LITERAL)))
            if value is None:
                return tree.unknown()
            if isinstance(value, bool):
                return tree.and_([]) if value else tree.or_([])
        if _IN_LIST in node:
            return self.membership(_message(_field(node, _IN_LIST)))
        if _IF_THEN in node:
            return self.choice(_message(_field(node, _IF_THEN)))
        function, arguments = self.call(node)
        match function:
            case "and" | "or":
                combine = tree.and_ if function == "and" else tree.or_
                return combine([self.condition(argument) for argument in arguments])
            case "not":
                return tree.not_(self.condition(arguments[0]))
            case "is_null":
                return tree.IsNull(self.column(arguments[0]))
            case "is_not_null":
                return tree.not_(tree.IsNull(self.column(arguments[0])))
            case "is_nan" if t.is_floating((column := self.column(arguments[0])).type):
                return tree.is_nan(column)
        if function in _COMPARISONS:
            return self.comparison(_COMPARISONS[function], *arguments)
        if function in _TEXT_TESTS:
            column, text = self.column(arguments[0]), self.constant(arguments[1])
            if t.is_string(column.type) and isinstance(text, str):
                return text_test(self.schema, function, column, text)
        raise Unread

    def comparison(self, operator: str, left: Message, right: Message) -> Node:
        if _LITERAL in left:
            left, right, operator = right, left, tree.MIRRORED[operator]
        column = self.column(left)
        if _SELECTION in right:
            other = self.column(right)
            if other.type != column.type or t.is_floating(column.type):
                raise Unread
            return tree.compare(operator, column, other)
        value = self.constant(right)
        if value is None:
            return tree.unknown()
        if value != value:  # NaN
            return tree.always(column) if operator == "<>" else tree.never(column)
        return _compared(self.schema, operator, column, value)

    def membership(self, node: Message) -> Node:
        """Arrow's IS IN, to which NULL is a value like any other."""
        column = self.column(_message(_field(node, 1)))
        values = [_literal(_message(_field(_message(one), _LITERAL))) for one in node.get(2, ())]
        if (None in values and not self.nulls_match) or any(value != value for value in values):
            raise Unread
        given = [value for value in values if value is not None]
        if t.is_floating(column.type):  # Arrow rounds the values to the column's type
            given = pa.array(given, pa.float64()).cast(column.type).to_pylist()
        if t.is_boolean(column.type):  # Arrow takes every number but 0 for TRUE
            given = [bool(value) if isinstance(value, int | float) else value for value in given]
        # Arrow's is_in tells -0.0 from 0.0, unlike its comparisons.
        zeros = {math.copysign(1, value) for value in given if t.is_floating(column.type) and value == 0}
        tests = [self._zero(column, sign) for sign in sorted(zeros)]
        others = [value for value in given if not zeros or value != 0]
        tests += [listed_in(self.schema, column, others)] if others else []
        null = tree.IsNull(column)
        return tree.or_([*tests, null]) if None in values else tree.and_([tree.or_(tests), tree.not_(null)])

    def _zero(self, column: Reference, sign: float) -> Node:
        name = identifier(*self.schema.columns[column.path].parts)
        negative = unproved(self.schema, f"signbit({name})", column, Why("the sign of zero"))
        return tree.and_([compared(self.schema, "=", column, 0.0), tree.not_(negative) if sign > 0 else negative])

    def choice(self, node: Message) -> Node:
        """if_else, which DuckDB puts around its IN. Unlike CASE, it is NULL where its condition is."""
        clauses = [_message(one) for one in node.get(1, ())]
        if len(clauses) != 1:
            raise Unread
        test, then, otherwise = (
            self.condition(_message(part)) for part in (_field(clauses[0], 1), _field(clauses[0], 2), _field(node, 2))
        )
        return tree.Choose(test, then, tree.Choose(tree.not_(test), otherwise, tree.unknown()))

    def column(self, node: Message) -> Reference:
        """The column that a selection names."""
        if _SELECTION not in node:
            raise Unread
        step = _message(_field(_message(_field(node, _SELECTION)), 1, b""))
        fields: Any = list(self.schema.arrow)
        names = []
        while 2 in step:
            inner = _message(_field(step, 2))
            field = fields[_field(inner, 1, 0)]
            names.append(field.name)
            if 2 not in inner:
                found = self.schema.columns.get(join_path(names))
                if found is None:
                    break
                return Reference(found.path, found.type)
            step = _message(_field(inner, 2))
            fields = list(field.type)
        raise Unread

    def constant(self, node: Message) -> Any:
        """The value of a constant."""
        if _LITERAL not in node:
            raise Unread
        return _literal(_message(_field(node, _LITERAL)))


def _compared(schema: Schema, operator: str, column: Reference, value: Any) -> Node:
    found = compared(schema, operator, column, value)
    # In DuckDB, NaN is greater than every number.
    above = t.is_floating(column.type) and operator in (">", ">=")
    return tree.and_([found, tree.not_(tree.is_nan(column))]) if above else found


def number_filter(schema: Schema, name: str, operator: str, value: Any) -> Node | None:
    """The filter ``(name, operator, value)`` of a number, for which Arrow casts the column, or None for another one.

    ``operator``: as in SQL. The result is that of the exact values, so it is None where Arrow's casts round.
    """
    column = schema.columns.get(join_path([name]))
    if column is None or isinstance(value, bool) or operator not in tree.MIRRORED:
        return None
    whole = isinstance(value, int) and (t.is_integer(column.type) or t.is_decimal128(column.type))
    exact = isinstance(value, float) and abs(value) < _EXACT_IN_DOUBLES
    exact &= t.is_integer(column.type) or t.is_floating(column.type)
    return _compared(schema, operator, Reference(column.path, column.type), value) if whole or exact else None


def _literal(fields: Message) -> Any:
    """The value of a literal message; None for NULL."""
    (number, (value, *_)) = next((item for item in fields.items() if item[0] in _LITERALS), (0, (None,)))
    if number not in _LITERALS:
        raise Unread
    try:
        return _LITERALS[number](value)
    except OverflowError as error:  # Python has no years before 1 or after 9999
        raise Unread from error


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _decimal(data: bytes) -> Decimal:
    fields = _message(data)
    return t.decimal_of(int.from_bytes(_field(fields, 1), "little", signed=True), _field(fields, 3, 0))


def _user_defined(data: bytes) -> str | int:
    """A large_string or an unsigned integer, for which Substrait has no type."""
    wrapped = _message(_field(_message(data), 2))
    value = _message(_field(wrapped, 2, b""))
    match _field(wrapped, 1):
        case b"type.googleapis.com/google.protobuf.StringValue":
            return str(_field(value, 1, b"").decode())
        case b"type.googleapis.com/google.protobuf.UInt64Value":
            return int(_field(value, 1, 0))
    raise Unread


def _timestamp(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=_signed(value))


def _time(value: int) -> time:
    if value >= 86_400_000_000:  # Python has no 24:00, which DuckDB has
        raise Unread
    return (_EPOCH + timedelta(microseconds=value)).time()


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
    17: _time,
    24: _decimal,
    27: lambda value: _timestamp(value).replace(tzinfo=UTC),
    29: lambda _: None,
    33: _user_defined,
}


def _field(fields: Message, number: int, default: Any = None) -> Any:
    """The last value of a field. Raises `Unread` if it is missing and there is no default."""
    values = fields.get(number)
    if values is None and default is None:
        raise Unread
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
