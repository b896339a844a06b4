"""ORDER BY … LIMIT and LIMIT alone over one scan: files that cannot hold one of the first rows are left out.

Both follow Zimmerer 2025. Files of which every row matches promise rows: once these are as many as are asked for,

| the statement              | is out                                                                             |
| -------------------------- | ---------------------------------------------------------------------------------- |
| LIMIT k                    | every file behind the one with which k rows are promised: the same rows come out   |
| ORDER BY x LIMIT k         | a file whose least x is above the greatest x of the files that promise k rows      |
| ORDER BY x DESC LIMIT k    | a file whose greatest x is below the least x of the files that promise k rows      |

Where no file promises rows, those that begin best are asked for theirs: the last of the first k values that they have
is a threshold too.

Files that may hold a NULL or a NaN in x stay, wherever the order puts these; equal values stay, so that further keys
of the order decide among them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import types as t
from zskip.plan import Survivors
from zskip.statement.plan_tree import Node, StubColumns, places_scanned_once, scan_below
from zskip.stats import Ranges

__all__ = ["FirstRows", "first_rows", "holding_first_rows"]

# Of a file that is opened, in seconds; and the shares of many files that are asked for their first rows in turn.
_A_FILE = 1.3e-4
_SHARES_ASKED = (1 / 64, 1 / 16)
_LIMITS = ("LIMIT", "STREAMING_LIMIT")
_KEY = re.compile(r"^(?P<term>.*) (?P<order>ASC|DESC)$")


@dataclass(frozen=True, slots=True)
class FirstRows:
    """How many first rows of a scan a statement needs: in the order of a column, or of the table where it is None."""

    place: int
    rows: int
    column: str | None = None
    descending: bool = False

    def __str__(self) -> str:
        order = "" if self.column is None else f" by {self.column}{' descending' if self.descending else ''}"
        return f"first {self.rows:,} rows{order}"


def first_rows(root: Node, stubs: Sequence[StubColumns]) -> list[FirstRows]:
    """The scans of which only the first rows matter: one for each place that the plan scans once."""
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
"""The last of the first values that some files have, asked of their rows; None where there are fewer, or it takes
longer than so many seconds."""


def holding_first_rows(survivors: Survivors, wanted: FirstRows, ask: Ask) -> Survivors:
    """The files that may hold one of these rows. Nothing is left out of a table whose rows may be deleted."""
    return survivors.once(wanted, lambda: _holding_first_rows(survivors, wanted, ask))


def _holding_first_rows(survivors: Survivors, wanted: FirstRows, ask: Ask) -> Survivors:
    if survivors.index.source is not None or len(survivors) < 2 or survivors.changes:
        return survivors
    rows = np.where(survivors.all_match, np.asarray(pc.fill_null(survivors.rows, 0)), 0)
    if wanted.column is None:
        enough = int(np.searchsorted(np.cumsum(rows), wanted.rows)) + 1
        return survivors if not wanted.rows or enough >= len(rows) else survivors.kept(np.arange(len(rows)) < enough)
    column = survivors.index.snapshot.schema.columns.get(wanted.column)
    # Texts are ordered by a collation that may be the session's.
    if column is None or not column.orderable or not _is_plain(column.type) or not wanted.rows:
        return survivors
    ranges = survivors.index.file_statistics(survivors.numbers, [column.path]).statistics().columns.get(column.path)
    if ranges is None:
        return survivors
    threshold = _promised(ranges, wanted, rows)
    if threshold is not None:
        survivors, ranges = _up_to(threshold, survivors, ranges, wanted)
    if survivors.index.snapshot.managed:
        threshold = _found(survivors, ranges, wanted, ask)
        if threshold is not None:
            survivors, _ = _up_to(threshold, survivors, ranges, wanted)
    return survivors


def _promised(ranges: Ranges, wanted: FirstRows, rows: np.ndarray) -> pa.Scalar | None:
    """A value up to which there are rows enough, by the bounds of files of which every row matches."""
    worst = ranges.lower if wanted.descending else ranges.upper
    promised = np.where(_is_pure(ranges) & pc.is_valid(worst).to_numpy(zero_copy_only=False), rows, 0)
    order = _by_bound(worst, wanted)
    enough = int(np.searchsorted(np.cumsum(promised[order]), wanted.rows))
    return worst[int(order[enough])] if enough < len(order) and promised[order[enough]] else None


def _found(survivors: Survivors, ranges: Ranges, wanted: FirstRows, ask: Ask) -> pa.Scalar | None:
    """Such a value among the rows of the files that begin best."""
    order = _by_bound(ranges.upper if wanted.descending else ranges.lower, wanted)
    for share in _SHARES_ASKED:
        few = int(len(order) * share)
        if few > 1:
            chosen = np.isin(np.arange(len(order)), order[:few])
            value = ask(survivors.kept(chosen), wanted, len(order) * _A_FILE)
            if value is not None:
                return value.cast(ranges.lower.type)
    return None


def _up_to(threshold: pa.Scalar, survivors: Survivors, ranges: Ranges, wanted: FirstRows) -> tuple[Survivors, Ranges]:
    """The files of which some row may stand before the threshold or beside it."""
    beyond = pc.less(ranges.upper, threshold) if wanted.descending else pc.greater(ranges.lower, threshold)
    kept = ~(np.asarray(pc.fill_null(beyond, False)) & _is_pure(ranges))
    return survivors.kept(kept), ranges.take(np.flatnonzero(kept))


def _by_bound(bounds: pa.Array, wanted: FirstRows) -> np.ndarray:
    """The files by these bounds, best first; unknown ones come last."""
    order = "descending" if wanted.descending else "ascending"
    return np.asarray(pc.array_sort_indices(bounds, order=order))


def _is_pure(ranges: Ranges) -> np.ndarray:
    """Where a file surely holds neither NULL nor NaN, which stand before or behind all bounds."""
    pure: np.ndarray = _flags(ranges.has_null) & _flags(ranges.has_nan)
    return pure


def _flags(may: pa.BooleanArray) -> np.ndarray:
    """Where it is known that a unit has none."""
    return ~np.asarray(pc.fill_null(may, True))


def _is_plain(type: pa.DataType) -> bool:
    return bool(
        t.is_integer(type) or t.is_floating(type) or t.is_decimal(type) or t.is_date(type) or t.is_timestamp(type)
    )
