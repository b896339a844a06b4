"""`Index`: the statistics of a snapshot, read on demand by level and column, and cached."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import xxhash
from cachetools import LRUCache

from zskip.core.offsets import int64s, numbers_of_runs, offsets_of
from zskip.core.schema import Schema
from zskip.errors import DamagedIndex, UnsafePath, amount
from zskip.stats import DataFiles, FileStatistics, Ranges, Statistics
from zskip.storage.storage import Storage, unsafe_paths
from zskip.tablelog.parts import lost
from zskip.tablelog.shards import ShardReader
from zskip.tablelog.snapshot import Snapshot
from zskip.tablelog.table_folders import SOURCE_FORMATS

if TYPE_CHECKING:
    from zskip.tablelog.query_log import QueryLog

_Value = TypeVar("_Value")
_Level: TypeAlias = Literal["file", "row group"]
CACHE_BYTES = 1 << 30

_JOINED_SHARDS, _JOINED_SHARE = 4, 4
"""The concatenated statistics of up to 4 shards are cached, since look-ups repeat; those of more shards only if the
whole table's would fit in a quarter of the cache: otherwise one scan would evict everything else."""


@dataclass(frozen=True, slots=True)
class FileUnits:
    """Files as units of pruning. ``numbers``: each file's number in the snapshot, ascending int64."""

    numbers: np.ndarray
    statistics: Statistics

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        return int(self.numbers.nbytes) + self.statistics.nbytes


@dataclass(frozen=True, slots=True)
class RowGroupUnits:
    """Row groups as units of pruning: the number of each one's ``file``, and of the ``row_group`` in it (int64)."""

    file: np.ndarray
    row_group: np.ndarray
    statistics: Statistics

    def __len__(self) -> int:
        return len(self.file)


