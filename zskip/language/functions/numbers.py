"""Functions of numbers, such as abs, floor, round, sqrt, power and least."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from zskip.core import types as t
from zskip.language.bound import Dialect
from zskip.language.functions import widths
from zskip.language.functions.function import ArgumentBinder, Builder, Function, require_only, whole_number
from zskip.language.intervals import extremes, interval_arithmetic
from zskip.language.intervals.interval_arithmetic import library_function, rounded
from zskip.language.intervals.wide_numbers import wide_negative
from zskip.language.literals import Refused, fit
from zskip.language.tree import Call, Literal, Scalar


def unary(function: str, *dialects: str) -> Builder:
    """Binds a function of one number, in some dialects or in all."""

    def build(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
        require_only(node, "this", "decimals", "to", "truncate") if function == "round" else require_only(node, "this")
        if dialects and binding.dialect.name not in dialects:
            raise Refused(f"{function}() in {binding.dialect.name}")
        inner = binding.scalar(node.this)
        if function == "negate" and widths.is_wide(inner.type) and not widths.is_unsigned(inner):
            return Call(function, (inner,), inner.type, inner.options if isinstance(inner, Call) else ())
        widths.require_numbers(inner)
        return _unary(function, inner, node, binding.dialect)

    return build


def _unary(function: str, inner: Scalar, node: exp.Expr, dialect: Dialect) -> Scalar:
    type = inner.type
    if function in ("negate", "abs"):
        if t.is_unsigned_integer(type) and function == "negate":
            raise Refused("the negative of an unsigned integer")
        if t.is_integer(type):
            return Call(function, (inner,), pa.int64(), (widths.integer_type(inner, dialect), widths.wraps(dialect)))
        return Call(function, (inner,), type)
    if function == "sign":
        return Call(function, (inner,), pa.int8())
    if function in ("sqrt", "ln", "exp"):
        below_zero = "null" if dialect.name == "spark" and function == "ln" else "nan"
        return Call(function, (inner,), pa.float64(), (below_zero,))
    places = 0
    if function == "round" and node.args.get("decimals") is not None:
        if node.args.get("truncate") is not None:
            raise Refused("round with a mode")
        wanted = whole_number(node.args["decimals"])
        if wanted is None or not 0 <= wanted <= 15:
            raise Refused("round to something other than 0 to 15 places")
        places = wanted
    if t.is_integer(type):
        raise Refused(f"{function}() over {type}")
    if t.is_decimal(type):
        if dialect.name == "spark":
            return Call(function, (inner,), pa.decimal128(18, min(places, type.scale)), (places,))
        return Call(function, (inner,), pa.decimal128(type.precision, min(places, type.scale)), (places,))
    if dialect.name == "spark" and function in ("floor", "ceil"):
        # Spark returns a bigint: values outside its range are clipped, and NaN becomes 0.
        raise Refused(f"{function}() of a float in Spark")
    return Call(function, (inner,), type, (places,))


def power(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``power(x, c)`` with a small positive whole exponent."""
    require_only(node, "this", "expression")
    exponent = whole_number(node.expression)
    if exponent is None or not 1 <= exponent <= 64:
        raise Refused("power with something other than a whole exponent from 1 to 64")
    inner = binding.scalar(node.this)
    widths.require_numbers(inner)
    return Call("power", (inner,), pa.float64(), (exponent,))


