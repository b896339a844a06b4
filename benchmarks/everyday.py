"""Ordinary work through zskip and without it, in one run: what users have before they lay anything out, and after.

    python benchmarks/everyday.py FOLDER [--sections indexed delta iceberg gained hand columns …]

Medians of elapsed time and of the processor's time; a ratio above 1 is a loss, and is printed as one. The tables are
made at the first run and kept in FOLDER. All sections take about a quarter of an hour on two free cores.

indexed     the 22 queries of TPC-H at scale 1 over plain files that are only indexed, beside a glob of these files
delta       the same over a Delta table of these files; iceberg: over Iceberg tables; gained: over tables of zskip that
            gained a column; hand: over tables of up to 50 files, laid out as in tests/spark/tpch.py
columns     ten statements over 105 columns, indexed and written by zskip
twenty      every kind of statement over 20 files, with other constants each time
hive        statements over 20 hive folders that are only indexed
partitions  a write of 1,000 hive partitions, and an append to each of them, beside DuckDB's COPY and deltalake
deletes     deletes by a list of ids, beside deltalake
wide        1,000 columns: a write, an append; an index of 3,000 columns
s3          append and delete over S3 with 30 ms a request, beside deltalake
fresh       the first look-up and the first plan of a process, beside DuckDB
metadata    bytes and files of metadata for 1,000 small appends, beside Delta
vectors     a scan of a Delta table with 1 % of its rows deleted, beside the same without
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, convert_to_deltalake, write_deltalake

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from statements import Taken, by_duckdb, by_zskip, generated, same_rows
from targets import at_most

import zskip
from tests.spark.tpch import LAYOUTS, QUERIES

RUNS, TPCH_RUNS = 3, 7
FILE_ROWS = 122_880
TPCH = ("indexed", "delta", "iceberg", "gained", "hand")
BY = {
    "lineitem": "l_shipdate",
    "orders": "o_orderdate",
    "customer": "c_custkey",
    "part": "p_partkey",
    "partsupp": "ps_partkey",
    "supplier": "s_suppkey",
    "nation": "n_nationkey",
    "region": "r_regionkey",
}


def taken(*ways: Callable[[], Any], runs: int = RUNS, uncounted: int = 1) -> list[Taken]:
    """The medians of each way, run in turn."""
    found: list[list[tuple[float, float]]] = [[] for _ in ways]
    for run in range(runs + uncounted):
        for way, times in zip(ways, found, strict=True):
            elapsed, processor = time.perf_counter(), time.process_time()
            way()
            if run >= uncounted:
                times.append(((time.perf_counter() - elapsed) * 1e3, (time.process_time() - processor) * 1e3))
    return [Taken(*map(statistics.median, zip(*times, strict=True))) for times in found]


def row(name: str, ours: Taken, others: Mapping[str, Taken]) -> None:
    """Print one line: ours, and each peer with the ratios of elapsed and of processor time."""
    peers = "; ".join(
        f"{peer} {other}, ratio {ours.elapsed / other.elapsed:.2f} {ours.processor / other.processor:.2f}"
        + (" LOSS" if ours.processor > other.processor else "")
        for peer, other in others.items()
    )
    print(f"{name:28} zskip {ours}; {peers}", flush=True)


# --- TPC-H ---


def plain_files(folder: Path) -> Path:
    """TPC-H as some engine leaves it: files of one size, in the order in which the rows came."""
    made = folder / "plain"
    for path in sorted(generated(folder).glob("*.parquet")):
        if not (made / path.stem).exists():
            (made / path.stem).mkdir(parents=True)
            rows = pq.read_table(path)
            for number, start in enumerate(range(0, rows.num_rows, FILE_ROWS)):
                pq.write_table(rows.slice(start, FILE_ROWS), made / path.stem / f"part-{number:03}.parquet")
    return made


def tpch(folder: Path, kind: str) -> None:
    plain = plain_files(folder)
    tables = {name: str(made(folder, kind, plain / name)) for name in BY}
    con, glob = duckdb.connect(), duckdb.connect()
    for name in BY:
        # The same files on both sides: those of Iceberg and zskip are encoded in other ways than the plain ones.
        own = {"gained": tables[name], "hand": tables[name], "iceberg": f"{tables[name]}/data"}
        files = own.get(kind, plain / name)
        glob.execute(f"CREATE VIEW {name} AS FROM '{files}/*.parquet'")
    found: dict[int, tuple[Taken, Taken]] = {}
    for number, text in QUERIES.items():
        ways = partial(by_zskip, text, con, tables), partial(by_duckdb, text, glob)
        same_rows(f"{kind} Q{number}", *[way() for way in ways])
        ours, other = taken(*ways, runs=TPCH_RUNS)
        found[number] = ours, other
        row(f"{kind} Q{number}", ours, {"glob": other})
    ours, other = (Taken(*map(sum, zip(*way, strict=True))) for way in zip(*found.values(), strict=True))
    row(f"{kind}, all", ours, {"glob": other})
    ratios = {number: ours.processor / other.processor for number, (ours, other) in found.items()}
    worst = max(ratios, key=lambda number: ratios[number])
    most, most_of_one = (0.85, 1.10) if kind == "hand" else (1.0, 1.15)
    at_most(most, ours.processor / other.processor, f"{kind}, processor time against the glob")
    at_most(most_of_one, ratios[worst], f"{kind}, the slowest query, Q{worst}")


def made(folder: Path, kind: str, files: Path) -> Path:
    """The table of some plain files in a form, made if it is missing."""
    if kind == "indexed":
        if not (files / "_zskip").exists():
            zskip.index(files)
        return files
    path = folder / kind / files.name
    if path.exists():
        return path
    path.parent.mkdir(exist_ok=True)
    paths = sorted(files.glob("*.parquet"))
    if kind == "delta":
        path.mkdir()
        for one in paths:
            shutil.copy(one, path / one.name)  # a link would change the status of the indexed files
        convert_to_deltalake(str(path))
    elif kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        properties = {"uri": f"sqlite:///{path.parent}/c.db", "warehouse": f"file://{path.parent}"}
        catalog = load_catalog("everyday", type="sql", **properties)
        catalog.create_namespace_if_not_exists("n")
        schema = pq.read_schema(paths[0])
        table = catalog.create_table(f"n.{files.name}", schema=schema, location=f"file://{path}")
        with table.transaction() as change:
            for one in paths:
                change.append(pq.read_table(one))
    elif kind == "hand":
        rows = pa.concat_tables(map(pq.read_table, paths))
        zskip.write(rows, path, by=LAYOUTS[files.name], files=min(50, -(-rows.num_rows // 10_000)))
    else:
        rows = pa.concat_tables(map(pq.read_table, paths))
        older = rows.num_rows * 9 // 10
        zskip.write(rows.slice(0, older), path, by=BY[files.name], files=len(paths))
        later = rows.slice(older)
        zskip.open(path).append(later.append_column("note", pa.array(["new"] * later.num_rows)))
    return path


# --- statements ---


def columns(folder: Path) -> None:
    """Ten statements as of ClickBench over 105 columns, of which each reads few."""
    count, random = 1_000_000, np.random.default_rng(1)
    named = {
        "time": pa.array(np.sort(random.integers(0, 10**7, count)), pa.timestamp("s")).cast(pa.timestamp("us")),
        "counter": random.integers(0, 200, count).astype(np.int32),
        "user": random.integers(0, 100_000, count),
        "width": random.integers(0, 2000, count).astype(np.int16),
        "phrase": pa.array(np.where(random.random(count) < 0.8, "", "p")).cast(pa.string()),
    }
    rows = pa.table({**named, **{f"c{number:02}": random.integers(0, 9, count) for number in range(100)}})
    for kind in ("indexed", "managed"):
        path = folder / f"columns-{kind}"
        if not path.exists() and kind == "managed":
            zskip.write(rows, path, by=["counter", "time"], files=20)
        elif not path.exists():
            path.mkdir()
            for number in range(20):
                pq.write_table(rows.slice(number * count // 20, count // 20), path / f"{number:02}.parquet")
            zskip.index(path)
        con, glob, total = duckdb.connect(), duckdb.connect(), ([0.0, 0.0], [0.0, 0.0])
        for number, text in enumerate(_TEN):
            ways = (
                partial(by_zskip, text.format(f"'{path}'"), con),
                partial(by_duckdb, text.format(f"'{path}/*.parquet'"), glob),
            )
            both = taken(*ways)
            row(f"105 columns, {kind}, {number}", both[0], {"glob": both[1]})
            for sums, one in zip(total, both, strict=True):
                sums[0], sums[1] = sums[0] + one.elapsed, sums[1] + one.processor
        wanted = 1.05 if kind == "indexed" else 0.80
        at_most(wanted, total[0][1] / total[1][1], f"105 columns, {kind}, processor time against the glob")


_TEN = [
    "SELECT count(*) FROM {} WHERE width <> 0",
    "SELECT sum(width), count(*), avg(user) FROM {}",
    "SELECT count(DISTINCT user) FROM {} WHERE counter = 62",
    "SELECT counter, count(*) AS n FROM {} WHERE phrase <> '' GROUP BY counter ORDER BY n DESC LIMIT 10",
    "SELECT user, count(*) AS n FROM {} GROUP BY user ORDER BY n DESC LIMIT 10",
    "SELECT user FROM {} WHERE user = 4357",
    "SELECT phrase, min(time) FROM {} WHERE counter = 62 AND c07 = 3 GROUP BY phrase",
    "SELECT date_trunc('minute', time) AS m, count(*) FROM {} WHERE counter = 62 GROUP BY m ORDER BY m LIMIT 10",
    "SELECT min(time), max(time) FROM {}",
    "SELECT counter, time FROM {} WHERE c01 = 1 ORDER BY time LIMIT 10",
]


def twenty(folder: Path) -> None:
    """Statements over 20 files. Each run has other constants: what is cached by text does not count."""
    path, count = folder / "twenty", 4_000_000
    random = np.random.default_rng(2)
    if not path.exists():
        rows = {
            "ts": np.arange(count),
            "host": random.integers(0, 1000, count),
            "amount": random.integers(0, 10**9, count),
            "i": random.integers(0, 100, count),
            "name": [f"n{number}" for number in random.integers(0, 5000, count)],
        }
        zskip.write(pa.table(rows), path, by="ts", files=20)
    con, glob = duckdb.connect(), duckdb.connect()
    for each in (con, glob):
        each.execute("CREATE TABLE mine AS SELECT range * 1000 AS ts, 'm' || range AS label FROM range(50)")

    def one_of(most: int) -> int:
        return int(random.integers(0, most))

    kinds: dict[str, Callable[[], str]] = {
        "look-up": lambda: f"SELECT * FROM {{}} WHERE ts = {one_of(count)}",
        "range": lambda: f"SELECT sum(amount) FROM {{}} WHERE ts BETWEEN {(low := one_of(count))} AND {low + 1000}",
        "range by a function": lambda: f"SELECT sum(amount) FROM {{}} WHERE ts // 1000 = {one_of(count // 1000)}",
        "group by a function": lambda: (
            f"SELECT host, sum(amount) FROM {{}} WHERE ts % {2 + one_of(10**6)} <> 0 GROUP BY host"
        ),
        "unclustered look-up": lambda: f"SELECT count(*) FROM {{}} WHERE amount = {one_of(10**9)}",
        "IN of 3,000": lambda: (
            f"SELECT sum(amount) FROM {{}} WHERE host IN ({', '.join(map(str, random.integers(0, 10**5, 3000)))})"
        ),
        "unclustered top 10": lambda: f"SELECT * FROM {{}} WHERE i <> {one_of(10**6)} ORDER BY amount DESC LIMIT 10",
        "top 10": lambda: f"SELECT * FROM {{}} WHERE i <> {one_of(10**6)} ORDER BY ts DESC LIMIT 10",
        "join with a table of DuckDB": lambda: (
            f"SELECT label, sum(amount) FROM {{}} t JOIN mine USING (ts) WHERE i <> {one_of(10**6)} GROUP BY label"
        ),
        "self-join": lambda: f"SELECT count(*) FROM {{}} a JOIN {{}} b USING (ts) WHERE a.ts < {one_of(5000)}",
        "group": lambda: f"SELECT host, sum(amount) FROM {{}} WHERE i <> {one_of(10**6)} GROUP BY host",
        "count of a range": lambda: f"SELECT count(*) FROM {{}} WHERE ts > {one_of(count)}",
    }
    with_fresh_values("20 files", kinds, (f"'{path}'", con), (f"'{path}/*.parquet'", glob))


def hive(folder: Path) -> None:
    """Statements over 20 hive folders that are only indexed, with other constants each time."""
    path, count = folder / "hive", 120_000
    random = np.random.default_rng(3)
    if not path.exists():
        for number in range(20):
            (path / f"g={number}").mkdir(parents=True)
            rows = {
                "id": np.arange(number * count, (number + 1) * count),
                "c": random.integers(0, 1000, count),
                "x": random.random(count),
                "name": [f"n{each}" for each in random.integers(0, 100, count)],
            }
            pq.write_table(pa.table(rows), path / f"g={number}" / "0.parquet")
        zskip.index(path)
    kinds: dict[str, Callable[[], str]] = {
        "group by folder": lambda: f"SELECT g, count(*), avg(x + {random.integers(0, 10**6)}) FROM {{}} GROUP BY g",
        "one folder": lambda: f"SELECT count(*), max(x) FROM {{}} WHERE g = {random.integers(0, 20)} AND c < 500",
        "look-up": lambda: f"SELECT * FROM {{}} WHERE id = {random.integers(0, 20 * count)}",
        "top 10": lambda: f"SELECT * FROM {{}} WHERE c <> {random.integers(0, 1000)} ORDER BY x DESC LIMIT 10",
    }
    glob = f"read_parquet('{path}/*/*.parquet', hive_partitioning = true)"
    with_fresh_values("20 hive folders", kinds, (f"'{path}'", duckdb.connect()), (glob, duckdb.connect()))


def with_fresh_values(
    what: str,
    kinds: Mapping[str, Callable[[], str]],
    ours: tuple[str, duckdb.DuckDBPyConnection],
    other: tuple[str, duckdb.DuckDBPyConnection],
) -> None:
    """Print each kind of statement over our table beside the other one; ``{}`` stands for either."""
    for name, kind in kinds.items():
        texts = [kind() for _ in range(12)]
        both = taken(
            partial(run_next, by_zskip, iter(texts), *ours),
            partial(run_next, by_duckdb, iter(texts), *other),
            runs=10,
            uncounted=2,
        )
        row(f"{what}: {name}", both[0], {"glob": both[1]})
        wanted = 1.5 if name.startswith("join") else 1.25
        at_most(wanted, both[0].processor / both[1].processor, f"{what}: {name}, processor time against the glob")


def run_next(
    run: Callable[[str, duckdb.DuckDBPyConnection], Any],
    texts: Iterator[str],
    table: str,
    con: duckdb.DuckDBPyConnection,
) -> None:
    run(next(texts).replace("{}", table), con)


# --- changes ---


def partitions(folder: Path) -> None:
    random, count, scratch = np.random.default_rng(1), 200_000, folder / "scratch"
    rows = pa.table(
        {
            "part": random.integers(0, 1000, count),
            "a": random.integers(0, 10**6, count),
            "b": random.random(count),
            "c": [f"x{number}" for number in random.integers(0, 1000, count)],
        }
    )
    one = pa.table({"part": np.arange(1000), "a": np.arange(1000), "b": np.zeros(1000), "c": ["x"] * 1000})

    con = duckdb.connect()
    con.register("rows", rows)
    copy_rows = f"COPY (FROM rows) TO '{scratch}/duckdb' (FORMAT parquet, PARTITION_BY (part))"

    with emptied(scratch):
        ours, copy, delta = taken(
            lambda: zskip.write(rows, scratch / "zskip", by="a", partition_by="part"),
            lambda: con.execute(copy_rows),
            lambda: write_deltalake(scratch / "delta", rows, partition_by=["part"]),
            runs=1,
            uncounted=0,
        )
        row("1,000 partitions", ours, {"COPY": copy, "deltalake": delta})
        at_most(4, ours.elapsed / copy.elapsed, "1,000 partitions against COPY", " times")
        ours, delta = taken(
            lambda: zskip.open(scratch / "zskip").append(one),
            lambda: write_deltalake(scratch / "delta", one, mode="append"),
            runs=1,
            uncounted=0,
        )
        row("a row to each partition", ours, {"deltalake": delta})
        at_most(1.0, ours.elapsed / 1e3, "a row to each of 1,000 partitions", " s")


def deletes(folder: Path) -> None:
    scratch, count = folder / "scratch", 2_000_000
    rows = pa.table({"id": np.arange(count), "value": np.random.default_rng(1).random(count)})
    with emptied(scratch):
        found = {}
        for many in (1000, 10_000):
            # Both lists touch every file.
            ids = np.linspace(0, count - 1, many).astype(np.int64)
            listed = ", ".join(map(str, ids.tolist()))
            ours_at, delta_at = scratch / f"zskip{many}", scratch / f"delta{many}"
            zskip.write(rows, ours_at, by="id", files=1000)
            delta_at.mkdir()
            for number in range(1000):
                pq.write_table(rows.slice(number * count // 1000, count // 1000), delta_at / f"{number:03}.parquet")
            convert_to_deltalake(str(delta_at))
            ours, delta = taken(
                partial(zskip.open(ours_at).delete, f"id IN ({listed})"),
                partial(DeltaTable(delta_at).delete, f"id IN ({listed})"),
                runs=1,
                uncounted=0,
            )
            found[many] = ours
            row(f"{many:,} ids in 1,000 files", ours, {"deltalake": delta})
        at_most(1, ours.processor / delta.processor, "10,000 ids in 1,000 files against deltalake", " times")
        at_most(1.5, found[10_000].processor / found[1000].processor, "10,000 ids against 1,000 ids", " times")


def wide(folder: Path) -> None:
    scratch, random = folder / "scratch", np.random.default_rng(1)
    rows = pa.table({f"c{number}": random.integers(0, 1000, 20_000) for number in range(1000)})
    few = rows.slice(0, 20)
    with emptied(scratch):
        ours, delta = taken(
            lambda: zskip.write(rows, scratch / "zskip", by="c0", files=20),
            lambda: write_deltalake(scratch / "delta", rows),
            runs=1,
            uncounted=0,
        )
        row("1,000 columns: write", ours, {"deltalake": delta})
        ours, delta = taken(
            lambda: zskip.open(scratch / "zskip").append(few),
            lambda: write_deltalake(scratch / "delta", few, mode="append"),
        )
        row("1,000 columns: 20 rows", ours, {"deltalake": delta})
        at_most(3, ours.processor / delta.processor, "an append to 1,000 columns against deltalake", " times")
        seconds = {}
        for columns_ in (1500, 3000):
            path = scratch / f"index{columns_}"
            path.mkdir()
            pq.write_table(pa.table({f"c{number}": np.arange(10) for number in range(columns_)}), path / "0.parquet")
            for number in range(1, 1000):
                os.link(path / "0.parquet", path / f"{number}.parquet")
            (took,) = taken(partial(zskip.index, path), runs=1, uncounted=0)
            seconds[columns_] = took.processor / 1e3
            print(f"index of {columns_:,} columns × 1,000 files: {took}", flush=True)
        at_most(1.1, np.log2(seconds[3000] / seconds[1500]), "the exponent of an index over columns")
        at_most(12, seconds[3000], "an index of 3,000 columns × 1,000 files, processor", " s")


@contextmanager
def delayed_s3(seconds: float) -> Iterator[tuple[str, list[str]]]:
    """moto's S3 with a delay before each answer, and the requests so far."""
    import logging
    import threading

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    inner, requests = DomainDispatcherApplication(create_backend_app), []

    def application(environ: dict[str, Any], respond: Any) -> Any:
        requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        time.sleep(seconds)
        return inner(environ, respond)

    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.port}", requests
    finally:
        server.shutdown()


