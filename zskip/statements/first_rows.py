"""ORDER BY … LIMIT, and LIMIT alone, over one scan: skip files that cannot hold one of the first rows.

Both rules follow Zimmerer 2025. A file guarantees its rows if all of them match. Once k rows are guaranteed,

| the statement              | skips                                                                              |
| -------------------------- | ---------------------------------------------------------------------------------- |
| LIMIT k                    | every file after the one that completes k guaranteed rows: the result is the same  |
| ORDER BY x LIMIT k         | a file whose minimum of x exceeds the maximum of x in files that guarantee k rows  |
| ORDER BY x DESC LIMIT k    | a file whose maximum of x is below the minimum of x in files that guarantee k rows |

In addition, a query over the files with the best bounds returns the k-th of their values, which is a threshold too.

Files that may hold a NULL or a NaN in x are kept, wherever the order puts these. Files with values equal to the
threshold are kept too, because further sort keys may decide between them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.errors import amount
from zskip.plan import Survivors
from zskip.statements.joins import FILE_SECONDS, MATCHING_SHARE, file_slices
from zskip.statements.plan_tree import Node, StubColumns, places_scanned_once, scan_below
from zskip.stats import Ranges

# The shares of the files that are queried for the k-th value, tried in turn.
_QUERIED_SHARES = (1 / 64, 1 / 16)
_FEWEST_QUERIED = 2
# The parts into which a clustered column divides the files, and how many files a query is expected to skip for each
# that it reads, if rows are at random in the files.
_CLUSTERED_SLICES, _LEAST_GAIN = 2, 4
_LIMITS = ("LIMIT", "STREAMING_LIMIT")
_KEY = re.compile(r"^(?P<term>.*) (?P<order>ASC|DESC)$")


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The number of first rows of a scan that a statement needs, ordered by a column. ``column``: its name; None
    without ORDER BY."""

    place: int
    rows: int
    column: str | None = None
    descending: bool = False

    def __str__(self) -> str:
        order = "" if self.column is None else f" by {self.column}{' descending' if self.descending else ''}"
        return f"first {amount(self.rows, 'row')}{order}"


def first_rows(root: Node, stubs: Sequence[StubColumns]) -> list[FirstRows]:
    """The LIMITs of a plan directly over a scan, for each table that the plan scans once."""
    once = places_scanned_once(root)
    found = [one for node in root.walk() if (one := _first_rows(node, stubs)) is not None]
    return [one for one in found if one.place in once]


def _first_rows(node: Node, stubs: Sequence[StubColumns]) -> FirstRows | None:
    ordered = node.name == "TOP_N"
    limit, offset = node.info.get("Top" if ordered else "Limit", ""), node.info.get("Offset", "0")
    if not (ordered or node.name in _LIMITS) or not limit.isdigit() or not offset.isdigit():
        return None
    key = _KEY.match(node.info.get("Order By", "").partition("\n")[0]) if ordered else None
    if ordered and key is None:
        return None
    below = scan_below(node, [] if key is None else [key["term"]])
    if below is None:
        return None
    place, terms = below
    rows = int(limit) + int(offset)
    if key is None:
        return FirstRows(place, rows)
    column = stubs[place].printed.get(terms[0])
    return None if column is None else FirstRows(place, rows, column, key["order"] == "DESC")


Ask = Callable[[Survivors, FirstRows, float], "pa.Scalar | None"]
"""A query over some files for the last value among the first rows; None if they have fewer rows, or if the query takes
longer than the given number of seconds."""


def holding_first_rows(survivors: Survivors, wanted: FirstRows, ask: Ask) -> Survivors:
    """The files that may hold one of the first rows; all files of a table that may have deleted rows."""
    return survivors.once(wanted, lambda: _holding_first_rows(survivors, wanted, ask))


