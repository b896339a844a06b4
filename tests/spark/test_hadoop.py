"""Tables in file systems that only Spark's Hadoop client reaches: here WebHDFS, and mounts of it."""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import zskip
from tests.spark.files import files_read, matching, scanned
from tests.spark.webhdfs import Refused, WebHdfs, webhdfs
from tests.tables import sorted_rows
from zskip import spark as zs
from zskip.core.schema import Schema
from zskip.errors import InvalidOption, TableExists, TableNotFound, UnsafePath, UnsupportedStore
from zskip.parquet import footers, from_rows
from zskip.spark.executor_footers import read_footers
from zskip.spark.hadoop import HadoopStorage, open_storage
from zskip.spark.spark_session import setting
from zskip.stats import ColumnStatistics, DataFiles
from zskip.storage.local import LocalStorage
from zskip.table import Table
from zskip.tablelog import log
from zskip.writer import append
from zskip.writer.backend import LOCAL
from zskip.writer.options import WriteOptions


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebHdfs]:
    with webhdfs(tmp_path_factory.mktemp("dfs")) as running:
        yield running


@pytest.fixture
def store(spark: SparkSession, server: WebHdfs, request: pytest.FixtureRequest) -> Iterator[HadoopStorage]:
    """A place for one test's table, with a name that has to be escaped."""
    found = open_storage(spark, f"{server.url}/a b+ü/{request.node.name}")
    assert isinstance(found, HadoopStorage)
    yield found
    server.before = server.after = lambda operation, path: None


def beside(server: WebHdfs, store: HadoopStorage) -> LocalStorage:
    """The same folder, as the server's own disk has it."""
    return LocalStorage(server.folder / store.uri.partition("127.0.0.1")[2].partition("/")[2])


@pytest.fixture(scope="module")
def points(spark: SparkSession) -> DataFrame:
    text = "CASE WHEN id % 100 = 3 THEN double('NaN') WHEN id % 7 <> 0 THEN id / 3.0 END"
    made = spark.range(4000).selectExpr("id", "id * 7919 % 1000 AS a", "id * 104729 % 997 AS b", f"{text} AS f")
    return spark.createDataFrame(made.toArrow())


def test_a_storage_keeps_the_promises_of_one(server: WebHdfs, store: HadoopStorage) -> None:
    store.put("d=1/é/x.bin", b"hello")
    assert (store.read("d=1/é/x.bin"), store.exists("d=1/é/x.bin"), store.exists("d=1/x")) == (b"hello", True, False)
    ranges = [(1, 3, b"ell"), (-2, 9, b"lo"), (-9, 2, b"he"), (5, 1, b""), (99, 1, b""), (0, 1 << 62, b"hello")]
    assert [store.read_range("d=1/é/x.bin", start, length) for start, length, _ in ranges] == [x for *_, x in ranges]
    assert store.put_if_absent("d=1/é/y.bin", b"first")
    assert not store.put_if_absent("d=1/é/y.bin", b"second")
    assert store.read("d=1/é/y.bin") == b"first"
    with store.open_writer("_hidden/z.bin") as file:
        file.write(b"123")
    with suppress(RuntimeError), store.open_writer("never.bin") as file:
        file.write(b"123")
        raise RuntimeError
    assert store.list("").path.to_pylist() == ["_hidden/z.bin", "d=1/é/x.bin", "d=1/é/y.bin"]
    assert store.list("", hidden=False).path.to_pylist() == ["d=1/é/x.bin", "d=1/é/y.bin"]
    assert store.list("d=1").size.to_pylist() == [5, 5]
    assert store.list("nowhere").path.to_pylist() == store.names("nowhere") == []
    assert store.names("d=1/é", after="x.bin") == ["y.bin"]
    known = store.size_and_modified(["nowhere", "d=1/é/x.bin"])
    assert (known.path.to_pylist(), known.size.to_pylist()) == (["d=1/é/x.bin", "nowhere"], [5, None])
    many = [f"m/{number:03}" for number in range(120)]
    (beside(server, store).local / "m").mkdir()
    for path in many:
        (beside(server, store).local / path).write_text(path)
    told = store.size_and_modified([*many, "m/gone"])
    assert (told.path.to_pylist(), told.size.to_pylist()) == ([*many, "m/gone"], [5] * 120 + [None])
    assert told.modified[:120].equals(store.list("m").modified)
    store.move("m/000", "other/place/000")
    store.delete([*many, "nowhere"])
    store.remove_empty("m")
    assert store.list("").path.to_pylist() == ["_hidden/z.bin", "d=1/é/x.bin", "d=1/é/y.bin", "other/place/000"]
    with pytest.raises(FileNotFoundError, match="m/000 does not exist"):
        store.read("m/000")
    with pytest.raises(UnsafePath, match="leads out"):
        store.put("../x", b"")


