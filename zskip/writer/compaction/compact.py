"""Optimize: rewrite the files whose rewrite pays (`choose`), or all files by a newly fitted layout.

`recut` cuts a group of files. The saved layout stays: later appends go to the same slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.receipts import Optimized
from zskip.errors import CommitConflict, CorruptFile, InvalidOption
from zskip.layouts.depth import depths
from zskip.stats import DataFiles
from zskip.storage import Storage
from zskip.tablelog import Index, LayoutRecord, SketchRecord, Snapshot, commit, load, with_segments
from zskip.writer.append import kept_options, layout_record, removal, require_managed, routing_of
from zskip.writer.backend import LOCAL, Backend
from zskip.writer.compaction.choose import Group, worth_rewriting
from zskip.writer.compaction.recut import recut
from zskip.writer.compaction.splice import Trunk
from zskip.writer.options import WriteOptions
from zskip.writer.routing import Routing, fitted_columns
from zskip.writer.row_sample import sample_size
from zskip.writer.write import Written

__all__ = ["optimize", "require_same_rows"]

_SAMPLED_PER_FILE, _LEAST_SAMPLE = 800, 10_000


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
    """Rewrite the groups of files whose rewrite pays, best first, up to ``max_bytes``.

    ``full``: rewrite all files by a newly fitted layout · ``until``: a time of `time.monotonic`, after which no further
    group is begun · ``wanted``: the options of the new layout, by default those of the table.

    If another writer removes files in the meantime, their groups stay unchanged. Raises `CommitConflict` if no group
    remains, or with ``full``; `InvalidOption` for ``full`` together with ``max_bytes``.
    """
    require_managed(storage, base)
    if full and max_bytes is not None:
        raise InvalidOption("full=True rewrites all files; max_bytes= is for an optimize that chooses some.")
    index = Index(storage, base)
    everything = np.arange(len(index), dtype=np.int64)
    sizes = np.asarray(pc.fill_null(index.sizes(everything), 0))
    groups, all_of_them = ([], True) if full else _within(_groups(storage, index, sizes, max_bytes), sizes, max_bytes)
    chosen = everything if full else np.sort(np.concatenate([everything[:0], *(group.numbers for group in groups)]))
    before = _planned(index, chosen, sizes, dry_run)
    left = None if max_bytes is None else max_bytes - before.bytes_rewritten
    merge = _may_merge(base, left)
    if dry_run or not (len(chosen) or (merge and any(len(sketch.segments) > 1 for sketch in base.sketches))):
        return base, before
    if not len(chosen):
        details = {"full": False, "settled": all_of_them, "files_rewritten": 0, "bytes_rewritten": 0}
        merged = commit(storage, base, "optimize", details=details, merge_sketches=True)
        return merged, replace(before, version=merged.version)
    kept = wanted or kept_options(base, options)
    if full:
        new = _refitted(index, kept, backend)
        rewrites, layout = [_Rewrite(everything, new)], layout_record(new, kept)
    else:
        rewrites, layout = _recut(index, groups, kept, backend, until), None
        if not rewrites:
            return base, replace(before, files_rewritten=0, bytes_rewritten=0, files_left=len(chosen))
        all_of_them = all_of_them and sum(len(each.numbers) for each in rewrites) == len(chosen)
    snapshot, made = _committed(index, rewrites, layout, all_of_them, merge)
    done = replace(
        before,
        version=snapshot.version,
        files_rewritten=len(made),
        bytes_rewritten=int(sizes[made].sum()),
        files_left=len(chosen) - len(made),
        files_after=snapshot.totals.files,
        depth_after=None,
        skipped_after=None,
    )
    # The commit has succeeded: an error of the store must not hide that.
    with suppress(OSError):
        depth, skipped = _clustering(Index(storage, snapshot))
        done = replace(done, depth_after=depth, skipped_after=skipped)
    return snapshot, done


def _planned(index: Index, chosen: np.ndarray, sizes: np.ndarray, dry_run: bool) -> Optimized:
    """The receipt for rewriting the chosen files, before they are rewritten."""
    depth, skipped = _clustering(index)
    return Optimized(
        index.snapshot.version,
        len(chosen),
        int(sizes[chosen].sum()),
        len(index),
        None if dry_run else len(index),
        depth,
        None if dry_run else depth,
        skipped,
        None if dry_run else skipped,
        dry_run,
    )


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """Files by number, and the new files that replace them; committed together or not at all."""

    numbers: np.ndarray
    written: Written


def _committed(
    index: Index, rewrites: list[_Rewrite], layout: LayoutRecord | None, all_of_them: bool, merge_sketches: bool
) -> tuple[Snapshot, np.ndarray]:
    """Commit the rewrites whose files are all still in the table. Returns the snapshot and the replaced files."""
    storage, base, planned = index.storage, index.snapshot, len(rewrites)
    undone: list[bool] = []
    while True:
        numbers = np.sort(np.concatenate([each.numbers for each in rewrites]))
        sizes = index.sizes(numbers)
        undone.clear()
        try:
            snapshot = commit(
                storage,
                base,
                "optimize",
                add=DataFiles.concat([each.written.files for each in rewrites]),
                remove=index.paths(numbers).to_pylist(),
                layout=layout,
                details={
                    "full": layout is not None,
                    "settled": all_of_them and len(rewrites) == planned,
                    "files_rewritten": len(numbers),
                    "bytes_rewritten": pc.sum(sizes, min_count=0).as_py(),
                },
                undo=lambda: undone.append(True),
                sketches=_grown_by(rewrites),
                merge_sketches=merge_sketches,
            )
            return snapshot, numbers
        except BaseException as error:
            if not undone:
                raise  # the commit may have succeeded, so its files must stay
            left: list[_Rewrite] = []
            try:
                if isinstance(error, CommitConflict):
                    left = _still_there(index, rewrites)
            finally:
                if len(left) == len(rewrites):
                    left = []  # the conflict had another cause than missing files
                for each in rewrites:
                    if not any(each is one for one in left):
                        removal(storage, each.written)()
            if not left:
                raise
            rewrites = left


def _grown_by(rewrites: list[_Rewrite]) -> Callable[[tuple[SketchRecord, ...]], tuple[SketchRecord, ...]]:
    segments = [each.written.sketches for each in rewrites]
    return lambda before: reduce(with_segments, segments, before)


def _still_there(index: Index, rewrites: list[_Rewrite]) -> list[_Rewrite]:
    """The rewrites whose files are all in the newest version."""
    newest = Index(index.storage, load(index.storage))
    now = newest.paths(np.arange(len(newest), dtype=np.int64))
    return [each for each in rewrites if pc.all(pc.is_in(index.paths(each.numbers), value_set=now)).as_py()]


def _groups(storage: Storage, index: Index, sizes: np.ndarray, max_bytes: int | None) -> list[Group]:
    """The groups of files whose rewrite pays, the best first."""
    base = index.snapshot
    if base.operation == "optimize" and base.details.get("settled") is True:
        return []  # unchanged since an optimize that left nothing to do
    routing, rows_per_file = routing_of(storage, base)
    if routing is None or rows_per_file is None:
        return []
    everything = np.arange(len(index), dtype=np.int64)
    layout = routing.assignments[0]
    return worth_rewriting(
        index.paths(everything),
        np.asarray(pc.fill_null(index.row_counts(everything), 0), np.float64),
        index.files(None, layout.columns).statistics,
        layout.columns,
        layout.weights,
        rows_per_file,
        sizes,
        max_bytes,
    )


def _may_merge(base: Snapshot, max_bytes: int | None) -> bool:
    """Whether all segments of the table's sketches may be rewritten within ``max_bytes``."""
    return bool(base.sketches) and (max_bytes is None or sum(sketch.bytes for sketch in base.sketches) <= max_bytes)


