"""Build sketches of existing files: for a new column, for files of other writers, or to replace damaged segments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from zskip.core.schema import Schema
from zskip.engines.arrow import to_batches
from zskip.errors import CorruptFile, InvalidOption, TableNotFound
from zskip.plan import find_survivors
from zskip.plan.scan import Scan
from zskip.storage import Staged, Storage
from zskip.tablelog.commit import TableUpdate, commit, refuse_newer
from zskip.tablelog.freshness import listed
from zskip.tablelog.index import Index
from zskip.tablelog.indexing import ATTEMPTS, refresh, still_changing
from zskip.tablelog.parts import Drafts, Part, is_intact
from zskip.tablelog.runs import may_meet_vacuums
from zskip.tablelog.segments import new_ids, published, require_selective
from zskip.tablelog.sketch_evidence import sketches_of
from zskip.tablelog.sketches import SKETCHES, SketchBuilder, SketchName, keys_of
from zskip.tablelog.sketches.hashing import Hashes
from zskip.tablelog.snapshot import SketchRecord, Snapshot, with_segments
from zskip.writer.backend import LOCAL, Backend
from zskip.writer.options import WriteOptions
from zskip.writer.paths import rows_of_files
from zskip.writer.scatter import spill_folders

_MEMORY_SHARE = 0.5


@may_meet_vacuums
def complete_sketches(
    storage: Storage,
    base: Snapshot,
    options: WriteOptions,
    added: Sequence[SketchName] = (),
    *,
    repair: bool = False,
    parts: Storage | None = None,
    backend: Backend = LOCAL,
) -> tuple[Snapshot, tuple[str, ...]]:
    """Extend a table's sketches, and the new ones of ``added``, to files that they do not cover, and commit the change.

    ``repair``: read every segment, and rebuild damaged ones, whose paths are returned too · ``parts``: the storage of
    the side-car, if it is not that of the data files · ``backend``: the engine that reads the files. Raises
    `InvalidOption` for an added sketch that would skip almost nothing, `CorruptFile` and `CommitConflict`. Where other
    programs replace files of an indexed folder while they are read, they are indexed and read again.
    """
    for _ in range(ATTEMPTS):
        try:
            return _completed(storage, base, options, added, repair, storage if parts is None else parts, backend)
        except (CorruptFile, FileNotFoundError, TableNotFound):
            index = Index(storage, base)
            found = listed(index)
            if not found:
                raise
            base = refresh(index, found=found)
    raise still_changing(storage)


def _completed(
    storage: Storage,
    base: Snapshot,
    options: WriteOptions,
    added: Sequence[SketchName],
    repair: bool,
    parts: Storage,
    backend: Backend,
) -> tuple[Snapshot, tuple[str, ...]]:
    new = tuple(SketchRecord(name) for name in added if name not in {each.name for each in base.sketches})
    damaged = _damaged(parts, base.sketches) if repair else set()
    records = tuple(_without(record, damaged) for record in (*base.sketches, *new) if record.name.kind in SKETCHES)
    index = Index(storage, replace(base, sketches=records), parts=parts)
    ids = np.asarray(index.ids(np.arange(len(index), dtype=np.int64)).fill_null(-1)).copy()
    without_id = np.flatnonzero(ids < 0)
    ids[without_id] = np.asarray(new_ids(len(without_id)))
    missing = _missing(index, records)
    if not new and not missing and not damaged:
        return base, ()

    def with_built_segments(before: tuple[SketchRecord, ...]) -> tuple[SketchRecord, ...]:
        names = {each.name for each in before}
        intact = [_without(each, damaged) for each in (*before, *(each for each in new if each.name not in names))]
        return with_segments(intact, built)

    with Staged(parts.delete) as staged:
        drafts, built = Drafts(parts, staged), tuple[SketchRecord, ...]()
        for files, names in missing:
            built += _built(index, files, ids, names, options, drafts, backend)
        for record in built:
            if record.name in {each.name for each in new}:
                require_selective(parts, record)
        with_new_ids = None
        if built and len(without_id):
            with_new_ids = replace(index.data_files().take(without_id), id=pa.array(ids[without_id]))
        snapshot = commit(
            parts,
            base,
            TableUpdate(
                "sketch",
                add=with_new_ids,
                remove=() if with_new_ids is None else with_new_ids.path.to_pylist(),
                managed=base.managed,
                details=_details(index, added=[f"{name.kind} of {name.column}" for name in added]),
                still=None if index.source is None else refuse_newer,
                sketches=with_built_segments,
            ),
            staged=staged,
        )
    return snapshot, tuple(sorted(part.path for part in damaged))


def _damaged(parts: Storage, records: Sequence[SketchRecord]) -> set[Part]:
    """The damaged segments of some sketches."""
    segments = (segment.part for record in records for segment in record.segments)
    return {part for part in segments if not is_intact(parts, part)}


def _missing(index: Index, records: Sequence[SketchRecord]) -> list[tuple[np.ndarray, list[SketchName]]]:
    """The files that sketches do not cover, by number, with the names of these sketches.

    Sketches that lack the same files are together: they are built in one pass over the files.
    """
    known = sketches_of(index)
    names: dict[bytes, list[SketchName]] = {}
    for record in records:
        uncovered = ~known.knows(record)
        if uncovered.any():
            names.setdefault(uncovered.tobytes(), []).append(record.name)
    return [(np.flatnonzero(np.frombuffer(mask, bool)), group) for mask, group in names.items()]


def _without(record: SketchRecord, damaged: Collection[Part]) -> SketchRecord:
    """A sketch without its damaged segments."""
    return replace(record, segments=tuple(segment for segment in record.segments if segment.part not in damaged))


def _details(index: Index, **change: list[str]) -> dict[str, Any]:
    """The details to record in a commit of sketches.

    The index of a plain folder keeps the origin of its statistics, which a later refresh needs. The index of a Delta or
    Iceberg table keeps its position in that format's log, and nothing else.
    """
    details = index.snapshot.details
    if index.source is not None:
        return dict(details)
    return {**change, **({} if index.snapshot.managed or "source" not in details else {"source": details["source"]})}


def drop_sketches(index: Index, columns: Sequence[str]) -> Snapshot:
    """Remove the sketches of columns in a commit. Raises `InvalidOption` for a column that has none."""
    base = index.snapshot
    for column in columns:
        if column not in {sketch.name.column for sketch in base.sketches}:
            raise InvalidOption(f'The table has no sketch of "{column}".')
    if not columns:
        return base
    return commit(
        index.parts,
        base,
        TableUpdate(
            "sketch",
            managed=base.managed,
            details=_details(index, dropped=list(columns)),
            still=None if index.source is None else refuse_newer,
            sketches=lambda before: tuple(each for each in before if each.name.column not in columns),
        ),
    )


def _built(
    index: Index,
    files: np.ndarray,
    ids: np.ndarray,
    names: Sequence[SketchName],
    options: WriteOptions,
    drafts: Drafts,
    backend: Backend,
) -> tuple[SketchRecord, ...]:
    """Read some files, by number, and build their segments. ``ids``: the ids of all files."""
    paths = index.paths(files).to_pylist()
    read: Callable[[Any], list[Hashes]]
    if index.source is None:
        read = partial(keys_of_file, index.storage, index.snapshot.schema, index.snapshot.partition_by, names)
        items: Sequence[Any] = paths
    else:
        # A scan resolves the column names, partition values and deletes of the format.
        every = find_survivors(index, None)
        read = partial(_keys_of_scan, names)
        items = [every.narrowed(files[position : position + 1]).scan for position in range(len(files))]
    with closing(backend.map(index.storage, read, items, options)) as keys:
        return segments_of(drafts, names, keys, paths, ids[files], options)


def keys_of_file(
    storage: Storage, schema: Schema, partition_by: Sequence[str], names: Sequence[SketchName], path: str
) -> list[Hashes]:
    """The keys of a file for each of these sketches, read by row group. Raises `CorruptFile`."""
    parts = rows_of_files(storage, schema.arrow, partition_by, [path]).parts(_top_level_columns(schema, names))
    return _keys_of_rows(schema, names, (part() for part in parts))


def _keys_of_scan(names: Sequence[SketchName], scan: Scan) -> list[Hashes]:
    """The keys of the live rows of a scan's file for each of these sketches."""
    batches = to_batches(scan, _top_level_columns(scan.schema, names))
    return _keys_of_rows(scan.schema, names, (pa.Table.from_batches([batch]) for batch in batches))