def s3(folder: Path) -> None:
    import boto3

    rows = pa.table({"id": np.arange(10_000), "value": np.arange(10_000)})
    with delayed_s3(0.03) as (endpoint, requests):
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
        boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys).create_bucket(Bucket="bench")
        options = {**keys, "aws_region": "us-east-1", "endpoint": endpoint}
        ours_options = {**options, "client_options": {"allow_http": True}}
        theirs = {**options, "aws_allow_http": "true", "aws_endpoint_url": endpoint, "aws_conditional_put": "etag"}
        zskip.write(rows, "s3://bench/zskip", by="id", files=4, storage_options=ours_options)
        write_deltalake("s3://bench/delta", rows, storage_options=theirs)
        before = len(requests)
        ours, delta = taken(
            lambda: zskip.open("s3://bench/zskip", storage_options=ours_options).append(rows.slice(0, 100)),
            lambda: write_deltalake("s3://bench/delta", rows.slice(0, 100), mode="append", storage_options=theirs),
        )
        row("S3, 30 ms: append", ours, {"deltalake": delta})
        at_most(1.0, ours.elapsed / delta.elapsed, "S3, an append against deltalake", " times")
        numbers = itertools.count(1)
        ours, delta = taken(
            lambda: zskip.open("s3://bench/zskip", storage_options=ours_options).delete(f"id = {5000 + next(numbers)}"),
            lambda: DeltaTable("s3://bench/delta", storage_options=theirs).delete(f"id = {5000 + next(numbers)}"),
        )
        row("S3, 30 ms: delete of a row", ours, {"deltalake": delta})
        at_most(1.0, ours.elapsed / delta.elapsed, "S3, a delete against deltalake", " times")
        print(f"{len(requests) - before} requests of both", flush=True)


