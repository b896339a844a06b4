"""ORDER BY … LIMIT and LIMIT alone over one scan: files that cannot hold one of the first rows are left out.

Both follow Zimmerer 2025. Files of which every row matches promise rows: once these are as many as are asked for,

| the statement              | is out                                                                             |
| -------------------------- | ---------------------------------------------------------------------------------- |
| LIMIT k                    | every file behind the one with which k rows are promised: the same rows come out   |
| ORDER BY x LIMIT k         | a file whose least x is above the greatest x of the files that promise k rows      |
| ORDER BY x DESC LIMIT k    | a file whose greatest x is below the least x of the files that promise k rows      |

Files that may hold a NULL or a NaN in x stay, wherever the order puts these; equal values stay, so that further keys
of the order decide among them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import types as t
from zskip.plan import Survivors
from zskip.statement.plan_tree import Node, StubColumns, places_scanned_once, scan_below

__all__ = ["FirstRows", "first_rows", "holding_first_rows"]

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
    once = places_scanned_once(root, stubs)
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
    below = scan_below(node, [] if key is None else [key["term"]], stubs)
    if below is None:
        return None
    place, terms = below
    rows = int(limit) + int(offset)
    if key is None:
        return FirstRows(place, rows)
    column = stubs[place].printed.get(terms[0])
    return None if column is None else FirstRows(place, rows, column, key["order"] == "DESC")


def holding_first_rows(survivors: Survivors, wanted: FirstRows) -> Survivors:
    """The files that may hold one of these rows. Nothing is left out of a table whose rows may be deleted."""
    if survivors.index.source is not None or len(survivors) < 2 or survivors.changes:
        return survivors
    rows = np.where(survivors.all_match, np.asarray(pc.fill_null(survivors.rows, 0)), 0)
    if wanted.column is None:
        enough = int(np.searchsorted(np.cumsum(rows), wanted.rows)) + 1
        return survivors if not wanted.rows or enough >= len(rows) else survivors.kept(np.arange(len(rows)) < enough)
    mask = _below_threshold(survivors, wanted, rows)
    return survivors if mask is None else survivors.kept(mask)


def _below_threshold(survivors: Survivors, wanted: FirstRows, rows: np.ndarray) -> np.ndarray | None:
    column = survivors.index.snapshot.schema.columns.get(wanted.column or "")
    # Texts are ordered by a collation that may be the session's.
    if column is None or not column.orderable or not _is_plain(column.type) or not wanted.rows:
        return None
    ranges = survivors.index.file_statistics(survivors.numbers, [column.path]).statistics().columns.get(column.path)
    if ranges is None:
        return None
    # "best" is where a file's first rows may be, "worst" where all of its rows are at the latest.
    best, worst = (ranges.upper, ranges.lower) if wanted.descending else (ranges.lower, ranges.upper)
    pure = _flags(ranges.has_null) & _flags(ranges.has_nan)
    promised = np.where(pure & pc.is_valid(worst).to_numpy(zero_copy_only=False), rows, 0)
    order = pc.array_sort_indices(worst, order="descending" if wanted.descending else "ascending").to_numpy()
    enough = int(np.searchsorted(np.cumsum(promised[order]), wanted.rows))
    if enough >= len(order) or not promised[order[enough]]:
        return None
    threshold = worst[int(order[enough])]
    beyond = pc.less(best, threshold) if wanted.descending else pc.greater(best, threshold)
    out: np.ndarray = np.asarray(pc.fill_null(beyond, False)) & pure
    return ~out


def _flags(may: pa.BooleanArray) -> np.ndarray:
    """Where it is known that a unit has none."""
    return ~np.asarray(pc.fill_null(may, True))


def _is_plain(type: pa.DataType) -> bool:
    return bool(
        t.is_integer(type) or t.is_floating(type) or t.is_decimal(type) or t.is_date(type) or t.is_timestamp(type)
    )
