"""Indexing existing files in place, against a loop over pyarrow's read_metadata.

    python benchmarks/indexing.py /tmp/bench --files 10000 [--columns 16] [--row-groups 1]

Both are run in turn, several times, over the same files; medians are printed with the least and the greatest, in
seconds and in processor time, which counts less what else the machine does. The loop reads the footers and no more: it
gathers no statistics.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from spread import spread
from targets import at_least

import zskip

ROWS = 100


def make(folder: Path, files: int, columns: int, row_groups: int) -> None:
    """Small files of whole numbers, floats, texts and times, as someone else wrote them."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    for number in range(files):
        rows = pa.table({f"c{place}": column(random, place) for place in range(columns)})
        pq.write_table(rows, folder / f"{number:06d}.parquet", row_group_size=-(-ROWS // row_groups))


def column(random: np.random.Generator, place: int) -> pa.Array:
    numbers = random.integers(0, 1 << 30, ROWS)
    made = (
        lambda: pa.array(numbers),
        lambda: pa.array(numbers / 7),
        lambda: pa.array(numbers).cast(pa.string()),
        lambda: pa.array(numbers).cast(pa.timestamp("us")),
    )
    return made[place % len(made)]()


def read_footers(folder: Path) -> None:
    for path in sorted(folder.glob("*.parquet")):
        pq.read_metadata(path)


def index(folder: Path) -> None:
    zskip.index(str(folder))


def timed(work: Callable[[Path], None], folder: Path) -> tuple[float, float]:
    """Seconds, and seconds of the processor, over all threads."""
    shutil.rmtree(folder / "_zskip", ignore_errors=True)
    wall, processor = time.perf_counter(), time.process_time()
    work(folder)
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the files are made, and kept for the next run")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=4)
    parser.add_argument("--row-groups", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    folder = given.folder / f"indexing-{given.files}-{given.columns}-{given.row_groups}"
    if not folder.exists():
        make(folder, given.files, given.columns, given.row_groups)
    for module in ("zskip.table", "pandas"):  # pyarrow loads pandas, where there is one, when it first sees an array
        importlib.import_module(module)
    pairs = [(timed(read_footers, folder), timed(index, folder)) for _ in range(given.runs)]
    print(f"{given.files:,} files of {given.columns} columns and {given.row_groups} row groups, {given.runs} runs")
    for kind, place in (("elapsed", 0), ("processor", 1)):
        loop, own = ([pair[way][place] for pair in pairs] for way in (0, 1))
        ratios = [pair[0][place] / pair[1][place] for pair in pairs]
        print(
            f"{kind:<10} zskip.index {spread(own, ' s')}, {given.files / statistics.median(own):,.0f} files/s; "
            f"loop over read_metadata {spread(loop, ' s')}: {spread(ratios, 'x')}"
        )
        at_least(
            4,
            statistics.median(ratios),
            f"index {given.files:,} files, faster than a loop over read_metadata, {kind}",
            " times",
        )


if __name__ == "__main__":
    main()
