"""`Evidence`: what is known of units beyond the ranges of their columns, for example from sketches.

The evaluator uses it at its leaves, and only for the units that ranges leave undecided:

    x = c, x IN (c, d)      no unit without c or d can make it TRUE
    x <> c, x NOT IN (…)    every unit without them makes it TRUE, but for NULL
    contains(x, 'text')     and every pattern that implies it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from zskip.language.intervals.spans import Bools
from zskip.language.tree import Contains, In

Ints = npt.NDArray[np.int64]


class Evidence(Protocol):
    """Proofs that units lack a value or a text. Unit i is slot i of the accompanying statistics."""

    def may_match(self, condition: In | Contains, units: Ints) -> Bools | None:
        """For each of ``units``, whether some row may satisfy the condition; None if nothing is known about it.

        The values of an IN are distinct and ascending, with NaN last and without NULL. -0.0 and 0.0 are equal.
        """


class UnitSearch(Protocol):
    """The same evidence as a search over all units."""

    def matching(self, condition: In | Contains) -> Ints | None:
        """The ascending numbers of the units of which some row may satisfy the condition; None if nothing is known
        about it. The condition: as for `Evidence.may_match`."""


@dataclass(frozen=True, slots=True)
class EvidenceOfUnits:
    """The evidence of some of the units, which are renumbered from 0."""

    evidence: Evidence
    units: Ints

    def may_match(self, condition: In | Contains, units: Ints) -> Bools | None:
        """`Evidence.may_match`, with the new numbers."""
        return self.evidence.may_match(condition, self.units[units])
