"""Constants that a function never gives, wherever its argument lies: by name, whether a value is one that it may give.

    date_trunc('day', x) = TIMESTAMP '2020-01-01 05:00'      never
    left(x, 2) <> 'abc'                                      always, where x is not NULL
    last_day(x) <= DATE '2020-01-15'                         last_day(x) < DATE '2020-01-15'

A function that is not here may give every value between its bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from zskip.expr.literals import is_fixed, offset_nanoseconds, per_day
from zskip.expr.tree import Call, Scalar

__all__ = ["ATTAINED", "may_give"]

_UNITS = {"year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"}
_FIRST, _LAST = ((date(*day) - date(1970, 1, 1)).days for day in ((1, 1, 8), (9999, 12, 24)))
"""The days between which every unit has its beginning and its end."""


def may_give(term: Scalar, value: pa.Scalar) -> bool:
    """Whether a term may have a value. True for a column, and for a function that is not in the table."""
    if not isinstance(term, Call) or term.function not in ATTAINED or not value.is_valid:
        return True
    return ATTAINED[term.function](term, value)


def _begins(call: Call, value: pa.Scalar) -> bool:
    """Whether a moment is the beginning of a unit."""
    unit, zone = call.options
    if unit not in _UNITS or (zone is not None and not (is_fixed(str(zone)) and offset_nanoseconds(str(zone)) == 0)):
        return True
    moment = value
    if not t.is_date32(value.type):
        moment = pa.scalar(value.value, pa.int64()).cast(pa.timestamp(value.type.unit))
    return not _is_of_the_calendar(moment) or bool(pc.floor_temporal(moment, unit=unit) == moment)


def _ends_a_month(call: Call, value: pa.Scalar) -> bool:
    return not _is_of_the_calendar(value) or (value.as_py() + timedelta(days=1)).day == 1


def _is_of_the_calendar(moment: pa.Scalar) -> bool:
    """Whether it is no infinity, and no moment so far away that arithmetic ends near it."""
    units = per_day(moment.type)
    return bool(_FIRST * units <= moment.value <= _LAST * units)


def _is_short(call: Call, value: pa.Scalar) -> bool:
    """Whether a text has no more characters than the beginning that is taken."""
    (count,) = call.options
    return isinstance(count, int) and len(value.as_py()) <= count


ATTAINED: dict[str, Callable[[Call, pa.Scalar], bool]] = {
    "truncate": _begins,
    "last_day": _ends_a_month,
    "prefix": _is_short,
}
"""By the name that a `Call` carries."""
