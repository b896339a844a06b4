"""Python values, texts and names as SQL of DuckDB or Spark."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from zskip.errors import UnknownParameter

__all__ = ["identifier", "literal", "quoted"]

_MAX_BITS, _MOST_DIGITS = 3_300, 38
"""The longest integer in bits. No engine has longer numbers, and Python limits the length of those that it prints."""


def literal(value: object, dialect: str) -> str:
    """SQL for a value of Python, numpy or Arrow, as a constant of the same type. Raises `UnknownParameter`.

    >>> literal(date(2024, 1, 31), "duckdb"), literal("it's", "duckdb")
    ("DATE '2024-01-31'", "'it''s'")
    """
    for unwrap in ("as_py", "item"):
        if hasattr(value, unwrap):
            value = getattr(value, unwrap)()
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            if value.bit_length() > _MAX_BITS:
                raise UnknownParameter("A parameter is a whole number of more than a thousand digits.")
            return str(value) if value >= 0 else f"({value})"
        case float():
            text = (
                "NaN"
                if math.isnan(value)
                else ("-" if value < 0 else "") + "Infinity"
                if math.isinf(value)
                else repr(value)
            )
            return f"CAST({quoted(text, dialect)} AS DOUBLE)"
        case Decimal():
            if not value.is_finite():
                raise UnknownParameter(f"SQL has no decimal {value}.")
            if not -_MOST_DIGITS <= value.adjusted() < _MOST_DIGITS:  # written out, it may take all memory
                raise UnknownParameter(f"The decimal {value} has more than {_MOST_DIGITS} digits.")
            digits = f"{value:f}"
            scale = len(digits.partition(".")[2])
            precision = max(len(digits.lstrip("-").replace(".", "")), scale, 1)
            if precision > _MOST_DIGITS:
                raise UnknownParameter(f"The decimal {value} has more than {_MOST_DIGITS} digits.")
            return f"CAST({quoted(digits, dialect)} AS DECIMAL({precision}, {scale}))"
        case str():
            return quoted(value, dialect)
        case bytes():
            return f"X'{value.hex()}'" if dialect == "spark" else f"from_hex('{value.hex()}')"
        case datetime():
            return _timestamp(value, dialect)
        case date():
            return f"DATE '{value.isoformat()}'"
        case time():
            return f"TIME '{value.isoformat()}'"
        case timedelta():
            micros = value // timedelta(microseconds=1)
            return f"INTERVAL '{micros}' MICROSECONDS"
        case list() | tuple() | set() | frozenset():
            return "(" + ", ".join(literal(each, dialect) for each in value) + ")"
    raise UnknownParameter(
        f"A parameter cannot hold a {type(value).__name__}: give a number, a text, a date or a time."
    )


def identifier(*parts: str) -> str:
    """A name, or the parts of a dotted name, as a quoted identifier in DuckDB's SQL.

    >>> identifier('id.orig_h'), identifier('s', 'a"b')
    ('"id.orig_h"', '"s"."a""b"')
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def quoted(text: str, dialect: str) -> str:
    """A string literal."""
    if dialect == "spark":
        text = text.replace("\\", "\\\\").replace("'", "\\'")
    else:
        text = text.replace("'", "''")
    return f"'{text}'"


def _timestamp(value: datetime, dialect: str) -> str:
    if value.tzinfo is None:
        return f"{'TIMESTAMP_NTZ' if dialect == 'spark' else 'TIMESTAMP'} '{value.isoformat(' ')}'"
    try:
        utc = value.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    except OverflowError as error:
        raise UnknownParameter(f"In UTC, the year of the parameter {value} is not one of 1 to 9999.") from error
    return f"{'TIMESTAMP' if dialect == 'spark' else 'TIMESTAMPTZ'} '{utc}+00:00'"
