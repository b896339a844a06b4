"""Literals of SQL as Arrow scalars."""

from __future__ import annotations

import math
import re
from datetime import date
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from zskip.expr.bound import Dialect
from zskip.expr.literals import Refused, time_of_day, timestamp

__all__ = ["constant", "number", "typed"]

_T = exp.DType

SQL_TYPES: dict[exp.DType, pa.DataType] = {
    _T.TINYINT: pa.int8(),
    _T.SMALLINT: pa.int16(),
    _T.INT: pa.int32(),
    _T.BIGINT: pa.int64(),
    _T.UTINYINT: pa.uint8(),
    _T.USMALLINT: pa.uint16(),
    _T.UINT: pa.uint32(),
    _T.UBIGINT: pa.uint64(),
    _T.FLOAT: pa.float32(),
    _T.DOUBLE: pa.float64(),
    _T.BOOLEAN: pa.bool_(),
    _T.VARCHAR: pa.string(),
    _T.TEXT: pa.string(),
    _T.DATE: pa.date32(),
    _T.DATE32: pa.date32(),
    _T.TIME: pa.time64("us"),
    _T.TIMESTAMPNTZ: pa.timestamp("us"),
    _T.TIMESTAMP_S: pa.timestamp("s"),
    _T.TIMESTAMP_MS: pa.timestamp("ms"),
    _T.TIMESTAMP_NS: pa.timestamp("ns"),
    _T.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    _T.TIMESTAMPLTZ: pa.timestamp("us", "UTC"),
    _T.BINARY: pa.binary(),
    _T.VARBINARY: pa.binary(),
    _T.BLOB: pa.binary(),
}


def sql_type(node: exp.DataType, dialect: Dialect) -> pa.DataType | None:
    """The Arrow type of a type of SQL; None where there is none."""
    kind = node.this
    if kind == _T.TIMESTAMP:
        return pa.timestamp("us", "UTC") if dialect.name == "spark" else pa.timestamp("us")
    if kind == _T.DECIMAL:
        sizes = [int(parameter.name[:9]) for parameter in node.expressions]
        precision, scale = (*sizes, 0)[:2] if sizes else ((10, 0) if dialect.name == "spark" else (18, 3))
        return pa.decimal128(precision, scale) if 0 < precision <= 38 and 0 <= scale <= precision else None
    if kind in (_T.VARCHAR, _T.TEXT) and node.expressions and dialect.name != "duckdb":
        return None
    return SQL_TYPES.get(kind)


_MOST_DIGITS = 1_000
"""Digits of a number that is read at all: Python refuses to read more than 4,300."""


def number(text: str, negative: bool = False) -> pa.Scalar:
    """A number's literal: an integer, an exact decimal, or with an exponent a double. Raises `Refused`.

    >>> number("5.50")
    <pyarrow.Decimal128Scalar: Decimal('5.50')>
    """
    if len(text) <= 18 and text.isascii() and text.isdigit():
        return pa.scalar(-int(text) if negative else int(text), pa.int64())
    text = ("-" if negative else "") + text.replace("_", "")
    if len(text) > _MOST_DIGITS:
        raise Refused(f"the number {text[:50]}… has more digits than an exact type")
    if re.fullmatch(r"-?\d+", text):
        value = int(text)
        if -(2**63) <= value < 2**63:
            return pa.scalar(value, pa.int64())
        if abs(value) < 10**38:
            return pa.scalar(Decimal(value), pa.decimal128(38, 0))
        raise Refused(f"the number {text[:50]} has more digits than an exact type")
    if re.fullmatch(r"-?(\d+\.\d*|\.\d+)", text):
        digits = text.lstrip("-").partition(".")
        scale = len(digits[2])
        precision = max(len(digits[0].lstrip("0")) + scale, scale, 1)
        if precision > 38:
            raise Refused(f"the number {text[:50]} has more digits than an exact type")
        return pa.scalar(Decimal(text), pa.decimal128(precision, scale))
    if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)[eE][+-]?\d+", text):
        return pa.scalar(float(text), pa.float64())
    raise Refused(f"the number {text[:50]} has a form that zskip does not read")


