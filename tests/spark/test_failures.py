"""What is lost on the way leaves nothing behind: an executor that is killed while tasks are speculated, the driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pyspark
import pytest
from pyspark.sql import SparkSession

import zskip
from tests import ROOT
from tests.spark import cluster
from zskip import spark as zs

_DRIVER = """
import json, os, sys
from pyspark.sql import SparkSession
import zskip.spark
made = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
made = made.config("spark.driver.bindAddress", "127.0.0.1").config("spark.local.dir", sys.argv[3]).master(sys.argv[2])
made = made.config("spark.executor.memory", "600m").config("spark.speculation", "true")
for name, value in {"interval": "20ms", "multiplier": "1.01", "quantile": "0.1", "minTaskRuntime": "0ms"}.items():
    made = made.config(f"spark.speculation.{name}", value)
spark = made.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
slow = spark.range(400_000).selectExpr("id", "id % 1000 AS x", "sha2(repeat(cast(id AS string), 300), 512) AS y")
print("begun", flush=True)
zskip.spark.write(slow, sys.argv[1], by=["x"], files=40, mode="overwrite")
store = spark._jsc.sc().statusStore()
stages = store.stageList(None, False, False, *(getattr(store, f"stageList$default${n}")() for n in (4, 5)))
again = sum(stages.apply(n).numFailedTasks() + stages.apply(n).numKilledTasks() for n in range(stages.size()))
print(json.dumps(again), flush=True)
"""


def start(folder: Path, master: str, scratch: Path) -> subprocess.Popen[str]:
    # A local cluster keeps the executors' logs in SPARK_HOME, which is not ours.
    home = scratch / "home"
    home.mkdir(parents=True)
    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)
    environment = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(zskip.__file__).parent.parent),
    }
    return subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(folder), master, str(scratch / "local")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, **environment},
    )


def wait_for_tasks(driver: subprocess.Popen[str], folder: Path) -> None:
    """Until a task has begun to write."""
    assert driver.stdout is not None
    assert driver.stdout.readline().strip() == "begun"
    deadline = time.monotonic() + 120
    while not list(folder.glob("_zskip/staging-*/_temporary/**/*.parquet")):
        assert driver.poll() is None, "the writer was done before it was disturbed"
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_driver_leaves_the_old_table(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    zs.write(spark.range(100), folder, by="id", files=2)
    driver = start(folder, "local[2]", tmp_path / "scratch")
    try:
        wait_for_tasks(driver, folder)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    table = zskip.open(folder)
    assert table.version == 1
    assert zs.table(spark, table).count() == 100
    again = zs.write(spark.range(50), folder, by="id", files=2, mode="overwrite")
    assert (again.version, zs.table(spark, again).count()) == (2, 50)


@pytest.mark.slow
def test_a_killed_executor_and_speculation_leave_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    zs.write(spark.range(100), folder, by="id", files=2)
    driver = start(folder, "local-cluster[2,1,600]", tmp_path / "scratch")
    try:
        wait_for_tasks(driver, folder)
        executors = [
            process
            for process in psutil.Process(driver.pid).children(recursive=True)
            if "CoarseGrainedExecutorBackend" in str(process.as_dict(["cmdline"])["cmdline"])
        ]
        assert len(executors) >= 2
        executors[0].kill()
        printed, _ = driver.communicate(timeout=300)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert driver.returncode == 0
    assert json.loads(printed) > 0, "no task was lost or run twice"
    table = zskip.open(folder)
    assert (table.version, table._index.snapshot.totals.rows) == (2, 400_000)
    named = set(table._index.paths(np.arange(len(table._index))).to_pylist())
    older = set(zskip.open(folder, version=1).plan().scan.relative_paths)
    assert {path.name for path in folder.glob("*.parquet")} == named | older
    assert not list(folder.glob("_zskip/staging-*"))
    rows = zs.table(spark, table)
    assert rows.selectExpr("count(DISTINCT id)", "sum(id)").first()[:] == (400_000, 399_999 * 200_000)
    again = zskip.open(folder)
    again.append(spark.range(400_000, 400_010).selectExpr("id", "id % 1000 AS x", "'new' AS y"), session=spark)
    assert (again.version, zs.table(spark, again).count()) == (3, 400_010)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux answers at every address of the loopback")
def test_tasks_that_run_twice_at_a_time_leave_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    folder, scratch = tmp_path / "t", tmp_path / "scratch"
    old = zs.write(spark.sql("SELECT 0L AS id, 0L AS x, 'old' AS y"), folder, by="x", files=1)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster", str(folder), str(scratch)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=400,
        check=True,
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )
    for ends in json.loads(done.stdout):
        assert ends, "no task that writes was speculated"
        assert all(attempts.count("SUCCESS") == 1 and len(attempts) > 1 for attempts in ends)

    table = zskip.open(folder)
    assert (table.version, table._index.snapshot.totals.rows) == (3, 2 * cluster.ROWS)
    named = table._index.paths(np.arange(len(table._index))).to_pylist()
    assert len(set(named)) == len(named)
    older = old.plan().scan.relative_paths
    assert {path.name for path in folder.glob("*.parquet")} == {*named, *older}
    # An attempt that goes on after the commit may still make its folder, which no table looks at.
    table.vacuum("0 days")
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")} == set(named)
    ids = zs.table(spark, table).select("id").toArrow()["id"]
    assert np.array_equal(np.sort(ids), np.arange(2 * cluster.ROWS))
    again = zskip.open(folder)
    again.append(spark.sql("SELECT -1L AS id, 0L AS x, 'new' AS y"), session=spark)
    assert (again.version, zs.table(spark, again).count()) == (4, 2 * cluster.ROWS + 1)
