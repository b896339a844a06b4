"""Commit: write shards, then create the next log entry if it is absent; a writer that loses the race retries."""

from __future__ import annotations

import logging
import random
import secrets
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.schema import Schema
from zskip.core.types import Json, widens
from zskip.errors import CommitConflict, DamagedIndex, FilesRemoved, TableExists, UnsafePath
from zskip.stats import DataFiles
from zskip.storage.staged import Staged
from zskip.storage.storage import Storage, unsafe_paths
from zskip.tablelog import log
from zskip.tablelog.dimensions import Dimension
from zskip.tablelog.index import Index
from zskip.tablelog.parts import Drafts
from zskip.tablelog.runs import require_not_doomed
from zskip.tablelog.segments import merged_crowds, merged_wholly, segment_paths
from zskip.tablelog.shards import FANOUT, FILES_PER_SHARD, retyped, write_shards
from zskip.tablelog.snapshot import LayoutRecord, Shard, SketchRecord, Snapshot, with_segments

_LOG = logging.getLogger("zskip")
_ATTEMPTS = 100
_LISTED_REMOVALS = 1000


Sketches: TypeAlias = Sequence[SketchRecord] | Callable[[tuple[SketchRecord, ...]], tuple[SketchRecord, ...]]


@dataclass(frozen=True, slots=True)
class TableUpdate:
    """What a commit changes, which can be applied to any snapshot.

    ``add``: new data files, already written · ``remove``: the paths of files to remove · ``replace_all``: the new
    version has only ``add`` · ``restore``: it has the files, schema and layout of this older snapshot · ``schema``,
    ``layout``: the new ones; None if unchanged · ``managed``, ``partition_by``: used for a first version and with
    ``replace_all`` · ``batch``: an application and the number of its batch; if the number is not above the last
    committed one, nothing changes and the files are not used · ``still``: called with the version of others that
    committed first, raises `CommitConflict` if the change is not valid there · ``sketches``: the segments of ``add``,
    which the sketches of the previous version get (with ``replace_all``: the new sketches), or a function that returns
    the new sketches, given those of the previous version · ``merge_sketches``: merge all segments of each sketch into
    one · ``dimensions``: whose attributes the index holds; None if unchanged.
    """

    operation: str
    add: DataFiles | None = None
    remove: Sequence[str] = ()
    replace_all: bool = False
    restore: Snapshot | None = None
    schema: Schema | None = None
    layout: LayoutRecord | None = None
    managed: bool = True
    partition_by: tuple[str, ...] = ()
    details: Mapping[str, Json] = field(default_factory=dict)
    batch: tuple[str, int] | None = None
    still: Callable[[Snapshot], None] | None = None
    sketches: Sketches = ()
    merge_sketches: bool = False
    dimensions: tuple[Dimension, ...] | None = None


def commit(
    storage: Storage,
    base: Snapshot | None,
    update: TableUpdate,
    *,
    since: int | None = None,
    staged: Staged | None = None,
) -> Snapshot:
    """Make a new version of a table, or its first one if ``base`` is None, and return it.

    The new data files are made durable here. ``since``: the newest version when the first of them was begun, by default
    that of ``base`` · ``staged``: the files of ``update.add`` and of the new sketches, whose owner removes them if they
    are not used, or uses them again.

    If others commit first, the change is applied to their version. Files can be added unless the table's columns or
    partitions changed. Files to remove must still be in that version. The schema or layout that this commit sets must
    be the same as before.

    A commit that comes second looks at the vacuums since ``since``: if one of them has expired that version or removes
    the new files (`runs`), it is refused.

    Raises `CommitConflict`, `FilesRemoved`, `TableExists`, `UnsupportedStore` and `UncertainCommit`.
    """
    if base is None:
        update = replace(update, replace_all=True)
    if (older := update.restore) is not None:
        update = replace(update, schema=older.schema, layout=older.layout, dimensions=older.dimensions)
    try:
        with Staged(storage.delete, within=staged) as parts:
            attempt = _Attempt(storage, update, since if since is not None or base is None else base.version, parts)
            if update.add is not None:
                _require_safe_paths(update.add)
                if update.managed:
                    _make_durable(storage, update.add)
            made = attempt.next(attempt.nothing() if base is None else base)
    except _AlreadyCommitted as found:
        return found.snapshot
    log.write_hint(storage, made.version)
    # Parts that were merged with others before any version named them.
    attempt.drafts.discard(keep={part.path for part in made.parts} | segment_paths(made.sketches))
    _LOG.info(
        "%s is version %d now, by %s: %s files", storage.uri, made.version, update.operation, f"{made.totals.files:,}"
    )
    return made


