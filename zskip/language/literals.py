"""Convert constants exactly to a column's type.

Each SQL literal first becomes an Arrow scalar of its own type: int64 or decimal128 for exact numbers, float64, string,
bool, date32, timestamp with microseconds (with a zone or without), time64, binary, null. `fit` then finds the greatest
value of the column's type that is not above the constant, and whether it equals the constant:

    int_col < 5.5     floor 5, not exact     int_col <= 5
    int_col = 5.5                            never
    int_col > 300     int8: above the type   never (where not NULL)

Values of Python, numpy and Arrow, as parameters and other libraries' expressions hold them, become the same scalars.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.late_loading import ask_duckdb
from zskip.core.types import UNIT_NANOSECONDS
from zskip.errors import UnknownParameter
from zskip.language import clocks, tree
from zskip.language.clocks import has_fixed_offset, offset_nanoseconds
from zskip.language.tree import Cause, Literal, Node, Scalar, Why

_DAY_NANOSECONDS = 86_400 * 10**9
_EXACT_DOUBLE = 2**53
_MOST_ASKED = 64
"""Long decimals of one list, about each of which DuckDB is asked."""


def per_day(type: pa.DataType) -> int:
    """The number of units in a day, for a date or timestamp type."""
    return 1 if t.is_date(type) else _DAY_NANOSECONDS // UNIT_NANOSECONDS[type.unit]


class Refused(Exception):  # never reaches users: the binder catches it and makes the predicate opaque
    """zskip cannot bind an expression: a constant does not fit, or the dialect's rule is not known. Says why."""

    def __init__(self, text: str, cause: Cause = Cause.UNSUPPORTED) -> None:
        super().__init__(text)
        self.why = Why(text, cause)


@dataclass(frozen=True, slots=True)
class Fit:
    """``floor``: the greatest value of the type that is <= the constant, or None. ``exact``: whether they are equal."""

    floor: pa.Scalar | None
    exact: bool


def compare_fitted(op: str, term: Scalar, fitted: Fit) -> Node:
    """``term op constant`` for ``= <> < <= > >=`` after fitting."""
    if fitted.floor is None:
        return tree.always(term) if op in (">", ">=", "<>") else tree.never(term)
    literal = Literal(fitted.floor)
    if fitted.exact:
        return tree.compare(op, term, literal)
    match op:
        case "=":
            return tree.never(term)
        case "<>":
            return tree.always(term)
        case "<" | "<=":
            return tree.compare("<=", term, literal)
    return tree.compare(">", term, literal)


def fit(constant: pa.Scalar, type: pa.DataType, dialect: str, timezone: str) -> Fit:
    """Converts a constant to a type in which the dialect compares the two. Raises `Refused`.

    >>> fit(pa.scalar(300), pa.int8(), "duckdb", "UTC")
    Fit(floor=<pyarrow.Int8Scalar: 127>, exact=False)
    """
    if t.is_string(constant.type) and not t.is_string(type):
        constant = _cast_string(constant.as_py(), type, dialect, timezone)
    source = constant.type
    if source == type and not t.is_floating(type):
        return Fit(constant, True)
    if t.is_boolean(type):
        return _fit_boolean(constant, dialect)
    if t.is_floating(type):
        return _fit_float(constant, type, dialect)
    if t.is_integer(type) or t.is_decimal(type):
        if dialect == "spark" and t.is_integer(type) and t.is_decimal(source) and constant.as_py().copy_abs() >= 2**63:
            raise Refused("a constant outside BIGINT: Spark returns TRUE or FALSE for it even beside NULL")
        return _fit_number(constant, type)
    if t.is_date(type) or t.is_timestamp(type):
        return _fit_datetime(constant, type, dialect, timezone)
    if t.is_time(type) and t.is_time(source):
        unit = UNIT_NANOSECONDS[type.unit]
        floor, rest = divmod(constant.value * UNIT_NANOSECONDS[source.unit], unit)
        return Fit(pa.scalar(floor, pa.int64() if type.bit_width == 64 else pa.int32()).cast(type), rest == 0)
    raise Refused(f"a constant of type {source} compared with {type}")


