"""`fit`: learn an `Assignment` from a sample of rows · `score`: how much queries are expected to read under a layout.

Both take a `Task`: the sample, and the queries whose reading is to be minimised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip.binder import bind
from zskip.binder.workload_sql import TableQuery, table_query
from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.errors import InvalidOption, nearest
from zskip.language import Predicate
from zskip.layouts.assignment import Assignment
from zskip.layouts.cells import CellFiles, Cells, ThresholdTree, hilbert_cells, linear_cells, zorder_cells
from zskip.layouts.cuts import Bounds, plan_cuts
from zskip.layouts.greedy_tree import tree_cells
from zskip.layouts.reads import Boxes, LookUps, Reads, Sample
from zskip.layouts.tiles import tile
from zskip.layouts.workload import Queries

_MOST_QUERIES = 200


class BoundQuery(NamedTuple):
    """One query of a workload and its bound condition."""

    query: TableQuery
    predicate: Predicate


def bound_queries(workload: Sequence[str] | Sequence[BoundQuery], schema: Schema) -> list[BoundQuery]:
    """The queries of a workload, without statements that have no condition on the table. Raises `SqlError`."""
    queries: list[BoundQuery] = []
    for line in workload:
        if isinstance(line, BoundQuery):
            queries.append(line)
        elif (query := table_query(line, schema)) is not None:
            queries.append(BoundQuery(query, bind(query.condition, schema)))
    return queries


@dataclass(frozen=True, slots=True)
class Task:
    """The sample, the queries whose reading is to be minimised, and the number and size of files.

    ``queries``: None without a workload · ``widths``: the bytes that queries read of each row · ``files``: the greatest
    number of files · ``total_rows``: that the sample represents.
    """

    sample: Sample
    look_ups: LookUps
    queries: Queries | None
    widths: Widths
    files: int
    total_rows: int

    @property
    def bounds(self) -> Bounds:
        """The sampled rows of a file."""
        return Bounds.of(max(self.sample.rows, 1), max(self.total_rows, 1), self.files)

    @property
    def reads(self) -> Reads:
        """The cost function; it weights each query of a workload by the bytes that it reads of a row."""
        return self.queries or self.look_ups

    @property
    def row_weights(self) -> NDArray[np.float64] | None:
        """The weight of each sampled row: the bytes that the workload reads of it; None if all are equal."""
        return self.widths.by_row if self.queries else None

    def clustered_by(self, paths: Sequence[str]) -> Task:
        """The task with look-ups on only some of its columns. The queries are not evaluated again.

        Raises `KeyError` for a column that the task does not have.
        """
        number = {column.path: index for index, column in enumerate(self.sample.columns)}
        order = [number[path] for path in paths]
        order += [index for index in range(len(number)) if index not in order]
        sample = self.sample.select(order)
        shares = np.where(np.arange(len(order)) < len(paths), 1 / len(paths), 0.0)
        look_ups = LookUps(sample, shares)
        queries = None if self.queries is None else self.queries.select(order, look_ups)
        return replace(self, sample=sample, look_ups=look_ups, queries=queries)


def task_of(
    sample: pa.Table,
    by: Sequence[str] | None,
    *,
    files: int,
    weights: Sequence[float] | None,
    workload: Sequence[str] | Sequence[BoundQuery] | None,
    total_rows: int,
    most_queries: int | None = _MOST_QUERIES,
) -> Task:
    """The task for a sample. Of more than ``most_queries`` queries it takes a random subset.

    Raises `InvalidOption`, `UnknownColumn`, `NotOrderable`, `SqlError`.
    """
    schema = Schema(sample.schema)
    bound = bound_queries(workload or (), schema)
    paths = dict.fromkeys(path for each in bound for path in sorted(each.predicate.columns))
    filtered = [path for path in paths if schema.columns[path].orderable]
    if not by and not filtered:
        raise InvalidOption("by= names no column, and no workload filters on one. Name a column to cluster by.")
    columns = schema.orderable(by or filtered)
    shares = _weights(weights, len(columns))
    workload_only = [schema.columns[path] for path in filtered if path not in {column.path for column in columns}]
    if most_queries is not None:
        bound = random_subset(bound, most_queries)
    codes = Sample.of(sample, [*columns, *workload_only])
    look_ups = LookUps(codes, np.concatenate([shares, np.zeros(len(workload_only))]))
    files = max(1, min(files, codes.rows, total_rows))
    widths = Widths(sample, tuple(each.query.columns for each in bound))
    predicates = [each.predicate for each in bound]
    queries = Queries.of(codes, predicates, look_ups, widths.weights) if predicates else None
    return Task(codes, look_ups, queries, widths, files, total_rows)


def random_subset(queries: Sequence[Any], most: int) -> list[Any]:
    """A random subset of at most ``most`` queries, in their order; the same subset for each call.

    Every tenth query, for example, would not do: in a log that repeats itself, it could miss a kind of query.
    """
    if len(queries) <= most:
        return list(queries)
    chosen = np.random.default_rng(0).choice(len(queries), most, replace=False)
    return [queries[number] for number in np.sort(chosen).tolist()]


def _weights(weights: Sequence[float] | None, columns: int) -> NDArray[np.float64]:
    """The weights scaled to sum to 1; equal ones by default. Raises `InvalidOption`."""
    if weights is None:
        return np.full(columns, 1 / columns)
    given = np.array(weights, float)
    if len(given) != columns or not np.isfinite(given).all() or (given < 0).any() or not given.sum():
        raise InvalidOption(
            f"weights={list(weights)}: give one number for each of the {columns} columns of by=, none below 0, "
            "at least one above."
        )
    shares: NDArray[np.float64] = given / given.sum()
    return shares


# `Widths`: the bytes of a row in the columns that a query reads, for each row and each query.


@dataclass(frozen=True)
class Widths:
    """The bytes of some rows, by column and by query.

    ``reads``: for each query the paths of the leaves that it reads, None for all. Values are measured in memory, since
    a sample does not show how well they compress.
    """

    rows: pa.Table
    reads: tuple[frozenset[str] | None, ...] = ()

    @cached_property
    def _columns(self) -> tuple[float | NDArray[np.float64], ...]:
        """The bytes of each value, leaf by leaf; a single number for a leaf whose values have the same width."""
        return tuple(_value_bytes(_leaf(self.rows, column.parts)) for column in Schema(self.rows.schema))

    @cached_property
    def _reads_leaf(self) -> NDArray[np.float64]:
        """Whether each query reads each leaf: an array (queries, leaves) of 0 and 1."""
        paths = list(Schema(self.rows.schema).columns)
        return np.array([[read is None or path in read for path in paths] for read in self.reads], float).reshape(
            len(self.reads), len(paths)
        )

    def _by_leaf(self, file: NDArray[np.integer], files: int) -> NDArray[np.float64]:
        """The bytes of each leaf in each file: an array (leaves, files)."""
        rows = np.bincount(file, minlength=files)
        widths = [
            rows * width if isinstance(width, float) else np.bincount(file, width, minlength=files)
            for width in self._columns
        ]
        return np.array(widths, float).reshape(len(widths), files)

    def by_file(self, file: NDArray[np.integer], files: int) -> NDArray[np.float64]:
        """The bytes of all columns in each file. ``file``: the file number of each row."""
        total: NDArray[np.float64] = self._by_leaf(file, files).sum(axis=0)
        return total

    def by_query(self, file: NDArray[np.integer], files: int) -> NDArray[np.float64]:
        """The bytes that each query reads when it reads a whole file: an array (queries, files)."""
        total: NDArray[np.float64] = self._reads_leaf @ self._by_leaf(file, files)
        return total

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """The weight of each query: its bytes of an average row, scaled so that all weights sum to 1.

        >>> rows = pa.table({"a": pa.array([1, 2], pa.int16()), "b": ["x", "12345"]})
        >>> Widths(rows, (None, frozenset({"a"}), frozenset({"b"}))).weights.tolist()
        [0.5, 0.2, 0.3]
        """
        mean = np.array([np.mean(width) if np.size(width) else 0.0 for width in self._columns], float)
        by_query = self._reads_leaf @ mean
        count = max(1, len(by_query))
        return by_query / by_query.sum() if by_query.sum() > 0 else np.full(len(by_query), 1 / count)

    @cached_property
    def by_row(self) -> NDArray[np.float64] | None:
        """The bytes that all queries together read of each row, relative to the average row; None if all are equal."""
        readers = self._reads_leaf.sum(axis=0)
        varying = [w for w, count in zip(self._columns, readers, strict=True) if count and not isinstance(w, float)]
        if not varying or not self.rows.num_rows:
            return None
        total = np.zeros(self.rows.num_rows)
        for width, count in zip(self._columns, readers, strict=True):
            total += count * width
        mean = total.mean()
        return total / mean if mean > 0 else None


def _leaf(rows: pa.Table, parts: tuple[str, ...]) -> pa.ChunkedArray:
    """A leaf's values, dictionaries decoded."""
    values = rows.column(parts[0])
    for part in parts[1:]:
        values = pc.struct_field(values, [values.type.get_field_index(part)])
    if isinstance(values.type, pa.BaseExtensionType):
        return values.cast(values.type.storage_type)
    return values.cast(t.value_type(values.type))


