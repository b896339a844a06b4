"""Planning at scale: a two-column equality over tables of a thousand to ten million files.

    python benchmarks/planning.py /tmp/bench --files 1000 10000 100000 1000000 [--peers]

The statistics are made up (a clustered grid of boxes, one row group a file; with ``--random`` boxes that are not
clustered by anything) and committed as they would be by a catalog, so that no data file is needed. Each size is
opened and planned in a fresh process, after imports. Peers (deltalake, pyiceberg) plan the same boxes where ``--peers``
is given, as far as they go within ninety seconds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from peers import PEERS
from spread import spread
from targets import at_least, at_most

from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.plan.planner import plan
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics
from zskip.storage import open_storage
from zskip.tablelog.commit import TableUpdate, commit
from zskip.tablelog.index import Index
from zskip.tablelog.log import load

BLOCK = 64
"""Files stand in square blocks, as a layout that clusters by two columns orders them."""
WIDTH = 1000
"""The values of each column that one file covers."""
COLUMNS = ("src", "dst", "bytes", "ts")
RUNS = 31
PROCESSES = 9
"""zskip's figures are medians of so many fresh processes; a peer's are of one, and take longer than their noise."""
PEER_SECONDS = 90


def grid(files: int, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of these of so many files in the plane of the first two columns."""
    blocks = max(round(files**0.5) // BLOCK, 1)
    block, inner = np.divmod(number, BLOCK * BLOCK)
    return (block % blocks) * BLOCK + inner % BLOCK, (block // blocks) * BLOCK + inner // BLOCK


def boxes(files: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The lower and upper bounds of each column, per file."""
    number = np.arange(files)
    x, y = grid(files, number)
    lowers = dict(zip(COLUMNS, (x * WIDTH, y * WIDTH, number % 997, number // 7), strict=True))
    return {name: (lower.astype(np.int64), lower.astype(np.int64) + WIDTH - 1) for name, lower in lowers.items()}


def random_boxes(files: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Bounds that no layout orders: every shard holds values from everywhere."""
    generator = np.random.default_rng(files)
    found = {}
    for name in COLUMNS:
        lower = generator.integers(0, files * WIDTH, files)
        found[name] = (lower, lower + generator.integers(0, 10 * WIDTH, files))
    return found


def make(folder: Path, files: int, bounds: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Commit the statistics of a table of so many files."""
    exact, none = pa.array(np.ones(files, bool)), pa.array(np.zeros(files, np.int64))
    columns = {
        name: ColumnStatistics(pa.array(lower), pa.array(upper), none, none, exact, exact)
        for name, (lower, upper) in bounds.items()
    }
    units = FileStatistics(pa.array(np.full(files, 100_000)), columns)
    names = pc.binary_join_element_wise("part-", pa.array(np.arange(files)).cast(pa.string()), ".parquet", "")
    unknown = pa.nulls(files, pa.int64())
    sizes = pa.array(np.full(files, 10_000_000))
    data = DataFiles(names, sizes, unknown, pa.nulls(files, pa.string()), units, units, np.arange(files + 1))
    folder.mkdir(parents=True)
    schema = Schema(pa.schema({name: pa.int64() for name in COLUMNS}))
    details = {"source": "statistics"}
    commit(
        open_storage(str(folder)), None, TableUpdate("index", add=data, schema=schema, managed=False, details=details)
    )


def question(files: int, seed: int) -> str:
    """A look-up on two columns that hits one file."""
    x, y = grid(files, np.random.default_rng(seed).integers(files, size=1))
    return f"src = {x[0] * WIDTH + 7} AND dst = {y[0] * WIDTH + 7}"


def measure(folder: Path, files: int) -> dict[str, float]:
    """Milliseconds of the first plan in this process, opening included, and of later ones; the peak of memory.

    Processor time tells what a later plan costs whatever else the machine does.
    """
    bind("a = 1", Schema(pa.schema({"a": pa.int64()})))
    first = question(files, 0)
    later = [question(files, seed) for seed in range(1, RUNS + 1)]
    start, started = time.perf_counter(), time.process_time()
    storage = open_storage(str(folder))
    index = Index(storage, load(storage))
    found = plan(index, bind(first, index.snapshot.schema)).paths
    cold, cold_busy = time.perf_counter() - start, time.process_time() - started
    assert len(found) == 1, found
    seconds, busy = [], []
    for text in later:
        start, started = time.perf_counter(), time.process_time()
        found = plan(index, bind(text, index.snapshot.schema)).paths
        seconds.append(time.perf_counter() - start)
        busy.append(time.process_time() - started)
        assert len(found) == 1, found
    return {
        "cold ms": cold * 1e3,
        "warm ms": statistics.median(seconds) * 1e3,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "cold processor ms": cold_busy * 1e3,
        "warm processor ms": statistics.median(busy) * 1e3,
    }


def measure_scan(folder: Path, files: int) -> dict[str, float]:
    """The same of a condition on all four columns that nine tenths of the files may match; warm is a second plan."""
    bind("a = 1", Schema(pa.schema({"a": pa.int64()})))
    milliseconds = []
    start = time.perf_counter()
    storage = open_storage(str(folder))
    index = Index(storage, load(storage))
    for least in (5000, 5001):
        text = f"src >= {least} AND dst >= 3000 AND bytes < 900 AND ts > 77"
        found = plan(index, bind(text, index.snapshot.schema))
        milliseconds.append((time.perf_counter() - start) * 1e3)
        start = time.perf_counter()
        assert len(found) > files / 2
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cold ms": milliseconds[0], "warm ms": milliseconds[1], "peak MB": peak}


def measure_random(folder: Path, files: int) -> dict[str, float]:
    """The same of an equality on two columns, over boxes that are not clustered."""
    bind("a = 1", Schema(pa.schema({"a": pa.int64()})))
    generator = np.random.default_rng(1)
    milliseconds = []
    start = time.perf_counter()
    storage = open_storage(str(folder))
    index = Index(storage, load(storage))
    for _ in range(RUNS):
        source, target = generator.integers(0, files * WIDTH, 2)
        plan(index, bind(f"src = {source} AND dst = {target}", index.snapshot.schema))
        milliseconds.append((time.perf_counter() - start) * 1e3)
        start = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cold ms": milliseconds[0], "warm ms": statistics.median(milliseconds[1:]), "peak MB": peak}


def measure_peer(name: str, folder: Path, files: int) -> dict[str, float]:
    """The same of another library, for the last file's box."""
    x, y = grid(files, np.array([files - 1]))
    cold, warm = PEERS[name][1](folder, {"src": int(x[0]) * WIDTH + 7, "dst": int(y[0]) * WIDTH + 7})
    return {"cold ms": cold, "warm ms": warm, "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


OWN = {"zskip": measure, "scan": measure_scan, "random": measure_random}


def in_fresh_process(way: str, folder: Path, files: int, seconds: int) -> dict[str, float] | None:
    """One measurement alone in a process; None where it takes longer than it may."""
    command = [sys.executable, __file__, str(folder), "--only", way, "--files", str(files)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds, check=True)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def middle(runs: list[dict[str, float] | None]) -> dict[str, float]:
    """The median of each figure."""
    return {name: statistics.median(run[name] for run in runs if run is not None) for name in runs[0] or {}}


COLD, WARM = {"deltalake": 300, "pyiceberg": 150}, {"deltalake": 200}
"""How many times faster than a peer to plan over 100,000 files is wanted."""


def compare(peer: str, folder: Path, files: int, own: dict[str, float]) -> bool:
    """Print what a peer takes beside what zskip takes; False where it takes too long."""
    place = folder / f"{peer}-{files}"
    if not place.exists():
        PEERS[peer][0](place, boxes(files))
    found = in_fresh_process(peer, place, files, PEER_SECONDS)
    if found is None:
        print(f"{files:>12,} {peer:<10} more than {PEER_SECONDS} s")
        return False
    ratios = [f"{found[name] / own[name]:.0f}×" for name in ("cold ms", "warm ms")]
    print(f"{line(files, peer, found)}   zskip is {ratios[0]} faster cold, {ratios[1]} warm")
    for name, wanted in ({"cold ms": COLD, "warm ms": WARM} if files == 100_000 else {}).items():
        if peer in wanted:
            what = f"plan over 100,000 files, {name.split()[0]}, faster than {peer}"
            at_least(wanted[peer], found[name] / own[name], what, " times")
    return True


def judge(files: int, found: dict[str, float]) -> None:
    """What is wanted of a table of this size alone."""
    if files == 1_000:
        at_most(3, found["warm ms"], "plan over 1,000 files, warm, parsing included", " ms")
    if files == 1_000_000:
        at_most(50, found["warm ms"], "plan over 1,000,000 files, warm", " ms")
        at_most(500, found["cold ms"], "open and plan 1,000,000 files in a fresh process", " ms")
    if files == 10_000_000:
        at_most(2048, found["peak MB"], "peak memory to open and plan 10,000,000 files of 4 columns", " MB")


def judge_growth(found: dict[int, dict[str, float]]) -> None:
    """How a selective plan grows from one million files to ten."""
    if {1_000_000, 10_000_000} <= found.keys():
        for name in ("cold ms", "warm ms", "cold processor ms", "warm processor ms"):
            growth = found[10_000_000][name] / found[1_000_000][name]
            at_most(3, growth, f"a plan over 10,000,000 files against 1,000,000, {name[:-3]}", " times")


def line(files: int, way: str, found: dict[str, float]) -> str:
    """One row of the printed table."""
    return f"{files:>12,} {way:<10} {found['cold ms']:>10.1f} {found['warm ms']:>10.2f} {found['peak MB']:>9.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the tables are made, and kept for the next run")
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="plan with these, too; with all without a name")
    parser.add_argument(
        "--scan", action="store_true", help="plan a condition on four columns that most files match, too"
    )
    parser.add_argument("--random", action="store_true", help="plan a look-up over boxes that are not clustered, too")
    parser.add_argument("--only", choices=[*OWN, *PEERS], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        files = given.files[0]
        own = OWN.get(given.only)
        print(json.dumps(own(given.folder, files) if own else measure_peer(given.only, given.folder, files)))
        return
    print(versions())
    print(f"{'files':>12} {'way':<10} {'cold ms':>10} {'warm ms':>10} {'peak MB':>9}")
    peers = [] if given.peers is None else given.peers or list(PEERS)
    own_figures: dict[int, dict[str, float]] = {}
    for files in given.files:
        folder = given.folder / f"zskip-{files}"
        if not folder.exists():
            make(folder, files, boxes(files))
        runs = [in_fresh_process("zskip", folder, files, 600) for _ in range(PROCESSES)]
        found = middle(runs)
        busy = f"{found['cold processor ms']:.1f} ms cold, {found['warm processor ms']:.2f} warm"
        print(f"{line(files, 'zskip', found)}   in processor time: {busy}", flush=True)
        told = (f"{name} {spread([run[name] for run in runs if run is not None])}" for name in ("cold ms", "warm ms"))
        print(f"{'':>12} {PROCESSES} processes: {', '.join(told)}", flush=True)
        judge(files, found)
        own_figures[files] = found
        if given.scan:
            scanned = in_fresh_process("scan", folder, files, 600)
            assert scanned is not None
            print(line(files, "scan", scanned), flush=True)
        if given.random:
            folder = given.folder / f"random-{files}"
            if not folder.exists():
                make(folder, files, random_boxes(files))
            unclustered = in_fresh_process("random", folder, files, 600)
            assert unclustered is not None
            print(line(files, "random", unclustered), flush=True)
            if files == 1_000_000:
                at_most(25, unclustered["warm ms"], "plan over 1,000,000 files of random boxes, warm", " ms")
        peers = [peer for peer in peers if compare(peer, given.folder, files, found)]
    judge_growth(own_figures)


def versions() -> str:
    """What is measured, and on what."""
    named = [f"{name} {version(name)}" for name in ("pyarrow", "deltalake", "pyiceberg") if installed(name)]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"Python {platform.python_version()}, {', '.join(named)}; {os.cpu_count()} cores, {memory:.0f} GB"


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    main()
