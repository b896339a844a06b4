"""`write_files`: write rows as data files. Sample, fit, scatter to buckets, gather, arrange, encode.

    source ──parts──▶ sample ──▶ layouts.fit ──▶ routing
       └────parts──▶ file of each row ──▶ buckets (memory or spill files) ──▶ order ──▶ Parquet and statistics

One thread per core processes parts and buckets; Arrow and numpy release Python's lock.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.offsets import offsets_of
from zskip.core.option_checks import size_text
from zskip.core.schema import Schema
from zskip.errors import InvalidOption
from zskip.stats import DataFiles, FileStatistics, collect, hull
from zskip.storage import Staged, Storage, hive
from zskip.tablelog.index import Index
from zskip.tablelog.parts import Drafts
from zskip.tablelog.segments import new_ids, published
from zskip.tablelog.sketches import SketchBuilder, keys_of, named_sketches
from zskip.tablelog.snapshot import SketchRecord
from zskip.writer.compact_rows import NarrowForms
from zskip.writer.encode import (
    Encoding,
    columns_with_nan,
    even_cuts,
    fitted_encoding,
    footer_metadata,
    sorting_columns,
    stored_bytes,
    write_file,
)
from zskip.writer.look_ups import ReadLookUps
from zskip.writer.options import ROW_GROUP_ROWS, WriteOptions
from zskip.writer.paths import in_place
from zskip.writer.routing import Routing, fitted, fitted_columns, partition_numbers, top_level
from zskip.writer.row_sample import LARGEST, RowSample, sample_size, shortened
from zskip.writer.row_source import Part, RowSource
from zskip.writer.scatter import (
    FILE_NUMBER,
    MakeFolder,
    Pieces,
    in_parallel,
    repeatable,
    spill_folders,
    split,
)
from zskip.writer.star import Star
from zskip.writer.storable import storable_rows, transit_schema, trimmed

_MOST_BUCKETS = 256
# Shares of the memory limit: for rows in memory, for parts on their way to the buckets, and for a bucket while it is
# written.
_RESIDENT_SHARE, _PARTS_SHARE, _BUCKET_SHARE = 0.4, 0.5, 0.125
_SKETCH_SHARE = 0.125
# The memory to sort and encode a file's rows, besides their bucket, as a multiple of their size.
_SORTING_FACTOR = 1.25
# How far a write may exceed the memory limit: by this factor, and besides by what its reading and encoding always take.
_EXCESS, _BASE_BYTES = 1.5, 60_000_000
# A column's dictionary of strings may take the memory limit divided by this number.
_DICTIONARY_DIVISOR = 64
# A file of fewer rows has the encoding of the first rows: fitting its own takes longer than writing it.
_FEW_ROWS = 4_096
# Small files are made ready together, up to this number of rows: fewer than Parquet's pages, which are not cut further.
_ROWS_TOGETHER = 16_384
# A bucket in memory has at least so many bytes, for many of the small files.
_LEAST_BUCKET = 1 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write: the routing that it followed, the files in layout order, and the number of rows.

    ``rows_per_file``: the rows of a full file · ``sketches``: the segments for the files · ``paths``: of all these.
    """

    routing: Routing
    files: DataFiles
    rows: int
    rows_per_file: int
    sketches: tuple[SketchRecord, ...] = ()

    @property
    def paths(self) -> list[str]:
        segments = [segment.part.path for sketch in self.sketches for segment in sketch.segments]
        return [*self.files.path.to_pylist(), *segments]


def write_files(
    source: RowSource,
    storage: Storage,
    schema: Schema,
    options: WriteOptions,
    look_ups: ReadLookUps | None,
    staged: Staged,
    *,
    routing: Routing | None = None,
) -> Written:
    """Write the rows of a source as new data files, by a layout fitted to these rows, or by ``routing``.

    ``look_ups``: those of the table that the rows join, for the weights of the fit. A file is named after its number in
    the layout and the run of this write, which is its layout group. Columns that the source lacks are NULL. The files
    belong to the table only after a commit; ``staged`` has each from before it is begun.
    """
    with _begun(storage, schema, options, look_ups, staged) as write:
        return write.run(source, routing)