def _value_bytes(values: pa.ChunkedArray) -> float | NDArray[np.float64]:
    """The bytes of each value; a nested column's bytes are divided evenly among its rows."""
    if t.is_primitive(values.type) or t.is_decimal(values.type) or t.is_fixed_size_binary(values.type):
        return float(values.type.bit_width) / 8
    if t.is_null(values.type) or not len(values):
        return 0.0
    if t.is_nested(values.type):
        return float(values.nbytes) / len(values)
    return np.asarray(pc.fill_null(pc.binary_length(values.cast(pa.large_binary())), 0), np.float64)


# `score`: how much queries are expected to read, per query and per column.

_CHANCES_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Share:
    """The shares of a table's rows, bytes and files that a query is expected to read, from 0 to 1.

    Bytes are those of the values in memory, in the columns that the query reads, since a sample does not show how well
    they compress. A bare predicate reads all columns, and so does a look-up.
    """

    rows: float
    bytes: float
    files: float


@dataclass(frozen=True, slots=True)
class Score:
    """What queries are expected to read under a layout.

    ``cost``: what layouts minimise, from 0 to 1: with a workload the share of bytes, in the columns of each query;
    without one the share of rows · ``read``, ``bytes``, ``files``: expected shares of the rows, bytes and files ·
    ``columns``: for each path, the shares that a point look-up on it reads · ``queries``: the shares that each query of
    the workload reads, in its order · ``weights``: each query's part of the workload's bytes.
    """

    cost: float
    read: float
    bytes: float
    files: float
    columns: Mapping[str, Share]
    queries: tuple[Share, ...] = ()
    weights: tuple[float, ...] = ()


