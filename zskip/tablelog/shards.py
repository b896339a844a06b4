"""Shards: the statistics of some thousand files and of their row groups, in two Parquet files.

| file part, one row per file | row-group part, one row per row group |
| --- | --- |
| path, size, modified, etag, id, row_count, row_groups | file (its row in the file part), row_count |
| <path>.lower, .upper, .null_count, .nan_count, .lower_exact, .upper_exact | the same |

Columns that are all null are left out. Types that Parquet cannot store exactly are stored as integers in their unit.
The parts of a few files have these columns in the log entry itself, in place of a file, so that a small append writes
one file beside its data.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow._parquet import ParquetReader

from zskip.core import types as t
from zskip.core.late_loading import pc
from zskip.core.schema import Schema
from zskip.core.types import widened
from zskip.errors import DamagedIndex, SchemaMismatch
from zskip.parquet.arrow_differences import is_damage
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics
from zskip.stats.collect import LONGEST_BOUND, ends_of, of_scalars, shorten_lower, shorten_upper, shortened
from zskip.storage.storage import Storage
from zskip.tablelog.parts import Drafts, InlinePart, Part, PartFile, lost
from zskip.tablelog.snapshot import Bounds, Shard, Totals

if TYPE_CHECKING:
    import pyarrow.parquet as pq

FILES_PER_SHARD, _ROW_GROUPS_PER_SHARD = 16_384, 1 << 24
FANOUT, INLINE_BYTES = 8, 2048
"""How many shards of similar size a commit merges into one; smaller ones, of few bytes, lie in the entry."""
_ROWS_PER_ROW_GROUP = 65_536
_SHARD_BOUND_LENGTH, _LONGEST = 64, 1 << 30
_BOUNDED_COLUMNS, _RUNS_OF_IDS = 64, 16
_FIELDS = ("lower", "upper", "null_count", "nan_count", "lower_exact", "upper_exact")
_PROVING = ("lower", "upper", "null_count", "nan_count")
_FLAT = ("lower", "upper")
_UNREPEATED = ("path", "etag", "id", "deletes")
_TYPES = {
    **dict.fromkeys(("path", "etag"), pa.string()),
    **dict.fromkeys(("size", "modified", "id", "row_count", "null_count", "nan_count"), pa.int64()),
    **dict.fromkeys(("lower_exact", "upper_exact"), pa.bool_()),
}
"""The types of a part's columns, by the last word of their names; bounds have the types of their columns."""
# In fewer bytes, zstd saves nothing, and takes 18 µs to begin: of thousands of columns, half of the time to write them.
_LONG_COLUMN = 4096
_LARGEST_EXPANSION, _ALWAYS_FINE, _STEP_BYTES = 1000, 1 << 28, 1 << 26
_PLAIN = frozenset({"PLAIN", "RLE", "BIT_PACKED"})


def write_shards(
    drafts: Drafts,
    files: DataFiles,
    schema: Schema,
    version: int,
    first: Sequence[str] = (),
    partition_by: Sequence[str] = (),
) -> tuple[Shard, ...]:
    """Write these files' statistics durably, in order, to as many shards as they need.

    ``version``: the table's version that will have them; a column added later is NULL in all their rows. ``first``:
    the layout's columns, whose ranges the snapshot itself records before those of other columns. ``partition_by``:
    columns whose bounds are never truncated, since they are the values of the rows.
    """
    uncut = frozenset(schema.column(name).path for name in partition_by)
    bounded = tuple(dict.fromkeys([*first, *schema.columns]))[:_BOUNDED_COLUMNS]
    full = np.arange(len(files)) // FILES_PER_SHARD + files.first_row_group[:-1] // _ROW_GROUPS_PER_SHARD
    starts = np.flatnonzero(np.diff(full, prepend=-1))
    if len(starts) == 1:
        return (_write_shard(drafts, files, version, bounded, uncut),)
    return tuple(
        _write_shard(drafts, files.take(np.arange(start, end)), version, bounded, uncut)
        for start, end in zip(starts, [*starts[1:], len(files)], strict=True)
    )


