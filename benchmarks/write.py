"""Writing TPC-H lineitem: zskip against DuckDB's plain COPY and delta-rs z_order, with peak memory.

    python benchmarks/write.py /tmp/bench --scale 1 [--memory-limit 1GB] [--peers]

The data come from tpchgen-cli, into the folder, once. Each way runs in a process of its own, so that peaks of memory
do not mix. All write zstd, and as many files.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

BY = ["l_shipdate", "l_partkey", "l_suppkey"]
FILES = 16


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
    import zskip

    zskip.write(str(rows), str(target), by=BY, files=FILES, memory_limit=limit)


def duckdb_copy(rows: Path, target: Path, limit: str | None) -> None:
    import duckdb

    con = duckdb.connect()
    (total,) = con.execute("SELECT count(*) FROM read_parquet($1)", [str(rows)]).fetchall()[0]
    size = rows.stat().st_size // FILES
    con.execute(
        f"COPY (FROM read_parquet('{rows}')) TO '{target}' "
        f"(FORMAT parquet, COMPRESSION zstd, PER_THREAD_OUTPUT false, FILE_SIZE_BYTES {size}, ROW_GROUP_SIZE 122880)"
    )
    assert total


def delta_z_order(rows: Path, target: Path, limit: str | None) -> None:
    import pyarrow.parquet as pq
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(str(target), pq.ParquetFile(rows).read())
    DeltaTable(str(target)).optimize.z_order(BY, target_size=rows.stat().st_size // FILES)


IMPORTS = {
    "zskip": ["zskip.table", "duckdb"],
    "duckdb copy": ["duckdb"],
    "delta-rs z_order": ["deltalake", "pyarrow.parquet"],
}
"""Loaded before the clock starts."""
WAYS = {"zskip": zskip_write, "duckdb copy": duckdb_copy, "delta-rs z_order": delta_z_order}


def alone(way: str, rows: Path, folder: Path, limit: str | None) -> dict[str, float]:
    """One write in a process of its own: seconds, and megabytes at its peak."""
    target = folder / "written"
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, __file__, str(folder), "--only", way, "--rows", str(rows)]
    command += ["--memory-limit", limit] if limit else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    found["files"] = len(list(target.rglob("*.parquet")))
    shutil.rmtree(target, ignore_errors=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the data are made, and kept for the next run")
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H scale factor (1)")
    parser.add_argument("--memory-limit", help="zskip's limit, such as 2GB")
    parser.add_argument("--peers", action="store_true", help="delta-rs too")
    parser.add_argument("--only", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        for module in IMPORTS[given.only]:
            importlib.import_module(module)
        start = time.perf_counter()
        WAYS[given.only](given.rows, given.folder / "written", given.memory_limit)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": time.perf_counter() - start, "peak MB": peak}))
        return
    rows = source(given.folder, given.scale)
    ways = list(WAYS) if given.peers else list(WAYS)[:2]
    found = {way: alone(way, rows, given.folder, given.memory_limit if way == "zskip" else None) for way in ways}
    own = found["zskip"]
    print(f"lineitem SF{given.scale:g}, by {', '.join(BY)}")
    for way, one in found.items():
        print(
            f"{way:<18} {one['seconds']:>7.1f} s  {one['peak MB']:>7.0f} MB  {one['files']:>4.0f} files   "
            f"{one['seconds'] / own['seconds']:.2f}× zskip's time, {one['peak MB'] / own['peak MB']:.2f}× its memory"
        )


if __name__ == "__main__":
    main()
