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
from zskip.core.offsets import offsets_of
from zskip.core.schema import Schema
from zskip.stats import DataFiles, FileStatistics, collect
from zskip.storage import Storage, abandon
from zskip.tablelog import SketchRecord
from zskip.tablelog.parts import Drafts
from zskip.tablelog.segments import new_ids, published
from zskip.tablelog.sketches import SketchBuilder, keys_of, named_sketches
from zskip.writer.compact_rows import NarrowForms
from zskip.writer.encode import even_cuts, fitted_encoding, stored_bytes, write_file
from zskip.writer.file_groups import FileGroups, least_rows, slot_label, slots_per_file
from zskip.writer.options import ROW_GROUP_ROWS, WriteOptions
from zskip.writer.routing import Routing, fitted, fitted_columns, partition_numbers, top_level
from zskip.writer.row_sample import LARGEST, RowSample, sample_size
from zskip.writer.row_source import Part, RowSource
from zskip.writer.scatter import FILE_NUMBER, MemoryBuckets, SpilledBuckets, in_parallel, split
from zskip.writer.spool import SpillFolders, free_memory, repeatable
from zskip.writer.star import Star
from zskip.writer.storable import storable_rows
from zskip.writer.transit_types import transit_schema, trimmed

__all__ = ["Written", "write_files"]

