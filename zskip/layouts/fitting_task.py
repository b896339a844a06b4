"""`Task`: a layout is fitted to its sample and cost function, and scored by them."""

from __future__ import annotations

from collections.abc import Sequence
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
from zskip.errors import InvalidOption
from zskip.language import Predicate
from zskip.layouts.cuts import Bounds
from zskip.layouts.reads import LookUps, Reads, Sample
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
    number of files · ``bounds``: the sampled rows of a file.
    """

    sample: Sample
    look_ups: LookUps
    queries: Queries | None
    widths: Widths
    files: int
    bounds: Bounds

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
    bounds = Bounds.of(max(codes.rows, 1), max(total_rows, 1), files)
    widths = Widths(sample, tuple(each.query.columns for each in bound))
    predicates = [each.predicate for each in bound]
    queries = Queries.of(codes, predicates, look_ups, widths.weights) if predicates else None
    return Task(codes, look_ups, queries, widths, files, bounds)


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
