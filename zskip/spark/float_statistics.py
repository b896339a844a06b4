"""Statistics that footers lack for floating-point columns, such as NaN counts, aggregated by Spark from the rows.

Spark's own scan reads these columns of files that Python cannot reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.schema import Column, Schema
from zskip.core.types import may_hold_nan
from zskip.errors import CorruptFile
from zskip.parquet.footers import hull
from zskip.spark.handoff import manifest, spark_uri
from zskip.spark.spark_session import setting
from zskip.spark.spark_types import spark_schema
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics
from zskip.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["with_float_statistics"]

_FILE, _ROW, _GROUP, _COUNT, _STARTS = (f"__zskip_{name}" for name in ("file", "row", "group", "count", "starts"))


def with_float_statistics(spark: SparkSession, storage: Storage, schema: Schema, files: DataFiles) -> DataFiles:
    """The files with the bounds and the NULL and NaN counts of each row group's floating-point columns.

    ``schema``: the top-level columns that hold them. Spark must have written the files with exactly these types. File
    names must be unique, because Spark and Hadoop spell paths differently. Raises `CorruptFile` if row counts differ
    from the footers'.
    """
    floats = [column for column in schema if may_hold_nan(column.type) and column.path in files.row_groups.columns]
    if not floats or not len(files):
        return files
    uris = [spark_uri(storage, path) for path in files.path.to_pylist()]
    names = pc.replace_substring_regex(files.path, r"^.*/", "")
    with manifest(list(zip(uris, files.size.to_pylist(), strict=True))) as folder:
        rows = spark.read.schema(spark_schema(schema.arrow)).option("recursiveFileLookup", "true").parquet(folder)
    with setting(spark, {"spark.sql.ansi.enabled": "false"}):
        found = _aggregated(spark, rows, floats, files, names).toArrow()
    number = np.asarray(pc.index_in(found[_FILE], value_set=names))
    unit = files.first_row_group[number] + np.asarray(found[_GROUP], dtype=np.int64)
    order = np.argsort(unit)
    counts = np.asarray(files.row_groups.row_count)
    filled = np.flatnonzero(counts)
    if not np.array_equal(unit[order], filled) or not np.array_equal(np.asarray(found[_COUNT])[order], counts[filled]):
        raise CorruptFile(f"The files that were just written to {storage.uri} have other rows than their footers say.")
    place = np.zeros(len(counts), np.int64)
    place[filled] = order
    columns = dict(files.row_groups.columns)
    for position, column in enumerate(floats):
        columns[column.path] = _column_statistics(found, position, column, pa.array(place, mask=counts == 0))
    row_groups = FileStatistics(files.row_groups.row_count, columns)
    owner = np.repeat(np.arange(len(files)), np.diff(files.first_row_group))
    return replace(files, row_groups=row_groups, files=hull(row_groups, owner, len(files)))


def _aggregated(
    spark: SparkSession, rows: DataFrame, floats: Sequence[Column], files: DataFiles, names: pa.StringArray
) -> DataFrame:
    """One row for each row group: its file's name, its number in the file, its row count and statistics."""
    from pyspark.sql import functions as f

    name = f.substring_index(f.col("_metadata.file_path"), "/", -1)
    rows = rows.withColumns({_FILE: name, _ROW: f.col("_metadata.row_index")})
    lengths = np.asarray(files.row_groups.row_count)
    last = np.zeros(len(lengths), bool)
    last[files.first_row_group[1:][np.diff(files.first_row_group) > 0] - 1] = True
    inner = np.unique(lengths[~last])
    if len(inner) <= 1:
        length = int(inner[0]) if len(inner) else int(lengths.max(initial=1))
        group = f.floor(f.col(_ROW) / max(length, 1)).cast("bigint")
    else:
        # Row groups were cut by size: join the first row of each row group of a file.
        ends = np.cumsum(lengths)
        first = np.split(ends - lengths, files.first_row_group[1:-1])
        starts = pa.array([(each - each[:1].sum()).tolist() for each in first], pa.list_(pa.int64()))
        known = spark.createDataFrame(pa.table({_FILE: names, _STARTS: starts}))
        rows = rows.join(f.broadcast(known), _FILE)
        group = (f.size(f.filter(f.col(_STARTS), lambda start: start <= f.col(_ROW))) - 1).cast("bigint")
    wanted: list[Expression] = [f.count(f.lit(1)).alias(_COUNT)]
    for position, column in enumerate(floats):
        value = f.col(".".join("`" + part.replace("`", "``") + "`" for part in column.parts))
        number = f.when(~f.isnan(value), value)
        wanted += [
            f.min(number).alias(f"lower{position}"),
            f.max(number).alias(f"upper{position}"),
            f.count_if(value.isNull()).alias(f"nulls{position}"),
            f.count_if(f.isnan(value)).alias(f"nans{position}"),
        ]
    return rows.groupBy(f.col(_FILE), group.alias(_GROUP)).agg(*wanted)


def _column_statistics(found: pa.Table, position: int, column: Column, place: pa.Int64Array) -> ColumnStatistics:
    lower, upper, nulls, nans = (
        found[f"{name}{position}"].combine_chunks().take(place) for name in ("lower", "upper", "nulls", "nans")
    )
    nulls, nans = (
        pc.fill_null(count, 0).cast(pa.int64()) for count in (nulls, nans)
    )  # null for row groups without rows
    exact = pc.if_else(pc.is_valid(lower), True, pa.scalar(None, pa.bool_()))
    return ColumnStatistics(lower.cast(column.type), upper.cast(column.type), nulls, nans, exact, exact)
