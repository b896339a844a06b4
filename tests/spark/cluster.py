"""A Spark cluster with two executors, each on a host of its own, one of which stands still while a table is written.

    python -m tests.spark.cluster FOLDER SCRATCH

Spark speculates a task on another host only, which its own ``local-cluster`` does not have: all of its executors are on
one. So a master and two workers are started here, at other addresses of the loopback, in the driver's JVM.

An executor that is stopped is given tasks as any other, and none of them ends: each is run a second time elsewhere. In
the first write it goes on as soon as a task that writes files is run twice, in the second one after the commit. Prints,
for each, how the attempts ended of every such task, as JSON.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

import zskip.spark

ROWS, FILES = 60_000, 8
# Each stage before the one that writes may leave a task, and so a slot, on the executor that stands still.
_SLOTS = 8
_PATIENCE = 120.0  # seconds, on a machine that does much else


def session(scratch: str) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.executor.memory": "600m",
        "spark.executor.cores": str(_SLOTS),
        "spark.local.dir": f"{scratch}/local",
        "spark.sql.shuffle.partitions": "2",
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.quantile": "0.25",
        "spark.speculation.minTaskRuntime": "0ms",
        # Of stages with a single task, which can be compared with no other.
        "spark.speculation.task.duration.threshold": "500ms",
        # Tasks go to either executor, wherever their rows are.
        "spark.locality.wait": "0",
        "spark.shuffle.reduceLocality.enabled": "false",
        "spark.master.rest.enabled": "false",
    }
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    SparkContext._ensure_initialized(conf=conf)
    jvm: Any = SparkContext._jvm
    java_conf = jvm.org.apache.spark.SparkConf()
    for key, value in settings.items():
        java_conf.set(key, value)
    deploy = jvm.org.apache.spark.deploy
    master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, java_conf)._1()
    url = f"spark://127.0.0.1:{master.address().port()}"
    urls = SparkContext._gateway.new_array(jvm.java.lang.String, 1)
    urls[0] = url
    nothing = jvm.scala.Option.empty()
    for number in (2, 3):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            f"127.0.0.{number}",
            0,
            0,
            _SLOTS,
            700,
            urls,
            f"{scratch}/work",
            jvm.scala.Option.apply(number),
            java_conf,
            nothing,
        )
    spark = SparkSession.builder.master(url).config(conf=conf).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    # Those that have told the driver, which is one of them: a process that has not yet is given no task.
    tracker = spark._jsc.sc().statusTracker()  # type: ignore[attr-defined]  # missing from its types
    wait_until(lambda: len(tracker.getExecutorInfos()) == 3, "two executors")
    return spark


def executors() -> dict[str, psutil.Process]:
    """The executors' processes by their numbers in Spark."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        words = process.as_dict(["cmdline"])["cmdline"] or []
        if "--executor-id" in words and "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words:
            found[words[words.index("--executor-id") + 1]] = process
    return found


def wait_until(holds: Callable[[], Any], what: str) -> Any:
    """What a question answers as soon as that is anything."""
    deadline = time.monotonic() + _PATIENCE
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)
    return found


class Stages:
    """What Spark keeps of its stages and tasks."""

    def __init__(self, spark: SparkSession) -> None:
        self.store = spark._jsc.sc().statusStore()  # type: ignore[attr-defined]  # missing from its types
        self.defaults = [getattr(self.store, f"stageList$default${number}")() for number in (4, 5)]

    def newer_than(self, number: int) -> list[Any]:
        found = self.store.stageList(None, False, False, *self.defaults)
        stages = [found.apply(place) for place in range(found.size())]
        return sorted((one for one in stages if one.stageId() > number), key=lambda one: one.stageId())

    def last(self) -> int:
        return max((int(one.stageId()) for one in self.newer_than(-1)), default=-1)

    def writing(self, after: int) -> Any:
        """The stage that writes the files: it has a task for each."""
        return next((one for one in self.newer_than(after) if one.numTasks() == FILES), None)

    def tasks(self, stage: Any) -> list[Any]:
        found = self.store.taskList(stage.stageId(), stage.attemptId(), 10_000)
        return [found.apply(place) for place in range(found.size())]


def main() -> None:
    folder, scratch = sys.argv[1:]
    spark = session(scratch)
    stages = Stages(spark)
    rows = spark.range(0, ROWS, 1, 1).selectExpr("id", "id % 1000 AS x", "sha2(cast(id AS string), 512) AS y")
    wrote = []
    with straggler(stages, while_writing=True) as seen:
        zskip.spark.write(rows, folder, by=["x"], files=FILES, mode="overwrite")
    wrote.append(settled(stages, seen))
    with straggler(stages, while_writing=False) as seen:
        zskip.open(folder).append(rows.selectExpr(f"id + {ROWS} AS id", "x", "y"), session=spark)
    wrote.append(settled(stages, seen))
    print(json.dumps([ends(tasks) for tasks in wrote]), flush=True)
    spark.stop()


def ends(tasks: list[Any]) -> list[list[str]]:
    """How the attempts ended of each task that was run twice at a time."""
    twice = {task.index() for task in tasks if task.speculative()}
    return [sorted(str(task.status()) for task in tasks if task.index() == index) for index in sorted(twice)]


@dataclass
class Seen:
    """The stage that wrote files while an executor stood still."""

    stage: Any = None


def settled(stages: Stages, seen: Seen) -> list[Any]:
    """The attempts of the tasks that wrote, once none of them runs any more: what was stopped goes on that far."""
    wait_until(lambda: all(task.status() != "RUNNING" for task in stages.tasks(seen.stage)), "an end of all attempts")
    return stages.tasks(seen.stage)


@contextmanager
def straggler(stages: Stages, *, while_writing: bool) -> Iterator[Seen]:
    """Stop an executor; let it go on once a task that writes runs twice, or only when the block is over."""
    seen, before = Seen(), stages.last()
    victim = next(iter(executors().values()))
    victim.send_signal(signal.SIGSTOP)

    def watch() -> None:
        seen.stage = wait_until(lambda: stages.writing(before), "a stage that writes")
        wait_until(lambda: any(task.speculative() for task in stages.tasks(seen.stage)), "a task that is speculated")
        if while_writing:
            victim.send_signal(signal.SIGCONT)

    try:
        with ThreadPoolExecutor(1) as watching:
            watched = watching.submit(watch)
            yield seen
            watched.result()
    finally:
        victim.send_signal(signal.SIGCONT)


if __name__ == "__main__":
    main()
