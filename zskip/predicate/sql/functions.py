"""Function calls of SQL as terms: which parsed node is which function of the table, and the type of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types as t
from sqlglot import exp

from zskip.predicate.bound import Dialect
from zskip.predicate.literals import Refused, integer_limits, is_fixed
from zskip.predicate.sql.constants import sql_type
from zskip.predicate.tree import Call, Literal, Scalar

if TYPE_CHECKING:
    from zskip.predicate.sql.binder import Binder

__all__ = ["call"]

Builder = Callable[["Binder", exp.Expr], Scalar]


def call(binder: Binder, node: exp.Expr) -> Scalar | None:
    """The term that a function call is; None where zskip has no such function. Raises `Refused`."""
    builder = _BUILDERS.get(type(node))
    if builder is not None:
        return builder(binder, node)
    if isinstance(node, exp.Anonymous):
        named = _NAMED.get(node.name.lower())
        return named(binder, node.expressions) if named is not None else None
    return None


def known(node: exp.Expr, *names: str) -> None:
    """Refuses a node that holds an argument besides these: it would mean something else."""
    for name, value in node.args.items():
        if name not in names and value not in (None, False, []):
            raise Refused(f"{node.key.upper()} with {name}")


# ── numbers ──


def is_number(type: pa.DataType) -> bool:
    """A type that interval arithmetic reaches."""
    if t.is_decimal(type):
        return bool(type.precision <= 18)
    return bool(t.is_integer(type) and type != pa.uint64()) or type in (pa.float32(), pa.float64())


def _numbers(*scalars: Scalar) -> None:
    for scalar in scalars:
        if not is_number(scalar.type):
            raise Refused(f"arithmetic over {scalar.type}")


def _is_exact(type: pa.DataType) -> bool:
    return bool(t.is_integer(type) or t.is_decimal(type))


def _float_result(left: Scalar, right: Scalar, dialect: Dialect) -> pa.DataType:
    types = (left.type, right.type)
    if pa.float64() in types or (dialect.name == "spark" and any(t.is_decimal(each) for each in types)):
        return pa.float64()
    return pa.float32()


def _digits(scalar: Scalar) -> int:
    if t.is_decimal(scalar.type):
        return int(scalar.type.precision - scalar.type.scale)
    return {8: 3, 16: 5, 32: 10, 64: 20}[scalar.type.bit_width]


def _whole_digits(scalar: Scalar) -> int:
    """The digits before the point that its values have at most."""
    if isinstance(scalar, Literal) and scalar.value.is_valid:
        return len(str(abs(int(scalar.value.as_py()))))
    return _digits(scalar)


def _scale(scalar: Scalar) -> int:
    return int(scalar.type.scale) if t.is_decimal(scalar.type) else 0


def _held(scalar: Scalar, dialect: Dialect) -> pa.DataType:
    """The integer type in which the engine holds a scalar; what arithmetic gives is held here in 64 bits."""
    match scalar:
        case Literal(value):
            return pa.int32() if value.is_valid and -(2**31) <= value.as_py() < 2**31 else pa.int64()
        case Call(_, _, _, (pa.DataType() as narrow, bool())):
            return narrow
        case Call("part" | "difference") if dialect.name == "spark":
            return pa.int32()
        case Call("least" | "greatest", arguments):
            types = [_held(each, dialect) for each in arguments if not isinstance(each, Literal)]
            return max(types, key=lambda type: type.bit_width, default=pa.int32())
    return scalar.type


def _narrow(left: Scalar, right: Scalar, dialect: Dialect) -> pa.DataType:
    """The integer type in which the engine computes: past it, it raises or wraps."""
    sizes, unsigned = [], []
    for scalar, other in ((left, right), (right, left)):
        type = _held(scalar, dialect)
        if isinstance(scalar, Literal) and not isinstance(other, Literal) and dialect.name == "duckdb":
            # DuckDB reads a constant in the type beside it, where that can hold it.
            low, high = integer_limits(_held(other, dialect))
            if low <= scalar.value.as_py() <= high:
                continue
        sizes.append(type.bit_width)
        unsigned.append(t.is_unsigned_integer(type))
    if all(unsigned):
        return {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32()}[max(sizes)]
    bits = max(size * 2 if no_sign else size for size, no_sign in zip(sizes, unsigned, strict=True))
    return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[min(bits, 64)]


def _wraps(dialect: Dialect) -> bool:
    return dialect.name == "spark" and not dialect.ansi


def arithmetic(function: str) -> Builder:
    """``+``, ``-`` and ``*`` over numbers; over dates and timestamps what the dialect makes of them."""

    def build(binder: Binder, node: exp.Expr) -> Scalar:
        known(node, "this", "expression")
        if isinstance(node.expression, exp.Interval) or isinstance(node.this, exp.Interval):
            return _moved(binder, node, function)
        left, right = binder.scalar(node.this), binder.scalar(node.expression)
        if t.is_date(left.type) and function in ("add", "subtract"):
            return _date_arithmetic(left, right, function, binder.dialect)
        _numbers(left, right)
        if not (_is_exact(left.type) and _is_exact(right.type)):
            type = _float_result(left, right, binder.dialect)
            return Call(function, (_as_double(left, right), _as_double(right, left)), type)
        if t.is_integer(left.type) and t.is_integer(right.type):
            narrow = _narrow(left, right, binder.dialect)
            folded = _folded(function, left, right, narrow)
            return folded or Call(function, (left, right), pa.int64(), (narrow, _wraps(binder.dialect)))
        scale = _scale(left) + _scale(right) if function == "multiply" else max(_scale(left), _scale(right))
        whole = _digits(left) + _digits(right) if function == "multiply" else max(_digits(left), _digits(right)) + 1
        if whole + scale > 38 or scale > 17:
            raise Refused("a decimal of more than 38 digits, which the engine rounds")
        sizes = [_whole_digits(each) for each in (left, right)]
        if (sum(sizes) if function == "multiply" else max(sizes) + 1) + scale > 18:
            # The engine goes on past the 18 digits in which bounds are computed here.
            raise Refused("a decimal of more than 18 digits")
        return Call(function, (left, right), pa.decimal128(18, scale))

    return build


def _as_double(scalar: Scalar, other: Scalar) -> Scalar:
    """A decimal constant beside doubles as the double that it becomes, where every engine rounds it to the same."""
    if other.type != pa.float64() or not isinstance(scalar, Literal) or not t.is_decimal(scalar.type):
        return scalar
    value = scalar.value.as_py()
    if value is None or scalar.type.scale > 22 or abs(value.scaleb(scalar.type.scale)) > 2**53:
        return scalar
    return Literal(pa.scalar(float(value), pa.float64()))


def _folded(function: str, left: Scalar, right: Scalar, narrow: pa.DataType) -> Literal | None:
    """``60 * 60`` as the constant that it is; None beside a column, or where the type does not hold the result."""
    if not (isinstance(left, Literal) and isinstance(right, Literal) and left.value.is_valid and right.value.is_valid):
        return None
    a, b = left.value.as_py(), right.value.as_py()
    result = a + b if function == "add" else a - b if function == "subtract" else a * b
    low, high = integer_limits(narrow)
    return Literal(pa.scalar(result, pa.int64())) if low <= result <= high else None


def _date_arithmetic(left: Scalar, right: Scalar, function: str, dialect: Dialect) -> Scalar:
    if left.type != pa.date32():
        raise Refused(f"days beside {left.type}, which counts milliseconds")
    if t.is_integer(right.type) and right.type != pa.uint64() and dialect.name == "duckdb":
        return Call("add_days", (left, right), pa.date32(), (function,))
    if t.is_date(right.type) and function == "subtract" and dialect.name == "duckdb":
        return Call("difference", (right, left), pa.int64(), ("day",))
    raise Refused(f"{left.type} {function} {right.type}")


def divide(binder: Binder, node: exp.Expr) -> Scalar:
    """``/``: double division; of integers too."""
    left, right = binder.scalar(node.this), binder.scalar(node.expression)
    _numbers(left, right)
    spark = binder.dialect.name == "spark"
    if spark and any(t.is_decimal(each.type) for each in (left, right)):
        raise Refused("division of decimals, which Spark rounds")
    both = {left.type, right.type}
    single = pa.float32() in both and pa.float64() not in both and not spark
    failing = "raise" if spark and binder.dialect.ansi else "null" if spark else "infinity"
    return Call("divide", (left, right), pa.float32() if single else pa.float64(), (failing,))


def whole(function: str) -> Builder:
    """``//`` and ``%`` over integers."""

    def build(binder: Binder, node: exp.Expr) -> Scalar:
        known(node, "this", "expression")
        left, right = binder.scalar(node.this), binder.scalar(node.expression)
        _numbers(left, right)
        if not (t.is_integer(left.type) and t.is_integer(right.type)):
            raise Refused(f"{function} over {left.type} and {right.type}")
        if not isinstance(right, Literal) or not right.value.is_valid or right.value.as_py() == 0:
            raise Refused(f"{function} by something other than a constant")
        return Call(function, (left, right), pa.int64(), (_narrow(left, right, binder.dialect), _wraps(binder.dialect)))

    return build


