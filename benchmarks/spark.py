"""Spark: what a look-up reads and takes, what a clustered write costs, how a heavy value is spread.

    python benchmarks/spark.py [look-up] [write] [skew] [tpch]  --scale 1  --files 1000 10000  --folder build/bench

Each section can run alone. At the end a table says what was wanted, what was found, and whether it holds; the exit code
is 1 where something does not. Times are in seconds, of look-ups the medians of warm runs. What is written for look-ups
and queries is kept in the folder for the next run. All of it takes about a quarter of an hour on two quiet cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession

import zskip.spark
from tests.spark.files import files_read, scanned
from tests.spark.tpch import LAYOUTS, QUERIES

# How many times faster a look-up must be, from so many files on.
FASTER = {1000: 4.0, 10_000: 10.0}
BY = ["l_shipdate", "l_partkey", "l_suppkey", "l_orderkey"]


@dataclass(frozen=True)
class Claim:
    """What a measurement must show, as text and as a number, and what it did show."""

    what: str
    wanted: str
    found: str
    holds: bool


def at_least(what: str, wanted: float, found: float) -> Claim:
    return Claim(what, f"at least {wanted:g}", f"{found:.2f}", found >= wanted)


def at_most(what: str, wanted: float, found: float) -> Claim:
    return Claim(what, f"at most {wanted:g}", f"{found:.3f}" if wanted < 0.1 else f"{found:.2f}", found <= wanted)


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


def look_up(spark: SparkSession, folder: Path, scale: str, files: Sequence[int]) -> list[Claim]:
    """A point look-up over many files, the DataFrames made beforehand, and made anew."""
    return [claim for count in files for claim in look_up_over(spark, folder, scale, count)]


def look_up_over(spark: SparkSession, folder: Path, scale: str, files: int) -> list[Claim]:
    rows = spark.read.parquet(str(generated(folder, scale) / "lineitem.parquet"))
    key = rows.select("l_partkey").head(1)[0][0]
    path = folder / f"lookup-{scale}-{files}"
    if not (path / "_zskip").exists():
        zskip.spark.write(rows, path, by=BY, files=files)

    def made_plain() -> DataFrame:
        return spark.read.parquet(f"{path}/*.parquet")

    def made_pruned() -> DataFrame:
        return zskip.spark.table(spark, str(path))

    where = f"l_partkey = {key} AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1995-06-30'"

    def asked(df: DataFrame) -> DataFrame:
        return df.where(where).selectExpr("count(*)", "sum(l_quantity)")

    began = time.perf_counter()
    plain = made_plain()
    listing = time.perf_counter() - began
    pruned = made_pruned()
    same = asked(plain).collect() == asked(pruned).collect()
    planned = len(zskip.open(path).plan(where, dialect="spark"))
    every, read = files_read(asked(plain)), files_read(asked(pruned))
    slow = seconds(lambda: asked(plain).collect(), 5 if files < 5000 else 3)
    quick = seconds(lambda: asked(pruned).collect())
    anew = seconds(lambda: asked(made_pruned()).collect(), 3)
    there = len(plain.inputFiles())
    print(
        f"look-up over {there:,} files: plain reads {every:,} in {slow:.2f} s, pruned {read:,} of {planned:,} planned "
        f"in {quick:.2f} s: {slow / quick:.1f} times"
    )
    print(
        f"  with the DataFrame made anew: plain {listing + slow:.2f} s, pruned {anew:.2f} s: "
        f"{(listing + slow) / anew:.1f} times",
        flush=True,
    )
    named = f"look-up over {files:,} files"
    claims = [
        Claim(f"{named}: rows", "those of plain Parquet", "the same" if same else "others", same),
        Claim(f"{named}: files read", f"the {planned:,} that were planned", f"{read:,}", read == planned),
    ]
    floor = max((times for count, times in FASTER.items() if count <= files), default=None)
    return claims if floor is None else [*claims, at_least(f"{named}: times faster, warm", floor, slow / quick)]


def write(spark: SparkSession, folder: Path, scale: str, files: Sequence[int]) -> list[Claim]:
    """A clustered write against Spark's own read and write of the same rows, and against the local writer's layout."""
    rows = spark.read.parquet(str(generated(folder, scale) / "lineitem.parquet"))
    plain, ours, local = folder / "write-plain", folder / "write-zskip", folder / "write-local"
    took: dict[str, list[float]] = {"plain": [], "zskip": []}
    for _ in range(3):
        for path in (plain, ours):
            shutil.rmtree(path, ignore_errors=True)
        began = time.perf_counter()
        rows.write.option("compression", "zstd").parquet(str(plain))
        between = time.perf_counter()
        written = zskip.spark.write(rows, ours, by=BY, files=100)
        took["plain"].append(between - began)
        took["zskip"].append(time.perf_counter() - between)
    slow, base = min(took["zskip"]), min(took["plain"])
    print(f"write lineitem SF{scale}, 100 files: plain {base:.1f} s, zskip {slow:.1f} s: {slow / base:.2f} times")
    shutil.rmtree(local, ignore_errors=True)
    here = zskip.write(generated(folder, scale) / "lineitem.parquet", local, by=BY, files=100)
    looked_up = pq.read_table(generated(folder, scale) / "lineitem.parquet", columns=BY)
    looked_up = looked_up.take(np.random.default_rng(0).integers(looked_up.num_rows, size=200))
    skipped = [share_skipped(table, looked_up) for table in (here, written)]
    print(f"  share skipped in a look-up: written locally {skipped[0]:.4f}, by Spark {skipped[1]:.4f}", flush=True)
    for path in (plain, ours, local):
        shutil.rmtree(path, ignore_errors=True)
    return [
        at_most("a clustered write: times the cost of a plain one", 2.2, slow / base),
        at_most("share skipped, written by Spark or locally: difference", 0.01, abs(skipped[0] - skipped[1])),
    ]


def share_skipped(table: zskip.Table, rows: pa.Table) -> float:
    """The share of the table's rows that a look-up skips, on average over these rows and their columns."""
    conditions = [
        f"{name} = {literal(value)}" for name in rows.column_names for value in rows[name].unique().to_pylist()
    ]
    return statistics.fmean(table.plan(condition).skipped.rows.fraction for condition in conditions)