_MOST_BUCKETS = 256
# Shares of the memory limit: for rows in memory, for parts on their way to the buckets, and for a bucket while it is
# written.
_RESIDENT_SHARE, _PARTS_SHARE, _BUCKET_SHARE = 0.4, 0.5, 0.125
_SKETCH_SHARE = 0.125
# The memory to sort and encode a file's rows, besides their bucket, as a multiple of their size.
_SORTING_FACTOR = 1.25
# A column's dictionary of strings may take the memory limit divided by this number.
_DICTIONARY_DIVISOR = 64


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write: the routing that it followed, the files in layout order, and the number of rows.

    ``rows_per_file``: the rows of a full file · ``sketches``: the segments for the files.
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
    """Write the rows of a source as new data files, by ``routing``, or by a layout fitted to these rows.

    A file is named after its number in the routing, or after the entry of ``slots`` for that number: the first and the
    last slot of the table's layout whose rows it contains. Columns that the source lacks are NULL. With a routing, a
    file that would get more than twice ``rows_per_file`` is split, and without ``slots`` neighbouring files of few rows
    are merged (`file_groups`). The files belong to the table only after a commit. After an error or an interrupt, it
    removes the files written so far.
    """
    with ExitStack() as cleanup:
        folders = cleanup.enter_context(SpillFolders(options.temp_directory))
        cores = options.threads or available_cores()
        pool = ThreadPoolExecutor(cores, thread_name_prefix="zskip-write")
        cleanup.callback(pool.shutdown, wait=True, cancel_futures=True)
        limit = int(options.memory_limit or free_memory() // 2)
        names = named_sketches(options.sketches, schema)
        star = None if options.star is None else options.star()
        if star is not None:
            schema = Schema(pa.schema([*schema.arrow, *star.attributes], metadata=schema.arrow.metadata))
        builder = SketchBuilder(names, int(limit * _SKETCH_SHARE), folders.make) if names else None
        write = _Write(storage, schema, options, folders, pool, cores, limit, slots, builder, star)
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
    """Estimates for all rows from the first part that has some.

    ``in_memory``, ``stored``: bytes of a row in memory and in a file · ``part_bytes``: bytes of a part in memory ·
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
    """How slots are grouped into files.

    ``counts``: the rows of each slot · ``least``: the least number of rows of a file of several slots · ``most_rows``:
    the greatest number of rows of any file.
    """

    routing: Routing
    groups: FileGroups
    counts: np.ndarray
    least: int
    most_rows: int

    def pieces(self, first: int, rows: int) -> int:
        """The number of files for a group of slots. ``first``: its first slot · ``rows``: the number of its rows."""
        count = 1 if rows <= self.most_rows else -(-2 * rows // self.most_rows)
        filled = int(np.count_nonzero(self.counts[first : int(self.groups.last[first]) + 1]))
        return max(count, min(filled, rows // self.least))


@dataclass(slots=True)
class _Write:
    """A write in progress, shared by its threads.

    ``schema``: the table's, with the attributes of ``star`` · ``limit``: bytes of memory · ``begun``: the files to
    remove if it fails · ``id``: the random part of their names.
    """

    storage: Storage
    schema: Schema
    options: WriteOptions
    folders: SpillFolders
    pool: ThreadPoolExecutor
    cores: int
    limit: int
    slots: Sequence[tuple[int, int]] | None
    sketches: SketchBuilder | None
    star: Star | None
    begun: list[str] = field(default_factory=list)
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    drafts: Drafts = field(init=False)
    group_rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.group_rows = self.options.row_group_rows or ROW_GROUP_ROWS
        self.drafts = Drafts(self.storage)

    def run(self, source: RowSource, routing: Routing | None, rows_per_file: int | None) -> Written:
        most, least = int(self.limit * _RESIDENT_SHARE), 1
        source = repeatable(source, most, self.folders, lambda rows: self.options.report("read", rows, None))
        if self.star is not None:
            source = self.star.joined(source)
        profile = self._profile(source)
        if routing is None:
            routing, rows = self._fitted(source, profile)
            self.group_rows = self.options.group_rows(rows)
            rows_per_file = max(1, -(-rows // max(routing.files, 1)))
        else:
            routing, rows = self._extended(source, routing)
            least = least_rows(rows_per_file) if rows_per_file else 1
        # A group of slots must be in one bucket. Which slots get rows is unknown as yet; groups are widest if all do.
        ungrouped = self.slots is not None
        widest = FileGroups.of(routing, 1 if ungrouped else slots_per_file(rows, routing.files, least))
        buckets, bucket_of = self._buckets(widest, int(rows * profile.in_memory))
        narrow = NarrowForms(profile.transit, self.limit // _DICTIONARY_DIVISOR)
        counts = self._scatter(source, routing, profile, buckets, bucket_of, narrow, rows)
        filled = int(np.count_nonzero(counts))
        groups = widest if ungrouped else FileGroups.of(routing, slots_per_file(rows, routing.files, least, filled))
        file_plan = _FilePlan(routing, groups, counts, least, 2 * rows_per_file if rows_per_file else rows + 1)
        files = self._gather(file_plan, buckets, profile, narrow, rows)
        data_files = self._data_files(files)
        if self.star is not None:
            data_files = self.star.with_versions(data_files)
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
                transit = transit_schema(given, self.schema.arrow, self.options.partition_by)
                rows = storable_rows(given, transit)
                head = rows.slice(0, 1 << 16)
                encoding = fitted_encoding(head, self.options.compression)
                stored = stored_bytes(head, encoding) / head.num_rows if self.options.sized_by_bytes else 0.0
                return _RowProfile(rows.nbytes / rows.num_rows, stored, rows.nbytes, transit)
        return _RowProfile(0.0, 0.0, 0, self.schema.arrow)

    # --- sample and fit ---

    def _fitted(self, source: RowSource, profile: _RowProfile) -> tuple[Routing, int]:
        """The routing fitted to a sample of the rows, and the number of rows."""
        options = self.options
        by = [column.path for column in self.schema.orderable(options.by)]
        columns = fitted_columns(self.schema, options)
        unknown = options.files is None and source.row_count is None
        expected_files = options.file_count(source.row_count or options.files or 0, profile.stored)
        size = LARGEST if unknown else sample_size(expected_files)
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
            options.report("sample", rows, source.row_count)
        sampled = sample.rows()
        if sampled is None:
            sampled = pa.schema([self.schema.arrow.field(name) for name in columns]).empty_table()
            counts = {} if options.partition_by else {(): 0}
        return fitted(sampled, by, counts, options.file_count(rows, profile.stored), options), rows

    def _extended(self, source: RowSource, routing: Routing) -> tuple[Routing, int]:
        """The routing extended by the new partitions of these rows, and the number of rows."""
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
        model = routing.assignments[0] if routing.assignments else None
        by = list(model.columns) if model else [column.path for column in self.schema.orderable(self.options.by)]
        empty = self.schema.arrow.empty_table()
        return layouts.fit(empty, by, layout=model.layout if model else self.options.layout, files=1, total_rows=0)

    # --- scatter ---

    def _buckets(self, groups: FileGroups, size: int) -> tuple[MemoryBuckets | SpilledBuckets, np.ndarray]:
        """Empty buckets for ``size`` bytes, and the bucket of each slot. The slots of a group are in one bucket."""
        in_memory = size <= self.limit * _RESIDENT_SHARE
        wanted = _MOST_BUCKETS if in_memory else max(1, -(-size * self.cores // int(self.limit * _BUCKET_SHARE * 2)))
        numbers = groups.numbers
        group_count = int(numbers.max(initial=0)) + 1
        count = max(1, min(group_count, wanted, _MOST_BUCKETS))
        bucket_of = numbers * count // group_count
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
        """Distribute the rows to the buckets. Returns the number of rows of each slot."""

        def scattered(part: Part) -> tuple[list[tuple[int, pa.Table]], np.ndarray]:
            rows = storable_rows(part(), profile.transit)
            if not rows.num_rows:
                return [], np.zeros(0, np.int64)
            files = routing.route(rows)
            return split(narrow.narrowed(rows), files, bucket_of, buckets.takes), np.bincount(files)

        done = 0
        counts = np.zeros(routing.files, np.int64)
        # A part is in memory up to three times: as read, in transit types, and sorted by file.
        window = int(self.limit * _PARTS_SHARE) // max(3 * profile.part_bytes, 1)
        window = min(max(window, 1), self.cores + 1)
        for pieces, counted in in_parallel(self.pool, scattered, source.parts(None), window):
            counts[: len(counted)] += counted
            for bucket, rows in pieces:
                buckets.add(bucket, rows)
                done += rows.num_rows
            self.options.report("scatter", done, total)
        buckets.finish()
        # Before writing files, return the memory for reading to the system.
        pa.default_memory_pool().release_unused()
        return counts

    # --- gather ---

    def _gather(
        self,
        file_plan: _FilePlan,
        buckets: MemoryBuckets | SpilledBuckets,
        profile: _RowProfile,
        narrow: NarrowForms,
        total: int,
    ) -> list[_File]:
        memory = _Memory(int(self.limit * (1 - _BUCKET_SHARE)))

        def write_bucket(bucket: int) -> list[_File]:
            # A bucket's rows are in memory twice: in their narrow form, and sorted in transit types.
            sorting = _SORTING_FACTOR * profile.in_memory * buckets.rows(bucket)
            with memory.reserved(int(buckets.bytes(bucket) + sorting)):
                return list(self._files_of(buckets.take(bucket), file_plan, narrow, profile.transit))

        filled = [bucket for bucket in range(len(buckets)) if buckets.rows(bucket)]
        files: list[_File] = []
        done = 0
        for written in in_parallel(self.pool, write_bucket, filled, 2 * self.cores):
            files.extend(written)
            done += sum(pc.sum(file.units.row_count).as_py() for file in written)
            pa.default_memory_pool().release_unused()
            self.options.report("write", done, total)
        return files

    def _files_of(
        self, bucket: list[pa.RecordBatch], file_plan: _FilePlan, narrow: NarrowForms, schema: pa.Schema
    ) -> Iterator[_File]:
        """Write the files of one bucket. ``schema``: of the rows, with transit types.

        It frees each column as soon as the last file has taken its rows.
        """
        pending = _by_file(bucket, file_plan.groups.first)
        del bucket
        while pending:
            file, runs = pending.pop(0)
            columns = {
                name: narrow.unified(name, [run.column(number) for run in runs])
                for number, name in enumerate(schema.names)
            }
            rows = sum(run.num_rows for run in runs)
            del runs
            assignment = file_plan.routing.assignment_of(file)
            count = file_plan.pieces(file, rows)
            piece_rows = -(-rows // count)
            length = int(even_cuts(piece_rows, self.group_rows)[1])
            by = top_level(assignment.columns, self.schema)
            for name in columns if count > 1 else by:  # combine the chunks of columns that are used more than once
                columns[name] = _combined(columns[name])
            keys = pa.table({name: narrow.widened(name, columns[name]) for name in by})
            arranged = assignment.arrange(keys, length)
            del keys
            label = f"{slot_label(file, int(file_plan.groups.last[file]))}-{self.id}"
            if self.slots is not None:
                # The file of a new partition comes after all others.
                label = f"{slot_label(*self.slots[min(file, len(self.slots) - 1)])}-{self.id}-{file}"
            pieces = np.split(arranged, range(piece_rows, len(arranged), piece_rows))
            for piece, row_numbers in enumerate(pieces):
                name = f"part-{label}-{piece}" if count > 1 else f"part-{label}"
                path = self.options.data_path(file_plan.routing.folder_of(file), name)
                rows_of_piece = _taken(columns, narrow, schema, row_numbers, last=piece == len(pieces) - 1)
                yield self._write_file(path, trimmed(rows_of_piece), assignment)

    def _write_file(self, path: str, rows: pa.Table, assignment: layouts.Assignment) -> _File:
        cuts = even_cuts(rows.num_rows, self.group_rows)
        units = collect.row_groups(rows, cuts, self.schema)
        # The folders have the values of partition columns; the index alone knows the attributes of dimensions.
        attributes = [] if self.star is None else [field.name for field in self.star.attributes]
        stored = rows.drop_columns([*self.options.partition_by, *attributes])
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
        position = pc.index_in(pa.array(paths, pa.string()), listed.path)
        groups = [file.units for file in files]
        nothing = FileStatistics(pa.array([], pa.int64()), {})
        return DataFiles(
            pa.array(paths, pa.string()),
            listed.size.take(position),
            listed.modified.take(position),
            listed.etag.take(position),
            FileStatistics.concat([collect.merged(units) for units in groups]) if groups else nothing,
            FileStatistics.concat(groups) if groups else nothing,
            offsets_of([len(units) for units in groups]),
        )


def _by_file(bucket: list[pa.RecordBatch], file_of: np.ndarray) -> list[tuple[int, list[pa.RecordBatch]]]:
    """The rows of each file, by ascending number, as slices of the pieces. ``file_of``: the file of each slot."""
    by_file: dict[int, list[pa.RecordBatch]] = {}
    for piece in bucket:
        numbers = file_of[piece.column(FILE_NUMBER).to_numpy()]
        edges = [*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), len(numbers)]
        for start, end in pairwise(edges):
            by_file.setdefault(int(numbers[start]), []).append(piece.slice(start, end - start))
    return sorted(by_file.items(), key=itemgetter(0))


def _combined(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with its chunks combined, as far as offsets of 32 bits allow."""
    return pa.table({"": column}).combine_chunks().column(0)


def _taken(
    columns: dict[str, pa.ChunkedArray], narrow: NarrowForms, schema: pa.Schema, rows: np.ndarray, *, last: bool
) -> pa.Table:
    """Rows of the columns, by number, in transit types. ``last``: remove each column once its rows are taken."""
    row_numbers = pa.array(rows)

    def taken(name: str) -> pa.ChunkedArray:
        column = columns.pop(name) if last else columns[name]
        return narrow.widened(name, _combined(column).take(row_numbers))

    return pa.Table.from_arrays([taken(name) for name in schema.names], schema=schema)


class _Memory:
    """A budget of bytes that threads share. A thread waits until its bytes, at most the whole budget, are free."""

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
