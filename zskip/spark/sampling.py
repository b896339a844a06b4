"""Counting and sampling a DataFrame before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.spark.handoff import column
from zskip.writer import Routing, WriteOptions
from zskip.writer.encode import fitted_encoding, stored_bytes
from zskip.writer.look_ups import LookUps
from zskip.writer.routing import fitted, fitted_columns, partition_numbers
from zskip.writer.row_sample import sample_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Sampled", "count_and_sample", "fit"]

_HEAD_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Sampled:
    """A sample of ``total`` rows, with the columns that the layout reads.

    ``keys``: the partitions, as in `Routing` · ``counts``: their row counts · ``values``: their values, one row each
    """

    rows: pa.Table
    total: int
    keys: list[tuple[str, ...]]
    counts: list[int]
    values: pa.Table


def count_and_sample(rows: DataFrame, schema: Schema, options: WriteOptions) -> Sampled:
    total, keys, counts, values = _partitions(rows, schema, options)
    existing = [name for name in fitted_columns(schema, options) if name in rows.columns]
    size = sample_size(options.files or (total // options.rows_per_file if options.rows_per_file else 0))
    return Sampled(_sample(rows, schema.arrow, existing, size, total, options.seed), total, keys, counts, values)


def _sample(rows: DataFrame, schema: pa.Schema, columns: Sequence[str], size: int, total: int, seed: int) -> pa.Table:
    """About ``size`` of the ``total`` rows with these columns; all rows if there are no more than ``size``."""
    arrow = pa.schema([schema.field(name).with_nullable(True) for name in columns])
    if not total or not columns:
        return arrow.empty_table()
    selected = rows.select(*[column(name) for name in columns])
    if total > size:
        selected = selected.sample(fraction=size / total, seed=seed)
    return _in_utc(selected.toArrow()).cast(arrow)


def fit(rows: DataFrame, sampled: Sampled, schema: Schema, options: WriteOptions, look_ups: LookUps | None) -> Routing:
    """Fit a routing to the sample. ``look_ups``: those of the table that the rows join"""
    by = [found.path for found in schema.orderable(options.by)]
    counts = dict(zip(sampled.keys, sampled.counts, strict=True))
    return fitted(sampled.rows, by, counts, _files(rows, sampled.total, options), options, look_ups)


def _partitions(
    rows: DataFrame, schema: Schema, options: WriteOptions
) -> tuple[int, list[tuple[str, ...]], list[int], pa.Table]:
    if not options.partition_by:
        total = rows.count()
        return total, [()], [total], pa.table({})
    names = list(options.partition_by)
    counted = rows.groupBy(*[column(name) for name in names]).count().toArrow()
    values = counted.select(names).cast(pa.schema([schema.arrow.field(name).with_nullable(True) for name in names]))
    keys, numbers = partition_numbers(values, names)
    order = np.argsort(numbers)
    counts = np.asarray(counted["count"])[order].astype(np.int64).tolist()
    return sum(counts), keys if counts else [], counts, values.take(pa.array(order))


def _files(rows: DataFrame, total: int, options: WriteOptions) -> int:
    if not options.sized_by_bytes:
        return options.file_count(total, 0.0)
    head = _in_utc(rows.limit(_HEAD_ROWS).toArrow())
    if not head.num_rows:
        return 1
    return options.file_count(total, stored_bytes(head, fitted_encoding(head, options.compression)) / head.num_rows)


def _in_utc(rows: pa.Table) -> pa.Table:
    """The rows with instants in UTC: Spark returns them in the session's time zone."""
    fields = [
        field.with_type(pa.timestamp("us", "UTC"))
        if t.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
