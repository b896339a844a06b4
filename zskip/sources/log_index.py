"""The index of a table in another format, which follows the format's log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import CommitConflict, DamagedIndex, TableExists, TableNotFound
from zskip.sources.cache import vacuum_at_intervals
from zskip.sources.source import Content, Source
from zskip.stats import DataFiles
from zskip.storage.local import LocalStorage
from zskip.storage.storage import Storage
from zskip.tablelog import Index, SketchRecord, Snapshot, commit, latest_version, load

__all__ = ["follow"]

_ATTEMPTS = 5


def follow(source: Source, parts: Storage) -> Snapshot:
    """The snapshot of what a table holds now, from the side-car in ``parts``, which is brought up to date.

    What is unchanged is not read again; a few commits are read by themselves; all else is read whole.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _followed(source, parts)
        except (CommitConflict, TableExists):
            # Another process follows the same table: it may have done all that was to do.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def _followed(source: Source, parts: Storage) -> Snapshot:
    known = _known(parts)
    if known is not None:
        if source.is_current(known.details):
            return known
        content = source.changes(known.details)
        if content is not None:
            made = _added(source, parts, known, content)
            if isinstance(parts, LocalStorage) and not parts.durable:
                vacuum_at_intervals(parts, made)
            return made
    content = source.read()
    files, sketches = content.files, tuple[SketchRecord, ...]()
    if known is not None and known.sketches:
        files, sketches = _with_sketches(content, Index(source.storage, known, parts=parts))
    return commit(
        parts,
        known,
        source.format,
        add=files if len(files) else None,
        replace_all=known is not None,
        schema=content.schema,
        managed=False,
        partition_by=content.partition_by,
        details=content.state,
        still=_refuse,
        sketches=lambda _: sketches,
    )


def _with_sketches(content: Content, known: Index) -> tuple[DataFiles, tuple[SketchRecord, ...]]:
    """The files of a table that is read whole, by the ids that they had, and the sketches of the columns that it kept.

    A table that was made anew keeps none, nor does a column that now stands for another one in the files.
    """
    files, before = content.files, known.snapshot
    if before.details.get("table") != content.state["table"]:
        return files, ()
    now = content.schema.arrow
    roots = {path: column.parts[0] for path, column in content.schema.columns.items()}

    def is_kept(record: SketchRecord) -> bool:
        root = roots.get(record.name.column)
        return root is not None and now.field(root).equals(before.schema.arrow.field(root), check_metadata=True)

    every = np.arange(len(known))
    place = pc.index_in(files.path, value_set=known.recorded_paths(every))
    return replace(files, id=known.ids(every).take(place)), tuple(filter(is_kept, before.sketches))


def _known(parts: Storage) -> Snapshot | None:
    """The side-car's newest snapshot; None where there is none yet, or none that can be read: it is made anew."""
    try:
        known = load(parts) if latest_version(parts) else None
        if known is None or _has_all_parts(parts, known):
            return known
    except (DamagedIndex, TableNotFound):
        pass
    parts.delete(parts.list("_zskip").path.to_pylist())
    return None


def _has_all_parts(parts: Storage, known: Snapshot) -> bool:
    """Whether no crash and no cleaner of caches has taken a part, or what was in it, from a local disk."""
    if parts.local is None:
        return True
    found = parts.size_and_modified([part.path for part in known.parts])
    sizes = dict(zip(found.path.to_pylist(), found.size.to_pylist(), strict=True))
    return all(sizes[part.path] == part.size for part in known.parts)


def _added(source: Source, parts: Storage, known: Snapshot, content: Content) -> Snapshot:
    """The next snapshot, from what was added and removed since."""
    index = Index(source.storage, known, parts=parts)
    # A file that is added again, with other statistics or deletes, replaces itself.
    leaving = pa.array({*(content.removed or ()), *content.files.path.to_pylist()}, pa.string())
    known_paths = index.recorded_paths(np.arange(len(index)))
    return commit(
        parts,
        known,
        source.format,
        add=content.files if len(content.files) else None,
        # These few are looked up among all, not all hashed for a look-up of these.
        remove=known_paths.filter(pc.is_in(known_paths, value_set=leaving)).to_pylist(),
        managed=False,
        details=content.state,
        still=_refuse,
    )


def _refuse(newest: Snapshot) -> None:
    raise CommitConflict(f"Version {newest.version} of the side-car was made meanwhile.")
