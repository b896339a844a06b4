"""Delete: files whose rows all match are dropped unread; files with some matching rows are rewritten without them.

A file is rewritten in place: it keeps its layout group. (A cluster writes what is left as a new group.)

A delete is serializable: it removes the rows from the version right before its own, so it also checks the files that
other writers have added in the meantime. If another writer removed one of its files, the delete raises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.receipts import Deleted
from zskip.engines.arrow import counts, to_batches
from zskip.errors import CommitConflict, CorruptFile
from zskip.language import Predicate
from zskip.language.tree import In, Reference
from zskip.plan import Survivors, find_survivors
from zskip.stats import DataFiles
from zskip.storage import Staged, Storage, abandon
from zskip.tablelog.commit import commit
from zskip.tablelog.index import Index
from zskip.tablelog.snapshot import Snapshot, with_segments
from zskip.writer.append import kept_options, look_ups_of, require_managed, sized_by_rows
from zskip.writer.backend import LOCAL, Backend
from zskip.writer.key_match import FileRows, Keys, Matches
from zskip.writer.options import WriteOptions
from zskip.writer.write import Written, available_cores, rewrite_files

_ATTEMPTS = 50


def delete(
    storage: Storage,
    base: Snapshot,
    matching: Predicate,
    rest: Predicate,
    options: WriteOptions,
    backend: Backend = LOCAL,
) -> tuple[Snapshot, Deleted]:
    """Remove the rows for which ``matching`` is TRUE; ``rest`` is TRUE for all others.

    Raises `CommitConflict` if another writer removed one of the affected files or changed the columns, and
    `CorruptFile` if a file does not hold the rows that the index records. Then the table is unchanged.
    """
    require_managed(storage, base)
    with Staged(storage.delete) as staged:
        return _Deletion(storage, matching, rest, options, backend, staged).run(base)


def would_delete(storage: Storage, base: Snapshot, matching: Predicate) -> Deleted:
    """What a delete would do, by counting the matching rows in the files in which some match. Nothing is changed."""
    require_managed(storage, base)
    affected = find_survivors(Index(storage, base), matching)
    dropped, partly = affected.numbers[affected.all_match], affected.numbers[~affected.all_match]
    found = counts(affected.narrowed(partly).scan)
    partly = partly[found > 0]
    return Deleted(
        base.version,
        _rows(affected, dropped) + int(found.sum()),
        len(dropped),
        len(partly),
        tuple(affected.index.paths(partly).to_pylist()),
        _bytes(affected, dropped) + _bytes(affected, partly),
        dry_run=True,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of a delete: the files to drop, the rewritten files, the new files, and the number of removed rows.

    ``bytes``: the size of the dropped and the rewritten files
    """

    dropped: tuple[str, ...]
    rewritten: tuple[str, ...]
    written: Written
    rows: int
    bytes: int


class _FilesAdded(Exception):
    """Other writers have added files, up to the version ``newest``, that may hold rows to delete."""

    def __init__(self, newest: Snapshot) -> None:
        self.newest = newest


