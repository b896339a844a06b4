"""Segments: which files hold which keys, as sorted pairs of a key's leading bits and a file's number, in Parquet.

    key (64 bits, left-aligned)   prefix (key_bits)  │ file (file_bits)          one int64 column `pair`, ascending,
    0x9f3a…                       1001111100111010…  │ 00000000101101            without repetition, delta-encoded

A look-up reads the footer and the row groups whose ranges contain its prefixes: usually one, of some hundred kilobytes.
Keys that share a prefix share their files, so a look-up may return a file too many, but never one too few.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache
from numpy.typing import NDArray

from zskip.core.offsets import numbers_of_runs
from zskip.errors import DamagedIndex
from zskip.parquet.arrow_differences import is_damage
from zskip.tablelog.sketches.hashing import Hashes

Numbers = NDArray[np.int64]

RUN_KEY_BITS, RUN_FILE_BITS = 39, 24
_METADATA = b"zskip.segment"
_CHUNK, _READ_AT_ONCE = 1 << 16, 16
_LEAST_GROUP, _LARGEST_GROUP, _GROUPS = 1 << 14, 1 << 20, 256
_CACHED_PAIRS = 1 << 21
_UNREADABLE = (pa.ArrowException, OSError)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The files that a segment covers: disjoint, ascending ranges of ids, from ``first[i]`` to ``first[i] + count[i]``.

    A file's number in the segment is its position in these ranges.
    """

    first: Numbers
    count: Numbers

    def __post_init__(self) -> None:
        if (
            (self.count < 1).any()
            or (self.first < 0).any()
            or (self.first[1:] < self.first[:-1] + self.count[:-1]).any()
        ):
            raise ValueError("the files of a segment are not ascending ranges")

    @staticmethod
    def of(ids: Numbers) -> Coverage:
        """The coverage of these ids, which must be ascending and distinct."""
        starts = np.flatnonzero(np.diff(ids, prepend=ids[:1] - 2) != 1)
        return Coverage(ids[starts], np.diff(starts, append=len(ids)).astype(np.int64))

    @staticmethod
    def union(parts: Iterable[Coverage]) -> Coverage:
        """The files that any of the parts covers; adjacent ranges are joined."""
        runs = np.concatenate([np.zeros((0, 2), np.int64), *(np.stack([p.first, p.first + p.count], 1) for p in parts)])
        first, end = runs[np.argsort(runs[:, 0], kind="stable")].T
        end = np.maximum.accumulate(end)
        begins = np.append(True, first[1:] > end[:-1])[: len(first)]
        starts = first[begins]
        return Coverage(starts, end[np.append(begins[1:], True)[: len(end)]] - starts)

    def __len__(self) -> int:
        return int(self.count.sum())

    def holds(self, first: Numbers, end: Numbers) -> NDArray[np.bool_]:
        """Whether each half-open range of ids lies within one range of the coverage."""
        if not len(self.first):
            return np.zeros(len(first), bool)
        run = np.searchsorted(self.first, first, "right") - 1
        return (run >= 0) & (end <= self.first[run] + self.count[run])

    @property
    def _offset(self) -> Numbers:
        """For each range, the id of a file minus its number."""
        return self.first - (np.cumsum(self.count) - self.count)

    def ids(self, files: Numbers | None = None) -> Numbers:
        """The ids of these file numbers, or of all files."""
        numbers = np.arange(len(self), dtype=np.int64) if files is None else files
        run = np.searchsorted(np.cumsum(self.count), numbers, "right")
        return cast(Numbers, numbers + self._offset[run])

    def numbers(self, ids: Numbers) -> Numbers:
        """The numbers of the files with these ids; −1 where the segment does not cover the file."""
        run = np.searchsorted(self.first, ids, "right") - 1
        known = (run >= 0) & (ids < self.first[run] + self.count[run])
        return cast(Numbers, np.where(known, ids - self._offset[run], -1))


