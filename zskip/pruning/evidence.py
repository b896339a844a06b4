"""`Evidence`: what is known of units beyond the ranges of their columns, for example from sketches.

The evaluator uses it at its leaves, and only for the units that ranges leave undecided:

    x = c, x IN (c, d)      may_hold_any    no unit without c or d can make it TRUE
    x <> c, x NOT IN (…)    may_hold_any    every unit without them makes it TRUE, but for NULL
    contains(x, 'text')     may_contain     and every pattern that implies it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from zskip.language.intervals.spans import Bools
from zskip.language.tree import Contains, Scalar

Ints = npt.NDArray[np.int64]


class Evidence(Protocol):
    """Proofs that units lack a value or a text. Unit i is slot i of the accompanying statistics."""

    def may_hold_any(self, term: Scalar, values: pa.Array, units: Ints) -> Bools | None:
        """For each of ``units``, whether it may hold any of the values; None if nothing is known about the term.

        ``values``: distinct and ascending, of the term's type, with NaN last and without NULL. -0.0 and 0.0 are equal.
        """

    def may_contain(self, condition: Contains, units: Ints) -> Bools | None:
        """For each of ``units``, whether some row may satisfy the condition; None if nothing is known about it."""


class UnitSearch(Protocol):
    """The same evidence as a search over all units."""

    def holding(self, term: Scalar, values: pa.Array) -> Ints | None:
        """The ascending numbers of the units that may hold one of the values; None if nothing is known about the term.

        ``values``: as for `Evidence.may_hold_any`.
        """

    def containing(self, condition: Contains) -> Ints | None:
        """The ascending numbers of the units of which some row may satisfy the condition; None if nothing is known."""


@dataclass(frozen=True, slots=True)
class EvidenceOfUnits:
    """The evidence of some of the units, which are renumbered from 0."""

    evidence: Evidence
    units: Ints

    def may_hold_any(self, term: Scalar, values: pa.Array, units: Ints) -> Bools | None:
        """`Evidence.may_hold_any`, with the new numbers."""
        return self.evidence.may_hold_any(term, values, self.units[units])

    def may_contain(self, condition: Contains, units: Ints) -> Bools | None:
        """`Evidence.may_contain`, with the new numbers."""
        return self.evidence.may_contain(condition, self.units[units])
