"""Spark's types of Arrow schemas, and back.

A field that `with_spark_type` made has the type that Spark infers for a column, which its Arrow type may not express.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip.core import types as t
from zskip.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_FIELD = b"zskip.spark_field"
OPAQUE = pa.month_day_nano_interval()
"""The Arrow type of columns about which nothing can be proved, because their values are others on Spark."""


def with_spark_type(
    field: pa.Field, kind: DataType, metadata: dict[str, Any] | None = None, *, same_values: bool = True
) -> pa.Field:
    """A column with a type of Spark's. Its Arrow type is the one with the same values, or `OPAQUE` if there is none.

    Instants and clocks have the same values, by their ticks, and so have integers, which must fit. ``metadata``: what
    gives comparisons of the column another meaning.
    """
    from pyspark.sql.types import StructField

    wanted = StructField(field.name, kind._as_nullable(), metadata=metadata)
    type = _same_values(field.type, kind) if same_values and not metadata else None
    if type is not None and spark_schema(pa.schema([pa.field(field.name, type)]))[0] == wanted:
        return pa.field(field.name, type)
    return pa.field(field.name, OPAQUE, metadata={_FIELD: wanted.json().encode()})


def _same_values(arrow: pa.DataType, kind: DataType) -> pa.DataType | None:
    """The Arrow type with Spark's type ``kind`` whose values have the same bounds as those of ``arrow``, or None."""
    from pyspark.sql import types as s

    if isinstance(arrow, pa.BaseExtensionType):  # JSON, which is text on Spark
        return None
    if t.is_struct(arrow) and isinstance(kind, s.StructType):
        if arrow.names != kind.names:
            return None
        inner = [_same_values(field.type, given.dataType) for field, given in zip(arrow, kind, strict=True)]
        return None if None in inner else pa.struct([f.with_type(one) for f, one in zip(arrow, inner, strict=True)])
    if t.is_timestamp(arrow) and arrow.unit != "ns":
        if isinstance(kind, s.TimestampType | s.TimestampNTZType):
            return pa.timestamp(arrow.unit, "UTC" if isinstance(kind, s.TimestampType) else None)
        return None
    if t.is_int64(arrow) and isinstance(kind, s.IntegerType):
        return pa.int32()
    return arrow


def spark_schema(schema: pa.Schema) -> StructType:
    """The types under which Spark reads Parquet files of an Arrow schema. Raises `SchemaError` for other types."""
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField.fromJson(json.loads(field.metadata[_FIELD]))
            if field.metadata and _FIELD in field.metadata
            else StructField(field.name, _spark_type(field.type, field.name), True)
            for field in schema
        ]
    )


def arrow_schema(types: StructType) -> pa.Schema:
    """The Arrow types of Parquet files that Spark writes. Raises `SchemaError` for types that do not round-trip."""
    return pa.schema([pa.field(field.name, _arrow_type(field.dataType, field.name), field.nullable) for field in types])


def _arrow_type(kind: DataType, path: str) -> pa.DataType:
    from pyspark.sql import types as s

    if isinstance(kind, s.StructType):
        fields = ((f.name, _arrow_type(f.dataType, f"{path}.{f.name}"), f.nullable) for f in kind)
        return pa.struct([pa.field(*field) for field in fields])
    if isinstance(kind, s.ArrayType):
        item = _arrow_type(kind.elementType, f"{path}.element")
        return pa.list_(pa.field("element", item, kind.containsNull))
    if isinstance(kind, s.MapType):
        item = pa.field("value", _arrow_type(kind.valueType, f"{path}.value"), kind.valueContainsNull)
        return pa.map_(_arrow_type(kind.keyType, f"{path}.key"), item)
    if isinstance(kind, s.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    simple: dict[type[DataType], pa.DataType] = {
        s.BooleanType: pa.bool_(),
        s.ByteType: pa.int8(),
        s.ShortType: pa.int16(),
        s.IntegerType: pa.int32(),
        s.LongType: pa.int64(),
        s.FloatType: pa.float32(),
        s.DoubleType: pa.float64(),
        s.BinaryType: pa.binary(),
        s.DateType: pa.date32(),
        s.TimestampType: pa.timestamp("us", "UTC"),
        s.TimestampNTZType: pa.timestamp("us"),
    }
    if type(kind) in simple:
        return simple[type(kind)]
    # Parquet does not record a collation, and zskip compares strings by bytes.
    if isinstance(kind, s.StringType) and "collate" not in kind.simpleString().lower():
        return pa.string()
    raise SchemaError(f'A table cannot hold the column "{path}" of type {kind.simpleString()}: cast it first.')


def _spark_type(arrow: pa.DataType, path: str) -> DataType:
    from pyspark.sql import types as s

    arrow = t.value_type(arrow)
    if t.is_struct(arrow):
        fields = (arrow.field(index) for index in range(arrow.num_fields))
        return s.StructType([s.StructField(f.name, _spark_type(f.type, f"{path}.{f.name}"), True) for f in fields])
    if t.is_map(arrow):
        return s.MapType(_spark_type(arrow.key_type, f"{path}.key"), _spark_type(arrow.item_type, f"{path}.value"))
    if t.is_list(arrow) or t.is_large_list(arrow) or t.is_fixed_size_list(arrow):
        return s.ArrayType(_spark_type(arrow.value_type, f"{path}.element"))
    name = t.sql_name(arrow, "spark")
    if name is None:
        raise SchemaError(f'Spark cannot read the column "{path}": Parquet of the type {arrow} is not known to it.')
    if decimal := re.fullmatch(r"DECIMAL\((\d+), (-?\d+)\)", name):
        return s.DecimalType(int(decimal[1]), int(decimal[2]))
    simple: dict[str, DataType] = {
        "BOOLEAN": s.BooleanType(),
        "TINYINT": s.ByteType(),
        "SMALLINT": s.ShortType(),
        "INT": s.IntegerType(),
        "BIGINT": s.LongType(),
        "FLOAT": s.FloatType(),
        "DOUBLE": s.DoubleType(),
        "STRING": s.StringType(),
        "BINARY": s.BinaryType(),
        "DATE": s.DateType(),
        "TIMESTAMP": s.TimestampType(),
        "TIMESTAMP_NTZ": s.TimestampNTZType(),
    }
    return simple[name]
