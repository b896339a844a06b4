"""`SketchEvidence`: implements `zskip.pruning.Evidence` with the sketches of a snapshot.

    constants ──hash──▶ keys ──look-up in each segment──▶ ids of files ──▶ their numbers in the snapshot

A file that no readable segment covers may hold any value.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.errors import DamagedIndex
from zskip.language.tree import Contains, Reference, Scalar
from zskip.tablelog.index import Index
from zskip.tablelog.segments import open_segment
from zskip.tablelog.sketch_records import SketchRecord
from zskip.tablelog.sketches import SketchName, substrings
from zskip.tablelog.sketches.hashing import Hashes, can_hash, hashes
from zskip.tablelog.sketches.pairs import Coverage, Segment
from zskip.tablelog.snapshot import Shard

_LOG = logging.getLogger("zskip")

Ints = NDArray[np.int64]
_Answer = TypeVar("_Answer")

_MOST_PAIRS = 1 << 24
"""The most pairs of an uncovered file and a value that `may_hold` lists."""


@dataclass(frozen=True, slots=True)
class _Shard:
    """``known``: whether a segment covers each file of a shard; ``ids``: ascending; ``order``: each id's row."""

    known: NDArray[np.bool_]
    ids: Ints
    order: Ints


@dataclass(slots=True)
class Sketches:
    """The sketches of an index, opened on first use. Threads may share one.

    ``unreadable``: for each sketch with unreadable segments, the error; these segments skip nothing.
    """

    index: Index
    unreadable: dict[SketchName, str] = field(default_factory=dict)
    _opened: dict[SketchName, tuple[Segment, ...]] = field(default_factory=dict)
    _shards: dict[tuple[SketchName, int], _Shard] = field(default_factory=dict)
    _unknown: dict[SketchName, Ints] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def evidence(self, files: Ints, columns: list[str]) -> SketchEvidence | None:
        """Evidence about units, given the number of each one's file (ascending); None if no column has a sketch."""
        sketched = any(sketch.name.column in columns for sketch in self.index.snapshot.sketches)
        return SketchEvidence(self, files) if sketched else None

    def record(self, name: SketchName) -> SketchRecord | None:
        """The sketch with this name; None if the table lacks it."""
        return next((sketch for sketch in self.index.snapshot.sketches if sketch.name == name), None)

    def segments(self, record: SketchRecord) -> tuple[Segment, ...]:
        """The readable segments of a sketch."""
        with self._lock:
            if record.name not in self._opened:
                opened = []
                for segment in record.segments:
                    try:
                        opened.append(open_segment(self.index.parts, segment))
                    except DamagedIndex as error:
                        self._report(record, error)
                self._opened[record.name] = tuple(opened)
            return self._opened[record.name]

    def knows(self, record: SketchRecord) -> NDArray[np.bool_]:
        """Whether a readable segment covers each file of the index."""
        shards = range(len(self.index.snapshot.shards))
        return np.concatenate([np.zeros(0, bool), *(self.shard(record, shard).known for shard in shards)])

    def shard(self, record: SketchRecord, shard: int) -> _Shard:
        """The coverage of a shard's files by the segments of a sketch."""
        key = record.name, shard
        if key not in self._shards:
            files = np.arange(self.index.first_file[shard], self.index.first_file[shard + 1])
            ids = np.asarray(self.index.ids(files).fill_null(-1))
            known = np.zeros(len(files), bool)
            for segment in self.segments(record):
                known |= segment.coverage.numbers(ids) >= 0
            order = np.argsort(ids, kind="stable").astype(np.int64)
            self._shards[key] = _Shard(known & (ids >= 0), ids[order], order)
        return self._shards[key]

    def holding(self, term: Scalar, values: pa.Array) -> Ints | None:
        """As `UnitSearch.holding`: files by number."""
        record = self.sketch_of(term, "values")
        if record is None or not can_hash(values.type):
            return None
        keys = hashes(values)
        return self._all_with(record, lambda segment: segment.find(keys))

    def containing(self, condition: Contains) -> Ints | None:
        """As `UnitSearch.containing`: files by number."""
        record = self.sketch_of(condition.term, "substrings")
        wanted = substrings.trigrams(condition.text, any_case=condition.folded)
        if record is None or not len(wanted):
            return None
        return self._all_with(record, partial(_files_with, wanted=wanted))

    def sketch_of(self, term: Scalar, kind: str) -> SketchRecord | None:
        """The sketch of a term; None if the term is not a column or has none of this kind."""
        return self.record(SketchName(term.path, kind)) if isinstance(term, Reference) else None

    def _all_with(self, record: SketchRecord, find: Callable[[Segment], tuple[Ints, Ints]]) -> Ints:
        """The files that a look-up finds, and those that no segment covers."""
        while (found := self.found(record, find)) is None:
            pass  # retry without the unreadable segment
        return np.union1d(found[0], self._nowhere(record))

    def _nowhere(self, record: SketchRecord) -> Ints:
        """The files that no segment covers, ascending. Reads the ids of shards only if their ranges do not suffice."""
        if record.name not in self._unknown:
            covered = Coverage.union(segment.coverage for segment in self.segments(record))
            first = self.index.first_file
            self._unknown[record.name] = np.concatenate([
                np.zeros(0, np.int64),
                *(np.flatnonzero(~self.shard(record, shard).known) + first[shard]
                  for shard in self._shard_ids.beyond(covered).tolist()),
            ])  # fmt: skip
        return self._unknown[record.name]

    @property
    def _shard_ids(self) -> ShardIds:
        shards = self.index.snapshot.shards
        return self.index.once("ids of shards", lambda: ShardIds.of(shards), lambda found: 24 * len(found.first))

    def _report(self, record: SketchRecord, error: DamagedIndex) -> None:
        """The caller holds the lock."""
        if record.name not in self.unreadable:
            _LOG.warning(
                'The sketch "%s" of the column %s cannot be read, and skips nothing: %s',
                record.name.kind,
                record.name.column,
                error,
            )
        self.unreadable[record.name] = str(error)

    def answer(self, record: SketchRecord, segment: Segment, ask: Callable[[Segment], _Answer]) -> _Answer | None:
        """The result of ``ask``; None if the segment cannot be read. Later look-ups skip such a segment."""
        try:
            return ask(segment)
        except DamagedIndex as error:
            with self._lock:
                self._report(record, error)
                self._opened[record.name] = tuple(each for each in self._opened[record.name] if each is not segment)
                self._shards = {key: each for key, each in self._shards.items() if key[0] != record.name}
                self._unknown.pop(record.name, None)
            return None

    def found(
        self, record: SketchRecord, find: Callable[[Segment], tuple[Ints, Ints]], shards: list[int] | None = None
    ) -> tuple[Ints, Ints] | None:
        """The result of a look-up in these shards (None: in all): numbers of files, and the key found in each.

        None if a segment cannot be read. Later look-ups skip such a segment.
        """
        what, ids = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for segment in self.segments(record):
            one = self.answer(record, segment, find)
            if one is None:
                return None
            what.append(one[0])
            ids.append(segment.coverage.ids(one[1]))
        all_ids, all_what = np.concatenate(ids), np.concatenate(what)
        numbers, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        holding = self._shard_ids.holding(all_ids)
        for shard in (holding if shards is None else holding[np.isin(holding, shards)]).tolist():
            known = self.shard(record, shard)
            low, high = np.searchsorted(known.ids, all_ids), np.searchsorted(known.ids, all_ids, "right")
            hit, row = _expanded(low, high)
            numbers.append(known.order[row] + self.index.first_file[shard])
            places.append(all_what[hit])
        return np.concatenate(numbers), np.concatenate(places)