def score(
    rows: pa.Table,
    file: Assignment | NDArray[np.int64],
    by: Sequence[str] | None,
    *,
    workload: Sequence[str] | None = None,
) -> Score:
    """Score an assignment, or the file number of each row, on a sample of the rows or on all of them.

    ``by``, ``workload``: see `zskip.layouts.fit`, whose errors it raises.

    >>> score(pa.table({"a": [1, 2, 3, 4]}), np.array([0, 0, 1, 1]), ["a"]).read
    0.5
    """
    number = file.assign(rows) if isinstance(file, Assignment) else file
    files = int(number.max(initial=0)) + 1
    total = max(1, rows.num_rows)
    task = task_of(rows, by, files=files, weights=None, workload=workload, total_rows=total, most_queries=None)
    return scored(task, number, files)


def scored(task: Task, number: NDArray[np.int64], files: int) -> Score:
    """The score of a task's rows, given the file number of each."""
    boxes = task.sample.boxes(number, files)
    counts = np.bincount(number, minlength=files)
    # A file without rows is not written.
    parts = np.stack([_shares(part) for part in (counts, task.widths.by_file(number, files), counts > 0)])

    def share(read: NDArray[np.float64]) -> Share:
        return Share(*(parts @ read).tolist())

    columns = {
        column.path: share(task.look_ups.extents(boxes, index))
        for index, column in enumerate(task.sample.columns)
        if task.look_ups.weights[index] > 0
    }
    look_ups = share(task.look_ups(boxes))
    if task.queries is None:
        return Score(look_ups.rows, look_ups.rows, look_ups.bytes, look_ups.files, columns)
    query_shares = _shares(task.widths.by_query(number, files))
    exact, similar = np.zeros((2, 3, len(query_shares)))
    for block, part in _blocks(boxes, len(query_shares)):
        for total, read in ((exact, task.queries.matches(part)), (similar, task.queries.chances(part))):
            total[0] += read @ parts[0, block]
            total[1] += (read * query_shares[:, block]).sum(axis=1)
            total[2] += read @ parts[2, block]
    prior, weights = task.queries.prior, task.queries.weights
    row_share, byte_share, file_share = (
        (1 - prior) * by_workload + prior * by_look_up
        for by_workload, by_look_up in (
            (float(similar[0].mean()), look_ups.rows),
            (float(weights @ similar[1]), look_ups.bytes),
            (float(similar[2].mean()), look_ups.files),
        )
    )
    queries = tuple(Share(*shares) for shares in exact.T.tolist())
    return Score(byte_share, row_share, byte_share, file_share, columns, queries, tuple(weights.tolist()))


