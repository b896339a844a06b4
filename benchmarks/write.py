"""Writing TPC-H lineitem: zskip against DuckDB's plain COPY and delta-rs z_order, with peak memory.

    python benchmarks/write.py /tmp/bench --scale 1 [--memory-limit 1GB] [--peers] [--runs 5] [--steps]

The data come from tpchgen-cli, into the folder, once. Each way runs in a process of its own, so that peaks of memory
do not mix. All write zstd, and as many files. The ways take turns, and medians are printed: of seconds, and of seconds
of the processor, which count less what else the machine does.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from spread import spread
from targets import at_least, at_most

BY = ["l_shipdate", "l_partkey", "l_suppkey"]
ROWS_PER_FILE = 375_000
"""16 files at SF1, 160 at SF10."""
ROW_GROUP = 122_880


def files(rows: int) -> int:
    """Into how many files every way writes so many rows."""
    return max(1, round(rows / ROWS_PER_FILE))


def source(folder: Path, scale: float) -> Path:
    """lineitem as one Parquet file."""
    made = folder / f"sf{scale:g}"
    if not (made / "lineitem.parquet").exists():
        made.mkdir(parents=True, exist_ok=True)
        program = shutil.which("tpchgen-cli") or str(Path(sys.executable).with_name("tpchgen-cli"))
        command = [program, "parquet", "-s", f"{scale:g}", "--tables=lineitem", f"--output-dir={made}"]
        subprocess.run(command, check=True)
    return made / "lineitem.parquet"


def zskip_write(rows: Path, target: Path, limit: str | None) -> None:
    import pyarrow.parquet as pq

    import zskip

    total = pq.read_metadata(rows).num_rows
    zskip.write(str(rows), str(target), by=BY, files=files(total), memory_limit=limit)


def duckdb_copy(rows: Path, target: Path, limit: str | None) -> None:
    import duckdb

    con = duckdb.connect()
    (total,) = con.execute("SELECT count(*) FROM read_parquet($1)", [str(rows)]).fetchall()[0]
    each = -(-total // files(total))
    groups = -(-each // ROW_GROUP)
    con.execute(
        f"COPY (FROM read_parquet('{rows}')) TO '{target}' (FORMAT parquet, COMPRESSION zstd, PER_THREAD_OUTPUT false, "
        f"ROW_GROUP_SIZE {-(-each // groups)}, ROW_GROUPS_PER_FILE {groups})"
    )


def delta_z_order(rows: Path, target: Path, limit: str | None) -> None:
    import pyarrow.parquet as pq
    from deltalake import DeltaTable, write_deltalake

    total = pq.read_metadata(rows).num_rows
    write_deltalake(str(target), pq.ParquetFile(rows).read())
    DeltaTable(str(target)).optimize.z_order(BY, target_size=rows.stat().st_size // files(total))


IMPORTS = {
    "zskip": ["zskip.table", "pandas"],  # which pyarrow loads, where there is one, when it first sees an array
    "duckdb copy": ["duckdb"],
    "delta-rs z_order": ["deltalake", "pyarrow.parquet"],
}
"""Loaded before the clock starts."""
STEPS = {
    "zskip.layouts:fit": "fit the layout",
    "zskip.writer.routing:Routing.route": "keys and cells",
    "zskip.writer.write:split": "move rows to buckets",
    "zskip.layouts:Assignment.arrange": "order rows inside files",
    "zskip.stats.collect:row_groups": "statistics",
    "zskip.writer.write:write_file": "encode, compress and write",
}


def watched(spent: dict[str, float]) -> None:
    """Count the processor's seconds in each step, over all threads."""
    lock = threading.Lock()
    for place, step in STEPS.items():
        module, _, name = place.partition(":")
        owner: Any = importlib.import_module(module)
        for part in name.split(".")[:-1]:
            owner = getattr(owner, part)
        work = getattr(owner, name.split(".")[-1])

        def timed(*given: Any, work: Any = work, step: str = step, **named: Any) -> Any:
            start = time.thread_time()
            try:
                return work(*given, **named)
            finally:
                with lock:
                    spent[step] = spent.get(step, 0.0) + time.thread_time() - start

        setattr(owner, name.split(".")[-1], timed)


WAYS = {"zskip": zskip_write, "duckdb copy": duckdb_copy, "delta-rs z_order": delta_z_order}