def literal(value: object) -> str:
    """A number or a date in SQL."""
    return f"DATE '{value}'" if isinstance(value, date) else str(value)


def skew(spark: SparkSession, folder: Path, scale: str, files: Sequence[int]) -> list[Claim]:
    """One value in 60 % of the rows: how even the files are, and the tasks that wrote them, by Spark's own clock."""
    rows = spark.range(4_000_000).selectExpr("IF(id % 10 < 6, 7, id % 100000) AS user", "id", "sha1(id || '') AS note")
    path = folder / "skew"
    for _ in range(2):  # the first run warms the JVM up
        shutil.rmtree(path, ignore_errors=True)
        table = zskip.spark.write(rows, path, by=["user"], files=20)
    counts = sorted(table._index.row_counts(np.arange(len(table._index))).to_pylist())
    tasks = sorted(last_write(spark))
    assert len(tasks) >= len(counts)
    print(
        f"skew: {len(counts)} files, the largest {counts[-1] / statistics.median(counts):.2f} times the median's rows; "
        f"of {len(tasks)} tasks the longest took {tasks[-1] / statistics.median(tasks):.2f} times the median, "
        f"{tasks[-1] / 1000:.2f} s",
        flush=True,
    )
    shutil.rmtree(path, ignore_errors=True)
    return [
        at_most("one value in 60 % of rows: the longest task, by the median", 3, tasks[-1] / statistics.median(tasks))
    ]


def last_write(spark: SparkSession) -> list[int]:
    """How long each task of the last stage that wrote files took, in milliseconds."""
    store = spark._jsc.sc().statusStore()
    defaults = [getattr(store, f"stageList$default${number}")() for number in (4, 5)]
    stages = store.stageList(None, False, False, *defaults)
    wrote = [stages.apply(number) for number in range(stages.size()) if stages.apply(number).outputBytes() > 0]
    stage = max(wrote, key=lambda found: found.stageId())
    tasks = store.taskList(stage.stageId(), stage.attemptId(), stage.numTasks())
    return [int(tasks.apply(number).duration().get()) for number in range(tasks.size())]


WAYS = ("plain", "file source", "connector")
# How much longer a query may take by the file source than over plain Parquet, and a scan by the connector than by it.
SLOWEST, SLOWEST_SCAN = 1.15, 1.03


