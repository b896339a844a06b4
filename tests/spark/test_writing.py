"""`zskip.spark.write`: the local writer's layouts and format, from Spark; nothing left behind by what fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import zskip
from tests.spark.hostile import hostile
from tests.tables import sorted_rows
from zskip import layouts
from zskip import spark as zs
from zskip.errors import InvalidOption, SchemaError, SchemaMismatch, TableExists
from zskip.spark import cells, writing
from zskip.stats import collect
from zskip.table import Table
from zskip.writer import Routing


def left(folder: Path) -> set[str]:
    """All files of a folder but the index."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.is_relative_to(folder / "_zskip" / "log")
        if not path.is_relative_to(folder / "_zskip" / "stats")
        and not path.is_relative_to(folder / "_zskip" / "layout")
    }


def files_of(table: Table) -> list[str]:
    return table.index.paths(np.arange(len(table.index))).to_pylist()


def skipped(table: Table, rows: pa.Table, by: list[str]) -> float:
    """The share of rows that point look-ups of sampled values skip, averaged over the columns."""
    numbers = np.arange(len(table.index))
    units = table.index.file_statistics(numbers, by).statistics()
    counts = np.asarray(units.row_count)
    chosen = rows.take(pa.array(np.random.default_rng(5).choice(len(rows), 400)))
    shares = []
    for column in by:
        ranges = units.columns[column]
        values = np.asarray(chosen[column])
        hit = (np.asarray(ranges.lower)[None] <= values[:, None]) & (values[:, None] <= np.asarray(ranges.upper)[None])
        shares.append(1 - (hit * counts).sum(1).mean() / counts.sum())
    return float(np.mean(shares))


@pytest.fixture(scope="module")
def points() -> pa.Table:
    random = np.random.default_rng(1)
    return pa.table({c: random.integers(0, 1000, 60_000) for c in ("a", "b", "c")} | {"id": np.arange(60_000)})


@pytest.mark.parametrize("layout", sorted(layouts.LAYOUTS))
def test_native_file_numbers_are_those_of_the_assignment(spark: SparkSession, layout: str) -> None:
    rows = hostile().select(["i", "d", "f", "m", "s", "code", "bin", "day", "ts", "local", "yes", "st", "big"])
    for by in (["i", "code"], ["d", "ts"], ["s", "m", "local"], ["bin", "yes", "day"], ["st.a", "st.Deep", "f", "big"]):
        fitted = layouts.fit(rows, by, layout=layout, files=12, total_rows=len(rows))
        routing = Routing((), ((),), (fitted,))
        numbered = cells.file_numbers(routing, spark.createDataFrame(rows), "n", None)
        found = numbered.toArrow()
        wanted = routing.route(found.drop_columns(["n"]).cast(rows.schema))
        salted = fitted.cells.salt[fitted.cell_of(found.drop_columns(["n"]).cast(rows.schema))] > 1
        assert (found["n"].to_numpy()[~salted] == wanted[~salted]).all(), by


