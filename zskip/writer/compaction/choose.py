"""Choose the groups of files whose rewrite pays, by the model in `rewrite_cost`.

    slot 7   [ 1.00 ]  [.01] [.01] [.01] [.01]  …     A slot is the number of a file in the layout; each append adds a
             untouched └────── one new file ────┘      run of files to it. Its small files are merged into one: fewer
                                                      files are opened. The large file would save too little.
    slots 4 to 7     [.2] [.2] [.2] [.2] [.2]  …      A small append puts neighbouring slots into one file. When there
                     └[.25] [.25] [.25] [.25]┘         are enough of these, each slot gets a file, with its own box.
    slots 8, 9, 10   [.02] [.03] [.02]                Neighbours that deletes left small are merged into one file,
                     └── one new file ──┘              unless its wider box costs more than opening fewer files saves.

    slot 9   [ 1.00 ]  [.01] [.01] [.01] [.01]  …     A table that has grown still has the boxes of the smaller table.
             └[ .60 ] [ .60 ]───────────────┘         So in the slots where it pays most, the large files are merged
                                                      too; they are few compared with the small files.

A rewrite pays if it saves as much as it rewrites within eight queries that reach its rows. A single run is never
rewritten: a fit could not improve it. Large files join if that pays within 24 queries, and in proportion to the rows
that are merged. So the bytes written per appended row stay bounded, and an unchanged table is not rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip.stats import Ranges, Statistics
from zskip.stats.keys import dense_codes
from zskip.writer.compaction.rewrite_cost import SMALL, LookUps, Runs, cut_small, parts_of

__all__ = ["Group", "worth_rewriting"]

_NAME = r"^(?P<folder>(?:.*/)?)part-(?P<slot>\d+)(?:_(?P<last>\d+))?-(?P<run>[0-9a-f]+)(?:-\d+)*\.(?:parquet|pq)$"
_PAYBACK = 8.0  # queries
_JOINING = 24.0  # queries
_SHARE = 1.5  # the most rows of joining large files, relative to the merged rows
_MOST = 0.49  # the most of the table's bytes that is rewritten if large files join


@dataclass(frozen=True, slots=True)
class Group:
    """Files, by ascending number, to be rewritten together as ``files`` new ones.

    ``slot``, ``last``: the first and last slot that they are named after · ``pays``: the expected saving of a query
    that reaches their rows, per rewritten row · ``weights``: for each column, the share of all queries that are
    look-ups on it and reach their rows, which is what a cut on this column can save · ``joined``: the slots whose large
    files join the group, with the weights of each; ``files`` counts only the other slots.
    """

    numbers: NDArray[np.int64]
    files: int
    slot: int
    last: int
    pays: float
    weights: Mapping[str, float]
    joined: Mapping[int, Mapping[str, float]]


def worth_rewriting(
    paths: pa.StringArray,
    rows: NDArray[np.float64],
    statistics: Statistics,
    columns: Sequence[str],
    weights: Sequence[float],
    rows_per_file: int,
    stored: NDArray[np.int64] | None = None,
    max_bytes: int | None = None,
) -> list[Group]:
    """The groups of files whose rewrite pays, the best first.

    ``rows``: of each file · ``statistics``: their ranges · ``columns``, ``weights``: the clustering columns and the
    share of look-ups on each · ``rows_per_file``: of a full file · ``stored``: bytes of each file, by default its rows.
    Files whose names contain no slot and run are left out. Large files join only if ``max_bytes`` suffices for all
    groups.
    """
    parts = pc.extract_regex(paths, _NAME)
    named = np.flatnonzero(np.asarray(pc.is_valid(parts)))
    if len(named) < 2:
        return []
    parts = parts.take(pa.array(named))
    lower, upper = _boxes(statistics, columns, named)
    sizes = rows[named] / rows_per_file
    look_ups = LookUps.of(weights, sizes, lower, upper)
    first, last = pc.struct_field(parts, "slot"), pc.struct_field(parts, "last")
    last = pc.if_else(pc.equal(last, ""), first, last)
    files = Runs(
        _codes(pc.struct_field(parts, "folder")),
        np.asarray(first.cast(pa.int64())),
        np.asarray(last.cast(pa.int64())),
        np.ones(len(named)),
        sizes,
        look_ups.read(sizes, np.ones(len(named)), lower, upper)[0],
        lower,
        upper,
    )
    # A run: the files of one write in one slot, or in the same group of slots.
    run = _codes(pc.struct_field(parts, "run"))
    order = np.lexsort((run, files.last, files.slot, files.folder))
    files, named, run = files.take(order), named[order], run[order]
    run_of = _numbered(files.folder, files.slot, files.last, run)
    runs = files.joined(run_of, look_ups)
    runs = replace(runs, read=np.bincount(run_of, files.read).astype(float))
    group_of, groups = _by_slot(runs, look_ups)
    group_of, groups = _by_neighbours(group_of, groups, look_ups)
    several = np.bincount(group_of, minlength=len(groups)) > 1
    each = rows if stored is None else np.asarray(stored, np.float64)
    held = np.bincount(group_of[run_of], each[named], len(groups)).astype(float)
    most = min(_MOST * float(each.sum()), np.inf if max_bytes is None else max_bytes)
    joins = _joining(groups, several, held, most, look_ups)
    return _chosen(named, files, group_of[run_of], groups, several, joins, look_ups, columns)


def _boxes(
    statistics: Statistics, columns: Sequence[str], files: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bounds of the files' ranges as codes: (files, columns) each. An unknown range spans everything."""
    lower = np.zeros((len(files), len(columns)), np.int64)
    upper = np.zeros((len(files), len(columns)), np.int64)
    for number, path in enumerate(columns):
        ranges: Ranges | None = statistics.columns.get(path)
        if ranges is None:
            continue
        chosen = pa.array(files)
        low, high = ranges.lower.take(chosen), ranges.upper.take(chosen)
        codes, distinct = dense_codes(pa.chunked_array([low, high]))
        known = np.asarray(low.is_valid()) & np.asarray(high.is_valid())
        empty = ~np.asarray(pc.fill_null(ranges.has_value.take(chosen), True))
        lower[:, number] = np.where(known, codes[: len(files)], 0)
        upper[:, number] = np.where(known, codes[len(files) :], len(distinct) + 1)
        lower[empty, number], upper[empty, number] = len(distinct) + 1, -1
    return lower, upper