def unary(function: str, *dialects: str) -> Builder:
    """Functions of one number."""

    def build(binder: Binder, node: exp.Expr) -> Scalar:
        known(node, "this", "decimals", "to", "truncate") if function == "round" else known(node, "this")
        if dialects and binder.dialect.name not in dialects:
            raise Refused(f"{function}() in {binder.dialect.name}")
        inner = binder.scalar(node.this)
        _numbers(inner)
        return _unary(function, inner, node, binder.dialect)

    return build


def _unary(function: str, inner: Scalar, node: exp.Expr, dialect: Dialect) -> Scalar:
    type = inner.type
    if function in ("negate", "abs"):
        if t.is_unsigned_integer(type) and function == "negate":
            raise Refused("the negative of an unsigned integer")
        if t.is_integer(type):
            return Call(function, (inner,), pa.int64(), (_held(inner, dialect), _wraps(dialect)))
        return Call(function, (inner,), type)
    if function == "sign":
        return Call(function, (inner,), pa.int8())
    if function in ("sqrt", "ln", "exp"):
        below = "null" if dialect.name == "spark" and function == "ln" else "nan"
        return Call(function, (inner,), pa.float64(), (below,))
    places = 0
    if function == "round" and node.args.get("decimals") is not None:
        if node.args.get("truncate") is not None:
            raise Refused("round with a mode")
        wanted = binder_constant(node.args["decimals"])
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
        # Spark's result is a bigint: what does not fit it is clipped, and NaN becomes 0.
        raise Refused(f"{function}() of a float in Spark")
    return Call(function, (inner,), type, (places,))