def alone(way: str, rows: Path, folder: Path, limit: str | None, *options: str) -> dict[str, float]:
    """One write in a process of its own: seconds, and megabytes at its peak."""
    target = folder / "written"
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, __file__, str(folder), "--only", way, "--rows", str(rows)]
    command += ["--memory-limit", limit] if limit else []
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    files = list(target.rglob("*.parquet"))
    found |= {"files": len(files), "stored MB": sum(file.stat().st_size for file in files) / 1e6}
    shutil.rmtree(target, ignore_errors=True)
    return found


def judge(way: str, one: dict[str, float], times: dict[str, float], scale: float, limit: str | None) -> None:
    """What is wanted of a way, or of zskip beside it."""
    if way == "duckdb copy" and scale == 1:
        at_most(2, 1 / times["seconds"], "write SF1 against DuckDB's COPY, elapsed", " times its time")
    if way == "delta-rs z_order" and scale == 1:
        at_least(2.5, times["seconds"], "write SF1, faster than z_order, elapsed", " times")
        at_least(2.5, times["processor"], "write SF1, faster than z_order, processor", " times")
        at_most(1 / 3, 1 / times["peak MB"], "peak memory of writing SF1, of z_order's")
    if way == "zskip" and scale == 10 and limit:
        at_most(2560, one["peak MB"], f"peak memory of writing SF10, memory_limit={limit}", " MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the data are made, and kept for the next run")
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H scale factor (1)")
    parser.add_argument("--memory-limit", help="zskip's limit, such as 2GB")
    parser.add_argument("--peers", action="store_true", help="delta-rs too")
    parser.add_argument("--steps", action="store_true", help="only show what each step of zskip's takes")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        for module in IMPORTS[given.only]:
            importlib.import_module(module)
        spent: dict[str, float] = {}
        if given.steps:
            watched(spent)
        start, processor = time.perf_counter(), time.process_time()
        WAYS[given.only](given.rows, given.folder / "written", given.memory_limit)
        took = {"seconds": time.perf_counter() - start, "processor": time.process_time() - processor}
        print(json.dumps({**spent, **took, "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
        return
    rows = source(given.folder, given.scale)
    if given.steps:
        found = alone("zskip", rows, given.folder, given.memory_limit, "--steps")
        for step in STEPS.values():
            print(f"{step:<28} {found[step]:>6.2f} s of processor  {found[step] / found['processor']:>6.1%}")
        print(f"{'all':<28} {found['processor']:>6.2f} s of processor")
        at_most(
            15, 100 * found[STEPS["zskip.writer.routing:Routing.route"]] / found["processor"], "keys and cells", " %"
        )
        return
    ways = list(WAYS) if given.peers else list(WAYS)[:2]
    runs = [
        {way: alone(way, rows, given.folder, given.memory_limit if way == "zskip" else None) for way in ways}
        for _ in range(given.runs)
    ]
    print(f"lineitem SF{given.scale:g}, by {', '.join(BY)}, {given.runs} runs")
    for way in ways:
        each = {name: [run[way][name] for run in runs] for name in runs[0][way]}
        one = {name: statistics.median(found) for name, found in each.items()}
        times = {name: statistics.median(run[way][name] / run["zskip"][name] for run in runs) for name in one}
        print(
            f"{way:<18} {spread(each['seconds'], ' s')}  {spread(each['processor'], ' s')} of processor  "
            f"{spread(each['peak MB'], ' MB', 4)}  "
            f"{one['files']:>4.0f} files  {one['stored MB']:>6.0f} MB stored   {times['seconds']:.2f}x zskip's time, "
            f"{times['processor']:.2f}x its processor time, {times['peak MB']:.2f}x its memory"
        )
        judge(way, one, times, given.scale, given.memory_limit)
    if given.scale == 10 and given.memory_limit:
        small = source(given.folder, 1)
        base = [alone("zskip", small, given.folder, None) for _ in range(given.runs)]
        for kind in ("seconds", "processor"):
            large, little = (
                statistics.median(run[kind] for run in found) for found in ([run["zskip"] for run in runs], base)
            )
            at_most(1.3, large / 10 / little, f"a row at SF10 against SF1 in memory, {kind}", " times")


if __name__ == "__main__":
    main()