def unified(constants: Sequence[pa.Scalar], type: pa.DataType) -> list[pa.Scalar]:
    """The constants of one IN or BETWEEN in the type to which engines cast them all. Raises `Refused` if unclear.

    ``type``: of what they are compared with.

    >>> unified([pa.scalar(1), pa.scalar(2.5)], pa.int64())
    [<pyarrow.DoubleScalar: 1.0>, <pyarrow.DoubleScalar: 2.5>]
    """
    types = {constant.type for constant in constants if constant.is_valid}
    decimals = [each for each in types if t.is_decimal(each)]
    if type == pa.float32() and decimals and (len(types) > 1 or len(constants) > _MOST_ASKED):
        scale = max(each.scale for each in decimals)
        exact = [each for each in constants if each.is_valid and (t.is_integer(each.type) or t.is_decimal(each.type))]
        if any(_short(each.as_py(), scale) is None for each in exact):
            raise Refused("FLOAT beside a list of long decimals", Cause.ENGINE_ROUNDS)
    if len(types) < 2 or all(t.is_date(each) or t.is_timestamp(each) or t.is_string(each) for each in types):
        return list(constants)
    if types == {t.UUID, pa.string()}:
        return list(constants)
    if not all(t.is_numeric(each) for each in types):
        raise Refused("constants of several kinds: the dialect casts them all to one")
    if not any(t.is_floating(each) for each in types):
        return list(constants)
    if pa.float32() in types:
        raise Refused("constants of FLOAT beside others: the dialect casts them all to it, or to DOUBLE")
    return [pa.scalar(float(each.as_py()), pa.float64()) if each.is_valid else each for each in constants]