def refuse_newer(newest: Snapshot) -> None:
    """As ``still`` of a commit that holds only for the version that it was made from. Raises `CommitConflict`."""
    raise CommitConflict(
        f"Another process has committed version {newest.version} of the index meanwhile. Open the table and try again."
    )


def _made_meanwhile(storage: Storage) -> TableExists:
    return TableExists(f"Another process has made a table at {storage.uri} meanwhile. Repeat the call.")


class _Attempt:
    """One change being committed."""

    def __init__(self, storage: Storage, update: TableUpdate, since: int | None, staged: Staged) -> None:
        self.storage, self.update, self.since, self.staged = storage, update, since or 0, staged
        self.commit_id = secrets.token_hex(16)
        self.drafts = Drafts(storage, staged)
        self._added: tuple[Shard, ...] | None = None

    def nothing(self) -> Snapshot:
        """A table before its first version. Raises `TableExists` and `CommitConflict`."""
        if log.latest_version(self.storage):
            raise _made_meanwhile(self.storage)
        if (schema := self.update.schema) is None:
            raise CommitConflict(f"The table at {self.storage.uri} is gone: there is no version to change.")
        begun, table_id = datetime.now(UTC), secrets.token_hex(16)
        return Snapshot(0, table_id, "", schema, self.update.managed, (), None, (), "", begun, None)

    def next(self, base: Snapshot) -> Snapshot:
        """The next version of a table, retried while others commit first, or its first one."""
        newest, batch = base, self.update.batch
        for attempt in range(_ATTEMPTS):
            if batch is not None and newest.applications.get(batch[0], -1) >= batch[1]:
                raise _AlreadyCommitted(newest)
            require_not_doomed(self.storage, newest, self.since, self._files(newest))
            try:
                candidate = self._applied(base, newest)
            except DamagedIndex:  # of a part that this commit wrote, or read: has a vacuum removed it?
                require_not_doomed(self.storage, log.load(self.storage), self.since, self._files(newest))
                raise
            if log.create(self.storage, candidate, newest, self.staged):
                return candidate
            if not base.version:
                raise _made_meanwhile(self.storage)
            self.drafts.discard(keep={part.path for shard in self._added or () for part in shard.parts})
            clock.sleep(random.random() * min(0.001 * 2**attempt, 0.2))
            newest = log.load(self.storage)
        raise CommitConflict(f"{self.storage.uri}: other writers came first {_ATTEMPTS} times. Try again.")

    def _applied(self, base: Snapshot, newest: Snapshot) -> Snapshot:
        """The change applied to ``newest``. Raises `CommitConflict` if it no longer applies."""
        update, uri = self.update, self.storage.uri
        if newest.table_id != base.table_id:
            raise CommitConflict(f"{uri}: the table was replaced by another one.")
        for name in ("schema", "layout", "dimensions"):
            new, before, now = getattr(update, name), getattr(base, name), getattr(newest, name)
            if new is not None and now != before and now != new:
                raise CommitConflict(
                    f"{uri}: version {newest.version} changed the table's {name} meanwhile. Repeat the call."
                )
        if update.still is not None and newest.version != base.version:
            update.still(newest)
        afresh = update.replace_all or update.restore is not None
        if not afresh and update.add is not None and not _accepts_files(newest, base, update.schema):
            raise CommitConflict(f"{uri}: version {newest.version} has other columns than the files that were written.")
        schema, layout = update.schema or newest.schema, update.layout or newest.layout
        older, state = update.restore or newest, dict[str, Any]()
        if update.restore is not None:
            if older.version < newest.horizon:
                raise FilesRemoved(
                    f"{uri}: a vacuum has expired version {older.version}. "
                    f"The oldest that can be restored is {newest.horizon}."
                )
            kept, dimensions = older.shards, older.dimensions
            state |= {name: getattr(older, name) for name in ("managed", "partition_by", "added", "uniform")}
        elif update.replace_all:
            kept, dimensions = (), update.dimensions or ()
            state |= {"managed": update.managed, "partition_by": update.partition_by, "added": {}}
            state["uniform"] = update.managed
        else:
            kept = self._without_removed(replace(newest, layout=layout))
            dimensions = newest.dimensions if update.dimensions is None else update.dimensions
            later = [path for path in schema.columns if path not in newest.schema.columns]
            state["added"] = {**newest.added, **dict.fromkeys(later, newest.version + 1)}
            # A changed schema leaves older files as they are.
            state["uniform"] = newest.uniform and schema == newest.schema
        # Columns that the statistics of the new files lack were added after these files were written.
        since = base.version if update.schema is None else newest.version + 1
        after = replace(newest, schema=schema, dimensions=dimensions).indexed
        written = replace(base, schema=update.schema or base.schema, dimensions=dimensions).indexed
        added = self._shards(schema, since, layout, state.get("partition_by", newest.partition_by))
        candidate = newest.followed_by(
            **state,
            commit_id=self.commit_id,
            schema=schema,
            layout=layout,
            shards=(*retyped(kept, older.indexed, after), *retyped(added, written, after)),
            operation=update.operation,
            details=update.details,
            applications={**newest.applications, **dict([] if update.batch is None else [update.batch])},
            removed=tuple(update.remove) if len(update.remove) <= _LISTED_REMOVALS else (),
            sketches=self._sketches(newest),
            dimensions=dimensions,
        )
        if update.merge_sketches:
            candidate = merged_wholly(self.drafts, candidate)
        return candidate if afresh else _merged(self.drafts, candidate)

    def _sketches(self, newest: Snapshot) -> tuple[SketchRecord, ...]:
        if self.update.restore is not None:
            return self.update.restore.sketches
        _, after = self._before_and_after(newest)
        return after if self.update.merge_sketches else merged_crowds(self.drafts, after)

    def _before_and_after(self, newest: Snapshot) -> tuple[tuple[SketchRecord, ...], tuple[SketchRecord, ...]]:
        """The sketches of ``newest`` that stay, and those after the change."""
        given = self.update.sketches
        before = () if self.update.replace_all else newest.sketches
        if callable(given):
            return before, given(before)
        return before, tuple(given) if self.update.replace_all else with_segments(before, given)

    def _shards(
        self, schema: Schema, since: int, layout: LayoutRecord | None, partition_by: Sequence[str]
    ) -> tuple[Shard, ...]:
        """The shards of the files to add. Retries reuse them, unless their columns depend on the version."""
        add = self.update.add
        if add is None or not len(add):
            return ()
        if self._added is None or self._added[0].version != since:
            first = () if layout is None else layout.columns
            self._added = write_shards(self.drafts, add, schema, since, first, partition_by)
        return self._added

    def _without_removed(self, snapshot: Snapshot) -> tuple[Shard, ...]:
        kept, found = _without(self.drafts, snapshot, self.update.remove)
        if found < (wanted := len(set(self.update.remove))):
            raise CommitConflict(
                f"{self.storage.uri}: version {snapshot.version} lacks {wanted - found} of the {wanted} files to be "
                "removed: another writer removed or rewrote them. Open the table again and repeat."
            )
        return kept

    def _files(self, newest: Snapshot) -> list[str]:
        """The files that only this commit names."""
        added = [] if self.update.add is None else self.update.add.path.to_pylist()
        before, after = self._before_and_after(newest)
        return [*added, *self.drafts.paths, *segment_paths(after) - segment_paths(before)]


