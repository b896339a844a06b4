"""Whole statements through zskip and over DuckDB's glob of the same files, both in one run: medians, and their ratio.

    python benchmarks/statements.py FOLDER [--files 2000] [--s3] [--tpch 1 [--lineitem-files 100] [--ssb-files 500]]

A ratio above 1 is a loss. ``--s3``: the requests of each statement over the S3 protocol, as well. ``--tpch``: the scale
factor at which tpchgen-cli makes the tables of TPC-H, for its 22 queries; each table is laid out by the columns that
they filter on, lineitem in as many files as are given, each number in turn. ``--ssb-files``: also the 13 queries of the
Star Schema Benchmark, over tables made of those of TPC-H.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import lookup

import zskip
from benchmarks import star_schema as star
from tests.spark.tpch import LAYOUTS, QUERIES
from zskip.engines.duckdb.catalog import _INDEXES
from zskip.storage import open_storage
from zskip.storage.remote import ObjectStorage

RUNS = 5
EVENTS = [
    ("a look-up", "SELECT * FROM {t} WHERE id = 77"),
    ("a range", "SELECT sum(amount) FROM {t} WHERE id BETWEEN 5000 AND 6000"),
    ("top 10", "SELECT * FROM {t} ORDER BY id DESC LIMIT 10"),
    ("limit 10", "SELECT * FROM {t} LIMIT 10"),
    ("min, max, count", "SELECT min(id), max(id), count(*) FROM {t}"),
    ("count of a range", "SELECT count(*) FROM {t} WHERE id BETWEEN 5000 AND 1500000"),
    (
        "join on three keys",
        "SELECT sum(amount) FROM {t} JOIN {hosts} USING (id) WHERE name IN ('h70', 'h700', 'h7000')",
    ),
    ("a full scan", "SELECT host, sum(amount) FROM {t} GROUP BY host ORDER BY host"),
]


def median(run: Callable[[str], duckdb.DuckDBPyRelation], text: str) -> float:
    """Milliseconds to the rows of a statement, after one run that is not counted."""
    run(text).fetchall()
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run(text).fetchall()
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


def compare(tables: dict[str, Path], statements: list[tuple[str, str]]) -> None:
    """One line a statement. Raises `SystemExit` where the two ways differ."""
    con = duckdb.connect()
    for name, text in statements:
        ours = glob = text
        for table, path in tables.items():
            ours = ours.replace(f"{{{table}}}", f"'{path}' {table}")
            glob = glob.replace(f"{{{table}}}", f"'{path}/**/*.parquet' {table}")
        if zskip.sql(ours, con).fetchall() != con.sql(glob).fetchall():
            sys.exit(f"{name}: the rows differ")
        with_zskip = median(lambda text: zskip.sql(text, con), ours)
        plain = median(con.sql, glob)
        print(f"{name:20} {with_zskip:9.1f} ms {plain:9.1f} ms {with_zskip / plain:7.3f}", flush=True)


def over_s3(tables: dict[str, Path], statements: list[tuple[str, str]]) -> None:
    """The requests of each statement from opening its tables to its rows, when it runs first and when it runs again."""
    verbs = ("read", "read_range", "list", "names", "exists", "size_and_modified")
    with lookup.s3() as address, ExitStack() as counted:
        options = {**address, "client_options": {"allow_http": True}}
        for table, path in tables.items():
            lookup.upload(path, open_storage(f"s3://bench/{table}", options))
        calls = [
            counted.enter_context(patch.object(ObjectStorage, verb, autospec=True, side_effect=inner))
            for verb in verbs
            if (inner := getattr(ObjectStorage, verb))
        ]
        for name, text in statements:
            for table in tables:
                text = text.replace(f"{{{table}}}", f"'s3://bench/{table}' {table}")
            requests = []
            _INDEXES.clear()
            for _ in range(2):
                before = sum(call.call_count for call in calls)
                zskip.sql(text, duckdb.connect(), storage_options=options).fetchall()
                requests.append(sum(call.call_count for call in calls) - before)
            print(f"{name:20} {requests[0]:4} requests over S3, {requests[1]} again", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--tpch", type=float)
    parser.add_argument("--lineitem-files", type=int, nargs="+", default=[100])
    parser.add_argument("--ssb-files", type=int)
    given = parser.parse_args()
    events, hosts = given.folder / f"events-{given.files}", given.folder / "hosts"
    if not events.exists():
        rows, random = 1000 * given.files, np.random.default_rng(1)
        made = {"id": np.arange(rows), "host": random.integers(0, 1000, rows), "amount": random.integers(0, 99, rows)}
        zskip.write(pa.table(made), events, by="id", files=given.files)
    if not hosts.exists():
        ids = np.arange(0, 100_000, 7)
        zskip.write(pa.table({"id": ids, "name": [f"h{each}" for each in ids]}), hosts, by="id", files=1)
    print(f"{'statement':20} {'zskip':>12} {'glob':>12} {'ratio':>7}")
    compare({"t": events, "hosts": hosts}, EVENTS)
    if given.s3:
        over_s3({"t": events, "hosts": hosts}, EVENTS[:-1])
    if given.tpch:
        folder = given.folder / f"tpch-{given.tpch:g}"
        raw = generated(folder, given.tpch)
        for files in given.lineitem_files:
            tables = {name: folder / (f"{name}-{files}" if name == "lineitem" else name) for name in LAYOUTS}
            for name, path in tables.items():
                few = max(1, min(20, int(20 * given.tpch)))
                lay_out(raw / f"{name}.parquet", path, LAYOUTS[name], files if name == "lineitem" else few)
            queries(f"TPC-H {files}", tables, {str(number): text for number, text in QUERIES.items()})
        if given.ssb_files:
            star_schema(folder, raw, given.ssb_files)


def generated(folder: Path, scale: float) -> Path:
    """The folder of TPC-H's tables, one file each."""
    raw = folder / "raw"
    if not raw.exists():
        generator = Path(sys.executable).with_name("tpchgen-cli")
        subprocess.run([str(generator), "parquet", "-s", f"{scale:g}", f"--output-dir={raw}"], check=True)
    return raw


