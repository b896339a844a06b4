"""Segments: which files hold which keys, as sorted pairs of a key's first bits and a file's number, in Parquet.

    key (64 bits, left-aligned)   prefix (key_bits)  │ file (file_bits)          one int64 column `pair`, ascending,
    0x9f3a…                       1001111100111010…  │ 00000000101101            without repetition, delta-encoded

A look-up reads the footer and the row groups whose range holds its prefixes: mostly one of some hundred kilobytes. Two
keys with one prefix name each other's files: a file too many is read, never one too few.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache
from numpy.typing import NDArray

from zskip.errors import DamagedIndex
from zskip.offsets import numbers_of_runs
from zskip.sketches.hashing import Hashes

__all__ = ["Coverage", "Pairs", "Run", "Segment", "Source", "write_segment"]

Numbers = NDArray[np.int64]

RUN_KEY_BITS, RUN_FILE_BITS = 39, 24
_METADATA = b"zskip.segment"
_CHUNK, _READ_AT_ONCE = 1 << 16, 16
_LEAST_GROUP, _LARGEST_GROUP, _GROUPS = 1 << 14, 1 << 20, 256
_CACHED_PAIRS = 1 << 21
_UNREADABLE = (pa.ArrowException, OSError)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The files that a segment covers: disjoint, ascending runs of ids, ``first[i]`` to ``first[i] + count[i]``.

    A file's number in the segment is its position in these runs.
    """

    first: Numbers
    count: Numbers

    def __post_init__(self) -> None:
        if (
            (self.count < 1).any()
            or (self.first < 0).any()
            or (self.first[1:] < self.first[:-1] + self.count[:-1]).any()
        ):
            raise ValueError("the files of a segment are no ascending runs")

    @staticmethod
    def of(ids: Numbers) -> Coverage:
        """The runs of these ids, which ascend without repetition."""
        starts = np.flatnonzero(np.diff(ids, prepend=ids[:1] - 2) != 1)
        return Coverage(ids[starts], np.diff(starts, append=len(ids)).astype(np.int64))

    @staticmethod
    def union(parts: Iterable[Coverage]) -> Coverage:
        """The files that any of them covers; runs that touch are one."""
        runs = np.concatenate([np.zeros((0, 2), np.int64), *(np.stack([p.first, p.first + p.count], 1) for p in parts)])
        first, end = runs[np.argsort(runs[:, 0], kind="stable")].T
        end = np.maximum.accumulate(end)
        begins = np.append(True, first[1:] > end[:-1])[: len(first)]
        starts = first[begins]
        return Coverage(starts, end[np.append(begins[1:], True)[: len(end)]] - starts)

    def __len__(self) -> int:
        return int(self.count.sum())

    def holds(self, first: Numbers, end: Numbers) -> NDArray[np.bool_]:
        """Of half-open ranges of ids, whether each lies in a single run."""
        if not len(self.first):
            return np.zeros(len(first), bool)
        run = np.searchsorted(self.first, first, "right") - 1
        return (run >= 0) & (end <= self.first[run] + self.count[run])

    @property
    def _offset(self) -> Numbers:
        """What is taken from an id of a run to get a file's number."""
        return self.first - (np.cumsum(self.count) - self.count)

    def ids(self, files: Numbers | None = None) -> Numbers:
        """The ids of files by number, or of all."""
        numbers = np.arange(len(self), dtype=np.int64) if files is None else files
        run = np.searchsorted(np.cumsum(self.count), numbers, "right")
        return cast(Numbers, numbers + self._offset[run])

    def numbers(self, ids: Numbers) -> Numbers:
        """The numbers of files by id; −1 where the segment knows nothing of the file."""
        run = np.searchsorted(self.first, ids, "right") - 1
        known = (run >= 0) & (ids < self.first[run] + self.count[run])
        return cast(Numbers, np.where(known, ids - self._offset[run], -1))


class Pairs(Protocol):
    """Sorted pairs, wherever they lie."""

    @property
    def key_bits(self) -> int: ...

    @property
    def file_bits(self) -> int: ...

    def __len__(self) -> int: ...

    def boundaries(self) -> Numbers:
        """Some of the pairs, ascending, with at most a row group's between two of them."""

    def between(self, first: int, last: int) -> Numbers:
        """The pairs from ``first`` to ``last``, both included, ascending."""


@dataclass(frozen=True, slots=True)
class Run:
    """Pairs in memory, or in a spill file that is mapped into it."""

    pairs: Numbers
    key_bits: int = RUN_KEY_BITS
    file_bits: int = RUN_FILE_BITS

    @staticmethod
    def of(keys: Hashes, file: int) -> Numbers:
        """The pairs of one file's keys, in any order."""
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
class Source:
    """Pairs to be written to a segment. ``numbers``: the new number of each file, −1 for removed files."""

    pairs: Pairs
    numbers: Numbers

    def read(self, low: int, high: int, key_bits: int, file_bits: int) -> Numbers:
        """The pairs with prefixes from ``low`` to below ``high``, in the form of the new segment; in any order."""
        pairs, finer = self.pairs, self.pairs.key_bits - key_bits
        shift = pairs.file_bits + finer
        found = pairs.between(low << shift, (high << shift) - 1)
        files = self.numbers[found & ((1 << pairs.file_bits) - 1)]
        kept = files >= 0
        return cast(Numbers, (found[kept] >> shift) << file_bits | files[kept])


