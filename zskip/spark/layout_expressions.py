"""A fitted layout as native Spark expressions, so that no row passes through Python.

    value ──binary search──▶ code, by column ──▶ node of the tree ──▶ leaf ──▶ file
                                               one table for the top, then level by level

Each step is one look-up in a constant array. The cost of a row is therefore proportional to the depth of the tree below
the table of its top, not to its size, and the code that Spark generates stays short enough for the JVM to compile.

File numbers equal the local writer's except in cells that are larger than a file: these are salted by another hash,
which affects no proof.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add, or_
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip.core import types as t
from zskip.core.schema import identifier, split_path
from zskip.layouts import Assignment
from zskip.spark.handoff import column
from zskip.stats.keys import dense_codes
from zskip.writer.evolution import common_type
from zskip.writer.routing import Routing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_GRID_ENTRIES = 1 << 16
_NEVER = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class Level:
    """The nodes of one depth. Node i leads to ``child[2 * i + 1]`` if its column's code is >= its threshold, else to
    ``child[2 * i]``: the number of a node in the next level, or ~n for the leaf n.

    ``threshold``: by column; `_NEVER` for a node that compares another column.
    """

    threshold: Mapping[int, NDArray[np.int32]]
    child: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Forest:
    """The trees of several assignments by level. Leaves are numbered consecutively, tree after tree.

    ``entry``: where evaluation starts, a node of the first level or ~leaf, by the tree's number. A single tree has
    ``steps``, and the index into ``entry`` is the sum of ``steps[c][code[c]]`` over the columns.
    """

    entry: NDArray[np.int32]
    steps: tuple[NDArray[np.int32], ...]
    levels: tuple[Level, ...]
    columns: tuple[str, ...]
    boundaries: tuple[pa.Array, ...]

    @staticmethod
    def of(assignments: Sequence[Assignment]) -> Forest:
        columns, places = union_of_columns(assignments)
        trees = [one.tree for one in assignments]
        # One binary search serves all trees: thresholds become codes of the merged boundaries.
        merged = [_merged([_boundaries(one, path) for one in assignments]) for path in columns]
        column = np.concatenate([place[tree.column] for tree, place in zip(trees, places, strict=True)])
        threshold = np.concatenate([tree.threshold for tree in trees])
        tree_of = np.repeat(np.arange(len(trees)), [len(tree) for tree in trees])
        for number, (codes, starts, _) in enumerate(merged):
            cuts = (column == number) & (threshold >= 2)  # the threshold 1 separates NULL from the values
            threshold[cuts] = codes[starts[tree_of[cuts]] + threshold[cuts] - 2] + 1
        nodes = np.cumsum([0, *map(len, trees)])
        leaves = np.cumsum([0, *(tree.cells for tree in trees)])
        below, above = (
            np.concatenate(
                [
                    np.where(child >= 0, child + nodes[number], child - leaves[number])
                    for number, child in enumerate(getattr(tree, side) for tree in trees)
                ]
            )
            for side in ("below", "above")
        )
        steps: tuple[NDArray[np.int32], ...] = ()
        if len(trees) == 1:
            grid = assignments[0].grid(_GRID_ENTRIES)
            steps = tuple((c * s).astype(np.int32) for c, s in zip(grid.coarse, grid.stride, strict=True))
            entry = np.where(grid.node < len(trees[0]), grid.node, ~(grid.node - len(trees[0])))
        else:
            entry = np.where(np.diff(nodes) > 0, nodes[:-1], ~leaves[:-1])
        entries, levels = _by_level(entry, column, threshold, np.stack([below, above], axis=1))
        return Forest(entries, steps, levels, columns, tuple(distinct for _, _, distinct in merged))

    def with_leaf(self, rows: DataFrame, name: str, tree: Column | None = None) -> DataFrame:
        """The rows with a column ``name``, the number of each row's leaf. ``tree``: each row's tree, of several."""
        from pyspark.sql import functions as f

        names = [f"{name}_{number}" for number in range(len(self.columns))]
        found = {
            code: _code(rows, path, values)
            for code, path, values in zip(names, self.columns, self.boundaries, strict=True)
        }
        rows = rows.withColumns(found)
        codes = [column(code) for code in names]
        if self.steps or tree is None:
            tree = reduce(add, [f.get(_int_array(step), code) for step, code in zip(self.steps, codes, strict=True)])
        rows = rows.withColumn(name, f.get(_int_array(self.entry), tree))
        node = column(name)
        for level in self.levels:
            reached = [
                codes[number] >= f.get(_int_array(threshold), node) for number, threshold in level.threshold.items()
            ]
            step = f.get(_int_array(level.child), node * 2 + reduce(or_, reached).cast("int"))
            rows = rows.withColumn(name, f.when(node < 0, node).otherwise(step))
        return rows.withColumn(name, f.bitwise_not(node)).drop(*names)


def file_numbers(routing: Routing, rows: DataFrame, name: str, partition: str | None) -> DataFrame:
    """The rows with a column ``name``, the number of each row's file, as `Routing.route` returns it except for salt.

    ``partition``: the column with the number of each row's partition, in a partitioned table.
    """
    from pyspark.sql import functions as f

    hashed = [column(field.name) for field in rows.schema if _is_hashable(field.dataType)]
    assignments = routing.assignments
    if not any(assignment.files > 1 for assignment in assignments):
        return rows.withColumn(name, f.lit(0) if partition is None else column(partition).cast("int"))
    rows = Forest.of(assignments).with_leaf(rows, name, None if partition is None else column(partition))
    leaf = column(name)
    first = [one.cells.first + start for one, start in zip(assignments, routing.first_file.tolist(), strict=False)]
    file = f.get(_int_array(np.concatenate(first)), leaf)
    salt = np.concatenate([one.cells.salt for one in assignments])
    if (salt > 1).any():
        width = f.get(_int_array(salt), leaf)
        # A hash of the values: a task that is run again must send each row to the same file.
        file = file + f.when(width > 1, f.pmod(f.xxhash64(*hashed), width.cast("bigint")).cast("int")).otherwise(0)
    return rows.withColumn(name, file)


def union_of_columns(assignments: Sequence[Assignment]) -> tuple[tuple[str, ...], list[NDArray[np.int32]]]:
    """The columns of all assignments, and for each assignment the positions of its own columns among them.

    Assignments differ in columns: one lacks a column that only the workload names if its tree does not compare it.
    """
    columns = tuple(dict.fromkeys(path for one in assignments for path in one.columns))
    return columns, [np.array([columns.index(path) for path in one.columns], np.int32) for one in assignments]


def _boundaries(assignment: Assignment, path: str) -> pa.Array:
    """The boundaries of a column; an empty array of type null for a column that the assignment does not read."""
    if path not in assignment.columns:
        return pa.nulls(0)
    return assignment.boundaries[assignment.columns.index(path)].values


def _merged(boundaries: Sequence[pa.Array]) -> tuple[NDArray[np.int32], NDArray[np.int64], pa.Array]:
    """Merge sorted arrays: the rank of each of their values, the first rank of each array, and the distinct values."""
    types = [values.type for values in boundaries if not t.is_null(values.type)]
    type = reduce(lambda one, other: common_type(one, other) or one, types)
    codes, distinct = dense_codes(pa.chunked_array([values.cast(type) for values in boundaries], type))
    return codes, np.cumsum([0, *map(len, boundaries)]), distinct


def _by_level(
    entry: NDArray[np.int64], column: NDArray[np.int32], threshold: NDArray[np.int32], child: NDArray[np.int64]
) -> tuple[NDArray[np.int32], tuple[Level, ...]]:
    """The entries as nodes of the first level, and the levels. ``child``: one row of two for each node."""
    current = np.unique(entry[entry >= 0])
    first, levels = _renumbered(entry, current), []
    while len(current):
        following = child[current]
        below = np.unique(following[following >= 0])
        compared = column[current]
        thresholds = {
            number: np.where(compared == number, threshold[current], _NEVER).astype(np.int32)
            for number in np.unique(compared).tolist()
        }
        levels.append(Level(thresholds, _renumbered(following.reshape(-1), below)))
        current = below
    return first, tuple(levels)


def _renumbered(children: NDArray[np.int64], nodes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Children with nodes replaced by their positions in ``nodes``; leaves unchanged."""
    return np.where(children >= 0, np.searchsorted(nodes, children), children).astype(np.int32)


