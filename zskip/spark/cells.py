"""A fitted layout as native Spark expressions: no Python in the path of the rows.

The tree of thresholds is walked one level at a time. Each level is a few constant arrays, looked up by the number of
the node that a row has reached, so the cost of a row is the depth of the tree and not its size:

    node ≥ 0   the node's number in this level      node < 0   ~number of the leaf that the row has reached
    next     = column[node] ≥ boundary[node] ? above[node] : below[node]

Files differ from the local writer's in two things only, neither of which a proof rests on: the hash by which the rows
of a cell that is heavier than a file are salted, and the order inside a file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as t

from zskip import layouts
from zskip.layouts import Assignment
from zskip.schema import split_path
from zskip.writer import Routing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Forest", "file_numbers", "row_group_order"]


@dataclass(frozen=True, slots=True)
class Level:
    """The nodes of one depth: which column each asks, which of its boundaries, and where to go; leaf n is ~n.

    ``boundary`` −1 asks whether the column is not NULL.
    """

    column: NDArray[np.int32]
    boundary: NDArray[np.int32]
    below: NDArray[np.int32]
    above: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees level by level. Tree i starts at node ``roots[i]`` of the first level, or is the leaf ~``roots[i]``."""

    roots: NDArray[np.int32]
    levels: tuple[Level, ...]
    columns: tuple[str, ...]
    boundaries: tuple[pa.Array, ...]

    @staticmethod
    def of(assignments: Sequence[Assignment]) -> Forest:
        """The trees of these assignments, all over the same columns; leaves are numbered through, tree after tree."""
        first = assignments[0]
        starts = [
            np.cumsum([0, *(len(one.boundaries[column]) for one in assignments)])
            for column in range(len(first.columns))
        ]
        boundaries = tuple(
            pa.concat_arrays([one.boundaries[column].values for one in assignments])
            for column in range(len(first.columns))
        )
        nodes = np.cumsum([0, *(len(one.tree) for one in assignments)])
        leaves = np.cumsum([0, *(one.tree.cells for one in assignments)])
        trees = [one.tree for one in assignments]
        column = np.concatenate([tree.column for tree in trees])
        boundary = np.concatenate(
            [
                np.where(tree.threshold >= 2, tree.threshold - 2 + _at(starts, number)[tree.column], -1)
                for number, tree in enumerate(trees)
            ]
        )
        below, above = (
            np.concatenate(
                [
                    np.where(child >= 0, child + nodes[number], child - leaves[number])
                    for number, child in enumerate(getattr(tree, side) for tree in trees)
                ]
            )
            for side in ("below", "above")
        )
        roots = np.where(np.diff(nodes) > 0, nodes[:-1], ~leaves[:-1])
        return _levelled(roots, column, boundary, below, above, first.columns, boundaries)

    def walk(self, rows: DataFrame, name: str, tree: Column | None = None) -> DataFrame:
        """The rows with a column ``name``: the leaf that each reaches, in the tree numbered ``tree`` or the first."""
        from pyspark.sql import functions as f

        columns = [_nested(path) for path in self.columns]
        values = [_constant(values) for values in self.boundaries]
        start = f.lit(int(self.roots[0])) if tree is None else f.get(_integers(self.roots), tree)
        rows = rows.withColumn(name, start)
        node = f.col(f"`{name}`")
        for level in self.levels:
            boundary = f.get(_integers(level.boundary), node)
            asked = f.get(_integers(level.column), node)
            reached = f.lit(False)
            for number in np.unique(level.column).tolist():
                at_least = columns[number] >= f.get(values[number], boundary)
                if (level.boundary[level.column == number] < 0).any():
                    at_least = f.when(boundary < 0, columns[number].isNotNull()).otherwise(at_least)
                reached = f.when(asked == number, at_least).otherwise(reached)
            above, below = f.get(_integers(level.above), node), f.get(_integers(level.below), node)
            # NULL stands below every boundary.
            step = f.when(f.coalesce(reached, f.lit(False)), above).otherwise(below)
            rows = rows.withColumn(name, f.when(node < 0, node).otherwise(step))
        return rows.withColumn(name, f.bitwise_not(node))


def file_numbers(routing: Routing, rows: DataFrame, name: str, partition: str | None) -> DataFrame:
    """The rows with a column ``name``: the number of each row's file, as `Routing.route` gives it but for salt.

    ``partition``: the column with the number of each row's partition, for a table that has some.
    """
    from pyspark.sql import functions as f

    hashed = [f.col(_quoted(field.name)) for field in rows.schema if _is_hashable(field.dataType)]
    assignments = routing.assignments
    if not any(assignment.files > 1 for assignment in assignments):
        return rows.withColumn(name, f.lit(0) if partition is None else f.col(_quoted(partition)).cast("int"))
    rows = Forest.of(assignments).walk(rows, name, None if partition is None else f.col(_quoted(partition)))
    leaf = f.col(_quoted(name))
    first = [one.cells.first + start for one, start in zip(assignments, routing.first_file.tolist(), strict=False)]
    file = f.get(_integers(np.concatenate(first)), leaf)
    salt = np.concatenate([one.cells.salt for one in assignments])
    if (salt > 1).any():
        width = f.get(_integers(salt), leaf)
        # By the values alone: a task that is run again must send each row where it went before.
        file = file + f.when(width > 1, f.pmod(f.xxhash64(*hashed), width.cast("bigint")).cast("int")).otherwise(0)
    return rows.withColumn(name, file)