def _cast_string(text: str, type: pa.DataType, dialect: str, timezone: str) -> pa.Scalar:
    """Casts a string constant to another type as the dialect does, for texts that all engines read alike."""
    if t.is_integer(type) and re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        return _exact_number(int(text), type)
    if t.is_decimal(type) and re.fullmatch(r"[+-]?[0-9]{1,30}(\.[0-9]{1,30})?", text):
        exact = Decimal(text)
        if dialect == "duckdb" and -int(exact.as_tuple().exponent) > type.scale:
            raise Refused("a string with more digits than the column's scale is rounded")
        return _exact_number(exact, type)
    if t.is_floating(type) and re.fullmatch(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?", text):
        if type.bit_width == 32 and dialect == "duckdb":
            return pa.scalar(_nearest_float(Fraction(text)), pa.float64())
        number = float(text)
        if type.bit_width == 32 and dialect == "spark" and float(_nearest(number, type)) != Fraction(text):
            raise Refused("a string compared with FLOAT, which Spark rounds in ANSI mode alone", Cause.ENGINE_ROUNDS)
        return pa.scalar(number, pa.float64())
    if t.is_boolean(type) and text.lower() in ("true", "false"):
        return pa.scalar(text.lower() == "true")
    if t.is_date(type):
        return date_value(text)
    if t.is_timestamp(type):
        moment = timestamp(text, type.tz is not None, dialect, timezone)
        if moment.value * UNIT_NANOSECONDS[moment.type.unit] % UNIT_NANOSECONDS[type.unit]:
            raise Refused(f"the string {text!r} is finer than {type}: readers round or cut it")
        return moment
    if t.is_time(type) and (time := time_of_day(text, dialect)) is not None:
        return time
    if t.is_binary(type) and text.isascii() and "\\" not in text:
        return pa.scalar(text.encode(), pa.binary())
    if (value := string_value(text, type, dialect)) is not None:
        return value
    raise Refused(f"the string {text!r} compared with {type}: the cast is left to the engine", Cause.ENGINE_CASTS)


def string_value(text: str, type: pa.DataType, dialect: str) -> pa.Scalar | None:
    """The value that a string denotes in a type with its own text form; None if the cast is left to the engine."""
    entry = t.of(type)
    if entry.read is None:
        return None
    if type == t.UUID and dialect == "spark":
        # Spark has no UUIDs: it compares their canonical texts, which are of one length and in the order of the bytes.
        return entry.read(text) if text == text.lower() else None
    return entry.read(text) if dialect in entry.dialects else None


def _exact_number(number: int | Decimal, type: pa.DataType) -> pa.Scalar:
    if t.is_integer(type):
        low, high = t.limits(type)
        if not low <= number <= high:
            raise Refused(f"{number} does not fit {type}: the engine raises")
    if isinstance(number, int) and -(2**63) <= number < 2**63:
        return pa.scalar(number, pa.int64())
    exact = Decimal(number)
    return pa.scalar(exact, pa.decimal256(76, max(0, -int(exact.as_tuple().exponent))))


def timestamp(text: str, zoned: bool, dialect: str, timezone: str) -> pa.Scalar:
    """A timestamp from ISO text. If ``zoned``, a text without an offset is local time in ``timezone``."""
    # Other digits are digits to Python alone, and an offset belongs to a time.
    parts = re.fullmatch(
        r"(\d{4})-(\d\d?)-(\d\d?)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d(?::?\d\d)?)?)?",
        text,
        re.ASCII,
    )
    _require_calendar(text)
    if parts is None:
        raise Refused(f"the string {text!r} as a timestamp: the cast is left to the engine", Cause.ENGINE_CASTS)
    year, month, day, hour, minute, second = (int(part or 0) for part in parts.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, second)
    except ValueError as error:
        raise Refused(f"the string {text!r} is not a timestamp: the engine raises") from error
    offset = parts.group(8)
    if offset and not zoned and (dialect != "duckdb" or offset.strip("+-0:Z")):
        raise Refused(f"the string {text!r} has an offset and the type has none")
    nanoseconds = int((parts.group(7) or "").ljust(9, "0"))
    if zoned:
        moment = _to_utc(moment, offset, dialect, timezone)
    seconds = (moment - datetime(1970, 1, 1)) // timedelta(seconds=1)
    total = seconds * 10**9 + nanoseconds
    zone = "UTC" if zoned else None
    if total % 1000 == 0:
        return pa.scalar(total // 1000, pa.timestamp("us", zone))
    if not -(2**63) <= total < 2**63:
        raise Refused("nanoseconds outside the years 1677 to 2262")
    return pa.scalar(total, pa.timestamp("ns", zone))


def _to_utc(moment: datetime, offset: str | None, dialect: str, zone: str) -> datetime:
    if offset == "Z":
        return moment
    if not 2 <= moment.year <= 9998:
        raise Refused(f"{moment} is at the end of the calendar")
    if offset:
        sign = -1 if offset[0] == "-" else 1
        minutes = int(offset[1:3]) * 60 + int(offset[3:].lstrip(":") or 0)
        return moment - sign * timedelta(minutes=minutes)
    if not has_fixed_offset(zone) and clocks.in_use() is None and dialect != "duckdb" and moment.year < 1970:
        raise Refused(f"engines differ on the clocks of {zone} before 1970", Cause.AMBIGUOUS_MOMENT)
    found = clocks.in_utc(moment, zone)
    if found is None:
        # Engines differ on a local time that occurs twice or never.
        raise Refused(f"{moment} occurs twice or never in {zone}, where clocks change", Cause.AMBIGUOUS_MOMENT)
    return found


def time_of_day(text: str, dialect: str) -> pa.Scalar | None:
    """A time from ``hh:mm:ss.ffffff``; in DuckDB, the seconds are optional. None for other texts."""
    parts = re.fullmatch(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?", text, re.ASCII)
    if parts is None or (parts.group(3) is None and dialect != "duckdb"):
        return None
    hour, minute, second = (int(part or 0) for part in parts.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise Refused(f"the string {text!r} is not a time of day: the engine raises")
    micros = int((parts.group(4) or "").ljust(6, "0"))
    return pa.scalar(((hour * 60 + minute) * 60 + second) * 10**6 + micros, pa.int64()).cast(pa.time64("us"))


def date_value(text: str) -> pa.Scalar:
    """A date from ``yyyy-mm-dd`` or ``yyyy-m-d``. Raises `Refused` for other texts.

    >>> date_value("2024-01-31")
    <pyarrow.Date32Scalar: datetime.date(2024, 1, 31)>
    """
    _require_calendar(text)
    parts = re.fullmatch(r"(\d{4})-(\d\d?)-(\d\d?)", text, re.ASCII)
    if parts is None:
        raise Refused(f"the string {text!r} as a date: the cast is left to the engine", Cause.ENGINE_CASTS)
    try:
        return pa.scalar(date(*map(int, parts.groups())))
    except ValueError as error:
        raise Refused(f"the string {text!r} is not a date: the engine raises") from error


def _require_calendar(text: str) -> None:
    """Raises `Refused` for a date or timestamp of which engines know the day and Python's `date` does not."""
    if re.match(r"\s*(0000-|[+-]?\d{5,}-|-\d|[+-]?inf)|.*\(BC\)", text, re.IGNORECASE):
        raise Refused(f"the string {text!r} is outside the years 1 to 9999: zskip plans with no such date")


def _fit_boolean(constant: pa.Scalar, dialect: str) -> Fit:
    if dialect == "duckdb" and t.is_integer(constant.type) and constant.as_py() in (0, 1):
        return Fit(pa.scalar(bool(constant.as_py())), True)
    raise Refused(f"a boolean compared with {constant.type}")


def _fit_float(constant: pa.Scalar, type: pa.DataType, dialect: str) -> Fit:
    source = constant.type
    if not t.is_numeric(source):
        raise Refused(f"a constant of type {source} compared with {type}")
    value = constant.as_py()
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    if type.bit_width == 64:
        return Fit(pa.scalar(number, type), True)
    if type.bit_width == 32 and dialect == "duckdb" and not t.is_floating(source):
        # DuckDB compares FLOAT with an exact number as FLOAT.
        number = _as_float(constant)
    if type.bit_width == 32 and dialect == "spark" and t.is_integer(source) and float(_nearest(number, type)) != value:
        raise Refused("an integer compared with FLOAT, which Spark rounds without ANSI mode", Cause.ENGINE_ROUNDS)
    if math.isnan(number):
        return Fit(pa.scalar(number, type), True)
    floor = _nearest(number, type)
    if float(floor) > number:
        with np.errstate(over="ignore"):  # below the least number is infinity
            floor = np.nextafter(floor, floor.dtype.type(-np.inf))
    return Fit(pa.scalar(floor, type), float(floor) == number)


def _as_float(constant: pa.Scalar) -> float:
    """An exact number as DuckDB casts it to FLOAT. Raises `Refused` if it cannot."""
    value = constant.as_py()
    if t.is_integer(constant.type):
        return float(np.array(value, constant.type.to_pandas_dtype()).astype(np.float32))
    if len(value.as_tuple().digits) > 38:
        raise Refused("a number of more than 38 digits as FLOAT", Cause.ENGINE_ROUNDS)
    found = _short(value, constant.type.scale)
    return _cast_by_duckdb(f"{value:f}") if found is None else found


def _short(number: int | Decimal, scale: int) -> float | None:
    """A number of few digits as a FLOAT: of a long decimal, DuckDB rounds two parts."""
    digits = int(Fraction(number) * 10**scale)
    short = abs(digits) <= 2**24 and 0 <= scale <= 10
    return float(np.float32(digits) / np.float32(10**scale)) if short else None


@lru_cache(maxsize=4096)
def _cast_by_duckdb(number: str) -> float:
    import duckdb

    try:
        ((found,),) = ask_duckdb(f"SELECT CAST({number} AS FLOAT)")
    except duckdb.Error as error:
        raise Refused(f"the number {number} as FLOAT", Cause.ENGINE_ROUNDS) from error
    return float(found)


def _nearest_float(exact: Fraction) -> float:
    """The 32-bit float that is nearest to a number: of two, the even one. A double in between would round twice."""
    with np.errstate(over="ignore"):
        near = np.float32(float(exact))
        beside = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    finite = [each for each in beside if np.isfinite(each)]
    nearest = min(finite, key=lambda each: (abs(Fraction(float(each)) - exact), int(each.view(np.int32)) & 1))
    return float(nearest if np.isfinite(near) else near)


def _nearest(number: float, type: pa.DataType) -> Any:
    """The value of a float type that is nearest to a number, as numpy's; infinite beyond the type's range."""
    with np.errstate(over="ignore"):
        return type.to_pandas_dtype()(number)


def _fit_number(constant: pa.Scalar, type: pa.DataType) -> Fit:
    source = constant.type
    if t.is_boolean(source):
        raise Refused(f"a boolean compared with {type}")
    if not t.is_numeric(source):
        raise Refused(f"a constant of type {source} compared with {type}")
    if t.is_integer(source) and t.is_integer(type):
        whole, (least, greatest) = constant.as_py(), t.limits(type)
        if least <= whole <= greatest:
            return Fit(pa.scalar(whole, type), True)
    scale = type.scale if t.is_decimal(type) else 0
    both = t.is_decimal(type) and t.is_decimal128(source)
    if both and _digits_together(type, source) > 38:
        raise Refused("decimals of more than 38 digits together, which the engine rounds", Cause.ENGINE_ROUNDS)
    low, high = t.limits(type)
    if t.is_floating(source):
        value = constant.as_py()
        if math.isnan(value) or value == math.inf:
            return Fit(_number_scalar(high, type), False)
        if value < float(low) / 10**scale:
            return Fit(None, False)
        if value > float(high) / 10**scale:
            return Fit(_number_scalar(high, type), False)
        unscaled, exact = _double_floor(value, scale)
    else:
        quotient = Fraction(constant.as_py()) * 10**scale
        unscaled, exact = math.floor(quotient), quotient.denominator == 1
    if unscaled < low:
        return Fit(None, False)
    if unscaled > high:
        return Fit(_number_scalar(high, type), False)
    return Fit(_number_scalar(unscaled, type), exact)


def _digits_together(left: pa.DataType, right: pa.DataType) -> int:
    """The digits of the decimal type that holds both."""
    return int(max(left.precision - left.scale, right.precision - right.scale) + max(left.scale, right.scale))


def _double_floor(value: float, scale: int) -> tuple[int, bool]:
    """The greatest unscaled decimal whose double is <= value: the engine compares as doubles."""
    if abs(value) * 10**scale >= _EXACT_DOUBLE or scale > 22:
        raise Refused("a double beyond 2^53 compared with an exact number: the engine rounds", Cause.ENGINE_ROUNDS)
    start = math.floor(Fraction(value) * 10**scale)
    best = max(k for k in (start - 1, start, start + 1) if k / 10**scale <= value)
    return best, best / 10**scale == value


def _number_scalar(unscaled: int, type: pa.DataType) -> pa.Scalar:
    if t.is_integer(type):
        return pa.scalar(unscaled, type)
    return pa.scalar(t.decimal_of(unscaled, type.scale), type)


def epoch_nanoseconds(constant: pa.Scalar) -> int:
    """Nanoseconds since the epoch: of a date or timestamp without a zone as if it were in UTC."""
    if t.is_date(constant.type):
        days = constant.value if constant.type == pa.date32() else constant.value // 86_400_000
        return int(days) * _DAY_NANOSECONDS
    return int(constant.value) * UNIT_NANOSECONDS[constant.type.unit]


def _fit_datetime(constant: pa.Scalar, type: pa.DataType, dialect: str, zone: str) -> Fit:
    source = constant.type
    if not (t.is_date(source) or t.is_timestamp(source)):
        raise Refused(f"a constant of type {source} compared with {type}")
    if t.is_timestamp(source) and source.unit == "ns" and (t.is_date(type) or type.unit != "ns"):
        raise Refused(f"the engine casts {type} to nanoseconds, and raises outside the years 1677 to 2262")
    from_zone, to_zone = t.is_timestamp(source) and source.tz is not None, t.is_timestamp(type) and type.tz is not None
    moment = epoch_nanoseconds(constant)
    if to_zone and not from_zone and type.unit == "ns":
        raise Refused(f"{source} compared with nanoseconds with a zone: engines differ on the zone of the constant")
    if from_zone != to_zone:
        if from_zone:
            if not has_fixed_offset(zone):
                raise Refused(
                    f"a timestamp with a zone compared with one without: clocks change in {zone}", Cause.CLOCKS_CHANGE
                )
            moment += offset_nanoseconds(zone)
        else:
            naive = datetime(1970, 1, 1) + timedelta(microseconds=moment // 1000)
            moment = round((_to_utc(naive, None, dialect, zone) - naive) / timedelta(microseconds=1)) * 1000 + moment
    unit = _DAY_NANOSECONDS if t.is_date(type) else UNIT_NANOSECONDS[type.unit]
    floor, rest = divmod(moment, unit)
    low, high = t.limits(type)
    if type == pa.date64():
        floor *= 86_400_000
    if not low <= floor <= high:
        raise Refused(f"a date or time that {type} cannot hold: the engine raises")
    raw = pa.scalar(floor, pa.int32() if type == pa.date32() else pa.int64())
    return Fit(raw.cast(type), rest == 0)


_MAX_BITS, _MOST_DIGITS = 3_300, 38
"""The longest integer in bits. No engine has longer numbers, and Python limits the length of those that it prints."""

_LISTS = (list, tuple, set, frozenset, pa.Array, pa.ChunkedArray, np.ndarray)
_ARRAYS: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), str: pa.string(), date: pa.date32()}


def is_list(value: object) -> bool:
    """Whether a value is a list of values: of Python, numpy or Arrow."""
    return isinstance(value, _LISTS) and getattr(value, "ndim", 1) == 1


def plain_value(value: Any) -> Any:
    """A value of Python, numpy or Arrow as Python's. Raises `UnknownParameter` for one that SQL has no constant for."""
    is_time = isinstance(value, pa.Time32Scalar | pa.Time64Scalar) and value.is_valid
    if is_time and value.value * UNIT_NANOSECONDS[value.type.unit] >= _DAY_NANOSECONDS:
        raise UnknownParameter("A parameter is the time 24:00, which Python takes for 00:00. Write it in SQL.")
    for unwrap in ("as_py", "item"):
        if hasattr(value, unwrap):
            value = getattr(value, unwrap)()
    match value:
        case None | bool() | float() | bytes() | date() | time() | timedelta():
            if isinstance(value, datetime) and value.tzinfo is not None:
                _in_utc(value)
        case int():
            if value.bit_length() > _MAX_BITS:
                raise UnknownParameter("A parameter is a whole number of more than a thousand digits.")
        case Decimal():
            if not value.is_finite():
                raise UnknownParameter(f"SQL has no decimal {value}.")
            # Written out, a number of such an exponent may take all memory.
            if not -_MOST_DIGITS <= value.adjusted() < _MOST_DIGITS or _decimal_type(value).precision > _MOST_DIGITS:
                raise UnknownParameter(f"The decimal {value} has more than {_MOST_DIGITS} digits.")
        case str():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise UnknownParameter("A parameter contains half of a surrogate pair, not a character.") from error
        case UUID():
            return str(value)
        case _:
            raise UnknownParameter(
                f"A parameter cannot hold a {type(value).__name__}: give a number, a text, a date or a time."
            )
    return value


def constant(value: Any) -> pa.Scalar:
    """A plain value as an Arrow scalar. Raises `Refused` for a number without an exact type.

    >>> constant(Decimal("1.50")), constant(2**70).type
    (<pyarrow.Decimal128Scalar: Decimal('1.50')>, Decimal128Type(decimal128(38, 0)))
    """
    match value:
        case bool() | bytes() | str() | None:
            return pa.scalar(value)
        case int():
            if -(2**63) <= value < 2**63:
                return pa.scalar(value, pa.int64())
            if abs(value) < 10**_MOST_DIGITS:
                return pa.scalar(Decimal(value), pa.decimal128(_MOST_DIGITS, 0))
            raise Refused(f"the number {str(value)[:50]} has more digits than an exact type")
        case float():
            return pa.scalar(value, pa.float64())
        case Decimal():
            return pa.scalar(value, _decimal_type(value))
        case datetime():
            return _timestamp_of(value)
        case date():
            return pa.scalar(value, pa.date32())
        case time() if value.tzinfo is None:
            return pa.scalar(value, pa.time64("us"))
    raise Refused(f"a constant of type {type(value).__name__}")


def _decimal_type(value: Decimal) -> pa.DataType:
    digits = f"{value:f}".lstrip("-")
    scale = len(digits.partition(".")[2])
    precision = max(len(digits.replace(".", "")), 1)
    return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else pa.decimal256(min(precision, 76), 0)


def _timestamp_of(value: datetime) -> pa.Scalar:
    zone = None if value.tzinfo is None else "UTC"
    micros = ((value if zone is None else _in_utc(value)) - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    if getattr(value, "nanosecond", 0):  # of pandas
        raise Refused(f"the nanoseconds of {value}, which engines' constants leave out")
    return pa.scalar(micros, pa.timestamp("us", zone))


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError as error:
        raise UnknownParameter(f"In UTC, the year of the parameter {value} is not one of 1 to 9999.") from error


def listed(values: Collection[Any]) -> pa.Array | list[Any]:
    """A list of values as one array of int64, double, string or date32; as plain values if they are of other types.

    Raises `UnknownParameter` for a value that SQL has no constant for.

    >>> listed([1, 2]).type, listed([1, 2.5])
    (DataType(int64), [1, 2.5])
    """
    if isinstance(values, np.ndarray):
        values = values.tolist()
    elif isinstance(values, pa.Array | pa.ChunkedArray):
        found = _array(values)
        if found is not None:
            return found
    plain: Iterable[Any] = values
    kinds = set(map(type, plain))
    arrow_type = _ARRAYS.get(kinds.pop()) if len(kinds) == 1 else None
    if arrow_type is not None:
        try:
            return pa.array(plain if isinstance(plain, list) else list(plain), arrow_type)
        except (OverflowError, pa.ArrowInvalid, UnicodeEncodeError):
            pass  # a long integer, or a text that is none: see below
    return [plain_value(each) for each in plain]


def _array(values: pa.Array | pa.ChunkedArray) -> pa.Array | None:
    """An array as one of the types of `listed`; None if that is not exact, and for one with NULL."""
    type = values.type
    target = (
        pa.int64()
        if t.is_integer(type)
        else pa.float64()
        if t.is_floating(type)
        else pa.string()
        if t.is_string(type) or t.is_large_string(type) or t.is_string_view(type)
        else pa.date32()
        if type == pa.date32()
        else None
    )
    if target is None or values.null_count:
        return None
    try:
        cast = values.cast(target)
    except pa.ArrowInvalid:  # an unsigned integer past int64
        return None
    return cast.combine_chunks() if isinstance(cast, pa.ChunkedArray) else cast
