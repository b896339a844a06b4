"""Commit: shards first, then the next log entry, created only if absent; the loser of a race looks again."""

from __future__ import annotations

import json
import random
import secrets
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import CommitConflict, TableExists, UncertainCommit, UnsafePath
from zskip.schema import Schema
from zskip.stats import DataFiles
from zskip.storage.storage import Storage, unsafe_paths
from zskip.tablelog import log
from zskip.tablelog.index import Index
from zskip.tablelog.parts import Drafts, read_part
from zskip.tablelog.shards import FILES_PER_SHARD, write_shards
from zskip.tablelog.snapshot import LayoutRecord, Shard, Snapshot
from zskip.tablelog.values import Json
from zskip.types import widens

__all__ = ["commit", "layout_assignment"]

_ATTEMPTS = 100
_FANOUT, _SMALL = 8, FILES_PER_SHARD // 2
_LARGEST_INLINE, _LISTED_REMOVALS = 16_384, 1000


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
    managed: bool
    partition_by: tuple[str, ...]
    details: Mapping[str, Json]
    batch: tuple[str, int] | None
    still: Callable[[Snapshot], None] | None


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
    still: Callable[[Snapshot], None] | None = None,
    undo: Callable[[], None] | None = None,
) -> Snapshot:
    """Make a new version of a table, or its first one where ``base`` is None, and return it.

    The data files of ``add`` must have been written; they are made durable here. ``remove``: paths that the new
    version no longer has. ``replace_all``: it has nothing but ``add``. ``restore``: it has the files, schema and
    layout of that older snapshot. ``schema`` and ``layout`` are the new ones, None where they stay as they are.
    ``managed`` and ``partition_by`` are said where a table starts: with its first version, and with ``replace_all``.
    ``batch``: an application's name and the number of its batch; one that is not above the last that was committed
    changes nothing, and its files are not used. ``undo`` is called where the change is certain not to have been
    made: it may remove the data files; a commit that may have been made must keep them.

    When others commit first, the change is made to their version: what is added can be, unless the table was given
    other columns or partitions; what is to be removed must still be there, and no one else may have changed the schema
    or the layout that this change sets. ``still`` is asked about their version, and raises `CommitConflict` where the
    change would have been another one, had it been there from the start.

    Raises `CommitConflict`, `TableExists`, `UnsupportedStore` and `UncertainCommit`.
    """
    change = _Change(
        operation,
        add,
        tuple(remove),
        replace_all,
        restore,
        schema,
        layout,
        managed,
        tuple(partition_by),
        details or {},
        batch,
        still,
    )
    if restore is not None:
        change = replace(change, schema=restore.schema, layout=restore.layout)
    attempt = _Attempt(storage, change, base)
    try:
        attempt.keep_apart_the_layout()
        if add is not None:
            _be_safe(add)
            if managed:
                storage.make_durable(add.path.to_pylist())
        made = attempt.first() if base is None else attempt.next(base)
    except _AlreadyCommitted as found:
        attempt.drafts.discard()
        if undo is not None:
            undo()
        return found.snapshot
    except BaseException:
        # Where the entry may have been made after all, its parts and files must stay: vacuum will know.
        if not attempt.uncertain:
            attempt.drafts.discard()
            if undo is not None:
                undo()
        raise
    log.write_hint(storage, made.version)
    return made


