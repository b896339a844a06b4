"""`Snapshot`: one committed state of a table as a value, and its JSON form with a checksum."""

from __future__ import annotations

import base64
import gzip
import json
import re
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pyarrow as pa
import xxhash

from zskip.core.schema import Schema
from zskip.core.types import Json, decode_values
from zskip.errors import DamagedIndex, TableError, UnsupportedFormat
from zskip.stats import ColumnStatistics, FileStatistics, Statistics
from zskip.tablelog.dimensions import Dimension, with_attributes
from zskip.tablelog.parts import InlinePart, Part

FORMAT = 3
FEATURES: frozenset[str] = frozenset()
"""The features that this zskip knows, which an entry may require of its readers (`requires`). None was needed yet."""

# The fields of entries by the object that holds them. A writer refuses an entry with any other: see `Snapshot.unknown`.
_KNOWN = {
    "snapshot": {
        *("version", "table_id", "commit_id", "parent", "operation", "time", "details", "totals", "managed"),
        *("partition_by", "applications", "added", "removed", "uniform", "layout", "schema", "sketches", "shards"),
        *("horizon", "last_vacuum", "doomed", "requires", "dimensions"),
        "ancestors",  # of format 1
    },
    "shard": {"version", "files", "row_groups", "rows", "bytes", "file_part", "row_group_part", "ranges", "ids"},
    "dimension": {"name", "uri", "keys", "attributes", "rows"},  # the last in older entries
    "layout": {"name", "columns", "options", "assignment", "part"},  # the last two until format 2
    "sketch": {"column", "kind", "segments"},
    "segment": {"part", "files", "entries"},
    "part": {"path", "size", "xxh3_64", "columns"},
}
_LARGEST_ENTRY = 1 << 28
# Limits above any real table, which bound the memory of a plan over a forged snapshot.
_MOST_FILES, _MOST_FILES_A_SHARD, _MOST_ROW_GROUPS_A_SHARD = 1 << 28, 1 << 20, 1 << 26
_MOST_SEGMENTS = 10_000
_HEAD = re.compile(rb'\{"zskip":(\d{1,9}),"xxh3_128":"([0-9a-f]{32})","snapshot":')
_LAST_TIME, _TICK = datetime.max.replace(tzinfo=UTC), timedelta(microseconds=1)
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of a table or a shard. A count is None if statistics given by the user lack it."""

    files: int
    row_groups: int
    rows: int | None
    bytes: int | None

    @staticmethod
    def of(parts: Sequence[Totals]) -> Totals:
        """The sum of the parts."""
        counts = [[getattr(part, one.name) for part in parts] for one in fields(Totals)]
        sums: list[Any] = [None if None in count else sum(count) for count in counts]
        return Totals(*sums)

    def to_json(self) -> dict[str, int | None]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @staticmethod
    def from_json(json: Json) -> Totals:
        counts = [_get(json, one.name, int, optional=one.name in ("rows", "bytes")) for one in fields(Totals)]
        if any(count is not None and not 0 <= count < 1 << 62 for count in counts):
            raise ValueError(f"no table holds {counts}")
        return Totals(*counts)


@dataclass(frozen=True, slots=True)
class Bounds:
    """One column's range over a whole shard, in the JSON form of `values`; None is "unknown"."""

    lower: Json
    upper: Json
    nulls: int | None
    nans: int | None