def lay_out(source: Path, path: Path, by: list[str], files: int) -> None:
    if not path.exists():
        zskip.write(str(source), path, by=by, files=files)


def star_schema(folder: Path, raw: Path, files: int) -> None:
    con = duckdb.connect()
    for path in raw.glob("*.parquet"):
        con.execute(f"CREATE VIEW {path.stem} AS FROM '{path}'")
    tables = {}
    for name, text in star.TABLES.items():
        facts = name == "lineorder"
        tables[name] = folder / (f"ssb-{name}-{files}" if facts else f"ssb-{name}")
        made = folder / f"ssb-{name}.parquet"
        if not made.exists():
            con.execute(f"COPY ({text}) TO '{made}'")
        lay_out(made, tables[name], star.LAYOUTS[name], files if facts else 1)
    queries("SSB", tables, star.QUERIES)


def queries(title: str, tables: dict[str, Path], texts: Mapping[str, str]) -> None:
    """One line a query, and one for the sum of their medians. Raises `SystemExit` where the numbers of rows differ."""
    con, glob = duckdb.connect(), duckdb.connect()
    for name, path in tables.items():
        glob.execute(f"CREATE VIEW {name} AS SELECT * FROM '{path}/**/*.parquet'")
    named = {name: str(path) for name, path in tables.items()}
    sums = [0.0, 0.0]
    for number, text in texts.items():
        rows = [zskip.sql(text, con, tables=named).fetchall(), glob.sql(text).fetchall()]
        if len(rows[0]) != len(rows[1]):
            sys.exit(f"{title} Q{number}: the rows differ")
        taken = (
            median(lambda text: zskip.sql(text, con, tables=named), text),
            median(glob.sql, text),
        )
        sums = [total + one for total, one in zip(sums, taken, strict=True)]
        print(f"{f'{title} Q{number}':20} {taken[0]:9.1f} ms {taken[1]:9.1f} ms {taken[0] / taken[1]:7.3f}", flush=True)
    print(f"{f'{title}, sum of {len(texts)}':20} {sums[0]:9.1f} ms {sums[1]:9.1f} ms {sums[0] / sums[1]:7.3f}")


if __name__ == "__main__":
    main()