def test_a_table_lives_there(spark: SparkSession, store: HadoopStorage, points: DataFrame) -> None:
    uri = store.uri
    table = zs.write(points, uri, by=["a", "b"], files=4)
    assert (table.uri, table.version, len(table._index)) == (uri, 1, 4)
    with pytest.raises(TableExists):
        zs.write(points, uri, by="a")
    where = "b BETWEEN 5 AND 9 OR f > 1200 OR f IS NULL AND a < 100"
    (wanted,) = matching(points, [where])
    assert sorted_rows(zs.table(spark, uri).where(where).toArrow()) == wanted
    assert sorted_rows(zs.read(spark, uri, where).toArrow()) == wanted
    zs.register(spark, "there", uri)
    of_uri = zs.sql(spark, f"SELECT id FROM '{uri}' WHERE a = 17")
    for found in (of_uri, spark.sql("SELECT id FROM there WHERE a = 17")):
        assert len(found.collect()) == 4
        assert scanned(found) < 4

    assert zskip.open(uri, session=spark).append(points.limit(100), session=spark).version == 2
    assert zs.delete(spark, uri, "a >= 500").version == 3
    done = zs.optimize(spark, uri, files=2)
    assert (done.version, done.files_after) == (4, 2)
    left = zskip.open(uri, session=spark)
    assert zs.table(spark, uri).where("a >= 500").count() == 0
    assert zs.table(spark, uri, version=1).count() == 4000
    assert left.to_arrow(["id"]).num_rows == left._index.snapshot.totals.rows
    left.append(points.limit(5).toArrow())  # by this machine, through the same client
    assert zs.table(spark, uri).count() == left._index.snapshot.totals.rows
    assert not [path for path in store.list("").path.to_pylist() if "staging" in path or ".tmp" in path]


def told(server: WebHdfs, store: HadoopStorage, paths: Sequence[str], schema: Schema) -> DataFiles:
    """What the rows of files tell, read from the server's own disk."""
    local = beside(server, store)
    return from_rows.with_statistics_from_rows(local, schema, footers.read(local, paths, schema)[1])


def columns_of(files: DataFiles) -> list[dict[str, ColumnStatistics]]:
    return [dict(files.files.columns), dict(files.row_groups.columns)]


@pytest.mark.slow
def test_columns_of_floats_are_known_as_if_their_rows_were_read_here(
    spark: SparkSession, server: WebHdfs, store: HadoopStorage, points: DataFrame
) -> None:
    """NaN counts too, which no footer has: of row groups of one length, and of others."""
    nested = points.selectExpr("id", "a", "f", "CASE WHEN id % 5 > 0 THEN struct(float(f) AS g, id) END AS `s.t`")
    table = zs.write(nested, store.uri, by="a", files=3, row_group_rows=500)
    written = table._index.data_files()
    assert len(written.row_groups) > 6
    assert columns_of(written) == columns_of(
        told(server, store, written.path.to_pylist(), table._index.snapshot.schema).take(
            np.argsort(np.argsort(written.path.to_pylist()))
        )
    )
    assert sum(written.files.columns["f"].nan_count.to_pylist()) == 40

    rows = points.toArrow().slice(0, 1000).select(["id", "a", "f"]).combine_chunks()
    none = pc.equal(pc.bit_wise_and(rows["id"], 7), 0).combine_chunks()
    inner = [rows["f"].cast(pa.float32()).combine_chunks(), rows["id"].combine_chunks()]
    rows = rows.append_column("s.t", pa.StructArray.from_arrays(inner, ["g", "id"], mask=none))
    place = beside(server, store).local
    for name, cuts in {"x": [0, 100, 300, 1000], "y": [0, 0, 7, 1000], "z": [0, 0]}.items():
        with pq.ParquetWriter(place / f"{name}.parquet", rows.schema) as writer:
            for start, end in itertools.pairwise(cuts):
                writer.write_table(rows.slice(start, end - start))
    odd = ["x.parquet", "y.parquet", "z.parquet"]
    found = read_footers(spark, store, odd, table._index.snapshot.schema)
    assert found.row_groups.columns["f"].nan_count.to_pylist()[:3] == [1, 2, 7]
    assert found.files.columns["f"].nan_count.to_pylist() == [10, 10, 0]
    of_floats = [column.path for column in table._index.snapshot.schema if pa.types.is_floating(column.type)]
    assert len(of_floats) == 2
    first = found.take(np.array([0]))
    alike = told(server, store, odd[:1], table._index.snapshot.schema)
    for ours, theirs in zip(columns_of(first), columns_of(alike), strict=True):
        assert [ours[path] for path in of_floats] == [theirs[path] for path in of_floats]