def test_native_leaves_below_the_table_and_of_many_trees(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the table holds only the top of a tree, or each row has a tree of its own, the walk goes on by levels."""
    monkeypatch.setattr(cells, "_GRID_ENTRIES", 6)
    zeros = pa.array([-0.0, 0.0, float("nan"), None, -1.0, 1.0] * 100)
    rows = hostile(600).select(["i", "code", "few"]).append_column("z", zeros)
    by = ["i", "code", "z"]
    parts = [layouts.fit(rows.slice(100 * i), by, files=n, total_rows=600) for i, n in enumerate((1, 5, 9, 30))]
    for assignments in [parts[3:], parts]:
        number = np.arange(600) % len(assignments)
        given = spark.createDataFrame(rows.append_column("t", pa.array(number, pa.int32())))
        forest = cells.Forest.of(assignments)
        assert forest.levels
        found = forest.walk(given, "n", None if len(assignments) == 1 else f.col("t")).toArrow()
        wanted = np.stack([one.cell_of(found.select(by)) for one in assignments])[found["t"].to_numpy(), np.arange(600)]
        starts = np.cumsum([0, *(one.tree.cells for one in assignments)])
        assert (found["n"].to_numpy() == wanted + starts[found["t"].to_numpy()]).all()


def test_quality_is_that_of_the_local_writer(spark: SparkSession, tmp_path: Path, points: pa.Table) -> None:
    by = ["a", "b", "c"]
    local = zskip.write(points, tmp_path / "local", by=by, files=30)
    ours = zs.write(spark.createDataFrame(points), tmp_path / "spark", by=by, files=30, row_group_rows=500)
    assert ours.snapshot.totals.rows == 60_000
    assert abs(skipped(ours, points, by) - skipped(local, points, by)) < 0.01
    assert sorted_rows(pq.read_table(tmp_path / "spark")) == sorted_rows(points)
    first = pq.read_metadata(tmp_path / "spark" / files_of(ours)[0])
    assert {first.row_group(number).num_rows for number in range(first.num_row_groups - 1)} == {500}
    groups = ours.index.row_groups(np.arange(30), by).statistics
    widths = np.asarray(groups.columns["a"].upper) - np.asarray(groups.columns["a"].lower)
    files = ours.index.file_statistics(np.arange(30), by).statistics().columns["a"]
    assert widths.mean() < 0.8 * (np.asarray(files.upper) - np.asarray(files.lower)).mean()


def test_hostile_rows_come_back_with_true_statistics(spark: SparkSession, tmp_path: Path) -> None:
    rows = hostile()
    made = zs.write(spark.createDataFrame(rows), tmp_path / "t", by=["i", "d"], files=10, row_group_rows=100)
    found = zs.table(spark, made).toArrow()
    assert sorted_rows(found) == sorted_rows(rows.cast(found.schema))
    for number, path in enumerate(files_of(made)):
        written = pq.read_table(tmp_path / "t" / path)
        exact = collect.row_groups(written, np.array([0, len(written)]), made.snapshot.schema)
        kept = made.index.file_statistics(np.array([number]), list(exact.columns))
        for column, statistics in exact.columns.items():
            ours, true = kept.columns[column], statistics
            assert ours.null_count.to_pylist() == true.null_count.to_pylist(), (path, column)
            if column in ("d", "f"):
                assert ours.nan_count.to_pylist() == true.nan_count.to_pylist(), (path, column)
            if made.snapshot.schema.columns[column].orderable:
                assert ours.lower.to_pylist() == true.lower.to_pylist(), (path, column)
                assert ours.upper.to_pylist() == true.upper.to_pylist(), (path, column)


def test_options_layouts_and_the_session_are_kept(spark: SparkSession, tmp_path: Path, points: pa.Table) -> None:
    before = spark.sql("SET").collect()
    rows = spark.createDataFrame(points)
    table = zs.write(rows, tmp_path / "t", by="a", rows_per_file=10_000, compression="snappy", layout="linear")
    assert spark.sql("SET").collect() == before
    assert 4 <= len(files_of(table)) <= 8
    assert table.snapshot.layout.name == "linear"
    assert pq.read_metadata(tmp_path / "t" / files_of(table)[0]).row_group(0).column(0).compression == "SNAPPY"
    with pytest.raises(TableExists):
        zs.write(rows, tmp_path / "t", by="a")
    again = zs.write(rows.limit(100), tmp_path / "t", by="b", files=1, mode="overwrite")
    assert (again.version, again.snapshot.totals.rows) == (2, 100)
    small = zs.write(rows.limit(0), tmp_path / "empty", by="a")
    assert (small.snapshot.totals.rows, len(files_of(small))) == (0, 0)
    assert zs.table(spark, small).count() == 0


def test_partitions_are_hive_folders(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"p": [1, 2, None, 2] * 100, "q": ["a/b", "c d"] * 200, "x": list(range(400))})
    table = zs.write(spark.createDataFrame(rows), tmp_path / "t", by="x", partition_by=["p", "q"], files=8)
    assert {path.rpartition("/")[0].split("/")[0] for path in files_of(table)} == {
        "p=1",
        "p=2",
        "p=__HIVE_DEFAULT_PARTITION__",
    }
    zs.append(spark.createDataFrame(pa.table({"p": [9], "q": ["new"], "x": [1000]})), tmp_path / "t")
    found = zs.table(spark, tmp_path / "t")
    assert found.where("p = 9").count() == found.where("x = 1000").count() == 1
    assert found.count() == 401
    assert sorted_rows(found.where("p IS NULL").toArrow()) == sorted_rows(rows.filter(pa.compute.is_null(rows["p"])))


def test_local_and_spark_append_to_each_other(spark: SparkSession, tmp_path: Path, points: pa.Table) -> None:
    half = points.slice(0, 30_000)
    rest = points.slice(30_000)
    zs.write(spark.createDataFrame(half), tmp_path / "t", by=["a", "b"], files=8)
    zskip.write(rest.slice(0, 15_000), tmp_path / "t", mode="append")
    table = zs.append(spark.createDataFrame(rest.slice(15_000)), tmp_path / "t")
    assert table.version == 3
    assert sorted_rows(pq.read_table([tmp_path / "t" / path for path in files_of(table)])) == sorted_rows(points)
    optimized = zs.optimize(spark, tmp_path / "t", files=8)
    assert optimized.version == 4
    assert len(files_of(optimized)) <= 9
    assert zs.table(spark, optimized).where("a = 17").count() == len(points.filter(pa.compute.field("a") == 17))
    more = zskip.write(half.slice(0, 10), tmp_path / "t", mode="append")
    assert more.snapshot.totals.rows == 60_010


def test_an_append_may_lack_and_add_columns(spark: SparkSession, tmp_path: Path) -> None:
    zs.write(spark.createDataFrame(pa.table({"x": [1, 2], "s": ["a", "b"]})), tmp_path / "t", by="x")
    zs.append(spark.createDataFrame(pa.table({"x": pa.array([3], pa.int32()), "new": [1.5]})), tmp_path / "t")
    found = zs.table(spark, tmp_path / "t")
    assert sorted(map(tuple, found.collect())) == [(1, "a", None), (2, "b", None), (3, None, 1.5)]
    assert found.where("new IS NULL").count() == 2
    with pytest.raises(SchemaMismatch):
        zs.append(spark.createDataFrame(pa.table({"x": ["text"]})), tmp_path / "t")


def test_one_value_in_most_rows_is_spread(spark: SparkSession, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    user = np.where(random.random(50_000) < 0.6, 7, random.integers(0, 10_000, 50_000))
    rows = pa.table({"user": user, "id": np.arange(50_000)})
    table = zs.write(spark.createDataFrame(rows), tmp_path / "t", by="user", files=20)
    counts = np.asarray(table.index.row_counts(np.arange(len(table.index))))
    assert counts.max() <= 3 * np.median(counts)
    assert sorted_rows(zs.table(spark, table).toArrow()) == sorted_rows(rows)


def test_bad_input_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(10)
    with pytest.raises(InvalidOption, match="by="):
        zs.write(rows, tmp_path / "t")
    with pytest.raises(zskip.UnknownColumn):
        zs.write(rows, tmp_path / "t", by="idd")
    with pytest.raises(InvalidOption, match="mode"):
        zs.write(rows, tmp_path / "t", by="id", mode="merge")
    with pytest.raises(SchemaError, match="collate"):
        zs.write(rows.selectExpr("id", "'a' COLLATE UTF8_LCASE AS s"), tmp_path / "t", by="id")
    assert not (tmp_path / "t").exists()


def test_failed_tasks_leave_no_file(spark: SparkSession, tmp_path: Path) -> None:
    """A task that fails after writing some of its rows: the old table stays, and nothing is beside it."""
    folder = tmp_path / "t"
    zs.write(spark.range(100).withColumn("x", f.col("id") % 7), folder, by="x", files=2)
    before = left(folder)
    # Counting and sampling do not look at the column that fails, writing does.
    failing = spark.range(100_000).selectExpr(
        "id", "id % 7 AS x", "IF(id = 99000, CAST(raise_error('planted') AS STRING), 'fine') AS y"
    )
    with pytest.raises(Exception, match="planted"):
        zs.write(failing, folder, by="x", files=2, mode="overwrite")
    assert left(folder) == before
    assert zskip.open(folder).version == 1
    assert zs.write(spark.range(10), folder, by="id", mode="overwrite").version == 2


def test_a_failed_commit_leaves_no_file(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("planted")

    monkeypatch.setattr(writing.sidecar, "commit", fails)
    with pytest.raises(OSError, match="planted"):
        zs.write(spark.range(100), tmp_path / "t", by="id", files=3)
    assert left(tmp_path / "t") == set()


_DRIVER = """
import sys
from pyspark.sql import SparkSession
import zskip.spark
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
slow = spark.range(400_000).selectExpr("id", "id % 1000 AS x", "sha2(repeat(cast(id AS string), 300), 512) AS y")
print("begun", flush=True)
zskip.spark.write(slow, sys.argv[1], by=["x"], files=40, mode="overwrite")
print("done", flush=True)
"""


def test_a_killed_driver_leaves_the_old_table(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    zs.write(spark.range(100), folder, by="id", files=2)
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(zskip.__file__).parent.parent)},
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline().strip() == "begun"
        deadline = time.monotonic() + 120
        while not list(folder.glob("_zskip/staging-*/_temporary/**/*.parquet")):
            assert driver.poll() is None, "the writer was done before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    table = zskip.open(folder)
    assert table.version == 1
    assert zs.table(spark, table).count() == 100
    again = zs.write(spark.range(50), folder, by="id", files=2, mode="overwrite")
    assert (again.version, zs.table(spark, again).count()) == (2, 50)


def test_a_batch_is_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = zs.append_batch(tmp_path / "t", by=["id"], files=2)
    sink(spark.range(10), 0)
    sink(spark.range(10), 0)
    sink(spark.range(10, 15), 1)
    sink(spark.range(10, 15), 1)
    zs.append_batch(tmp_path / "t", application="other", by=["id"])(spark.range(3), 0)
    assert zskip.open(tmp_path / "t").snapshot.totals.rows == 18


def test_a_stream_ends_in_a_table(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    spark.range(100).repartition(4).write.parquet(str(source))
    stream = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 2).parquet(str(source))
    for _ in range(2):
        query = (
            stream.writeStream.foreachBatch(zs.append_batch(tmp_path / "t", by=["id"]))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert zs.table(spark, tmp_path / "t").count() == 100


def test_index_is_that_of_the_footers(spark: SparkSession, tmp_path: Path) -> None:
    rows = hostile().drop_columns(["local"])
    folder = tmp_path / "t"
    spark.createDataFrame(rows).repartitionByRange(6, "i").write.parquet(str(folder))
    pq.write_table(pa.table({"i": [5], "extra": ["x"]}), folder / "z.parquet")
    table = zs.index(spark, folder, files_per_task=2)
    from zskip.stats import footers

    schema, wanted = footers.read(table.storage, files_of(table), None)
    assert table.snapshot.schema == schema
    found = table.index.data_files()
    assert found.files.row_count.equals(wanted.files.row_count)
    for path, column in wanted.files.columns.items():
        assert found.files.columns[path].lower.equals(column.lower), path
        assert found.files.columns[path].nan_count.equals(column.nan_count), path
    pruned = zs.table(spark, table)
    assert pruned.where("extra = 'x'").count() == 1
    assert pruned.where("i < -990").count() == sum(1 for i in rows["i"].to_pylist() if i is not None and i < -990)


def test_the_data_source_reads_and_pushes_filters(spark: SparkSession, tmp_path: Path) -> None:
    rows = hostile()
    table = zskip.write(rows, tmp_path / "t", by=["i"], files=8)
    zs.register_source(spark)
    found = spark.read.format("zskip").load(str(tmp_path / "t"))
    plain = zs.table(spark, table)
    assert found.schema == plain.schema
    for where in (
        "i < -900",
        "d > 50",
        "s LIKE 'a%' AND few IN (1, 2)",
        "ts IS NULL",
        "i <=> 5",
        "day > DATE '1970-01-03'",
    ):
        assert sorted_rows(found.where(where).toArrow()) == sorted_rows(plain.where(where).toArrow()), where