def _within(groups: list[Group], sizes: np.ndarray, max_bytes: int | None) -> tuple[list[Group], bool]:
    """The best groups within ``max_bytes``, and whether these are all groups."""
    if max_bytes is None:
        return groups, True
    taken: list[Group] = []
    left = max_bytes
    for group in groups:
        size = int(sizes[group.numbers].sum())
        if size <= left:
            taken.append(group)
            left -= size
    return taken, len(taken) == len(groups)


def _recut(
    index: Index, groups: Sequence[Group], kept: WriteOptions, backend: Backend, until: float | None
) -> list[_Rewrite]:
    """Write the rows of groups as new files; no group is begun after ``until``. After an error no new file is left."""
    storage, base = index.storage, index.snapshot
    routing, rows_per_file = routing_of(storage, base)
    assert routing is not None  # since there are groups
    assert rows_per_file is not None
    trunks = [Trunk(assignment) for assignment in routing.assignments]
    alone = replace(kept, files=None, file_size=None, rows_per_file=rows_per_file)
    made: list[_Rewrite] = []
    try:
        for batch in [groups] if backend.recuts_at_once else [[group] for group in groups]:
            if until is not None and time.monotonic() >= until:
                break
            numbers = np.sort(np.concatenate([group.numbers for group in batch]))
            total = pc.sum(index.row_counts(numbers), min_count=0).as_py()
            sample = _sampled(index, numbers, total, -(-total // rows_per_file), kept, routing, backend)
            cut = recut(trunks, routing, batch, sample, total, base.schema, kept, rows_per_file)
            rows = backend.rows_of_files(index, numbers)
            new = backend.write(rows, storage, base.schema, alone, cut.routing, rows_per_file, cut.slots)
            made.append(_Rewrite(numbers, new))
            require_same_rows(index, numbers, new)
    except BaseException:
        for each in made:
            removal(storage, each.written)()
        raise
    return made


def _sampled(
    index: Index, numbers: np.ndarray, total: int, files: int, kept: WriteOptions, routing: Routing, backend: Backend
) -> pa.Table:
    """A sample of the files' rows, with the columns that the fit reads."""
    known = [path for assignment in routing.assignments for path in assignment.columns]
    columns = fitted_columns(index.snapshot.schema, kept, known)
    size = sample_size(files, _SAMPLED_PER_FILE, _LEAST_SAMPLE)
    return backend.sample(backend.rows_of_files(index, numbers), columns, size, total, kept.seed)


def _refitted(index: Index, kept: WriteOptions, backend: Backend) -> Written:
    """Write all rows as new files by a newly fitted layout."""
    rows = backend.rows_of_files(index, np.arange(len(index), dtype=np.int64))
    written = backend.write(rows, index.storage, index.snapshot.schema, kept, None, None, None)
    try:
        require_same_rows(index, np.arange(len(index)), written)
    except CorruptFile:
        removal(index.storage, written)()
        raise
    return written


def require_same_rows(index: Index, numbers: np.ndarray, written: Written) -> None:
    """Raise `CorruptFile` if the new files have fewer or more rows than the index records for the old ones."""
    known = pc.sum(index.row_counts(numbers), min_count=0).as_py()
    if written.rows != known:
        raise CorruptFile(
            f"{len(numbers)} files of {index.storage.uri} hold {known:,} rows by the index, and {written.rows:,} were "
            "read to be rewritten. Nothing was changed. zskip verify says which files differ."
        )


def _clustering(index: Index) -> tuple[float, float]:
    """The depth, and the share of rows that a look-up skips, averaged over the clustering columns."""
    layout = index.snapshot.layout
    columns = [] if layout is None else list(layout.columns)
    if not columns or not len(index):
        return float(len(index)), 0.0
    found = depths(index.files(None, columns).statistics, columns).values()
    return float(np.mean([each.average for each in found])), float(np.mean([each.skipped for each in found]))