@dataclass(frozen=True, slots=True)
class Shard:
    """Up to some thousands of files, and the parts that hold their statistics.

    ``version``: the table's version for which the parts were written; those of a few files lie in the entry itself.
    ``row_group_part`` is None if every file has exactly one row group, whose statistics are then the file's. ``ids``:
    ranges that contain the ids of all its files, ascending, as first id and length; empty if a file has no id, or the
    snapshot does not record them.
    """

    version: int
    totals: Totals
    file_part: Part | InlinePart
    row_group_part: Part | InlinePart | None
    ranges: Mapping[str, Bounds]
    ids: tuple[tuple[int, int], ...] = ()

    @property
    def parts(self) -> list[Part]:
        """The files that hold the statistics: of the file part and of the row-group part, where they are files."""
        return [part for part in (self.file_part, self.row_group_part) if isinstance(part, Part)]

    def to_json(self) -> dict[str, Json]:
        return {
            "version": self.version,
            **self.totals.to_json(),
            "file_part": self.file_part.to_json(),
            "row_group_part": None if self.row_group_part is None else self.row_group_part.to_json(),
            "ranges": {path: [b.lower, b.upper, b.nulls, b.nans] for path, b in self.ranges.items()},
            **({"ids": [list(run) for run in self.ids]} if self.ids else {}),
        }

    @staticmethod
    def from_json(json: Json) -> Shard:
        groups, totals = json["row_group_part"], Totals.from_json(json)
        if totals.files > _MOST_FILES_A_SHARD or totals.row_groups > _MOST_ROW_GROUPS_A_SHARD:
            raise ValueError(f"no shard holds {totals.files:,} files with {totals.row_groups:,} row groups")
        return Shard(
            _get(json, "version", int),
            totals,
            _part(json["file_part"], totals.files),
            None if groups is None else _part(groups, totals.row_groups),
            {path: Bounds(*bounds) for path, bounds in _get(json, "ranges", dict).items()},
            tuple(_run_of_ids(run) for run in json.get("ids", ())),
        )


@dataclass(frozen=True, slots=True)
class LayoutRecord:
    """How the rows were laid out: the layout's name, its columns, and the options of the write."""

    name: str
    columns: tuple[str, ...]
    options: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        return {"name": self.name, "columns": list(self.columns), "options": dict(self.options)}

    @staticmethod
    def from_json(json: Json) -> LayoutRecord:
        return LayoutRecord(
            _get(json, "name", str),
            tuple(str(path) for path in _get(json, "columns", list)),
            _get(json, "options", dict),
        )


