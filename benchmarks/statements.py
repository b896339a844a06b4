"""Whole statements through zskip and over DuckDB's glob of the same files, both in one run: medians, and their ratio.

    python benchmarks/statements.py FOLDER [--files 2000] [--tpch 1]

A ratio above 1 is a loss. ``--tpch``: the scale factor of the lineitem table that tpchgen-cli makes, for Q1 and Q6.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

import zskip

RUNS = 5
EVENTS = [
    ("a look-up", "SELECT * FROM {t} WHERE id = 77"),
    ("a range", "SELECT sum(amount) FROM {t} WHERE id BETWEEN 5000 AND 6000"),
    ("top 10", "SELECT * FROM {t} ORDER BY id DESC LIMIT 10"),
    ("limit 10", "SELECT * FROM {t} LIMIT 10"),
    ("min, max, count", "SELECT min(id), max(id), count(*) FROM {t}"),
    ("count of a range", "SELECT count(*) FROM {t} WHERE id BETWEEN 5000 AND 1500000"),
    ("a full scan", "SELECT host, sum(amount) FROM {t} GROUP BY host ORDER BY host"),
]
LINEITEM = [
    (
        "TPC-H Q1",
        "SELECT l_returnflag, l_linestatus, sum(l_quantity), count(*) FROM {t} "
        "WHERE l_shipdate <= DATE '1998-09-02' GROUP BY ALL ORDER BY ALL",
    ),
    (
        "TPC-H Q6",
        "SELECT sum(l_extendedprice * l_discount) FROM {t} WHERE l_shipdate >= DATE '1994-01-01' "
        "AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    ),
]


def median(run: Callable[[], object]) -> float:
    """Milliseconds, after one run that is not counted."""
    run()
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


def compare(folder: Path, statements: list[tuple[str, str]]) -> None:
    """One line a statement. Raises `SystemExit` where the two ways differ."""
    con = duckdb.connect()
    for name, text in statements:
        ours, glob = text.replace("{t}", f"'{folder}' t"), text.replace("{t}", f"'{folder}/**/*.parquet' t")
        if zskip.sql(ours, con).fetchall() != con.sql(glob).fetchall():
            sys.exit(f"{name}: the rows differ")
        with_zskip = median(lambda ours=ours: zskip.sql(ours, con).fetchall())  # type: ignore[misc]
        plain = median(lambda glob=glob: con.sql(glob).fetchall())  # type: ignore[misc]
        print(f"{name:20} {with_zskip:9.1f} ms {plain:9.1f} ms {with_zskip / plain:7.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--tpch", type=float)
    given = parser.parse_args()
    events = given.folder / f"events-{given.files}"
    if not events.exists():
        rows, random = 1000 * given.files, np.random.default_rng(1)
        made = {"id": np.arange(rows), "host": random.integers(0, 1000, rows), "amount": random.integers(0, 99, rows)}
        zskip.write(pa.table(made), events, by="id", files=given.files)
    print(f"{'statement':20} {'zskip':>12} {'glob':>12} {'ratio':>7}")
    compare(events, EVENTS)
    if given.tpch:
        lineitem = given.folder / f"lineitem-{given.tpch:g}"
        if not lineitem.exists():
            raw = given.folder / "raw"
            command = ["tpchgen-cli", "-s", f"{given.tpch:g}", "--format=parquet", "--tables=lineitem"]
            subprocess.run([*command, f"--output-dir={raw}"], check=True)
            zskip.write(str(raw / "lineitem.parquet"), lineitem, by=["l_shipdate", "l_partkey"], files=100)
        compare(lineitem, LINEITEM)


if __name__ == "__main__":
    main()