def rewrite_files(
    index: Index,
    numbers: np.ndarray,
    rows_of: Callable[[int], pa.Table],
    options: WriteOptions,
    staged: Staged,
    schema: Schema | None = None,
) -> Written:
    """Replace files of a table one for one, by the rows that ``rows_of`` returns for each number, in their order.

    ``schema``: of the rows, by default the table's. A file keeps its layout group; one without
    rows is left out. As many files are in memory at once as the memory limit allows. ``staged``: as in `write_files`.
    """
    with _begun(index.storage, schema or index.snapshot.schema, options, None, staged) as write:
        return write.run_in_place(index, numbers, rows_of)


@contextmanager
def _begun(
    storage: Storage, schema: Schema, options: WriteOptions, look_ups: ReadLookUps | None, staged: Staged
) -> Iterator[_Write]:
    """A write, whose threads end with it, after an error too."""
    with ExitStack() as cleanup:
        make_folder = cleanup.enter_context(spill_folders(options.temp_directory))
        pool = ThreadPoolExecutor(options.cores, thread_name_prefix="zskip-write")
        cleanup.callback(pool.shutdown, wait=True, cancel_futures=True)
        limit = options.memory
        builder = None
        if options.sketches:
            names = named_sketches(options.sketches, schema)
            builder = SketchBuilder(names, int(limit * _SKETCH_SHARE), make_folder)
        star = None if options.star is None else options.star(storage)
        if star is not None:
            star.require_distinct_names(schema)
            schema = Schema(pa.schema([*schema.arrow, *star.attributes], metadata=schema.arrow.metadata))
        yield _Write(storage, schema, options, make_folder, pool, limit, look_ups, builder, star, staged)


@dataclass(frozen=True, slots=True)
class _RowProfile:
    """Estimates for all rows from the first part that has some.

    ``in_memory``, ``stored``: bytes of a row in memory and in a file · ``part_bytes``: bytes of a part in memory ·
    ``transit``: the schema with transit types · ``encoding``: of these rows, and of files too small to fit their own.
    """

    in_memory: float
    stored: float
    part_bytes: int
    transit: pa.Schema
    encoding: Encoding | None


@dataclass(frozen=True, slots=True)
class _Files:
    """Files that were written together, in layout order: one with all its row groups, or several with one each.

    ``units``: the statistics of the row groups
    """

    paths: list[str]
    units: FileStatistics

    @property
    def rows(self) -> int:
        return int(pc.sum(self.units.row_count, min_count=0).as_py())