def row_group_order(
    routing: Routing, sample: pa.Table, total_rows: int, row_group_rows: int, rows: DataFrame, file: str, name: str
) -> DataFrame:
    """The rows with a column ``name``: by it, the rows of one file are sorted so that each row group is a small box.

    A layout of its own for each file, fitted on the sampled rows that it would get.
    """
    from pyspark.sql import functions as f

    numbers = routing.route(sample)
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers, minlength=routing.files)
    starts = np.cumsum(counts) - counts
    sorted_sample = sample.take(pa.array(order))
    share = total_rows / max(1, sample.num_rows)
    inner = []
    for number, (start, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True)):
        assignment = routing.assignment_of(number)
        groups = max(1, round(count * share / row_group_rows))
        inner.append(_inner(assignment, sorted_sample.slice(start, count), groups, max(1, round(count * share))))
    rows = Forest.of(inner).walk(rows, name, f.col(_quoted(file)))
    places = np.concatenate([one.cells.first for one in inner])
    return rows.withColumn(name, f.get(_integers(places), f.col(_quoted(name))))


def _inner(assignment: Assignment, part: pa.Table, groups: int, total: int) -> Assignment:
    return layouts.fit(
        part.select(list(dict.fromkeys(split_path(path)[0] for path in assignment.columns))),
        list(assignment.columns),
        layout=assignment.layout,
        files=groups * _PIECES_PER_ROW_GROUP if groups > 1 else 1,
        weights=assignment.weights,
        total_rows=total,
    )


# Row groups are cut by count, not at cells' borders: the smaller the pieces, the fewer rows go astray.
_PIECES_PER_ROW_GROUP = 6


def _levelled(
    roots: NDArray[np.int64],
    column: NDArray[np.int32],
    boundary: NDArray[np.int64],
    below: NDArray[np.int64],
    above: NDArray[np.int64],
    columns: tuple[str, ...],
    boundaries: tuple[pa.Array, ...],
) -> Forest:
    """Renumber nodes within their depth."""
    here = roots[roots >= 0]
    first = _renumbered(roots)
    levels = []
    while len(here):
        children = np.stack([below[here], above[here]])
        numbers = _renumbered(children.T.reshape(-1)).reshape(-1, 2)
        levels.append(Level(column[here], boundary[here].astype(np.int32), numbers[:, 0], numbers[:, 1]))
        flat = children.T.reshape(-1)
        here = flat[flat >= 0]
    return Forest(first, tuple(levels), columns, boundaries)


def _renumbered(children: NDArray[np.int64]) -> NDArray[np.int32]:
    """Nodes by their place among the nodes of their depth; leaves as they are."""
    is_node = children >= 0
    return np.where(is_node, np.cumsum(is_node) - 1, children).astype(np.int32)


def _at(starts: Sequence[NDArray[np.int64]], number: int) -> NDArray[np.int64]:
    return np.array([start[number] for start in starts], np.int64)


def _integers(values: NDArray[Any]) -> Column:
    """A constant array of integers."""
    from pyspark.sql import functions as f

    return f.split(f.lit(",".join(map(str, values.tolist()))), ",").cast("array<int>")


def _constant(values: pa.Array) -> Column:
    """A constant array of values of an orderable type."""
    from pyspark.sql import functions as f

    from zskip.engines.spark import spark_schema

    kind = spark_schema(pa.schema([pa.field("x", values.type)])).fields[0].dataType
    if t.is_binary(values.type):
        return f.array(*[f.unhex(f.lit(value.hex())) for value in values.to_pylist()]).cast("array<binary>")
    plain = [None if value is None else str(value) for value in _texts(values)]
    texts = f.from_json(f.lit(json.dumps(plain)), "array<string>")
    return texts if t.is_string(values.type) else texts.cast(f"array<{kind.simpleString()}>")


def _texts(values: pa.Array) -> list[str]:
    """The values as Spark reads them from text, each exactly."""
    if t.is_timestamp(values.type):
        zone = "Z" if values.type.tz is not None else ""
        naive = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
        return [f"{text}{zone}" for text in pc.cast(naive, pa.string()).to_pylist()]
    if t.is_floating(values.type):
        return [repr(float(value)) for value in values.to_pylist()]
    return list(pc.cast(values, pa.string()).to_pylist())


def _nested(path: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(".".join(_quoted(part) for part in split_path(path)))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _is_hashable(kind: Any) -> bool:
    return "map<" not in kind.simpleString() and "variant" not in kind.simpleString()
