"""Delete: files whose rows all match are dropped unread; files with some matching rows are rewritten without them.

A delete is serializable: it removes the rows from the version right before its own. It also checks the files that
other writers added meanwhile, and only those. Where another writer removed one of its files, it must start again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow.compute as pc

from zskip.engines.arrow import counts
from zskip.errors import CommitConflict, CorruptFile
from zskip.expr import Predicate
from zskip.plan import Survivors, survey
from zskip.receipts import Deleted
from zskip.stats import DataFiles
from zskip.storage import Storage
from zskip.tablelog import Index, Snapshot, commit, with_segments
from zskip.writer.append import kept_options, removal, require_managed, routing_of
from zskip.writer.backend import LOCAL, Backend
from zskip.writer.options import WriteOptions
from zskip.writer.write import Written

__all__ = ["delete"]

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

    Raises `CommitConflict` where another writer removed one of the affected files or changed the columns, and
    `CorruptFile` where a file does not hold the rows that the index records. The table is unchanged then.
    """
    require_managed(storage, base)
    deletion = _Deletion(storage, matching, rest, options, backend)
    try:
        return deletion.made(base)
    except BaseException:
        if not deletion.uncertain:
            for cut in deletion.cuts:
                removal(storage, cut.written)()
        raise


@dataclass(frozen=True, slots=True)
class _Cut:
    """One step of a delete: the files to drop, the files that were rewritten, the new files, and the rows removed."""

    dropped: tuple[str, ...]
    rewritten: tuple[str, ...]
    written: Written
    rows: int


class _Grown(Exception):
    """Another writer added files, up to ``newest``, that may hold rows to be deleted."""

    def __init__(self, newest: Snapshot) -> None:
        self.newest = newest


class _Deletion:
    """A delete in progress. ``cuts``: its steps so far · ``uncertain``: whether a commit may have been made."""

    def __init__(
        self, storage: Storage, matching: Predicate, rest: Predicate, options: WriteOptions, backend: Backend
    ) -> None:
        self.storage, self.matching, self.rest = storage, matching, rest
        self.options, self.backend = options, backend
        self.cuts: list[_Cut] = []
        self.uncertain = False

    def made(self, base: Snapshot) -> tuple[Snapshot, Deleted]:
        """The version without the rows; the unchanged newest version where no row matches."""
        hit = survey(Index(self.storage, base), self.matching)
        for _ in range(_ATTEMPTS):
            self._cut(base, hit)
            if not self.cuts:
                return base, Deleted(base.version, 0, 0, 0, ())
            try:
                return self._committed(base)
            except _Grown as grown:
                base, hit = grown.newest, self._added(base, grown.newest)
        raise CommitConflict(f"{self.storage.uri}: others added rows to be deleted {_ATTEMPTS} times. Try again.")

    def _cut(self, base: Snapshot, hit: Survivors) -> None:
        """Rewrite the files of which some rows match.

        Where the plan cannot decide, the matching rows are first counted, reading only the predicate's columns; files
        without any stay as they are. A cluster does not count: this machine would read all of them.
        """
        partly, matched = hit.numbers[~hit.all_match], None
        if self.backend is LOCAL:
            matched = counts(hit.narrowed(partly).scan)
            partly, matched = partly[matched > 0], matched[matched > 0]
        dropped = hit.numbers[hit.all_match]
        if not len(dropped) and not len(partly):
            return
        left = survey(hit.index, self.rest).narrowed(partly)
        routing, rows_per_file = routing_of(self.storage, base)
        kept = kept_options(base, self.options)
        written = self.backend.write(
            self.backend.scanned(left.scan), self.storage, base.schema, kept, routing, rows_per_file, None
        )
        if matched is not None and _rows(hit, partly) - written.rows != matched.sum():
            self._require_complete(hit.narrowed(partly), matched, written)
        rows = _rows(hit, dropped) + _rows(hit, partly) - written.rows
        if not rows:
            # No row matched: the files stay.
            removal(self.storage, written)()
            return
        paths = [tuple(hit.index.paths(numbers).to_pylist()) for numbers in (dropped, partly)]
        self.cuts.append(_Cut(paths[0], paths[1], written, rows))

    def _require_complete(self, hit: Survivors, matched: np.ndarray, written: Written) -> None:
        """Raise `CorruptFile` where the matching and the remaining rows are not all rows that the index records.

        A volatile predicate, such as ``random() < 0.5``, gives another count each time and proves nothing.
        """
        if not np.array_equal(counts(hit.scan), matched):
            return
        removal(self.storage, written)()
        raise CorruptFile(
            f"{len(matched)} files of {self.storage.uri} hold {_rows(hit, hit.numbers):,} rows by the index; "
            f"{matched.sum():,} match and {written.rows:,} do not. Nothing was changed. zskip verify says which files "
            "differ."
        )

    def _committed(self, base: Snapshot) -> tuple[Snapshot, Deleted]:
        dropped = tuple(path for cut in self.cuts for path in cut.dropped)
        rewritten = tuple(path for cut in self.cuts for path in cut.rewritten)
        rows = sum(cut.rows for cut in self.cuts)
        self.uncertain = True
        snapshot = commit(
            self.storage,
            base,
            "delete",
            add=DataFiles.concat([cut.written.files for cut in self.cuts]),
            remove=[*dropped, *rewritten],
            details={"rows": rows, "files_dropped": len(dropped), "files_rewritten": len(rewritten)},
            still=lambda newest: self._see_all(base, newest),
            undo=self._undone,
            sketches=lambda before: reduce(with_segments, [cut.written.sketches for cut in self.cuts], before),
        )
        return snapshot, Deleted(snapshot.version, rows, len(dropped), len(rewritten), rewritten)

    def _undone(self) -> None:
        self.uncertain = False

    def _see_all(self, base: Snapshot, newest: Snapshot) -> None:
        if newest.schema != base.schema:
            raise CommitConflict(f"{self.storage.uri}: version {newest.version} changed the table's schema meanwhile.")
        if len(self._added(base, newest)):
            raise _Grown(newest)

    def _added(self, base: Snapshot, newest: Snapshot) -> Survivors:
        """The files that may match and that ``newest`` has and ``base`` has not."""
        shards = tuple(shard for shard in newest.shards if shard not in base.shards)
        found = survey(Index(self.storage, replace(newest, shards=shards)), self.matching)
        before = Index(self.storage, base)
        known = before.paths(np.arange(len(before), dtype=np.int64))
        return found.narrowed(found.numbers[~np.asarray(pc.is_in(found.relative_paths, value_set=known))])


def _rows(hit: Survivors, numbers: np.ndarray) -> int:
    return int(pc.sum(hit.index.row_counts(numbers), min_count=0).as_py())
