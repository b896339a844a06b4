"""SQL types as Arrow types."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from zskip.core import types as t
from zskip.language.bound import Dialect

_T = exp.DType


def sql_type(node: exp.DataType, dialect: Dialect) -> pa.DataType | None:
    """The Arrow type of a parsed SQL type; None if zskip does not support it."""
    kind = node.this
    if kind == _T.TIMESTAMP:
        return pa.timestamp("us", "UTC") if dialect.name == "spark" else pa.timestamp("us")
    if kind == _T.DECIMAL:
        if not all(parameter.name.isdecimal() for parameter in node.expressions):
            return None
        sizes = [int(parameter.name[:9]) for parameter in node.expressions]
        precision, scale = (*sizes, 0)[:2] if sizes else ((10, 0) if dialect.name == "spark" else (18, 3))
        return pa.decimal128(precision, scale) if 0 < precision <= 38 and 0 <= scale <= precision else None
    if kind in (_T.VARCHAR, _T.TEXT) and node.expressions and dialect.name != "duckdb":
        return None
    tables = (entry.parsed for entry in t.entries() if dialect.name in entry.dialects)
    return next((table[kind.value] for table in tables if kind.value in table), None)