class Pairs(Protocol):
    """Sorted pairs, in memory or in a segment."""

    @property
    def key_bits(self) -> int: ...

    @property
    def file_bits(self) -> int: ...

    def __len__(self) -> int: ...

    def boundaries(self) -> Numbers:
        """A sample of the pairs, ascending: between two of them lie at most as many as in a row group."""

    def between(self, first: int, last: int) -> Numbers:
        """The pairs from ``first`` to ``last``, both included, ascending."""


@dataclass(frozen=True, slots=True)
class Run:
    """Pairs in memory or in a memory-mapped spill file."""

    pairs: Numbers
    key_bits: int = RUN_KEY_BITS
    file_bits: int = RUN_FILE_BITS

    @staticmethod
    def of(keys: Hashes, file: int) -> Numbers:
        """The pairs of one file's keys, in the order of the keys."""
        prefixes = (keys >> np.uint64(64 - RUN_KEY_BITS)).view(np.int64)
        return prefixes << RUN_FILE_BITS | file

    def __len__(self) -> int:
        return len(self.pairs)

    def boundaries(self) -> Numbers:
        return np.array(self.pairs[::_CHUNK])

    def between(self, first: int, last: int) -> Numbers:
        start, end = np.searchsorted(self.pairs, first), np.searchsorted(self.pairs, last, "right")
        return np.array(self.pairs[start:end])


@dataclass(frozen=True, slots=True)
class MergeInput:
    """Pairs to merge into a new segment. ``numbers``: the new number of each file, −1 for a removed file."""

    pairs: Pairs
    numbers: Numbers

    def read(self, low: int, high: int, key_bits: int, file_bits: int) -> Numbers:
        """The pairs with prefixes in ``[low, high)``, renumbered and cut to ``key_bits``; in any order."""
        pairs = self.pairs
        shift = pairs.file_bits + pairs.key_bits - key_bits
        found = pairs.between(low << shift, (high << shift) - 1)
        files = self.numbers[found & ((1 << pairs.file_bits) - 1)]
        kept = files >= 0
        return cast(Numbers, (found[kept] >> shift) << file_bits | files[kept])