def binder_constant(node: exp.Expr) -> int | None:
    """A whole number that is written out."""
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        return int(node.this)
    if isinstance(node, exp.Literal) and node.is_string and node.this.lstrip("-").isdigit():
        return int(node.this)
    if isinstance(node, exp.Neg) and (inner := binder_constant(node.this)) is not None:
        return -inner
    if isinstance(node, exp.Paren):
        return binder_constant(node.this)
    return None


def power(binder: Binder, node: exp.Expr) -> Scalar:
    """``power(x, c)`` with a small whole exponent."""
    known(node, "this", "expression")
    exponent = binder_constant(node.expression)
    if exponent is None or not 1 <= exponent <= 64:
        raise Refused("power with something other than a whole exponent from 1 to 64")
    inner = binder.scalar(node.this)
    _numbers(inner)
    return Call("power", (inner,), pa.float64(), (exponent,))


def extreme(function: str) -> Builder:
    """``least`` and ``greatest``."""

    def build(binder: Binder, node: exp.Expr) -> Scalar:
        known(node, "this", "expressions", "ignore_nulls")
        scalars = [binder.scalar(each) for each in (node.this, *node.expressions)]
        skips = ("skips NULL",) if binder.dialect.name in ("duckdb", "spark") else ()
        return Call(function, tuple(aligned(scalars, binder.dialect)), _one_type(scalars), skips)

    return build


