"""Optimize: merge layout groups where that pays (`layout_groups`), or rewrite all files by a newly fitted layout."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from zskip.core.receipts import Clustered, Optimized
from zskip.errors import CommitConflict, CorruptFile, InvalidOption
from zskip.layouts.depth import depths
from zskip.storage import Staged, Storage
from zskip.tablelog.commit import TableUpdate, commit
from zskip.tablelog.index import Index
from zskip.tablelog.runs import may_meet_vacuums
from zskip.tablelog.snapshot import LayoutRecord, Snapshot
from zskip.writer import append
from zskip.writer.backend import LOCAL, Backend
from zskip.writer.compaction.layout_groups import Merge, merges, saved_by_full
from zskip.writer.options import WriteOptions
from zskip.writer.write import Written

_ASKED = ("files", "rows_per_file", "file_size", "weights", "workload")
_RESOURCES = ("memory_limit", "temp_directory", "threads", "progress")
_PASSES = 4  # The ranges of new files may show another merge; writers that go on appending must not prolong this.


@may_meet_vacuums
def optimize(
    storage: Storage,
    base: Snapshot,
    options: WriteOptions,
    *,
    full: bool = False,
    dry_run: bool = False,
    max_bytes: int | None = None,
    until: float | None = None,
    wanted: WriteOptions | None = None,
    backend: Backend = LOCAL,
) -> tuple[Snapshot, Optimized]:
    """Merge the layout groups where that pays, the best first, each in a commit of its own, within ``max_bytes``.

    ``full``: rewrite all files by a newly fitted layout · ``until``: a time of `time.monotonic`, after which no further
    merge is begun · ``wanted``: the options of the new layout, by default those of the table.

    If another writer removes files of a merge in the meantime, the merge is dropped. Raises `CommitConflict` if all
    were, or with ``full``; `InvalidOption` for ``full`` together with ``max_bytes``, and if files are due that are laid
    out by an attribute of a dimension that can no longer be joined.
    """
    append.require_managed(storage, base)
    if full and max_bytes is not None:
        raise InvalidOption("full=True rewrites all files; max_bytes= is for an optimize that chooses some.")
    compaction = _Compaction(storage, base, wanted or append.kept_options(base, options), backend)
    before = compaction.state()
    if full:
        compaction.rewrite_all(dry_run)
    else:
        compaction.merge_groups(max_bytes, until, dry_run)
        compaction.merge_sketches(max_bytes, dry_run)
    snapshot = compaction.snapshot
    done = replace(
        before,
        version=snapshot.version,
        files_rewritten=compaction.files,
        bytes_rewritten=compaction.bytes,
        files_left=compaction.left,
        sketches_merged=compaction.sketches,
        files_after=None if dry_run else snapshot.totals.files,
        dry_run=dry_run,
    )
    if snapshot is base:
        if dry_run:
            return base, done
        return base, replace(done, depth_after=before.depth_before, skipped_after=before.skipped_before)
    # The commits have succeeded: an error of the store must not hide that.
    with suppress(OSError):
        after = compaction.state()
        done = replace(
            done, depth_after=after.depth_before, skipped_after=after.skipped_before, full_saves=after.full_saves
        )
    return snapshot, done


class _Compaction:
    """An optimize in progress.

    ``snapshot``: the newest version · ``files``, ``bytes``: rewritten so far, or planned in a dry run · ``left``: files
    of merges that were not made, since other writers changed them or the time was over · ``sketches``: merged.
    """

    def __init__(self, storage: Storage, base: Snapshot, kept: WriteOptions, backend: Backend) -> None:
        self.storage, self.snapshot, self.kept, self.backend = storage, base, kept, backend
        self.files = self.bytes = self.left = self.sketches = 0

    def state(self) -> Optimized:
        """The receipt for doing nothing: the layout as it is, and what a full rewrite would bring."""
        index = Index(self.storage, self.snapshot)
        layout = self.snapshot.layout
        columns = [] if layout is None else list(layout.columns)
        depth, skipped, saves = float(len(index)), 0.0, 0.0
        if columns and len(index):
            found = depths(index.files(None, columns).statistics, columns).values()
            depth, skipped = (float(np.mean([getattr(one, name) for one in found])) for name in ("average", "skipped"))
            look_ups = append.look_ups_of(index, self.kept, exact=True)
            if look_ups is not None:
                full = append.rows_per_file(self.snapshot, self.kept)
                saves = saved_by_full(index.paths(_all(index)), _rows(index), look_ups, full)
        return Optimized(self.snapshot.version, 0, 0, len(index), None, depth, None, skipped, None, True, 0, saves)

    def merge_groups(self, max_bytes: int | None, until: float | None, dry_run: bool) -> None:
        """Make the merges that the rule finds, until it finds none, as far as they fit into ``max_bytes``."""
        for _ in range(_PASSES):
            again = False
            index = Index(self.storage, self.snapshot)
            sizes = np.asarray(pc.fill_null(index.sizes(_all(index)), 0))
            for merge in self._due(index, sizes, None if max_bytes is None else max_bytes - self.bytes):
                size = int(sizes[merge.numbers].sum())
                if max_bytes is not None and self.bytes + size > max_bytes:
                    continue
                if until is not None and time.monotonic() >= until:
                    self.left += len(merge.numbers)
                    continue
                if not dry_run:
                    try:
                        self._merge(index, merge, size)
                    except CommitConflict as error:
                        conflict = error
                        self.left += len(merge.numbers)
                        continue
                    again = True
                self.files += len(merge.numbers)
                self.bytes += size
            if self.left or not again:
                break
        if self.left and not self.files and (until is None or time.monotonic() < until):
            raise conflict

    def _due(self, index: Index, sizes: np.ndarray, max_bytes: int | None) -> list[Merge]:
        look_ups = append.look_ups_of(index, self.kept, exact=True)
        if look_ups is None:
            return []
        paths, full = index.paths(_all(index)), append.rows_per_file(self.snapshot, self.kept)
        return merges(paths, _rows(index), look_ups, full, sizes=sizes, max_bytes=max_bytes)

    def _merge(self, index: Index, merge: Merge, size: int) -> None:
        options = append.sized_by_rows(self.snapshot, self.kept)
        if options.workload is None:
            options = replace(options, by=tuple(merge.weights), weights=merge.weights)
        self._replace(index, merge.numbers, options, size, None)

    def rewrite_all(self, dry_run: bool) -> None:
        """Rewrite all files by a new layout."""
        index = Index(self.storage, self.snapshot)
        numbers = _all(index)
        size = int(pc.sum(index.sizes(numbers), min_count=0).as_py())
        if len(numbers) and not dry_run:
            self._replace(index, numbers, self.kept, size, self.kept)
        self.files, self.bytes = len(numbers), size

    def merge_sketches(self, max_bytes: int | None, dry_run: bool) -> None:
        """Merge the segments of each sketch, if all of them may be rewritten within what is left of ``max_bytes``."""
        sketches = self.snapshot.sketches
        fit = max_bytes is None or self.bytes + sum(sketch.bytes for sketch in sketches) <= max_bytes
        self.sketches = sum(len(sketch.segments) > 1 for sketch in sketches) if fit else 0
        if self.sketches and not dry_run:
            details = {"full": False, "files_rewritten": 0, "bytes_rewritten": 0}
            self.snapshot = commit(
                self.storage, self.snapshot, TableUpdate("optimize", details=details, merge_sketches=True)
            )

    def _replace(
        self, index: Index, numbers: np.ndarray, options: WriteOptions, size: int, new_layout: WriteOptions | None
    ) -> None:
        """Write the rows of some files as new files, and commit these in their place."""
        if options.star is not None:
            star = options.star(self.storage)
            layout = index.snapshot.layout
            columns = self.kept.by or (() if layout is None else layout.columns)
            star.require_joined(index.snapshot.indexed.orderable(columns))
            options = replace(options, star=lambda _: star)
        rows = self.backend.rows_of_files(index, numbers)
        with Staged(self.storage.delete) as staged:
            written = self.backend.write(rows, self.storage, index.snapshot.schema, options, None, staged)
            require_same_rows(index, numbers, written)
            record: LayoutRecord | None = None if new_layout is None else append.layout_record(written, new_layout)
            # Files of another schema are fitted to the newest version by the commit.
            base = self.snapshot if self.snapshot.schema == index.snapshot.schema else index.snapshot
            self.snapshot = commit(
                self.storage,
                base,
                TableUpdate(
                    "optimize",
                    add=written.files,
                    remove=index.paths(numbers).to_pylist(),
                    layout=record,
                    details={"full": record is not None, "files_rewritten": len(numbers), "bytes_rewritten": size},
                    sketches=written.sketches,
                    merge_sketches=record is not None and bool(index.snapshot.sketches),
                ),
                staged=staged,
            )


def require_same_rows(index: Index, numbers: np.ndarray, written: Written) -> None:
    """Raise `CorruptFile` if the new files have fewer or more rows than the index records for the old ones."""
    known = pc.sum(index.row_counts(numbers), min_count=0).as_py()
    if written.rows != known:
        raise CorruptFile(
            f"{len(numbers)} files of {index.storage.uri} hold {known:,} rows by the index, and {written.rows:,} were "
            "read to be rewritten. Nothing was changed. zskip verify says which files differ."
        )


def _all(index: Index) -> np.ndarray:
    return np.arange(len(index), dtype=np.int64)


def _rows(index: Index) -> np.ndarray:
    return np.asarray(pc.fill_null(index.row_counts(_all(index)), 0), np.float64)


@may_meet_vacuums
def cluster_table(
    storage: Storage,
    base: Snapshot,
    options: WriteOptions,
    *,
    max_bytes: int | None = None,
    full: bool = False,
    dry_run: bool = False,
    backend: Backend = LOCAL,
) -> Clustered:
    """Lay out a table that zskip wrote: all rows anew if the options ask for another layout, else as `optimize` does.

    Raises `InvalidOption`, `UnknownColumn`, `NotOrderable` and the errors of `optimize`.
    """
    own = append.kept_options(base, WriteOptions())
    asked = {name: getattr(options, name) for name in _ASKED if getattr(options, name) is not None}
    if options.layout != "auto":
        asked["layout"] = options.layout
    new = {name for name, value in asked.items() if append.as_logged(getattr(own, name)) != append.as_logged(value)}
    by = options.by or (() if "workload" in new else own.by)
    anew = list(by) != list(own.by)
    wanted = None
    if (anew or new) and max_bytes is not None:
        raise InvalidOption("Another layout rewrites all files: leave out max_bytes=.")
    if anew or new:
        wanted = append.changed_options(base, by if anew else None, asked)
        wanted = replace(wanted, **{name: getattr(options, name) for name in _RESOURCES})
        base.indexed.orderable(wanted.by)
    snapshot, done = optimize(
        storage,
        base,
        options,
        full=full or wanted is not None,
        max_bytes=max_bytes,
        dry_run=dry_run,
        wanted=wanted,
        backend=backend,
    )
    written = None if done.files_after is None else done.files_after - done.files_before + done.files_rewritten
    return Clustered(snapshot.version, done.files_rewritten, done.bytes_rewritten, written, dry_run)