def _write_shard(
    drafts: Drafts, files: DataFiles, version: int, bounded: Sequence[str], uncut: Collection[str]
) -> Shard:
    groups = np.diff(files.first_row_group)
    described = {
        "path": files.path,
        "size": files.size,
        "modified": files.modified,
        "etag": files.etag,
        "row_groups": pa.array(groups, pa.int32()),
    }
    if files.deletes is not None and files.deletes.null_count < len(files):
        described["deletes"] = files.deletes
    if files.id.null_count < len(files):
        described["id"] = files.id
    file_part = _stored(drafts, {**described, **_flat(files.files, uncut)}, len(files))
    row_group_part = None
    if (groups != 1).any():
        file = pa.array(np.repeat(np.arange(len(files), dtype=np.int32), groups))
        row_group_part = _stored(drafts, {"file": file, **_flat(files.row_groups, uncut)}, len(files))
    totals = Totals(len(files), int(files.first_row_group[-1]), _sum(files.files.row_count), _sum(files.size))
    return Shard(version, totals, file_part, row_group_part, _bounds(files.files, bounded), _runs_of_ids(files.id))


def _runs_of_ids(ids: pa.Int64Array) -> tuple[tuple[int, int], ...]:
    """At most `_RUNS_OF_IDS` ranges that contain these ids, as first id and length; none if a file has no id.

    >>> _runs_of_ids(pa.array([7, 8, 3, 9]))
    ((3, 1), (7, 3))
    """
    if ids.null_count:
        return ()
    ordered = np.sort(np.asarray(ids))
    gaps = np.diff(ordered)
    # If there are more runs, the nearest ones are joined, which includes the ids between them.
    cuts = np.sort(np.argsort(gaps, kind="stable")[1 - _RUNS_OF_IDS :])
    cuts = cuts[gaps[cuts] > 1]
    first, last = ordered[np.append(0, cuts + 1)], ordered[np.append(cuts, len(ordered) - 1)]
    return tuple(zip(first.tolist(), (last - first + 1).tolist(), strict=True))


def _flat(units: FileStatistics, uncut: Collection[str]) -> dict[str, pa.Array]:
    """The statistics as columns that Parquet can store. Long bounds are truncated, except in ``uncut`` columns."""
    flat = {"row_count": units.row_count}
    for path, given in units.columns.items():
        column = shortened(given, _LONGEST if path in uncut else LONGEST_BOUND)
        for name in _FIELDS:
            part = _kept(getattr(column, name)) if name in _FLAT else getattr(column, name)
            if part.null_count < len(part) and (name != "nan_count" or t.is_floating(column.lower.type)):
                flat[f"{path}.{name}"] = part
    return flat


def _kept(bounds: pa.Array) -> pa.Array:
    type = bounds.type
    # Parquet cannot store these types, and would return another type.
    kept_otherwise = t.is_duration(type) or type != t.stored_type(type)
    return bounds.view(t.ticks(type)) if kept_otherwise and t.is_temporal(type) else bounds


def _stored(drafts: Drafts, columns: Mapping[str, pa.Array], files: int) -> Part | InlinePart:
    small = 0 < files < FANOUT and sum(values.nbytes for values in columns.values()) <= INLINE_BYTES
    inline = InlinePart.of(columns) if small else None
    return _publish(drafts, columns) if inline is None else inline


def _publish(drafts: Drafts, columns: Mapping[str, pa.Array]) -> Part:
    import pyarrow.parquet as pq  # imports Arrow's file systems, which a look-up needs not

    table = pa.table(dict(columns))
    sink = pa.BufferOutputStream()
    encoding = {"compression": "none", "use_dictionary": False} if table.num_rows < FANOUT else _encoding(columns)
    pq.write_table(
        table,
        sink,
        **encoding,
        write_statistics=False,
        row_group_size=_ROWS_PER_ROW_GROUP,
        version="2.6",
        store_schema=False,  # a reader has the types of the table, and this would be half of the bytes of few rows
    )
    return drafts.publish("stats", ".stats", sink.getvalue().to_pybytes())


