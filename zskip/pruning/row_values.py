"""`Rows`: an OR of many rows of constants, ``(a, b) IN ((1, 2), (3, 4), …)``, evaluated for all units at once.

    (a = 1 AND b = 2) OR (a = 3 AND b = 4)         b │     2│
                                                     │  ┌───┼──┐      a unit's ranges are a box;
                                                     │  │  ×│  │      each row of constants is a point
                                                     │  └───┼──┘
                                                     └──────┴────── a

A row can be TRUE only in a unit whose box contains its point. Ranges of single columns do not show that: those of a and
b may contain constants of different rows. Over two columns, a wavelet matrix counts the points in a box (Claude &
Navarro 2012), in as many steps as the number of constants has bits, each for all units at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.language.intervals.spans import Bools, Span, values_of
from zskip.language.tree import Reference
from zskip.pruning.column_comparison import is_single
from zskip.pruning.constant_comparison import cuts_at
from zskip.pruning.evidence import Evidence
from zskip.pruning.outcomes import Outcomes
from zskip.pruning.rank_search import RankIndex

AT_ONCE = 1 << 20
"""Points that are tested in one step, over more than two columns."""

MOST = 1 << 24
"""The most points that are tested in all; units that are undecided then are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """``(terms) IN rows``, without NULL and NaN among the constants: TRUE if a row of constants is equal, NULL if
    that depends on a NULL.

    ``before``, ``after``: for each column, the cuts around its distinct constants, ascending · ``points``: for each
    column, the rank of each row's constant among them
    """

    terms: tuple[Reference, ...]
    before: tuple[RankIndex, ...]
    after: tuple[RankIndex, ...]
    points: np.ndarray
    counts: tuple[PointCounts, ...]

    @staticmethod
    def among(terms: Sequence[Reference], columns: Sequence[pa.Array]) -> Rows:
        """From an array of constants for each term, of the term's type."""
        before, after, points = [], [], []
        for term, constants in zip(terms, columns, strict=True):
            encoded = constants.dictionary_encode()
            order = pc.sort_indices(encoded.dictionary)
            distinct = encoded.dictionary.take(order)
            rank = np.empty(len(order), np.int64)
            rank[order.to_numpy()] = np.arange(len(order))
            points.append(rank[encoded.indices.to_numpy()])
            before.append(RankIndex(cuts_at(term.type, distinct, False)))
            after.append(RankIndex(cuts_at(term.type, distinct, True)))
        counted = tuple(PointCounts.of(one, other) for one, other in pairwise(points))
        return Rows(tuple(terms), tuple(before), tuple(after), np.stack(points), counted)

    def outcomes(self, spans: Sequence[Span], evidence: Evidence | None = None) -> Outcomes:
        """The outcomes of all units at once, no wider than those of an OR over the rows.

        ``evidence`` of the same units excludes TRUE in units that lack a constant of every row.

        TRUE    a point is inside the box, and every column has values
        NULL    some column has NULL, and a point is inside the box that such columns do not bound
        FALSE   unless the box that columns without values do not bound is a point, and one of these
        """
        value, null, nan = (np.stack([getattr(span, name) for span in spans]) for name in ("value", "null", "nan"))
        # From the constants that are not below the range to those that are above it.
        first = np.stack([c.at_most(span.lower) for c, span in zip(self.after, spans, strict=True)], dtype=np.int64)
        last = np.stack([c.at_most(span.upper) for c, span in zip(self.before, spans, strict=True)], dtype=np.int64)
        last = np.where(value, last, first)
        all_of = np.array([[len(cuts)] for cuts in self.before])
        true = self._inside(first, last, np.logical_and.reduce(value), True)
        if evidence is not None:
            true = self._held(true, first, last, evidence)
        false: Bools = np.logical_or.reduce(value | nan)
        pinned = np.logical_and.reduce((np.stack([is_single(span) for span in spans]) | ~value) & ~nan) & false
        false &= ~self._inside(np.where(value, first, 0), np.where(value, last, all_of), pinned, False)
        hidden = self._inside(np.where(null, 0, first), np.where(null, all_of, last), np.logical_or.reduce(null), True)
        return Outcomes(true, false, hidden, np.logical_or.reduce([span.fail for span in spans]))

    def _held(self, possible: Bools, first: np.ndarray, last: np.ndarray, evidence: Evidence) -> Bools:
        """The possible units in which, by evidence, some row inside the box may have all its constants."""
        units = np.flatnonzero(possible)
        rows = self.points.shape[1]
        left: np.ndarray | None = None  # unit * rows + row
        for term, cuts, points in zip(self.terms, self.before, self.points, strict=True):
            pairs = evidence.may_hold(term, values_of(cuts.cuts, term.type), units) if len(units) else None
            if pairs is None:
                continue
            order = np.argsort(points, kind="stable")
            start, end = (np.searchsorted(points[order], pairs[1], side) for side in ("left", "right"))
            counts = end - start
            nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            found = np.repeat(pairs[0], counts) * rows + order[np.repeat(start, counts) + nth]
            left = np.unique(found) if left is None else np.intersect1d(left, found)
            units = np.unique(left // rows)
        if left is None:
            return possible
        unit, row = np.divmod(left, rows)
        inside = ((first[:, unit] <= self.points[:, row]) & (self.points[:, row] < last[:, unit])).all(axis=0)
        held = np.zeros(len(possible), bool)
        held[unit[inside]] = True
        return possible & held

    def _inside(self, first: np.ndarray, last: np.ndarray, asked: Bools, unsure: bool) -> Bools:
        """For each of the ``asked`` units, whether some point lies in [first, last) of every column.

        ``unsure``: the result for units where the test would take too long.
        """
        found = asked & (first < last).all(axis=0)
        for column, counted in enumerate(self.counts):
            units = np.flatnonzero(found)
            found[units] = counted.any(*(ends[at, units] for at in (column, column + 1) for ends in (first, last)))
        units = np.flatnonzero(found)
        if len(self.terms) > 2 and len(units):
            found[units] = self._tested(first[:, units], last[:, units], unsure)
        return found

    def _tested(self, first: np.ndarray, last: np.ndarray, unsure: bool) -> Bools:
        """Whether some point lies inside each box. Only points that are inside in the narrowest column are tested."""
        orders = np.argsort(self.points, axis=1, kind="stable")
        ordered = np.take_along_axis(self.points, orders, axis=1)
        ends = [
            np.stack([np.searchsorted(points, bound) for points, bound in zip(ordered, bounds, strict=True)])
            for bounds in (first, last)
        ]
        units = np.arange(first.shape[1])
        narrowest = np.argmin(ends[1] - ends[0], axis=0)
        at, end = ends[0][narrowest, units], ends[1][narrowest, units]
        found, spent = np.zeros(len(units), bool), 0
        while len(units) and spent < MOST:
            count = np.minimum(end[units] - at[units], max(1, AT_ONCE // len(units)))
            owner = np.repeat(units, count)
            nth = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
            points = self.points[:, orders[narrowest[owner], at[owner] + nth]]
            found[owner[((first[:, owner] <= points) & (points < last[:, owner])).all(axis=0)]] = True
            at[units] += count
            spent += len(owner)
            units = units[~found[units] & (at[units] < end[units])]
        found[units] = unsure
        return found


@dataclass(frozen=True, slots=True, eq=False)
class PointCounts:
    """Points (x, y), ordered by x, with a wavelet matrix over y.

    ``zeros[bit][i]``: how many of the first i points lack the bit in y, after a stable sort by all higher bits.
    """

    x: np.ndarray
    zeros: tuple[np.ndarray, ...]

    @staticmethod
    def of(x: np.ndarray, y: np.ndarray) -> PointCounts:
        """From the non-negative coordinates of the points."""
        order = np.argsort(x, kind="stable")
        rest, zeros = y[order], []
        for bit in reversed(range(int(y.max()).bit_length() + 1)):
            has = (rest >> bit & 1).astype(bool)
            zeros.append(np.concatenate([[0], np.cumsum(~has)]))
            rest = np.concatenate([rest[~has], rest[has]])
        return PointCounts(x[order], tuple(zeros))

    def any(self, left: np.ndarray, right: np.ndarray, low: np.ndarray, high: np.ndarray) -> Bools:
        """For each box [left, right) × [low, high), whether it contains a point. Bounds may be the greatest + 1."""
        first, last = np.searchsorted(self.x, left), np.searchsorted(self.x, right)
        return self._below(first, last, high) > self._below(first, last, low)

    def _below(self, first: np.ndarray, last: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """The number of points from ``first`` to ``last`` with y < bound."""
        count = np.zeros(len(bound), np.int64)
        for bit, zeros in zip(reversed(range(len(self.zeros))), self.zeros, strict=True):
            has = (bound >> bit & 1).astype(bool)
            low, high = zeros[first], zeros[last]
            count += np.where(has, high - low, 0)
            first, last = np.where(has, zeros[-1] + first - low, low), np.where(has, zeros[-1] + last - high, high)
        return count
