"""Brings the side-car of a Delta or Iceberg table up to date with the table's log, and its layout with the columns."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.binder import bind
from zskip.binder.workload_sql import table_query
from zskip.core.schema import Schema, join_path
from zskip.errors import CommitConflict, DamagedIndex, ForeignTable, SqlError, TableError, TableExists
from zskip.stats import DataFiles
from zskip.storage.local import LocalStorage
from zskip.storage.storage import Storage
from zskip.table_formats.source import FIELD_ID, STORED_AS, Content, Source
from zskip.table_formats.source_footers import with_footers
from zskip.tablelog.commit import TableUpdate, commit, refuse_newer
from zskip.tablelog.index import Index
from zskip.tablelog.log import newest
from zskip.tablelog.snapshot import LayoutRecord, SketchRecord, Snapshot
from zskip.tablelog.vacuum import vacuum

_ATTEMPTS = 5


def follow(source: Source, parts: Storage) -> Snapshot:
    """The snapshot of a table's current state, from the side-car in ``parts``, which is brought up to date.

    Only commits since the side-car's state are read if the source supports that, else the whole log.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _followed(source, parts)
        except (CommitConflict, TableExists):
            # Another process is updating the same side-car, and may have finished.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def _followed(source: Source, parts: Storage) -> Snapshot:
    known = _known(parts)
    if known is not None and known.details.get("source") != source.format:
        raise ForeignTable(
            f"{parts.uri}/_zskip is the index of a folder of Parquet, which is a table of {source.format.capitalize()} "
            "now. Remove the index, and attach the table again."
        )
    if known is not None and (known.details.get("deep") or not source.deep):
        if source.is_current(known.details):
            return known
        content = source.changes(known.details)
        index = Index(source.storage, known, parts=parts)
        if content is not None and not _spells_anew(index, content):
            content = with_footers(source, content) if source.deep else content
            made = _added(source, index, content)
            in_cache = isinstance(parts, LocalStorage) and not parts.durable
            if in_cache and made.version % _VERSIONS_PER_VACUUM == 0:
                vacuum(parts, older_than=_REPLACED)
            return made
    content = with_footers(source, source.read()) if source.deep else source.read()
    files, sketches, layout = content.files, tuple[SketchRecord, ...](), None
    if known is not None and known.layout is not None:
        recreated = known.details.get("table") != content.state["table"]
        layout = followed(known.layout, known.schema, content.schema, recreated=recreated)
    if known is not None and known.sketches:
        files, sketches = _with_sketches(content, Index(source.storage, known, parts=parts))
    return commit(
        parts,
        known,
        TableUpdate(
            source.format,
            add=files if len(files) else None,
            replace_all=known is not None,
            schema=content.schema,
            layout=layout,
            managed=False,
            partition_by=content.partition_by,
            details=content.state,
            still=refuse_newer,
            sketches=sketches,
        ),
    )


def _with_sketches(content: Content, known: Index) -> tuple[DataFiles, tuple[SketchRecord, ...]]:
    """The files with their previous ids, and the sketches of columns that are unchanged.

    A recreated table keeps no sketches.
    """
    files, before = content.files, known.snapshot
    if before.details.get("table") != content.state["table"]:
        return files, ()
    now = content.schema.arrow
    roots = {path: column.parts[0] for path, column in content.schema.columns.items()}

    def is_kept(record: SketchRecord) -> bool:
        root = roots.get(record.name.column)
        return root is not None and now.field(root).equals(before.schema.arrow.field(root), check_metadata=True)

    numbers = np.arange(len(known))
    positions = pc.index_in(files.path, value_set=known.recorded_paths(numbers))
    return replace(files, id=known.ids(numbers).take(positions)), tuple(filter(is_kept, before.sketches))


def _known(parts: Storage) -> Snapshot | None:
    """The side-car's newest snapshot; None if there is none. A damaged side-car is deleted, to be rebuilt."""
    try:
        known = newest(parts)
        if known is None or _has_all_parts(parts, known):
            return known
    except DamagedIndex:
        pass
    parts.delete(parts.list("_zskip").path.to_pylist())
    return None


def _has_all_parts(parts: Storage, known: Snapshot) -> bool:
    """Whether all parts have their size. On a local disk a crash or a cache cleaner may have removed or cut some."""
    if parts.local is None:
        return True
    found = parts.size_and_modified([part.path for part in known.parts])
    sizes = dict(zip(found.path.to_pylist(), found.size.to_pylist(), strict=True))
    return all(sizes[part.path] == part.size for part in known.parts)


def _spells_anew(index: Index, content: Content) -> bool:
    """Whether a file was added that is in the table already, and perhaps under another spelling of its path.

    Readers of Delta then read it twice, and as often as it is spelled.
    """
    if content.state.get("one_spelling", True):
        return False
    staying = pc.invert(pc.is_in(content.files.path, value_set=pa.array(content.removed or (), pa.string())))
    known_paths = index.recorded_paths(np.arange(len(index)))
    return bool(pc.any(pc.is_in(known_paths, value_set=content.files.path.filter(staying))).as_py())


