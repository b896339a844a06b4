"""Optimize: merge what appends left behind, cell by cell, where a rewrite pays; or lay the whole table out anew.

A table's layout sends every row to one of its **slots**; a write leaves one **run** in each slot it has rows for:
a file, or several that do not overlap. A look-up that reaches a slot reads all its runs.

    slot 7   [ 1.00 ]  [.01] [.01] [.01] [.01]  …     the small ones together weigh less than half of the large one:
             untouched └────── one new run ────┘      they become one run, and the large one stays

Runs are merged smallest first, and one joins only while it weighs at most twice what is merged already, as in a
log-structured merge tree (O'Neil 1996): each row is rewritten a logarithmic number of times, and a table that nobody
changed has nothing to merge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import plan as planning
from zskip.layouts.depth import depths
from zskip.sidecar import Index, Snapshot, Storage, commit
from zskip.writer.changes import be_managed, kept_options, recorded, removal, routing_of
from zskip.writer.options import WriteOptions
from zskip.writer.sources import of_reader
from zskip.writer.write import write_files

__all__ = ["Optimized", "optimize"]

_NAME = r"^(?P<slot>(?:.*/)?part-\d+)-(?P<run>[0-9a-f]+)(?:-\d+)?\.parquet$"
_HEAVIEST = 2.0
# What opening one more file costs a look-up, in bytes that could be read meanwhile.
_OPENING = 256 << 10


@dataclass(frozen=True, slots=True)
class Optimized:
    """What an optimize did, or with ``dry_run`` would do.

    ``files_rewritten`` and ``bytes_rewritten``: what was read and replaced · ``files_before`` and ``files_after``: of
    the whole table · ``depth_…``: files that a look-up reads, averaged over the clustering columns · ``skipped_…``:
    the share of rows that a look-up skips. What comes after is None in a dry run.
    """

    version: int
    files_rewritten: int
    bytes_rewritten: int
    files_before: int
    files_after: int | None
    depth_before: float
    depth_after: float | None
    skipped_before: float
    skipped_after: float | None
    dry_run: bool


def optimize(
    storage: Storage,
    base: Snapshot,
    options: WriteOptions,
    *,
    full: bool = False,
    dry_run: bool = False,
    max_bytes: int | None = None,
) -> tuple[Snapshot, Optimized]:
    """Merge the runs of slots where that pays, best first, up to ``max_bytes``; ``full``: fit the layout anew.

    Raises `CommitConflict` where another writer took one of the rewritten files away meanwhile.
    """
    be_managed(storage, base)
    index = Index(storage, base)
    everything = np.arange(len(index), dtype=np.int64)
    size = np.asarray(pc.fill_null(index.sizes(everything), 0))
    rows = np.asarray(pc.fill_null(index.row_counts(everything), 0))
    chosen = everything if full else _worth_merging(index.paths(everything), rows, size, max_bytes)
    depth, skipped = _clustering(index)
    before = Optimized(
        base.version,
        len(chosen),
        int(size[chosen].sum()),
        len(index),
        None if dry_run else len(index),
        depth,
        None if dry_run else depth,
        skipped,
        None if dry_run else skipped,
        dry_run,
    )
    if dry_run or not len(chosen):
        return base, before
    read = replace(planning.plan(index, None), numbers=chosen, whole=np.ones(len(chosen), bool))
    reader = pa.RecordBatchReader.from_batches(base.schema.arrow, read.to_batches())
    routing, rows_per_file = (None, None) if full else routing_of(storage, base)
    kept = kept_options(base, options)
    written = write_files(of_reader(reader), storage, base.schema, kept, routing, rows_per_file)
    snapshot = commit(
        storage,
        base,
        "optimize",
        add=written.files,
        remove=index.paths(chosen).to_pylist(),
        layout=recorded(written, kept) if full else None,
        details={"full": full, "files_rewritten": len(chosen), "bytes_rewritten": before.bytes_rewritten},
        undo=removal(storage, written),
    )
    after = Index(storage, snapshot)
    depth, skipped = _clustering(after)
    done = replace(before, version=snapshot.version, files_after=len(after), depth_after=depth, skipped_after=skipped)
    return snapshot, done


def _worth_merging(paths: pa.StringArray, rows: np.ndarray, size: np.ndarray, max_bytes: int | None) -> np.ndarray:
    """The numbers (ascending) of files to be rewritten: for each slot the runs that merge, the best slots first.

    Runs are weighed by rows: the bytes of small files are mostly their footers.
    """
    parts = pc.extract_regex(paths, _NAME)
    named = np.flatnonzero(np.asarray(pc.is_valid(parts)))
    if not len(named):
        return named
    slot = _codes(pc.struct_field(parts, "slot").take(pa.array(named)))
    run = _codes(pc.struct_field(parts, "run").take(pa.array(named)))
    # one entry per run, slot by slot, the smallest first
    pair, of_file = np.unique(slot * (run.max() + 1) + run, return_inverse=True)
    weight, spent = np.bincount(of_file, rows[named]), np.bincount(of_file, size[named])
    home = pair // (run.max() + 1)
    order = np.lexsort((weight, home))
    weight, spent, home = weight[order], spent[order], home[order]
    starts = np.flatnonzero(np.diff(home, prepend=-1))
    position = np.arange(len(home)) - np.repeat(starts, np.diff(starts, append=len(home)))
    total = np.cumsum(weight)
    before = total - weight - np.repeat((total - weight)[starts], np.diff(starts, append=len(home)))
    joins = (position == 0) | (weight <= _HEAVIEST * before)
    # the longest prefix of each slot that ends with a run that joins: a heavy run may be outweighed by later ones
    last = np.maximum.reduceat(np.where(joins, position, 0), starts)
    merged = position <= np.repeat(last, np.diff(starts, append=len(home)))
    cost = np.add.reduceat(np.where(merged, spent, 0), starts)
    gain = last * _OPENING / np.maximum(cost, 1)
    best = np.argsort(-gain, kind="stable")
    best = best[last[best] > 0]
    if max_bytes is not None:
        best = best[np.cumsum(cost[best]) <= max_bytes]
    taken = np.zeros(len(starts), bool)
    taken[best] = True
    of_slot = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(home)))
    chosen_run = np.zeros(len(pair), bool)
    chosen_run[order] = merged & taken[of_slot]
    return np.asarray(named[chosen_run[of_file]], np.int64)


def _codes(texts: pa.StringArray) -> np.ndarray:
    return np.asarray(pc.dictionary_encode(texts).indices).astype(np.int64)


def _clustering(index: Index) -> tuple[float, float]:
    """The average depth and share skipped of a look-up, over the clustering columns."""
    layout = index.snapshot.layout
    columns = [] if layout is None else list(layout.columns)
    if not columns or not len(index):
        return float(len(index)), 0.0
    found = depths(index.files(None, columns).statistics, columns).values()
    return float(np.mean([each.average for each in found])), float(np.mean([each.skipped for each in found]))
