"""Open, publish and merge the segments of a table's sketches, so that few remain after any number of commits.

Once there are enough segments of similar size, the commit that adds the last one merges them (O'Neil 1996, the
log-structured merge-tree). `optimize` merges all segments.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.errors import DamagedIndex, InvalidOption
from zskip.storage.storage import Storage
from zskip.tablelog.index import Index
from zskip.tablelog.parts import Drafts, PartFile
from zskip.tablelog.sketches import SKETCHES, SketchBuilder, SketchName
from zskip.tablelog.sketches.pairs import Coverage, MergeInput, Segment, write_segment
from zskip.tablelog.snapshot import SegmentRecord, SketchRecord, Snapshot

_LOG = logging.getLogger("zskip")
FOLDER, SUFFIX = "sketches", ".sketch"  # not a data file's suffix, which globs would match
_FEW_FILES, _NEARLY_ALL = 10, 0.9
_FANOUTS = ((1 << 16, 2), (1 << 20, 4), (1 << 62, 8))
"""How many segments of one size class (a factor of four) are merged: (upper limit of entries, number of segments)."""


def open_segment(storage: Storage, record: SegmentRecord) -> Segment:
    """Open a segment for look-ups. Raises `DamagedIndex`."""
    file = PartFile(storage, record.part)
    return Segment(file, f"The part {record.part.path} of the index of {storage.uri}", file.release)


def new_ids(files: int) -> pa.Int64Array:
    """Consecutive ids for new files, from a random start that is unique in all likelihood.

    If two files had the same id, a look-up that finds one would keep both.
    """
    return pa.array(np.arange(files) + secrets.randbits(62))


def published(
    drafts: Drafts, builder: SketchBuilder, ids: Mapping[str, int], threads: int = 1
) -> tuple[SketchRecord, ...]:
    """Write the segments of everything a builder has collected. ``ids``: of the files, by path."""
    if not len(builder):
        return tuple(map(SketchRecord, builder.names))

    def written(name: SketchName) -> SketchRecord:
        part, entries = drafts.write(FOLDER, SUFFIX, lambda sink: builder.write(name, sink, ids))
        return SketchRecord(name, (SegmentRecord(part, len(builder), entries),))

    with ThreadPoolExecutor(threads, thread_name_prefix="zskip-sketch") as pool:
        return tuple(pool.map(written, builder.names))


def require_selective(storage: Storage, record: SketchRecord) -> None:
    """Raise `InvalidOption` for a sketch that skips almost nothing: nearly every file holds nearly every key."""
    for segment in record.segments:
        keys = 0 if segment.files < _FEW_FILES else open_segment(storage, segment).distinct_keys()
        if keys and segment.entries > _NEARLY_ALL * keys * segment.files:
            key = SKETCHES[record.name.kind].key
            raise InvalidOption(
                f'A sketch of "{record.name.column}" would skip next to nothing: each {key} of its {keys:,} lies in '
                f"{segment.entries / keys / segment.files:.0%} of the {segment.files:,} files. Cluster by the column, "
                "or leave the sketch out."
            )


def merged_crowds(drafts: Drafts, sketches: Sequence[SketchRecord]) -> tuple[SketchRecord, ...]:
    """The same sketches, with segments of similar size merged where there are enough of them."""
    return tuple(_without_crowds(drafts, record) for record in sketches)


def _without_crowds(drafts: Drafts, record: SketchRecord) -> SketchRecord:
    if record.name.kind not in SKETCHES:
        return record  # a kind of a later zskip
    while (crowd := _crowd(record.segments)) is not None:
        try:
            one = _merged(drafts, record, [record.segments[number] for number in crowd], None)
        except DamagedIndex:
            return record  # Do not fail the commit: plans report the damaged part, and repair rebuilds it.
        rest = [segment for number, segment in enumerate(record.segments) if number not in crowd]
        record = replace(record, segments=(*rest, *one))
    return record


def _crowd(segments: Sequence[SegmentRecord]) -> list[int] | None:
    """The numbers of segments of one size class that has enough of them to merge; None if no class has enough."""
    levels: dict[int, list[int]] = {}
    for number, segment in enumerate(segments):
        level = levels.setdefault(max(segment.entries.bit_length() - 1, 0) // 2, [])
        level.append(number)
        if len(level) == next(fanout for entries, fanout in _FANOUTS if segment.entries < entries):
            return level
    return None


def segment_paths(sketches: Sequence[SketchRecord]) -> frozenset[str]:
    """The paths of all segments of some sketches."""
    return frozenset(segment.part.path for sketch in sketches for segment in sketch.segments)


def merged_wholly(drafts: Drafts, snapshot: Snapshot) -> Snapshot:
    """The same snapshot with one segment per sketch; an unreadable sketch stays as it is."""
    index = Index(drafts.storage, snapshot)
    alive = np.sort(np.asarray(index.ids(np.arange(len(index))).drop_null()))
    return replace(snapshot, sketches=tuple(_merged_all(drafts, sketch, alive) for sketch in snapshot.sketches))


def _merged_all(drafts: Drafts, record: SketchRecord, alive: NDArray[np.int64]) -> SketchRecord:
    """The same sketch in one segment, restricted to the live files. ``alive``: their ids, ascending.

    A sketch that has such a segment already, or cannot be read, stays as it is.
    """
    if record.name.kind not in SKETCHES:
        return record
    try:
        if len(record.segments) == 1:
            known = open_segment(drafts.storage, record.segments[0]).coverage.ids()
            if np.isin(known, alive, assume_unique=True).all():
                return record
        return replace(record, segments=_merged(drafts, record, record.segments, alive))
    except DamagedIndex as error:
        _LOG.warning('The sketch "%s" of the column %s is not merged: %s', record.name.kind, record.name.column, error)
        return record


def _merged(
    drafts: Drafts, record: SketchRecord, segments: Sequence[SegmentRecord], alive: NDArray[np.int64] | None
) -> tuple[SegmentRecord, ...]:
    """These segments merged into one; none if it would cover no file. ``alive``: ids to keep, ascending; None: all."""
    opened = [open_segment(drafts.storage, segment) for segment in segments]
    ids = np.unique(np.concatenate([np.zeros(0, np.int64), *(segment.coverage.ids() for segment in opened)]))
    if alive is not None:
        ids = ids[np.isin(ids, alive, assume_unique=True)]
    if not len(ids):
        return ()
    coverage = Coverage.of(ids)
    sources = [MergeInput(segment, coverage.numbers(segment.coverage.ids())) for segment in opened]
    wanted = SKETCHES[record.name.kind].key_bits(sum(segment.entries for segment in segments))
    most = 63 - max(1, (len(coverage) - 1).bit_length())
    key_bits = min(wanted, most, *(segment.key_bits for segment in opened))
    part, entries = drafts.write(FOLDER, SUFFIX, lambda sink: write_segment(sink, sources, coverage, key_bits))
    return (SegmentRecord(part, len(ids), entries),)
