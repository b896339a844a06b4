"""`Steps`: all conditions on one term, as a step function over the term's values.

    x > 5 AND x <> 8           cuts      6      8      9
                               cells  F      T      F      T          NULL → null

A cut is just before a value. A cut after v is one before the next value of the type, which always exists (for strings,
v followed by a zero byte). So a cell is never empty, and the outcomes of a unit are the union of the cells that [lower,
upper] touches. This is exact for any AND, OR and NOT over one term, and as fast for ten thousand values as for ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.language.intervals.spans import Bools, Keys, Span, key_family, key_limits, keys, values_of
from zskip.language.tree import In, Scalar
from zskip.pruning.evidence import Evidence
from zskip.pruning.outcomes import FAIL, FALSE, NULL, TRUE, Outcomes
from zskip.stats.keys import count_at_most

Masks = np.ndarray

_NEGATED = np.array(
    [mask & (NULL | FAIL) | (TRUE if mask & FALSE else 0) | (FALSE if mask & TRUE else 0) for mask in range(16)],
    np.uint8,
)


def _tested(outcome: bool | None) -> Masks:
    wanted = {True: TRUE, False: FALSE, None: NULL}[outcome]
    others = (TRUE | FALSE | NULL) & ~wanted
    return np.array(
        [mask & FAIL | (TRUE if mask & wanted else 0) | (FALSE if mask & others else 0) for mask in range(16)], np.uint8
    )


_FEW_RUNS = 4
"""The number of runs of cells with an outcome up to which units are compared with each run."""

_MOST_POINTS = 1 << 16
"""The most integers or days in ranges for which evidence is looked up value by value."""

_MOST_CONSTANTS = 1 << 20
"""The most values for which evidence is looked up that a predicate lists, or that are the keys of a join."""

_TESTED = {outcome: _tested(outcome) for outcome in (True, False, None)}


_FEW_CUTS = 8
"""The number of cuts up to which all bounds are compared with each cut."""


def at_most(cuts: Keys, bounds: Keys) -> np.ndarray:
    """For each bound, the number of distinct ascending cuts <= it. A null bound is above every cut.

    >>> at_most(np.array([3, 5, 8]), np.array([2, 3, 7, 9])).tolist()
    [0, 1, 2, 3]
    """
    if len(cuts) <= _FEW_CUTS:
        return _one_by_one(cuts, bounds)
    if isinstance(cuts, np.ndarray):
        return np.asarray(np.searchsorted(cuts, bounds, side="right"))
    return count_at_most(cuts, bounds)


def _one_by_one(cuts: Keys, bounds: Keys) -> np.ndarray:
    """The ranks, as bytes: a plan of a million files is bound by memory access, and 64 bits take 8 times as much."""
    found = np.full(len(bounds), len(cuts), np.uint8)
    for cut in cuts:
        if isinstance(cuts, np.ndarray):
            below = bounds < cut
        else:
            below = np.asarray(pc.fill_null(pc.less(bounds, cut), False).to_numpy(zero_copy_only=False), bool)
        found -= below.view(np.uint8)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """``cells[i]``: the outcomes from ``cuts[i - 1]`` (included) to ``cuts[i]``, as a mask of bits.

    ``nan``, ``null``: the outcomes of NaN and of NULL. The cuts are distinct and ascending.
    """

    term: Scalar
    cuts: Keys
    cells: Masks
    nan: int
    null: int

    # ── constructors ──

    @staticmethod
    def below(term: Scalar, value: pa.Scalar, included: bool) -> Steps:
        """``term < value`` or ``term <= value``."""
        if is_nan(value):
            return Steps(term, _no_cuts(term), np.array([TRUE], np.uint8), TRUE if included else FALSE, NULL)
        cut = cuts_at(term.type, _array(value), included)
        cells = np.array([TRUE, FALSE] if len(cut) else [TRUE], np.uint8)
        return Steps(term, cut, cells, FALSE, NULL)

    @staticmethod
    def among(term: Scalar, values: pa.Array, or_null: bool) -> Steps:
        """``term IN values``; the values are sorted and distinct. A type without order has none."""
        miss = NULL if or_null else FALSE
        if not len(values):
            return Steps(term, _no_cuts(term), np.array([miss], np.uint8), miss, NULL)
        nan = FALSE
        if t.is_floating(values.type):
            is_nan = pc.is_nan(values)
            nan = TRUE if pc.any(is_nan).as_py() else FALSE
            values = values.filter(pc.invert(is_nan))
        before, after = cuts_at(term.type, values, False), cuts_at(term.type, values, True)
        cells = np.full(len(before) + len(after) + 1, miss, np.uint8)
        cells[1::2] = TRUE
        cuts = _interleaved(before, after)
        return _simplified(Steps(term, cuts, cells, nan if nan == TRUE else miss, NULL))

    @staticmethod
    def constant(term: Scalar, outcome: int) -> Steps:
        """The same outcome for every value of the term."""
        return Steps(term, _no_cuts(term), np.array([outcome], np.uint8), outcome, outcome)

    @staticmethod
    def is_null(term: Scalar) -> Steps:
        """``term IS NULL``."""
        return Steps(term, _no_cuts(term), np.array([FALSE], np.uint8), FALSE, TRUE)

    # ── three-valued logic ──

    def negated(self) -> Steps:
        """NOT."""
        return self._mapped(_NEGATED)

    def tested(self, outcome: bool | None) -> Steps:
        """IS TRUE, IS FALSE or IS UNKNOWN."""
        return self._mapped(_TESTED[outcome])

    def _mapped(self, table: Masks) -> Steps:
        return Steps(self.term, self.cuts, table[self.cells], int(table[self.nan]), int(table[self.null]))

    @staticmethod
    def all_of(parts: Sequence[Steps]) -> Steps:
        """AND of any number of step functions of one term, by one sort of all their cuts.

        Counts, for each cell, the parts that can be TRUE, FALSE, NULL, not FALSE, or fail there, as the cumulative sum
        of the changes at each cut.
        """
        if len(parts) == 1:
            return parts[0]
        cuts = _concatenated([part.cuts for part in parts])
        order = _order_of(cuts)
        cells = _indicators(np.concatenate([part.cells for part in parts]))
        first = np.cumsum([0, *(len(part.cells) for part in parts[:-1])])
        changes = np.delete(np.diff(cells, axis=1), first[1:] - 1, axis=1)[:, order]
        base = cells[:, first].sum(axis=1, keepdims=True)
        counts = np.concatenate([base, base + np.cumsum(changes, axis=1)], axis=1)
        nan, null = (
            _and_cells(_indicators(np.array(ends, np.uint8)).sum(axis=1), len(parts))
            for ends in ([part.nan for part in parts], [part.null for part in parts])
        )
        found = Steps(parts[0].term, _take(cuts, order), _and_cells(counts, len(parts)), int(nan), int(null))
        return _simplified(found)

    @staticmethod
    def any_of(parts: Sequence[Steps]) -> Steps:
        """OR, by De Morgan."""
        return Steps.all_of([part.negated() for part in parts]).negated()

    # ── evaluation ──

    def outcomes(self, span: Span, evidence: Evidence | None = None) -> Outcomes:
        """The outcomes of all units at once. ``evidence`` about these units excludes the outcomes of absent values."""
        first, last = at_most(self.cuts, span.lower), at_most(self.cuts, span.upper)
        answers = []
        for bit in (TRUE, FALSE, NULL, FAIL):
            has = (self.cells & bit) != 0
            if not has.any():
                found = np.zeros(len(span), bool)
            elif has.all():
                found = span.value
            else:
                found = span.value & self._touched(has, first, last)
            nan = span.nan if self.nan & bit else None
            if evidence is not None:
                found = self._narrowed_by_evidence(found, self.points(bit), evidence)
                if nan is not None and t.is_floating(self.term.type):
                    nan = self._narrowed_by_evidence(nan, values_of(np.array([np.nan]), self.term.type), evidence)
            if nan is not None:
                found = found | nan
            if self.null & bit:
                found = found | span.null
            answers.append(found)
        return Outcomes(answers[0], answers[1], answers[2], answers[3] | span.fail)

    def points(self, bit: int) -> pa.Array | None:
        """The values that have an outcome, without NaN, ascending; None if there are too many, or none.

        >>> from zskip.language.tree import Reference
        >>> x = Reference("x", pa.int32())
        >>> Steps.among(x, pa.array([5, 7], pa.int32()), False).points(TRUE).to_pylist()
        [5, 7]
        """
        cells = np.flatnonzero(self.cells & bit)
        if not len(cells) or len(cells) > _MOST_CONSTANTS or key_family(self.term.type) is None:
            return None
        if isinstance(self.cuts, np.ndarray) and self.cuts.dtype == np.int64:
            least, greatest = key_limits(self.term.type)
            low, high = np.append(least, self.cuts)[cells], np.append(self.cuts - 1, greatest)[cells]
            if (high.astype(np.float64) - low).sum() >= max(_MOST_POINTS, 2 * len(cells)):
                return None
            counts = high - low + 1
            starts = np.cumsum(counts) - counts
            return values_of(np.repeat(low - starts, counts) + np.arange(counts.sum()), self.term.type)
        if cells[0] == 0 or cells[-1] == len(self.cuts):
            return None
        low, high = _take(self.cuts, cells - 1), _take(self.cuts, cells)
        if isinstance(low, np.ndarray):
            return values_of(low, self.term.type) if (np.nextafter(low, np.inf) == high).all() else None
        following = pc.binary_join_element_wise(low, b"", b"\0")
        return values_of(low, self.term.type) if pc.all(pc.equal(following, high)).as_py() else None

    def _narrowed_by_evidence(self, possible: Bools, values: pa.Array | None, evidence: Evidence) -> Bools:
        """The possible units that may hold one of the values."""
        units = np.flatnonzero(possible)
        may = None if values is None or not len(units) else evidence.may_match(In(self.term, values), units)
        if may is None:
            return possible
        held = np.zeros(len(possible), bool)
        held[units] = may
        return held

    def _touched(self, has: Bools, first: np.ndarray, last: np.ndarray) -> Bools:
        """Whether any cell from ``first`` to ``last`` has the outcome. ``has``: whether each cell has it."""
        edges = np.flatnonzero(np.diff(has, prepend=False, append=False))
        if len(edges) > 2 * _FEW_RUNS:
            counts = np.concatenate([[0], np.cumsum(has)])
            return np.asarray(counts[last.astype(np.int64) + 1] > counts[first])
        found = np.zeros(len(first), bool)
        for start, end in edges.reshape(-1, 2).tolist():
            found |= (first < end) & (last >= start)
        return found


def is_nan(value: pa.Scalar) -> bool:
    """Whether a constant is NaN."""
    return bool(t.is_floating(value.type) and value.as_py() != value.as_py())


def _array(value: pa.Scalar) -> pa.Array:
    return pa.array([value], value.type)


def _no_cuts(term: Scalar) -> Keys:
    match key_family(term.type):
        case "float":
            return np.empty(0, np.float64)
        case "integer":
            return np.empty(0, np.int64)
    return pa.array([], pa.binary())


def cuts_at(type: pa.DataType, values: pa.Array, after: bool) -> Keys:
    """The cuts just before, or just ``after``, each value; without a cut after the greatest value of the type."""
    found = keys(values)
    if isinstance(found, pa.Array):
        return pc.binary_join_element_wise(found, b"", b"\0") if after else found
    if found.dtype == np.float64:
        if not after:
            return found
        with np.errstate(over="ignore"):  # what follows the greatest number is infinite
            return np.nextafter(found, np.inf)[found < np.inf]
    limit = key_limits(type)[1]
    return found[found < limit] + 1 if after else found


def _interleaved(before: Keys, after: Keys) -> Keys:
    if isinstance(before, np.ndarray):
        cuts = np.empty(len(before) + len(after), before.dtype)
        cuts[0::2], cuts[1::2] = before, after
        return cuts
    order = np.arange(2 * len(before)).reshape(2, -1).T.ravel()
    return pa.concat_arrays([before, after]).take(pa.array(order))


_INDICATORS = np.array(
    [
        [bool(mask & TRUE), bool(mask & FALSE), bool(mask & NULL), bool(mask & (TRUE | NULL)), bool(mask & FAIL)]
        for mask in range(16)
    ],
    np.int64,
).T
"""Of each mask, whether it can be TRUE, FALSE, NULL, anything but FALSE, and whether it can fail."""


def _indicators(cells: Masks) -> np.ndarray:
    """The five indicators, with a column per cell."""
    return np.asarray(_INDICATORS[:, cells])


def _and_cells(counts: np.ndarray, parts: int) -> Masks:
    """The outcomes of an AND, from the number of its parts that have each indicator."""
    true, false, null, not_false, fail = counts
    found = (
        TRUE * (true == parts) | FALSE * (false > 0) | NULL * ((null > 0) & (not_false == parts)) | FAIL * (fail > 0)
    )
    return np.asarray(found, np.uint8)


def _concatenated(cuts: Sequence[Keys]) -> Keys:
    if isinstance(cuts[0], np.ndarray):
        return np.concatenate(cuts)
    return pa.concat_arrays(cuts)


def _order_of(cuts: Keys) -> np.ndarray:
    """The positions of keys in ascending order."""
    if isinstance(cuts, np.ndarray):
        return np.argsort(cuts, kind="stable")
    return np.asarray(pc.sort_indices(cuts).to_numpy(zero_copy_only=False), np.int64)


def _take(cuts: Keys, order: np.ndarray) -> Keys:
    return cuts[order] if isinstance(cuts, np.ndarray) else cuts.take(pa.array(order))


def _simplified(steps: Steps) -> Steps:
    """The step function with the last of equal cuts, and without cuts between cells with equal outcomes."""
    cuts, cells = steps.cuts, steps.cells
    if len(cuts) == 0:
        return steps
    if isinstance(cuts, np.ndarray):
        last = np.append(cuts[1:] != cuts[:-1], True)
    else:
        last = np.append(pc.not_equal(cuts[1:], cuts[:-1]).to_numpy(zero_copy_only=False), True)
    kept = np.flatnonzero(last)
    cells = np.concatenate([cells[:1], cells[kept + 1]])
    changed = cells[1:] != cells[:-1]
    return Steps(
        steps.term, _take(cuts, kept[changed]), np.concatenate([cells[:1], cells[1:][changed]]), steps.nan, steps.null
    )
