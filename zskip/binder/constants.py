"""SQL literals as Arrow scalars."""

from __future__ import annotations

import math
import re
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from zskip.binder.context import Binding
from zskip.binder.source_text import Value
from zskip.core import types as t
from zskip.language.bound import Dialect
from zskip.language.functions.function import sql_type
from zskip.language.literals import Refused, constant, date_value, string_value, time_of_day, timestamp

_MAX_DIGITS = 1_000
"""Digits of a number that is parsed: Python refuses to parse more than 4,300."""


def number_value(text: str, negative: bool = False) -> pa.Scalar:
    """The value of a numeric literal: an integer, a decimal, or with an exponent a double. Raises `Refused`.

    >>> number_value("5.50")
    <pyarrow.Decimal128Scalar: Decimal('5.50')>
    """
    if len(text) <= 18 and text.isascii() and text.isdigit():
        return pa.scalar(-int(text) if negative else int(text), pa.int64())
    text = ("-" if negative else "") + text.replace("_", "")
    if len(text) > _MAX_DIGITS:
        raise Refused(f"the number {text[:50]}… has more digits than an exact type")
    if re.fullmatch(r"-?[0-9]+", text):
        return constant(int(text))
    if re.fullmatch(r"-?([0-9]+\.[0-9]*|\.[0-9]+)", text):
        digits = text.lstrip("-").partition(".")
        scale = len(digits[2])
        precision = max(len(digits[0].lstrip("0")) + scale, scale, 1)
        if precision > 38:
            raise Refused(f"the number {text[:50]} has more digits than an exact type")
        return pa.scalar(Decimal(text), pa.decimal128(precision, scale))
    if re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+", text):
        return pa.scalar(float(text), pa.float64())
    raise Refused(f"the number {text[:50]} is in an unsupported form")


def literal_value(node: exp.Expr, binding: Binding) -> pa.Scalar | None:
    """The value of a literal or a parameter, with its sign and casts; None if the expression is not a constant.

    Raises `Refused` for a literal that zskip might read differently from the engine.
    """
    dialect = binding.dialect
    match node:
        case exp.Null():
            return pa.scalar(None, pa.null())
        case exp.Boolean():
            return pa.scalar(bool(node.this))
        case exp.Literal() if (given := _given(node, binding)) is not None:
            return constant(given.value)
        case exp.Literal():
            if node.is_string:
                return pa.scalar(node.this, pa.string())
            return number_value(node.this)
        case exp.Paren():
            return literal_value(node.this, binding)
        case exp.Neg(this=exp.Literal() as number) if (given := _given(number, binding)) is not None:
            return constant(-given.value) if isinstance(given.value, int) and given.value >= 0 else None
        case exp.Neg(this=exp.Literal(is_string=False) as digits):
            return number_value(digits.this, negative=True)
        case exp.HexString(this=digits) if dialect.name == "spark":
            return _bytes(digits)
        case exp.Unhex(this=exp.Literal(is_string=True) as digits) if dialect.name == "duckdb":
            return _bytes(digits.this)
        case exp.TsOrDsToDate(this=exp.Literal(is_string=True) as text) if dialect.name == "spark":
            plain = not any(value for name, value in node.args.items() if name not in ("this", "safe"))
            return _from_text(text.this, pa.date32(), dialect) if plain else None
        case exp.Cast(this=inner, to=exp.DataType() as to):
            value = literal_value(inner, binding)
            return None if value is None else cast_value(value, to, dialect)
    return None


def _given(node: exp.Literal, binding: Binding) -> Value | None:
    """The value that stands at the place of a literal; None for a literal of the text. Raises `Refused` for a list."""
    value = binding.source.values.get(node.meta.get("start", -1))
    if value is not None and value.is_list:
        raise Refused("a list of constants")
    return value


