"""Commit: shards first, then the next log entry, created only if absent; the loser of a race looks again."""

from __future__ import annotations

import json
import random
import secrets
import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import CommitConflict, TableExists, UnsafePath, UnsupportedStore
from zskip.schema import Schema
from zskip.sidecar import log
from zskip.sidecar.index import Index
from zskip.sidecar.parts import publish, read_part
from zskip.sidecar.shards import write_shards
from zskip.sidecar.snapshot import LayoutRecord, Shard, Snapshot, to_bytes
from zskip.sidecar.storage import Storage, unsafe_paths
from zskip.sidecar.values import Json
from zskip.stats import DataFiles

__all__ = ["commit", "layout_assignment"]

_ATTEMPTS = 100
_LARGEST_INLINE = 16_384


@dataclass(frozen=True, slots=True)
class _Change:
    """What a commit wants, whichever snapshot it lands on."""

    operation: str
    add: DataFiles | None
    remove: tuple[str, ...]
    replace_all: bool
    restored: Snapshot | None
    schema: Schema | None
    layout: LayoutRecord | None
    details: Mapping[str, Json]
    batch: tuple[str, int] | None


def commit(
    storage: Storage,
    base: Snapshot | None,
    operation: str,
    *,
    add: DataFiles | None = None,
    remove: Sequence[str] = (),
    replace_all: bool = False,
    schema: Schema | None = None,
    layout: LayoutRecord | None = None,
    managed: bool = True,
    partition_by: Sequence[str] = (),
    details: Mapping[str, Json] | None = None,
    batch: tuple[str, int] | None = None,
    restore: Snapshot | None = None,
) -> Snapshot:
    """Make a new version of a table, or its first one where ``base`` is None, and return it.

    The data files of ``add`` must have been written; they are made durable here. ``remove``: paths that the new
    version no longer has. ``replace_all``: it has nothing but ``add``. ``restore``: it has the files, schema and
    layout of that older snapshot. ``schema`` and ``layout`` are the new ones, None where they stay as they are.
    ``managed`` and ``partition_by`` are said once, with the first version. ``batch``: an application's name and the
    number of its batch; one that is not above the last that was committed changes nothing.

    When others commit first, the change is made to their version: what is added always can be; what is to be removed
    must still be there, and no one else may have changed the schema or the layout that this change sets.

    Raises `CommitConflict`, `TableExists` and `UnsupportedStore`.
    """
    change = _Change(
        operation, add, tuple(remove), replace_all, None, schema, _kept_apart(storage, layout), details or {}, batch
    )
    if restore is not None:
        change = replace(change, restored=restore, schema=restore.schema, layout=restore.layout)
    if add is not None:
        _be_safe(add)
        storage.make_durable([] if not managed else add.path.to_pylist())
    commit_id = secrets.token_hex(16)
    if base is None:
        return _first(storage, change, commit_id, managed, tuple(partition_by))
    newest = base
    for attempt in range(_ATTEMPTS):
        if batch is not None and newest.applications.get(batch[0], -1) >= batch[1]:
            return newest
        candidate = _applied(storage, change, base, newest, commit_id)
        if _create(storage, candidate):
            log.write_hint(storage, candidate.version)
            return candidate
        clock.sleep(random.random() * min(0.001 * 2**attempt, 0.2))
        newest = log.load(storage)
    raise CommitConflict(f"{storage.uri}: other writers came first {_ATTEMPTS} times. Try again.")


def _first(storage: Storage, change: _Change, commit_id: str, managed: bool, partition_by: tuple[str, ...]) -> Snapshot:
    if log.latest_version(storage):
        raise TableExists(f'There is a table at {storage.uri} already. Say mode="append" or mode="overwrite".')
    if change.schema is None:
        raise CommitConflict(f"The table at {storage.uri} is gone: it cannot be changed without a version to change.")
    shards = () if change.add is None else _shards_of(storage, change.add, change.schema, 1, change.layout)
    candidate = Snapshot(
        version=1,
        table_id=secrets.token_hex(16),
        commit_id=commit_id,
        schema=change.schema,
        managed=managed,
        partition_by=partition_by,
        layout=change.layout,
        shards=shards,
        operation=change.operation,
        time=datetime.now(UTC),
        parent=None,
        details=change.details,
        applications={} if change.batch is None else {change.batch[0]: change.batch[1]},
    )
    if not _create(storage, candidate):
        raise TableExists(f"Another writer made a table at {storage.uri} just now.")
    log.write_hint(storage, 1)
    return candidate


