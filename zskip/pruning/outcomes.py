"""`Outcomes`: what a predicate may yield for the rows of each unit, and three-valued logic over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import and_, or_

import numpy as np
import numpy.typing as npt

from zskip.language.intervals.spans import Bools

TRUE, FALSE, NULL, FAIL = 1, 2, 4, 8
"""The bits of a mask of outcomes. FAIL: the engine may raise an error."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Every outcome that some row of the unit can have; possibly more. One slot per unit.

    ``can_fail``: some row may make the engine raise an error, so it is not certain that all rows match.

    | the unit                    | can_be_true | can_be_false | can_be_null |
    | --------------------------- | ----------- | ------------ | ----------- |
    | holds no row                | no          | no           | no          |
    | x > 5 over 7, 8             | yes         | no           | no          |
    | x > 5 over 3, 8, NULL       | yes         | yes          | yes         |
    | nothing is known            | yes         | yes          | yes         |
    """

    can_be_true: Bools
    can_be_false: Bools
    can_be_null: Bools
    can_fail: Bools

    def __len__(self) -> int:
        return len(self.can_be_true)

    @property
    def masks(self) -> tuple[Bools, Bools, Bools, Bools]:
        """The flags of each outcome, in the order of the bits."""
        return self.can_be_true, self.can_be_false, self.can_be_null, self.can_fail

    @property
    def may_match(self) -> Bools:
        """Whether a unit must be kept. False is a proof that no row makes the predicate TRUE."""
        return self.can_be_true

    @property
    def all_match(self) -> Bools:
        """Whether every row makes the predicate TRUE. True is a proof: the rows need no filter, and count unread."""
        return ~(self.can_be_false | self.can_be_null | self.can_fail)

    @staticmethod
    def of(mask: int, units: int) -> Outcomes:
        """The same outcomes for every unit."""
        return Outcomes(*(np.full(units, bool(mask & bit)) for bit in (TRUE, FALSE, NULL, FAIL)))

    def where(self, units: Bools) -> Outcomes:
        """These outcomes in ``units``, and no outcome at all in the others."""
        return Outcomes(*(mask & units for mask in self.masks))

    def take(self, units: npt.NDArray[np.int64]) -> Outcomes:
        """The outcomes of some units, by number."""
        return Outcomes(*(mask[units] for mask in self.masks))

    def updated(self, units: npt.NDArray[np.int64], other: Outcomes) -> Outcomes:
        """These outcomes, with those of ``other`` in ``units``, in their order."""
        masks = [mask.copy() for mask in self.masks]
        for mask, of_units in zip(masks, other.masks, strict=True):
            mask[units] = of_units
        return Outcomes(*masks)

    def negated(self) -> Outcomes:
        """NOT: swaps TRUE and FALSE."""
        return Outcomes(self.can_be_false, self.can_be_true, self.can_be_null, self.can_fail)

    def tested(self, outcome: bool | None) -> Outcomes:
        """IS TRUE, IS FALSE or IS UNKNOWN (None)."""
        wanted = {True: self.can_be_true, False: self.can_be_false, None: self.can_be_null}
        others = [mask for key, mask in wanted.items() if key is not outcome]
        return Outcomes(wanted[outcome], others[0] | others[1], np.zeros(len(self), bool), self.can_fail)

    def within(self, other: Outcomes) -> Outcomes:
        """The intersection with the outcomes of another sound proof of the same predicate."""
        return Outcomes(*map(and_, self.masks, other.masks))

    def chosen(self, then: Outcomes, otherwise: Outcomes) -> Outcomes:
        """CASE WHEN self THEN then ELSE otherwise END."""
        taken, left = self.can_be_true, self.can_be_false | self.can_be_null
        return Outcomes(
            taken & then.can_be_true | left & otherwise.can_be_true,
            taken & then.can_be_false | left & otherwise.can_be_false,
            taken & then.can_be_null | left & otherwise.can_be_null,
            self.can_fail | taken & then.can_fail | left & otherwise.can_fail,
        )


def all_of(parts: Sequence[Outcomes]) -> Outcomes:
    """AND of parts that are evaluated independently.

    It can be NULL if a part can be NULL while every other part can be TRUE or NULL.
    """
    true, false, null, fail = (mask.copy() for mask in parts[0].masks)
    not_false = true | null
    for part in parts[1:]:
        true &= part.can_be_true
        false |= part.can_be_false
        null |= part.can_be_null
        not_false &= part.can_be_true | part.can_be_null
        fail |= part.can_fail
    # A unit where one part has no outcome at all has no rows.
    return Outcomes(true, false, null & not_false, fail)


def either(parts: Sequence[Outcomes]) -> Outcomes:
    """The union of the outcomes: each row has one of the parts' outcomes."""
    found = parts[0]
    for part in parts[1:]:
        found = Outcomes(*map(or_, found.masks, part.masks))
    return found


def any_of(parts: Sequence[Outcomes]) -> Outcomes:
    """OR, by De Morgan."""
    return all_of([part.negated() for part in parts]).negated()