class _Attempt:
    """One change on its way into the log. ``uncertain``: an entry may have been made that was not acknowledged."""

    def __init__(self, storage: Storage, change: _Change, base: Snapshot | None) -> None:
        self.storage, self.change, self.base = storage, change, base
        self.commit_id = secrets.token_hex(16)
        self.uncertain = False
        self.drafts = Drafts(storage)
        self._added: tuple[Shard, ...] | None = None

    def keep_apart_the_layout(self) -> None:
        """A layout whose assignment is large gets a part of its own, so that later commits do not write it again."""
        layout = self.change.layout
        if layout is None or layout.part is not None or layout.assignment is None:
            return
        data = json.dumps(layout.assignment, allow_nan=False, separators=(",", ":")).encode()
        if len(data) > _LARGEST_INLINE:
            apart = replace(layout, assignment=None, part=self.drafts.publish("layout", ".json", data))
            self.change = replace(self.change, layout=apart)

    def first(self) -> Snapshot:
        """The first version of a table."""
        storage, change = self.storage, self.change
        if log.latest_version(storage):
            raise TableExists(f'There is a table at {storage.uri} already. Say mode="append" or mode="overwrite".')
        if change.schema is None:
            raise CommitConflict(f"The table at {storage.uri} is gone: there is no version to change.")
        candidate = Snapshot(
            version=1,
            table_id=secrets.token_hex(16),
            commit_id=self.commit_id,
            schema=change.schema,
            managed=change.managed,
            partition_by=change.partition_by,
            layout=change.layout,
            shards=self._shards(change.schema, 1, change.layout),
            operation=change.operation,
            time=datetime.now(UTC),
            parent=None,
            details=change.details,
            applications=dict([] if change.batch is None else [change.batch]),
        )
        if not self._create(candidate):
            raise TableExists(f"Another writer made a table at {storage.uri} just now.")
        return candidate

    def next(self, base: Snapshot) -> Snapshot:
        """The next version of a table, after whatever others commit meanwhile."""
        newest, batch = base, self.change.batch
        for attempt in range(_ATTEMPTS):
            if batch is not None and newest.applications.get(batch[0], -1) >= batch[1]:
                raise _AlreadyCommitted(newest)
            candidate = self._applied(base, newest)
            if self._create(candidate):
                return candidate
            self.drafts.discard(keep=self._kept())
            clock.sleep(random.random() * min(0.001 * 2**attempt, 0.2))
            newest = log.load(self.storage)
        raise CommitConflict(f"{self.storage.uri}: other writers came first {_ATTEMPTS} times. Try again.")

    def _applied(self, base: Snapshot, newest: Snapshot) -> Snapshot:
        """The change made to ``newest``. Raises `CommitConflict` where it no longer applies."""
        change, uri = self.change, self.storage.uri
        if newest.table_id != base.table_id:
            raise CommitConflict(f"{uri}: the table was replaced by another one.")
        for name in ("schema", "layout"):
            wanted, before, now = getattr(change, name), getattr(base, name), getattr(newest, name)
            if wanted is not None and now != before and now != wanted:
                raise CommitConflict(f"{uri}: version {newest.version} changed the table's {name} meanwhile.")
        if change.still is not None and newest.version != base.version:
            change.still(newest)
        afresh = change.replace_all or change.restored is not None
        if not afresh and change.add is not None and not _holds(newest, base, change.schema):
            raise CommitConflict(f"{uri}: version {newest.version} has other columns than the files that were written.")
        schema, layout = change.schema or newest.schema, change.layout or newest.layout
        if change.restored is not None:
            kept = change.restored.shards
        else:
            kept = () if change.replace_all else self._without(newest, layout)
        # What the new files' statistics leave out is what the table did not have when they were written.
        since = base.version if change.schema is None else newest.version + 1
        candidate = replace(
            newest,
            version=newest.version + 1,
            commit_id=self.commit_id,
            schema=schema,
            managed=change.managed if change.replace_all else (change.restored or newest).managed,
            partition_by=change.partition_by if change.replace_all else (change.restored or newest).partition_by,
            layout=layout,
            shards=(*kept, *self._shards(schema, since, layout)),
            operation=change.operation,
            time=max(datetime.now(UTC), newest.time + timedelta(microseconds=1)),
            parent=newest.version,
            details=change.details,
            applications={**newest.applications, **dict([] if change.batch is None else [change.batch])},
            added=_added(change, newest),
            removed=change.remove if len(change.remove) <= _LISTED_REMOVALS else (),
        )
        return candidate if afresh else self._merged(candidate)

    def _shards(self, schema: Schema, since: int, layout: LayoutRecord | None) -> tuple[Shard, ...]:
        """The shards of the files to add: written once, unless their columns depend on the version."""
        add = self.change.add
        if add is None or not len(add):
            return ()
        if self._added is None or self._added[0].version != since:
            self._added = self._write(add, schema, since, layout)
        return self._added

    def _write(self, files: DataFiles, schema: Schema, since: int, layout: LayoutRecord | None) -> tuple[Shard, ...]:
        return write_shards(self.drafts, files, schema, since, () if layout is None else layout.columns)

    def _kept(self) -> set[str]:
        """The parts that the next attempt needs again."""
        layout = self.change.layout
        apart = () if layout is None or layout.part is None else (layout.part.path,)
        return {*_parts(self._added or ()), *apart}

    def _without(self, snapshot: Snapshot, layout: LayoutRecord | None) -> tuple[Shard, ...]:
        """The snapshot's shards without the files to remove: a shard that holds none of them stays as it is."""
        gone = pa.array(sorted(set(self.change.remove)), pa.string())
        if not len(gone):
            return snapshot.shards
        index = Index(self.storage, snapshot)
        kept: list[Shard] = []
        found = 0
        for number, shard in enumerate(snapshot.shards):
            hit = pc.is_in(index.shard_paths(number), gone).to_numpy(zero_copy_only=False)
            found += int(hit.sum())
            if not hit.any():
                kept.append(shard)
            elif not hit.all():
                rest = index.data_files([number]).take(np.flatnonzero(~hit))
                kept.extend(self._write(rest, snapshot.schema, snapshot.version, layout))
        if found < len(gone):
            raise CommitConflict(
                f"{self.storage.uri}: {len(gone) - found} of the {len(gone)} files to be removed are not in version "
                f"{snapshot.version}: another writer removed or rewrote them. Open the table again and repeat."
            )
        return tuple(kept)

    def _merged(self, candidate: Snapshot) -> Snapshot:
        """The same files in fewer shards: whenever so many of about one size have come together, they become one.

        So any number of small commits leaves few shards, and each file's statistics are rewritten a few times only
        (O'Neil 1996, the log-structured merge-tree).
        """
        while (crowd := _crowd(candidate.shards)) is not None:
            files = Index(self.storage, candidate).data_files(crowd)
            one = self._write(files, candidate.schema, candidate.version, candidate.layout)
            rest = [shard for number, shard in enumerate(candidate.shards) if number not in crowd]
            place = crowd[-1] + 1 - len(crowd)
            candidate = replace(candidate, shards=(*rest[:place], *one, *rest[place:]))
        return candidate

    def _create(self, candidate: Snapshot) -> bool:
        """Create the log entry; whether it is there and ours."""
        self.uncertain = True
        try:
            self.uncertain = log.create(self.storage, candidate)
        except UncertainCommit:
            raise
        except Exception:
            self.uncertain = False
            raise
        return self.uncertain


