"""Open, publish and merge the segments of a table's sketches, so that few remain after any number of commits.

Segments of about one size become one whenever enough have come together (O'Neil 1996, the log-structured merge-tree),
in the commit that adds the last of them; `optimize` makes one of all.
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
from zskip.sketches import SKETCHES, SketchBuilder, SketchName
from zskip.sketches.pairs import Coverage, MergeInput, Segment, write_segment
from zskip.storage.storage import Storage
from zskip.tablelog.index import Index
from zskip.tablelog.parts import Drafts, PartFile
from zskip.tablelog.sketch_records import SegmentRecord, SketchRecord
from zskip.tablelog.snapshot import Snapshot

__all__ = [
    "merged_crowds",
    "merged_wholly",
    "new_ids",
    "open_segment",
    "published",
    "require_selective",
    "segment_paths",
]

_LOG = logging.getLogger("zskip")
FOLDER, SUFFIX = "sketches", ".sketch"  # no suffix of data files: globs find those too
_FEW_FILES, _NEARLY_ALL = 10, 0.9
_FANOUTS = ((1 << 16, 2), (1 << 20, 4), (1 << 62, 8))
"""Of one order of magnitude (a factor of four), so many segments become one, by how many entries they have."""


def open_segment(storage: Storage, record: SegmentRecord) -> Segment:
    """A segment to look up in. Raises `DamagedIndex`."""
    file = PartFile(storage, record.part)
    return Segment(file, f"The part {record.part.path} of the index of {storage.uri}", file.release)


def new_ids(files: int) -> pa.Int64Array:
    """Ids of as many files: one after another, from a number that no one has drawn before in all likelihood.

    Were two files of a table to get one id, a look-up that finds either would keep both.
    """
    return pa.array(np.arange(files) + secrets.randbits(62))


def published(
    drafts: Drafts, builder: SketchBuilder, ids: Mapping[str, int], threads: int = 1
) -> tuple[SketchRecord, ...]:
    """The segments of all that a builder has collected, written; ``ids``: of the files by path."""
    if not len(builder):
        return tuple(map(SketchRecord, builder.names))

    def written(name: SketchName) -> SketchRecord:
        part, entries = drafts.write(FOLDER, SUFFIX, lambda sink: builder.write(name, sink, ids))
        return SketchRecord(name, (SegmentRecord(part, len(builder), entries),))

    with ThreadPoolExecutor(threads, thread_name_prefix="zskip-sketch") as pool:
        return tuple(pool.map(written, builder.names))


def require_selective(storage: Storage, record: SketchRecord) -> None:
    """Raise `InvalidOption` for a sketch that would skip next to nothing: nearly every file holds nearly every key."""
    for segment in record.segments:
        keys = 0 if segment.files < _FEW_FILES else open_segment(storage, segment).distinct_keys()
        if keys and segment.entries > _NEARLY_ALL * keys * segment.files:
            kind = "value" if record.name.kind == "values" else "piece of text"
            raise InvalidOption(
                f'A sketch of "{record.name.column}" would skip next to nothing: each {kind} of its {keys:,} lies in '
                f"{segment.entries / keys / segment.files:.0%} of the {segment.files:,} files. Cluster by the column, "
                "or leave the sketch out."
            )


def merged_crowds(drafts: Drafts, sketches: Sequence[SketchRecord]) -> tuple[SketchRecord, ...]:
    """The same sketches in fewer segments, where enough of one size have come together."""
    return tuple(_without_crowds(drafts, record) for record in sketches)


def _without_crowds(drafts: Drafts, record: SketchRecord) -> SketchRecord:
    if record.name.kind not in SKETCHES:
        return record  # of a later zskip
    while (crowd := _crowd(record.segments)) is not None:
        try:
            one = _merged(drafts, record, [record.segments[number] for number in crowd], None)
        except DamagedIndex:
            return record  # A commit does not fail for it: plans name the damaged part, and repair rebuilds it.
        rest = [segment for number, segment in enumerate(record.segments) if number not in crowd]
        record = replace(record, segments=(*rest, *one))
    return record


def _crowd(segments: Sequence[SegmentRecord]) -> list[int] | None:
    """The first segments, by number, of one order of magnitude that are enough to be merged."""
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
    """The same snapshot with one segment for each sketch; a sketch that cannot be read stays as it is."""
    index = Index(drafts.storage, snapshot)
    alive = np.sort(np.asarray(index.ids(np.arange(len(index))).drop_null()))
    return replace(snapshot, sketches=tuple(_merged_all(drafts, sketch, alive) for sketch in snapshot.sketches))


def _merged_all(drafts: Drafts, record: SketchRecord, alive: NDArray[np.int64]) -> SketchRecord:
    """The same sketch in one segment, of the files that still are in the table: ``alive``, their ids, ascending.

    A sketch that is one such segment already stays as it is; so does one that cannot be read, which skips nothing.
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
    """These segments as one; none where it would know no file."""
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
