"""`write_files`: write rows as data files. Sample, fit, scatter to buckets, gather, arrange, encode.

    source ──parts──▶ sample ──▶ layouts.fit ──▶ routing
       └────parts──▶ file of each row ──▶ buckets (memory or spill files) ──▶ order ──▶ Parquet and statistics

One thread per core processes parts and buckets; Arrow and numpy release Python's lock.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import layouts
from zskip.offsets import offsets_of
from zskip.schema import Schema
from zskip.sketches import SketchBuilder, keys_of, named_sketches
from zskip.stats import DataFiles, FileStatistics, collect
from zskip.storage import Storage, abandon
from zskip.tablelog import SketchRecord
from zskip.tablelog.parts import Drafts
from zskip.tablelog.segments import new_ids, published
from zskip.writer.compact_rows import NarrowForms
from zskip.writer.encode import even_cuts, fitted_encoding, stored_bytes, write_file
from zskip.writer.file_groups import FileGroups, least_rows, slot_label, slots_per_file
from zskip.writer.options import ROW_GROUP_ROWS, WriteOptions
from zskip.writer.routing import Routing, fitted, fitted_columns, partition_numbers, top_level
from zskip.writer.row_sample import LARGEST, RowSample, sample_size
from zskip.writer.row_source import Part, RowSource
from zskip.writer.scatter import FILE, MemoryBuckets, SpilledBuckets, in_parallel, split
from zskip.writer.spool import SpillFolders, free_memory, repeatable
from zskip.writer.storable import storable_rows
from zskip.writer.transit_types import transit_schema, trimmed

__all__ = ["Written", "write_files"]

_MOST_BUCKETS = 256
# Shares of the memory limit: rows kept in memory, parts on their way to the buckets, the rows of a bucket that is
# being written.
_RESIDENT_SHARE, _PARTS_SHARE, _BUCKET_SHARE = 0.4, 0.5, 0.125
_SKETCH_SHARE = 0.125
# The memory to sort and encode a file's rows, as a multiple of their size, beside their bucket.
_ORDERED = 1.25
# A column's dictionary of strings may take this fraction of the limit: 1/64.
_TEXTS_SHARE = 64


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write: the routing that it followed, the files in layout order, the number of rows.

    ``rows_per_file``: the rows of a full file · ``sketches``: the segments of the files.
    """

    routing: Routing
    files: DataFiles
    rows: int
    rows_per_file: int
    sketches: tuple[SketchRecord, ...] = ()