def _by_slot(runs: Runs, look_ups: LookUps) -> tuple[NDArray[np.int64], Runs]:
    """Group runs of the same slots: in each slot the smallest runs, as many of them as save the most together."""
    order = np.lexsort((runs.rows, runs.last, runs.slot, runs.folder))
    sorted_runs = runs.take(order)
    home = _numbered(sorted_runs.folder, sorted_runs.slot, sorted_runs.last)
    starts = np.flatnonzero(np.diff(home, prepend=-1))
    position = np.arange(len(home)) - starts[home]
    rows, before = _running(sorted_runs.rows, starts, home), _running(sorted_runs.read, starts, home)
    # The running hull: an offset per slot restarts the running minimum and maximum at each slot.
    span = int(sorted_runs.upper.max(initial=0)) + 3
    offset = home[:, None] * span
    lower = np.minimum.accumulate(sorted_runs.lower - offset) + offset
    upper = np.maximum.accumulate(sorted_runs.upper + offset) - offset
    slots = sorted_runs.last - sorted_runs.slot + 1
    after, reached = look_ups.read(rows, parts_of(rows, slots), lower, upper)
    net = (before - after) / reached - rows / _PAYBACK
    net[position == 0] = 0.0
    best = np.maximum.reduceat(net, starts)
    last = np.minimum.reduceat(np.where(net == best[home], position, len(home)), starts)
    merged = (position <= last[home]) & (best[home] > 0)
    begins = ~merged | (position == 0)
    group = np.cumsum(begins) - 1
    group_of = np.empty(len(runs), np.int64)
    group_of[order] = group
    return group_of, sorted_runs.joined(group, look_ups)


def _by_neighbours(group_of: NDArray[np.int64], groups: Runs, look_ups: LookUps) -> tuple[NDArray[np.int64], Runs]:
    """Merge small groups of neighbouring slots into one file if that pays: two at a time, the best two first."""
    while len(groups) > 1:
        small = np.flatnonzero(groups.rows < SMALL)
        left, right = small[:-1], small[1:]
        near = groups.folder[left] == groups.folder[right]
        left, right = left[near], right[near]
        rows = groups.rows[left] + groups.rows[right]
        lower = np.minimum(groups.lower[left], groups.lower[right])
        upper = np.maximum(groups.upper[left], groups.upper[right])
        after, reached = look_ups.read(rows, np.ones(len(rows)), lower, upper)
        pays = (groups.read[left] + groups.read[right] - after) / reached / np.maximum(rows, 1e-9)
        pays[pays <= 1 / _PAYBACK] = 0.0
        # If two merges share a group, take the better one.
        shared = right[:-1] == left[1:]
        ahead, behind = np.zeros(len(pays)), np.zeros(len(pays))
        ahead[1:], behind[:-1] = np.where(shared, pays[:-1], 0.0), np.where(shared, pays[1:], 0.0)
        chosen = (pays > ahead) & (pays >= behind)
        if not chosen.any():
            break
        target = np.arange(len(groups))
        target[right[chosen]] = left[chosen]
        order = np.argsort(target, kind="stable")
        group = np.empty(len(groups), np.int64)
        group[order] = np.cumsum(np.diff(target[order], prepend=-1) > 0) - 1
        groups = groups.take(order).joined(group[order], look_ups, as_one=True)
        group_of = group[group_of]
    return group_of, groups


@dataclass(frozen=True, slots=True)
class _Joins:
    """Slots whose large files join a group. ``into``: for each group, the group that it becomes part of."""

    slot: NDArray[np.int64]
    group: NDArray[np.int64]
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    into: NDArray[np.int64]