class _AlreadyCommitted(Exception):
    """The batch is in the table already: in this snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot


def _accepts_files(newest: Snapshot, base: Snapshot, schema: Schema | None) -> bool:
    """Whether files written for ``base`` are valid in ``newest``, which may have more and wider columns."""
    if newest.partition_by != base.partition_by or newest.dimensions != base.dimensions:
        return False
    if schema is not None or newest.schema == base.schema:
        return True
    now = newest.schema.columns
    return all(
        path in now and (column.type == now[path].type or widens(column.type, now[path].type))
        for path, column in base.schema.columns.items()
    )


def _make_durable(storage: Storage, files: DataFiles) -> None:
    try:
        storage.make_durable(files.path.to_pylist())
    except FileNotFoundError as error:
        raise FilesRemoved(f"{storage.uri}: a vacuum removed files before they were committed: {error}") from error


def _require_safe_paths(files: DataFiles) -> None:
    for path in unsafe_paths(files.path):
        raise UnsafePath(f'The path "{path}" of a data file leads out of its table.')


# Derives the shards of a version from those of the version before: removes files, and merges small shards.

_SMALL = FILES_PER_SHARD // 2


def _without(drafts: Drafts, snapshot: Snapshot, paths: Sequence[str]) -> tuple[tuple[Shard, ...], int]:
    """A snapshot's shards without some files, and how many of these it had. Shards without any are not rewritten."""
    gone = pa.array(sorted(set(paths)), pa.string())
    if not len(gone):
        return snapshot.shards, 0
    index = Index(drafts.storage, snapshot)
    kept: list[Shard] = []
    found = 0
    for number, shard in enumerate(snapshot.shards):
        hit = pc.is_in(index.shard_paths(number), gone).to_numpy(zero_copy_only=False)
        found += int(hit.sum())
        if not hit.any():
            kept.append(shard)
        elif not hit.all():
            kept.extend(_written(drafts, index.data_files([number]).take(np.flatnonzero(~hit)), snapshot))
    return tuple(kept), found


