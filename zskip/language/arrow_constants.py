"""Python, numpy and Arrow values as the Arrow constants that SQL has for them.

Numbers are exact, as their literals are: an integer is an int64, or a decimal if it has more digits; a float is a
double; a Decimal has as many digits as it is written with. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.errors import UnknownParameter
from zskip.language.literals import Refused

_MAX_BITS, _MOST_DIGITS = 3_300, 38
"""The longest integer in bits. No engine has longer numbers, and Python limits the length of those that it prints."""

_LISTS = (list, tuple, set, frozenset, pa.Array, pa.ChunkedArray, np.ndarray)
_ARRAYS: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), str: pa.string(), date: pa.date32()}


def is_list(value: object) -> bool:
    """Whether a value is a list of values: of Python, numpy or Arrow."""
    return isinstance(value, _LISTS) and getattr(value, "ndim", 1) == 1


def plain_value(value: Any) -> Any:
    """A value of Python, numpy or Arrow as Python's. Raises `UnknownParameter` for one that SQL has no constant for."""
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
            return _timestamp(value)
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


def _timestamp(value: datetime) -> pa.Scalar:
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
