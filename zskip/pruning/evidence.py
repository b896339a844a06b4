"""`Evidence`: what is known of units beyond the ranges of their columns, for example from sketches.

The evaluator uses it at its leaves, and only for the units that ranges leave undecided:

    x = c, x IN (c, d)      may_hold_any    no unit without c or d can make it TRUE
    x <> c, x NOT IN (…)    may_hold_any    every unit without them makes it TRUE, but for NULL
    (a, b) IN (…)           may_hold        a row of constants needs all of its values in the unit
    contains(x, 'text')     may_contain     and every pattern that implies it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from zskip.expr.tree import Contains, Scalar
from zskip.pruning.outcomes import Bools

__all__ = ["Evidence", "EvidenceOfUnits", "Ints", "UnitSearch"]

Ints = npt.NDArray[np.int64]


class Evidence(Protocol):
    """Proofs that units lack a value or a text. Unit i is slot i of the accompanying statistics."""

    def may_hold(self, term: Scalar, values: pa.Array, units: Ints) -> tuple[Ints, Ints] | None:
        """Every pair of one of ``units`` and a value that the unit may hold; None where nothing is known of the term.

        ``values``: distinct, of the term's type, in ascending order, NaN at most last, without NULL. A pair is a
        unit's number and the position of a value, in any order; a value without a pair is certainly not in the unit.
        -0.0 and 0.0 are equal.
        """

    def may_hold_any(self, term: Scalar, values: pa.Array, units: Ints) -> Bools | None:
        """For each of ``units``, whether it may hold one of any number of values; None where nothing is known."""

    def may_contain(self, condition: Contains, units: Ints) -> Bools | None:
        """For each of ``units``, whether some row may satisfy the condition; None where nothing is known of it."""


class UnitSearch(Protocol):
    """The same evidence, asked of all units at once, by those that it names."""

    def holding(self, term: Scalar, values: pa.Array) -> Ints | None:
        """The numbers of all units that may hold one of the values (as `Evidence.may_hold` takes them), ascending; None
        where nothing is known of the term."""

    def containing(self, condition: Contains) -> Ints | None:
        """The numbers of all units of which some row may satisfy the condition, ascending; None as above."""


@dataclass(frozen=True, slots=True)
class EvidenceOfUnits:
    """The evidence of some of the units, which are renumbered from 0."""

    evidence: Evidence
    units: Ints

    def may_hold(self, term: Scalar, values: pa.Array, units: Ints) -> tuple[Ints, Ints] | None:
        """As `Evidence.may_hold`, by the new numbers."""
        found = self.evidence.may_hold(term, values, self.units[units])
        if found is None:
            return None
        original, positions = found
        return np.searchsorted(self.units, original), positions

    def may_hold_any(self, term: Scalar, values: pa.Array, units: Ints) -> Bools | None:
        """As `Evidence.may_hold_any`."""
        return self.evidence.may_hold_any(term, values, self.units[units])

    def may_contain(self, condition: Contains, units: Ints) -> Bools | None:
        """As `Evidence.may_contain`, by the new numbers."""
        return self.evidence.may_contain(condition, self.units[units])
