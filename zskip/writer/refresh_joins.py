"""Compute the attributes of dimensions anew for files whose dimensions have changed since; no data file is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.receipts import JoinsRefreshed
from zskip.core.schema import Schema
from zskip.errors import InvalidOption
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics, collect, hull
from zskip.storage import Storage
from zskip.table_formats.locate import stale_files
from zskip.tablelog.commit import TableUpdate, commit
from zskip.tablelog.index import Index
from zskip.tablelog.runs import may_meet_vacuums
from zskip.tablelog.snapshot import Snapshot
from zskip.writer.append import require_managed
from zskip.writer.options import WriteOptions
from zskip.writer.paths import rows_of_files
from zskip.writer.star import Star, as_recorded


@may_meet_vacuums
def refresh_joins(storage: Storage, base: Snapshot, options: WriteOptions) -> tuple[Snapshot, JoinsRefreshed]:
    """Read the keys of the files whose attributes are not those of the dimensions' newest versions, and commit their
    new ranges. Raises `InvalidOption` for a table without dimensions, and `CommitConflict`."""
    require_managed(storage, base)
    if not base.dimensions:
        raise InvalidOption(f"{storage.uri} was written without joins=, so there are no attributes to refresh.")
    star = as_recorded(base, storage)
    index = Index(storage, base)
    stale = stale_files(index, star.versions)
    if not len(stale):
        return base, JoinsRefreshed(base.version, 0, star.unjoined)
    files = index.data_files().take(stale)
    read = partial(attributes_of_file, storage, base.schema.arrow, base.partition_by, star)
    with ThreadPoolExecutor(options.cores, thread_name_prefix="zskip-joins") as pool:
        renewed = with_attributes(files, star, list(pool.map(read, paths_and_row_counts(files))))
    snapshot = commit(
        storage,
        base,
        TableUpdate("refresh joins", add=renewed, remove=files.path.to_pylist(), details={"files": len(files)}),
    )
    return snapshot, JoinsRefreshed(snapshot.version, len(files), star.unjoined)


def wrong_attributes(index: Index, sample: int | None, seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files whose ranges of attributes leave out a row, as computed anew from its keys; and the dimensions that
    cannot be joined, each with the reason. ``sample``: how many files to read, of those with attributes of the
    dimensions' newest versions; None for all."""
    star = as_recorded(index.snapshot, index.storage)
    numbers = np.setdiff1d(np.arange(len(index)), stale_files(index, star.versions))
    if sample is not None and sample < len(numbers):
        numbers = np.sort(np.random.default_rng(seed).choice(numbers, sample, replace=False))
    files = index.data_files().take(numbers)
    wrong = []
    read = partial(attributes_of_file, index.storage, index.snapshot.schema.arrow, index.snapshot.partition_by, star)
    for number, file in enumerate(paths_and_row_counts(files)):
        units = read(file)
        found = hull(units, np.zeros(len(units), np.int64), 1).columns
        paths = [each.path(name) for each, known in star.versions.items() if known for name in each.attributes.names]
        if any(_leaves_out(files.files.columns[each], number, found[each]) for each in paths):
            wrong.append(file[0])
    return tuple(wrong), star.unjoined


def _leaves_out(recorded: ColumnStatistics, number: int, found: ColumnStatistics) -> bool:
    """Whether the recorded ranges of a file do not hold those that were found."""
    lower, upper, nulls = recorded.lower[number], recorded.upper[number], recorded.null_count[number]
    beyond = [
        pc.less(found.lower[0], lower),
        pc.greater(found.upper[0], upper),
        pc.and_(pc.equal(nulls, 0), pc.greater(found.null_count[0], 0)),
    ]
    return any(each.as_py() for each in beyond)


def paths_and_row_counts(files: DataFiles) -> list[tuple[str, list[int]]]:
    """The path of each file, and the row counts of its row groups."""
    counts = files.row_groups.row_count.to_pylist()
    ends = zip(files.first_row_group[:-1].tolist(), files.first_row_group[1:].tolist(), strict=True)
    return [(path, counts[first:last]) for path, (first, last) in zip(files.path.to_pylist(), ends, strict=True)]


def attributes_of_file(
    storage: Storage, schema: pa.Schema, partition_by: Sequence[str], star: Star, file: tuple[str, list[int]]
) -> FileStatistics:
    """The attributes' statistics of a stored file, one unit per row group. ``schema``: the table's."""
    path, counts = file
    source = star.joined(rows_of_files(storage, schema, partition_by, [path]))
    names = [field.name for field in star.attributes]
    parts = [part() for part in source.parts(names)]
    types = pa.schema(star.attributes)
    rows = pa.concat_tables([part.select(names).cast(types) for part in parts]) if parts else types.empty_table()
    return collect.row_groups(rows.combine_chunks(), np.append(0, np.cumsum(counts)), Schema(types))


def with_attributes(files: DataFiles, star: Star, found: Sequence[FileStatistics]) -> DataFiles:
    """Files with their attributes' statistics, which `attributes_of_file` gives for each, and the versions of these."""
    if not len(files):
        return files
    row_groups = FileStatistics.concat(found)
    owner = np.repeat(np.arange(len(files)), [len(units) for units in found])
    of_files = hull(row_groups, owner, len(files))
    joined = replace(
        files,
        files=_with(files.files, of_files.columns),
        row_groups=_with(files.row_groups, row_groups.columns),
    )
    return star.with_versions(joined)


def _with(units: FileStatistics, columns: Mapping[str, ColumnStatistics]) -> FileStatistics:
    return FileStatistics(units.row_count, {**units.columns, **columns})