@dataclass(slots=True)
class _Write:
    """A write in progress, shared by its threads.

    ``schema``: the table's, with the attributes of ``star`` · ``limit``: bytes of memory · ``id``: the random part of
    the names of files.
    """

    storage: Storage
    schema: Schema
    options: WriteOptions
    make_folder: MakeFolder
    pool: ThreadPoolExecutor
    limit: int
    look_ups: ReadLookUps | None
    sketches: SketchBuilder | None
    star: Star | None
    staged: Staged
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    drafts: Drafts = field(init=False)
    group_rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.group_rows = self.options.row_group_rows or ROW_GROUP_ROWS
        self.drafts = Drafts(self.storage, self.staged)

    def run(self, source: RowSource, routing: Routing | None) -> Written:
        most = int(self.limit * _RESIDENT_SHARE)
        source = repeatable(source, most, self.make_folder, partial(self.options.report, "read", total=None))
        if self.star is not None:
            source = self.star.joined(source)
        profile = self._profile(source)
        rows = source.row_count or 0
        if routing is None:
            routing, rows = self._fitted(source, profile)
            self.group_rows = self.options.group_rows(rows)
        buckets, bucket_of = self._buckets(routing.files, int(rows * profile.in_memory))
        narrow = NarrowForms(profile.transit, self.limit // _DICTIONARY_DIVISOR, rows)
        self._scatter(source, routing, profile, buckets, bucket_of, narrow, rows)
        files = self._gather(routing, buckets, profile, narrow, rows)
        return self._written(routing, files, rows)

    def run_in_place(self, index: Index, numbers: np.ndarray, rows_of: Callable[[int], pa.Table]) -> Written:
        paths = index.paths(numbers).to_pylist()
        by = [column.path for column in self.schema.orderable(self.options.by)]
        sorted_by = top_level(by, self.schema)

        memory = _Memory(int(self.limit * (1 - _BUCKET_SHARE)))
        row_bytes = 0.0

        def replaced(item: tuple[int, int, str, int | None, int | None]) -> _Files | None:
            stored, count = item[3] or 0, item[4] or 0
            needed = int(max(stored, row_bytes * count) * (1 + _SORTING_FACTOR))
            self._require_memory(needed, count)
            with memory.reserved(needed):
                try:
                    return rewritten(*item[:3])
                finally:  # before the next file takes its place
                    pa.default_memory_pool().release_unused()

        def rewritten(position: int, number: int, path: str) -> _Files | None:
            nonlocal row_bytes
            given = rows_of(number)
            if not given.num_rows:
                return None
            row_bytes = max(row_bytes, given.nbytes / given.num_rows)
            self._require_memory(int(given.nbytes * (1 + _SORTING_FACTOR)), given.num_rows)
            if self.star is not None:
                given = self.star.with_attributes(given)
            rows = storable_rows(given, transit_schema(given, self.schema.arrow, self.options.partition_by))
            folder = path[: path.rfind("/") + 1].removeprefix("_data/" if self.options.hidden else "")
            if index.source is not None:  # whose names need not contain the values of the partition
                ((key,), _) = partition_numbers(given, self.options.partition_by)
                folder = hive.folder(self.options.partition_by, key) if key else ""
            del given
            target = self.options.data_path(folder, in_place(path, self.id, position))
            return self._write_files([target], rows, even_cuts(rows.num_rows, self.group_rows), sorted_by)

        known = (index.sizes(numbers).to_pylist(), index.row_counts(numbers).to_pylist())
        items = list(zip(range(len(paths)), numbers.tolist(), paths, *known, strict=True))
        # The first file tells how long rows are in memory.
        alone = 0 if self.options.memory_limit is None else 1
        files: list[_Files] = []
        for some in (items[:alone], items[alone:]):
            for file in in_parallel(self.pool, replaced, some, self.options.cores + 1):
                files.extend([] if file is None else [file])
        return self._written(Routing((), ((),), ()), files, sum(file.rows for file in files))

    def _written(self, routing: Routing, files: Sequence[_Files], rows: int) -> Written:
        data_files = self._data_files(files)
        if self.star is not None:
            data_files = self.star.with_versions(data_files)
        segments: tuple[SketchRecord, ...] = ()
        if self.sketches is not None:
            data_files = replace(data_files, id=new_ids(len(data_files)))
            ids = dict(zip(data_files.path.to_pylist(), data_files.id.to_pylist(), strict=True))
            segments = published(self.drafts, self.sketches, ids, self.options.cores)
        return Written(routing, data_files, rows, max(1, -(-rows // max(len(data_files), 1))), segments)

    def _profile(self, source: RowSource) -> _RowProfile:
        for part in source.parts(None):
            given = part()
            if given.num_rows:
                transit = transit_schema(given, self.schema.arrow, self.options.partition_by)
                rows = storable_rows(given, transit)
                head = self._stored(rows.slice(0, 1 << 16))
                encoding = fitted_encoding(head, self.options.compression)
                whole = source.row_count == given.num_rows == head.num_rows
                measured = self.options.sized_by_bytes and not (whole and self.options.fit_in_a_file(head))
                stored = stored_bytes(head, encoding) / head.num_rows if measured else 0.0
                return _RowProfile(rows.nbytes / rows.num_rows, stored, rows.nbytes, transit, encoding)
        return _RowProfile(0.0, 0.0, 0, self.schema.arrow, None)

    # --- sample and fit ---

    def _fitted(self, source: RowSource, profile: _RowProfile) -> tuple[Routing, int]:
        """The routing fitted to a sample of the rows, and the number of rows."""
        options = self.options
        by = [column.path for column in self.schema.orderable(options.by)]
        columns = fitted_columns(self.schema, options)
        unknown = options.files is None and source.row_count is None
        expected_files = options.file_count(source.row_count or options.files or 0, profile.stored)
        size = LARGEST if unknown else sample_size(expected_files)
        sample = RowSample(size, options.seed)
        rows = 0
        counts: dict[tuple[str, ...], int] = {}

        given = [name for name in columns if name in source.schema.names]
        # Rows of an append may lack columns, or have them in another type, such as texts for UUIDs. At least one column
        # is read, since a part without columns has no rows.
        wanted = pa.schema([self.schema.arrow.field(name) for name in columns])
        whole = given == columns and all(source.schema.field(field.name).type == field.type for field in wanted)

        def load(part: Part) -> tuple[pa.Table, list[tuple[str, ...]], np.ndarray]:
            table = shortened(part(), options.partition_by)
            table = table.select(given) if whole else storable_rows(table, wanted)
            keys, numbers = partition_numbers(table, options.partition_by)
            return table, keys, np.bincount(numbers, minlength=len(keys))

        for table, keys, tally in in_parallel(
            self.pool, load, source.parts(given or source.schema.names[:1]), self.options.cores + 1
        ):
            sample.add(table, rows)
            rows += table.num_rows
            for key, count in zip(keys, tally.tolist(), strict=True):
                counts[key] = counts.get(key, 0) + count
            options.report("sample", rows, source.row_count)
        sampled = sample.rows()
        if sampled is None:
            sampled = t.empty_table(pa.schema([self.schema.arrow.field(name) for name in columns]))
            counts = {} if options.partition_by else {(): 0}
        return fitted(sampled, by, counts, options.file_count(rows, profile.stored), options, self.look_ups), rows

    # --- scatter ---

    def _buckets(self, files: int, size: int) -> tuple[Pieces, np.ndarray]:
        """Empty buckets for ``size`` bytes, and the bucket of each file."""
        in_memory = size <= self.limit * _RESIDENT_SHARE
        wanted = (
            max(4 * self.options.cores, size // _LEAST_BUCKET)
            if in_memory
            else max(1, -(-size * self.options.cores // int(self.limit * _BUCKET_SHARE * 2)))
        )
        count = max(1, min(files, wanted, _MOST_BUCKETS))
        bucket_of = np.arange(max(files, 1)) * count // max(files, 1)
        return Pieces(None if in_memory else self.make_folder()), bucket_of

    def _scatter(
        self,
        source: RowSource,
        routing: Routing,
        profile: _RowProfile,
        buckets: Pieces,
        bucket_of: np.ndarray,
        narrow: NarrowForms,
        total: int,
    ) -> None:
        """Distribute the rows to the buckets."""

        def scattered(part: Part) -> list[tuple[int, pa.Table]]:
            rows = storable_rows(part(), profile.transit)
            if not rows.num_rows:
                return []
            return split(narrow.narrowed(rows), routing.route(rows), bucket_of, buckets.takes)

        done = 0
        # A part is in memory up to three times: as read, in transit types, and sorted by file.
        window = int(self.limit * _PARTS_SHARE) // max(3 * profile.part_bytes, 1)
        window = min(max(window, 1), self.options.cores + 1)
        for pieces in in_parallel(self.pool, scattered, source.parts(None), window):
            for bucket, rows in pieces:
                buckets.add(bucket, rows)
                done += rows.num_rows
            self.options.report("scatter", done, total)
        # Before writing files, return the memory for reading to the system.
        pa.default_memory_pool().release_unused()

    # --- gather ---

    def _gather(
        self,
        routing: Routing,
        buckets: Pieces,
        profile: _RowProfile,
        narrow: NarrowForms,
        total: int,
    ) -> list[_Files]:
        memory = _Memory(int(self.limit * (1 - _BUCKET_SHARE)))

        def write_bucket(bucket: int) -> list[_Files]:
            # A bucket's rows are in memory twice: in their narrow form, and sorted in transit types.
            sorting = _SORTING_FACTOR * profile.in_memory * buckets.rows(bucket)
            needed = int(buckets.bytes(bucket) + sorting)
            self._require_memory(needed, buckets.rows(bucket))
            with memory.reserved(needed):
                return list(self._files_of(buckets.take(bucket), routing, narrow, profile))

        files: list[_Files] = []
        done = 0
        for written in in_parallel(self.pool, write_bucket, buckets, 2 * self.options.cores):
            files.extend(written)
            done += sum(each.rows for each in written)
            pa.default_memory_pool().release_unused()
            self.options.report("write", done, total)
        return files

    def _require_memory(self, needed: int, rows: int) -> None:
        """Raise `InvalidOption` if rows of a file or bucket take much more memory than the limit that the user gave."""
        is_given = self.options.memory_limit is not None and self.options.strict_memory
        if is_given and needed > _EXCESS * self.limit + _BASE_BYTES:
            raise InvalidOption(
                f"memory_limit= is {size_text(self.limit)}, and {rows:,} rows that are arranged and encoded "
                f"together take {size_text(needed)}: a file is written as a whole. Give a larger limit, or lay the "
                "table out with smaller files: more files=, or a smaller rows_per_file= or file_size=."
            )

    def _files_of(
        self, bucket: list[pa.Table], routing: Routing, narrow: NarrowForms, profile: _RowProfile
    ) -> Iterator[_Files]:
        """Write the files of one bucket. It frees each column as soon as the last file has taken its rows."""
        schema = profile.transit
        pending = _by_file(bucket)
        del bucket
        while pending:
            count = self._files_together(pending, routing)
            together, pending[:count] = pending[:count], []
            sizes = [sum(run.num_rows for run in runs) for _, runs in together]
            columns = {
                name: narrow.unified(name, [run.column(number) for _, runs in together for run in runs])
                for number, name in enumerate(schema.names)
            }
            paths = [
                self.options.data_path(routing.folder_of(file), f"part-{file:06d}-{self.id}") for file, _ in together
            ]
            assignment = routing.assignment_of(together[0][0])
            del together
            by = top_level(assignment.columns, self.schema)
            for name in by:  # combine the chunks of columns that are used more than once
                columns[name] = _combined(columns[name])
            keys = pa.table({name: narrow.widened(name, columns[name]) for name in by})
            cuts = offsets_of(sizes) if len(sizes) > 1 else even_cuts(sizes[0], self.group_rows)
            arranged = assignment.arrange(keys, int(cuts[1] if len(sizes) == 1 else cuts[-1]))
            if len(sizes) > 1:  # each row in its file, in this order
                file_of = np.repeat(np.arange(len(sizes)), sizes)
                arranged = arranged[np.argsort(file_of[arranged], kind="stable")]
            del keys
            encoding = profile.encoding if max(sizes) < _FEW_ROWS else None
            rows = _taken(columns, narrow, schema, arranged)
            if len(sizes) > 1:
                rows = _decoded(rows)
            yield self._write_files(paths, rows, cuts, by, encoding)

    def _files_together(self, pending: Sequence[tuple[int, list[pa.RecordBatch]]], routing: Routing) -> int:
        """The number of files, from the first, to make ready together: of one row group each, and one assignment."""
        assignment, rows = routing.assignment_of(pending[0][0]), 0
        most = min(self.group_rows, _FEW_ROWS - 1)
        for number, (file, runs) in enumerate(pending):
            size = sum(run.num_rows for run in runs)
            rows += size
            if size > most or rows > _ROWS_TOGETHER or routing.assignment_of(file) is not assignment:
                return max(1, number)
        return len(pending)

    def _write_files(
        self,
        paths: list[str],
        rows: pa.Table,
        cuts: np.ndarray,
        sorted_by: Sequence[str],
        encoding: Encoding | None = None,
    ) -> _Files:
        """Write one file with row groups between the cuts, or several with one each. ``encoding``: by default fitted to
        the rows."""
        units = collect.row_groups(rows, cuts, self.schema)
        self.staged.add(paths)
        stored = self._stored(rows)
        encoding = encoding or fitted_encoding(stored, self.options.compression)
        sorting = sorting_columns(stored, cuts, sorted_by)
        arrow = self.schema.arrow
        metadata = footer_metadata(pa.schema(map(arrow.field, stored.column_names), arrow.metadata))
        any_nan = columns_with_nan(stored, units)
        for number, path in enumerate(paths):
            inside, own, with_nan = cuts, rows, any_nan
            if len(paths) > 1:
                own = rows.slice(cuts[number], cuts[number + 1] - cuts[number])
                inside = np.array([0, own.num_rows])
            own = trimmed(own)
            stored = self._stored(own)
            if any_nan and len(paths) > 1:
                with_nan = columns_with_nan(stored, units.take(np.array([number])))
            with self.storage.open_writer(path) as target:
                write_file(target, stored, inside, with_nan, encoding, sorting, metadata)
            if self.sketches is not None:
                self.sketches.add(path, [keys_of(name, self.schema, own) for name in self.sketches.names])
        return _Files(paths, units)

    def _stored(self, rows: pa.Table) -> pa.Table:
        """The columns in the files: the folders have the values of partition columns, and the index alone knows the
        attributes of dimensions."""
        attributes = [] if self.star is None else [field.name for field in self.star.attributes]
        return rows.drop_columns([*self.options.partition_by, *attributes])

    def _data_files(self, written: Sequence[_Files]) -> DataFiles:
        paths = [path for each in written for path in each.paths]
        listed = self.storage.size_and_modified(paths).at(pa.array(paths, pa.string()))
        nothing = FileStatistics(pa.array([], pa.int64()), {})
        groups = FileStatistics.concat([each.units for each in written] or [nothing])
        counts = [len(each.units) if len(each.paths) == 1 else 1 for each in written for _ in each.paths]
        files = hull(groups, np.repeat(np.arange(len(paths)), counts), len(paths))
        return DataFiles(listed.path, listed.size, listed.modified, listed.etag, files, groups, offsets_of(counts))


def _by_file(bucket: list[pa.Table]) -> list[tuple[int, list[pa.RecordBatch]]]:
    """The rows of each file, by ascending number, as slices of the pieces."""
    by_file: dict[int, list[pa.RecordBatch]] = {}
    for piece in (batch for table in bucket for batch in table.to_batches()):
        numbers = piece.column(FILE_NUMBER).to_numpy()
        edges = [*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), len(numbers)]
        for start, end in pairwise(edges):
            by_file.setdefault(int(numbers[start]), []).append(piece.slice(start, end - start))
    return sorted(by_file.items(), key=itemgetter(0))


def _combined(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with its chunks combined, as far as offsets of 32 bits allow."""
    return pa.table({"": column}).combine_chunks().column(0)


def _taken(columns: dict[str, pa.ChunkedArray], narrow: NarrowForms, schema: pa.Schema, rows: np.ndarray) -> pa.Table:
    """Rows of the columns, by number, in transit types. It removes each column once its rows are taken."""
    row_numbers = pa.array(rows)

    def taken(name: str) -> pa.ChunkedArray:
        return narrow.widened(name, _combined(columns.pop(name)).take(row_numbers))

    return pa.Table.from_arrays([taken(name) for name in schema.names], schema=schema)


def _decoded(rows: pa.Table) -> pa.Table:
    """The rows with plain columns in place of dictionaries, of which each of many small files uses few entries."""
    for number, column in enumerate(rows.schema):
        if t.is_dictionary(column.type):
            plain = pc.dictionary_decode(rows.column(number))
            rows = rows.set_column(number, column.with_type(plain.type), plain)
    return rows


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