def _encoding(columns: Mapping[str, pa.Array]) -> dict[str, Any]:
    """The options of Parquet's writer for the columns of more than a few rows."""
    repeated = [name for name in columns if name.rpartition(".")[2] not in _FLAT and name not in _UNREPEATED]
    # Neighbours in layout order have similar bounds: their deltas need few bits, and any engine decodes them.
    near = [name for name in columns.keys() - repeated if _is_integer(columns[name].type)]
    # LZ4 compresses at most 255-fold, so a reader never takes a large part for a decompression bomb.
    fine = sum(values.nbytes for values in columns.values()) < _ALWAYS_FINE
    codecs = {
        name: "zstd" if fine and (values.nbytes >= _LONG_COLUMN or name in _UNREPEATED) else "lz4"
        for name, values in columns.items()
    }
    delta = dict.fromkeys(near, "DELTA_BINARY_PACKED")
    return {"compression": codecs, "use_dictionary": repeated, "column_encoding": delta}


def _is_integer(type: pa.DataType) -> bool:
    """Whether Parquet keeps the type's values as integers."""
    return t.is_integer(type) or t.is_temporal(type)


def _bounds(units: FileStatistics, paths: Sequence[str]) -> dict[str, Bounds]:
    """Each column's range over all units, truncated if long."""
    found = {}
    for path in paths:
        column = units.columns.get(path)
        if column is None or len(units) == 0:
            continue
        ranges = column.ranges(units.row_count)
        may_have_value = pc.fill_null(ranges.has_value, True)
        lower, _ = shorten_lower(_extreme(ranges.lower, may_have_value, 0), _SHARD_BOUND_LENGTH)
        upper, _ = shorten_upper(_extreme(ranges.upper, may_have_value, 1), _SHARD_BOUND_LENGTH)
        nulls, nans = _sum(column.null_count), _sum(column.nan_count)
        try:
            ends = t.encode_values(lower)[0], t.encode_values(upper)[0]
        except UnicodeDecodeError as error:
            raise SchemaMismatch(f'The column "{path}" holds a text that is not UTF-8: {error}') from error
        found[path] = Bounds(*ends, nulls, nans)
    return found


def retyped(shards: Sequence[Shard], before: Schema, after: Schema) -> tuple[Shard, ...]:
    """Shards with their ranges in the types of another schema. In JSON, a time has the unit of its column's type."""
    return tuple(shards) if before == after else tuple(_retyped(shard, before, after) for shard in shards)


def _retyped(shard: Shard, before: Schema, after: Schema) -> Shard:
    ranges = dict(shard.ranges)
    for path, bounds in shard.ranges.items():
        old, new = before.columns.get(path), after.columns.get(path)
        if old is None or new is None or old.type == new.type:
            continue
        try:
            ends = t.encode_values(_restored(t.decode_values([bounds.lower, bounds.upper], old.type), new.type))
        except (TypeError, ValueError, ArithmeticError, pa.ArrowException) as error:
            raise DamagedIndex(f'The index holds bounds of "{path}" that are no {old.type}.') from error
        ranges[path] = replace(bounds, lower=ends[0], upper=ends[1])
    return replace(shard, ranges=ranges)


def _extreme(bounds: pa.Array, matters: pa.BooleanArray, side: int) -> pa.Array:
    """The minimum (side 0) or maximum (1) bound of the units that may hold a value, in one slot; unknown if any is."""
    matter = bounds.filter(matters)
    if matter.null_count or not len(matter):
        return pa.nulls(1, bounds.type)
    return of_scalars([ends_of(matter)[side]], bounds.type)