def write_segment(sink: BinaryIO, inputs: Sequence[MergeInput], coverage: Coverage, key_bits: int) -> int:
    """Merge the inputs into one segment, in bounded memory. Returns the number of pairs written.

    ``key_bits``: the bits of each key to store, at most those of any input.
    """
    file_bits = max(1, (len(coverage) - 1).bit_length())
    if key_bits + file_bits > 63 or any(source.pairs.key_bits < key_bits for source in inputs):
        raise ValueError(f"the inputs do not give pairs of {key_bits} + {file_bits} bits")
    most_pairs = sum(len(source.pairs) for source in inputs)
    rows = min(max(most_pairs // _GROUPS, _LEAST_GROUP), _LARGEST_GROUP)
    schema = pa.schema([pa.field("pair", pa.int64(), nullable=False)])
    written, waiting = 0, np.zeros(0, np.int64)
    smallest: list[int] = []
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=False,
        column_encoding={"pair": "DELTA_BINARY_PACKED"},
        write_statistics=False,
        store_schema=False,
        version="2.6",
    )
    with writer:
        for chunk in _merged(inputs, key_bits, file_bits):
            waiting = np.concatenate([waiting, chunk])
            whole = len(waiting) // rows * rows
            for start in range(0, whole, rows):
                smallest.append(int(waiting[start]))
                writer.write_table(pa.table([pa.array(waiting[start : start + rows])], schema=schema))
            written, waiting = written + whole, waiting[whole:]
        if len(waiting):
            smallest.append(int(waiting[0]))
            writer.write_table(pa.table([pa.array(waiting)], schema=schema))
        described = {
            "key_bits": key_bits,
            "file_bits": file_bits,
            "first": coverage.first.tolist(),
            "count": coverage.count.tolist(),
            "smallest": smallest,
        }
        writer.add_key_value_metadata({_METADATA: json.dumps(described).encode()})
    return written + len(waiting)


def _merged(inputs: Sequence[MergeInput], key_bits: int, file_bits: int) -> Iterator[Numbers]:
    """All pairs of the new segment, ascending and distinct, in chunks of some hundred thousand."""
    prefixes = [
        source.pairs.boundaries() >> (source.pairs.file_bits + source.pairs.key_bits - key_bits) for source in inputs
    ]
    cuts = np.unique(np.sort(np.concatenate([np.zeros(1, np.int64), *prefixes]))[::_READ_AT_ONCE]).tolist()
    for low, high in zip(cuts, [*cuts[1:], 1 << key_bits], strict=True):
        pairs = np.concatenate([source.read(low, high, key_bits, file_bits) for source in inputs])
        pairs.sort(kind="stable")  # timsort merges the runs that are sorted already: mostly each input
        yield pairs[np.diff(pairs, prepend=-1) != 0]


class Segment:
    """A segment opened for look-ups. Threads may share one. Raises `DamagedIndex` if the file is not a segment."""

    def __init__(self, file: Any, name: str, release: Callable[[], None] = lambda: None) -> None:
        """``file``: anything pyarrow opens · ``name``: for error messages · ``release``: called after each read."""
        self._name, self._release = name, release
        self._lock = threading.Lock()
        self._groups: LRUCache[int, Numbers] = LRUCache(_CACHED_PAIRS, len)
        try:
            self._parquet = pq.ParquetFile(file)
            metadata = self._parquet.metadata
            fields = json.loads((metadata.metadata or {})[_METADATA])
            self.coverage = Coverage(np.array(fields["first"], np.int64), np.array(fields["count"], np.int64))
            self.key_bits, self.file_bits = int(fields["key_bits"]), int(fields["file_bits"])
            groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
            # Not from the footer's statistics: pyarrow aborts the process on damaged ones.
            self._first = np.array(fields["smallest"], np.int64)
            self._rows = metadata.num_rows
            fits = metadata.schema.column(0).physical_type == "INT64" and metadata.num_columns == 1
            fits &= all(group.num_rows <= _LARGEST_GROUP for group in groups)
            fits &= self._first.shape == (len(groups),) and (np.diff(self._first) > 0).all()
            fits &= 0 < self.key_bits <= 63 - self.file_bits
            fits &= len(self.coverage) <= 1 << self.file_bits
        except (*_UNREADABLE, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            if isinstance(error, OSError) and not is_damage(error):
                raise
            raise DamagedIndex(f"{name} is not a segment of a sketch ({error})") from error
        if not fits:
            raise DamagedIndex(f"{name} is not a segment of a sketch")
        release()

    def __len__(self) -> int:
        return int(self._rows)

    def distinct_keys(self) -> int:
        """The number of distinct prefixes. Reads the whole segment."""
        found, last = 0, -1
        for number in range(len(self._first)):
            prefixes = self._group(number) >> self.file_bits
            found += int(np.count_nonzero(np.diff(prefixes, prepend=last)))
            last = prefixes[-1]
        return found

    def boundaries(self) -> Numbers:
        return self._first

    def between(self, first: int, last: int) -> Numbers:
        begin = max(int(np.searchsorted(self._first, first, "right")) - 1, 0)
        stop = int(np.searchsorted(self._first, last, "right"))
        pairs = np.concatenate([np.zeros(0, np.int64), *map(self._group, range(begin, stop))])
        return pairs[np.searchsorted(pairs, first) : np.searchsorted(pairs, last, "right")]

    def find(self, keys: Hashes) -> tuple[Numbers, Numbers]:
        """The files that may hold each key, as two arrays: positions in ``keys``, and numbers of files."""
        prefixes = (keys >> np.uint64(64 - self.key_bits)).view(np.int64)
        lows = prefixes << self.file_bits
        highs = lows + ((1 << self.file_bits) - 1)  # the last pair of the prefix
        first = np.maximum(np.searchsorted(self._first, lows, "right") - 1, 0)
        last = np.searchsorted(self._first, highs, "right")
        positions, files = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for number in _numbers_between(first, last):
            within = np.flatnonzero((first <= number) & (number < last))
            pairs = self._group(number)
            starts, ends = np.searchsorted(pairs, lows[within]), np.searchsorted(pairs, highs[within], "right")
            positions.append(np.repeat(within, ends - starts))
            files.append(pairs[numbers_of_runs(starts, ends)] & ((1 << self.file_bits) - 1))
        return np.concatenate(positions), np.concatenate(files)

    def files_holding(self, keys: Hashes, wanted: Numbers) -> NDArray[np.bool_]:
        """Whether each file, by number, may hold any of the keys. Only the slots of the ``wanted`` files are valid.

        Stops reading once all wanted files are found.
        """
        lows = np.sort(keys >> np.uint64(64 - self.key_bits)).view(np.int64) << self.file_bits
        highs = lows + ((1 << self.file_bits) - 1)
        begins = np.searchsorted(highs, self._first)
        ends = np.append(np.searchsorted(lows, self._first[1:]), len(lows))
        held = np.zeros(1 << self.file_bits, bool)
        for number in np.flatnonzero(begins < ends).tolist():
            within = slice(begins[number], ends[number])
            pairs = self._group(number)
            starts, stops = np.searchsorted(pairs, lows[within]), np.searchsorted(pairs, highs[within], "right")
            held[pairs[numbers_of_runs(starts, stops)] & ((1 << self.file_bits) - 1)] = True
            if held[wanted].all():
                break
        if held[len(self.coverage) :].any():
            raise DamagedIndex(f"{self._name} names files that it does not cover")
        return held

    def _group(self, number: int) -> Numbers:
        """The pairs of a row group, from an LRU cache."""
        with self._lock:
            if number in self._groups:
                return self._groups[number]
            try:
                column = self._parquet.read_row_group(number, use_threads=False).column(0)
            except _UNREADABLE as error:
                if not is_damage(error):
                    raise
                raise DamagedIndex(f"{self._name} cannot be decoded ({error})") from error
            if column.type != pa.int64() or column.null_count:
                raise DamagedIndex(f"{self._name} holds something other than pairs")
            pairs = np.concatenate([np.zeros(0, np.int64), *(np.asarray(chunk) for chunk in column.chunks)])
            self._release()
            self._require_pairs(number, pairs)
            self._groups[number] = pairs
            return pairs

    def _require_pairs(self, number: int, pairs: Numbers) -> None:
        """Raise `DamagedIndex` unless these can be the pairs of this row group."""
        end = self._first[number + 1] if number + 1 < len(self._first) else 1 << (self.key_bits + self.file_bits)
        files = pairs & ((1 << self.file_bits) - 1)
        if (
            not len(pairs)
            or pairs[0] != self._first[number]
            or pairs[0] < 0
            or pairs[-1] >= end
            or (pairs[1:] <= pairs[:-1]).any()
            or int(files.max()) >= len(self.coverage)
        ):
            raise DamagedIndex(f"{self._name} holds pairs out of order, or of files that it does not cover")


LookUp: TypeAlias = Callable[[Segment, Numbers | None], Numbers]
"""Asks a segment for the numbers of the files that may satisfy a condition. The second argument: the files, by number,
among which they are wanted; others may be left out then."""


def _numbers_between(first: NDArray[np.intp], last: NDArray[np.intp]) -> list[int]:
    """The union of the half-open ranges, ascending."""
    numbers: set[int] = set()
    for start, end in {*zip(first.tolist(), last.tolist(), strict=True)}:
        numbers.update(range(start, end))
    return sorted(numbers)