def _merged(drafts: Drafts, snapshot: Snapshot) -> Snapshot:
    """The same files in fewer shards: eight shards of similar size are merged into one.

    So any number of small commits leaves few shards, and rewrites each file's statistics only a few times
    (O'Neil 1996, the log-structured merge-tree).
    """
    while (crowd := _crowd(snapshot.shards)) is not None:
        one = _written(drafts, Index(drafts.storage, snapshot).data_files(crowd), snapshot)
        rest = [shard for number, shard in enumerate(snapshot.shards) if number not in crowd]
        position = crowd[-1] + 1 - len(crowd)
        snapshot = replace(snapshot, shards=(*rest[:position], *one, *rest[position:]))
    return snapshot


def _written(drafts: Drafts, files: DataFiles, snapshot: Snapshot) -> tuple[Shard, ...]:
    first = () if snapshot.layout is None else snapshot.layout.columns
    return write_shards(drafts, files, snapshot.schema, snapshot.version, first, snapshot.partition_by)


def _crowd(shards: Sequence[Shard]) -> list[int] | None:
    """The numbers of the first `FANOUT` small shards of one size class; None if no class has as many."""
    levels: dict[int, list[int]] = {}
    for number, shard in enumerate(shards):
        if shard.totals.files < _SMALL:
            level = levels.setdefault((max(shard.totals.files, 1).bit_length() - 1) // 3, [])
            level.append(number)
            if len(level) == FANOUT:
                return level
    return None