def _one_type(scalars: Sequence[Scalar]) -> pa.DataType:
    found = next((each.type for each in scalars if not isinstance(each, Literal)), scalars[0].type)
    if t.is_floating(found) and found != pa.float64():
        raise Refused("values of several float types")
    return found


def aligned(scalars: Sequence[Scalar], dialect: Dialect) -> list[Scalar]:
    """Scalars of one type: constants are taken into it where they fit exactly. Raises `Refused`."""
    from zskip.predicate.literals import fit

    wanted = _one_type(scalars)
    found: list[Scalar] = []
    for scalar in scalars:
        if isinstance(scalar, Literal) and scalar.type != wanted:
            if not scalar.value.is_valid:
                found.append(Literal(pa.scalar(None, wanted)))
                continue
            fitted = fit(scalar.value, wanted, dialect.name, dialect.timezone)
            if not fitted.exact or fitted.floor is None:
                raise Refused(f"{scalar.value} among values of {wanted}")
            found.append(Literal(fitted.floor))
        elif scalar.type != wanted:
            raise Refused(f"{scalar.type} among values of {wanted}")
        else:
            found.append(scalar)
    return found


# ── moments ──

PARTS = {
    "year": "year", "yr": "year", "years": "year", "y": "year",
    "quarter": "quarter", "quarters": "quarter",
    "month": "month", "months": "month", "mon": "month", "mons": "month",
    "week": "week", "weeks": "week", "weekofyear": "week", "w": "week",
    "day": "day", "days": "day", "d": "day", "dayofmonth": "day",
    "dayofyear": "dayofyear", "doy": "dayofyear",
    "dayofweek": "dayofweek", "dow": "dayofweek", "weekday": "dayofweek", "isodow": "isodow",
    "hour": "hour", "hours": "hour", "h": "hour",
    "minute": "minute", "minutes": "minute", "min": "minute", "m": "minute",
    "second": "second", "seconds": "second", "sec": "second", "s": "second",
}  # fmt: skip
"""The parts of a moment by their spellings."""

_NO_UNITS = {"dayofyear", "doy", "dayofweek", "dow", "weekday", "isodow", "weekofyear", "dayofmonth", "m"}

UNITS = {
    **{name: unit for name, unit in PARTS.items() if name not in _NO_UNITS},
    **{name: name for name in ("decade", "century", "millisecond", "microsecond")},
    "milliseconds": "millisecond",
    "ms": "millisecond",
    "microseconds": "microsecond",
    "us": "microsecond",
}
"""The units of a truncation or an interval by their spellings."""


def moment(binder: Binder, node: exp.Expr, zone: bool = True) -> Scalar:
    """An argument that is a date or a timestamp. Raises `Refused`."""
    inner = binder.scalar(node)
    if not (inner.type == pa.date32() or (t.is_timestamp(inner.type) and (zone or inner.type.tz is None))):
        raise Refused(f"a date function over {inner.type}")
    return inner


def zone_of(scalar: Scalar, dialect: Dialect) -> str | None:
    """The zone in which the parts of a moment are read; None without one."""
    return dialect.timezone if t.is_timestamp(scalar.type) and scalar.type.tz is not None else None


def _part(name: str, inner: Scalar, dialect: Dialect) -> Scalar:
    part = PARTS.get(name.lower())
    if part is None:
        raise Refused(f"the part {name} of a moment")
    if part in ("hour", "minute", "second") and t.is_date(inner.type) and dialect.name == "spark":
        raise Refused("an hour of a date in Spark")
    if part == "second" and dialect.name == "spark":
        raise Refused("seconds in Spark, which may hold fractions")
    if dialect.name == "spark" and part in ("dayofweek", "isodow"):
        part = (
            "spark_dayofweek"
            if name.lower() in ("dayofweek", "dow")
            else "spark_weekday"
            if name.lower() == "weekday"
            else "isodow"
        )
    return Call("part", (inner,), pa.int64(), (part, zone_of(inner, dialect)))


