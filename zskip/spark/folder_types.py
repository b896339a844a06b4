"""The types that Spark infers for the partition columns of foreign folders.

| values in folder names | zskip's index, DuckDB | Spark |
| --- | --- | --- |
| integers that all fit 32 bits | BIGINT | INT |
| other integers | BIGINT | BIGINT |

In Spark, arithmetic overflows according to these types, so predicates must be bound to them as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.schema import Schema
from zskip.stats import Ranges
from zskip.storage import hive
from zskip.table import Table
from zskip.tablelog import Snapshot, listed

__all__ = ["with_spark_types"]

_INT = np.iinfo(np.int32)


def with_spark_types(table: Table) -> Table:
    """The table with its partition columns in the types of ``spark.read.parquet``.

    Only folders that zskip indexed change: tables that zskip wrote and tables of other formats record their types. The
    folder is listed, because a file that is not in the index yet can widen a column.
    """
    index, snapshot = table.index, table.snapshot
    if snapshot.managed or index.source is not None:
        return table
    arrow = snapshot.schema.arrow
    names = [name for name in snapshot.partition_by if arrow.field(name).type == pa.int64()]
    if not names:
        return table
    ranges = index.files(None, names).statistics.columns
    changes = listed(index)
    new = {} if changes is None else hive.partitions(changes.added.path)
    narrow = [name for name in names if name in ranges and _fit(ranges[name]) and _all_fit(new.get(name))]
    return Table(table.storage, _narrowed(snapshot, narrow)) if narrow else table


def _narrowed(snapshot: Snapshot, names: Sequence[str]) -> Snapshot:
    """The snapshot with these columns as INT, and without their sketches, which hash values of the other type."""
    arrow = snapshot.schema.arrow
    for name in names:
        place = arrow.get_field_index(name)
        arrow = arrow.set(place, arrow.field(place).with_type(pa.int32()))
    sketches = tuple(sketch for sketch in snapshot.sketches if sketch.name.column not in names)
    return replace(snapshot, schema=Schema(arrow), sketches=sketches)


def _fit(ranges: Ranges) -> bool:
    """Whether all values in these ranges certainly fit 32 bits."""
    may_have_value = pc.fill_null(ranges.has_value, True)
    lower, upper = ranges.lower.filter(may_have_value), ranges.upper.filter(may_have_value)
    if lower.null_count or upper.null_count:
        return False
    return bool(np.all(np.asarray(lower) >= _INT.min) and np.all(np.asarray(upper) <= _INT.max))


def _all_fit(texts: pa.StringArray | None) -> bool:
    """Whether the values of new folders, except null and `hive.NULL`, are 32-bit integers."""
    if texts is None:
        return True
    try:
        texts.filter(pc.not_equal(texts, hive.NULL)).cast(pa.int32())
    except pa.ArrowInvalid:
        return False
    return True
