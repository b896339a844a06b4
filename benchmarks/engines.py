"""Look-ups through engines that scan a table themselves, against the same engine over the same files.

    python benchmarks/engines.py /tmp/bench --files 2000 10000
    python benchmarks/engines.py /tmp/bench --spark

polars' own `scan_parquet`, an Arrow dataset, and that dataset in DuckDB and DataFusion, each without and with pruning;
then a full scan and an aggregate over 100 larger files with polars. With ``--spark`` Spark instead: a star join that is
pruned at run time, the first rows and aggregates over 1,000 files, and the queries of TPC-H. Each pair takes turns;
figures are medians. ``--processor`` counts processor time, where other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from targets import at_least, at_most

import zskip
import zskip.polars

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

ROWS_PER_FILE, LARGE_FILES, LARGE_ROWS = 200, 100, 4_000_000
SPARK_FILES = 1100  # asked for; the writer merges small ones, and 1,081 are left


def rows(count: int) -> pa.Table:
    random = np.random.default_rng(7)
    return pa.table(
        {
            "key": np.arange(count),
            "group": random.integers(0, 50, count),
            "payload": random.integers(0, 1 << 40, count),
        }
    )


def made(folder: Path, files: int, rows_per_file: int) -> zskip.Table:
    """The table in a folder, written once."""
    if not folder.exists():
        zskip.write(rows(files * rows_per_file), folder, by="key", rows_per_file=rows_per_file, layout="linear")
    return zskip.open(folder)


def medians(runs: int, *ways: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """The seconds of each way, in turns, after one round that is not counted.

    Of two runs in a turn the second is counted: the first of a few milliseconds pays for what the other way, which has
    just read all files, left in the processor's caches.
    """
    taken: list[list[float]] = [[] for _ in ways]
    for turn in range(runs + 1):
        for way, seconds in zip(ways, taken, strict=True):
            way()
            started = clock()
            way()
            if turn:
                seconds.append(clock() - started)
    return [statistics.median(seconds) for seconds in taken]


def look_ups(table: zskip.Table, runs: int) -> dict[str, tuple[Callable[[], int], Callable[[], int]]]:
    """By engine: a look-up over all files, and through the table. Each says how many rows it found."""
    key = (table.count() // 2) + 17
    paths, expression = table.plan().paths, pc.field("key") == key
    plain, pruned = ds.dataset(paths, schema=table.schema), table.dataset()
    con, context = duckdb.connect(), datafusion.SessionContext()
    for name, dataset in {"plain": plain, "pruned": pruned}.items():
        con.register(name, dataset)
        context.register_dataset(name, dataset)

    def in_duckdb(name: str) -> int:
        return len(con.sql(f"SELECT * FROM {name} WHERE key = {key}").fetchall())

    def in_datafusion(name: str) -> int:
        found = context.sql(f"SELECT * FROM {name} WHERE key = {key}").collect()
        return sum(batch.num_rows for batch in found)

    return {
        "polars": (  # from the frame on: polars takes what one query of it resolved for the next
            lambda: pl.scan_parquet(paths).filter(pl.col("key") == key).collect().height,
            lambda: zskip.polars.scan(table).filter(pl.col("key") == key).collect().height,
        ),
        "Arrow dataset": (
            lambda: plain.to_table(filter=expression).num_rows,
            lambda: pruned.to_table(filter=expression).num_rows,
        ),
        "DuckDB by dataset": (lambda: in_duckdb("plain"), lambda: in_duckdb("pruned")),
        "DataFusion": (lambda: in_datafusion("plain"), lambda: in_datafusion("pruned")),
    }


# The joins of a session: as Spark has them, planned at once, and without broadcasts.
JOINS: dict[str, dict[str, str]] = {
    "": {},
    ", AQE off": {"spark.sql.adaptive.enabled": "false"},
    ", sorted and merged": {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
        "spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly": "false",
    },
}


def on_plain_files(ask: Callable[[pl.LazyFrame], pl.DataFrame], paths: list[str]) -> pl.DataFrame:
    return ask(pl.scan_parquet(paths))


def collected(spark: SparkSession, query: str) -> list[Row]:
    return spark.sql(query).collect()


def in_spark(folder: Path, runs: int, processor: bool, scale: str) -> None:
    """Spark over 1,000 files, as plain Parquet and as a table of zskip's, and the queries of TPC-H."""
    from spark import processor_seconds, session, tpch

    import zskip.spark
    from tests.spark.files import CONNECTOR, files_read
    from zskip.spark.spark_session import setting

    spark = session()
    clock = (lambda: processor_seconds(spark)) if processor else time.perf_counter
    table = made(folder / f"engines-spark-{SPARK_FILES}", SPARK_FILES, ROWS_PER_FILE)
    zskip.spark.register(spark, "fact", table, connector=True)
    spark.read.parquet(f"{table.uri}/*.parquet").createOrReplaceTempView("plain")
    # Two dimensions, as Parquet: keys of three files, and half of the groups.
    days = pa.table({"key": [key * ROWS_PER_FILE + 7 for key in range(SPARK_FILES)], "day": range(SPARK_FILES)})
    kinds = pa.table({"group": range(50), "kind": [f"kind {group % 2}" for group in range(50)]})
    for name, dimension in {"days": days, "kinds": kinds}.items():
        pq.write_table(dimension, folder / f"{name}.parquet")
        spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)
    star = (
        "SELECT count(*), sum(payload) FROM {} f JOIN days ON f.key = days.key JOIN kinds ON f.group = kinds.group "
        "WHERE days.day IN (17, 500, 983) AND kinds.kind LIKE 'kind%'"
    )
    first = "SELECT * FROM {} ORDER BY key DESC LIMIT 10"
    aggregates = "SELECT min(key), max(key), count(*), count(payload) FROM {}"
    stars = [(f"a star join{named}", star, 3, settings) for named, settings in JOINS.items()]
    for name, query, wanted, settings in [
        *stars,
        ("the first 10 rows", first, 10, {}),
        ("min, max and count", aggregates, 10, {}),
    ]:
        with setting(spark, settings):
            slow_query, quick_query = query.format("plain"), query.format("fact")
            assert spark.sql(slow_query).collect() == spark.sql(quick_query).collect(), name
            if query == star:
                read = files_read(spark.sql(quick_query), CONNECTOR)
                at_most(1.2, read / 3, f"Spark, {name} reads {read:,} files, 3 hold matches: times as many", " times")
            slow, quick = medians(
                runs,
                partial(collected, spark, slow_query),
                partial(collected, spark, quick_query),
                clock=clock,
            )
        took = f"{slow * 1000:,.0f} ms and {quick * 1000:,.0f} ms"
        at_least(wanted, slow / quick, f"Spark, {name} of {len(table._index):,} files, {took}: faster", " times")
    for claim in tpch(spark, folder, scale, []):
        print(f"{'PASS' if claim.holds else 'FAIL'}  {claim.what}: {claim.found}, wanted {claim.wanted}", flush=True)
    spark.stop()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--files", type=int, nargs="+", default=[2000, 10_000])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--spark", action="store_true", help="Spark instead of the other engines")
    options.add_argument("--scale", default="1", help="of TPC-H")
    options.add_argument("--processor", action="store_true", help="processor time instead of the clock's")
    given = options.parse_args()
    if given.spark:
        in_spark(given.folder, given.runs, given.processor, given.scale)
        return
    clock = time.process_time if given.processor else time.perf_counter
    for files in given.files:
        table = made(given.folder / f"engines-{files}", files, ROWS_PER_FILE)
        for engine, (plain, pruned) in look_ups(table, given.runs).items():
            assert plain() == pruned() == 1
            slow, fast = medians(given.runs, plain, pruned, clock=clock)
            wanted = 25 if files <= 2000 or engine != "polars" else 100
            took = f"{slow * 1000:,.0f} ms and {fast * 1000:,.1f} ms"
            at_least(wanted, slow / fast, f"{engine}, a look-up in {files:,} files, {took}: faster", " times")
    table = made(given.folder / "engines-large", LARGE_FILES, LARGE_ROWS // LARGE_FILES)
    lazy, paths = zskip.polars.scan(table), table.plan().paths
    asked: dict[str, Callable[[pl.LazyFrame], pl.DataFrame]] = {
        "full scan": lambda frame: frame.collect(),
        "aggregate": lambda frame: frame.group_by("group").agg(pl.col("payload").sum()).collect(),
    }
    for name, ask in asked.items():
        own, ours = medians(given.runs, partial(on_plain_files, ask, list(paths)), partial(ask, lazy), clock=clock)
        took = f"{own * 1000:,.0f} ms and {ours * 1000:,.0f} ms"
        at_most(1.05, ours / own, f"polars, {name} of {LARGE_FILES} files, {took}: slower", " times")


if __name__ == "__main__":
    main()
