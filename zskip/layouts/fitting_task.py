"""`Task`: a layout is fitted to its sample and cost function, and scored by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.binder import bind
from zskip.binder.workload_sql import TableQuery, table_query
from zskip.core.schema import Schema
from zskip.errors import InvalidOption
from zskip.language import Predicate
from zskip.layouts.column_widths import Widths
from zskip.layouts.cuts import Bounds
from zskip.layouts.reads import LookUps, Reads
from zskip.layouts.sample import Sample
from zskip.layouts.workload import Queries

__all__ = ["BoundQuery", "Task", "bound_queries", "random_subset", "task_of"]

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
