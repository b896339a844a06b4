"""Functions of numbers: the operators ``+ - * / // %``, abs, round and its like; CAST, of datetimes too."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pyarrow as pa
from sqlglot import exp

from zskip.core import types as t
from zskip.language.bound import Dialect
from zskip.language.clocks import has_fixed_offset
from zskip.language.functions import widths
from zskip.language.functions.dates import shift_by_interval, zone_of
from zskip.language.functions.function import ArgumentBinder, Builder, Function, require_only, sql_type, whole_number
from zskip.language.intervals import interval_arithmetic, periods
from zskip.language.intervals.interval_arithmetic import rounded, sums_and_products
from zskip.language.literals import Refused
from zskip.language.tree import Call, Cause, Literal, Scalar


def arithmetic(function: str) -> Builder:
    """Binds ``+``, ``-`` and ``*`` over numbers, and over datetimes as the dialect defines them."""

    def build(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
        require_only(node, "this", "expression")
        if isinstance(node.expression, exp.Interval) or isinstance(node.this, exp.Interval):
            return shift_by_interval(binding, node, function)
        left, right = binding.scalar(node.this), binding.scalar(node.expression)
        if t.is_date(left.type) and function in ("add", "subtract"):
            return _date_arithmetic(left, right, function, binding.dialect)
        if widths.is_wide(left) or widths.is_wide(right):
            return _wide(function, left, right, binding.dialect)
        widths.require_numbers(left, right)
        if not (widths.is_exact(left.type) and widths.is_exact(right.type)):
            type = widths.float_result(left, right, binding.dialect)
            return Call(function, (_as_double(left, right), _as_double(right, left)), type)
        if t.is_integer(left.type) and t.is_integer(right.type):
            engine_type = widths.result_type(left, right, binding.dialect)
            folded = _constant_folded(function, left, right, engine_type)
            return folded or Call(function, (left, right), pa.int64(), (engine_type, widths.wraps(binding.dialect)))
        whole, scale = _digits(function, left, right, widths.digits)
        if whole + scale <= 38 and sum(_digits(function, left, right, widths.whole_digits)) <= 18:
            return Call(function, (left, right), pa.decimal128(18, scale))
        return _wide(function, left, right, binding.dialect)

    return build


def _digits(function: str, left: Scalar, right: Scalar, whole: Callable[[Scalar], int]) -> tuple[int, int]:
    """The digits of a result before and after the decimal point; ``whole`` returns those of an operand before it."""
    (a, c), (b, d) = ((whole(each), widths.scale(each)) for each in (left, right))
    return (a + b, c + d) if function == "multiply" else (max(a, b) + 1, max(c, d))


def _wide(function: str, left: Scalar, right: Scalar, dialect: Dialect) -> Scalar:
    """A result of more than 18 digits: exact up to 38 digits, beyond which the engine raises or returns NULL."""
    sides = [each for each in (left, right) if not widths.is_wide(each)]
    widths.require_numbers(*sides)
    if not all(widths.is_exact(each.type) for each in sides):
        raise Refused(f"{left.type} {function} {right.type}: a float and a number that no double holds")
    if dialect.name == "spark":
        known = widths.is_exact(left.type) and widths.is_exact(right.type)
        whole, scale = _digits(function, left, right, widths.digits) if known else (38, 38)
        if whole + scale > 38 and scale > 6:
            raise Refused("a decimal of more than 38 digits, which the engine rounds", Cause.ENGINE_ROUNDS)
    return Call(function, (widths.approximate(left), widths.approximate(right)), pa.float64(), widths.APPROXIMATE)


def _as_double(scalar: Scalar, other: Scalar) -> Scalar:
    """A decimal constant beside a double, as a double if every engine rounds it alike; any other scalar unchanged."""
    if other.type != pa.float64() or not isinstance(scalar, Literal) or not t.is_decimal(scalar.type):
        return scalar
    value = scalar.value.as_py()
    if value is None or scalar.type.scale > 22 or abs(Fraction(value)) * 10**scalar.type.scale > 2**53:
        return scalar
    return Literal(pa.scalar(float(value), pa.float64()))


def _constant_folded(function: str, left: Scalar, right: Scalar, engine_type: pa.DataType) -> Literal | None:
    """The value of an expression over constants, such as ``60 * 60``; None for others, and if the result overflows."""
    if not (isinstance(left, Literal) and isinstance(right, Literal) and left.value.is_valid and right.value.is_valid):
        return None
    a, b = left.value.as_py(), right.value.as_py()
    result = a + b if function == "add" else a - b if function == "subtract" else a * b
    low, high = t.limits(engine_type)
    return Literal(pa.scalar(result, pa.int64())) if low <= result <= high else None


def _date_arithmetic(left: Scalar, right: Scalar, function: str, dialect: Dialect) -> Scalar:
    if left.type != pa.date32():
        raise Refused(f"days and {left.type}, which is in milliseconds")
    if t.is_integer(right.type) and right.type != pa.uint64() and dialect.name == "duckdb":
        return Call("add_days", (left, right), pa.date32(), (function,))
    if t.is_date(right.type) and function == "subtract" and dialect.name == "duckdb":
        return Call("difference", (right, left), pa.int64(), ("day",))
    raise Refused(f"{left.type} {function} {right.type}")


def divide(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``/``: division as floats, of integers too."""
    left, right = binding.scalar(node.this), binding.scalar(node.expression)
    widths.require_numbers(left, right)
    spark = binding.dialect.name == "spark"
    if spark and any(t.is_decimal(each.type) for each in (left, right)):
        raise Refused("division of decimals, which Spark rounds")
    both = {left.type, right.type}
    single = pa.float32() in both and pa.float64() not in both and not spark
    by_zero = "raise" if spark and binding.dialect.ansi else "null" if spark else "infinity"
    return Call("divide", (left, right), pa.float32() if single else pa.float64(), (by_zero,))


