"""Planning at scale: a two-column equality over tables of a thousand to ten million files.

    python benchmarks/planning.py /tmp/bench --files 1000 10000 100000 1000000 [--peers]

The statistics are made up (a clustered grid of boxes, one row group a file) and committed as they would be by a
catalog, so that no data file is needed. Each size is opened and planned in a fresh process, after imports. Peers
(deltalake, pyiceberg) plan the same boxes where ``--peers`` is given, each size for at most a minute.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.plan import plan
from zskip.predicate import bind
from zskip.schema import Schema
from zskip.sidecar import Index, commit, load, open_storage
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics

BLOCK = 64
"""Files stand in square blocks, as a layout that clusters by two columns orders them."""
WIDTH = 1000
"""The values of each column that one file covers."""
COLUMNS = ("src", "dst", "bytes", "ts")
RUNS = 31


def grid(files: int) -> tuple[np.ndarray, np.ndarray]:
    """The place of each file in the plane of the first two columns."""
    number = np.arange(files)
    blocks = max(round(files**0.5) // BLOCK, 1)
    block, inner = np.divmod(number, BLOCK * BLOCK)
    return (block % blocks) * BLOCK + inner % BLOCK, (block // blocks) * BLOCK + inner // BLOCK


def boxes(files: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The lower and upper bounds of each column, per file."""
    x, y = grid(files)
    number = np.arange(files)
    lowers = dict(zip(COLUMNS, (x * WIDTH, y * WIDTH, number % 997, number // 7), strict=True))
    return {name: (lower.astype(np.int64), lower.astype(np.int64) + WIDTH - 1) for name, lower in lowers.items()}


def make(folder: Path, files: int) -> None:
    """Commit the statistics of a table of so many files."""
    exact, none = pa.array(np.ones(files, bool)), pa.array(np.zeros(files, np.int64))
    columns = {
        name: ColumnStatistics(pa.array(lower), pa.array(upper), none, none, exact, exact)
        for name, (lower, upper) in boxes(files).items()
    }
    units = FileStatistics(pa.array(np.full(files, 100_000)), columns)
    names = pc.binary_join_element_wise("part-", pa.array(np.arange(files)).cast(pa.string()), ".parquet", "")
    unknown = pa.nulls(files, pa.int64())
    sizes = pa.array(np.full(files, 10_000_000))
    data = DataFiles(names, sizes, unknown, pa.nulls(files, pa.string()), units, units, np.arange(files + 1))
    folder.mkdir(parents=True)
    schema = Schema(pa.schema({name: pa.int64() for name in COLUMNS}))
    details = {"source": "statistics"}
    commit(open_storage(str(folder)), None, "index", add=data, schema=schema, managed=False, details=details)


def question(files: int, seed: int) -> str:
    """A look-up on two columns that hits one file."""
    x, y = grid(files)
    chosen = np.random.default_rng(seed).integers(files)
    return f"src = {x[chosen] * WIDTH + 7} AND dst = {y[chosen] * WIDTH + 7}"


def measure(folder: Path, files: int) -> dict[str, float]:
    """Milliseconds of the first plan in this process, opening included, and of later ones; the peak of memory."""
    bind("a = 1", Schema(pa.schema({"a": pa.int64()})))
    first = question(files, 0)
    later = [question(files, seed) for seed in range(1, RUNS + 1)]
    start = time.perf_counter()
    storage = open_storage(str(folder))
    index = Index(storage, load(storage))
    found = plan(index, bind(first, index.snapshot.schema)).paths
    cold = time.perf_counter() - start
    assert len(found) == 1, found
    seconds = []
    for text in later:
        start = time.perf_counter()
        found = plan(index, bind(text, index.snapshot.schema)).paths
        seconds.append(time.perf_counter() - start)
        assert len(found) == 1, found
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cold ms": cold * 1e3, "warm ms": statistics.median(seconds) * 1e3, "peak MB": peak}


def deltalake(folder: Path, files: int) -> dict[str, float]:
    """The same boxes in a Delta log, opened and filtered by deltalake."""
    from deltalake import DeltaTable

    log = folder / "_delta_log"
    if not log.exists():
        log.mkdir(parents=True)
        fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in COLUMNS]
        schema = json.dumps({"type": "struct", "fields": fields})
        head = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": {"id": "b", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                          "partitionColumns": [], "configuration": {}, "createdTime": 0}},
        ]  # fmt: skip
        found = boxes(files)
        with (log / f"{0:020d}.json").open("w") as out:
            out.writelines(json.dumps(action) + "\n" for action in head)
            for number in range(files):
                stats = {
                    "numRecords": 100_000,
                    "minValues": {name: int(lower[number]) for name, (lower, _) in found.items()},
                    "maxValues": {name: int(upper[number]) for name, (_, upper) in found.items()},
                    "nullCount": dict.fromkeys(COLUMNS, 0),
                }
                add = {"path": f"part-{number}.parquet", "partitionValues": {}, "size": 10_000_000,
                       "modificationTime": 0, "dataChange": True, "stats": json.dumps(stats)}  # fmt: skip
                out.write(json.dumps({"add": add}) + "\n")
    x, y = grid(files)
    wanted = (pc.field("src") == int(x[-1]) * WIDTH + 7) & (pc.field("dst") == int(y[-1]) * WIDTH + 7)
    start = time.perf_counter()
    dataset = DeltaTable(str(folder)).to_pyarrow_dataset()
    found_files = len(list(dataset.get_fragments(filter=wanted)))
    cold = time.perf_counter() - start
    start = time.perf_counter()
    list(dataset.get_fragments(filter=wanted))
    warm = time.perf_counter() - start
    assert found_files == 1, found_files
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cold ms": cold * 1e3, "warm ms": warm * 1e3, "peak MB": peak}


WAYS = {"zskip": measure, "deltalake": deltalake}


def in_fresh_process(way: str, folder: Path, files: int, seconds: int) -> dict[str, float] | None:
    """One measurement alone in a process; None where it takes longer than it may."""
    command = [sys.executable, __file__, str(folder), "--only", way, "--files", str(files)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the tables are made, and kept for the next run")
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--peers", action="store_true", help="plan with deltalake too")
    parser.add_argument("--only", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(WAYS[given.only](given.folder, given.files[0])))
        return
    print(f"{'files':>12} {'way':<10} {'cold ms':>10} {'warm ms':>10} {'peak MB':>9}")
    for files in given.files:
        folder = given.folder / f"zskip-{files}"
        if not folder.exists():
            make(folder, files)
        own = in_fresh_process("zskip", folder, files, 600)
        assert own is not None
        print(f"{files:>12,} {'zskip':<10} {own['cold ms']:>10.1f} {own['warm ms']:>10.2f} {own['peak MB']:>9.0f}")
        if given.peers:
            peer = in_fresh_process("deltalake", given.folder / f"delta-{files}", files, 90)
            if peer is None:
                print(f"{files:>12,} {'deltalake':<10} {'more than 90 s, its log included':>20}")
                continue
            ratios = [f"{peer[name] / own[name]:.0f}×" for name in ("cold ms", "warm ms")]
            print(
                f"{files:>12,} {'deltalake':<10} {peer['cold ms']:>10.1f} {peer['warm ms']:>10.2f} "
                f"{peer['peak MB']:>9.0f}   zskip is {ratios[0]} faster cold, {ratios[1]} warm"
            )


if __name__ == "__main__":
    main()