@pytest.mark.slow
def test_partitions_streams_and_an_index_over_what_lies_there(
    spark: SparkSession, server: WebHdfs, store: HadoopStorage, points: DataFrame
) -> None:
    parts = points.withColumn("p q", points.id % 3)
    batch = zs.append_batch(f"{store.uri}/stream", application="stream", by="a", files=2, partition_by=["p q"])
    for number in (0, 1, 1):
        batch(parts, number)
    streamed = zs.table(spark, f"{store.uri}/stream")
    assert sorted_rows(streamed.where("`p q` = 1 AND a < 50").toArrow()) == sorted_rows(
        parts.union(parts).where("`p q` = 1 AND a < 50").toArrow()
    )
    assert zs.read(spark, f"{store.uri}/stream", "`p q` = 2").count() == 2 * parts.where("`p q` = 2").count()

    local = beside(server, store).local / "raw"
    local.mkdir(parents=True)
    rows = points.toArrow()
    for number in range(4):
        pq.write_table(rows.slice(1000 * number, 1000), local / f"{number}.parquet")
    here = zskip.index(shutil.copytree(local, local / "_other"), deep=True)
    there = zs.index(spark, f"{store.uri}/raw", deep=True)
    assert columns_of(there._index.data_files()) == columns_of(here._index.data_files())
    once = zs.table(spark, there)
    assert once.where("id = 2500").count() == 1
    pq.write_table(rows.slice(0, 10), local / "3.parquet")
    assert zs.table(spark, there).where("id = 5").count() == 2
    assert once.where("id >= 3000").count() == 0


def test_of_two_commits_at_once_none_is_lost(server: WebHdfs, store: HadoopStorage) -> None:
    rows = pa.table({"x": range(100)})
    append.create(store, None, LOCAL.open_rows(rows, None), WriteOptions(by="x", files=2), LOCAL)
    together = threading.Barrier(2)

    def meet(operation: str, path: str) -> None:
        if operation == "RENAME" and path.rpartition("/")[2].startswith(".00000000000000000002.json"):
            together.wait(60)

    server.before = meet
    with ThreadPoolExecutor(2) as pool:
        writers = [Table(store, log.load(store)) for _ in range(2)]
        list(
            pool.map(lambda table, start: table.append(pa.table({"x": range(start, start + 50)})), writers, (200, 300))
        )
    newest = Table(store, log.load(store))
    assert sorted(writer.version for writer in writers) == [2, 3]
    assert sorted(newest.to_arrow()["x"].to_pylist()) == [*range(100), *range(200, 250), *range(300, 350)]
    assert not [path for path in store.list("").path.to_pylist() if path.endswith(".tmp")]


@pytest.mark.parametrize("done", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_commit_without_an_answer_is_made_once(server: WebHdfs, store: HadoopStorage, done: bool) -> None:
    """Whether the rename was made before the connection failed or was not: the writer looks, and asks again."""
    append.create(store, None, LOCAL.open_rows(pa.table({"x": [1]}), None), WriteOptions(by="x", files=1), LOCAL)
    failures = [1]

    def fail(operation: str, path: str) -> None:
        if operation == "RENAME" and ".json" in path and failures:
            failures.pop()
            raise Refused(403, "java.io.IOException", "the line is bad")

    setattr(server, "after" if done else "before", fail)
    table = Table(store, log.load(store))
    table.append(pa.table({"x": [2]}))
    assert not failures
    assert (table.version, log.latest_version(store)) == (2, 2)
    assert Table(store, log.load(store)).to_arrow()["x"].to_pylist() == [1, 2]


_DRIVER = """
import os, sys
from pyspark.sql import SparkSession
import zskip.spark
made = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
made = made.config("spark.driver.bindAddress", "127.0.0.1").config("spark.local.dir", sys.argv[2]).master("local[2]")
spark = made.getOrCreate()
zskip.spark.write(spark.range(1000), sys.argv[1], by="id", files=4, mode="overwrite")
"""


@pytest.mark.slow
def test_a_driver_that_dies_at_its_commit_leaves_the_old_table(
    spark: SparkSession, server: WebHdfs, store: HadoopStorage, tmp_path: Path
) -> None:
    zs.write(spark.range(100), store.uri, by="id", files=2)
    before = set(store.list("").path.to_pylist())
    about_to = threading.Event()

    def stop(operation: str, path: str) -> None:
        if operation == "RENAME" and path.rpartition("/")[2].startswith(".00000000000000000002.json"):
            about_to.set()
            driver.wait()
            raise Refused(500, "java.io.IOException", "nobody asks any more")

    server.before = stop
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, store.uri, str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(zskip.__file__).parent.parent), "PYSPARK_PYTHON": sys.executable},
    )
    try:
        assert about_to.wait(120), driver.poll()
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    server.before = lambda operation, path: None
    assert log.latest_version(store) == 1
    assert zs.table(spark, store.uri).count() == 100
    orphans = set(store.list("").path.to_pylist()) - before
    assert len([path for path in orphans if path.endswith(".parquet")]) == 4
    assert [path for path in orphans if ".json." in path]
    again = zs.write(spark.range(50), store.uri, by="id", files=2, mode="overwrite")
    assert (again.version, zs.table(spark, again).count()) == (2, 50)
    assert orphans <= set(again.vacuum(older_than=timedelta(0)).paths)
    assert zs.table(spark, store.uri).count() == 50


