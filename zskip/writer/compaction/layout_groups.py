"""Layout groups: which neighbouring groups of files to merge, so that a growing table stays sharp for few rewrites.

The files of one write are a group, with a layout fitted to their own rows; the run in a file's name identifies it.

    nights    1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1      a group for each append
              4       4       4       4            neighbours merge under one fresh fit,
              16                                   and so do the groups that come of it

Neighbours in the order of a column's lower bound, or of size, may merge if together they hold at least four times the
rows of the largest, and a query is expected to read at least a fifth less of them. The merge that saves most per
rewritten row is chosen first, until none is left. So a row is rewritten at most log4(rows of the table / rows of its
append) times, in whatever order rows arrive (the levels of a log-structured merge tree, O'Neil 1996).

Groups that one file can hold merge more eagerly, since each of them takes a file: neighbours may also merge into one
file if together they hold twice the rows of the largest, or fill the file, and a query is not expected to read more. A
row is rewritten for this at most log2(a file / rows of its append) times, and once more to fill the file.

Gains compare a model with a model: each group as if freshly fitted, before as after. Opening a file costs as much as
reading a sixteenth of a full one; one query in twenty scans everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.layouts.reads import least_extents
from zskip.writer.look_ups import LookUps
from zskip.writer.paths import folders_of, groups_of

_GROWTH = 4.0
_GROWTH_WITHIN_A_FILE = 2.0
_FULL = 0.9  # the least part of a file that fills it
_SAVING = 0.2
_OPENING = 1 / 16  # of reading a full file
_SCANS = 0.05  # of all queries
_FEWEST = 2  # groups of a merge
_TRIED = 8  # windows for each group, before gains are computed again


@dataclass(frozen=True, slots=True)
class Merge:
    """Files, by ascending number, to be rewritten under one fresh fit with these weights.

    ``saving``: what a query is expected to read less, per rewritten row.
    """

    numbers: NDArray[np.int64]
    saving: float
    weights: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Groups:
    """Some groups: their rows in full files, their bytes, the codes of their hulls' bounds, their folders, what a query
    reads."""

    rows: NDArray[np.float64]
    bytes: NDArray[np.float64]
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    folder: NDArray[np.int64]
    read: NDArray[np.float64]

    def joined(self, target: NDArray[np.int64], look_ups: LookUps) -> _Groups:
        """The groups that these become. ``target``: for each, the number of its new group; all numbers are used."""
        order = np.argsort(target, kind="stable")
        starts = np.flatnonzero(np.diff(target[order], prepend=-1))
        rows, size = (np.add.reduceat(each[order], starts) for each in (self.rows, self.bytes))
        lower = np.minimum.reduceat(self.lower[order], starts)
        upper = np.maximum.reduceat(self.upper[order], starts)
        return _Groups(rows, size, lower, upper, self.folder[order][starts], _read(look_ups, rows, lower, upper))


def merges(
    paths: pa.StringArray,
    rows: NDArray[np.float64],
    look_ups: LookUps,
    rows_per_file: float,
    group_of: NDArray[np.int64] | None = None,
    *,
    sizes: NDArray[np.int64],
    max_bytes: int | None = None,
) -> list[Merge]:
    """The merges that the rule makes of these files, the best first, each of at most ``max_bytes``.

    ``rows``, ``sizes``: of each file, the latter in bytes · ``group_of``: the number of each file's group, by default
    by its name
    """
    if len(paths) < _FEWEST:
        return []
    group_of = groups_of(paths) if group_of is None else group_of
    groups = _grouped(group_of, paths, rows, sizes, look_ups, rows_per_file)
    most = np.inf if max_bytes is None else float(max_bytes)
    original, target = groups, np.arange(len(groups.rows))
    while len(groups.rows) >= _FEWEST:
        chosen = _best_windows(groups, look_ups, most)
        if not chosen:
            break
        into = np.arange(len(groups.rows))
        for members in chosen:
            into[members] = members.min()
        into = np.unique(into, return_inverse=True)[1]
        groups, target = groups.joined(into, look_ups), into[target]
    before = np.bincount(target, original.read, len(groups.rows))
    saving = (before - groups.read) / np.maximum(groups.rows, 1e-9)
    merged = np.flatnonzero(np.bincount(target, minlength=len(groups.rows)) > 1)
    merged = merged[np.argsort(-saving[merged], kind="stable")]
    extents = look_ups.extents(groups.lower, groups.upper)
    file_target = target[group_of]
    return [
        Merge(np.flatnonzero(file_target == one), float(saving[one]), look_ups.weights_within(extents[one]))
        for one in merged.tolist()
    ]


def saved_by_full(paths: pa.StringArray, rows: NDArray[np.float64], look_ups: LookUps, rows_per_file: float) -> float:
    """The share of what a query reads that one fresh fit to each folder is expected to save, from 0 to 1."""
    if not len(paths):
        return 0.0
    groups = _grouped(groups_of(paths), paths, rows, np.zeros(len(paths)), look_ups, rows_per_file)
    whole = groups.joined(np.unique(groups.folder, return_inverse=True)[1], look_ups)
    return max(0.0, 1.0 - float(whole.read.sum()) / max(float(groups.read.sum()), 1e-300))


def _grouped(
    group_of: NDArray[np.int64],
    paths: pa.StringArray,
    rows: NDArray[np.float64],
    sizes: NDArray[np.number],
    look_ups: LookUps,
    rows_per_file: float,
) -> _Groups:
    full = rows / rows_per_file
    files = _Groups(full, sizes.astype(np.float64), look_ups.lower, look_ups.upper, folders_of(paths), full)
    return files.joined(group_of, look_ups)


def _read(
    look_ups: LookUps, rows: NDArray[np.float64], lower: NDArray[np.int64], upper: NDArray[np.int64]
) -> NDArray[np.float64]:
    """What a query is expected to read of boxes, in full files, if each is freshly cut into full files."""
    parts = np.maximum(np.ceil(rows - 1e-9), 1.0)
    extents = look_ups.extents(lower, upper)
    least = np.where(lower == upper, extents, 0.0)
    reached = least_extents(extents, look_ups.weights, parts, least) @ look_ups.weights
    return np.asarray((rows + _OPENING * parts) * (_SCANS + (1 - _SCANS) * reached))


def _best_windows(groups: _Groups, look_ups: LookUps, most: float) -> list[NDArray[np.int64]]:
    """Sets of neighbouring groups to merge, no group in two of them, by descending saving per row. ``most``: bytes."""
    orders = [np.lexsort((groups.rows, key, groups.folder)) for key in (groups.rows, *groups.lower.T)]
    found = [
        (saving, np.full(len(first), number), first, np.full(len(first), length))
        for number, order in enumerate(orders)
        for first, length, saving in _windows(groups, order, look_ups, most)
    ]
    if not found:
        return []
    saving, order_of, first, length = (np.concatenate(each) for each in zip(*found, strict=True))
    best = np.argsort(-saving, kind="stable")[: _TRIED * len(groups.rows)]
    chosen = []
    free = np.ones(len(groups.rows), bool)
    for number, at, count in zip(order_of[best].tolist(), first[best].tolist(), length[best].tolist(), strict=True):
        members = orders[number][at : at + count]
        if free[members].all():
            free[members] = False
            chosen.append(members)
    return chosen


def _windows(
    groups: _Groups, order: NDArray[np.int64], look_ups: LookUps, most_bytes: float
) -> Iterator[tuple[NDArray[np.int64], int, NDArray[np.float64]]]:
    """The windows of an order that may merge: the first group of each, their length, and the saving per row of each."""
    rows, folder = groups.rows[order], groups.folder[order]
    rows_to, bytes_to, read_to = (
        np.concatenate([[0.0], np.cumsum(each)]) for each in (rows, groups.bytes[order], groups.read[order])
    )
    # For windows of 2**k groups: the rows of the largest, and the hull. Longer windows are the union of two.
    largest, lower, upper = rows, groups.lower[order], groups.upper[order]
    power = 1
    for length in _lengths(len(order)):
        while 2 * power <= length:
            largest = np.maximum(largest[:-power], largest[power:])
            lower = np.minimum(lower[:-power], lower[power:])
            upper = np.maximum(upper[:-power], upper[power:])
            power *= 2
        first = np.arange(len(order) - length + 1)
        other = first + length - power
        total = rows_to[first + length] - rows_to[first]
        most = np.maximum(largest[first], largest[other])
        fills = (most < _FULL) & (total >= _FULL)
        in_a_file = (total <= 1 + 1e-9) & (fills | (total >= _GROWTH_WITHIN_A_FILE * most * (1 - 1e-9)))
        may_merge = in_a_file | (total >= _GROWTH * most * (1 - 1e-9))
        fits = bytes_to[first + length] - bytes_to[first] <= most_bytes
        kept = may_merge & fits & (folder[first] == folder[first + length - 1])
        first, other, total, in_a_file = first[kept], other[kept], total[kept], in_a_file[kept]
        after = _read(look_ups, total, np.minimum(lower[first], lower[other]), np.maximum(upper[first], upper[other]))
        before = read_to[first + length] - read_to[first]
        pays = after <= np.where(in_a_file, 1.0, 1 - _SAVING) * before
        yield first[pays], length, ((before - after) / np.maximum(total, 1e-9))[pays]


def _lengths(most: int) -> Iterator[int]:
    """Lengths of windows: each one up to eight, and then in steps of an eighth.

    >>> list(_lengths(20))
    [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20]
    """
    length = _FEWEST
    while length <= most:
        yield length
        length += max(1, length // 8)