def cast_value(value: pa.Scalar, to: exp.DataType, dialect: Dialect) -> pa.Scalar | None:
    """A literal cast to a type: ``DATE '2024-01-31'``, ``CAST('1.5' AS DOUBLE)``. None if zskip does not fold the cast.

    Raises `Refused` if the engine raises an error.
    """
    target = sql_type(to, dialect)
    if target is None:
        return None
    if not value.is_valid:
        return pa.scalar(None, target)
    if value.type == target:
        return value
    if t.is_string(value.type):
        return _from_text(value.as_py(), target, dialect)
    if t.is_integer(value.type) and t.is_integer(target):
        try:
            return value.cast(target)
        except pa.ArrowInvalid as error:
            raise Refused(f"{value} does not fit {target}: the engine raises") from error
    if t.is_integer(value.type) or t.is_decimal(value.type):
        if target == pa.float64():
            return pa.scalar(float(value.as_py()), target)
        if target == pa.float32():
            return _exact_float(Decimal(value.as_py()))
    return None


def _bytes(digits: str) -> pa.Scalar | None:
    """Bytes from two hexadecimal digits each; None for others, which are left to the engine."""
    even = re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", digits) is not None
    return pa.scalar(bytes.fromhex(digits), pa.binary()) if even else None


def _exact_float(number: Decimal) -> pa.Scalar | None:
    """A number as a 32-bit float; None if it is not exact, since engines round in different ways."""
    value = pa.scalar(float(number), pa.float32())
    return value if math.isfinite(value.as_py()) and Decimal.from_float(value.as_py()) == number else None


def _blob(text: str) -> pa.Scalar | None:
    r"""The BLOB to which DuckDB casts a text: ASCII, with other bytes as ``\xAA``; None if DuckDB raises an error."""
    if not text.isascii() or not re.fullmatch(r"(?:[^\\]|\\x[0-9A-Fa-f]{2})*", text, re.DOTALL):
        return None
    pieces = re.split(r"\\x([0-9A-Fa-f]{2})", text)
    return pa.scalar(b"".join(bytes.fromhex(each) if n % 2 else each.encode() for n, each in enumerate(pieces)))


def _from_text(text: str, target: pa.DataType, dialect: Dialect) -> pa.Scalar | None:
    """A text cast to a type; None if the cast is left to the engine. Raises `Refused` if the engine raises an error."""
    if t.is_date(target):
        return date_value(text)
    if t.is_timestamp(target):
        moment = timestamp(text, target.tz is not None, dialect.name, dialect.timezone)
        if target.unit == "ns" and moment.type.unit == "us" and abs(moment.value) > 2**63 // 1000:
            raise Refused(f"the string {text!r} is outside the years that {target} holds: the engine raises")
        if target.unit == "ns":
            return moment.cast(target)
        return moment if target.unit == moment.type.unit == "us" else None
    if t.is_time(target) and (time := time_of_day(text, dialect.name)) is not None:
        return time
    if t.is_floating(target):
        if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
            return pa.scalar(float(text), target) if target == pa.float64() else _exact_float(Decimal(text))
        if text.lower() in ("nan", "infinity", "-infinity", "inf", "-inf"):
            return pa.scalar(float(text), target)
    if t.is_integer(target) and re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        try:
            return pa.scalar(int(text), target)
        except (OverflowError, pa.ArrowInvalid) as error:
            raise Refused(f"the string {text!r} does not fit {target}: the engine raises") from error
    if t.is_decimal(target) and re.fullmatch(r"[+-]?[0-9]{1,38}(\.[0-9]{1,38})?", text):
        value = Decimal(text)
        scale = -int(value.as_tuple().exponent)
        if scale <= target.scale and len(value.as_tuple().digits) + target.scale - scale <= target.precision:
            return pa.scalar(value, target)
    if t.is_boolean(target) and text.lower() in ("true", "false"):
        return pa.scalar(text.lower() == "true")
    if t.is_binary(target) and dialect.name == "duckdb":
        return _blob(text)
    return string_value(text, target, dialect.name)
