"""Types of SQL as types of Arrow."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from zskip.expr.bound import Dialect
from zskip.types import UUID

__all__ = ["sql_type"]

_T = exp.DType

_TYPES: dict[exp.DType, pa.DataType] = {
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
    if kind == _T.UUID:
        return UUID if dialect.name == "duckdb" else None
    if kind in (_T.VARCHAR, _T.TEXT) and node.expressions and dialect.name != "duckdb":
        return None
    return _TYPES.get(kind)