def query_bytes(task: Task, number: NDArray[np.int64], files: int, *, similar: bool = True) -> NDArray[np.float64]:
    """The share of bytes that each query of a task's workload reads, given the file number of each row.

    ``similar``: average over the query itself and over the query with its ranges shifted, as layouts are fitted; else
    take the query itself. Raises `ValueError` for a task without a workload.
    """
    if task.queries is None:
        raise ValueError("the task has no workload")
    boxes, query_shares = task.sample.boxes(number, files), _shares(task.widths.by_query(number, files))
    total = np.zeros(len(query_shares))
    for block, part in _blocks(boxes, len(query_shares)):
        read = task.queries.chances(part) if similar else task.queries.matches(part)
        total += (read * query_shares[:, block]).sum(axis=1)
    return total


def _blocks(boxes: Boxes, queries: int) -> Iterator[tuple[slice, Boxes]]:
    """The boxes in blocks, which bound the memory for one number per query and box."""
    step = max(1, _CHANCES_AT_ONCE // max(1, queries))
    for start in range(0, len(boxes), step):
        block = slice(start, start + step)
        yield block, Boxes(boxes.lower[block], boxes.upper[block])


def _shares(amounts: NDArray[np.float64] | NDArray[np.int64] | NDArray[np.bool_]) -> NDArray[np.float64]:
    """Each amount's share of the sum of its row."""
    total = amounts.sum(axis=-1, keepdims=True)
    shares: NDArray[np.float64] = amounts / np.where(total > 0, total, 1)
    return shares


# `fit`: the layouts, by name.

CELLS_PER_FILE = 8

Fit = Callable[[Task], tuple[Cells, CellFiles]]


def fit(
    sample: pa.Table,
    by: Sequence[str] | None,
    *,
    layout: str = "auto",
    files: int,
    weights: Sequence[float] | None = None,
    workload: Sequence[str] | None = None,
    total_rows: int,
) -> Assignment:
    """Fit a layout to a sample of rows: 100 to 400 rows per file are enough.

    ``by``: clustering columns, by default the workload's columns · ``files``: the greatest number of files (the
    assignment has fewer only if there are fewer rows, or if no cuts within the bounds give as many) · ``weights``: how
    often each column is looked up, relative to the others · ``workload``: predicates or SELECT statements like the
    expected queries; the layout may cut by their columns too · ``total_rows``: the number of rows that the sample
    represents.

    Raises `InvalidOption`, `UnknownColumn`, `NotOrderable`, `SqlError`.
    """
    if layout not in LAYOUTS:
        raise InvalidOption(f'There is no layout "{layout}".{nearest(layout, LAYOUTS)}')
    if files < 1:
        raise InvalidOption(f"files={files}: a table has at least one file.")
    return fitted(task_of(sample, by, files=files, weights=weights, workload=workload, total_rows=total_rows), layout)


def fitted(task: Task, layout: str) -> Assignment:
    """Fit the layout of this name to a task."""
    if task.files == 1:
        layout, reason = "tiles" if layout == "auto" else layout, "a single file has all rows under any layout"
        cells, files = _one_file(task)
    elif layout == "auto":
        layout, (cells, files), reason = _cheapest(task)
    else:
        (cells, files), reason = LAYOUTS[layout](task), "as asked for"
    return Assignment.of(layout, task.sample, tuple(task.look_ups.weights.tolist()), cells, files, reason)


def _one_file(task: Task) -> tuple[Cells, CellFiles]:
    nothing = np.empty(0, np.int32)
    cells = Cells(ThresholdTree(nothing, nothing, nothing, nothing), np.zeros(task.sample.rows, np.int32))
    return cells, CellFiles(np.zeros(1, np.int64), np.ones(1, np.int64), 1)


def _cheapest(task: Task) -> tuple[str, tuple[Cells, CellFiles], str]:
    """The candidate of the lowest cost, fitted, and the reason for it: the costs of all candidates."""
    fits = {name: LAYOUTS[name](task) for name in _CANDIDATES}
    costs = {name: _cost(task, cells, files) for name, (cells, files) in fits.items()}
    best = min(costs, key=lambda name: costs[name])
    ranking = ", ".join(f"{name} {cost:.4f}" for name, cost in sorted(costs.items(), key=lambda pair: pair[1]))
    unit = "bytes" if task.queries else "rows"
    return best, fits[best], f"{best}: the least of the {unit} expected to be read on the sample ({ranking})"


def _cost(task: Task, cells: Cells, files: CellFiles) -> float:
    # A row of a salted cell may go to any of its files, so each of these files has the box of the whole cell.
    file = files.first[cells.cell] + np.arange(task.sample.rows) % files.salt[cells.cell]
    return scored(task, file, files.files).cost


def _with_planned_cuts(cells_of: Callable[[Task, float], Cells]) -> Fit:
    """Fit small cells by a rule, then group them into files. ``cells_of``: takes the task and the rows per cell."""

    def fit_cells(task: Task) -> tuple[Cells, CellFiles]:
        cells = cells_of(task, max(1.0, task.bounds.target / CELLS_PER_FILE))
        boxes = task.sample.boxes(cells.cell, cells.tree.cells)
        weights = np.bincount(cells.cell, task.row_weights, minlength=cells.tree.cells)
        return cells, plan_cuts(cells.rows, weights, boxes, task.reads, task.files, task.bounds)

    return fit_cells


def _clustering_columns(task: Task) -> Sample:
    """The sample without the columns that only the workload names: curves use only the clustering columns."""
    return task.sample.select(range(int(np.flatnonzero(task.look_ups.weights).max()) + 1))


_CANDIDATES = ("tiles", "tree")

LAYOUTS: Mapping[str, Fit] = {
    "auto": lambda task: _cheapest(task)[1],
    "tiles": lambda task: tile(task.sample, task.look_ups, task.files, task.bounds),
    "tree": _with_planned_cuts(
        lambda task, rows: tree_cells(
            task.sample, rows, task.reads, task.queries.borders if task.queries else None, task.row_weights
        )
    ),
    "hilbert": _with_planned_cuts(lambda task, rows: hilbert_cells(_clustering_columns(task), rows)),
    "zorder": _with_planned_cuts(lambda task, rows: zorder_cells(_clustering_columns(task), rows)),
    "linear": _with_planned_cuts(lambda task, rows: linear_cells(_clustering_columns(task), rows)),
}
