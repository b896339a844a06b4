"""`advise`: rank candidate layouts by how much a workload is expected to read, estimated on a sample."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import pyarrow as pa

from zskip import layouts
from zskip.binder import bind
from zskip.binder.workload_sql import conditions
from zskip.errors import InvalidOption
from zskip.layouts import Assignment, Score
from zskip.schema import Schema
from zskip.sketch_advice import SketchAdvice, worth_sketching
from zskip.writer.write_estimate import seconds_to_write

__all__ = ["Advice", "Candidate", "advise"]

_MOST_COLUMNS = 4
_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate layout. ``read``: the expected share of bytes read, from 0 to 1 · ``queries``: of each query."""

    layout: str
    by: tuple[str, ...]
    read: float
    queries: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """The candidates, best first, with the current layout and the limit for comparison.

    Shares are of the bytes in the columns that a query reads, from 0 to 1. ``queries``: their conditions · ``today``:
    what the workload reads with the current layout, None where that is unknown; ``today_queries``: of each query ·
    ``least``: what the queries return, a lower bound for every layout; ``least_queries``: of each query ·
    ``rewrite_seconds``: about how long writing the best candidate takes on this machine, estimated by writing samples ·
    ``command``: the command line that writes it · ``sketches``: sketches that would serve look-ups better than the
    layout, and their cost.
    """

    queries: tuple[str, ...]
    files: int
    candidates: tuple[Candidate, ...]
    today: float | None
    today_queries: tuple[float, ...] | None
    least: float
    least_queries: tuple[float, ...]
    rewrite_seconds: float
    command: str
    sketches: tuple[SketchAdvice, ...] = ()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        lines = [f"{'layout':9} {'read':>7}  columns"]
        lines += [f"{each.layout:9} {each.read:7.2%}  {', '.join(each.by)}" for each in self.candidates]
        if self.today is not None:
            lines.append(f"{'today':9} {self.today:7.2%}")
        lines.append(f"{'limit':9} {self.least:7.2%}  what the queries return")
        lines += ["", *self._by_query(), "", f"writing the best takes about {_duration(self.rewrite_seconds)}:"]
        lines.append(self.command)
        if self.sketches:
            lines += ["", "sketches that would serve look-ups beside it:", *map(str, self.sketches)]
        return "\n".join(lines)

    def _by_query(self) -> list[str]:
        """What each query reads with the best candidate, with the current layout, and at least."""
        today = self.today_queries or (None,) * len(self.queries)
        lines = [f"{'best':>7} {'today':>7} {'limit':>7}  query"]
        shown = list(zip(self.candidates[0].queries, today, self.least_queries, self.queries, strict=True))
        for best, now, least, query in shown[:_MOST_SHOWN]:
            lines.append(f"{best:7.2%} {'' if now is None else format(now, '.2%'):>7} {least:7.2%}  {query}")
        if len(shown) > _MOST_SHOWN:
            lines.append(f"and {len(shown) - _MOST_SHOWN} more queries")
        return lines


def advise(
    sample: pa.Table,
    workload: Sequence[str],
    *,
    files: int,
    total_rows: int,
    today: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None,
    candidates: Sequence[str] = ("auto", "tree", "tiles", "hilbert", "linear"),
    read_seconds: float = 0.0,
    source: str = "SOURCE",
    target: str = "TARGET",
    workload_file: str = "QUERIES.SQL",
) -> Advice:
    """Rank layouts and column sets for a workload of predicates or SELECT statements.

    ``sample``: rows of the table, a few hundred per file · ``today``: the current file of each of them · ``files``: the
    number of files of the new table. Layouts are fitted to half of the sample and scored on the other half, which
    avoids overfitting · ``read_seconds``: the time to read all rows once · ``source``, ``target``, ``workload_file``:
    the names in the command.

    Raises `InvalidOption`, `SqlError`.
    """
    schema = Schema(sample.schema)
    queries = [condition for text in workload for condition in conditions(text, schema)]
    columns = _filtered_columns(queries, schema)
    if not columns:
        raise InvalidOption("No query of the workload filters on a column of the table that can be ordered.")
    order = np.random.default_rng(0).permutation(sample.num_rows)
    half = max(1, sample.num_rows // 2)
    fitting, scoring = sample.take(pa.array(order[:half])), sample.take(pa.array(order[half:]))
    scoring = scoring if scoring.num_rows else fitting
    found: list[tuple[Candidate, Assignment, float]] = []
    for by in dict.fromkeys(tuple(columns[:count]) for count in range(1, min(len(columns), _MOST_COLUMNS) + 1)):
        for layout in candidates:
            started = time.perf_counter()
            assignment = layouts.fit(
                fitting, by, layout=layout, files=files, workload=workload, total_rows=max(total_rows, half)
            )
            seconds = time.perf_counter() - started
            score = layouts.score(scoring, assignment, by, workload=workload)
            candidate = Candidate(layout, by, *_read(score))
            found.append((candidate, assignment, seconds))
    found.sort(key=lambda each: (each[0].read, len(each[0].by)))
    best, assignment, fit_seconds = found[0]
    now, now_queries = None, None
    if today is not None:
        kept = today[order[half:]] if sample.num_rows > half else today
        now, now_queries = _read(layouts.score(scoring, kept, columns[:1], workload=workload))
    least, least_queries = _read(layouts.score(sample, np.arange(sample.num_rows), columns[:1], workload=workload))
    sketches = worth_sketching(sample, queries, best.queries, files, max(total_rows, sample.num_rows))
    command = f"zskip write {shlex.quote(source)} {shlex.quote(target)} --by {shlex.quote(','.join(best.by))}"
    command += f" --layout {best.layout} --files {files} --workload {shlex.quote(workload_file)}"
    if sketches:
        named = ",".join(f"{each.name.column}={each.name.kind}" for each in sketches)
        command += f" --sketch {shlex.quote(named)}"
    return Advice(
        tuple(queries),
        files,
        tuple(candidate for candidate, _, _ in found),
        now,
        now_queries,
        least,
        least_queries,
        # Rows are read twice: for the sample, and to be written.
        2 * read_seconds + fit_seconds + seconds_to_write(sample, assignment, total_rows),
        command,
        sketches,
    )


def _read(score: Score) -> tuple[float, tuple[float, ...]]:
    """The share of bytes that the workload reads, and that of each query."""
    queries = tuple(share.bytes for share in score.queries)
    return float(np.dot(score.weights, queries)), queries


def _duration(seconds: float) -> str:
    """
    >>> _duration(0.2), _duration(42.3), _duration(1260), _duration(9000)
    ('1 s', '42 s', '21 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _filtered_columns(queries: Sequence[str], schema: Schema) -> list[str]:
    """The orderable columns that the queries filter on, the most frequent first."""
    counts: dict[str, int] = {}
    for query in queries:
        for path in sorted(bind(query, schema).columns):
            if schema.columns[path].orderable:
                counts[path] = counts.get(path, 0) + 1
    return sorted(counts, key=lambda path: -counts[path])
