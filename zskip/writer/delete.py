"""Delete: files that match wholly leave the table unread, those that match in part are written anew without those rows.

A delete is serializable: it takes the rows out of the very version that it comes after. Files that others added while
it worked are looked at as well, and only those; where others took away a file that is to go, it must begin again.
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
from zskip.stats import DataFiles
from zskip.storage import Storage
from zskip.tablelog import Index, Snapshot, commit, with_segments
from zskip.writer.append import be_managed, kept_options, removal, routing_of
from zskip.writer.backend import LOCAL, Backend
from zskip.writer.options import WriteOptions
from zskip.writer.write import Written

__all__ = ["Deleted", "delete"]

_ATTEMPTS = 50


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete did. Files that matched wholly were dropped unread, those that matched in part written anew."""

    version: int
    rows: int
    files_dropped: int
    files_rewritten: int
    rewritten: tuple[str, ...]


def delete(
    storage: Storage,
    base: Snapshot,
    matching: Predicate,
    rest: Predicate,
    options: WriteOptions,
    backend: Backend = LOCAL,
) -> tuple[Snapshot, Deleted]:
    """Take the rows out of a table for which ``matching`` is TRUE; ``rest`` is TRUE of all others.

    Raises `CommitConflict` where another writer took a file away that is to go, or changed the columns, and
    `CorruptFile` where a file does not hold the rows that it should. Nothing is changed then.
    """
    be_managed(storage, base)
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
    """What becomes of some files: the paths of those that go whole and of those that are written anew, and as what."""

    dropped: tuple[str, ...]
    rewritten: tuple[str, ...]
    written: Written
    rows: int


class _Grown(Exception):
    """Others added files, in this version, which may hold rows to be deleted."""

    def __init__(self, newest: Snapshot) -> None:
        self.newest = newest


class _Deletion:
    """A delete under way. ``cuts``: what it did so far · ``uncertain``: a commit may have been made."""

    def __init__(
        self, storage: Storage, matching: Predicate, rest: Predicate, options: WriteOptions, backend: Backend
    ) -> None:
        self.storage, self.matching, self.rest = storage, matching, rest
        self.options, self.backend = options, backend
        self.cuts: list[_Cut] = []
        self.uncertain = False

    def made(self, base: Snapshot) -> tuple[Snapshot, Deleted]:
        """The version without the rows; the newest one as it is where there are none."""
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
        """Write the files anew of which some rows go.

        Files of which a plan can't tell whether a row matches are asked first, by the predicate's columns alone: those
        in which none does are left as they are. A cluster does not ask: it would read them on one machine.
        """
        partly, matched = hit.numbers[~hit.all_match], None
        if self.backend is LOCAL:
            matched = counts(hit.narrowed(partly).scan)
            partly, matched = partly[matched > 0], matched[matched > 0]
        whole = hit.numbers[hit.all_match]
        if not len(whole) and not len(partly):
            return
        left = survey(hit.index, self.rest).narrowed(partly)
        routing, rows_per_file = routing_of(self.storage, base)
        kept = kept_options(base, self.options)
        written = self.backend.write(
            self.backend.scanned(left.scan), self.storage, base.schema, kept, routing, rows_per_file, None
        )
        if matched is not None and _rows(hit, partly) - written.rows != matched.sum():
            self._be_volatile(hit.narrowed(partly), matched, written)
        rows = _rows(hit, whole) + _rows(hit, partly) - written.rows
        if not rows:
            # Nothing matched after all: the files stay.
            removal(self.storage, written)()
            return
        paths = [tuple(hit.index.paths(numbers).to_pylist()) for numbers in (whole, partly)]
        self.cuts.append(_Cut(paths[0], paths[1], written, rows))

    def _be_volatile(self, hit: Survivors, matched: np.ndarray, written: Written) -> None:
        """Refuse to take files for whole whose rows are neither matched nor left; unless the predicate draws lots."""
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
        """The files to look at that ``newest`` has, and ``base`` has not."""
        shards = tuple(shard for shard in newest.shards if shard not in base.shards)
        found = survey(Index(self.storage, replace(newest, shards=shards)), self.matching)
        before = Index(self.storage, base)
        known = before.paths(np.arange(len(before), dtype=np.int64))
        return found.narrowed(found.numbers[~np.asarray(pc.is_in(found.relative_paths, value_set=known))])


def _rows(hit: Survivors, numbers: np.ndarray) -> int:
    return int(pc.sum(hit.index.row_counts(numbers), min_count=0).as_py())
