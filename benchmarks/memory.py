"""Peak memory of the verbs that rewrite rows, beside their `memory_limit`.

    python benchmarks/memory.py /tmp/bench [--limit 100MB]

Each verb runs in a process of its own over tables several times as large as the limit: one whose keys are skewed, one
of texts of a megabyte. Printed is the most memory that the process ever held, less what it held before the verb, in MB
and as a multiple of the limit. Linux tells that peak.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from targets import at_most

import zskip
from zskip.core.option_checks import bytes_of

# Of the limit: row groups that are being read and encoded come on top of it, and what the allocator keeps.
MOST = 2.5
# A stream can be read once: its rows are spilled by key while it is read, and then lie beside those of the files.
MOST_OF_A_STREAM = 3.5


def skewed(folder: Path) -> None:
    """Four million rows; nine in ten have one key."""
    random = np.random.default_rng(1)
    for number in range(8):
        rows = 500_000
        key = np.where(random.random(rows) < 0.9, 7, random.zipf(1.3, rows) % 100_000)
        texts = pa.array(random.integers(0, 1 << 62, rows)).cast(pa.string())
        table = pa.table(
            {
                "key": key,
                "at": random.integers(0, 1 << 40, rows),
                "id": np.arange(number * rows, (number + 1) * rows),
                "text": texts,
            }
        )
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=100_000)


def long_texts(folder: Path) -> None:
    """Six hundred texts of a megabyte that compress to little."""
    random = np.random.default_rng(2)
    for number in range(6):
        texts = [bytes(random.integers(97, 101, 1_000_000, dtype=np.uint8)).decode() for _ in range(100)]
        values = {"key": random.integers(0, 50, 100), "at": random.integers(0, 1 << 40, 100)}
        table = pa.table({**values, "id": np.arange(100 * number, 100 * number + 100), "text": texts})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=20)


TABLES = {"skewed keys": skewed, "texts of 1 MB": long_texts}


def write(folder: Path, limit: str) -> None:
    zskip.write(f"{folder}/*.parquet", str(folder / "table"), by=["key", "at"], files=24, memory_limit=limit)


def optimize(folder: Path, limit: str) -> None:
    zskip.open(str(folder / "table")).optimize(full=True, memory_limit=limit)


def delete(folder: Path, limit: str) -> None:
    zskip.open(str(folder / "table")).delete("at % 2 = 0", memory_limit=limit)


def upsert(folder: Path, limit: str) -> None:
    """All rows again, from files, which can be read more than once."""
    zskip.open(str(folder / "table")).upsert(f"{folder}/*.parquet", on="id", memory_limit=limit)


def upsert_stream(folder: Path, limit: str) -> None:
    """All rows again, from a stream, which can be read once."""
    files = [pq.ParquetFile(path) for path in sorted(folder.glob("*.parquet"))]
    groups = (file.read_row_group(number) for file in files for number in range(file.num_row_groups))
    batches = (batch for group in groups for batch in group.to_batches())
    stream = pa.RecordBatchReader.from_batches(files[0].schema_arrow, batches)
    zskip.open(str(folder / "table")).upsert(stream, on="id", memory_limit=limit)


VERBS = {
    "write": write,
    "optimize": optimize,
    "upsert of files": upsert,
    "upsert of a stream": upsert_stream,
    "delete": delete,
}


def measured(verb: str, folder: Path, limit: str) -> int:
    """The peak of one verb over what its process held before, in bytes."""
    found = subprocess.run(
        [sys.executable, __file__, str(folder), "--limit", limit, "--verb", verb],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(found.stdout)


def run(verb: str, folder: Path, limit: str) -> None:
    """One verb in this process; prints its peak."""
    zskip.write(pa.table({"x": [1, 2]}), str(folder / f"warm-{verb}"), by=["x"], mode="overwrite").delete("x = 1")
    before = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    VERBS[verb](folder, limit)
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(max(0, int(peak) * 1024 - before))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the tables are made, and removed again")
    parser.add_argument("--limit", default="100MB")
    parser.add_argument("--verb", choices=VERBS, help="run one verb in this process and print its peak in bytes")
    given = parser.parse_args()
    if given.verb:
        run(given.verb, given.folder, given.limit)
        return
    limit = bytes_of(given.limit, "limit")
    for name, make in TABLES.items():
        folder = given.folder / f"memory-{name.replace(' ', '-')}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        for verb in VERBS:
            peak = measured(verb, folder, given.limit)
            print(f"{name:<14} {verb:<19} {peak / 1e6:6.0f} MB over its start, {peak / limit:.1f} times the limit")
            most = MOST_OF_A_STREAM if verb == "upsert of a stream" else MOST
            at_most(most, peak / limit, f"memory of {verb}, {name}", " times the limit")
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