def _applied(storage: Storage, change: _Change, base: Snapshot, newest: Snapshot, commit_id: str) -> Snapshot:
    """The change made to ``newest``. Raises `CommitConflict` where it no longer applies."""
    if newest.table_id != base.table_id:
        raise CommitConflict(f"{storage.uri}: the table was replaced by another one.")
    for name in ("schema", "layout"):
        wanted, before, now = getattr(change, name), getattr(base, name), getattr(newest, name)
        if wanted is not None and now != before and now != wanted:
            raise CommitConflict(f"{storage.uri}: version {newest.version} changed the table's {name} meanwhile.")
    schema, layout = change.schema or newest.schema, change.layout or newest.layout
    if change.restored is not None:
        kept = change.restored.shards
    elif change.replace_all:
        kept = ()
    else:
        kept = _without(storage, newest, change.remove, layout)
    added = (
        ()
        if change.add is None or not len(change.add)
        else _shards_of(storage, change.add, schema, newest.version + 1, layout)
    )
    applications = dict(newest.applications)
    if change.batch is not None:
        applications[change.batch[0]] = change.batch[1]
    return replace(
        newest,
        version=newest.version + 1,
        commit_id=commit_id,
        schema=schema,
        layout=layout,
        shards=(*kept, *added),
        operation=change.operation,
        time=max(datetime.now(UTC), newest.time + timedelta(microseconds=1)),
        parent=newest.version,
        details=change.details,
        applications=applications,
        added=_added(change, newest),
    )


def _added(change: _Change, newest: Snapshot) -> Mapping[str, int]:
    """Since when the table has its later columns. A table that starts afresh has no later ones."""
    if change.restored is not None:
        return change.restored.added
    if change.replace_all:
        return {}
    later = (
        () if change.schema is None else [path for path in change.schema.columns if path not in newest.schema.columns]
    )
    return {**newest.added, **dict.fromkeys(later, newest.version + 1)}


def _without(
    storage: Storage, snapshot: Snapshot, remove: Sequence[str], layout: LayoutRecord | None
) -> tuple[Shard, ...]:
    """The snapshot's shards without some files: a shard that holds none of them stays as it is."""
    if not remove:
        return snapshot.shards
    index = Index(storage, snapshot)
    gone = pa.array(sorted(set(remove)), pa.string())
    kept: list[Shard] = []
    found = 0
    for number, shard in enumerate(snapshot.shards):
        hit = pc.is_in(index.shard_paths(number), gone).to_numpy(zero_copy_only=False)
        found += int(hit.sum())
        if not hit.any():
            kept.append(shard)
        elif not hit.all():
            rest = index.data_files([number]).take(np.flatnonzero(~hit))
            kept.extend(_shards_of(storage, rest, snapshot.schema, snapshot.version, layout))
    if found < len(gone):
        raise CommitConflict(
            f"{storage.uri}: {len(gone) - found} of the {len(gone)} files to be removed are not in version "
            f"{snapshot.version}: another writer removed or rewrote them. Open the table again and repeat."
        )
    return tuple(kept)


def _shards_of(
    storage: Storage, files: DataFiles, schema: Schema, version: int, layout: LayoutRecord | None
) -> tuple[Shard, ...]:
    return write_shards(storage, files, schema, version, () if layout is None else layout.columns)


def _create(storage: Storage, candidate: Snapshot) -> bool:
    """Create the log entry; whether it is there and ours, also where the store's answer was lost."""
    path, data = log.entry_path(candidate.version), to_bytes(candidate)
    for attempt in range(5):
        try:
            if storage.put_if_absent(path, data):
                return True
        except UnsupportedStore:
            raise
        except OSError:
            # The entry may or may not have been made. Ask before telling.
            written = log.read_entry(storage, candidate.version)
            if written is None and attempt == 4:
                raise
            if written is not None:
                return written.commit_id == candidate.commit_id
            clock.sleep(0.05 * 2**attempt)
            continue
        written = log.read_entry(storage, candidate.version)
        return written is not None and written.commit_id == candidate.commit_id
    return False


def _be_safe(files: DataFiles) -> None:
    for path in unsafe_paths(files.path).to_pylist():
        raise UnsafePath(f'The path "{path}" of a data file leads out of its table.')


def _kept_apart(storage: Storage, layout: LayoutRecord | None) -> LayoutRecord | None:
    """A layout whose assignment is large gets a part of its own, so that later commits do not write it again."""
    if layout is None or layout.part is not None or layout.assignment is None:
        return layout
    data = json.dumps(layout.assignment, allow_nan=False, separators=(",", ":")).encode()
    if len(data) <= _LARGEST_INLINE:
        return layout
    return replace(layout, assignment=None, part=publish(storage, "layout", ".json", data))


def layout_assignment(storage: Storage, layout: LayoutRecord) -> Json:
    """The fitted assignment of a layout, as `Assignment.to_json` gave it; None where it has none."""
    return layout.assignment if layout.part is None else json.loads(read_part(storage, layout.part))