def integer_division(function: str) -> Builder:
    """Binds ``//`` and ``%`` over integers."""

    def build(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
        require_only(node, "this", "expression")
        left, right = binding.scalar(node.this), binding.scalar(node.expression)
        widths.require_numbers(left, right)
        if not (t.is_integer(left.type) and t.is_integer(right.type)):
            raise Refused(f"{function} over {left.type} and {right.type}")
        if not isinstance(right, Literal) or not right.value.is_valid or right.value.as_py() == 0:
            raise Refused(f"{function} by something other than a constant")
        engine_type = widths.result_type(left, right, binding.dialect)
        return Call(function, (left, right), pa.int64(), (engine_type, widths.wraps(binding.dialect)))

    return build


_EXACT = "integers, decimals up to 38 digits, floats"

_OPERATORS = (
    Function(
        "add",
        "x + y",
        _EXACT,
        "interval arithmetic; past the result's type the engine raises, or wraps: then unknown",
        sums_and_products("add"),
        {exp.Add: arithmetic("add")},
    ),
    Function(
        "subtract",
        "x - y",
        _EXACT,
        "interval arithmetic, as for +",
        sums_and_products("subtract"),
        {exp.Sub: arithmetic("subtract")},
    ),
    Function(
        "multiply",
        "x * y",
        _EXACT,
        "interval arithmetic: the least and the greatest of the four corners",
        sums_and_products("multiply"),
        {exp.Mul: arithmetic("multiply")},
    ),
    Function(
        "divide",
        "x / y",
        "integers and floats (decimals: duckdb)",
        "interval arithmetic where the divisor's range leaves out zero",
        interval_arithmetic.divide,
        {exp.Div: divide},
    ),
    Function(
        "divide_whole",
        "x // y, x DIV y",
        "integers",
        "as for /, cut towards zero",
        interval_arithmetic.divide_whole,
        {exp.IntDiv: integer_division("divide_whole")},
    ),
    Function(
        "modulo",
        "x % c, mod(x, c)",
        "integers, c a constant",
        "rises within one multiple of c; else every remainder",
        interval_arithmetic.modulo,
        {exp.Mod: integer_division("modulo")},
        duckdb=("mod",),
    ),
)


def unary(function: str, *dialects: str) -> Builder:
    """Binds a function of one number, in some dialects or in all."""

    def build(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
        require_only(node, "this", "decimals", "to", "truncate") if function == "round" else require_only(node, "this")
        if dialects and binding.dialect.name not in dialects:
            raise Refused(f"{function}() in {binding.dialect.name}")
        inner = binding.scalar(node.this)
        if function == "negate" and widths.is_wide(inner) and inner.type != pa.uint64():
            return Call(function, (widths.approximate(inner),), pa.float64(), widths.APPROXIMATE)
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


_NUMBERS = "integers up to 64 bits, decimals up to 18 digits, floats"

_ROUNDING = (
    Function(
        "negate",
        "-x",
        "signed integers, decimals up to 38 digits, floats",
        "falls",
        interval_arithmetic.negate,
        {exp.Neg: unary("negate")},
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
)


def cast(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``CAST(x AS type)`` and ``TRY_CAST``."""
    require_only(node, "this", "to", "safe")
    inner = binding.scalar(node.this)
    target = sql_type(node.args["to"], binding.dialect)
    if target is None:
        raise Refused(f"a cast to {node.args['to'].sql()}")
    if target == inner.type:
        return inner
    safe = bool(node.args.get("safe")) or (isinstance(node, exp.TryCast) and binding.dialect.name == "duckdb")
    if inner.type == pa.date32() or t.is_timestamp(inner.type):
        return _cast_datetime(inner, target, binding.dialect)
    widths.require_numbers(inner)
    if not widths.is_number(target):
        raise Refused(f"a cast of {inner.type} to {target}")
    wraps = widths.wraps(binding.dialect) and not safe
    return Call("cast", (inner,), target, ("null" if safe else "wrap" if wraps else "raise",))


def _cast_datetime(inner: Scalar, target: pa.DataType, dialect: Dialect) -> Scalar:
    zone = zone_of(inner, dialect)
    if t.is_date(target):
        return Call("date", (inner,), pa.date32(), (zone,))
    if not t.is_timestamp(target) or target.unit != "us":
        raise Refused(f"a cast of {inner.type} to {target}")
    shifts = (target.tz is not None) != (zone is not None)
    if shifts and not has_fixed_offset(dialect.timezone):
        raise Refused(
            f"a cast between types with a zone and without, where clocks change in {dialect.timezone}",
            Cause.CLOCKS_CHANGE,
        )
    if t.is_timestamp(inner.type) and inner.type.unit == "ns":
        raise Refused("a cast that truncates nanoseconds")
    return Call("timestamp", (inner,), target, (dialect.timezone if shifts else None,))


_CASTS = (
    Function(
        "approximate",
        "+ - * and comparisons of numbers past 18 digits",
        "decimals up to 38 digits, UBIGINT",
        "in doubles, with a margin for their rounding",
        interval_arithmetic.approximate,
    ),
    Function(
        "cast",
        "CAST(x AS a number), TRY_CAST",
        "integers up to 64 bits, decimals up to 18 digits, floats",
        "rises; widened by one where fractions are rounded; what does not fit raises, or is NULL",
        interval_arithmetic.cast,
        {exp.Cast: cast, exp.TryCast: cast},
    ),
    Function("timestamp", "CAST(x AS TIMESTAMP)", "date, timestamp", "rises", periods.timestamp),
)

FUNCTIONS = (*_OPERATORS, *_ROUNDING, *_CASTS)