def _added(source: Source, index: Index, content: Content) -> Snapshot:
    """Commit the next snapshot, with the files added and removed since that of the index."""
    # A file added again, with other statistics or deletes, replaces its previous entry.
    leaving = pa.array({*(content.removed or ()), *content.files.path.to_pylist()}, pa.string())
    known_paths = index.recorded_paths(np.arange(len(index)))
    return commit(
        index.parts,
        index.snapshot,
        TableUpdate(
            source.format,
            add=content.files if len(content.files) else None,
            # The hash table is built from the few leaving paths, not from all known ones.
            remove=known_paths.filter(pc.is_in(known_paths, value_set=leaving)).to_pylist(),
            managed=False,
            details=content.state,
            still=refuse_newer,
        ),
    )


# The user's cache folder, which holds the side-cars of tables that have none in their own folder. All side-cars can
# be rebuilt from the tables' logs. So nothing is synced to disk, and a side-car that a crash or a cache cleaner has
# damaged is rebuilt when the table is opened next.

_UNUSED = timedelta(days=30)
_CACHE_VERSION = 4
"""Incremented whenever a side-car left by an earlier zskip could not be brought up to date."""

_REPLACED, _VERSIONS_PER_VACUUM = timedelta(days=1), 64


def cache_of(source: Source) -> LocalStorage:
    """The cache folder for the side-car of a table; another one for a deep source.

    Creating a folder removes those that were not opened for a month.

    Raises `TableError` if the cache folder cannot be written.
    """
    from platformdirs import user_cache_path

    root = user_cache_path("zskip") / "sources"
    identities = f"{source.home.identity} {source.storage.identity}"
    key = f"{_CACHE_VERSION} {source.format} {identities} {source.fixed!r} {source.deep}"
    folder = root / hashlib.sha256(key.encode()).hexdigest()[:32]
    try:
        if folder.is_dir():
            os.utime(folder)
        else:
            _remove_unused(root)
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TableError(
            f"The cache folder {root} cannot be written ({error}). Name another one in the environment variable "
            "XDG_CACHE_HOME, or keep the index of the table in its own folder: zskip.attach(path)."
        ) from error
    return LocalStorage(folder, durable=False)


def _remove_unused(root: Path) -> None:
    if not root.is_dir():
        return
    oldest = time.time() - _UNUSED.total_seconds()
    for folder in root.iterdir():
        if folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)


# --- the layout, after others dropped, renamed or replaced columns ---


def followed(layout: LayoutRecord, before: Schema, after: Schema, *, recreated: bool = False) -> LayoutRecord:
    """The layout by those of its columns that ``after`` has, by their names there, and that can be ordered.

    Weights follow their columns, and queries of the workload that no longer fit the columns are dropped. A layout whose
    columns are all gone has none. ``recreated``: the columns are those of another table, which has ids of its own.
    """
    names = {_identity(field, recreated): field.name for field in after.arrow}

    def path_after(path: str) -> str | None:
        column = before.columns.get(path)
        name = None if column is None else names.get(_identity(before.arrow.field(column.parts[0]), recreated))
        if column is None or name is None:
            return None
        found = after.columns.get(join_path([name, *column.parts[1:]]))
        return found.path if found is not None and found.orderable else None

    options = dict(layout.options)
    by: list[str] = list(options.get("by") or ())
    paths = {path: path_after(path) for path in (*layout.columns, *by)}
    kept = {path: new for path, new in paths.items() if new is not None}
    options["by"] = [kept[path] for path in by if path in kept]
    options["weights"] = _weights_of(options.get("weights"), by or layout.columns, kept)
    options["workload"] = [query for query in options.get("workload") or () if _fits(query, after)] or None
    return replace(layout, columns=tuple(kept[path] for path in layout.columns if path in kept), options=options)


def _identity(field: pa.Field, recreated: bool) -> bytes:
    """What a column keeps when it is renamed: its id or its name in the files."""
    marks: Mapping[bytes, bytes] = {} if recreated else field.metadata or {}
    return marks.get(FIELD_ID) or marks.get(STORED_AS) or field.name.encode()


def _weights_of(weights: Any, by: Sequence[str], kept: Mapping[str, str]) -> Any:
    """The weights of the columns that are kept, in the form in which they were given; None if they are all zero."""
    if weights is None:
        return None
    if isinstance(weights, Mapping):
        named = {kept[path]: weight for path, weight in weights.items() if path in kept}
        return named if any(named.values()) else None
    listed = [weight for path, weight in zip(by, weights, strict=False) if path in kept]
    return listed if any(listed) else None


def _fits(query: str, schema: Schema) -> bool:
    try:
        found = table_query(query, schema)
        if found is not None:
            bind(found.condition, schema)
    except SqlError:
        return False
    return True