def constant(node: exp.Expr, dialect: Dialect) -> pa.Scalar | None:
    """The value of a literal, with its sign and its type; None where the expression is no literal.

    Raises `Refused` for one that zskip does not read as its engine does.
    """
    match node:
        case exp.Null():
            return pa.scalar(None, pa.null())
        case exp.Boolean():
            return pa.scalar(bool(node.this))
        case exp.Literal():
            if node.is_string:
                return pa.scalar(node.this, pa.string())
            return number(node.this)
        case exp.Paren():
            return constant(node.this, dialect)
        case exp.Neg(this=exp.Literal(is_string=False) as digits):
            return number(digits.this, negative=True)
        case exp.HexString():
            return pa.scalar(bytes.fromhex(node.this), pa.binary()) if dialect.name == "spark" else None
        case exp.Cast(this=inner, to=exp.DataType() as to):
            value = constant(inner, dialect)
            return None if value is None else typed(value, to, dialect)
    return None


def typed(value: pa.Scalar, to: exp.DataType, dialect: Dialect) -> pa.Scalar | None:
    """A literal beside the name of its type: ``DATE '2024-01-31'``, ``CAST('1.5' AS DOUBLE)``."""
    target = sql_type(to, dialect)
    if target is None:
        return None
    if not value.is_valid:
        return pa.scalar(None, target)
    if value.type == target:
        return value
    if pa.types.is_string(value.type):
        return _from_text(value.as_py(), target, dialect)
    if pa.types.is_integer(value.type) and pa.types.is_integer(target):
        try:
            return value.cast(target)
        except pa.ArrowInvalid as error:
            raise Refused(f"{value} does not fit {target}: the engine raises") from error
    if pa.types.is_integer(value.type) or pa.types.is_decimal(value.type):
        if target == pa.float64():
            return pa.scalar(float(value.as_py()), target)
        if target == pa.float32():
            return _exact_float(Decimal(value.as_py()))
    return None


def _exact_float(number: Decimal) -> pa.Scalar | None:
    """A float of 32 bits that is this number; None where it would be rounded, which engines do in ways of their own."""
    found = pa.scalar(float(number), pa.float32())
    return found if math.isfinite(found.as_py()) and Decimal(found.as_py()) == number else None


def _from_text(text: str, target: pa.DataType, dialect: Dialect) -> pa.Scalar | None:
    if pa.types.is_date(target) and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        try:
            return pa.scalar(date.fromisoformat(text))
        except ValueError as error:
            raise Refused(f"the text {text!r} is no date: the engine raises") from error
    if pa.types.is_timestamp(target):
        moment = timestamp(text, target.tz is not None, dialect.timezone, dialect.name)
        if target.unit == "ns" and moment.type.unit == "us" and abs(moment.value) > 2**63 // 1000:
            raise Refused(f"the text {text!r} lies outside of the years of {target}: the engine raises")
        if target.unit == "ns":
            return moment.cast(target)
        return moment if target.unit == moment.type.unit == "us" else None
    if pa.types.is_time(target) and (time := time_of_day(text, dialect.name)) is not None:
        return time
    if pa.types.is_floating(target):
        if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
            return pa.scalar(float(text), target) if target == pa.float64() else _exact_float(Decimal(text))
        if text.lower() in ("nan", "infinity", "-infinity", "inf", "-inf"):
            return pa.scalar(float(text), target)
    if pa.types.is_integer(target) and re.fullmatch(r"[+-]?\d{1,20}", text):
        try:
            return pa.scalar(int(text), target)
        except (OverflowError, pa.ArrowInvalid) as error:
            raise Refused(f"the text {text!r} does not fit {target}: the engine raises") from error
    if pa.types.is_decimal(target) and re.fullmatch(r"[+-]?\d{1,38}(\.\d{1,38})?", text):
        value = Decimal(text)
        scale = -int(value.as_tuple().exponent)
        if scale <= target.scale and len(value.as_tuple().digits) + target.scale - scale <= target.precision:
            return pa.scalar(value, target)
    if pa.types.is_boolean(target) and text.lower() in ("true", "false"):
        return pa.scalar(text.lower() == "true")
    return None
