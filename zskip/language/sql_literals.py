"""Python values, texts and names as SQL of DuckDB or Spark."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from zskip.language.literals import constant, is_list, plain_value


def literal(value: Any, dialect: str) -> str:
    """SQL for a value of Python, numpy or Arrow, as a constant of the same type. Raises `UnknownParameter`.

    >>> literal(date(2024, 1, 31), "duckdb"), literal("it's", "duckdb")
    ("DATE '2024-01-31'", "'it''s'")
    """
    if is_list(value):
        elements = value.to_pylist() if isinstance(value, pa.Array | pa.ChunkedArray) else value
        return "(" + ", ".join([literal(each, dialect) for each in elements]) + ")"
    value = plain_value(value)
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
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
            type = constant(value).type
            return f"CAST({quoted(f'{value:f}', dialect)} AS DECIMAL({type.precision}, {type.scale}))"
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
    micros: int = value // timedelta(microseconds=1)
    return f"INTERVAL '{micros}' MICROSECONDS"


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
    utc = value.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    return f"{'TIMESTAMP' if dialect == 'spark' else 'TIMESTAMPTZ'} '{utc}+00:00'"
