"""The types in which engines compute. Beyond their range, an engine raises, wraps or rounds."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from zskip.core import types as t
from zskip.language.bound import Dialect
from zskip.language.literals import Refused
from zskip.language.tree import Call, Literal, Scalar


def is_number(type: pa.DataType) -> bool:
    """Whether a type is supported by interval arithmetic in 64 bits."""
    if t.is_decimal(type):
        return bool(type.precision <= 18)
    return bool(t.is_integer(type) and type != pa.uint64()) or type in (pa.float32(), pa.float64())


APPROXIMATE = ("approximate",)
"""The options of a call that stands for an exact number, and is bounded in doubles with a margin."""


def is_wide(scalar: Scalar) -> bool:
    """Whether a scalar is an exact number of more than 18 digits, which is bounded in doubles."""
    if t.is_decimal128(scalar.type) and scalar.type.precision > 18:
        return True
    return bool(scalar.type == pa.uint64() or (isinstance(scalar, Call) and scalar.options == APPROXIMATE))


def approximate(scalar: Scalar) -> Scalar:
    """An exact number as a double."""
    if isinstance(scalar, Call) and scalar.options == APPROXIMATE:
        return scalar
    return Call("approximate", (scalar,), pa.float64(), APPROXIMATE)


def require_numbers(*scalars: Scalar) -> None:
    """Raises `Refused` unless all scalars are numbers that interval arithmetic supports."""
    for scalar in scalars:
        if is_wide(scalar) or not is_number(scalar.type):
            raise Refused(f"arithmetic over {scalar.type}")


def is_exact(type: pa.DataType) -> bool:
    return bool(t.is_integer(type) or t.is_decimal(type))


def float_result(left: Scalar, right: Scalar, dialect: Dialect) -> pa.DataType:
    """The float type of an operation with a float operand."""
    types = (left.type, right.type)
    require_one_float_type(types, dialect)
    if pa.float64() in types or (dialect.name == "spark" and any(t.is_decimal(each) for each in types)):
        return pa.float64()
    return pa.float32()


def require_one_float_type(types: Sequence[pa.DataType], dialect: Dialect) -> None:
    """Raises `Refused` for FLOAT beside integers on Spark: in ANSI mode both become DOUBLE, and FLOAT without it."""
    if dialect.name == "spark" and pa.float32() in types and any(map(t.is_integer, types)):
        raise Refused("FLOAT beside integers, whose type depends on ANSI mode")


def digits(scalar: Scalar) -> int:
    """The digits before the decimal point in a scalar's type."""
    if t.is_decimal(scalar.type):
        return int(scalar.type.precision - scalar.type.scale)
    return {8: 3, 16: 5, 32: 10, 64: 20}[scalar.type.bit_width]


def whole_digits(scalar: Scalar) -> int:
    """The digits before the decimal point in a scalar's values: of a constant, its own; else those of its type."""
    if isinstance(scalar, Literal) and scalar.value.is_valid:
        return len(str(abs(int(scalar.value.as_py()))))
    return digits(scalar)


def scale(scalar: Scalar) -> int:
    """The digits after the decimal point in a scalar's type."""
    return int(scalar.type.scale) if t.is_decimal(scalar.type) else 0


def integer_type(scalar: Scalar, dialect: Dialect) -> pa.DataType:
    """The engine's integer type of a scalar. Integer calls have type int64 in the tree, and this one as an option."""
    match scalar:
        case Literal(value) if value.type == pa.int64():
            return pa.int32() if value.is_valid and -(2**31) <= value.as_py() < 2**31 else pa.int64()
        # Other constants have an explicit type: 5Y, CAST(5 AS TINYINT).
        case Call(_, _, _, (pa.DataType() as engine_type, bool())):
            return engine_type
    return scalar.type


def result_type(left: Scalar, right: Scalar, dialect: Dialect) -> pa.DataType:
    """The integer type in which the engine computes an operation. Beyond its range the engine raises or wraps."""
    sizes, unsigned = [], []
    for scalar, other in ((left, right), (right, left)):
        type = integer_type(scalar, dialect)
        untyped = isinstance(scalar, Literal) and scalar.type == pa.int64() and not isinstance(other, Literal)
        if untyped and dialect.name == "duckdb":
            # DuckDB gives a constant the type of the other operand if it fits.
            low, high = t.limits(integer_type(other, dialect))
            if isinstance(scalar, Literal) and low <= scalar.value.as_py() <= high:
                continue
        sizes.append(type.bit_width)
        unsigned.append(t.is_unsigned_integer(type))
    if all(unsigned):
        return {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32()}[max(sizes)]
    bits = max(size * 2 if no_sign else size for size, no_sign in zip(sizes, unsigned, strict=True))
    return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[min(bits, 64)]


def wraps(dialect: Dialect) -> bool:
    """Whether integer arithmetic wraps around on overflow, where other dialects raise."""
    return dialect.name == "spark" and not dialect.ansi
