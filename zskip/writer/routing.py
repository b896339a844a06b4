"""`Routing`: the file of each row, by its partition and by the layout's assignment within the partition."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from zskip import layouts
from zskip.core.offsets import offsets_of
from zskip.core.schema import Schema
from zskip.errors import InvalidOption, nearest
from zskip.layouts import Assignment
from zskip.storage import hive
from zskip.writer.look_ups import LookUps, ReadLookUps
from zskip.writer.options import WriteOptions

_LOG = logging.getLogger("zskip")
# More partitions than this, each of fewer rows than that, are worth a warning.
_MANY_PARTITIONS, _FEW_ROWS = 200, 1_000
# Partitions of one file with at most so many rows share one assignment: it only orders the rows of a row group.
_ONE_ROW_GROUP = 4_096


@dataclass(frozen=True)
class Routing:
    """One assignment per partition. A table without partitions has one assignment, with an empty key.

    ``keys``: for each partition, in the order of the files, the texts of its values · ``folder_names``: as in
    `WriteOptions`.
    """

    partition_by: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    assignments: tuple[Assignment, ...]
    folder_names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def first_file(self) -> np.ndarray:
        """The number of each partition's first file, and at the end the number of all files."""
        return offsets_of([assignment.files for assignment in self.assignments])

    @property
    def files(self) -> int:
        return int(self.first_file[-1])

    def route(self, rows: pa.Table) -> np.ndarray:
        """The file number of each row. The routing must contain every partition of the rows."""
        first = self.first_file
        if not self.partition_by:
            (assignment,) = self.assignments
            if assignment.files == 1:
                return np.zeros(rows.num_rows, np.int64)
            return np.asarray(assignment.assign(_columns_read(assignment, rows)), np.int64)
        keys, numbers = partition_numbers(rows, self.partition_by)
        partition_of_key = {key: number for number, key in enumerate(self.keys)}
        partitions = np.array([partition_of_key[key] for key in keys], np.int64)
        routed = first[partitions[numbers]]
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[order], np.arange(len(keys) + 1))
        for partition, (start, end) in zip(partitions.tolist(), pairwise(ends.tolist()), strict=True):
            assignment = self.assignments[partition]
            if assignment.files == 1:
                continue
            chosen = order[start:end]
            routed[chosen] = (
                assignment.assign(_columns_read(assignment, rows).take(pa.array(chosen))) + first[partition]
            )
        return np.asarray(routed)

    def partition_of(self, file: int) -> int:
        """The number of the partition of a file."""
        return int(np.searchsorted(self.first_file, file, "right")) - 1

    def folder_of(self, file: int) -> str:
        """The hive folder of a file; "" for a table without partitions."""
        if not self.partition_by:
            return ""
        folder = hive.folder(self.partition_by, self.keys[self.partition_of(file)])
        return "/".join(self.folder_names.get(name, name) for name in folder.split("/"))

    def assignment_of(self, file: int) -> Assignment:
        return self.assignments[self.partition_of(file)]


def fitted(
    sample: pa.Table,
    by: Sequence[str],
    counts: Mapping[tuple[str, ...], int],
    files: int,
    options: WriteOptions,
    look_ups: ReadLookUps | None = None,
) -> Routing:
    """Fit a layout to each partition's part of a sample.

    ``counts``: the rows of each partition · ``files``: of all · ``look_ups``: reads those of the table that the rows
    join, if these are too many for one row group
    """
    keys, numbers = partition_numbers(sample, options.partition_by)
    number_of = {key: number for number, key in enumerate(keys)}
    weights = weights_of(options.weights, options.by)
    total = sum(counts.values())
    if len(counts) > max(_MANY_PARTITIONS, files) and total < _FEW_ROWS * len(counts):
        _LOG.warning(
            "partition_by=%s makes %d folders of %d rows on average. Name columns of few values there; by= clusters "
            "columns of many values.",
            list(options.partition_by),
            len(counts),
            total // len(counts),
        )
    assignments: list[Assignment] = []
    shared: Assignment | None = None
    joined: LookUps | None = None
    for key in sorted(counts):
        in_partition = max(1, round(files * counts[key] / max(total, 1)))
        small = in_partition == 1 and counts[key] <= _ONE_ROW_GROUP
        if small and shared is not None:
            assignments.append(shared)
            continue
        # A partition without sampled rows is so small that any layout suits it.
        rows = sample
        if options.partition_by and not small:
            rows = sample.take(pa.array(np.flatnonzero(numbers == number_of.get(key, -1))))
        # The weights change nothing in a single row group, unless it is sorted by the columns that have some.
        matter = not small or options.layout == "linear" or counts[key] > options.group_rows(counts[key])
        if look_ups is not None and options.workload is None and matter:
            joined = joined or look_ups()
            weights = weights if joined is None else weights_of(joined.weights_of(rows, counts[key]), by)
        assignments.append(
            layouts.fit(
                rows,
                by,
                layout=options.layout,
                files=in_partition,
                weights=weights,
                workload=options.workload,
                total_rows=max(counts[key], rows.num_rows) if small else counts[key],
            )
        )
        if small:
            shared = assignments[-1]
    return Routing(tuple(options.partition_by), tuple(sorted(counts)), tuple(assignments), options.folder_names)


def weights_of(weights: Mapping[str, float] | Sequence[float] | None, by: Sequence[str]) -> list[float] | None:
    """The weights in the order of ``by``; 0 for a column that a mapping omits. Raises `InvalidOption`."""
    if weights is None:
        return None
    if not isinstance(weights, Mapping):
        return [float(weight) for weight in weights]
    unknown = [name for name in weights if name not in by]
    if unknown:
        raise InvalidOption(f'weights= names the column "{unknown[0]}", which by= does not.{nearest(unknown[0], by)}')
    return [float(weights.get(name, 0)) for name in by]


def _columns_read(assignment: Assignment, rows: pa.Table) -> pa.Table:
    """The columns that an assignment reads: all of them if it spreads a cell by a hash of the row."""
    if (assignment.cells.salt > 1).any():
        return rows
    return rows.select(top_level(assignment.columns, Schema(rows.schema)))


def partition_numbers(rows: pa.Table, partition_by: Sequence[str]) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """The distinct partitions of some rows, as sorted tuples of strings, and the number of each row's partition."""
    if not partition_by or not rows.num_rows:
        return ([()] if rows.num_rows else []), np.zeros(rows.num_rows, np.int64)
    texts, codes = [], np.zeros(rows.num_rows, np.int64)
    for name in partition_by:
        encoded = hive.partition_texts(rows.column(name), name).combine_chunks().dictionary_encode()
        texts.append(encoded.dictionary.to_pylist())
        codes = codes * len(texts[-1]) + encoded.indices.to_numpy()
    distinct, numbers = np.unique(codes, return_inverse=True)
    keys = []
    for code in distinct.tolist():
        key = []
        for values in reversed(texts):
            code, index = divmod(code, len(values))
            key.append(values[index])
        keys.append(tuple(reversed(key)))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.arange(len(keys))
    return [keys[index] for index in order], rank[numbers]


def fitted_columns(schema: Schema, options: WriteOptions) -> list[str]:
    """The top-level columns that a fit reads."""
    paths = [column.path for column in schema.orderable(options.by)]
    if options.workload:
        return list(schema.arrow.names)  # its queries may read any of them
    return list(dict.fromkeys([*top_level(paths, schema), *options.partition_by]))


def top_level(paths: Sequence[str], schema: Schema) -> list[str]:
    """The distinct top-level columns that contain these leaves."""
    return list(dict.fromkeys(schema.columns[path].parts[0] for path in paths))