@dataclass(frozen=True, slots=True, order=True)
class SketchName:
    """One sketch of a table: the path of its column, and its kind."""

    column: str
    kind: str


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
    added: dict[SketchName, list[SegmentRecord]] = {}
    for record in new:
        added.setdefault(record.name, []).extend(record.segments)
    return tuple(replace(one, segments=(*one.segments, *added.get(one.name, ()))) for one in records)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One committed state of a table.

    ``managed``: zskip wrote the files, which are immutable; otherwise it only indexed them, and they may change.
    ``partition_by``: the columns whose values are in the folders' names. ``operation``: the verb that made this
    version, with its results in ``details``. ``time``: UTC, later than the parent's. ``parent``: the version before, or
    None. ``applications``: the last batch that each application has appended, so that none is appended twice.
    ``added``: the version that added each column that version 1 lacks. ``removed``: the paths of the parent's files
    that this version lacks, if they are few; a repair uses them to find lost names. ``sketches``: the table's, which
    new files get as well. ``uniform``: zskip wrote every file with exactly the table's columns and types, so that no
    reader needs the schema. ``dimensions``: those whose attributes the index holds. ``horizon``: the oldest version
    that is not expired. ``doomed``: the runs whose files the vacuum that made this version removes. ``last_vacuum``:
    the last version before this one that has doomed runs, or 0. ``unknown``: the fields of the entry that only a newer
    zskip knows. ``format``: of the entry.
    """

    version: int
    table_id: str
    commit_id: str
    schema: Schema
    managed: bool
    partition_by: tuple[str, ...]
    layout: LayoutRecord | None
    shards: tuple[Shard, ...]
    operation: str
    time: datetime
    parent: int | None
    details: Mapping[str, Json] = field(default_factory=dict)
    applications: Mapping[str, int] = field(default_factory=dict)
    added: Mapping[str, int] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    sketches: tuple[SketchRecord, ...] = ()
    uniform: bool = False
    dimensions: tuple[Dimension, ...] = ()
    horizon: int = 1
    doomed: tuple[str, ...] = ()
    last_vacuum: int = 0
    unknown: tuple[str, ...] = ()
    format: int = FORMAT

    def __post_init__(self) -> None:
        names = frozenset(each.name.lower() for each in self.dimensions)
        if self.schema.dimensions != names:
            object.__setattr__(self, "schema", Schema(self.schema.arrow, names))

    def __repr__(self) -> str:
        totals = self.totals
        return (
            f"<Snapshot {self.version}: {self.operation} at {self.time:%Y-%m-%d %H:%M:%S}, "
            f"{totals.files} files in {len(self.shards)} shards, {totals.rows} rows>"
        )

    @property
    def indexed(self) -> Schema:
        """The columns of the index: those of the table, and the attributes of its dimensions."""
        if not self.dimensions:
            return self.schema
        return Schema(with_attributes(self.schema.arrow, self.dimensions), self.schema.dimensions)

    def followed_by(self, **changes: Any) -> Snapshot:
        """The version after this one: the same table with some fields changed.

        Raises `UnsupportedFormat` if the entry has fields that this zskip does not know: dropping them might lose what
        a newer zskip needs, and carrying them on might make them wrong.
        """
        if self.unknown:
            raise UnsupportedFormat(
                f"Version {self.version} was written by a newer zskip: its entry has {', '.join(self.unknown)}. This "
                "zskip reads the table, but must not change it. Install a newer one."
            )
        follows = {
            "version": self.version + 1,
            "commit_id": secrets.token_hex(16),
            "time": self.next_time(),
            "parent": self.version or None,
            "removed": (),
            "doomed": (),
            "last_vacuum": self.version if self.doomed else self.last_vacuum,
            "format": FORMAT,
        }
        return replace(self, **{**follows, **changes})

    def next_time(self) -> datetime:
        """Now, or a microsecond after a version whose writer's clock is ahead."""
        return max(datetime.now(UTC), min(self.time, _LAST_TIME - _TICK) + _TICK)

    def lacking(self, shard: Shard) -> frozenset[str]:
        """The columns added to the table after a shard was written, which are NULL in all its rows."""
        return frozenset(path for path, version in self.added.items() if version > shard.version)

    @property
    def parts(self) -> list[Part]:
        """The parts of all shards that are files; not those of sketches, which reading a table does not need."""
        return [part for shard in self.shards for part in shard.parts]

    @property
    def totals(self) -> Totals:
        return Totals.of([shard.totals for shard in self.shards])

    def statistics(self, paths: Sequence[str]) -> Statistics:
        """The ranges of these columns over each shard: one unit per shard."""
        row_count = pa.array([shard.totals.rows for shard in self.shards], pa.int64())
        columns, indexed = {}, self.indexed.columns
        for path in paths:
            column = indexed.get(path)
            since = self.added.get(path, 0)
            bounds = [
                Bounds(None, None, shard.totals.rows, 0) if since > shard.version else shard.ranges.get(path)
                for shard in self.shards
            ]
            if column is None or not column.orderable or not any(bounds):
                continue
            known = [bound or Bounds(None, None, None, None) for bound in bounds]
            flags = pa.nulls(len(known), pa.bool_())
            try:
                columns[path] = ColumnStatistics(
                    decode_values([bound.lower for bound in known], column.type),
                    decode_values([bound.upper for bound in known], column.type),
                    pa.array([bound.nulls for bound in known], pa.int64()),
                    pa.array([bound.nans for bound in known], pa.int64()),
                    flags,
                    flags,
                )
            except (TypeError, ValueError, ArithmeticError, pa.ArrowException) as error:
                raise DamagedIndex(
                    f'Version {self.version} holds bounds of "{path}" that are no {column.type}.'
                ) from error
        return FileStatistics(row_count, columns).statistics()

    def to_json(self) -> dict[str, Json]:
        return {
            "version": self.version,
            "table_id": self.table_id,
            "commit_id": self.commit_id,
            "parent": self.parent,
            "operation": self.operation,
            "time": self.time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "details": dict(self.details),
            "totals": self.totals.to_json(),
            "managed": self.managed,
            "partition_by": list(self.partition_by),
            "applications": dict(self.applications),
            "added": dict(self.added),
            "removed": list(self.removed),
            "horizon": self.horizon,
            "last_vacuum": self.last_vacuum,
            **({"doomed": list(self.doomed)} if self.doomed else {}),
            "uniform": self.uniform,
            "layout": None if self.layout is None else self.layout.to_json(),
            "schema": base64.b64encode(self.schema.arrow.serialize().to_pybytes()).decode(),
            "sketches": [sketch.to_json() for sketch in self.sketches],
            **({"dimensions": [each.to_json() for each in self.dimensions]} if self.dimensions else {}),
            "shards": [shard.to_json() for shard in self.shards],
        }

    @staticmethod
    def from_json(json: Json, format: int = FORMAT) -> Snapshot:
        layout, shards = json["layout"], tuple(Shard.from_json(shard) for shard in _get(json, "shards", list))
        _require_plausible_shards(shards)
        totals, promised = Totals.of([shard.totals for shard in shards]), Totals.from_json(_get(json, "totals", dict))
        if totals != promised:
            raise ValueError(f"its shards hold {totals}, and it promises {promised}")
        arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(_get(json, "schema", str), validate=True)))
        partition_by = tuple(str(path) for path in _get(json, "partition_by", list))
        if _get(json, "managed", bool) and not set(partition_by) <= set(arrow.names):
            raise ValueError(f"partition_by names {partition_by}, and there are {arrow.names}")
        return Snapshot(
            version=_get(json, "version", int),
            table_id=_get(json, "table_id", str),
            commit_id=_get(json, "commit_id", str),
            schema=Schema(arrow),
            managed=_get(json, "managed", bool),
            partition_by=partition_by,
            layout=None if layout is None else LayoutRecord.from_json(layout),
            shards=shards,
            operation=_get(json, "operation", str),
            time=datetime.fromisoformat(_get(json, "time", str)).astimezone(UTC),
            parent=_get(json, "parent", int, optional=True),
            details=_get(json, "details", dict),
            applications={str(name): int(batch) for name, batch in _get(json, "applications", dict).items()},
            added={str(path): int(version) for path, version in _get(json, "added", dict).items()},
            removed=tuple(str(path) for path in _get(json, "removed", list)) if "removed" in json else (),
            sketches=tuple(SketchRecord.from_json(sketch) for sketch in json.get("sketches", [])),
            uniform=_get(json, "uniform", bool) if "uniform" in json else False,
            dimensions=tuple(Dimension.from_json(each) for each in json.get("dimensions", ())),
            horizon=_get(json, "horizon", int) if format > 1 else 1,
            last_vacuum=_get(json, "last_vacuum", int) if format > 1 else 0,
            doomed=tuple(str(run) for run in json.get("doomed", ())),
            unknown=tuple(sorted(set(_unknown_fields(json)))),
            format=format,
        )


