"""How long fitting takes, and how many rows a second a core assigns to files: the processor's seconds, not the clock's.

    python benchmarks/layout_speed.py CACHE [--files 100 1000 10000] [--layouts tiles tree]

CACHE as for benchmarks/layouts.py. Each layout is fitted on 100 to 400 rows a file, at most a million, as a write does,
and assigns a million rows by four columns.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from layout_cases import CASES

from zskip import layouts

SAMPLED_PER_FILE, LARGEST_SAMPLE = 400, 1_000_000
ROUNDS = 3


def assigning(assignment: layouts.Assignment, rows: pa.Table) -> float:
    """The seconds that it takes to number the rows by file."""
    started = time.process_time()
    assignment.assign(rows)
    return time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--files", nargs="*", type=int, default=[100, 1000, 10_000])
    parser.add_argument("--layouts", nargs="*", choices=list(layouts.LAYOUTS), default=["tiles", "tree", "hilbert"])
    parser.add_argument("--case", nargs="*", choices=list(CASES), default=["conn4", "lineitem", "zeek"])
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    print("| case | files | layout | rows of the sample | fit, s | million rows a second and core |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in options.case:
        case = replace(CASES[name], rows=LARGEST_SAMPLE)
        rows = case.rows_of(options.cache, case, 0).slice(0, LARGEST_SAMPLE).combine_chunks()
        for files in options.files:
            sample = rows.slice(0, files * SAMPLED_PER_FILE)
            for layout in options.layouts:
                started = time.process_time()
                fitted = layouts.fit(sample, case.by, layout=layout, files=files, total_rows=files * 10**6)
                fit = time.process_time() - started
                fitted.assign(rows.slice(0, 1))  # its tables are made once
                assign = min(assigning(fitted, rows) for _ in range(ROUNDS))
                print(
                    f"| {name} | {files} | {layout} | {len(sample):,} | {fit:.2f} | {len(rows) / assign / 1e6:.1f} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
