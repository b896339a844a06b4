"""`SketchRecord`: the record of a sketch in a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from zskip.core.types import Json
from zskip.tablelog.parts import Part
from zskip.tablelog.sketches import SketchName

_MOST_SEGMENTS = 10_000


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A part that holds a segment. ``files``: the number covered; ``entries``: the number of pairs of key and file."""

    part: Part
    files: int
    entries: int


@dataclass(frozen=True, slots=True)
class SketchRecord:
    """A sketch of a table. Every plan keeps the files that none of its segments covers."""

    name: SketchName
    segments: tuple[SegmentRecord, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of its segments in bytes."""
        return sum(segment.part.size for segment in self.segments)

    def to_json(self) -> dict[str, Json]:
        return {
            "column": self.name.column,
            "kind": self.name.kind,
            "segments": [
                {"part": segment.part.to_json(), "files": segment.files, "entries": segment.entries}
                for segment in self.segments
            ],
        }

    @staticmethod
    def from_json(json: Json) -> SketchRecord:
        """Raises `KeyError`, `TypeError` or `ValueError` for an invalid record."""
        segments = []
        for one in json["segments"]:
            files, entries = one["files"], one["entries"]
            if type(files) is not int or type(entries) is not int or files < 0 or entries < 0:
                raise ValueError("a segment has a number of files and of entries")
            segments.append(SegmentRecord(Part.from_json(one["part"]), files, entries))
        if len(segments) > _MOST_SEGMENTS:
            raise ValueError(f"no sketch has {len(segments):,} segments")
        return SketchRecord(SketchName(str(json["column"]), str(json["kind"])), tuple(segments))


def with_segments(records: Sequence[SketchRecord], new: Sequence[SketchRecord]) -> tuple[SketchRecord, ...]:
    """The sketches with the segments of ``new`` added. A sketch that was dropped meanwhile stays dropped."""
    added = {record.name: record.segments for record in new}
    return tuple(replace(one, segments=(*one.segments, *added.get(one.name, ()))) for one in records)