def fresh(folder: Path) -> None:
    """The first look-up of a process in 25 files, in 60, and in a folder that is only indexed, and the first plan:
    processor time with imports, of ten processes.

    pyarrow imports pandas, if it is installed, for the first value that it converts; DuckDB alone does not. What a
    look-up needs in any case is a process of its own: DuckDB's query, and the imports of numpy and pyarrow.
    """
    path = folder / "fresh"
    if not path.exists():
        zskip.write(pa.table({"id": np.arange(1_000_000)}), path, by="id", files=25)
    rows = pa.table({"id": np.arange(600_000)} | {name: np.random.default_rng(7).random(600_000) for name in "abcdef"})
    more, indexed = folder / "fresh60", folder / "fresh-indexed"
    if not more.exists():
        zskip.write(rows, more, by="id", files=60)
        shutil.copytree(more, indexed, ignore=shutil.ignore_patterns("_zskip"))
        zskip.index(indexed)
    without = (
        "import importlib.abc, sys\n"
        "class NoPandas(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'pandas': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, NoPandas())\n"
    )
    codes = {
        "DuckDB": f"import duckdb\nduckdb.sql(\"FROM '{path}/*.parquet' WHERE id = 77\").fetchall()",
        "DuckDB, pyarrow": f"import pyarrow, duckdb\nduckdb.sql(\"FROM '{path}/*.parquet' WHERE id = 77\").fetchall()",
        "pyarrow, sqlglot": "import pyarrow, pyarrow.compute, sqlglot\npyarrow.scalar(1)",
        "open": f"import zskip\nzskip.open({str(path)!r})",
        "plan": f"import zskip\nzskip.open({str(path)!r}).plan('id = 77').paths",
        "sql": f"import zskip\nzskip.sql(\"FROM '{path}' WHERE id = 77\").fetchall()",
        "sql, 60 files": f"import zskip\nzskip.sql(\"FROM '{more}' WHERE id = 77\").fetchall()",
        "sql, indexed": f"import zskip\nzskip.sql(\"FROM '{indexed}' WHERE id = 77\").fetchall()",
    }
    codes |= {f"{name}, no pandas": without + codes[name] for name in ("plan", "sql")}
    found = _process_times(codes)
    for name, seconds in found.items():
        print(
            f"fresh process: {name:16} {seconds * 1e3:5.0f} ms, {seconds / found['DuckDB']:.1f} times DuckDB",
            flush=True,
        )
    at_most(2.5, found["sql"] / found["DuckDB"], "the first look-up of a process against DuckDB", " times")
    at_most(0.25, found["plan"], "the first plan of a process, processor", " s")