def part(name: str) -> Builder:
    """``year(x)`` and its kind."""

    def build(binder: Binder, node: exp.Expr) -> Scalar:
        known(node, "this")
        inner = node.this
        if isinstance(inner, exp.TsOrDsToDate) and not inner.args.get("safe"):
            known(inner, "this")
            inner = inner.this
        return _part(name, moment(binder, inner), binder.dialect)

    return build


def extract(binder: Binder, node: exp.Expr) -> Scalar:
    """``extract(part FROM x)``."""
    known(node, "this", "expression")
    name = node.this.name
    if name.lower() == "epoch" and binder.dialect.name == "duckdb":
        return Call("epoch", (moment(binder, node.expression),), pa.float64(), ("second",))
    return _part(_spark_part(name, binder.dialect), moment(binder, node.expression), binder.dialect)


def _spark_part(name: str, dialect: Dialect) -> str:
    if dialect.name == "spark" and name.lower() in (
        "week",
        "w",
        "weeks",
        "dow",
        "dayofweek",
        "dow_iso",
        "dayofweek_iso",
    ):
        return {"dow_iso": "isodow", "dayofweek_iso": "isodow"}.get(name.lower(), name)
    return name


def date_part(binder: Binder, arguments: Sequence[exp.Expr]) -> Scalar:
    """``date_part('month', x)``."""
    if len(arguments) != 2 or not isinstance(arguments[0], exp.Literal):
        raise Refused("date_part of something other than a constant part")
    name = arguments[0].this
    if name.lower() == "epoch" and binder.dialect.name == "duckdb":
        return Call("epoch", (moment(binder, arguments[1]),), pa.float64(), ("second",))
    return _part(_spark_part(name, binder.dialect), moment(binder, arguments[1]), binder.dialect)


def truncate(binder: Binder, node: exp.Expr) -> Scalar:
    """``date_trunc('month', x)``."""
    known(node, "this", "unit")
    unit = UNITS.get(node.args["unit"].name.lower())
    inner = moment(binder, node.this)
    if unit is None:
        raise Refused(f"date_trunc to {node.args['unit'].name}")
    zone = zone_of(inner, binder.dialect)
    if binder.dialect.name == "spark":
        if zone is None:
            raise Refused("date_trunc over a column without zone, which Spark takes into the session's zone")
        if unit in ("decade", "century"):
            raise Refused(f"date_trunc to {unit} in Spark")
    elif binder.dialect.name != "duckdb":
        raise Refused(f"date_trunc in {binder.dialect.name}")
    if zone is not None and not is_fixed(zone) and unit not in ("day", "week", "month", "quarter", "year"):
        raise Refused(f"date_trunc to {unit} where clocks change")
    return Call("truncate", (inner,), pa.timestamp("us", "UTC" if zone else None), (unit, zone))


def spark_trunc(binder: Binder, node: exp.Expr) -> Scalar:
    """Spark's ``trunc(x, 'MM')``: a date."""
    known(node, "this", "unit")
    spellings = {
        "year": "year",
        "yyyy": "year",
        "yy": "year",
        "quarter": "quarter",
        "month": "month",
        "mm": "month",
        "mon": "month",
        "week": "week",
    }
    unit = spellings.get(node.args["unit"].name.lower())
    inner = moment(binder, node.this)
    if binder.dialect.name != "spark" or unit is None:
        raise Refused("trunc of a moment")
    return Call("truncate", (inner,), pa.date32(), (unit, zone_of(inner, binder.dialect)))


def to_date(binder: Binder, node: exp.Expr) -> Scalar:
    """``to_date(x)`` and ``date(x)`` of a moment."""
    known(node, "this", "safe")
    inner = moment(binder, node.this)
    return inner if t.is_date(inner.type) else Call("date", (inner,), pa.date32(), (zone_of(inner, binder.dialect),))


def last_day(binder: Binder, node: exp.Expr) -> Scalar:
    """``last_day(x)``: a date."""
    known(node, "this")
    inner = moment(binder, node.this)
    return Call("last_day", (inner,), pa.date32(), (zone_of(inner, binder.dialect),))


