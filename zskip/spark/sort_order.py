"""The order of rows inside a file on Spark: the layout continues down to row groups, as in `Assignment.arrange`.

    rows of a file ──sort──▶ slabs of whole row groups ──sort inside each──▶ thinner slabs ──▶ … ──▶ row groups

The driver chooses from its sample of the file which columns are cut and into how many slabs. Slabs end after a fixed
number of sorted rows, exactly where Spark, which cuts row groups by count, ends a row group. Boundaries estimated from
the sample would leave a few rows in a neighbouring row group and widen its ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zskip.core.offsets import offsets_of
from zskip.layouts.row_order import SlabLevel
from zskip.spark.layout_expressions import leaf_column, lookup, union_of_columns
from zskip.writer import Routing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["arranged"]

_UNIT, _FIRST = "__zskip_unit", "__zskip_first"


def arranged(
    rows: DataFrame,
    routing: Routing,
    sample: pa.Table,
    total_rows: int,
    row_group_rows: int,
    file: str,
    leading: Sequence[Column],
) -> DataFrame:
    """The rows sorted within partitions so that every ``row_group_rows`` rows of a file have narrow ranges.

    Each partition must hold a single file, whose number is in the column ``file``. ``sample``: a sample of the table's
    ``total_rows`` · ``leading``: sort keys that come first, equal for all rows of a file.
    """
    from pyspark.sql import functions as f

    columns, places = union_of_columns(routing.assignments)
    if routing.assignments[0].layout == "linear":
        return rows.sortWithinPartitions(*leading, *map(leaf_column, columns))
    first_unit, levels = _cuts(routing, places, sample, total_rows, row_group_rows)
    if len(first_unit) - 1 == first_unit[-1]:  # one row group per file
        return rows.sortWithinPartitions(*leading) if leading else rows
    # The lower 33 bits are the row's position in its partition, from 0.
    place = f.monotonically_increasing_id().bitwiseAND(f.lit((1 << 33) - 1))
    most = np.diff(first_unit) - 1
    number = f.col(file)
    unit = lookup(first_unit[:-1], number)
    for depth, level in enumerate(levels):
        if depth:
            rank = f.least(f.floor(place / row_group_rows).cast("int"), lookup(most, number))
            unit = lookup(first_unit[:-1], number) + rank
        rows = rows.withColumn(_UNIT, unit).withColumn(_FIRST, lookup(level.first, f.col(_UNIT)))
        chosen = lookup(level.column, f.col(_UNIT))
        # Each node compares one column: the others are NULL within it.
        compared = np.unique(level.column).tolist()
        values = [
            leaf_column(columns[one]) if len(compared) == 1 else f.when(chosen == one, leaf_column(columns[one]))
            for one in compared
        ]
        outer = leading if depth == len(levels) - 1 else []
        rows = rows.sortWithinPartitions(*outer, f.col(_FIRST), *values)
    return rows.drop(_UNIT, _FIRST)


def _cuts(
    routing: Routing, places: Sequence[np.ndarray], sample: pa.Table, total_rows: int, row_group_rows: int
) -> tuple[np.ndarray, list[SlabLevel]]:
    """The number of each file's first row group, counted over all files, and the cuts of each level.

    ``places``: the positions of each assignment's columns among those of all assignments; the cuts refer to the latter.
    """
    numbers = routing.route(sample)
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=routing.files))
    ordered = sample.take(pa.array(order))
    share = total_rows / max(1, sample.num_rows)
    counts = np.diff(ends, prepend=0)
    units = np.maximum(1, np.ceil(counts * share / row_group_rows)).astype(np.int64)
    first = offsets_of(units)
    plans = [
        _slabs(routing, places, number, ordered.slice(end - count, count), groups)
        for number, (end, count, groups) in enumerate(zip(ends.tolist(), counts.tolist(), units.tolist(), strict=True))
    ]
    levels = []
    for depth in range(max(map(len, plans), default=0) or 1):
        # A file with fewer levels repeats its last one.
        parts = [plan[min(depth, len(plan) - 1)] for plan in plans]
        nodes = np.concatenate([part.first + start for part, start in zip(parts, first.tolist(), strict=False)])
        levels.append(SlabLevel(nodes.astype(np.int32), np.concatenate([part.column for part in parts])))
    return first, levels


def _slabs(
    routing: Routing, places: Sequence[np.ndarray], file: int, rows: pa.Table, row_groups: int
) -> list[SlabLevel]:
    number = routing.partition_of(file)
    cuts = routing.assignments[number].slabs(rows, row_groups)
    one = SlabLevel(np.zeros(row_groups, np.int32), np.zeros(row_groups, np.int32))
    return [SlabLevel(cut.first, places[number][cut.column]) for cut in cuts or [one]]