@pytest.mark.slow
def test_mounts_are_followed_to_where_the_log_lies(
    spark: SparkSession, server: WebHdfs, store: HadoopStorage, points: DataFrame, tmp_path: Path
) -> None:
    table = zs.write(points, tmp_path / "t", by="a", files=4)
    mounts = {
        "fs.viewfs.mounttable.both.link./disk": tmp_path.as_uri(),
        "fs.viewfs.mounttable.both.link./dfs": f"{server.url}/mounted",
    }
    (server.folder / "mounted").mkdir()
    with setting(spark, mounts):
        there = zs.write(points, "viewfs://both/dfs/t", by="a", files=4)
        assert there.uri == "viewfs://both/dfs/t"
        assert there.append(points.limit(10), session=spark).version == 2
        assert zs.table(spark, "viewfs://both/dfs/t").where("a = 17").count() == 4

        seen = zs.table(spark, "viewfs://both/disk/t").where("a = 17")
        assert (seen.count(), files_read(seen)) == (4, 1)
        before = sorted(path for path in tmp_path.rglob("*"))
        for change in (
            lambda: zs.write(points, "viewfs://both/disk/new", by="a"),
            lambda: zskip.open("viewfs://both/disk/t", session=spark).append(points, session=spark),
            lambda: zs.delete(spark, "viewfs://both/disk/t", "a < 500"),
            lambda: zs.delete(spark, "viewfs://both/disk/t", "a >= 0"),
            lambda: zs.optimize(spark, "viewfs://both/disk/t", files=2),
        ):
            with pytest.raises(UnsupportedStore, match=r"file://, that is not known to refuse.*atomic_rename"):
                change()
        assert sorted(path for path in tmp_path.rglob("*")) == before
        promised = {"atomic_rename": True}
        zskip.open("viewfs://both/disk/t", session=spark, storage_options=promised).append(
            points.limit(10), session=spark
        )
        with pytest.raises(InvalidOption, match="only storage option of viewfs:// is atomic_rename"):
            zskip.open("viewfs://both/disk/t", session=spark, storage_options={"region": "x"})
    assert zskip.open(table.uri).version == 2


def test_what_cannot_be_reached_is_named(spark: SparkSession, store: HadoopStorage) -> None:
    with pytest.raises(TableNotFound, match=r"There is no zskip table at webhdfs"):
        zs.table(spark, store.uri)
    with pytest.raises(InvalidOption, match=r'Hadoop cannot open "nosuch://a/b".*No FileSystem for scheme'):
        zs.table(spark, "nosuch://a/b")
    with pytest.raises(InvalidOption, match=r"through zskip\.spark"):
        zskip.open(store.uri)
    zs.register_source(spark)
    with pytest.raises(AnalysisException, match=r"zskip\.spark\.table"):
        spark.read.format("zskip").load(store.uri)
    with pytest.raises(TypeError, match="the driver's"):
        pickle.dumps(store)
    connect = type("Session", (), {"__module__": "pyspark.sql.connect.session", "createDataFrame": None})()
    with pytest.raises(InvalidOption, match="Spark Connect"):
        zs.read(connect, store.uri)


def test_a_refusal_of_access_is_no_absence(server: WebHdfs, store: HadoopStorage) -> None:
    store.put("_zskip/log/latest", b"1")

    def refuse(operation: str, path: str) -> None:
        raise Refused(403, "org.apache.hadoop.security.AccessControlException", "not you")

    server.before = refuse
    for ask in (store.read, store.exists, store.list, store.names):
        with pytest.raises(PermissionError, match="not you"):
            ask("_zskip/log/latest")
    with pytest.raises(PermissionError):
        store.size_and_modified(["_zskip/log/latest"])