def _holding_first_rows(survivors: Survivors, wanted: FirstRows, ask: Ask) -> Survivors:
    if survivors.index.source is not None or len(survivors) < 2 or survivors.changes:
        return survivors
    rows = np.where(survivors.all_match, np.asarray(pc.fill_null(survivors.rows, 0)), 0)
    if wanted.column is None:
        enough = int(np.searchsorted(np.cumsum(rows), wanted.rows)) + 1
        return survivors if not wanted.rows or enough >= len(rows) else survivors.kept(np.arange(len(rows)) < enough)
    column = survivors.index.snapshot.schema.find([wanted.column], case_sensitive=True)
    if column is None or not column.orderable or not _has_fixed_order(column.type) or not wanted.rows:
        return survivors
    ranges = survivors.index.file_statistics(survivors.numbers, [column.path]).statistics().columns.get(column.path)
    if ranges is None:
        return survivors
    threshold = _guaranteed(ranges, wanted, rows)
    if threshold is not None:
        survivors, ranges = _up_to(threshold, survivors, ranges, wanted)
    if survivors.index.snapshot.managed:
        threshold = _queried(survivors, column.path, ranges, wanted, ask)
        if threshold is not None:
            survivors, _ = _up_to(threshold, survivors, ranges, wanted)
    return survivors


def _guaranteed(ranges: Ranges, wanted: FirstRows, rows: np.ndarray) -> pa.Scalar | None:
    """A threshold from the bounds of files whose rows all match. ``rows``: the rows that each file guarantees."""
    worst = ranges.lower if wanted.descending else ranges.upper
    guaranteed = np.where(_is_pure(ranges) & pc.is_valid(worst).to_numpy(zero_copy_only=False), rows, 0)
    order = _by_bound(worst, wanted)
    enough = int(np.searchsorted(np.cumsum(guaranteed[order]), wanted.rows))
    return worst[int(order[enough])] if enough < len(order) and guaranteed[order[enough]] else None


def _queried(survivors: Survivors, path: str, ranges: Ranges, wanted: FirstRows, ask: Ask) -> pa.Scalar | None:
    """A threshold from a query over the files with the best bounds."""
    order = _by_bound(ranges.upper if wanted.descending else ranges.lower, wanted)
    clustered = len(order) >= _FEWEST_QUERIED / _QUERIED_SHARES[-1] and _is_clustered(survivors, path)
    for share in _QUERIED_SHARES:
        few = int(len(order) * share)
        if few >= _FEWEST_QUERIED and (clustered or _pays_at_random(survivors, wanted, few)):
            chosen = np.isin(np.arange(len(order)), order[:few])
            value = ask(survivors.kept(chosen), wanted, len(order) * FILE_SECONDS)
            if value is not None:
                return value.cast(ranges.lower.type)
    return None


def _is_clustered(survivors: Survivors, path: str) -> bool:
    """Whether the files divide the values of the column, so that those with the best bounds hold the first rows."""
    return file_slices(survivors.index, path) >= _CLUSTERED_SLICES


def _pays_at_random(survivors: Survivors, wanted: FirstRows, few: int) -> bool:
    """Whether a query of a few files is expected to skip some times as many, if rows are at random in the files.

    The rows before the k-th of those in n files number k / n in each other file, more if conditions
    leave only a share of the rows. A file without any is skipped: a share of exp(−k / n) of them.
    """
    matching = 1.0 if survivors.predicate is None else MATCHING_SHARE
    return math.exp(-wanted.rows / (few * matching)) * len(survivors) >= _LEAST_GAIN * few


def _up_to(threshold: pa.Scalar, survivors: Survivors, ranges: Ranges, wanted: FirstRows) -> tuple[Survivors, Ranges]:
    """The files that may hold a row at or before the threshold."""
    beyond = pc.less(ranges.upper, threshold) if wanted.descending else pc.greater(ranges.lower, threshold)
    kept = ~(np.asarray(pc.fill_null(beyond, False)) & _is_pure(ranges))
    return survivors.kept(kept), ranges.take(np.flatnonzero(kept))


def _by_bound(bounds: pa.Array, wanted: FirstRows) -> np.ndarray:
    """The positions of the files in the order of their bounds, unknown bounds last."""
    order = "descending" if wanted.descending else "ascending"
    return np.asarray(pc.array_sort_indices(bounds, order=order))


def _is_pure(ranges: Ranges) -> np.ndarray:
    """Whether each file is known to hold neither NULL nor NaN, which sort before or after all bounds."""
    possible = pc.or_(pc.fill_null(ranges.has_null, True), pc.fill_null(ranges.has_nan, True))
    return ~np.asarray(possible)


def _has_fixed_order(type: pa.DataType) -> bool:
    """Whether no setting changes the order of values; the session's collation changes that of strings."""
    return bool(
        t.is_integer(type) or t.is_floating(type) or t.is_decimal(type) or t.is_date(type) or t.is_timestamp(type)
    )
