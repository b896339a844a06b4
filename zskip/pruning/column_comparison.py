"""Comparison of two spans, such as those of two columns.

x < y   TRUE   possible where x.lower < y.upper
        FALSE  possible where x.upper >= y.lower
        NULL   possible where x or y has a NULL
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from zskip.language.intervals.spans import Bools, Keys, Span, key_family
from zskip.pruning.outcomes import Outcomes


def compare_spans(op: str, left: Span, right: Span) -> Outcomes:
    """``left op right`` for ``<``, ``<=`` and ``=``. NaN equals itself and is above every number."""
    fail = left.fail | right.fail
    null = left.null & (right.value | right.nan | right.null) | right.null & (left.value | left.nan | left.null)
    if left.type != right.type or key_family(left.type) is None:
        some = np.ones(len(left), bool)
        return Outcomes(some, some, null, fail)
    both = left.value & right.value
    below, above = left.value & right.nan, left.nan & right.value
    same = left.nan & right.nan
    less, more = both & _less(left.lower, right.upper), both & _less(right.lower, left.upper)
    less_equal, more_equal = both & ~_less(right.upper, left.lower), both & ~_less(left.upper, right.lower)
    if op == "<":
        return Outcomes(less | below, more_equal | above | same, null, fail)
    if op == "<=":
        return Outcomes(less_equal | below | same, more | above, null, fail)
    different = both & ~(is_single(left) & is_single(right) & less_equal & more_equal)
    return Outcomes(less_equal & more_equal | same, different | below | above, null, fail)


def _less(left: Keys, right: Keys) -> Bools:
    """Whether ``left < right``, where a null stands for an unknown upper bound, above every value."""
    if isinstance(left, np.ndarray):
        return np.asarray(left < right)
    known = pc.less(left, right)
    return np.asarray(pc.if_else(left.is_null(), False, pc.fill_null(known, True)).to_numpy(zero_copy_only=False), bool)


def is_single(span: Span) -> Bools:
    """Whether the range holds a single value."""
    if isinstance(span.lower, np.ndarray):
        return np.asarray(span.lower == span.upper)
    return np.asarray(pc.fill_null(pc.equal(span.lower, span.upper), False).to_numpy(zero_copy_only=False), bool)