def sketches_of(index: Index) -> Sketches:
    """The sketches of an index, opened once for all plans."""
    return index.once("sketches", lambda: Sketches(index), lambda _: 1 << 20)


def _expanded(low: NDArray[np.intp], high: NDArray[np.intp]) -> tuple[Ints, Ints]:
    """Every number of the half-open ranges, after the position of its range."""
    counts = high - low
    place = np.repeat(np.arange(len(low), dtype=np.int64), counts)
    return place, np.arange(counts.sum(), dtype=np.int64) + np.repeat(low - (np.cumsum(counts) - counts), counts)


def _files_with(segment: Segment, wanted: Hashes) -> tuple[Ints, Ints]:
    """The files of a segment that hold all of these trigrams, as both keys and files of a look-up's result."""
    files = substrings.files_with(segment, wanted)
    return files, files


@dataclass(frozen=True, slots=True)
class SketchEvidence:
    """Evidence about units, each a file or a part of one. ``files``: the number of each one's file (ascending)."""

    sketches: Sketches
    files: Ints

    def may_hold(self, term: Scalar, values: pa.Array, units: Ints) -> tuple[Ints, Ints] | None:
        """As `Evidence.may_hold`."""
        record = self.sketches.sketch_of(term, "values")
        if record is None or not can_hash(values.type):
            return None
        keys = hashes(values)
        files, shards = self.files[units], self._shards(units)
        found = self.sketches.found(record, lambda segment: segment.find(keys), shards)
        if found is None:
            return self.may_hold(term, values, units)  # retry without the unreadable segment
        unknown = units[~self._known(record, files, shards)]
        if len(unknown) * len(values) > _MOST_PAIRS:
            return None
        hit, place = _expanded(np.searchsorted(files, found[0]), np.searchsorted(files, found[0], "right"))
        return (
            np.concatenate([units[place], np.repeat(unknown, len(values))]),
            np.concatenate([found[1][hit], np.tile(np.arange(len(values), dtype=np.int64), len(unknown))]),
        )

    def may_hold_any(self, term: Scalar, values: pa.Array, units: Ints) -> NDArray[np.bool_] | None:
        """As `Evidence.may_hold_any`."""
        record = self.sketches.sketch_of(term, "values")
        if record is None or not can_hash(values.type):
            return None
        keys, ids = hashes(values), self._ids(record, self.files[units], self._shards(units))
        known, held = np.zeros(len(units), bool), np.zeros(len(units), bool)
        for segment in self.sketches.segments(record):
            numbers = segment.coverage.numbers(ids)
            here = numbers >= 0
            asked = numbers[here]
            found = self.sketches.answer(record, segment, partial(Segment.files_holding, keys=keys, wanted=asked))
            if found is not None:
                known |= here
                held[here] |= found[asked]
        return held | ~known

    def may_contain(self, condition: Contains, units: Ints) -> NDArray[np.bool_] | None:
        """As `Evidence.may_contain`."""
        record = self.sketches.sketch_of(condition.term, "substrings")
        wanted = substrings.trigrams(condition.text, any_case=condition.folded)
        if record is None or not len(wanted):
            return None
        find = partial(_files_with, wanted=wanted)
        files, shards = self.files[units], self._shards(units)
        found = self.sketches.found(record, find, shards)
        if found is None:
            return self.may_contain(condition, units)
        may = ~self._known(record, files, shards)
        may[_expanded(np.searchsorted(files, found[0]), np.searchsorted(files, found[0], "right"))[1]] = True
        return may

    def _shards(self, units: Ints) -> list[int]:
        """The shards of these units' files."""
        ends = np.searchsorted(self.files[units], self.sketches.index.first_file)
        return np.flatnonzero(np.diff(ends)).tolist()

    def _ids(self, record: SketchRecord, files: Ints, shards: list[int]) -> Ints:
        """The ids of these files (ascending), which are in these shards; −1 for a file without one."""
        first, ids = self.sketches.index.first_file, [np.zeros(0, np.int64)]
        for shard in shards:
            known = self.sketches.shard(record, shard)
            by_place = np.empty_like(known.ids)
            by_place[known.order] = known.ids
            begin, end = np.searchsorted(files, first[shard : shard + 2])
            ids.append(by_place[files[begin:end] - first[shard]])
        return np.concatenate(ids)

    def _known(self, record: SketchRecord, files: Ints, shards: list[int]) -> NDArray[np.bool_]:
        """Whether a segment covers each of these files (ascending), which are in these shards."""
        first = self.sketches.index.first_file
        ends = np.searchsorted(files, first)
        parts = [
            self.sketches.shard(record, shard).known[files[ends[shard] : ends[shard + 1]] - first[shard]]
            for shard in shards
        ]
        return np.concatenate([np.zeros(0, bool), *parts])


