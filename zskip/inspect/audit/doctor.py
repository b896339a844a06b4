"""`doctor`: which statistics the footers of a Parquet folder have, what is missing, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zskip.core import types as t
from zskip.core.schema import Column, Schema
from zskip.core.types import is_orderable
from zskip.errors import (
    CorruptFile,
    DamagedIndex,
    MissingDependency,
    NoParquet,
    SchemaMismatch,
    TableError,
    TableNotFound,
    UnsupportedFormat,
    amount,
)
from zskip.parquet import footers
from zskip.parquet.arrow_differences import holds_clock
from zskip.parquet.trust import Writer, reason_to_distrust, writer
from zskip.stats import ColumnStatistics, DataFiles
from zskip.storage import Storage, open_storage
from zskip.table_formats.locate import source_of, stale_by_dimension
from zskip.tablelog.dimensions import Dimension
from zskip.tablelog.freshness import dropped_files, dropped_text
from zskip.tablelog.index import Index
from zskip.tablelog.log import history, latest_version, load

SMALL_FILE = 1 << 20
THREADS = 16


@dataclass(frozen=True, slots=True)
class ColumnDiagnosis:
    """One column in the files of one writer. Shares are of that writer's rows, from 0 to 1.

    ``bounded``: rows in row groups with trusted lower and upper bounds · ``exact``: rows in row groups whose bounds are
    values of the column · ``null_counts``: rows in row groups with a known null count · ``unread``: rows in files that
    a look-up of one value skips, on average; None if the bounds are not sufficient.
    """

    column: str
    type: str
    physical: str
    writer: str
    row_groups: int
    bounded: float
    exact: float
    null_counts: float
    unread: float | None
    finding: str
    advice: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis of a folder. ``writers``: files of each writer · ``unreadable``: an error for each such file."""

    uri: str
    files: int
    rows: int
    bytes: int
    row_groups: int
    writers: Mapping[str, int]
    columns: tuple[ColumnDiagnosis, ...]
    unreadable: Mapping[str, str]
    advice: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Footer:
    """The facts of a footer on which the diagnosis depends. Files with equal facts are diagnosed together."""

    origin: Writer
    created_by: str
    physical: tuple[tuple[str, str], ...]