_INTERVALS = {
    "year": (12, 0, 0), "quarter": (3, 0, 0), "month": (1, 0, 0), "week": (0, 7, 0), "day": (0, 1, 0),
    "hour": (0, 0, 3_600_000_000), "minute": (0, 0, 60_000_000), "second": (0, 0, 1_000_000),
    "millisecond": (0, 0, 1_000), "microsecond": (0, 0, 1),
}  # fmt: skip


def interval(node: exp.Expr) -> tuple[int, int, int]:
    """Months, days and microseconds of an interval that is written out. Raises `Refused`."""
    if not isinstance(node, exp.Interval) or node.args.get("unit") is None:
        raise Refused("an interval that is no constant")
    known(node, "this", "unit")
    count = binder_constant(node.this)
    unit = _INTERVALS.get(UNITS.get(node.args["unit"].name.lower(), ""))
    if count is None or unit is None or abs(count) > 100_000:
        raise Refused("an interval that zskip does not read")
    return unit[0] * count, unit[1] * count, unit[2] * count


def shifted(inner: Scalar, months: int, days: int, micros: int, dialect: Dialect) -> Scalar:
    """A moment moved by a constant interval."""
    zone = zone_of(inner, dialect)
    if zone is not None and not is_fixed(zone) and (months or days):
        raise Refused(f"days are not all as long in {zone}")
    result = pa.timestamp("us", "UTC" if zone else None)
    if t.is_date(inner.type) and dialect.name == "spark":
        if micros:
            raise Refused("a date and a time of day in Spark")
        result = pa.date32()
    if t.is_timestamp(inner.type) and inner.type.unit == "ns":
        raise Refused("an interval beside nanoseconds, which are cut")
    return Call("shift", (inner,), result, (months, days, micros, zone))


def _moved(binder: Binder, node: exp.Expr, function: str) -> Scalar:
    base, amount = node.this, node.expression
    if isinstance(base, exp.Interval):
        if function != "add":
            raise Refused("something taken from an interval")
        base, amount = amount, base
    inner = moment(binder, base)
    sign = -1 if function == "subtract" else 1
    if function == "multiply":
        raise Refused("a product with an interval")
    months, days, micros = (sign * each for each in interval(amount))
    return shifted(inner, months, days, micros, binder.dialect)


def date_add(binder: Binder, node: exp.Expr) -> Scalar:
    """``date_add(x, INTERVAL …)`` of DuckDB."""
    known(node, "this", "expression")
    return shifted(moment(binder, node.this), *interval(node.expression), binder.dialect)


def spark_date_add(binder: Binder, node: exp.Expr) -> Scalar:
    """Spark's ``date_add(x, n)`` and ``date_sub(x, n)``: a date."""
    known(node, "this", "expression", "unit")
    amount, sign = node.expression, 1
    if isinstance(amount, exp.Mul) and isinstance(amount.expression, exp.Neg):
        amount, sign = amount.this, -1
    count = binder_constant(amount)
    if (
        binder.dialect.name != "spark"
        or count is None
        or (node.args.get("unit") and node.args["unit"].name.upper() != "DAY")
    ):
        raise Refused("date_add with something other than a constant number of days")
    return Call("add_days", (as_date(binder, node.this), Literal(pa.scalar(sign * count))), pa.date32(), ("add",))


def as_date(binder: Binder, node: exp.Expr) -> Scalar:
    """A moment as a date."""
    inner = moment(binder, node)
    return inner if t.is_date(inner.type) else Call("date", (inner,), pa.date32(), (zone_of(inner, binder.dialect),))


def add_months(binder: Binder, node: exp.Expr) -> Scalar:
    """Spark's ``add_months(x, n)``."""
    known(node, "this", "expression")
    count = binder_constant(node.expression)
    if binder.dialect.name != "spark" or count is None or abs(count) > 100_000:
        raise Refused("add_months with something other than a constant")
    return Call("shift", (as_date(binder, node.this),), pa.date32(), (count, 0, 0, None))