def _sum(counts: pa.Int64Array) -> int | None:
    total: int | None = None if counts.null_count else pc.sum(counts, min_count=0).as_py()
    return total


class ShardReader:
    """Reads one part of a shard by column, and checks what it reads.

    ``lacking``: columns added to the table later, which are NULL in all rows. Raises `DamagedIndex` if the part does
    not match the snapshot.
    """

    def __init__(
        self,
        storage: Storage,
        part: Part | InlinePart,
        rows: int,
        schema: Schema,
        lacking: frozenset[str] = frozenset(),
    ) -> None:
        self._storage, self._part, self._rows, self._schema, self._lacking = storage, part, rows, schema, lacking
        self._columns = (
            _InlineColumns(storage, part) if isinstance(part, InlinePart) else _ParquetColumns(storage, part, rows)
        )

    def columns(self, names: Sequence[str]) -> dict[str, pa.Array]:
        """The part's columns with these names; missing ones are left out."""
        read = self._columns.read(names)
        for name, values in read.items():
            type = _TYPES.get(name.rpartition(".")[2], values.type)
            if values.type not in (type, pa.null()):
                raise DamagedIndex(lost(self._storage, self._part, f'holds {values.type} in "{name}", not {type}'))
            if name == "path" and values.null_count:
                raise DamagedIndex(lost(self._storage, self._part, "names a file by null"))
        return read

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes between two reads."""
        return self._columns.nbytes

    def row_count(self) -> pa.Int64Array:
        """The row count of each unit."""
        return self.columns(["row_count"]).get("row_count", pa.nulls(self._rows, pa.int64()))

    def statistics(self, paths: Sequence[str], *, exactness: bool = True) -> FileStatistics:
        """The statistics of these columns, one slot per unit; columns that the schema lacks are left out.

        ``exactness``: whether to read it. Only min() and max() need it, and pruning does not.
        """
        fields = _FIELDS if exactness else _PROVING
        wanted = {path: self._schema.columns[path].type for path in paths if path in self._schema.columns}
        read = self.columns(["row_count", *(f"{path}.{name}" for path in wanted for name in fields)])
        row_count = read.get("row_count", pa.nulls(self._rows, pa.int64()))
        none = pa.array(np.zeros(self._rows, np.int64))
        columns = {}
        for path, type in wanted.items():
            if path in self._lacking:
                columns[path] = ColumnStatistics.all_null(type, row_count)
                continue
            unknown = ColumnStatistics.unknown(type, self._rows)
            parts = {name: read.get(f"{path}.{name}", getattr(unknown, name)) for name in _FIELDS}
            parts |= {name: _restored(parts[name], type) for name in _FLAT}
            if not t.is_floating(type):
                parts["nan_count"] = none
            columns[path] = ColumnStatistics(**parts)
        return FileStatistics(row_count, columns)


class _InlineColumns:
    """The columns of a part in the log entry."""

    nbytes = 100  # the snapshot holds the values

    def __init__(self, storage: Storage, part: InlinePart) -> None:
        self._storage, self._part = storage, part

    def read(self, names: Sequence[str]) -> dict[str, pa.Array]:
        """The columns with these names; missing ones are left out."""
        try:
            return {name: self._part.column(name) for name in names if name in self._part.columns}
        except (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
            raise DamagedIndex(lost(self._storage, self._part, f"cannot be decoded ({error})")) from error


class _ParquetColumns:
    """The columns of a part that is a Parquet file. Every read is checked against the part's digests."""

    def __init__(self, storage: Storage, part: Part, rows: int) -> None:
        self._file = PartFile(storage, part)
        self._lock = threading.Lock()
        self._storage, self._part = storage, part
        # One request brings the footer, and the whole part where it is small.
        self._file.fetch([(max(0, part.size - 65_536), part.size)])
        try:
            # The reader within pq.ParquetFile, whose import loads all file systems of Arrow: 20 ms of a first look-up.
            self._parquet = ParquetReader()
            self._parquet.open(self._file)
        except pa.ArrowException as error:
            raise DamagedIndex(lost(storage, part, f"is no Parquet file ({error})")) from error
        metadata = self._parquet.metadata
        expanded = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        if metadata.num_rows != rows or expanded > max(_ALWAYS_FINE, part.size * _LARGEST_EXPANSION):
            held = f"holds {metadata.num_rows:,} rows in {expanded:,} bytes"
            raise DamagedIndex(
                lost(storage, part, f"{held}, and its snapshot promises {rows:,} rows in a part of {part.size:,} bytes")
            )
        self._numbers = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}

    def read(self, names: Sequence[str]) -> dict[str, pa.Array]:
        """The columns with these names; missing ones are left out."""
        stored = [name for name in names if name in self._numbers]
        with self._lock:
            extents = [_extent(chunk) for name in stored for chunk in self._chunks(name)]
            self._file.fetch(extents)
            try:
                found = {name: self._in_steps(name) for name in stored if self._unfolds(name)}
                numbers = [self._numbers[name] for name in stored if name not in found]
                table = self._parquet.read_all(column_indices=numbers, use_threads=False)
            except (pa.ArrowException, OSError) as error:
                if not is_damage(error):
                    raise
                raise DamagedIndex(lost(self._storage, self._part, f"cannot be decoded ({error})")) from error
            self._file.release()
        return {name: found[name] if name in found else _one(table.column(name)) for name in stored}

    def _chunks(self, name: str) -> list[pq.ColumnChunkMetaData]:
        metadata = self._parquet.metadata
        return [metadata.row_group(group).column(self._numbers[name]) for group in range(metadata.num_row_groups)]

    def _unfolds(self, name: str) -> bool:
        """Whether few bytes may decode to many: for dictionary- or delta-encoded strings, which zskip never writes."""
        column = self._parquet.metadata.schema.column(self._numbers[name])
        if column.max_repetition_level:
            raise DamagedIndex(lost(self._storage, self._part, f'holds lists in "{name}"'))
        return column.physical_type == "BYTE_ARRAY" and any(
            chunk.has_dictionary_page or not _PLAIN.issuperset(chunk.encodings) for chunk in self._chunks(name)
        )

    def _in_steps(self, name: str) -> pa.Array:
        """A column of strings, decoded in batches up to the most bytes that a part may hold."""
        longest = max(chunk.total_uncompressed_size for chunk in self._chunks(name))
        most, steps = max(_ALWAYS_FINE, self._part.size * _LARGEST_EXPANSION), []
        groups, rows = range(self._parquet.metadata.num_row_groups), max(1, _STEP_BYTES // max(longest, 1))
        for step in self._parquet.iter_batches(rows, groups, [self._numbers[name]]):
            steps.append(step.column(0))
            most -= step.nbytes
            if most < 0:
                raise DamagedIndex(lost(self._storage, self._part, f'unfolds in "{name}" to more than any part holds'))
        return pa.concat_arrays(steps)

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes between two reads: the footer, and a small part's bytes."""
        return 2000 * len(self._numbers) + self._file.kept_bytes


def _restored(bounds: pa.Array, type: pa.DataType) -> pa.Array:
    """Bounds in the table's current type, which may be wider than the one they were written with.

    An int64 may also become an int32, the type in which Spark reads small numbers in folder names; bounds that fit are
    kept. A timestamp may also get or lose its zone, as Spark reads it, with the same ticks.
    """
    if t.is_int64(bounds.type) and t.is_int32(type):
        narrow = bounds.cast(type, safe=False)
        return pc.if_else(pc.equal(narrow.cast(bounds.type), bounds), narrow, pa.scalar(None, type))
    same_ticks = t.is_timestamp(bounds.type) and t.is_timestamp(type) and bounds.type.unit == type.unit
    return bounds.view(type) if same_ticks or bounds.type == t.ticks(type) else widened(bounds, type)


def _extent(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