def tpch(spark: SparkSession, folder: Path, scale: str, files: Sequence[int]) -> list[Claim]:
    """The 22 queries, and whole scans of 100 files, over plain Parquet, the file source and the connector, in turns.

    In seconds of processor time, of the JVM and of Python, so that other work on the machine counts little: the least
    of two runs, and for a query that seems slower the median of more, sixteen below two seconds.
    """
    made = generated(folder, scale)
    paths = {}
    for name, by in LAYOUTS.items():
        paths[name] = folder / f"tpch-{scale}-zskip" / name
        if not (paths[name] / "_zskip").exists():
            rows = made / f"{name}.parquet"
            zskip.write(str(rows), paths[name], by=by, files=100 if name in ("lineitem", "orders") else 4)
    frames = {way: {name: frame(spark, path, way) for name, path in paths.items()} for way in WAYS}
    values = ", ".join(f"max({name}), count({name})" for name in zskip.open(paths["lineitem"]).columns)
    queries = {
        "scan": f"SELECT {values} FROM lineitem WHERE l_comment <> ''",
        "scan, 2 columns": "SELECT sum(l_quantity), avg(l_tax) FROM lineitem",
        **{str(number): query for number, query in QUERIES.items()},
    }
    print(f"| query | files: {', '.join(WAYS)} | s: {', '.join(WAYS)} |\n| --- | --- | --- |")
    read, took = ({name: dict.fromkeys(WAYS, 0.0) for name in queries} for _ in range(2))
    differ = []
    for number, query in queries.items():
        results: dict[str, list[Row]] = {}
        runs: dict[str, list[float]] = {way: [] for way in WAYS}

        def run(
            way: str,
            number: str = number,
            query: str = query,
            results: dict[str, list[Row]] = results,
            runs: dict[str, list[float]] = runs,
        ) -> None:
            for name, rows in frames[way].items():
                rows.createOrReplaceTempView(name)
            began = processor_seconds(spark)
            rows = spark.sql(query)
            results[way] = rows.collect()
            runs[way].append(processor_seconds(spark) - began)
            read[number][way] = scanned(rows)

        for way in [*WAYS, *reversed(WAYS), *WAYS]:
            run(way)
        # What only a first run costs (generated code, files not yet in memory) is left out in all ways.
        took[number] = {way: min(runs[way][1:]) for way in WAYS}
        plain, source, connector = (took[number][way] for way in WAYS)
        if source > SLOWEST * plain or (number.startswith("scan") and connector > SLOWEST_SCAN * source):
            # Single runs of one query differ by half, by what Java compiles and collects meanwhile.
            for way in [*reversed(WAYS), *WAYS] * (8 if plain < 2 else 2):
                run(way)
            took[number] = {way: statistics.median(runs[way][3:]) for way in WAYS}
        if results["plain"] != results["file source"] or results["plain"] != results["connector"]:
            differ.append(number)
        print(line(number, read[number], took[number]), flush=True)
    whole = [{way: sum(found[number][way] for number in queries) for way in WAYS} for found in (read, took)]
    print(line("all", *whole), flush=True)
    found = f"{len(queries) - len(differ)} of {len(queries)}" + (f", not {', '.join(differ)}" if differ else "")
    same = Claim(f"TPC-H SF{scale}: queries with the rows of plain Parquet", f"all {len(queries)}", found, not differ)
    ratios = {name: took[name]["file source"] / took[name]["plain"] for name in took if name.isdigit() and name != "1"}
    worst = max(ratios, key=lambda name: ratios[name])
    scans = [took[name]["connector"] / took[name]["file source"] for name in ("scan", "scan, 2 columns")]
    return [
        same,
        at_most(
            f"TPC-H SF{scale}: the file source's time by plain Parquet's", 1.0, ratio(took, "file source", "plain")
        ),
        at_most(f"TPC-H SF{scale}: the slowest query by plain Parquet's time, {worst}", SLOWEST, ratios[worst]),
        at_most(
            f"TPC-H SF{scale}: the connector's time by the file source's", 1.0, ratio(took, "connector", "file source")
        ),
        at_most("whole scans of 100 files: the connector's time by the file source's", SLOWEST_SCAN, max(scans)),
    ]


def processor_seconds(spark: SparkSession) -> float:
    """Of this process, and of the driver's JVM, in which the executors are as well."""
    assert spark._jvm is not None
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    fields = Path(f"/proc/{jvm}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def frame(spark: SparkSession, path: Path, way: str) -> DataFrame:
    if way == "plain":
        return spark.read.parquet(f"{path}/*.parquet")
    return zskip.spark.table(spark, str(path), connector=way == "connector")


def ratio(took: dict[str, dict[str, float]], way: str, other: str) -> float:
    """Of the 22 queries together."""
    numbers = [number for number in took if number.isdigit()]
    return sum(took[number][way] for number in numbers) / sum(took[number][other] for number in numbers)


def line(name: str, read: dict[str, float], took: dict[str, float]) -> str:
    counts = " ".join(f"{read[way]:,.0f}" for way in WAYS)
    return f"| {name} | {counts} | {' '.join(f'{took[way]:.2f}' for way in WAYS)} |"


SECTIONS = {"look-up": look_up, "write": write, "skew": skew, "tpch": tpch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), help=", ".join(SECTIONS))
    parser.add_argument("--scale", default="1")
    parser.add_argument("--files", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--folder", type=Path, default=Path("bench-spark"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    spark = session()
    claims: list[Claim] = []
    for name in given.sections:
        claims += SECTIONS[name](spark, given.folder.resolve(), given.scale, given.files)
    print("\n| what | wanted | found | holds |\n| --- | --- | --- | --- |")
    for claim in claims:
        print(f"| {claim.what} | {claim.wanted} | {claim.found} | {'yes' if claim.holds else '**no**'} |")
    sys.exit(not all(claim.holds for claim in claims))


if __name__ == "__main__":
    main()