def date_diff(binder: Binder, node: exp.Expr) -> Scalar:
    """``date_diff('unit', x, y)``: the borders of units between x and y."""
    known(node, "this", "expression", "unit", "date_part_boundary")
    unit = UNITS.get(node.args["unit"].name.lower()) if node.args.get("unit") else "day"
    later, earlier = node.this, node.expression
    if binder.dialect.name == "spark":
        if node.args.get("unit"):
            raise Refused("datediff with a unit in Spark, which counts whole units")
        later, earlier = (each.this if isinstance(each, exp.TsOrDsToDate) else each for each in (later, earlier))
    elif binder.dialect.name != "duckdb":
        raise Refused("datediff in this dialect")
    if unit is None or unit in ("millisecond", "microsecond", "decade", "century"):
        raise Refused("date_diff in that unit")
    return Call("difference", (moment(binder, earlier, False), moment(binder, later, False)), pa.int64(), (unit,))


def epoch(binder: Binder, node: exp.Expr) -> Scalar:
    """``epoch(x)``: seconds, as a double."""
    known(node, "this")
    if binder.dialect.name != "duckdb":
        raise Refused("epoch")
    return Call("epoch", (moment(binder, node.this),), pa.float64(), ("second",))


def from_epoch(binder: Binder, node: exp.Expr) -> Scalar:
    """``to_timestamp(x)``; or ``epoch_ms`` of a timestamp, which the parser calls by the same name."""
    known(node, "this", "scale")
    inner = binder.scalar(node.this)
    if binder.dialect.name != "duckdb":
        raise Refused("to_timestamp")
    scale = binder_constant(node.args["scale"]) if node.args.get("scale") else None
    if t.is_timestamp(inner.type) or t.is_date(inner.type):
        if scale != 3 or inner.type == pa.date64():
            raise Refused("to_timestamp of a timestamp")
        return Call("epoch", (inner,), pa.int64(), ("millisecond", "towards zero"))
    if scale is not None or not t.is_integer(inner.type) or inner.type == pa.uint64():
        raise Refused("to_timestamp of something other than whole seconds")
    return Call("from_epoch", (inner,), pa.timestamp("us", "UTC"), ("second",))


def unix(unit: str, type: pa.DataType) -> Builder:
    """Spark's ``unix_seconds(x)``, ``unix_date(x)``."""

    def build(binder: Binder, node: exp.Expr) -> Scalar:
        known(node, "this")
        inner = moment(binder, node.this)
        if binder.dialect.name != "spark" or (unit == "second" and (t.is_date(inner.type) or inner.type.tz is None)):
            raise Refused("unix time of a moment without a zone")
        if unit == "day" and not t.is_date(inner.type):
            raise Refused("unix_date of a timestamp")
        return Call("epoch", (inner,), type, (unit,))

    return build


# ── casts and strings ──


def cast(binder: Binder, node: exp.Expr) -> Scalar:
    """``CAST(x AS type)`` and ``TRY_CAST``."""
    known(node, "this", "to", "safe")
    inner = binder.scalar(node.this)
    target = sql_type(node.args["to"], binder.dialect)
    if target is None:
        raise Refused(f"a cast to {node.args['to'].sql()}")
    if target == inner.type:
        return inner
    safe = bool(node.args.get("safe")) or (isinstance(node, exp.TryCast) and binder.dialect.name == "duckdb")
    if inner.type == pa.date32() or t.is_timestamp(inner.type):
        return _cast_moment(inner, target, binder.dialect)
    _numbers(inner)
    if not is_number(target):
        raise Refused(f"a cast of {inner.type} to {target}")
    wraps = _wraps(binder.dialect) and not safe
    return Call("cast", (inner,), target, ("null" if safe else "wrap" if wraps else "raise",))


def _cast_moment(inner: Scalar, target: pa.DataType, dialect: Dialect) -> Scalar:
    zone = zone_of(inner, dialect)
    if t.is_date(target):
        return Call("date", (inner,), pa.date32(), (zone,))
    if not t.is_timestamp(target) or target.unit != "us":
        raise Refused(f"a cast of {inner.type} to {target}")
    if (target.tz is not None) != (zone is not None) and not is_fixed(dialect.timezone):
        raise Refused(f"a cast between types with a zone and without, where clocks change in {dialect.timezone}")
    if t.is_timestamp(inner.type) and inner.type.unit == "ns":
        raise Refused("a cast that cuts nanoseconds")
    return Call(
        "timestamp", (inner,), target, (dialect.timezone if (target.tz is not None) != (zone is not None) else None,)
    )