def write_files(
    source: RowSource,
    storage: Storage,
    schema: Schema,
    options: WriteOptions,
    routing: Routing | None = None,
    rows_per_file: int | None = None,
    *,
    slots: Sequence[tuple[int, int]] | None = None,
) -> Written:
    """Write the rows of a source as new data files, by ``routing``, or by one that is fitted to them.

    A file is named after its number in the routing, or after the entry of ``slots`` for that number: the first and the
    last slot of the table's layout whose rows it holds. Columns that the source lacks are NULL. With a routing, a file
    that would get more than twice ``rows_per_file`` is cut, and without ``slots`` neighbouring files of few rows are
    merged (`file_groups`). The files belong to the table only after a commit. After an error or an interrupt, the
    files written so far are removed.
    """
    with ExitStack() as cleanup:
        folders = cleanup.enter_context(SpillFolders(options.temp_directory))
        cores = options.threads or available_cores()
        pool = ThreadPoolExecutor(cores, thread_name_prefix="zskip-write")
        cleanup.callback(pool.shutdown, wait=True, cancel_futures=True)
        limit = int(options.memory_limit or free_memory() // 2)
        names = named_sketches(options.sketches, schema)
        builder = SketchBuilder(names, int(limit * _SKETCH_SHARE), folders.make) if names else None
        write = _Write(storage, schema, options, folders, pool, cores, limit, slots, builder)
        try:
            return write.run(source, routing, rows_per_file)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            abandon(storage, write.begun)
            write.drafts.discard()
            raise


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _RowProfile:
    """Estimates for all rows from their first part.

    ``in_memory``, ``stored``: bytes of a row in memory and in a file · ``part_bytes``: of a part in memory ·
    ``transit``: the schema with transit types.
    """

    in_memory: float
    stored: float
    part_bytes: int
    transit: pa.Schema


@dataclass(frozen=True, slots=True)
class _File:
    """A written file. ``units``: the statistics of its row groups."""

    path: str
    units: FileStatistics


@dataclass(frozen=True, slots=True)
class _FilePlan:
    """Which rows share a file. ``counts``: rows of each slot · ``least``: the least rows of a file of several slots ·
    ``most_rows``: the most rows of any file."""

    routing: Routing
    groups: FileGroups
    counts: np.ndarray
    least: int
    most_rows: int

    def pieces(self, first: int, rows: int) -> int:
        """The number of files for the rows of the group that begins at a slot."""
        count = 1 if rows <= self.most_rows else -(-2 * rows // self.most_rows)
        filled = int(np.count_nonzero(self.counts[first : int(self.groups.last[first]) + 1]))
        return max(count, min(filled, rows // self.least))


@dataclass(slots=True)
class _Write:
    """A write in progress, shared by its threads. ``begun``: the files to remove if it fails."""

    storage: Storage
    schema: Schema
    options: WriteOptions
    folders: SpillFolders
    pool: ThreadPoolExecutor
    cores: int
    limit: int
    slots: Sequence[tuple[int, int]] | None
    sketches: SketchBuilder | None
    begun: list[str] = field(default_factory=list)
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    drafts: Drafts = field(init=False)
    group_rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.group_rows = self.options.row_group_rows or ROW_GROUP_ROWS
        self.drafts = Drafts(self.storage)

    def run(self, source: RowSource, routing: Routing | None, rows_per_file: int | None) -> Written:
        most, least = int(self.limit * _RESIDENT_SHARE), 1
        source = repeatable(source, most, self.folders, lambda rows: self.options.reported("read", rows, None))
        profile = self._profile(source)
        if routing is None:
            routing, rows = self._fitted(source, profile)
            self.group_rows = self.options.group_rows(rows)
            rows_per_file = max(1, -(-rows // max(routing.files, 1)))
        else:
            routing, rows = self._extended(source, routing)
            least = least_rows(rows_per_file) if rows_per_file else 1
        # A group of slots must lie in one bucket. How many slots get rows is unknown yet: groups are widest if all do.
        alone = self.slots is not None
        widest = FileGroups.of(routing, 1 if alone else slots_per_file(rows, routing.files, least))
        buckets, bucket_of = self._buckets(widest, int(rows * profile.in_memory))
        narrow = NarrowForms(profile.transit, self.limit // _TEXTS_SHARE)
        counts = self._scatter(source, routing, profile, buckets, bucket_of, narrow, rows)
        filled = int(np.count_nonzero(counts))
        groups = widest if alone else FileGroups.of(routing, slots_per_file(rows, routing.files, least, filled))
        shape = _FilePlan(routing, groups, counts, least, 2 * rows_per_file if rows_per_file else rows + 1)
        files = self._gather(shape, buckets, profile, narrow, rows)
        data_files = self._data_files(files)
        segments: tuple[SketchRecord, ...] = ()
        if self.sketches is not None:
            data_files = replace(data_files, id=new_ids(len(data_files)))
            ids = dict(zip(data_files.path.to_pylist(), data_files.id.to_pylist(), strict=True))
            segments = published(self.drafts, self.sketches, ids, self.cores)
        return Written(routing, data_files, rows, rows_per_file or max(rows, 1), segments)

    def _profile(self, source: RowSource) -> _RowProfile:
        for part in source.parts(None):
            given = part()
            if given.num_rows:
                carried = transit_schema(given, self.schema.arrow, self.options.partition_by)
                rows = storable_rows(given, carried)
                head = rows.slice(0, 1 << 16)
                encoding = fitted_encoding(head, self.options.compression)
                stored = stored_bytes(head, encoding) / head.num_rows if self.options.sized_by_bytes else 0.0
                return _RowProfile(rows.nbytes / rows.num_rows, stored, rows.nbytes, carried)
        return _RowProfile(0.0, 0.0, 0, self.schema.arrow)

    # --- sample and fit ---

    def _fitted(self, source: RowSource, profile: _RowProfile) -> tuple[Routing, int]:
        options = self.options
        by = [column.path for column in self.schema.orderable(options.by)]
        columns = fitted_columns(self.schema, options)
        unknown = options.files is None and source.row_count is None
        known = options.file_count(source.row_count or options.files or 0, profile.stored)
        size = LARGEST if unknown else sample_size(known)
        sample = RowSample(size, options.seed, source.row_count)
        rows = 0
        counts: dict[tuple[str, ...], int] = {}

        def load(part: Part) -> tuple[pa.Table, list[tuple[str, ...]], np.ndarray]:
            table = part().select(columns)
            keys, numbers = partition_numbers(table, options.partition_by)
            return table, keys, np.bincount(numbers, minlength=len(keys))

        for table, keys, tally in in_parallel(self.pool, load, source.parts(columns), self.cores + 1):
            sample.add(table, rows)
            rows += table.num_rows
            for key, count in zip(keys, tally.tolist(), strict=True):
                counts[key] = counts.get(key, 0) + count
            options.reported("sample", rows, source.row_count)
        sampled = sample.rows()
        if sampled is None:
            sampled = pa.schema([self.schema.arrow.field(name) for name in columns]).empty_table()
            counts = {} if options.partition_by else {(): 0}
        wanted = options.file_count(rows, profile.stored)
        return fitted(sampled, by, counts, wanted, options), rows

    def _extended(self, source: RowSource, routing: Routing) -> tuple[Routing, int]:
        """The routing with the new partitions of these rows added, and the number of rows."""
        if not routing.partition_by and source.row_count is not None:
            return routing, source.row_count
        columns = list(routing.partition_by)
        rows = 0
        keys: dict[tuple[str, ...], None] = {}
        for part in source.parts(columns or None):
            table = part()
            rows += table.num_rows
            keys.update(dict.fromkeys(partition_numbers(table, columns)[0]))
        return routing.extended(sorted(keys), self._one_file(routing)), rows

    def _one_file(self, routing: Routing) -> layouts.Assignment:
        """An assignment of a single file, for new partitions."""
        like = routing.assignments[0] if routing.assignments else None
        by = list(like.columns) if like else [column.path for column in self.schema.orderable(self.options.by)]
        empty = self.schema.arrow.empty_table()
        return layouts.fit(empty, by, layout=like.layout if like else self.options.layout, files=1, total_rows=0)

    # --- scatter ---

    def _buckets(self, groups: FileGroups, size: int) -> tuple[MemoryBuckets | SpilledBuckets, np.ndarray]:
        """Empty buckets, and the bucket of each file. A group of slots lies in one bucket."""
        in_memory = size <= self.limit * _RESIDENT_SHARE
        wanted = _MOST_BUCKETS if in_memory else max(1, -(-size * self.cores // int(self.limit * _BUCKET_SHARE * 2)))
        numbers = groups.numbers
        several = int(numbers.max(initial=0)) + 1
        count = max(1, min(several, wanted, _MOST_BUCKETS))
        bucket_of = numbers * count // several
        if in_memory:
            return MemoryBuckets(count), bucket_of
        return SpilledBuckets(count, self.folders.make()), bucket_of

    def _scatter(
        self,
        source: RowSource,
        routing: Routing,
        profile: _RowProfile,
        buckets: MemoryBuckets | SpilledBuckets,
        bucket_of: np.ndarray,
        narrow: NarrowForms,
        total: int,
    ) -> np.ndarray:
        """Send the rows to the buckets. Returns the number of rows of each file."""

        def scattered(part: Part) -> tuple[list[tuple[int, pa.Table]], np.ndarray]:
            rows = storable_rows(part(), profile.transit)
            if not rows.num_rows:
                return [], np.zeros(0, np.int64)
            files = routing.route(rows)
            return split(narrow.narrowed(rows), files, bucket_of, buckets.takes), np.bincount(files)

        done = 0
        counts = np.zeros(routing.files, np.int64)
        # A part takes up to three times its size: as read, in transit types, and sorted by file.
        window = int(self.limit * _PARTS_SHARE) // max(3 * profile.part_bytes, 1)
        window = min(max(window, 1), self.cores + 1)
        for pieces, counted in in_parallel(self.pool, scattered, source.parts(None), window):
            counts[: len(counted)] += counted
            for bucket, rows in pieces:
                buckets.add(bucket, rows)
                done += rows.num_rows
            self.options.reported("scatter", done, total)
        buckets.finish()
        # Return the memory of reading to the system before files are written.
        pa.default_memory_pool().release_unused()
        return counts

    # --- gather ---

    def _gather(
        self,
        shape: _FilePlan,
        buckets: MemoryBuckets | SpilledBuckets,
        profile: _RowProfile,
        narrow: NarrowForms,
        total: int,
    ) -> list[_File]:
        memory = _Memory(int(self.limit * (1 - _BUCKET_SHARE)))

        def made(bucket: int) -> list[_File]:
            # A bucket takes up to twice its size: in its narrow form, and in transit types and sorted.
            ordered = _ORDERED * profile.in_memory * buckets.rows(bucket)
            with memory.reserved(int(buckets.bytes(bucket) + ordered)):
                return list(self._files_of(buckets.take(bucket), shape, narrow, profile.transit))

        filled = [bucket for bucket in range(len(buckets)) if buckets.rows(bucket)]
        files: list[_File] = []
        done = 0
        for made_here in in_parallel(self.pool, made, filled, 2 * self.cores):
            files.extend(made_here)
            done += sum(pc.sum(file.units.row_count).as_py() for file in made_here)
            pa.default_memory_pool().release_unused()
            self.options.reported("write", done, total)
        return files

    def _files_of(
        self, bucket: list[pa.RecordBatch], shape: _FilePlan, narrow: NarrowForms, schema: pa.Schema
    ) -> Iterator[_File]:
        """Write the files of one bucket. ``schema``: of the rows, with transit types.

        Each column is freed as soon as the last file has taken its rows.
        """
        waiting = _by_file(bucket, shape.groups.first)
        del bucket
        while waiting:
            file, runs = waiting.pop(0)
            columns = {
                name: narrow.together(name, [run.column(number) for run in runs])
                for number, name in enumerate(schema.names)
            }
            rows = sum(run.num_rows for run in runs)
            del runs
            assignment = shape.routing.assignment_of(file)
            count = shape.pieces(file, rows)
            piece_rows = -(-rows // count)
            length = int(even_cuts(piece_rows, self.group_rows)[1])
            by = top_level(assignment.columns, self.schema)
            for name in columns if count > 1 else by:  # once, where it is needed more than once
                columns[name] = _joined(columns[name])
            keys = pa.table({name: narrow.widened(name, columns[name]) for name in by})
            arranged = assignment.arrange(keys, length)
            del keys
            named = f"{slot_label(file, int(shape.groups.last[file]))}-{self.id}"
            if self.slots is not None:
                # The file of a partition that is new to the routing comes after all others.
                named = f"{slot_label(*self.slots[min(file, len(self.slots) - 1)])}-{self.id}-{file}"
            pieces = np.split(arranged, range(piece_rows, len(arranged), piece_rows))
            for piece, numbered in enumerate(pieces):
                name = f"part-{named}-{piece}" if count > 1 else f"part-{named}"
                path = self.options.data_path(shape.routing.folder_of(file), name)
                taken = _taken(columns, narrow, schema, numbered, last=piece == len(pieces) - 1)
                yield self._written(path, trimmed(taken), assignment)

    def _written(self, path: str, rows: pa.Table, assignment: layouts.Assignment) -> _File:
        cuts = even_cuts(rows.num_rows, self.group_rows)
        units = collect.row_groups(rows, cuts, self.schema)
        stored = rows.drop_columns(list(self.options.partition_by)) if self.options.partition_by else rows
        self.begun.append(path)
        encoding = fitted_encoding(stored, self.options.compression)
        kept = pa.schema([self.schema.arrow.field(name) for name in stored.column_names])
        with self.storage.open_writer(path) as target:
            write_file(target, stored, kept, cuts, units, encoding, top_level(assignment.columns, self.schema))
        if self.sketches is not None:
            self.sketches.add(path, [keys_of(name, self.schema, rows) for name in self.sketches.names])
        return _File(path, units)

    def _data_files(self, files: Sequence[_File]) -> DataFiles:
        paths = [file.path for file in files]
        listed = self.storage.size_and_modified(paths)
        place = pc.index_in(pa.array(paths, pa.string()), listed.path)
        groups = [file.units for file in files]
        nothing = FileStatistics(pa.array([], pa.int64()), {})
        return DataFiles(
            pa.array(paths, pa.string()),
            listed.size.take(place),
            listed.modified.take(place),
            listed.etag.take(place),
            FileStatistics.concat([collect.merged(units) for units in groups]) if groups else nothing,
            FileStatistics.concat(groups) if groups else nothing,
            offsets_of([len(units) for units in groups]),
        )


def _by_file(bucket: list[pa.RecordBatch], file_of: np.ndarray) -> list[tuple[int, list[pa.RecordBatch]]]:
    """The rows of each file, in ascending order: a slice of every piece that has some. ``file_of``: by slot."""
    found: dict[int, list[pa.RecordBatch]] = {}
    for piece in bucket:
        numbers = file_of[piece.column(FILE).to_numpy()]
        edges = [*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), len(numbers)]
        for start, end in pairwise(edges):
            found.setdefault(int(numbers[start]), []).append(piece.slice(start, end - start))
    return sorted(found.items(), key=itemgetter(0))


def _joined(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.table({"": column}).combine_chunks().column(0)


def _taken(
    columns: dict[str, pa.ChunkedArray], narrow: NarrowForms, schema: pa.Schema, rows: np.ndarray, *, last: bool
) -> pa.Table:
    """Rows of the columns, by number, in transit types. Taking the ``last`` ones removes the columns."""
    places = pa.array(rows)

    def taken(name: str) -> pa.ChunkedArray:
        column = columns.pop(name) if last else columns[name]
        return narrow.widened(name, _joined(column).take(places))

    return pa.Table.from_arrays([taken(name) for name in schema.names], schema=schema)


class _Memory:
    """A budget of bytes that threads share. A thread that needs more than is free waits; a larger need takes it all."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._changed = threading.Condition()

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        size = min(size, self._size)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()
