"""Spark: what a look-up reads and takes, what a clustered write costs, how a heavy value is spread.

    python benchmarks/spark.py [look-up] [write] [skew] [tpch]      --scale 1  --files 1000  --folder build/bench

Each section can run alone. Prints one line per measurement. Times are the medians of five warm runs, in seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from pyspark.sql import DataFrame, SparkSession

import zskip.spark
from tests.spark.files import files_read, scanned
from tests.spark.tpch import LAYOUTS, QUERIES

BY = ["l_shipdate", "l_partkey", "l_suppkey", "l_orderkey"]


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def generated(folder: Path, scale: str) -> Path:
    made = folder / f"tpch-{scale}"
    if not made.exists():
        generator = Path(sys.executable).parent / "tpchgen-cli"
        subprocess.run([generator, "parquet", "-s", scale, "--output-dir", made], check=True)
    return made


def seconds(work: Callable[[], Any], runs: int = 5) -> float:
    work()
    took = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def look_up(spark: SparkSession, folder: Path, scale: str, files: int) -> None:
    """A point look-up over many files, the DataFrames made beforehand, and made anew."""
    rows = spark.read.parquet(str(generated(folder, scale) / "lineitem.parquet"))
    key = rows.select("l_partkey").first()[0]
    path = folder / f"lookup-{files}"
    if not (path / "_zskip").exists():
        zskip.spark.write(rows, path, by=BY, files=files)
    plain, pruned = spark.read.parquet(f"{path}/*.parquet"), zskip.spark.table(spark, str(path))
    where = f"l_partkey = {key} AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1995-06-30'"

    def asked(df: DataFrame) -> DataFrame:
        return df.where(where).selectExpr("count(*)", "sum(l_quantity)")

    assert asked(plain).collect() == asked(pruned).collect()
    survivors = zskip.open(path).plan(where, dialect="spark")
    read = files_read(asked(pruned))
    assert read == len(survivors), (read, len(survivors))
    slow, quick = seconds(lambda: asked(plain).collect()), seconds(lambda: asked(pruned).collect())
    print(
        f"look-up over {len(plain.inputFiles()):,} files: plain reads {files_read(asked(plain)):,} in {slow:.2f} s, "
        f"pruned {read:,}, as planned, in {quick:.2f} s: {slow / quick:.1f} times"
    )
    slow = seconds(lambda: asked(spark.read.parquet(f"{path}/*.parquet")).collect(), 3)
    quick = seconds(lambda: asked(zskip.spark.table(spark, str(path))).collect(), 3)
    print(f"  with the DataFrame made anew: plain {slow:.2f} s, pruned {quick:.2f} s: {slow / quick:.1f} times")


def write(spark: SparkSession, folder: Path, scale: str, files: int) -> None:
    """A clustered write against Spark's own read and write of the same rows."""
    rows = spark.read.parquet(str(generated(folder, scale) / "lineitem.parquet"))
    plain, ours = folder / "write-plain", folder / "write-zskip"
    took: dict[str, list[float]] = {"plain": [], "zskip": []}
    for _ in range(3):
        for path in (plain, ours):
            shutil.rmtree(path, ignore_errors=True)
        began = time.perf_counter()
        rows.write.option("compression", "zstd").parquet(str(plain))
        between = time.perf_counter()
        zskip.spark.write(rows, ours, by=BY, files=files)
        took["plain"].append(between - began)
        took["zskip"].append(time.perf_counter() - between)
    slow, base = min(took["zskip"]), min(took["plain"])
    print(f"write lineitem SF{scale}, {files} files: plain {base:.1f} s, zskip {slow:.1f} s: {slow / base:.2f} times")


def skew(spark: SparkSession, folder: Path, scale: str, files: int) -> None:
    """One value in 60 % of the rows: how even the files are, and the tasks that wrote them, by Spark's own clock."""
    rows = spark.range(4_000_000).selectExpr("IF(id % 10 < 6, 7, id % 100000) AS user", "id", "sha1(id || '') AS note")
    path = folder / "skew"
    for _ in range(2):  # the first run warms the JVM up
        shutil.rmtree(path, ignore_errors=True)
        table = zskip.spark.write(rows, path, by=["user"], files=20)
    counts = sorted(table.index.row_counts(np.arange(len(table.index))).to_pylist())
    tasks = sorted(last_write(spark))
    assert len(tasks) >= len(counts)
    print(
        f"skew: {len(counts)} files, the largest {counts[-1] / statistics.median(counts):.2f} times the median's rows; "
        f"of {len(tasks)} tasks the longest took {tasks[-1] / statistics.median(tasks):.2f} times the median, "
        f"{tasks[-1] / 1000:.2f} s"
    )


def last_write(spark: SparkSession) -> list[int]:
    """How long each task of the last stage that wrote files took, in milliseconds."""
    store = spark._jsc.sc().statusStore()
    defaults = [getattr(store, f"stageList$default${number}")() for number in (4, 5)]
    stages = store.stageList(None, False, False, *defaults)
    wrote = [stages.apply(number) for number in range(stages.size()) if stages.apply(number).outputBytes() > 0]
    stage = max(wrote, key=lambda found: found.stageId())
    tasks = store.taskList(stage.stageId(), stage.attemptId(), stage.numTasks())
    return [int(tasks.apply(number).duration().get()) for number in range(tasks.size())]


def tpch(spark: SparkSession, folder: Path, scale: str, files: int) -> None:
    """The 22 queries over plain Parquet and over self-pruning tables: equal rows, files read, the better run of two."""
    made = generated(folder, scale)
    paths = {}
    for name, by in LAYOUTS.items():
        paths[name] = folder / f"tpch-{scale}-zskip" / name
        if not (paths[name] / "_zskip").exists():
            rows = spark.read.parquet(str(made / f"{name}.parquet"))
            zskip.spark.write(rows, paths[name], by=by, files=files // 10 if name in ("lineitem", "orders") else 4)
    print("| query | rows | files plain | files pruned | s plain | s pruned |\n| --- | --- | --- | --- | --- | --- |")
    total = [[0, 0.0], [0, 0.0]]
    for number, query in QUERIES.items():
        results, read, took = [[], []], [0, 0], [float("inf"), float("inf")]
        # What only a first run costs (generated code, files not yet in memory) is left out on both sides.
        for kind in (1, 0, 0, 1):
            for name, path in paths.items():
                df = zskip.spark.table(spark, str(path)) if kind else spark.read.parquet(f"{path}/*.parquet")
                df.createOrReplaceTempView(name)
            rows = spark.sql(query)
            began = time.perf_counter()
            results[kind] = rows.collect()
            took[kind] = min(took[kind], time.perf_counter() - began)
            read[kind] = scanned(rows)
        assert results[0] == results[1], number
        for kind in (0, 1):
            total[kind] = [total[kind][0] + read[kind], total[kind][1] + took[kind]]
        print(
            f"| {number} | {len(results[0]):,} | {read[0]:,} | {read[1]:,} | {took[0]:.2f} | {took[1]:.2f} |",
            flush=True,
        )
    (plain, slow), (pruned, quick) = total
    print(f"| all | | {plain:,} | {pruned:,} | {slow:.1f} | {quick:.1f} |")


SECTIONS = {"look-up": look_up, "write": write, "skew": skew, "tpch": tpch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), help=", ".join(SECTIONS))
    parser.add_argument("--scale", default="1")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path("bench-spark"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    spark = session()
    for name in given.sections:
        files = 100 if name == "write" else given.files
        SECTIONS[name](spark, given.folder.resolve(), given.scale, files)


if __name__ == "__main__":
    main()