def _process_times(codes: Mapping[str, str], runs: int = 10) -> dict[str, float]:
    """The medians of the processor time of new processes, in seconds, run in turn; the first of each compiles."""
    cached = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    taken: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(runs + 1):
        for name, code in codes.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, env=cached)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {name: statistics.median(times[1:]) for name, times in taken.items()}


def metadata(folder: Path) -> None:
    """The bytes and files of metadata for each of many small appends."""
    scratch, many = folder / "scratch", 300
    rows = pa.table({"id": np.arange(100), "value": np.arange(100)})
    with emptied(scratch):
        zskip.write(rows, scratch / "zskip", by="id", files=1)
        write_deltalake(scratch / "delta", rows)
        sizes = {}
        for name, hidden in (("zskip", "_zskip"), ("delta", "_delta_log")):
            before = of_folder(scratch / name / hidden)
            began = time.perf_counter()
            for _ in range(many):
                if name == "zskip":
                    zskip.open(scratch / name).append(rows)
                else:
                    write_deltalake(scratch / name, rows, mode="append")
            after = of_folder(scratch / name / hidden)
            sizes[name] = [(last - first) / many for first, last in zip(before, after, strict=True)]
            seconds = (time.perf_counter() - began) / many
            print(
                f"{name}: {sizes[name][0]:,.0f} bytes in {sizes[name][1]:.2f} files an append, {seconds * 1e3:.1f} ms",
                flush=True,
            )
        at_most(3000, sizes["zskip"][0], "metadata of an append of 100 rows", " bytes")
        at_most(2, sizes["zskip"][1], "metadata of an append of 100 rows", " files")


