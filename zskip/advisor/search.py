"""`advise`: fit candidate layouts to one half of a sample, and rank them by the bytes read from the other half."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.advisor.advice import Advice, Candidate, compared, grouped
from zskip.core import types as t
from zskip.core.option_checks import Progress
from zskip.core.schema import Schema, join_names
from zskip.engines.arrow import importable_leaf
from zskip.errors import InvalidOption, amount
from zskip.layouts import Assignment
from zskip.layouts.fitting import BoundQuery, Task, bound_queries, fitted, query_bytes, random_subset, task_of
from zskip.storage import Staged, open_storage
from zskip.writer.open_source import open_source
from zskip.writer.options import WriteOptions
from zskip.writer.routing import Routing
from zskip.writer.sketch_advice import SketchAdvice, reads_with_values, worth_sketching
from zskip.writer.star import Join
from zskip.writer.storable import storable_schema
from zskip.writer.write import write_files

Floats: TypeAlias = NDArray[np.float64]
Weigh = Literal["bytes", "queries"]

_MOST_COLUMNS, _MOST_COMBINED, _REFINED = 6, 4, 2
_MUCH_LESS = 0.8
_MOST_QUERIES, _MOST_FITTED = 1000, 200


def advise(
    sample: pa.Table,
    workload: Sequence[str],
    *,
    files: int,
    total_rows: int,
    today: NDArray[np.int64] | None = None,
    kept: Callable[[Sequence[str]], Floats] | None = None,
    candidates: Sequence[str] = ("tiles", "tree", "hilbert", "linear"),
    weigh: Weigh = "bytes",
    read_seconds: float = 0.0,
    source: str = "SOURCE",
    target: str = "TARGET",
    workload_file: str = "QUERIES.SQL",
    joins: Sequence[Join] = (),
    version: int | None = None,
    progress: Progress | None = None,
) -> Advice:
    """Rank layouts and column sets for a workload of predicates or SELECT statements.

    ``sample``: rows of the table, a few hundred per file · ``today``: the current file of each sampled row · ``kept``:
    the share of the table's rows in the files that plans of conditions keep today, NaN where that is unknown: a sample
    lacks the least and the greatest values of files · ``files``: the number of files of the new table ·
    ``candidates``: layouts; the first is tried with many sets of columns, the others with the best of these sets.
    Layouts are fitted to half of the sample and scored on the other half, which avoids overfitting · ``weigh``: "bytes"
    weighs a query by the bytes of a row that it reads, "queries" weighs all equally · ``read_seconds``: the time to
    read all rows once · ``source``, ``target``, ``workload_file``: the names in the commands; ``joins``: the dimensions
    that the rows of the sample are joined with, likewise; ``version``: that of a source that is laid out in place ·
    ``progress``: called with "candidates", the number tried, and the total.

    Of more than 1,000 queries a random selection is used. Raises `InvalidOption`, `SqlError`.
    """
    rows = max(total_rows, sample.num_rows)
    _require_valid(workload, weigh, files, rows)
    schema = Schema(sample.schema)
    queries = random_subset(bound_queries(random_subset(workload, _MOST_QUERIES), schema), _MOST_QUERIES)
    columns = _filtered_columns(queries, schema)[:_MOST_COLUMNS]
    if not columns:
        raise InvalidOption("No query of the workload filters on a column of the table that can be ordered.")
    trial = _Trial.of(sample, queries, columns, files=files, total_rows=total_rows, weigh=weigh)
    conditions = [each.query.condition for each in queries]
    by_sketch = np.array(reads_with_values(sample, conditions, files, rows))
    found = list(_tried(trial, _pools(queries, columns, by_sketch, schema), candidates, progress))
    now = None if today is None else trial.read(np.unique(trial.held_out(today), return_inverse=True)[1])
    if now is not None and kept is not None:
        planned = kept(conditions)
        # Of a plan that keeps nothing, similar queries tell more. What a plan keeps is in one new file at least.
        now = np.where(planned > 0, planned, now)
        found = [(trial.reading(each, (planned > 0) / files), fit, seconds) for each, fit, seconds in found]
    least = trial.least()
    ranked = sorted(found, key=lambda each: (each[0].read, len(each[0].by)))
    best, assignment, fit_seconds = ranked[0]
    weights = tuple(trial.weights.tolist())
    groups = grouped(conditions, weights, best.queries, None if now is None else now.tolist(), least.tolist())
    members = [np.array(group.numbers) for group in groups]
    sketched = _with_sketches([each for each, _, _ in ranked], by_sketch, now, trial.weights, members)
    served = best if sketched is None else next(each for each, _, _ in ranked if _same(each, sketched))
    sketches = worth_sketching(sample, conditions, served.queries, files, rows)
    names = (source, target, workload_file, "".join(f" --join {shlex.quote(_as_option(join))}" for join in joins))
    is_table = today is not None
    command, bench = _commands(best, files, () if sketched is not None else sketches, *names, version, is_table)
    return Advice(
        tuple(conditions),
        weights,
        weigh,
        files,
        tuple(replace(each, worse=_worse(each, now, trial.weights, members)) for each, _, _ in ranked),
        None if now is None else float(trial.weights @ now),
        None if now is None else tuple(now.tolist()),
        float(trial.weights @ least),
        tuple(least.tolist()),
        groups,
        # Rows are read twice: for the sample, and to be written.
        2 * read_seconds + fit_seconds + seconds_to_write(sample, assignment, total_rows),
        command,
        bench,
        sketches,
        sketched,
        None if sketched is None else _commands(sketched, files, sketches, *names, version, is_table)[0],
        len(workload) if len(workload) > _MOST_QUERIES else None,
    )


def _require_valid(workload: Sequence[str], weigh: str, files: int, rows: int) -> None:
    if weigh not in ("bytes", "queries"):
        raise InvalidOption(f'weigh= is "bytes" or "queries", not {weigh!r}.')
    if not workload:
        raise InvalidOption(
            "The workload has no query: give predicates or SELECT statements, separated by lines or `;`."
        )
    if files > rows:
        raise InvalidOption(f"files={files:,} is more than the {amount(rows, 'row')}: a file holds at least one.")


def _pools(
    queries: Sequence[BoundQuery], columns: Sequence[str], by_sketch: Floats, schema: Schema
) -> list[tuple[Sequence[str], Floats]]:
    """The columns to choose from, as `_tried` takes them: all, and those of the queries that no sketch serves."""
    pools: list[tuple[Sequence[str], Floats]] = [(columns, np.ones(len(queries)))]
    if (by_sketch < 1).any():
        unserved = _filtered_columns([each for each, read in zip(queries, by_sketch, strict=True) if read >= 1], schema)
        pools.append(([column for column in columns if column in unserved], by_sketch))
    return pools


def _commands(
    best: Candidate,
    files: int,
    sketches: Sequence[SketchAdvice],
    source: str,
    target: str,
    workload_file: str,
    joins: str,
    version: int | None,
    is_table: bool,
) -> tuple[str, str]:
    """The command line that writes the best candidate, and the command line that measures the gain afterwards, if any.

    ``joins``: the options for the dimensions · ``is_table``: the source is a zskip table, to which the measurement
    compares the new one.
    """
    source, target, workload = (shlex.quote(each) for each in (source, target, workload_file))
    layout = f"--by {shlex.quote(join_names(best.by))} --layout {best.layout} --files {files} --workload {workload}"
    if version is not None and not joins:  # `cluster` joins no dimensions
        return (
            f"zskip cluster {source} {layout} --full",
            f"zskip bench {source} --queries {workload} --before-version {version}",
        )
    if sketches:
        named = ",".join(f"{join_names([each.name.column])}={each.name.kind}" for each in sketches)
        layout += f" --sketch {shlex.quote(named)}"
    before = f" --before {source}" if is_table else ""
    # `bench` reads tables by their paths, and a workload names its dimensions as the joins do.
    return f"zskip write {source} {target} {layout}{joins}", (
        "" if joins else f"zskip bench {target} --queries {workload}{before}"
    )


def _as_option(join: Join) -> str:
    """A dimension as ``--join`` takes it; rows that are in no table have no name there."""
    source = os.fspath(join.source) if isinstance(join.source, str | os.PathLike) else "DIMENSION"
    return f"{join.name}={source}:{','.join(f'{column}={key}' for column, key in join.keys)}"


class _Trial:
    """The two halves of a sample: layouts are fitted to the first and scored on the second.

    The queries and the codes of the columns are evaluated once for each half, and shared by all candidates.
    """

    def __init__(
        self,
        order: NDArray[np.int64],
        fitting: Task,
        rows: pa.Table,
        scoring: Task,
        conditions: Sequence[str],
        weigh: Weigh,
    ) -> None:
        self._order, self._fitting, self._rows, self._scoring = order, fitting, rows, scoring
        self._conditions = conditions
        weights = scoring.widths.weights
        self.weights: Floats = weights if weigh == "bytes" else np.full(len(weights), 1 / len(weights))

    @staticmethod
    def of(
        sample: pa.Table,
        queries: Sequence[BoundQuery],
        columns: Sequence[str],
        *,
        files: int,
        total_rows: int,
        weigh: Weigh,
    ) -> _Trial:
        order = np.random.default_rng(0).permutation(sample.num_rows)
        half = max(1, sample.num_rows // 2)
        parts = [order[:half], order[half:] if sample.num_rows > half else order]
        fitting, scoring = (sample.take(pa.array(part)) for part in parts)
        tasks = [
            task_of(
                rows,
                columns,
                files=files,
                weights=None,
                workload=queries,
                total_rows=max(total_rows, half),
                most_queries=most,
            )
            for rows, most in ((fitting, _MOST_FITTED), (scoring, None))
        ]
        conditions = [each.query.condition for each in queries]
        return _Trial(parts[1], tasks[0], scoring, tasks[1], conditions, weigh)

    def fitted(self, layout: str, by: Sequence[str]) -> Assignment:
        """A layout of the first half, clustered by these columns."""
        return fitted(self._fitting.clustered_by(by), layout)

    def read_by(self, assignment: Assignment) -> Floats:
        """The share of the second half's bytes that each query reads with a layout."""
        return self.read(assignment.assign(self._rows))

    def reading(self, candidate: Candidate, least: Floats) -> Candidate:
        """A candidate with which each query reads at least this share."""
        read = np.maximum(candidate.queries, least)
        return replace(candidate, read=float(self.weights @ read), queries=tuple(read.tolist()))

    def held_out(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The entries of ``numbers`` for the rows of the second half."""
        return numbers[self._order]

    def read(self, number: NDArray[np.int64]) -> Floats:
        """The share of bytes that each query reads, if ``number`` is the file of each row of the second half."""
        return query_bytes(self._scoring, number, int(number.max(initial=0)) + 1)

    def least(self) -> Floats:
        """The share of bytes that each query returns."""
        rows = self._scoring.sample.rows
        least = query_bytes(self._scoring, np.arange(rows), rows, similar=False)
        with duckdb.connect(config={"enable_external_access": False}) as session:
            types = [field.with_type(t.with_leaves(field.type, importable_leaf)) for field in self._rows.schema]
            session.register("sampled", self._rows.cast(pa.schema(types)))
            for number, condition in enumerate(self._conditions):
                try:
                    found = session.sql(f"SELECT ({condition}\n) IS TRUE AS holds FROM sampled").to_arrow_table()
                except duckdb.Error:
                    continue  # such a condition is only bounded, by the values of each row
                unit = found["holds"].to_numpy().astype(np.int64)
                read = self._scoring.widths.by_query(unit, 2)[number]
                least[number] = read[1] / max(read.sum(), 1e-300)
        return least


def _tried(
    trial: _Trial,
    pools: Sequence[tuple[Sequence[str], Floats]],
    names: Sequence[str],
    progress: Progress | None,
) -> Iterator[tuple[Candidate, Assignment, float]]:
    """The candidates: the first layout with many sets of columns, the others with the best of these sets.

    ``pools``: columns from which sets are grown, each time by the column that helps most; and the share that each query
    reads at most, regardless of the layout. A tree cuts the columns that the workload filters on, whichever columns it
    is given, so one set is enough for it.
    """
    sets = {name: 1 if name in ("tree", "auto") else _REFINED for name in names[1:]}
    sizes = [range(len(pool) - min(len(pool), _MOST_COMBINED) + 1, len(pool) + 1) for pool, _ in pools]
    total, done = sum(sets.values()) + sum(map(sum, sizes)), 0
    found: dict[tuple[str, ...], tuple[Candidate, Assignment, float]] = {}

    def tried(layout: str, by: tuple[str, ...]) -> tuple[Candidate, Assignment, float]:
        nonlocal done
        started = time.perf_counter()
        assignment = trial.fitted(layout, by)
        seconds = time.perf_counter() - started
        read = trial.read_by(assignment)
        done += 1
        if progress is not None:
            progress("candidates", done, total)
        return Candidate(layout, by, float(trial.weights @ read), tuple(read.tolist())), assignment, seconds

    def cost(by: tuple[str, ...], most: Floats) -> float:
        return float(trial.weights @ np.minimum(found[by][0].queries, most))

    for pool, most in pools:
        base: tuple[str, ...] = ()
        for _ in range(min(len(pool), _MOST_COMBINED)):
            larger = [tuple(c for c in pool if c in (*base, more)) for more in pool if more not in base]
            for by in larger:
                if by not in found:
                    found[by] = tried(names[0], by)
            costs = [cost(by, most) for by in larger]
            base = larger[int(np.argmin(costs))]
    yield from found.values()
    best = sorted(found, key=lambda by: (found[by][0].read, len(by)))
    for layout, count in sets.items():
        yield from [tried(layout, by) for by in best[:count]]
    if progress is not None:
        progress("candidates", total, total)


def _same(one: Candidate, other: Candidate) -> bool:
    return (one.layout, one.by) == (other.layout, other.by)


def _with_sketches(
    ranked: Sequence[Candidate],
    by_sketch: Floats,
    today: Floats | None,
    weights: Floats,
    groups: Sequence[NDArray[np.int64]],
) -> Candidate | None:
    """The best candidate if sketches serve the look-ups; None if it is the same one, or less than a fifth better.

    With sketches for the look-ups, a layout is free to serve the other queries.
    """
    both = [np.minimum(each.queries, by_sketch) for each in ranked]
    number = int(np.argmin([weights @ read for read in both]))
    read = float(weights @ both[number])
    if number == 0 or read > _MUCH_LESS * ranked[0].read:
        return None
    found = replace(ranked[number], read=read, queries=tuple(both[number].tolist()))
    return replace(found, worse=_worse(found, today, weights, groups))


def _worse(candidate: Candidate, today: Floats | None, weights: Floats, groups: Sequence[NDArray[np.int64]]) -> int:
    """The number of query groups that read more than today."""
    if today is None:
        return 0
    read = np.array(candidate.queries)
    return sum(
        compared(float(weights[some] @ read[some]), float(weights[some] @ today[some])) == "worse" for some in groups
    )


def _filtered_columns(queries: Sequence[BoundQuery], schema: Schema) -> list[str]:
    """The orderable columns that the queries filter on, the most frequent first."""
    counts: dict[str, int] = {}
    for query in queries:
        for path in sorted(query.predicate.columns):
            if schema.columns[path].orderable:
                counts[path] = counts.get(path, 0) + 1
    return sorted(counts, key=lambda path: -counts[path])


# --- the time of a write ---

_MOST_WRITTEN = 160_000


def seconds_to_write(sample: pa.Table, assignment: Assignment, total_rows: int) -> float:
    """An estimate of the seconds to write ``total_rows`` rows like the sample on this machine, without reading them.

    It writes the sample to a temporary folder, then several copies of it, until that takes twice as long. The
    difference is the cost of rows; the rest is the fixed cost of files.
    """
    rows = sample
    short = long = _seconds(rows, assignment)
    while long < 2 * short and 0 < rows.num_rows < min(total_rows, _MOST_WRITTEN):
        rows = pa.concat_tables([rows] * 4)
        long = _seconds(rows, assignment)
    per_row = (long - short) / max(1, rows.num_rows - sample.num_rows)
    return float(max(0.0, short + per_row * (total_rows - sample.num_rows)))


def _seconds(rows: pa.Table, assignment: Assignment) -> float:
    """The seconds that writing some rows takes."""
    routing, schema = Routing((), ((),), (assignment,)), Schema(storable_schema(rows.schema))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        storage = open_storage(folder)
        staged = Staged(storage.delete)
        write_files(open_source(rows, None), storage, schema, WriteOptions(), None, staged, routing=routing)
        return time.perf_counter() - started