class _Deletion:
    """A delete in progress. ``steps``: those taken so far · ``staged``: the files written so far."""

    def __init__(
        self,
        storage: Storage,
        matching: Predicate,
        rest: Predicate,
        options: WriteOptions,
        backend: Backend,
        staged: Staged,
    ) -> None:
        self.storage, self.matching, self.rest = storage, matching, rest
        self.options, self.backend, self.staged = options, backend, staged
        self.steps: list[_Step] = []

    def run(self, base: Snapshot) -> tuple[Snapshot, Deleted]:
        """Make the version without the rows; return the newest version unchanged if no row matches."""
        affected = find_survivors(Index(self.storage, base), self.matching)
        since = base.version
        for _ in range(_ATTEMPTS):
            self._rewrite(base, affected)
            if not self.steps:
                return base, Deleted(base.version, 0, 0, 0, (), 0)
            try:
                return self._commit(base, since)
            except _FilesAdded as added:
                base, affected = added.newest, self._added(base, added.newest)
        raise CommitConflict(
            f"{self.storage.uri}: other writers added rows to delete during each of {_ATTEMPTS} attempts. Try again."
        )

    def _rewrite(self, base: Snapshot, affected: Survivors) -> None:
        """Rewrite the files in which some rows match.

        If the plan cannot tell whether rows of a file match, count them first, which reads only the predicate's
        columns. Files without matches stay unchanged. A cluster skips the count, since it would run on this machine.
        """
        partly, matched = affected.numbers[~affected.all_match], None
        keys: dict[int, Matches] | None = None
        rows_of = FileRows(affected.index, affected.index.snapshot.schema.arrow)
        if self.backend is LOCAL and (listed := _listed_keys(self.matching)) is not None:
            keys = listed.in_files(rows_of, partly, self.options.threads or available_cores())
            partly = np.array(list(keys), np.int64)
            matched = np.array([len(each.rows) for each in keys.values()], np.int64)
        elif self.backend is LOCAL:
            matched = counts(affected.narrowed(partly).scan)
            partly, matched = partly[matched > 0], matched[matched > 0]
        dropped = affected.numbers[affected.all_match]
        if not len(dropped) and not len(partly):
            return
        left = find_survivors(affected.index, self.rest).narrowed(partly) if keys is None else affected
        kept = kept_options(base, self.options)
        if self.backend is LOCAL:

            def rows_left(number: int) -> pa.Table:
                if keys is not None:
                    return rows_of(number).filter(keys[number].others)
                scan = left.narrowed(np.array([number])).scan
                return pa.Table.from_batches(to_batches(scan), scan.schema.arrow)

            written = rewrite_files(affected.index, partly, rows_left, kept, self.staged)
        else:
            rows = self.backend.rows_of_scan(left.scan, base.schema.arrow)
            look_ups = look_ups_of(left.index, kept)
            sized = sized_by_rows(base, kept)
            written = self.backend.write(rows, self.storage, base.schema, sized, look_ups, self.staged)
        if matched is not None and _rows(affected, partly) - written.rows != matched.sum():
            self._require_complete(affected.narrowed(partly), matched, written)
        removed = _rows(affected, dropped) + _rows(affected, partly) - written.rows
        if not removed:
            abandon(self.storage, written.paths)  # the commit of another step would keep them
            return
        paths = [tuple(affected.index.paths(numbers).to_pylist()) for numbers in (dropped, partly)]
        size = _bytes(affected, dropped) + _bytes(affected, partly)
        self.steps.append(_Step(paths[0], paths[1], written, removed, size))

    def _require_complete(self, affected: Survivors, matched: np.ndarray, written: Written) -> None:
        """Raise `CorruptFile` unless the matching and the remaining rows add up to the rows that the index records.

        A volatile predicate, such as ``random() < 0.5``, gives another count each time and proves nothing.
        """
        if not np.array_equal(counts(affected.scan), matched):
            return
        raise CorruptFile(
            f"By the index, {len(matched)} files of {self.storage.uri} hold "
            f"{_rows(affected, affected.numbers):,} rows; "
            f"{matched.sum():,} match and {written.rows:,} do not. Nothing was changed. zskip verify finds the files "
            "that differ."
        )

    def _commit(self, base: Snapshot, since: int) -> tuple[Snapshot, Deleted]:
        dropped = tuple(path for step in self.steps for path in step.dropped)
        rewritten = tuple(path for step in self.steps for path in step.rewritten)
        rows = sum(step.rows for step in self.steps)
        snapshot = commit(
            self.storage,
            base,
            "delete",
            add=DataFiles.concat([step.written.files for step in self.steps]),
            remove=[*dropped, *rewritten],
            details={"rows": rows, "files_dropped": len(dropped), "files_rewritten": len(rewritten)},
            since=since,
            still=lambda newest: self._require_no_added_files(base, newest),
            staged=self.staged,
            sketches=lambda before: reduce(with_segments, [step.written.sketches for step in self.steps], before),
        )
        return snapshot, Deleted(
            snapshot.version, rows, len(dropped), len(rewritten), rewritten, sum(step.bytes for step in self.steps)
        )

    def _require_no_added_files(self, base: Snapshot, newest: Snapshot) -> None:
        """Raise `_FilesAdded` if ``newest`` has further files that may match; `CommitConflict` for another schema."""
        if newest.schema != base.schema:
            raise CommitConflict(f"{self.storage.uri}: version {newest.version} has changed the table's schema.")
        if len(self._added(base, newest)):
            raise _FilesAdded(newest)

    def _added(self, base: Snapshot, newest: Snapshot) -> Survivors:
        """The files of ``newest`` that may match and are not in ``base``."""
        shards = tuple(shard for shard in newest.shards if shard not in base.shards)
        affected = find_survivors(Index(self.storage, replace(newest, shards=shards)), self.matching)
        before = Index(self.storage, base)
        known = before.paths(np.arange(len(before), dtype=np.int64))
        return affected.narrowed(affected.numbers[~np.asarray(pc.is_in(affected.relative_paths, value_set=known))])


def _listed_keys(matching: Predicate) -> Keys | None:
    """The values of ``column IN (…)``, which a semi-join finds in linear time; None for any other predicate."""
    tree = matching.tree
    if not isinstance(tree, In) or not isinstance(tree.term, Reference):
        return None
    column = matching.schema.columns.get(tree.term.path)
    if column is None or len(column.parts) > 1 or column.type != tree.values.type:
        return None
    return Keys.of(pa.table({column.parts[0]: tree.values}), column.parts)


def _rows(survivors: Survivors, numbers: np.ndarray) -> int:
    """The number of rows in some files."""
    return int(pc.sum(survivors.index.row_counts(numbers), min_count=0).as_py())


def _bytes(survivors: Survivors, numbers: np.ndarray) -> int:
    """The size of some files in bytes."""
    return int(pc.sum(survivors.index.sizes(numbers), min_count=0).as_py())