def doctor(path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> Diagnosis:
    """Report which bounds the footers below a path have, which of them can be trusted, and what that costs.

    Reads only footers, changes nothing, and needs no index. In a zskip, Delta or Iceberg table, only the files of the
    newest version are read. A file that cannot be read is part of the report. Raises `NoParquet`.
    """
    storage = open_storage(path, storage_options)
    everything = storage.list()
    paths = everything.visible().parquet().path.to_pylist()
    named, doubt = named_files(path, storage, storage_options)
    doubt = (*doubt, *advice_on_instants(storage))
    others = 0 if named is None else len(set(paths) - named)
    dropped, managed = 0, False
    stale: Mapping[Dimension, int | None] = {}
    if latest_version(storage) and (managed := (snapshot := load(storage)).managed):
        dropped = len(dropped_files(storage, snapshot))
        stale = stale_by_dimension(Index(storage, snapshot))
    if named is not None:  # a table that `cluster` made has its files in the hidden folder _data
        paths = [name for name in everything.path.to_pylist() if name in named]
    if not paths:
        raise NoParquet(f"There is no Parquet file below {storage.uri}.")
    with ThreadPoolExecutor(THREADS) as pool:
        read = list(pool.map(lambda name: footer(storage, name), paths))
    groups: dict[Footer, list[str]] = {}
    unreadable: dict[str, str] = {}
    for name, found in zip(paths, read, strict=True):
        if isinstance(found, Footer):
            groups.setdefault(found, []).append(name)
        else:
            unreadable[name] = found
    groups = {found: list(readable(storage, names, unreadable)) for found, names in groups.items()}
    judged = [(found, *footers.read(storage, names)) for found, names in groups.items() if names]
    files = [data for _, _, data in judged]
    columns = tuple(
        diagnosis
        for found, schema, data in judged
        for diagnosis in diagnoses(found, tuple(schema.columns.values()), data, managed)
    )
    writers: dict[str, int] = {}
    for found, names in groups.items():
        writers[found.created_by] = writers.get(found.created_by, 0) + len(names)
    sizes = np.concatenate([np.asarray(data.size) for data in files]) if files else np.zeros(0, np.int64)
    rows = sum(int(pc.sum(data.files.row_count).as_py() or 0) for data in files)
    row_groups = sum(int(data.first_row_group[-1]) for data in files)
    return Diagnosis(
        storage.uri,
        len(sizes),
        rows,
        int(sizes.sum()),
        row_groups,
        writers,
        columns,
        unreadable,
        (
            *doubt,
            *advice_on_others(others - dropped),
            *advice_on_dropped(dropped),
            *advice_on_dimensions(stale),
            *advice_on_files(sizes, rows, row_groups, unreadable),
        ),
    )


def readable(storage: Storage, names: Sequence[str], unreadable: dict[str, str]) -> Iterator[str]:
    """The files whose footers can be read and have one schema. Adds the others to ``unreadable``, with the error."""
    try:
        footers.read(storage, names)
    except CorruptFile as error:
        if len(names) == 1:
            unreadable[names[0]] = str(error)
        else:
            half = len(names) // 2
            yield from readable(storage, names[:half], unreadable)
            yield from readable(storage, names[half:], unreadable)
    except SchemaMismatch as error:
        if len(names) == 1:
            unreadable[names[0]] = str(error)
            return
        half = len(names) // 2
        one, other = (list(readable(storage, part, unreadable)) for part in (names[:half], names[half:]))
        yield from one
        try:
            footers.read(storage, [*one, *other])
        except SchemaMismatch as mismatch:
            unreadable |= dict.fromkeys(other, f"{mismatch} So it cannot be indexed together with {one[0]}.")
        else:
            yield from other
    else:
        yield from names


def named_files(
    path: str | os.PathLike[str], storage: Storage, options: Mapping[str, Any] | None
) -> tuple[set[str] | None, tuple[str, ...]]:
    """The files of the newest version, None without a log that names them; and advice on a log that is not read."""
    try:
        index = Index(storage, load(storage))
        if index.snapshot.managed:
            return set(index.paths(np.arange(len(index), dtype=np.int64)).to_pylist()), ()
        if index.source is None:
            return None, ()
    except TableNotFound:
        pass
    except (DamagedIndex, UnsupportedFormat) as error:
        return None, (f"The index cannot be read, so all files of the folder were looked at. {error}",)
    try:
        source = source_of(path, storage_options=options)
        return None if source is None else set(source.read().files.path.to_pylist()), ()
    except (TableError, MissingDependency) as error:
        return None, (f"The table's log cannot be read, so all files of the folder were looked at. {error}",)


def advice_on_instants(storage: Storage) -> Iterator[str]:
    """Columns of a folder laid out in place that were INT96, which is an instant, and now are clocks without a zone.

    Earlier versions of zskip rewrote them so. The old files tell, until a vacuum removes them; after them their
    statistics, which lack bounds, as those of INT96 always do.
    """
    try:
        newest = load(storage)
        if not newest.managed or not holds_clock(newest.schema.arrow):
            return
        before = next((each for each in history(storage) if not each.managed), None)
        if before is None:
            return
        index = Index(storage, before)
        numbers = np.arange(len(index), dtype=np.int64)
        listed = storage.size_and_modified(index.paths(numbers).to_pylist())
        left = np.flatnonzero(np.asarray(pc.is_valid(listed.size)))
        arrow = before.schema.arrow
        int96 = footers.with_instants_of_files(storage, listed.take(left), arrow) if len(left) else arrow
        clocks = [c for c in before.schema if is_clock(c.type) and is_clock(newest.schema.columns.get(c.path, c).type)]
        known = index.file_statistics(numbers, [column.path for column in clocks]).columns
    except TableError:  # there is no zskip table, or it is named as damaged elsewhere
        return
    for column in clocks:
        if column.type != Schema(int96).columns[column.path].type:
            what = "were INT96, which is an instant"
        elif len(left) < len(numbers) and not pc.any(pc.is_valid(known[column.path].lower)).as_py():
            what = "may have been INT96, which is an instant: they had no bounds, and the files are gone"
        else:
            continue
        replaced = f"{column.path} AT TIME ZONE 'UTC' AS {column.path}"
        yield (
            f'The values of "{column.path}" {what}, and the folder was laid out with clocks without a zone. They are '
            "the clocks of UTC, and Spark takes them for those of its session's zone. Replace them, for example by "
            f'table.overwrite(duckdb.sql("SELECT * REPLACE ({replaced}) FROM …")).'
        )


def is_clock(type: pa.DataType) -> bool:
    return t.is_timestamp(type) and type.tz is None


def advice_on_others(others: int) -> Iterator[str]:
    if others:
        yield (
            f"{others:,} more files are not part of the table's newest version: they belong to older versions, which "
            "`zskip vacuum`, or that of Delta or Iceberg, removes in time, or to other writers."
        )


def advice_on_dropped(dropped: int) -> Iterator[str]:
    if dropped:
        yield f"{dropped_text(dropped)}."


def advice_on_dimensions(stale: Mapping[Dimension, int | None]) -> Iterator[str]:
    """``stale``: of how many files the attributes of a dimension are of other versions, None if it cannot be read."""
    for dimension, files in stale.items():
        if files is None and dimension.uri:
            yield (
                f"The dimension {dimension.name}, {dimension.uri}, cannot be read: new files get no attributes of "
                "it, and they skip no file."
            )
        elif files:
            yield (
                f"The dimension {dimension.name} has changed since its attributes were computed for {files:,} of the "
                "files: table.refresh_joins() computes them anew. If it names a reason why the dimension cannot be "
                "joined any more, mend the dimension, or write the facts again with other joins=."
            )


def footer(storage: Storage, name: str) -> Footer | str:
    """The facts of a file's footer, or the error that prevents reading it."""
    try:
        with storage.filesystem().open(storage.uri_of(name), "rb") as file:
            metadata = pq.read_metadata(file)
    except (pa.ArrowInvalid, OSError) as error:
        return str(error).splitlines()[0]
    leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    return Footer(
        writer(metadata.created_by, metadata.metadata),
        metadata.created_by or "(unnamed)",
        tuple((leaf.path, leaf.physical_type) for leaf in leaves),
    )


def diagnoses(found: Footer, columns: Sequence[Column], data: DataFiles, managed: bool) -> Iterator[ColumnDiagnosis]:
    """One diagnosis per column of the files of one writer. ``managed``: as in `judge`."""
    rows = np.asarray(pc.fill_null(data.row_groups.row_count, 0), dtype=np.float64)
    total = max(rows.sum(), 1.0)
    physical = dict(found.physical)
    for column in columns:
        known = data.row_groups.columns.get(column.path) or ColumnStatistics.unknown(column.type, len(rows))
        kind = physical.get(".".join(column.parts), "nested")

        def covered(holds: pa.BooleanArray) -> float:
            return float(rows[np.asarray(pc.fill_null(holds, False))].sum() / total)

        # A row group in which all values are NULL needs no bounds.
        empty = pc.fill_null(pc.equal(known.null_count, data.row_groups.row_count), False)
        both = pc.or_(pc.and_(pc.is_valid(known.lower), pc.is_valid(known.upper)), empty)
        exact = pc.or_(pc.and_kleene(known.lower_exact, known.upper_exact), empty)
        finding, advice = judge(found.origin, column, kind, known, covered(both), managed)
        yield ColumnDiagnosis(
            column.path,
            str(column.type),
            kind,
            found.created_by,
            len(rows),
            covered(both),
            covered(pc.and_kleene(both, exact)),
            covered(pc.is_valid(known.null_count)),
            unread_share(data, column.path) if is_orderable(column.type) else None,
            finding,
            advice,
        )


DEEP = "`zskip index --deep` reads the column once and keeps true bounds"
_BY_INDEX = "none is needed here: the table's index has bounds of its own"


def judge(
    origin: Writer, column: Column, physical: str, known: ColumnStatistics, bounded: float, managed: bool
) -> tuple[str, str]:
    """A finding about a column's bounds and the advice; two empty texts if the bounds are good.

    ``managed``: the files are those of a zskip table, which has read the values.
    """
    if not column.orderable:
        return f"{column.type} has no order", "filter on a column beside it, or on a field inside it"
    reason = reason_to_distrust(origin, column.path, column.type, physical)
    advice = _BY_INDEX if managed else DEEP
    if reason is not None and physical == "INT96":
        other_writer = "have the writer use TIMESTAMP_MICROS (spark.sql.parquet.outputTimestampType), or: "
        return reason, advice if managed else other_writer + advice
    if reason is not None:
        return f"bounds not trusted: {reason}", advice
    if bounded < 1:
        missing = "no usable bounds" if bounded == 0 else f"no usable bounds for {1 - bounded:.0%} of the rows"
        return missing, advice
    if pc.any(pc.is_null(known.null_count)).as_py():
        return "null counts are missing: IS NULL skips nothing", advice
    if t.is_floating(column.type) and pc.any(pc.is_null(known.nan_count)).as_py():
        return "NaN may hide above the upper bound: x > … skips nothing", advice
    return "", ""


def unread_share(data: DataFiles, path: str) -> float | None:
    """The share of rows in files whose bounds exclude a value, averaged over all bounds taken as values."""
    known = data.files.columns.get(path)
    if known is None:
        return None
    rows = np.asarray(pc.fill_null(data.files.row_count, 0), dtype=np.float64)
    usable = np.asarray(pc.and_(pc.is_valid(known.lower), pc.is_valid(known.upper)))
    if not usable.any() or rows.sum() == 0:
        return None
    chosen = pa.array(usable)
    bounds = pa.chunked_array([known.lower.filter(chosen), known.upper.filter(chosen)])
    ranks = np.asarray(pc.rank(bounds, tiebreaker="dense")).astype(np.int64)
    lower, upper = np.split(ranks, 2)
    weights = rows[usable]
    # The rows of files that begin at or before a value, minus those of files that end before it.
    begun = cumulated(lower, weights, ranks, "right")
    ended = cumulated(upper, weights, ranks, "left")
    # A file without bounds is read for every value.
    read = begun - ended + rows[~usable].sum()
    return float(1 - read.mean() / rows.sum())


def cumulated(edges: np.ndarray, weights: np.ndarray, values: np.ndarray, side: Any) -> np.ndarray:
    """The weight of all edges up to each value. ``side``: whether an edge equal to it counts (right) or not (left)."""
    order = np.argsort(edges, kind="stable")
    sums: np.ndarray = np.concatenate([[0.0], np.cumsum(weights[order])])
    return sums[np.searchsorted(edges[order], values, side=side)]


def advice_on_files(sizes: np.ndarray, rows: int, row_groups: int, unreadable: Mapping[str, str]) -> Iterator[str]:
    """Advice on the number and size of the files."""
    if unreadable:
        them = "it" if len(unreadable) == 1 else "them"
        found = amount(len(unreadable), "file")
        yield f"{found} cannot be read as Parquet: move {them} away, or every scan of the folder fails."
    small = int((sizes < SMALL_FILE).sum())
    if len(sizes) >= 8 and small > len(sizes) / 2:
        yield (
            f"{small:,} of {len(sizes):,} files are smaller than 1 MiB: opening them costs more than reading them. "
            "`zskip write` with --file-size merges them."
        )
    if row_groups and rows / row_groups < 10_000 and rows > 100_000:
        yield f"A row group holds {rows // row_groups:,} rows on average: 10,000 to 1,000,000 is usual."
    if row_groups == 1 and rows > 2_000_000:
        yield "All rows lie in one row group: nothing inside the file can be skipped."