def _code(rows: DataFrame, path: str, boundaries: pa.Array) -> Column:
    """The code of a column's value: 0 for NULL, else 1 + the number of boundaries <= the value."""
    from pyspark.sql import functions as f
    from pyspark.sql.internal import InternalFunction

    value = leaf_column(path)
    if not len(boundaries):
        return f.when(value.isNull(), 0).otherwise(1)
    if t.is_floating(boundaries.type):
        # Binary search distinguishes -0.0 from 0.0.
        zero = f.lit(0.0).cast(rows.select(value).schema[0].dataType)
        value = f.when(value == zero, zero).otherwise(value)
    # The position of the value, or ~ its insertion point if it is absent.
    place = InternalFunction.array_binary_search(_constant_array(boundaries), value)
    return f.coalesce(f.when(place >= 0, place + 2).otherwise(-place), f.lit(0))


def lookup(values: NDArray[Any], position: Column) -> Column:
    """The integer at a position, from 0, of a constant array."""
    from pyspark.sql import functions as f

    return f.get(_int_array(values), position)


def _int_array(values: NDArray[Any]) -> Column:
    from pyspark.sql import functions as f

    return f.split(f.lit(",".join(map(str, values.tolist()))), ",").cast("array<int>")


def _constant_array(values: pa.Array) -> Column:
    """A constant array of values of an orderable type."""
    from pyspark.sql import functions as f

    from zskip.spark.spark_types import spark_schema

    kind = spark_schema(pa.schema([pa.field("x", values.type)])).fields[0].dataType
    if t.is_binary(values.type):
        return f.array(*[f.unhex(f.lit(value.hex())) for value in values.to_pylist()]).cast("array<binary>")
    plain = [None if value is None else str(value) for value in _exact_texts(values)]
    texts = f.from_json(f.lit(json.dumps(plain)), "array<string>")
    return texts if t.is_string(values.type) else texts.cast(f"array<{kind.simpleString()}>")


def _exact_texts(values: pa.Array) -> list[str]:
    """The values as text that Spark casts back exactly."""
    if t.is_timestamp(values.type):
        zone = "Z" if values.type.tz is not None else ""
        naive = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
        return [f"{text}{zone}" for text in pc.cast(naive, pa.string()).to_pylist()]
    if t.is_floating(values.type):
        return [repr(float(value)) for value in values.to_pylist()]
    return list(pc.cast(values, pa.string()).to_pylist())


def leaf_column(path: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(identifier(*split_path(path), dialect="spark"))


def _is_hashable(kind: Any) -> bool:
    return "map<" not in kind.simpleString() and "variant" not in kind.simpleString()