class Index:
    """A snapshot's statistics: immutable, and safe to share between threads.

    A file's number is its position in the snapshot: shard by shard, in layout order. ``first_file[i]``: the number of
    the first file of shard i; the last slot is the number of files · ``cache_bytes``: the most memory for cached
    statistics, of which the least recently used are evicted · ``parts``: the storage of the statistics, if it is not
    that of the data files.
    """

    def __init__(
        self, storage: Storage, snapshot: Snapshot, cache_bytes: int = CACHE_BYTES, parts: Storage | None = None
    ) -> None:
        self.storage = storage
        self.parts = storage if parts is None else parts
        self.snapshot = snapshot
        self.cache_bytes = cache_bytes
        self._kept: LRUCache[Any, tuple[Any, int]] = LRUCache(max(cache_bytes, 1), lambda kept: kept[1])
        self._lock = threading.Lock()

    @cached_property
    def first_file(self) -> np.ndarray:
        return offsets_of([shard.totals.files for shard in self.snapshot.shards])

    @cached_property
    def has_row_groups(self) -> bool:
        return any(shard.row_group_part is not None for shard in self.snapshot.shards)

    @property
    def source(self) -> str | None:
        """The format whose log this index follows, "delta" or "iceberg"; None for a zskip table."""
        found = self.snapshot.details.get("source")
        return found if found in SOURCE_FORMATS else None

    @property
    def version(self) -> int:
        """The table's version: that of a zskip or Delta table, or the snapshot id of an Iceberg table."""
        return self.snapshot.version if self.source is None else int(self.snapshot.details["version"])

    @cached_property
    def schema(self) -> Schema:
        """The columns with statistics: those of the table, and the attributes of its dimensions."""
        return self.snapshot.indexed

    @cached_property
    def identity(self) -> str | None:
        """A text that only this version of this table has; None for a folder, whose files may change."""
        snapshot, source = self.snapshot, self.source
        if source is not None:
            # The columns of an Iceberg table may be renamed between two snapshots, and a Delta table that was put back
            # from a backup may have other files in a version of the same number.
            content = xxhash.xxh64(snapshot.schema.arrow.serialize())
            every = np.arange(len(self), dtype=np.int64)
            files = zip(self.recorded_paths(every).to_pylist(), self.deletes(every).to_pylist(), strict=True)
            for path, deletes in sorted(files):
                content.update(f"{path} ".encode() + (deletes or b""))
            return f"{source} {snapshot.details['table']} {self.version} {content.hexdigest()}"
        return f"zskip {snapshot.table_id} {snapshot.version} {snapshot.commit_id}" if snapshot.managed else None

    def __len__(self) -> int:
        return int(self.first_file[-1])

    def __repr__(self) -> str:
        return f"<Index of {self.storage.uri}, version {self.snapshot.version}: {amount(len(self), 'file')}>"

    @cached_property
    def query_log(self) -> QueryLog:
        """What this table was asked on this machine, if that is logged."""
        from zskip.tablelog.query_log import QueryLog  # only a plan of a predicate is logged

        # The side-car of a table of another format may be made anew: its own id outlives that.
        table_id = self.snapshot.table_id if self.source is None else str(self.snapshot.details["table"])
        return QueryLog(self.storage.uri, table_id)

    def once(self, key: Any, make: Callable[[], _Value], size: Callable[[Any], int] = attrgetter("nbytes")) -> _Value:
        """The cached value of a key, made if it is missing. ``size``: its bytes. Two threads may both make it."""
        with self._lock:
            if key in self._kept:
                return self._kept[key][0]  # type: ignore[no-any-return]
        value = make()
        with self._lock:
            # A value larger than the whole cache is cached alone.
            self._kept[key] = value, min(size(value), max(self.cache_bytes, 1))
        return value

    # --- one unit per shard ---

    def shards(self, paths: Sequence[str]) -> Statistics:
        """The ranges of these columns over each shard."""
        return self.once(("shards", tuple(paths)), lambda: self.snapshot.statistics(paths), lambda _: 4096)

    # --- one unit per file ---

    def _reader(self, level: _Level, shard: int) -> ShardReader:
        """The reader of a shard's statistics. A shard without those of row groups has one row group in each file."""
        record = self.snapshot.shards[shard]
        part, rows = record.file_part, record.totals.files
        if level == "row group" and record.row_group_part is not None:
            part, rows = record.row_group_part, record.totals.row_groups
        return self.once(
            (level, shard),
            lambda: ShardReader(self.parts, part, rows, self.schema, self.snapshot.lacking(record)),
        )

    def _shard_statistics(self, level: _Level, shard: int, paths: Sequence[str]) -> Statistics:
        """The ranges of a whole shard from the cache; all missing columns are read at once."""
        if self.snapshot.shards[shard].row_group_part is None:
            level = "file"
        reader = self._reader(level, shard)
        known = [path for path in paths if path in self.schema.columns]
        with self._lock:
            missing = [path for path in known if (level, shard, path) not in self._kept]

        def read(columns: Sequence[str]) -> Statistics:
            return reader.statistics(columns, exactness=False).statistics()

        found = read(missing) if missing else None

        def ranges(path: str) -> Ranges:
            # Another thread may have evicted a column since it was looked up.
            return (found if path in missing and found else read([path])).columns[path]

        row_count = self.once(
            (level, shard, None),
            lambda: self._checked_total(
                shard, "row_count", reader.row_count() if found is None else found.row_count, level
            ),
        )
        columns = {path: self.once((level, shard, path), partial(ranges, path)) for path in known}
        return Statistics(row_count, columns)

    def files(self, shards: np.ndarray | Sequence[int] | None, paths: Sequence[str]) -> FileUnits:
        """The files of these shards (numbers, ascending; None: all), with the ranges of these columns."""
        chosen = tuple(range(len(self.snapshot.shards)) if shards is None else (int(shard) for shard in shards))

        def joined() -> FileUnits:
            numbers = numbers_of_runs(self.first_file[list(chosen)], self.first_file[[shard + 1 for shard in chosen]])
            return FileUnits(numbers, _concat([self._shard_statistics("file", shard, paths) for shard in chosen]))

        everything = len(self) * (1 + len(paths)) * _UNIT_BYTES
        if len(chosen) < 2 or (len(chosen) > _JOINED_SHARDS and everything > self.cache_bytes // _JOINED_SHARE):
            return joined()
        return self.once(("files", chosen, tuple(paths)), joined)

    def files_at(self, numbers: np.ndarray, paths: Sequence[str]) -> FileUnits:
        """The files with these numbers (ascending), with the ranges of these columns; only their shards are read."""
        parts = [self._shard_statistics("file", shard, paths).take(rows) for shard, rows in self.by_shard(numbers)]
        return FileUnits(numbers, _concat(parts))

    def by_shard(self, files: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """The shards of these files (ascending), each with the rows of its files in the shard."""
        ends = np.searchsorted(files, self.first_file)
        hit = np.flatnonzero(np.diff(ends))
        return [(int(one), files[ends[one] : ends[one + 1]] - self.first_file[one]) for one in hit]

    def _file_column(self, name: str, files: np.ndarray, type: pa.DataType) -> pa.Array:
        def read(shard: int) -> pa.Array:
            unknown = pa.nulls(self.snapshot.shards[shard].totals.files, type)
            return self._checked_total(shard, name, self._reader("file", shard).columns([name]).get(name, unknown))

        parts = []
        for shard, rows in self.by_shard(files):
            column = self.once(("column", shard, name), partial(read, shard))
            parts.append(column if len(rows) == len(column) else column.take(pa.array(rows)))
        return pa.concat_arrays(parts) if parts else pa.array([], type)

    def _checked_total(self, shard: int, name: str, values: pa.Array, level: _Level = "file") -> pa.Array:
        """The same values. Raises `DamagedIndex` if their sum is not the total that the snapshot records."""
        record = self.snapshot.shards[shard]
        total = {"row_count": record.totals.rows, "size": record.totals.bytes}.get(name) if level == "file" else None
        if total is not None:
            found = None if values.null_count else int(int64s(values).sum())
            if found != total:
                what = f'adds up to {found} in "{name}", and its snapshot promises {total:,}'
                raise DamagedIndex(lost(self.parts, record.file_part, what))
        return values

    def paths(self, files: np.ndarray) -> pa.StringArray:
        """The paths of files by number (ascending). Raises `UnsafePath` for one outside the table."""
        found = self._file_column("path", files, pa.string())
        self.storage.require_inside(found)
        return found

    def recorded_paths(self, files: np.ndarray) -> pa.StringArray:
        """The paths of files by number (ascending), unchecked."""
        return self._file_column("path", files, pa.string())

    def shard_paths(self, shard: int) -> pa.StringArray:
        """The paths of all files of a shard. Raises `UnsafePath`."""
        found = self._file_column("path", np.arange(self.first_file[shard], self.first_file[shard + 1]), pa.string())
        for path in unsafe_paths(found):
            raise UnsafePath(f'The index of {self.storage.uri} names the file "{path}", which is outside the table.')
        return found

    def sizes(self, files: np.ndarray) -> pa.Int64Array:
        """The bytes of files by number (ascending)."""
        return self._file_column("size", files, pa.int64())

    def modified(self, files: np.ndarray) -> pa.Int64Array:
        """The modification times of files by number (ascending), nanoseconds since the epoch."""
        return self._file_column("modified", files, pa.int64())

    def etags(self, files: np.ndarray) -> pa.StringArray:
        """The ETags of files by number (ascending)."""
        return self._file_column("etag", files, pa.string())

    def ids(self, files: np.ndarray) -> pa.Int64Array:
        """The ids by which sketches refer to files, by number (ascending); null for files in no sketch."""
        return self._file_column("id", files, pa.int64())

    def row_counts(self, files: np.ndarray) -> pa.Int64Array:
        """The rows of files by number (ascending)."""
        return self._file_column("row_count", files, pa.int64())

    def row_group_counts(self, files: np.ndarray) -> np.ndarray:
        """The number of row groups of files by number (ascending), int64."""
        counts = self._file_column("row_groups", files, pa.int32())
        return np.asarray(counts).astype(np.int64)

    def deletes(self, files: np.ndarray) -> pa.BinaryArray:
        """The deleted rows of files by number (ascending), in the form of `DataFiles.deletes`."""
        return self._file_column("deletes", files, pa.binary())

    def file_statistics(self, files: np.ndarray, paths: Sequence[str]) -> FileStatistics:
        """Bounds, counts and exactness of files by number (ascending), which aggregates need and pruning does not."""
        parts = [self._reader("file", shard).statistics(paths).take(rows) for shard, rows in self.by_shard(files)]
        return FileStatistics.concat(parts) if parts else FileStatistics(pa.array([], pa.int64()), {})

    # --- one unit per row group ---

    def _first_row_group(self, shard: int) -> np.ndarray:
        """The number of each file's first row group in the shard, and the total. Raises `DamagedIndex`."""

        def counted() -> np.ndarray:
            counts = self.row_group_counts(np.arange(self.first_file[shard], self.first_file[shard + 1]))
            first = offsets_of(counts)
            record = self.snapshot.shards[shard]
            if first[-1] != record.totals.row_groups or (counts < 0).any():
                what = f"counts {first[-1]:,} row groups, and its snapshot {record.totals.row_groups:,}"
                raise DamagedIndex(lost(self.parts, record.file_part, what))
            return first

        return self.once(("first row group", shard), counted)

    def row_groups(self, files: np.ndarray, paths: Sequence[str]) -> RowGroupUnits:
        """The row groups of files by number (ascending), with the ranges of these columns."""
        owners, numbers, parts = [], [], []
        for shard, rows in self.by_shard(files):
            first = self._first_row_group(shard)
            starts, ends = first[rows], first[rows + 1]
            units = numbers_of_runs(starts, ends)
            owners.append(np.repeat(rows + self.first_file[shard], ends - starts))
            numbers.append(units - np.repeat(starts, ends - starts))
            parts.append(self._shard_statistics("row group", shard, paths).take(units))
        nothing = np.zeros(0, np.int64)
        return RowGroupUnits(np.concatenate([nothing, *owners]), np.concatenate([nothing, *numbers]), _concat(parts))

    # --- everything ---

    def data_files(self, shards: Sequence[int] | None = None) -> DataFiles:
        """All statistics of the files of some shards (None: all), in the form that `commit` takes."""
        chosen = range(len(self.snapshot.shards)) if shards is None else shards
        parts = [self._data_files(shard) for shard in chosen]
        return DataFiles.concat(parts) if parts else self._no_files

    def _data_files(self, shard: int) -> DataFiles:
        numbers = np.arange(self.first_file[shard], self.first_file[shard + 1])
        paths = list(self.schema.columns)
        files = self._reader("file", shard).statistics(paths)
        of_files = self.snapshot.shards[shard].row_group_part is None
        return DataFiles(
            self.shard_paths(shard),
            self.sizes(numbers),
            self.modified(numbers),
            self.etags(numbers),
            files,
            files if of_files else self._reader("row group", shard).statistics(paths),
            self._first_row_group(shard),
            self.deletes(numbers),
            self.ids(numbers),
        )

    @cached_property
    def _no_files(self) -> DataFiles:
        none = FileStatistics(pa.array([], pa.int64()), {})
        numbers, texts = pa.array([], pa.int64()), pa.array([], pa.string())
        return DataFiles(texts, numbers, numbers, texts, none, none, np.zeros(1, np.int64))


def _concat(parts: Sequence[Statistics]) -> Statistics:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Statistics(pa.array([], pa.int64()), {})
    columns = {
        path: Ranges(
            *(
                pa.concat_arrays([getattr(part.columns[path], name) for part in parts])
                for name in ("lower", "upper", "has_value", "has_null", "has_nan")
            )
        )
        for path in parts[0].columns
    }
    return Statistics(pa.concat_arrays([part.row_count for part in parts]), columns)


_UNIT_BYTES = 24
"""The approximate size of a numeric column's range of one unit: its bounds and flags."""
