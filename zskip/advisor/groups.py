"""Groups of queries that differ only in their constants, and the shares that each group reads today and as advised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from zskip.binder.workload_sql import shape

Verdict = Literal["better", "worse", "same"]
_SAME = 1.05


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Queries whose conditions differ only in their constants.

    ``condition``: the common condition, with ``?`` for constants; that of a single query is unchanged · ``numbers``:
    the numbers of the queries in the workload · ``weight``: their part of the workload, from 0 to 1 · ``best``,
    ``today``, ``least``: the share of bytes that they read on average with the best candidate, with the current layout
    (None if unknown), and at least.
    """

    condition: str
    numbers: tuple[int, ...]
    weight: float
    best: float
    today: float | None
    least: float

    @property
    def verdict(self) -> Verdict | None:
        """How the advice changes the share read, by more than a twentieth; None if today's share is unknown."""
        return None if self.today is None else compared(self.best, self.today)

    def __str__(self) -> str:
        times = ""
        if self.today is not None and self.verdict == "better":
            times = f"{self.today / max(self.best, 1e-9):,.1f} times less"
        elif self.today is not None and self.verdict == "worse":
            times = f"WORSE, {self.best / max(self.today, 1e-9):,.1f} times as much "
        today = "" if self.today is None else format(self.today, ".2%")
        return (
            f"{len(self.numbers):>7} {self.weight:>7.1%} {today:>8} {self.best:>8.2%} {self.least:>8.2%}  {times:<26}"
            f"{self.condition}"
        )


def compared(new: float, old: float) -> Verdict:
    """
    >>> compared(0.1, 0.5), compared(0.5, 0.1), compared(0.5, 0.51)
    ('better', 'worse', 'same')
    """
    if new * _SAME < old:
        return "better"
    return "worse" if new > old * _SAME else "same"


def grouped(
    conditions: Sequence[str],
    weights: Sequence[float],
    best: Sequence[float],
    today: Sequence[float] | None,
    least: Sequence[float],
) -> tuple[QueryGroup, ...]:
    """The groups of a workload, the heaviest first. All sequences have one number for each condition."""
    members: dict[str, list[int]] = {}
    for number, condition in enumerate(conditions):
        members.setdefault(shape(condition), []).append(number)

    def average(of: Sequence[float], numbers: list[int]) -> float:
        own = np.array([weights[number] for number in numbers])
        return float(np.average([of[number] for number in numbers], weights=own if own.sum() > 0 else None))

    found = [
        QueryGroup(
            text if len(numbers) > 1 else conditions[numbers[0]],
            tuple(numbers),
            float(sum(weights[number] for number in numbers)),
            average(best, numbers),
            None if today is None else average(today, numbers),
            average(least, numbers),
        )
        for text, numbers in members.items()
    ]
    return tuple(sorted(found, key=lambda group: -group.weight))
