"""Statistics of partition columns, from folder names: ``day=2018-03-24/host=a%2Fb/part-0.parquet``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.stats.files import ColumnStatistics
from zskip.storage.hive import NULL

__all__ = ["statistics"]


def statistics(values: pa.StringArray, type: pa.DataType, row_count: pa.Int64Array) -> ColumnStatistics:
    """The statistics of a partition column: all rows of a file have the value in the name of its folder.

    Some readers take an empty value for NULL, so it is unknown.
    """
    null = pc.fill_null(pc.equal(values, NULL), False)
    empty = pc.fill_null(pc.or_(pc.is_null(values), pc.equal(values, "")), True)
    texts = pc.if_else(pc.or_(null, empty), pa.scalar(None, pa.string()), values)
    try:
        bound = texts.cast(type)
    except pa.ArrowException:  # some text is not a value of the type
        return ColumnStatistics.unknown(type, len(values))
    unknown = pa.scalar(None, pa.int64())
    null_count = pc.if_else(empty, unknown, pc.if_else(null, row_count, pa.scalar(0, pa.int64())))
    exact = pc.if_else(pc.is_valid(bound), True, pa.scalar(None, pa.bool_()))
    zeros = pa.array(np.zeros(len(values), np.int64))
    return ColumnStatistics(bound, bound, null_count, zeros, exact, exact)