def _unknown_fields(json: Json) -> Iterator[str]:
    """The fields of an entry that this zskip does not know."""
    objects = [("snapshot", json), *(("shard", shard) for shard in json["shards"])]
    objects += [("layout", json["layout"]), *(("sketch", sketch) for sketch in json.get("sketches", ()))]
    objects += [("dimension", dimension) for dimension in json.get("dimensions", ())]
    objects += [("segment", segment) for sketch in json.get("sketches", ()) for segment in sketch["segments"]]
    for kind, holder in objects:
        for name, value in (holder or {}).items():
            if name not in _KNOWN[kind]:
                yield f'"{name}" in a {kind}' if kind != "snapshot" else f'"{name}"'
            elif name == "part" or name.endswith("_part"):
                yield from (f'"{each}" in a part' for each in (value or {}) if each not in _KNOWN["part"])


def _part(json: Json, rows: int) -> Part | InlinePart:
    return InlinePart.from_json(json, rows) if "columns" in json else Part.from_json(json)


def _run_of_ids(json: Json) -> tuple[int, int]:
    first, count = json
    if not (type(first) is type(count) is int and first >= 0 and count > 0 and first + count < 1 << 63):
        raise ValueError(f"{json} is no run of ids")
    return first, count


def _require_plausible_shards(shards: Sequence[Shard]) -> None:
    """Raise `ValueError` for a part that is named twice: a small folder could pose as a huge table that way."""
    parts = [part.path for shard in shards for part in shard.parts]
    if len(set(parts)) < len(parts):
        raise ValueError("a part is named twice")
    if (files := sum(shard.totals.files for shard in shards)) > _MOST_FILES:
        raise ValueError(f"no table holds {files:,} files")