def prefix(binder: Binder, node: exp.Expr) -> Scalar:
    """``left(x, n)`` and ``substr(x, 1, n)``."""
    known(node, "this", "expression", "start", "length")
    inner = binder.scalar(node.this)
    if isinstance(node, exp.Substring):
        start, count = (
            binder_constant(node.args[name]) if node.args.get(name) else None for name in ("start", "length")
        )
        if start != 1:
            raise Refused("a part of a string that does not start at its beginning")
    else:
        count = binder_constant(node.expression)
    if not t.is_string(inner.type) or count is None or count < 0 or binder.dialect.name not in ("duckdb", "spark"):
        raise Refused(f"the beginning of {inner.type}")
    return Call("prefix", (inner,), pa.string(), (count,))


def concat(binder: Binder, node: exp.Expr) -> Scalar:
    """``'p' || x`` and ``concat('p', x)``."""
    known(node, "this", "expression", "expressions", "safe", "coalesce")
    parts = [binder.scalar(each) for each in (node.expressions or (node.this, node.expression))]
    if len(parts) != 2 or not isinstance(parts[0], Literal) or not parts[0].value.is_valid:
        raise Refused("a concatenation that does not begin with a constant")
    if not all(t.is_string(each.type) for each in parts):
        raise Refused("a concatenation of something other than strings")
    skips = isinstance(node, exp.Concat) and binder.dialect.name == "duckdb"
    return Call("concat", (parts[1],), pa.string(), (parts[0].value.as_py(), skips))


_BUILDERS: dict[type[exp.Expr], Builder] = {
    exp.Add: arithmetic("add"),
    exp.Sub: arithmetic("subtract"),
    exp.Mul: arithmetic("multiply"),
    exp.Div: divide,
    exp.IntDiv: whole("divide_whole"),
    exp.Mod: whole("modulo"),
    exp.Neg: unary("negate"),
    exp.Abs: unary("abs"),
    exp.Sign: unary("sign", "duckdb"),
    exp.Floor: unary("floor"),
    exp.Ceil: unary("ceil"),
    exp.Round: unary("round"),
    exp.Trunc: unary("trunc", "duckdb"),
    exp.Sqrt: unary("sqrt"),
    exp.Ln: unary("ln"),
    exp.Exp: unary("exp"),
    exp.Pow: power,
    exp.Least: extreme("least"),
    exp.Greatest: extreme("greatest"),
    exp.Year: part("year"),
    exp.Quarter: part("quarter"),
    exp.Month: part("month"),
    exp.Week: part("week"),
    exp.WeekOfYear: part("week"),
    exp.Day: part("day"),
    exp.DayOfMonth: part("day"),
    exp.DayOfYear: part("dayofyear"),
    exp.DayOfWeek: part("dayofweek"),
    exp.DayOfWeekIso: part("isodow"),
    exp.Hour: part("hour"),
    exp.Minute: part("minute"),
    exp.Second: part("second"),
    exp.Extract: extract,
    exp.TimestampTrunc: truncate,
    exp.DateTrunc: spark_trunc,
    exp.TsOrDsToDate: to_date,
    exp.Date: to_date,
    exp.LastDay: last_day,
    exp.DateAdd: date_add,
    exp.TsOrDsAdd: spark_date_add,
    exp.AddMonths: add_months,
    exp.DateDiff: date_diff,
    exp.TimeToUnix: epoch,
    exp.UnixToTime: from_epoch,
    exp.UnixSeconds: unix("second", pa.int64()),
    exp.UnixDate: unix("day", pa.int64()),
    exp.Cast: cast,
    exp.TryCast: cast,
    exp.Left: prefix,
    exp.Substring: prefix,
    exp.DPipe: concat,
    exp.Concat: concat,
}

_NAMED: dict[str, Callable[[Binder, Sequence[exp.Expr]], Scalar]] = {
    "date_part": date_part,
    "datepart": date_part,
}