@dataclass(frozen=True, slots=True)
class ShardIds:
    """The ranges of ids of all shards, from ``first`` to below ``end``, each with the number of its ``shard``.

    ``unrecorded``: the shards for which the snapshot records no ids.
    """

    first: Ints
    end: Ints
    shard: Ints
    unrecorded: Ints

    @staticmethod
    def of(shards: Sequence[Shard]) -> ShardIds:
        """The ranges of a snapshot's shards."""
        runs = [(*run, number) for number, shard in enumerate(shards) for run in shard.ids]
        first, count, owner = np.array(runs, np.int64).reshape(-1, 3).T
        unrecorded = np.array([number for number, shard in enumerate(shards) if not shard.ids], np.int64)
        return ShardIds(first, first + count, owner, unrecorded)

    def holding(self, ids: Ints) -> Ints:
        """The shards that may hold a file of one of these ids, ascending."""
        ordered = np.sort(ids)
        hit = np.searchsorted(ordered, self.end) > np.searchsorted(ordered, self.first)
        return np.union1d(self.shard[hit], self.unrecorded)

    def beyond(self, covered: Coverage) -> Ints:
        """The shards that may hold a file whose id is not covered, ascending."""
        return np.union1d(self.shard[~covered.holds(self.first, self.end)], self.unrecorded)