def to_bytes(snapshot: Snapshot) -> bytes:
    """The log entry: JSON whose first fields are the format's version and the XXH3-128 of the snapshot's own bytes.

    The snapshot's fields are compressed, but for the id of the commit, by which a writer recognises its own entry.
    """
    fields = snapshot.to_json()
    commit_id = fields.pop("commit_id").encode()
    text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    body = b'{"commit_id":"%s","gzip":"%s"}' % (commit_id, base64.b64encode(gzip.compress(text, 6, mtime=0)))
    return b'{"zskip":%d,"xxh3_128":"%s","snapshot":%s}' % (FORMAT, xxhash.xxh3_128_hexdigest(body).encode(), body)


def fields_of(body: bytes) -> Json:
    """The fields of the ``snapshot`` of an entry, whose JSON may be compressed. Raises `ValueError`."""
    found = json.loads(body, parse_constant=_refuse_constant)
    if "gzip" not in found:  # until format 2
        return found
    unpacked = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        text = unpacked.decompress(base64.b64decode(found["gzip"], validate=True), _LARGEST_ENTRY)
    except zlib.error as error:
        raise ValueError(f"its fields cannot be decompressed: {error}") from error
    if not unpacked.eof:
        raise ValueError(f"its fields are cut off, or have more than {_LARGEST_ENTRY:,} bytes")
    return json.loads(text, parse_constant=_refuse_constant) | {"commit_id": found["commit_id"]}


def from_bytes(data: bytes, name: str) -> Snapshot:
    """The snapshot of a log entry, checked. ``name`` is for the message.

    Raises `DamagedIndex`, and `UnsupportedFormat` for an entry of a later version of the format.
    """
    head = _HEAD.match(data)
    if head is None:
        raise DamagedIndex(_damaged(name, "does not begin as a log entry does"))
    if int(head[1]) > FORMAT:
        raise UnsupportedFormat(
            f"{name} is of format {int(head[1])}; this zskip reads up to {FORMAT}. Install a newer one."
        )
    if len(data) > _LARGEST_ENTRY:
        raise DamagedIndex(_damaged(name, f"has more than {_LARGEST_ENTRY:,} bytes"))
    body = data[head.end() : -1]
    if xxhash.xxh3_128_hexdigest(body).encode() != head[2] or data[-1:] != b"}":
        raise DamagedIndex(_damaged(name, "fails its checksum"))
    try:
        found = fields_of(body)
        if ("horizon" in found) is not (int(head[1]) > 1):  # the checksum covers the body alone
            raise ValueError("its fields are those of another format")
        if missing := set(found.get("requires", ())) - FEATURES:
            raise UnsupportedFormat(f"{name} requires {', '.join(sorted(missing))}. Install a newer zskip.")
        return Snapshot.from_json(found, int(head[1]))
    except TableError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise DamagedIndex(_damaged(name, f"holds what no snapshot does ({error})")) from error
    except (OSError, pa.ArrowException) as error:  # Arrow's, OSError for a schema that is nested too deeply
        raise DamagedIndex(_damaged(name, f"holds what no snapshot does ({error})")) from error


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _damaged(name: str, what: str) -> str:
    return (
        f"The log entry {name} {what}. Put back a copy of it, open an older version (version=N), or make "
        "the newest that can be read the table again: zskip index --repair --go-back, zskip.repair(path, go_back=True)."
    )


def _get(json: Json, name: str, kind: type[_Kind], *, optional: bool = False) -> Any:
    found = json[name]
    if (found is None and optional) or (isinstance(found, kind) and not (kind is int and isinstance(found, bool))):
        return found
    raise TypeError(f"{name} is not of the kind {kind.__name__}")
