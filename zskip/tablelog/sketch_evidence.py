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
from numpy.typing import NDArray

from zskip.errors import DamagedIndex
from zskip.language.tree import Contains, In, Reference
from zskip.tablelog.index import Index
from zskip.tablelog.segments import open_segment
from zskip.tablelog.sketches import SKETCHES, SketchName
from zskip.tablelog.sketches.pairs import Coverage, LookUp, Segment
from zskip.tablelog.snapshot import Shard, SketchRecord

_LOG = logging.getLogger("zskip")

Ints = NDArray[np.int64]
_Answer = TypeVar("_Answer")


@dataclass(slots=True)
class Sketches:
    """The sketches of an index, opened on first use. Threads may share one.

    ``unreadable``: for each sketch with unreadable segments, the error; these segments skip nothing.
    """

    index: Index
    unreadable: dict[SketchName, str] = field(default_factory=dict)
    _opened: dict[SketchName, tuple[Segment, ...]] = field(default_factory=dict)
    _unknown: dict[SketchName, Ints] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def evidence(self, files: Ints, columns: list[str]) -> SketchEvidence | None:
        """Evidence about units, given the number of each one's file (ascending); None if no column has a sketch."""
        sketched = any(sketch.name.column in columns for sketch in self.index.snapshot.sketches)
        return SketchEvidence(self, files) if sketched else None

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
        known = np.ones(len(self.index), bool)
        known[self._nowhere(record)] = False
        return known

    def _ids(self, shard: int) -> tuple[Ints, Ints, Ints]:
        """The ids of a shard's files, -1 for a file without one; and the ids ascending, with each one's file."""
        first, end = self.index.first_file[shard : shard + 2]

        def read() -> tuple[Ints, Ints, Ints]:
            ids = np.asarray(self.index.ids(np.arange(first, end)).fill_null(-1))
            order = np.argsort(ids, kind="stable")
            return ids, ids[order], order + first

        return self.index.once(("ids", shard), read, lambda found: 3 * found[0].nbytes)

    def ids(self, files: Ints) -> Ints:
        """The ids of these files (ascending); -1 for a file without one."""
        parts = [self._ids(shard)[0][rows] for shard, rows in self.index.by_shard(files)]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def matching(self, condition: In | Contains) -> Ints | None:
        """As `UnitSearch.matching`: files by number."""
        known = self.look_up(condition)
        if known is None:
            return None
        record, ask = known
        return self._all_with(record, lambda segment: ask(segment, None))

    def look_up(self, condition: In | Contains) -> tuple[SketchRecord, LookUp] | None:
        """The sketch that can tell of a condition, and how to ask its segments; None if there is none."""
        path = condition.term.path if isinstance(condition.term, Reference) else None
        for record in self.index.snapshot.sketches:
            kind = SKETCHES.get(record.name.kind) if record.name.column == path else None
            if kind is not None and (ask := kind.look_up(condition)) is not None:
                return record, ask
        return None

    def _all_with(self, record: SketchRecord, find: Callable[[Segment], Ints]) -> Ints:
        """The files that a look-up finds, and those that no segment covers."""
        while (found := self._found(record, find)) is None:
            pass  # retry without the unreadable segment
        return np.union1d(found, self._nowhere(record))

    def _nowhere(self, record: SketchRecord) -> Ints:
        """The files that no segment covers, ascending. Reads the ids of shards only if their ranges do not suffice."""
        if record.name not in self._unknown:
            covered = Coverage.union(segment.coverage for segment in self.segments(record))
            unknown = [np.zeros(0, np.int64)]
            for _, ids, files in map(self._ids, self._shard_ids.beyond(covered).tolist()):
                unknown.append(files[~covered.holds(ids, ids + 1)])
            self._unknown[record.name] = np.sort(np.concatenate(unknown))
        return self._unknown[record.name]

    @property
    def _shard_ids(self) -> ShardIds:
        shards = self.index.snapshot.shards
        return self.index.once("ids of shards", lambda: ShardIds.of(shards), lambda found: 24 * len(found.first))

    def _report(self, record: SketchRecord, error: DamagedIndex) -> None:
        """The caller holds the lock."""
        if record.name not in self.unreadable:
            _LOG.warning(
                'Plans of %s read more files than they need: the sketch "%s" of the column %s %s.',
                self.index.storage.uri,
                record.name.kind,
                record.name.column,
                "is gone, as after a vacuum. Open the table again"
                if isinstance(error.__cause__, FileNotFoundError)
                else "is damaged. zskip.repair makes it anew",
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
                self._unknown.pop(record.name, None)
            return None

    def _found(self, record: SketchRecord, find: Callable[[Segment], Ints]) -> Ints | None:
        """The files that a look-up finds; None if a segment cannot be read. Later look-ups skip such a segment."""
        found = [np.zeros(0, np.int64)]
        for segment in self.segments(record):
            files = self.answer(record, segment, find)
            if files is None:
                return None
            found.append(segment.coverage.ids(files))
        ids, numbers = np.unique(np.concatenate(found)), [np.zeros(0, np.int64)]
        for _, known, files in map(self._ids, self._shard_ids.holding(ids).tolist()):
            numbers.append(files[np.isin(known, ids)])
        return np.concatenate(numbers)


def sketches_of(index: Index) -> Sketches:
    """The sketches of an index, opened once for all plans."""
    return index.once("sketches", lambda: Sketches(index), lambda _: 1 << 20)


@dataclass(frozen=True, slots=True)
class SketchEvidence:
    """Evidence about units, each a file or a part of one. ``files``: the number of each one's file (ascending)."""

    sketches: Sketches
    files: Ints

    def may_match(self, condition: In | Contains, units: Ints) -> NDArray[np.bool_] | None:
        """As `Evidence.may_match`: the file of a unit may in some segment, or no segment covers it."""
        found = self.sketches.look_up(condition)
        if found is None:
            return None
        record, ask = found
        known, answers = self._asked(record, units, lambda wanted, segment: ask(segment, wanted))
        may = ~known
        for numbers, files in answers:
            may |= np.isin(numbers, files)
        return may

    def _asked(
        self, record: SketchRecord, units: Ints, ask: Callable[[Ints, Segment], _Answer]
    ) -> tuple[NDArray[np.bool_], list[tuple[Ints, _Answer]]]:
        """Whether a readable segment covers each unit's file; and the answer of each segment that covers some.

        Each answer comes with the number of each unit's file in its segment, -1 for none. ``ask`` is given the
        numbers of the files asked for, and a segment.
        """
        files = self.files[units]
        first = np.diff(files, prepend=-1) != 0  # of the units of each file, which are neighbours
        place = np.cumsum(first) - 1
        ids = self.sketches.ids(files[first])
        known, answers = np.zeros(len(units), bool), []
        for segment in self.sketches.segments(record):
            numbers = segment.coverage.numbers(ids)
            wanted = numbers[numbers >= 0]
            answer = self.sketches.answer(record, segment, partial(ask, wanted)) if len(wanted) else None
            if answer is not None:
                numbers = numbers[place]
                answers.append((numbers, answer))
                known |= numbers >= 0
        return known, answers


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