def _joining(
    groups: Runs, several: NDArray[np.bool_], held: NDArray[np.float64], most: float, look_ups: LookUps
) -> _Joins:
    """The slots where it pays most that the large files join a group of ``several`` runs.

    ``held``: the bytes of each group · ``most``: the most bytes to rewrite if any large files join.
    """
    # If groups are nested, a slot belongs to the narrowest one.
    merged = np.flatnonzero(several)
    merged = merged[np.argsort(groups.slot[merged] - groups.last[merged], kind="stable")]
    around = np.full(int(groups.last.max(initial=0)) + 1, -1)
    for one, first, last in zip(
        merged.tolist(), groups.slot[merged].tolist(), groups.last[merged].tolist(), strict=True
    ):
        around[first : last + 1] = one
    alone = np.flatnonzero(~several & (groups.slot == groups.last))
    group = around[groups.slot[alone]]
    surrounded = (group >= 0) & (groups.folder[group] == groups.folder[alone])
    alone, group = alone[surrounded], group[surrounded]
    order = np.lexsort((groups.slot[alone], groups.folder[alone]))
    alone, group = alone[order], group[order]
    place = _numbered(groups.folder[alone], groups.slot[alone])
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    group = group[starts]
    slot = groups.slot[alone][starts]
    rows, read = (np.bincount(place, each[alone], len(starts)) for each in (groups.rows, groups.read))
    stored = np.bincount(place, held[alone], len(starts))
    lower, upper = (np.empty((len(starts), groups.lower.shape[1]), np.int64) for _ in range(2))
    if len(starts):
        lower, upper = (
            np.minimum.reduceat(groups.lower[alone], starts),
            np.maximum.reduceat(groups.upper[alone], starts),
        )
    brought = groups.rows[group] / (groups.last - groups.slot + 1)[group]
    before = read + look_ups.read(brought, np.ones(len(slot)), lower, upper)[0]
    after, reached = look_ups.read(rows + brought, cut_small(rows + brought), lower, upper)
    pays = (before - after) / reached / np.maximum(rows, 1e-9)
    best = np.argsort(-pays, kind="stable")
    within = (
        (pays[best] > 1 / _JOINING)
        & (np.cumsum(rows[best]) <= _SHARE * groups.rows[merged].sum())
        & (np.cumsum(stored[best]) <= most - held[merged].sum())
    )
    chosen = np.sort(best[within])
    into = np.arange(len(groups))
    joining = np.isin(place, chosen)
    into[alone[joining]] = group[place[joining]]
    return _Joins(slot[chosen], group[chosen], lower[chosen], upper[chosen], into)


def _chosen(
    named: NDArray[np.int64],
    files: Runs,
    group_of: NDArray[np.int64],
    groups: Runs,
    several: NDArray[np.bool_],
    joins: _Joins,
    look_ups: LookUps,
    columns: Sequence[str],
) -> list[Group]:
    """The groups of ``several`` runs with the large files that join them, the best first."""
    before = np.bincount(group_of, files.read, len(groups))
    _, reached = look_ups.read(groups.rows, np.ones(len(groups)), groups.lower, groups.upper)
    pays = (before - groups.read) / reached / np.maximum(groups.rows, 1e-9)
    by_column = look_ups.by_column(groups.lower, groups.upper)
    joined: dict[int, dict[int, Mapping[str, float]]] = {}
    by_slot = look_ups.by_column(joins.lower, joins.upper)
    for place, (slot, group) in enumerate(zip(joins.slot.tolist(), joins.group.tolist(), strict=True)):
        joined.setdefault(group, {})[slot] = dict(zip(columns, by_slot[place].tolist(), strict=True))
    group_of = joins.into[group_of]
    order = np.argsort(group_of, kind="stable")
    members = np.split(named[order], np.cumsum(np.bincount(group_of, minlength=len(groups)))[:-1])
    best = [int(one) for one in np.argsort(-pays, kind="stable") if several[one]]
    return [
        Group(
            np.sort(members[one]),
            int(groups.parts[one]),
            int(groups.slot[one]),
            int(groups.last[one]),
            float(pays[one]),
            dict(zip(columns, by_column[one].tolist(), strict=True)),
            joined.get(one, {}),
        )
        for one in best
    ]


def _running(values: NDArray[np.float64], starts: NDArray[np.int64], home: NDArray[np.int64]) -> NDArray[np.float64]:
    total = np.cumsum(values)
    running: NDArray[np.float64] = total - (total - values)[starts][home]
    return running


def _numbered(*keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of each run of consecutive equal keys."""
    changed = np.zeros(len(keys[0]), bool)
    changed[:1] = True
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.asarray(np.cumsum(changed) - 1, np.int64)


def _codes(texts: pa.StringArray) -> NDArray[np.int64]:
    """Numbers that sort as the strings do."""
    encoded = pc.dictionary_encode(texts)
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[np.asarray(pc.sort_indices(encoded.dictionary))] = np.arange(len(rank))
    return np.asarray(rank[np.asarray(encoded.indices)], np.int64)
