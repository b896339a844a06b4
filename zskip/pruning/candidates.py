"""`candidates`: the units that evidence alone leaves, found without reading the ranges of all units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.language import Predicate
from zskip.language.intervals.spans import values_of
from zskip.language.tree import Contains, Scalar
from zskip.pruning.constant_comparison import Steps
from zskip.pruning.evaluate import Chosen, Computed, Implied, Joint, Proof, Tested, proof_for
from zskip.pruning.evidence import Ints, UnitSearch
from zskip.pruning.outcomes import TRUE

_MAX_VALUES = 1 << 13
"""Constants of one condition that are searched for; with more of them, ranges leave about as few units."""


def candidates(predicate: Predicate, search: UnitSearch) -> Ints | None:
    """The ascending numbers of the units that may hold a match by evidence alone; None if evidence rules out no unit.

    uid = 'a'                  units that may hold 'a'
    uid = 'a' AND n < 7        the same: `outcomes` of these units narrows them further
    uid = 'a' OR ip = 'b'      units that may hold either
    uid = 'a' OR n < 7         None
    """
    try:
        return _candidates(proof_for(predicate, 0), search)
    except RecursionError:  # the caller may be deep in its own stack
        return None


def _candidates(proof: Proof, search: UnitSearch) -> Ints | None:
    match proof:
        case Computed(part, _) | Tested(part, True) | Implied(_, part):
            return _candidates(part, search)
        case Contains():
            return search.containing(proof)
        case Steps():
            return _holding(proof.term, _true_values(proof), search)
        case Joint(True, parts):
            return _all_of([_candidates(part, search) for part in parts])
        case Joint(False, parts):
            return _any_of(_candidates(part, search) for part in parts)
        case Chosen(condition, then, otherwise):
            taken = _all_of([_candidates(condition, search), _candidates(then, search)])
            return _any_of([taken, _candidates(otherwise, search)])
    return None


def _all_of(found: Sequence[Ints | None]) -> Ints | None:
    known = [one for one in found if one is not None]
    return reduce(np.intersect1d, known) if known else None


def _any_of(found: Iterable[Ints | None]) -> Ints | None:
    units = np.zeros(0, np.int64)
    for one in found:
        if one is None:
            return None
        units = np.union1d(units, one)
    return units


def _true_values(steps: Steps) -> pa.Array | None:
    """All values for which a condition is TRUE; None if it is TRUE for NULL, or for too many values."""
    if steps.null & TRUE:
        return None
    no_values = pa.array([], steps.term.type)
    values = steps.points(TRUE) if (steps.cells & TRUE).any() else no_values
    if values is None or not (steps.nan & TRUE and t.is_floating(steps.term.type)):
        return values
    return pa.concat_arrays([values, values_of(np.array([np.nan]), steps.term.type)])


def _holding(term: Scalar, values: pa.Array | None, search: UnitSearch) -> Ints | None:
    return None if values is None or len(values) > _MAX_VALUES else search.holding(term, values)
