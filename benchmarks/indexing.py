"""Indexing existing files in place, against a loop over pyarrow's read_metadata.

python benchmarks/indexing.py /tmp/bench --files 10000
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zskip


def make(folder: Path, files: int) -> None:
    """Small files of four columns, as someone else wrote them."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    for number in range(files):
        rows = {name: random.integers(0, 1 << 30, 100) for name in ("a", "b", "c", "d")}
        pq.write_table(pa.table(rows), folder / f"{number:06d}.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the files are made, and kept for the next run")
    parser.add_argument("--files", type=int, default=10_000)
    given = parser.parse_args()
    folder = given.folder / f"indexing-{given.files}"
    if not folder.exists():
        make(folder, given.files)
    start = time.perf_counter()
    for path in sorted(folder.glob("*.parquet")):
        pq.read_metadata(path)
    loop = time.perf_counter() - start
    shutil.rmtree(folder / "_zskip", ignore_errors=True)
    start = time.perf_counter()
    zskip.index(str(folder))
    own = time.perf_counter() - start
    print(
        f"{given.files:,} files: zskip.index {own:.2f} s ({given.files / own:,.0f} files/s), "
        f"loop over read_metadata {loop:.2f} s: {loop / own:.1f}×"
    )


if __name__ == "__main__":
    main()
