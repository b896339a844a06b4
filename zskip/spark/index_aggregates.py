"""count, min and max from the index, as Spark's interface ``LocalScan``: no file is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from zskip.core import types as t
from zskip.plan import Survivors
from zskip.spark.jvm import CONNECTOR, Jvm
from zskip.spark.pruned_scan import ScanDefaults
from zskip.statements.aggregates import Aggregates, rows_of_index

__all__ = ["IndexScan", "scan_of_aggregates"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an aggregate. ``function``: count, min or max · ``column``: None for count(*)."""

    function: str
    column: str | None


def scan_of_aggregates(aggregation: Any, survivors: Survivors, jvm: Jvm) -> IndexScan | None:
    """A scan that returns the aggregates as one row; None if the index does not determine them.

    ``aggregation``: a Java object, connector.expressions.aggregate.Aggregation.
    """
    if len(aggregation.groupByExpressions()) or survivors.changes or not survivors.index.snapshot.managed:
        return None
    calls = [_aggregate_call(one, jvm) for one in aggregation.aggregateExpressions()]
    known = [call for call in calls if call is not None]
    if len(known) < len(calls) or not known or not len(survivors):
        return None
    ordered = frozenset(call.column for call in known if call.column and call.function != "count")
    counted = frozenset(call.column for call in known if call.column and call.function == "count")
    columns = survivors.index.snapshot.schema.columns
    if not all(name in columns and _is_settable(columns[name].type) for name in ordered):
        return None
    found = rows_of_index(survivors, Aggregates(0, True, ordered, counted))
    if found is None or len(found.rest):
        return None
    values = []
    for call in known:
        if call.column is None:
            values.append(found.rows[0])
        elif call.function == "count":
            values.append(found.columns[call.column].count[0])
        else:
            column = found.columns[call.column]
            values.append((column.lower if call.function == "min" else column.upper)[0])
    return IndexScan(jvm, values, len(survivors))


def _aggregate_call(aggregate: Any, jvm: Jvm) -> Call | None:
    kind = aggregate.getClass().getSimpleName()
    if kind == "CountStar":
        return Call("count", None)
    if kind not in ("Count", "Min", "Max") or (kind == "Count" and aggregate.isDistinct()):
        return None
    name = jvm.column_name(aggregate.column())
    return None if name is None else Call(kind.lower(), name)


class IndexScan(ScanDefaults):
    """Spark's interface ``LocalScan`` over one row."""

    class Java:
        implements = (f"{CONNECTOR}.read.LocalScan",)

    def __init__(self, jvm: Jvm, values: list[pa.Scalar], files: int) -> None:
        super().__init__(jvm)
        self._files = files
        named = pa.schema([(f"aggregate{number}", value.type) for number, value in enumerate(values)])
        self._types = jvm.types(named)
        self._row = jvm.class_("org.apache.spark.sql.catalyst.expressions.SpecificInternalRow")(self._types)
        for place, value in enumerate(values):
            _set(jvm, self._row, place, value)

    # --- called by Spark ---

    def readSchema(self) -> Any:  # noqa: N802
        return self._types

    def description(self) -> str:
        return f"aggregates of {self._files:,} files, from the index"

    def rows(self) -> Any:
        return self._jvm.array("org.apache.spark.sql.catalyst.InternalRow", [self._row])


def _is_settable(type: pa.DataType) -> bool:
    known = t.is_signed_integer(type) or t.is_date32(type) or t.is_decimal128(type)
    return bool(known or (t.is_timestamp(type) and type.unit == "us"))


def _set(jvm: Jvm, row: Any, place: int, value: pa.Scalar) -> None:
    """Set a field of a row in Spark's internal form: dates as days, timestamps as microseconds."""
    type = value.type
    if not value.is_valid:
        row.setNullAt(place)
    elif t.is_signed_integer(type):
        {8: row.setByte, 16: row.setShort, 32: row.setInt, 64: row.setLong}[type.bit_width](place, value.as_py())
    elif t.is_date(type):
        row.setInt(place, value.cast(pa.int32()).as_py())
    elif t.is_timestamp(type):
        row.setLong(place, value.cast(pa.int64()).as_py())
    else:
        decimal = jvm.class_("org.apache.spark.sql.types.Decimal")
        row.update(place, decimal.apply(value.as_py(), type.precision, type.scale))