def extreme(function: str) -> Builder:
    """Binds ``least`` and ``greatest``."""

    def build(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
        require_only(node, "this", "expressions", "ignore_nulls")
        scalars = [binding.scalar(each) for each in (node.this, *node.expressions)]
        skips = ("skips NULL",) if binding.dialect.name in ("duckdb", "spark") else ()
        return Call(function, tuple(aligned(scalars, binding.dialect)), _one_type(scalars), skips)

    return build


def _one_type(scalars: Sequence[Scalar]) -> pa.DataType:
    type = next((each.type for each in scalars if not isinstance(each, Literal)), scalars[0].type)
    if t.is_floating(type) and type != pa.float64():
        raise Refused("values of several float types")
    return type


def aligned(scalars: Sequence[Scalar], dialect: Dialect) -> list[Scalar]:
    """The scalars with constants converted to the type of the others. Raises `Refused` if types differ."""
    type = _one_type(scalars)
    found: list[Scalar] = []
    for scalar in scalars:
        if scalar.type == type:
            found.append(scalar)
        elif not isinstance(scalar, Literal):
            raise Refused(f"{scalar.type} among values of {type}")
        elif not scalar.value.is_valid:
            found.append(Literal(pa.scalar(None, type)))
        else:
            fitted = fit(scalar.value, type, dialect.name, dialect.timezone)
            if not fitted.exact or fitted.floor is None:
                raise Refused(f"{scalar.value} among values of {type}")
            found.append(Literal(fitted.floor))
    return found


_NUMBERS = "integers up to 64 bits, decimals up to 18 digits, floats"

FUNCTIONS = (
    Function(
        "negate",
        "-x",
        "signed integers, decimals up to 38 digits, floats",
        "falls",
        interval_arithmetic.negate,
        {exp.Neg: unary("negate")},
        wide=wide_negative,
    ),
    Function(
        "abs",
        "abs(x)",
        _NUMBERS,
        "falls below zero, rises above",
        interval_arithmetic.absolute,
        {exp.Abs: unary("abs")},
        duckdb=("abs",),
    ),
    Function(
        "sign",
        "sign(x)",
        _NUMBERS,
        "rises",
        interval_arithmetic.sign,
        {exp.Sign: unary("sign", "duckdb")},
        dialects=("duckdb",),
        duckdb=("sign",),
    ),
    Function(
        "floor",
        "floor(x)",
        "floats, decimals",
        "rises",
        rounded("floor"),
        {exp.Floor: unary("floor")},
        duckdb=("floor",),
    ),
    Function(
        "ceil",
        "ceil(x), ceiling(x)",
        "floats, decimals",
        "rises",
        rounded("ceil"),
        {exp.Ceil: unary("ceil")},
        duckdb=("ceil", "ceiling"),
    ),
    Function(
        "trunc",
        "trunc(x)",
        "floats, decimals",
        "rises",
        rounded("trunc"),
        {exp.Trunc: unary("trunc", "duckdb")},
        dialects=("duckdb",),
        duckdb=("trunc",),
    ),
    Function(
        "round",
        "round(x), round(x, n)",
        "floats, decimals",
        "rises; floats are widened by the rounding",
        rounded("round"),
        {exp.Round: unary("round")},
        duckdb=("round",),
    ),
    Function(
        "sqrt",
        "sqrt(x)",
        _NUMBERS,
        "rises above zero; NaN below",
        library_function("sqrt"),
        {exp.Sqrt: unary("sqrt")},
        duckdb=("sqrt",),
    ),
    Function(
        "ln",
        "ln(x)",
        _NUMBERS,
        "rises above zero; widened by the rounding; NaN or NULL below",
        library_function("ln"),
        {exp.Ln: unary("ln")},
        duckdb=("ln",),
    ),
    Function(
        "exp",
        "exp(x)",
        _NUMBERS,
        "rises; widened by the rounding",
        library_function("exp"),
        {exp.Exp: unary("exp")},
        duckdb=("exp",),
    ),
    Function(
        "power",
        "power(x, c)",
        "numbers, c a positive whole constant",
        "rises, or for even c falls below zero",
        interval_arithmetic.power,
        {exp.Pow: power},
        duckdb=("pow", "power"),
    ),
    Function(
        "least",
        "least(x, y, …)",
        "one type",
        "the least of the bounds; NULLs are left out",
        extremes.least,
        {exp.Least: extreme("least")},
        duckdb=("least",),
    ),
    Function(
        "greatest",
        "greatest(x, y, …)",
        "one type",
        "the greatest of the bounds; NULLs are left out",
        extremes.greatest,
        {exp.Greatest: extreme("greatest")},
        duckdb=("greatest",),
    ),
)