def write_segment(sink: BinaryIO, sources: Sequence[Source], coverage: Coverage, key_bits: int) -> int:
    """Write the pairs of all sources as one segment, in bounded memory. Returns their number.

    ``key_bits``: the bits of each key to store, at most those of each source.
    """
    file_bits = max(1, (len(coverage) - 1).bit_length())
    if key_bits + file_bits > 63 or any(source.pairs.key_bits < key_bits for source in sources):
        raise ValueError(f"pairs of {key_bits} + {file_bits} bits cannot be made of these")
    about = sum(len(source.pairs) for source in sources)
    rows = min(max(about // _GROUPS, _LEAST_GROUP), _LARGEST_GROUP)
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
        for chunk in _merged(sources, key_bits, file_bits):
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


def _merged(sources: Sequence[Source], key_bits: int, file_bits: int) -> Iterator[Numbers]:
    """All pairs in the new form, ascending and without repetition, some hundred thousand at a time."""
    prefixes = [
        source.pairs.boundaries() >> (source.pairs.file_bits + source.pairs.key_bits - key_bits) for source in sources
    ]
    cuts = np.unique(np.sort(np.concatenate([np.zeros(1, np.int64), *prefixes]))[::_READ_AT_ONCE]).tolist()
    for low, high in zip(cuts, [*cuts[1:], 1 << key_bits], strict=True):
        pairs = np.concatenate([source.read(low, high, key_bits, file_bits) for source in sources])
        pairs.sort(kind="stable")  # which merges what is in order already: mostly all of each source
        yield pairs[np.diff(pairs, prepend=-1) != 0]


class Segment:
    """A segment for look-ups, safe to share between threads. Raises `DamagedIndex` where the file is not a segment."""

    def __init__(self, file: Any, name: str, release: Callable[[], None] = lambda: None) -> None:
        """``file``: what pyarrow opens · ``name``: for messages · ``release``: called after each reading."""
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
            # Not from the footer's statistics: pyarrow ends the process over damaged ones.
            self._first = np.array(fields["smallest"], np.int64)
            self._rows = metadata.num_rows
            fits = metadata.schema.column(0).physical_type == "INT64" and metadata.num_columns == 1
            fits &= all(group.num_rows <= _LARGEST_GROUP for group in groups)
            fits &= self._first.shape == (len(groups),) and (np.diff(self._first) > 0).all()
            fits &= 0 < self.key_bits <= 63 - self.file_bits
            fits &= len(self.coverage) <= 1 << self.file_bits
        except (*_UNREADABLE, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise DamagedIndex(f"{name} is no segment of a sketch ({error})") from error
        if not fits:
            raise DamagedIndex(f"{name} is no segment of a sketch")
        release()

    def __len__(self) -> int:
        return int(self._rows)

    def distinct_keys(self) -> int:
        """How many keys of different prefixes it holds. Reads all of it."""
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
        """The files that may hold each key: pairs of a key's position in ``keys`` and a file's number."""
        prefixes = (keys >> np.uint64(64 - self.key_bits)).view(np.int64)
        lows = prefixes << self.file_bits
        highs = lows + ((1 << self.file_bits) - 1)  # the last pair of the prefix
        first = np.maximum(np.searchsorted(self._first, lows, "right") - 1, 0)
        last = np.searchsorted(self._first, highs, "right")
        asked, files = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for number in _numbers_between(first, last):
            within = np.flatnonzero((first <= number) & (number < last))
            pairs = self._group(number)
            starts, ends = np.searchsorted(pairs, lows[within]), np.searchsorted(pairs, highs[within], "right")
            asked.append(np.repeat(within, ends - starts))
            files.append(pairs[numbers_of_runs(starts, ends)] & ((1 << self.file_bits) - 1))
        return np.concatenate(asked), np.concatenate(files)

    def files_holding(self, keys: Hashes, asked: Numbers) -> NDArray[np.bool_]:
        """Of every file by number, whether it may hold one of any number of keys; right for those that are ``asked``.

        It reads no further once all of these are found.
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
            if held[asked].all():
                break
        if held[len(self.coverage) :].any():
            raise DamagedIndex(f"{self._name} names files that it does not know")
        return held

    def _group(self, number: int) -> Numbers:
        """The pairs of a row group; those that were read last are kept."""
        with self._lock:
            if number in self._groups:
                return self._groups[number]
            try:
                column = self._parquet.read_row_group(number, use_threads=False).column(0)
            except _UNREADABLE as error:
                raise DamagedIndex(f"{self._name} cannot be decoded ({error})") from error
            if column.type != pa.int64() or column.null_count:
                raise DamagedIndex(f"{self._name} holds something other than pairs")
            pairs = np.concatenate([np.zeros(0, np.int64), *(np.asarray(chunk) for chunk in column.chunks)])
            self._release()
            self._require_pairs(number, pairs)
            self._groups[number] = pairs
            return pairs

    def _require_pairs(self, number: int, pairs: Numbers) -> None:
        """Raises `DamagedIndex` unless these can be the pairs of a row group."""
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
            raise DamagedIndex(f"{self._name} holds pairs out of order, or of files that it does not know")


def _numbers_between(first: NDArray[np.intp], last: NDArray[np.intp]) -> list[int]:
    """Every number of the half-open ranges, once, ascending."""
    numbers: set[int] = set()
    for start, end in {*zip(first.tolist(), last.tolist(), strict=True)}:
        numbers.update(range(start, end))
    return sorted(numbers)
