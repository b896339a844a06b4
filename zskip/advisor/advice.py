"""`Advice`: the candidates, and how much each reads, in total and by group of queries."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np

from zskip.binder.workload_sql import shape
from zskip.core.schema import join_names
from zskip.writer.sketch_advice import SketchAdvice

_MOST_GROUPS, _MOST_CANDIDATES = 20, 8
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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate layout. ``read``: the expected share of bytes read, from 0 to 1 · ``queries``: that of each query ·
    ``worse``: the number of query groups that would read more than today."""

    layout: str
    by: tuple[str, ...]
    read: float
    queries: tuple[float, ...]
    worse: int = 0


@dataclass(frozen=True, slots=True)
class Advice:
    """The candidates, best first, and for comparison the current layout and a lower bound.

    All shares are shares of the bytes in the columns that a query reads, from 0 to 1: the mean of the query's own share
    and of that expected for the same query with other constants.

    ``queries``: the conditions of the queries · ``weights``: the weight of each query in ``read``, by ``weigh`` ·
    ``today``: the share that the workload reads with the current layout, None if unknown; ``today_queries``: that of
    each query · ``least``: the share that the queries return, a lower bound for every layout; ``least_queries``: that
    of each query · ``groups``: the queries by kind, and how the best candidate changes each group ·
    ``rewrite_seconds``: an estimate for writing the best candidate on this machine, by writing samples · ``command``:
    the command line that writes it; ``bench_command``: the command line that measures the gain afterwards; "" with
    ``joins=`` · ``sketches``: sketches that would serve look-ups better than the layout, and their cost · ``sketched``:
    the candidate that reads the least if sketches serve the look-ups, if that is much less; ``sketched_command``:
    the command line that writes both · ``selected_from``: the number of queries in the workload, if ``queries`` is
    a random selection of them.
    """

    queries: tuple[str, ...]
    weights: tuple[float, ...]
    weigh: str
    files: int
    candidates: tuple[Candidate, ...]
    today: float | None
    today_queries: tuple[float, ...] | None
    least: float
    least_queries: tuple[float, ...]
    groups: tuple[QueryGroup, ...]
    rewrite_seconds: float
    command: str
    bench_command: str
    sketches: tuple[SketchAdvice, ...] = ()
    sketched: Candidate | None = None
    sketched_command: str | None = None
    selected_from: int | None = None

    @property
    def harmless(self) -> Candidate | None:
        """The best candidate with which no group of queries reads more than today, and the workload noticeably less.

        None if no candidate does.
        """
        good = (each for each in self.candidates if not each.worse)
        return next((each for each in good if self.today is None or compared(each.read, self.today) == "better"), None)

    @property
    def keep(self) -> bool:
        """Whether to keep the current layout, because no candidate reads noticeably less."""
        return self.today is not None and compared(self.candidates[0].read, self.today) != "better"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        lines = [f"{'layout':9} {'read':>7}  columns"]
        for each in self.candidates[:_MOST_CANDIDATES]:
            worse = f"  ({each.worse} of {len(self.groups)} groups worse)" if each.worse else ""
            lines.append(f"{each.layout:9} {each.read:7.2%}  {', '.join(each.by)}{worse}")
        if len(self.candidates) > _MOST_CANDIDATES:
            lines.append(f"and {len(self.candidates) - _MOST_CANDIDATES} more candidates")
        if self.today is not None:
            lines.append(f"{'today':9} {self.today:7.2%}")
        lines.append(f"{'limit':9} {self.least:7.2%}  what the queries return")
        lines += ["", *self._by_group(), ""]
        if self.selected_from is not None:
            selected = f"{len(self.queries):,} of the workload's {self.selected_from:,} queries"
            lines += [f"This is the advice for {selected}, selected at random.", ""]
        if self.keep and self.files == 1:
            lines.append("Every candidate is one file, which is read as a whole.")
            lines.append("To compare layouts of more files: files=50, or --files 50.")
        elif self.keep:
            lines.append("Keep the layout of today: no candidate reads noticeably less.")
        else:
            lines += [f"writing the best takes about {_duration(self.rewrite_seconds)}:", self.command]
            if self.bench_command:
                lines += ["to measure the gain in time and bytes afterwards:", self.bench_command]
        if self.sketched is not None and self.sketched_command is not None:
            worse = f"{self.sketched.worse} of {len(self.groups)} groups worse"
            lines += ["", f"{self.sketched.read:.2%} with another layout, and sketches for look-ups ({worse}):"]
            lines.append(self.sketched_command)
        elif self.sketches:
            lines += ["", "sketches that would serve look-ups beside it (table.add_sketches adds them):"]
        lines += map(str, self.sketches)
        return "\n".join(lines)

    def _by_group(self) -> list[str]:
        """The shares that each group reads today, with the best candidate and at least; a warning if any gets worse."""
        lines = [f"{'queries':>7} {self.weigh:>7} {'today':>8} {'best':>8} {'limit':>8}  {'':26}condition"]
        lines += map(str, self.groups[:_MOST_GROUPS])
        rest = self.groups[_MOST_GROUPS:]
        if rest:
            worse = sum(group.verdict == "worse" for group in rest)
            lines.append(f"and {len(rest)} more groups, {worse} of them worse")
        worst = self.candidates[0].worse
        if worst:
            lines.append(f"{worst} of {len(self.groups)} groups read more than today by the best layout.")
            if self.harmless is None:
                lines.append("Each candidate that reads noticeably less does so, for some of them.")
            else:
                by = shlex.quote(join_names(self.harmless.by))
                lines.append(
                    f"None does by --by {by} --layout {self.harmless.layout}, which reads {self.harmless.read:.2%}."
                )
        return lines


def _duration(seconds: float) -> str:
    """
    >>> _duration(0.2), _duration(42.3), _duration(1260), _duration(9000)
    ('1 s', '42 s', '21 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
