"""The order of rows inside a file on Spark: the layout continues down to row groups, as in `Assignment.arrange`.

    rows of a file ──sort──▶ slabs of whole row groups ──sort inside each──▶ thinner slabs ──▶ … ──▶ row groups

Which columns are cut, into how many slabs, the driver tells by its sample of the file. Where a slab ends is told by
counting the sorted rows, so that the borders of slabs are those of the row groups that Spark cuts by count. A border
that was guessed from a sample would leave a few rows on its wrong side, and they make two row groups wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zskip.layouts.order import SlabLevel
from zskip.offsets import offsets_of
from zskip.spark.cell_columns import looked_up, nested, united_columns
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
    """The rows, sorted within partitions so that each ``row_group_rows`` rows of a file make a small box.

    A file, numbered in the column ``file``, must be alone in its partition. ``sample``: of the table's ``total_rows``.
    ``leading``: what the rows are sorted by first, the same for all rows of a file.
    """
    from pyspark.sql import functions as f

    columns, places = united_columns(routing.assignments)
    if routing.assignments[0].layout == "linear":
        return rows.sortWithinPartitions(*leading, *map(nested, columns))
    first_unit, levels = _cuts(routing, places, sample, total_rows, row_group_rows)
    if len(first_unit) - 1 == first_unit[-1]:  # a row group each
        return rows.sortWithinPartitions(*leading) if leading else rows
    # Row 1 of a partition has the place 0 in the lower 33 bits.
    place = f.monotonically_increasing_id().bitwiseAND(f.lit((1 << 33) - 1))
    most = np.diff(first_unit) - 1
    number = f.col(file)
    unit = looked_up(first_unit[:-1], number)
    for depth, level in enumerate(levels):
        if depth:
            rank = f.least(f.floor(place / row_group_rows).cast("int"), looked_up(most, number))
            unit = looked_up(first_unit[:-1], number) + rank
        rows = rows.withColumn(_UNIT, unit).withColumn(_FIRST, looked_up(level.first, f.col(_UNIT)))
        chosen = looked_up(level.column, f.col(_UNIT))
        # In one node only one of these is not NULL.
        asked = np.unique(level.column).tolist()
        values = [
            nested(columns[one]) if len(asked) == 1 else f.when(chosen == one, nested(columns[one])) for one in asked
        ]
        outer = leading if depth == len(levels) - 1 else []
        rows = rows.sortWithinPartitions(*outer, f.col(_FIRST), *values)
    return rows.drop(_UNIT, _FIRST)


def _cuts(
    routing: Routing, places: Sequence[np.ndarray], sample: pa.Table, total_rows: int, row_group_rows: int
) -> tuple[np.ndarray, list[SlabLevel]]:
    """The first row group of each file, all of them numbered through, and how they are cut out, level by level.

    ``places``: of each assignment's columns among those of all, by which the cuts name theirs.
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
        # What is cut in fewer levels keeps its last cut.
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