class _AlreadyCommitted(Exception):
    """The batch is in the table already, as of this snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot


def _parts(shards: Sequence[Shard]) -> list[str]:
    return [part.path for shard in shards for part in (shard.file_part, shard.row_group_part) if part is not None]


def _crowd(shards: Sequence[Shard]) -> list[int] | None:
    """The first `_FANOUT` small shards of one order of magnitude, by number; None where there are not so many."""
    levels: dict[int, list[int]] = {}
    for number, shard in enumerate(shards):
        if shard.totals.files < _SMALL:
            level = levels.setdefault((max(shard.totals.files, 1).bit_length() - 1) // 3, [])
            level.append(number)
            if len(level) == _FANOUT:
                return level
    return None


def _holds(newest: Snapshot, base: Snapshot, schema: Schema | None) -> bool:
    """Whether files that were written for ``base`` are files of ``newest`` too: it may have more and wider columns."""
    if newest.partition_by != base.partition_by:
        return False
    if schema is not None or newest.schema == base.schema:
        return True
    now = newest.schema.columns
    return all(
        path in now and (column.type == now[path].type or widens(column.type, now[path].type))
        for path, column in base.schema.columns.items()
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


def _be_safe(files: DataFiles) -> None:
    for path in unsafe_paths(files.path).to_pylist():
        raise UnsafePath(f'The path "{path}" of a data file leads out of its table.')


def layout_assignment(storage: Storage, layout: LayoutRecord) -> Json:
    """The fitted assignment of a layout, as `Assignment.to_json` gave it; None where it has none."""
    return layout.assignment if layout.part is None else json.loads(read_part(storage, layout.part))