def _top_level_columns(schema: Schema, names: Sequence[SketchName]) -> list[str]:
    return sorted({schema.columns[name.column].parts[0] for name in names})


def _keys_of_rows(schema: Schema, names: Sequence[SketchName], parts: Iterable[pa.Table]) -> list[Hashes]:
    by_sketch: list[list[Hashes]] = [[] for _ in names]
    for rows in parts:
        for keys, name in zip(by_sketch, names, strict=True):
            keys.append(keys_of(name, schema, rows))
    return [np.concatenate([np.zeros(0, np.uint64), *keys]) for keys in by_sketch]


def segments_of(
    drafts: Drafts,
    names: Sequence[SketchName],
    keys_by_file: Iterable[list[Hashes]],
    paths: Sequence[str],
    ids: np.ndarray,
    options: WriteOptions,
) -> tuple[SketchRecord, ...]:
    """Build the segments of files. ``keys_by_file``: the keys of each file by sketch, in the order of the paths."""
    with spill_folders(options.temp_directory) as make_folder:
        builder = SketchBuilder(names, int(options.memory * _MEMORY_SHARE), make_folder)
        for done, (path, keys) in enumerate(zip(paths, keys_by_file, strict=True), 1):
            builder.add(path, keys)
            options.report("sketch", done, len(paths))
        by_path = dict(zip(paths, ids.tolist(), strict=True))
        return published(drafts, builder, by_path, options.cores)
