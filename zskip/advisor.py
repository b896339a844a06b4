"""`advise`: a workload replayed against candidate layouts on a sample, ranked by what they are expected to read."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from zskip import layouts
from zskip.errors import InvalidOption
from zskip.predicate import bind
from zskip.predicate.sql.workload import conditions
from zskip.schema import Schema

__all__ = ["Advice", "Candidate", "advise"]

_MOST_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout that was tried. ``read``: the expected share of rows read, from 0 to 1; ``queries``: for each query."""

    layout: str
    by: tuple[str, ...]
    read: float
    queries: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """Candidates from the best down, beside today's layout and beside the limit.

    ``today``: the share of rows that the workload reads as the rows lie now, None where that is not known; ``least``:
    the share that its queries return, below which nothing goes; ``command``: the line that writes the best candidate.
    """

    queries: tuple[str, ...]
    files: int
    candidates: tuple[Candidate, ...]
    today: float | None
    least: float
    command: str

    def __str__(self) -> str:
        lines = [f"{'layout':9} {'read':>7}  columns"]
        lines += [f"{each.layout:9} {each.read:7.2%}  {', '.join(each.by)}" for each in self.candidates]
        if self.today is not None:
            lines.append(f"{'today':9} {self.today:7.2%}")
        lines.append(f"{'limit':9} {self.least:7.2%}  what the queries return")
        return "\n".join([*lines, "", self.command])


def advise(
    sample: pa.Table,
    workload: Sequence[str],
    *,
    files: int,
    total_rows: int,
    today: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None,
    candidates: Sequence[str] = ("auto", "tree", "tiles", "hilbert", "linear"),
    source: str = "SOURCE",
    target: str = "TARGET",
) -> Advice:
    """Rank layouts and column sets for a workload of predicates or SELECT statements.

    ``sample``: rows of the table, some hundred a file; ``today``: for each of them the file that it lies in now;
    ``files``: how many files the new table is to have. Half of the sample fits the layouts, the other half scores
    them, so that a layout is not praised for what it learned by heart. Raises `InvalidOption`, `SqlError`.
    """
    schema = Schema(sample.schema)
    queries = [condition for text in workload for condition in conditions(text, schema)]
    asked = _asked(queries, schema)
    if not asked:
        raise InvalidOption("No query of the workload filters on a column of the table that can be ordered.")
    order = np.random.default_rng(0).permutation(sample.num_rows)
    half = max(1, sample.num_rows // 2)
    fitting, scoring = sample.take(pa.array(order[:half])), sample.take(pa.array(order[half:]))
    scoring = scoring if scoring.num_rows else fitting
    found = []
    for by in dict.fromkeys(tuple(asked[:count]) for count in range(1, min(len(asked), _MOST_COLUMNS) + 1)):
        for layout in candidates:
            assignment = layouts.fit(
                fitting, by, layout=layout, files=files, workload=queries, total_rows=max(total_rows, half)
            )
            score = layouts.score(scoring, assignment, by, workload=queries)
            found.append(Candidate(layout, by, float(np.mean(score.queries)), score.queries))
    found.sort(key=lambda candidate: (candidate.read, len(candidate.by)))
    best = found[0]
    now = None if today is None else float(np.mean(layouts.score(sample, today, asked[:1], workload=queries).queries))
    alone = layouts.score(sample, np.arange(sample.num_rows), asked[:1], workload=queries)
    command = f"zskip write {shlex.quote(source)} {shlex.quote(target)} --by {shlex.quote(','.join(best.by))}"
    command += f" --layout {best.layout} --files {files}"
    return Advice(tuple(queries), files, tuple(found), now, float(np.mean(alone.queries)), command)


def _asked(queries: Sequence[str], schema: Schema) -> list[str]:
    """The columns that the queries filter on and that can be ordered, those of most queries first."""
    counts: dict[str, int] = {}
    for query in queries:
        for path in sorted(bind(query, schema).columns):
            if schema.columns[path].orderable:
                counts[path] = counts.get(path, 0) + 1
    return sorted(counts, key=lambda path: -counts[path])