def vectors(folder: Path) -> None:
    """A Delta table with deletion vectors of 1 % of its rows, and the same without."""
    plain, path = plain_files(folder) / "lineitem", folder / "vectors"
    if not path.exists():
        path.mkdir()
        for one in sorted(plain.glob("*.parquet"))[:20]:
            shutil.copy(one, path / one.name)  # a link would change the status of the indexed files
        convert_to_deltalake(str(path))
        give_vectors(path, 0.01)
    con = duckdb.connect()
    files = [f"'{one}'" for one in sorted(plain.glob("*.parquet"))[:20]]
    for name, what in {
        "a sum": "sum(l_quantity)",
        "sums by group": "l_returnflag, sum(l_quantity), sum(l_extendedprice), avg(l_discount), count(*)",
    }.items():
        group = " GROUP BY ALL" if "group" in name else ""
        ours, other = taken(
            partial(by_zskip, f"SELECT {what} FROM '{path}'{group}", con),
            partial(by_duckdb, f"SELECT {what} FROM read_parquet([{', '.join(files)}]){group}", con),
        )
        row(f"1 % deleted: {name}", ours, {"without deletes": other})
        at_most(2.2, ours.processor / other.processor, f"1 % deleted: {name}, against a scan without deletes", " times")


def give_vectors(path: Path, share: float) -> None:
    """Give each file of a new Delta table an inline deletion vector."""
    from tests.table_formats.logs import inline_vector

    log = path / "_delta_log" / f"{0:020}.json"
    actions, random = [json.loads(line) for line in log.read_text().splitlines()], np.random.default_rng(1)
    for action in actions:
        if "protocol" in action:
            features = {name: ["deletionVectors"] for name in ("readerFeatures", "writerFeatures")}
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
        if "add" in action:
            count = pq.read_metadata(path / action["add"]["path"]).num_rows
            action["add"]["deletionVector"] = inline_vector(np.flatnonzero(random.random(count) < share).tolist())
    log.write_text("\n".join(map(json.dumps, actions)))


def of_folder(folder: Path) -> tuple[int, int]:
    """The bytes and the number of the files in a folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files), len(files)


@contextmanager
def emptied(scratch: Path) -> Iterator[None]:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the tables are made, and kept for the next run")
    sections: dict[str, Callable[[Path], None]] = {kind: partial(tpch, kind=kind) for kind in TPCH}
    others = (columns, twenty, hive, partitions, deletes, wide, s3, fresh, metadata, vectors)
    sections |= {section.__name__: section for section in others}
    parser.add_argument("--sections", nargs="+", default=list(sections), choices=list(sections))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for section in given.sections:
        print(f"\n{section}", flush=True)
        sections[section](given.folder)


if __name__ == "__main__":
    main()
