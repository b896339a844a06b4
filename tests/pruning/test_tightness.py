"""The planner skips what brute force proves skippable, operator by operator; and nothing else."""

from __future__ import annotations

import pytest

from tests.pruning.tightness import LOOSE, OPERATORS, measure

# What ranges alone cannot show, or what is not shown yet, with the share that is reached. Comparisons, null tests,
# BETWEEN, IN, prefix LIKE and whole arithmetic are not here: of them everything is skipped. `LOOSE` says why of each.
FLOORS: dict[str, float] = {
    "date: day(x)": 0.99,
    "decimal: CAST(x AS INTEGER)": 0.94,
    "double: round(x)": 0.97,
    "string: AND, OR, NOT": 0.99,
    "string: length(x)": 0.19,
    "string: LIKE, any pattern": 0.93,
    "string: concat('b', x)": 0.98,
    "timestamp: hour(x)": 0.97,
    "timestamp: day(x)": 0.91,
    "timestamp: date_part('day', x)": 0.91,
}


@pytest.mark.parametrize("operator", OPERATORS, ids=": ".join)
def test_every_provable_unit_is_skipped_and_no_other(operator: tuple[str, str]) -> None:
    share = measure(*operator)
    floor = FLOORS.get(": ".join(operator), 1.0)
    assert share.unsound == 0
    assert share.skipped >= floor * share.skippable, share
    assert share.proved >= floor * share.wholly, share


def test_what_is_loose_says_why() -> None:
    assert set(LOOSE) == set(FLOORS)
